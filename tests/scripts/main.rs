//! The controller's decisions as scripts: commands, `----`, results.
//!
//! Every file in `tests/data/scripts` is one cluster from its beginning. `UPDATE_EXPECT=1` rewrites the
//! results in place.

mod language;
mod print;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use language::Session;

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/scripts");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("tests/data/scripts")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let rewrite = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let before = fs::read_to_string(&file).expect("a script");
        let after = play(&before);
        if rewrite {
            fs::write(&file, after).expect("the script can be written");
        } else if before != after {
            wrong.push(format!("{}:\n{}", file.display(), difference(&before, &after)));
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_EXPECT=1 accepts what came", wrong.join("\n"));
}

/// The script with the actual results.
fn play(script: &str) -> String {
    let mut session = Session::new();
    let mut played = String::new();
    for block in script.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty())
    {
        let commands = block.split("\n----").next().unwrap_or(block);
        if !played.is_empty() {
            played.push('\n');
        }
        let _ = writeln!(played, "{commands}");
        if commands.lines().all(|line| line.starts_with('#')) {
            continue;
        }
        let came: String = commands
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| session.command(line))
            .collect();
        let _ = writeln!(played, "----");
        played.push_str(&came);
    }
    played
}

/// The first lines that differ.
fn difference(before: &str, after: &str) -> String {
    let lines = before.lines().zip(after.lines()).enumerate();
    let first = lines.filter(|(_, (one, other))| one != other).map(|(at, pair)| (at + 1, pair)).next();
    match first {
        Some((line, (expected, came))) => format!("line {line}:\n  expected: {expected}\n  came:     {came}"),
        None => "one is longer than the other".to_owned(),
    }
}
