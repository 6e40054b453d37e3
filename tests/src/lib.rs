//! Whole-system tests of Spur, and the parts that tests of its crates share. Each folder beside `src` is a
//! test of its own:
//!
//! `scripts` (decisions of the controller), `sim` (a whole cluster in one thread), `journal` (old journals
//! stay readable), `e2e` (real daemons), `tidy` (machine checks of the code), and the crate `powerloss`.

pub mod postgres;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes a program of a shell script.
///
/// Another process writes the file. If this process wrote it, a program that another thread starts meanwhile
/// would inherit the open file for a moment. The kernel runs nothing that is open for writing ("Text file
/// busy").
///
/// # Panics
/// If it cannot be written.
pub fn write_program(path: impl AsRef<Path>, script: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path.as_ref()).stdin(Stdio::piped());
    let mut child = install.spawn().expect("coreutils are there");
    let text = format!("#!/bin/sh\n{script}\n");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("install reads it");
    let status = child.wait().expect("it is ours");
    assert!(status.success(), "install {}: {status}", path.as_ref().display());
}

/// The path of a program of this workspace, as it was last built in the profile of this test.
///
/// # Panics
/// If it does not exist.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test runs from a file");
    let path = own.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").join(name);
    assert!(
        path.is_file(),
        "{} is missing: `cargo test --workspace` builds it, as does `cargo build --workspace`",
        path.display()
    );
    path
}
