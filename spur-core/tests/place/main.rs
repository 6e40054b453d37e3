//! Tests of placements by scripts. A script has a fabric, its free nodes and requests; the results are the
//! chosen nodes and the explanations.

mod script;

use std::path::{Path, PathBuf};

/// Runs every script in `tests/data/place`. With `UPDATE_EXPECT=1` in the environment, the expected results
/// are rewritten.
#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/place");
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
