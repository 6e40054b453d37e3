//! Tests of the planner against scripts, a slow and simple implementation, and an independent checker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod busy;
mod checker;
mod counted;
mod cpu_limits;
mod daemon;
mod defrag;
mod het;
mod history;
mod large;
mod limits;
mod lost;
mod offers;
mod oracle;
mod preempt;
mod random;
mod rich;
mod script;
mod shards;
mod stream;
mod world;

use std::path::{Path, PathBuf};

/// Runs every script in `tests/data/plan`. With `UPDATE_EXPECT=1` in the environment, the expected results
/// are rewritten.
#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/plan");
    let entries = std::fs::read_dir(&folder).expect("the folder of scripts");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there are scripts in {}", folder.display());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a script");
        let now = script::run(&text);
        if now == text {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, now).expect("a script can be written");
        } else {
            wrong.push(format!("{}\n--- is now:\n{now}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
