//! The program spurstepd when a person starts it.

use std::process::{Command, Stdio};

#[test]
fn a_person_who_starts_it_is_told_that_spurd_does() {
    let program = Command::new(env!("CARGO_BIN_EXE_spurstepd")).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(program.stderr).unwrap();
    assert!(!program.status.success());
    assert!(text.contains("spurd starts spurstepd"), "{text}");
}
