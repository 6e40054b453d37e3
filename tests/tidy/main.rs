//! Machine checks of how this project is built: which modules may import which, the length of files, and
//! required documentation. Each rule reports where it was broken and what to do.

mod levels;

use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a source file. Tables may be longer: they contain [`TABLE`] in their first lines.
const MOST_LINES: usize = 800;
const TABLE: &str = "tidy: table";

/// The modules of the core, from the bottom up: each may use those before it. All may use `id`.
const ROOMS: [&str; 7] = ["text", "model", "cluster", "sched", "controller", "compute", "sim"];

/// The rooms of the planner, from the bottom up: each may use those before it.
const PLANNER: [&str; 22] = [
    "place",
    "plan",
    "precedence",
    "subject",
    "inventory",
    "request",
    "forecast",
    "together",
    "queue",
    "timeline",
    "feasible",
    "planned_starts",
    "licensed",
    "preempt",
    "space",
    "explain",
    "shorter_time",
    "state",
    "prospect",
    "pass",
    "quick",
    "defrag",
];
/// Modules of the planner beside the passes: they may use every module before these.
const BESIDE_PASSES: [&str; 2] = ["replace", "site"];
/// The modules that choose nodes, from the bottom up.
const PLACE: [&str; 12] = [
    "budget", "answer", "slots", "ask", "problem", "flat", "pareto", "special", "losers", "leftover",
    "dispatch", "explain",
];

/// Modules of spurd, from the bottom up: each may use those before it.
const SPURD: [&str; 6] = ["node", "spool", "launcher", "assemble", "owner", "rpc"];
/// Modules of spurstepd, from the bottom up: each may use those before it.
const SPURSTEPD: [&str; 13] = [
    "clock",
    "socket",
    "connection",
    "stream",
    "confine",
    "task",
    "clients",
    "mpi",
    "reader",
    "fork_server",
    "setup",
    "poll",
    "requests",
];

/// Longest line of a comment, columns.
const COMMENT_COLUMNS: usize = 110;
/// Words that open a question clause.
const QUESTIONS: [&str; 10] =
    ["Which", "What", "When", "Whether", "How", "Who", "Whom", "Whose", "Where", "Why"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

/// All files below `dir` with one of the endings, with their text; build output is left out.
fn files(dir: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    open.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.push((path.strip_prefix(root()).expect("below the root").to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}\n{}", broken.join("\n"));
}

/// The part of a source file before its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

#[test]
fn files_are_short_enough_to_read() {
    let long = files(".", &[".rs"]).into_iter().filter(|(_, text)| {
        text.lines().count() > MOST_LINES && !text.lines().take(12).any(|line| line.contains(TABLE))
    });
    let long: Vec<String> =
        long.map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count())).collect();
    report("split these: a file that long has two subjects (a table says `tidy: table` in its head)", &long);
}

#[test]
fn the_core_is_pure() {
    let impure = [
        "std::time",
        "std::fs",
        "std::net::T",
        "std::net::U",
        "std::thread",
        "std::env",
        "std::process",
        "std::io",
        "tokio",
        "SystemTime",
        "Instant::",
        "HashMap",
        "HashSet",
        "async fn",
        "println!",
        "eprintln!",
    ];
    let mut broken = Vec::new();
    for (path, text) in files("spur-core/src", &[".rs"]) {
        let place = path.to_string_lossy();
        if place.contains("test") || place.contains("oracle") {
            continue;
        }
        for (number, line) in (1..).zip(code(&text).lines()) {
            let said = line.split("//").next().unwrap_or(line);
            for word in impure.iter().filter(|word| said.contains(**word)) {
                broken.push(format!("{}:{number}: {word}", path.display()));
            }
        }
    }
    report("the core has no clock, disk, network, thread or hash order; bring it in as a value", &broken);
}

#[test]
fn rooms_of_the_core_import_downwards() {
    let mut broken = Vec::new();
    for (path, text) in files("spur-core/src", &[".rs"]) {
        let inside = path.strip_prefix("spur-core/src").expect("in the core");
        let first = inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        let room = first.trim_end_matches(".rs").to_owned();
        let Some(height) = ROOMS.iter().position(|known| *known == room) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let upwards = ROOMS.iter().skip(height + 1).find(|other| {
                // `compute` uses the model, beside the controller.
                line.contains(&format!("crate::{other}::"))
            });
            if let Some(other) = upwards {
                broken.push(format!("{}:{number}: {room} uses {other}", path.display()));
            }
        }
    }
    report("a room uses only those before it; move the word both need further down", &broken);
}

/// The uses of higher modules by the modules in `rooms`, in files below `dir`, whose own path in the crate is
/// `path`.
fn uses_upwards(dir: &str, path: &str, rooms: &[&str]) -> Vec<String> {
    let mut broken = Vec::new();
    for (file, text) in files(dir, &[".rs"]) {
        let inside = file.strip_prefix(dir).expect("below it");
        let mut parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let room = parts.next().expect("a name").trim_end_matches(".rs").to_owned();
        let Some(height) = rooms.iter().position(|known| *known == room) else { continue };
        // From a file of the module itself one `super` leads to its parent, from those in it more.
        let depth = inside.components().count() - usize::from(file.ends_with("mod.rs"));
        let parent = format!("use {}", "super::".repeat(depth));
        for (number, line) in (1..).zip(code(&text).lines()) {
            let line = line.split("//").next().unwrap_or(line);
            let uses = |other: &&&str| {
                let names = |start: &str| {
                    let rest = line.split(start).nth(1).unwrap_or_default();
                    rest.strip_prefix(**other).is_some_and(|rest| rest.starts_with([':', ';', ' ']))
                };
                names(&format!("{path}::")) || line.trim_start().starts_with(&parent) && names(&parent)
            };
            if let Some(other) = rooms.iter().skip(height + 1).find(uses) {
                broken.push(format!("{}:{number}: {room} uses {other}", file.display()));
            }
        }
    }
    broken
}

#[test]
fn rooms_of_the_planner_import_downwards() {
    let sched = "spur-core/src/sched";
    let mut broken = uses_upwards(sched, "crate::sched", &PLANNER);
    for beside in BESIDE_PASSES {
        let mut rooms: Vec<&str> = PLANNER.to_vec();
        rooms.insert(rooms.len() - 2, beside);
        broken.extend(uses_upwards(sched, "crate::sched", &rooms));
    }
    broken.extend(uses_upwards(&format!("{sched}/place"), "crate::sched::place", &PLACE));
    report("a room of the planner uses only those before it (docs/architecture.md)", &broken);
}

#[test]
fn rooms_of_the_planner_have_a_place_in_the_order() {
    let mut unknown = Vec::new();
    for (dir, known) in [("spur-core/src/sched", &PLANNER[..]), ("spur-core/src/sched/place", &PLACE[..])] {
        for entry in
            fs::read_dir(root().join(dir)).expect("the planner").map(|entry| entry.expect("an entry"))
        {
            let name = entry.file_name().to_string_lossy().trim_end_matches(".rs").to_owned();
            let is_known = known.contains(&&*name) || BESIDE_PASSES.contains(&&*name);
            if !is_known && name != "mod" && name != "oracle" {
                unknown.push(format!("{dir}/{name}"));
            }
        }
    }
    report("say in tests/tidy and docs/architecture.md what these may use", &unknown);
}

#[test]
fn shells_do_not_know_each_other() {
    let shells = ["spurctld", "spurd", "spurd/stepd", "spur-cli"];
    let mut broken = Vec::new();
    for shell in shells {
        let manifest = fs::read_to_string(root().join(shell).join("Cargo.toml")).expect("a manifest");
        for other in shells.iter().filter(|other| **other != shell) {
            let other = if *other == "spurd/stepd" { "spurstepd" } else { other };
            if manifest
                .lines()
                .any(|line| line.starts_with(&format!("{other}.")) || line.starts_with(&format!("{other} =")))
            {
                broken.push(format!("{shell} depends on {other}"));
            }
        }
    }
    report("shells meet on the wire only", &broken);
}

#[test]
fn spurstepd_has_no_runtime_and_no_network() {
    let mut broken = Vec::new();
    for package in ["spurd/stepd", "spurd/wire"] {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).expect("a manifest");
        for line in manifest.lines().filter(|line| {
            ["tokio", "tonic", "rustls", "spur-proto"].iter().any(|refused| line.starts_with(refused))
        }) {
            broken.push(format!("{package}: {line}"));
        }
    }
    report("one spurstepd runs for each step of the node: it stays small", &broken);
}

#[test]
fn modules_of_spurd_import_downwards() {
    report(
        "a module of spurd uses only those before it (docs/architecture.md)",
        &uses_upwards("spurd/src", "crate", &SPURD),
    );
}

#[test]
fn modules_of_spurstepd_import_downwards() {
    report(
        "a module of spurstepd uses only those before it (docs/architecture.md)",
        &uses_upwards("spurd/stepd/src", "crate", &SPURSTEPD),
    );
}

#[test]
fn unsafe_code_has_its_rooms() {
    let rooms = ["spurd/stepd/", "tests/powerloss/"];
    let mut broken = Vec::new();
    for (path, text) in files(".", &[".rs"]) {
        let place = path.to_string_lossy().into_owned();
        let allowed = rooms.iter().any(|room| place.starts_with(room)) || place.starts_with("tests/tidy");
        for (number, line) in (1..).zip(text.lines()).filter(|_| !allowed) {
            let said = line.split("//").next().unwrap_or(line);
            if ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|word| said.contains(word))
            {
                broken.push(format!("{place}:{number}"));
            }
        }
    }
    report("unsafe code lives in spurd/stepd, with its reason", &broken);
}

/// The doc comments of a source file: the number of the first line, and the text of all lines joined.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        match (comment, found.last_mut()) {
            (Some(comment), Some((_, text))) if continues => text.push_str(comment),
            (Some(comment), _) => found.push((number, comment.to_owned())),
            (None, _) => {}
        }
        continues = comment.is_some();
    }
    found
}

/// True if a doc comment is one word that is no code, or consists of a question clause alone.
fn says_nothing(comment: &str) -> bool {
    let comment = comment.trim().trim_end_matches('.');
    let Some((first, rest)) = comment.split_once(' ') else { return !comment.contains('`') };
    // After one of these signs, a main clause or an explanation follows.
    QUESTIONS.contains(&first) && !rest.contains([',', ';', ':', '.'])
}

#[test]
fn doc_comments_stand_alone() {
    let mut broken = Vec::new();
    for (path, text) in files(".", &[".rs"]) {
        let silent = doc_comments(&text).into_iter().filter(|(_, comment)| says_nothing(comment));
        broken.extend(silent.map(|(number, comment)| format!("{}:{number}:{comment}", path.display())));
    }
    report("name the subject: rustdoc shows these without the code below them", &broken);
}

#[test]
fn comments_are_narrow_enough_to_read() {
    let mut broken = Vec::new();
    for (path, text) in files(".", &[".rs"]) {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().starts_with("//");
            if comment && line.chars().count() > COMMENT_COLUMNS {
                broken.push(format!("{}:{number}", path.display()));
            }
        }
    }
    report(&format!("wrap these comments at {COMMENT_COLUMNS} columns"), &broken);
}

#[test]
fn every_event_is_documented() {
    let events = fs::read_to_string(root().join("spur-core/src/cluster/event.rs")).expect("the events");
    let states = fs::read_to_string(root().join("docs/states.md")).expect("docs/states.md");
    let body = events.split("pub enum Event {").nth(1).expect("the enum");
    let body = body.split("\n}\n").next().expect("its end");
    let variants = body.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.strip_suffix(" {")?;
        name.chars().next().filter(char::is_ascii_uppercase).map(|_| name.to_owned())
    });
    let missing: Vec<String> = variants.filter(|name| !states.contains(&format!("`{name}`"))).collect();
    report("docs/states.md says nothing of these events", &missing);
}

#[test]
fn every_data_file_is_read() {
    let tests: Vec<(PathBuf, String)> = files(".", &[".rs"]);
    let mut broken = Vec::new();
    for entry in fs::read_dir(root().join("tests/data")).expect("tests/data") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let read = tests.iter().any(|(_, text)| text.contains(&format!("data/{name}")));
        if !read {
            broken.push(format!("tests/data/{name}"));
        }
    }
    report("no test reads these", &broken);
}

/// The settings named in a text as `[section] key`: the section and the key, if there is one.
fn settings_named(line: &str) -> Vec<(&str, &str)> {
    let words = |text: &str| text.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(text.len());
    let mut named = Vec::new();
    for (at, _) in line.match_indices('[').filter(|(at, _)| !line[..*at].ends_with('#')) {
        let (section, rest) = line[at + 1..].split_at(words(&line[at + 1..]));
        let Some(rest) = rest.trim_start_matches(']').strip_prefix(' ').filter(|_| rest.starts_with(']'))
        else {
            continue;
        };
        let rest = rest.trim_start_matches('`');
        let key = &rest[..words(rest)];
        // A word without an underscore may be prose.
        if !section.is_empty() && key.contains('_') {
            named.push((section, key));
        }
    }
    named
}

#[test]
fn settings_are_named_as_they_are() {
    let reference = fs::read_to_string(root().join("etc/spur.toml")).expect("the reference");
    let (mut section, mut keys) = ("", Vec::new());
    for line in reference.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") {
            keys.push((section, key));
        }
    }
    let mut broken = Vec::new();
    for (path, text) in files(".", &[".rs", ".md", ".txt", ".jsonl"]) {
        for (number, line) in (1..).zip(text.lines()) {
            let unknown = settings_named(line).into_iter().filter(|named| !keys.contains(named));
            broken.extend(
                unknown.map(|(section, key)| format!("{}:{number}: [{section}] {key}", path.display())),
            );
        }
    }
    report("etc/spur.toml has none of these", &broken);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let endings = [".rs", ".md", ".toml", ".sh", ".proto", ".service", ".txt", ".py"];
    let mut broken = Vec::new();
    for (path, text) in files(".", &endings) {
        if path.starts_with("tests/tidy") {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            if ["/home/", "/Users/"].iter().any(|place| line.contains(place)) && !line.contains("/home/alice")
            {
                broken.push(format!("{}:{number}: {line}", path.display()));
            }
        }
    }
    report("paths of one machine mean nothing on another; examples use /home/alice", &broken);
}

#[test]
fn units_are_what_systemd_reads() {
    let mut broken = Vec::new();
    for name in ["spurctld", "spurd"] {
        let unit = fs::read_to_string(root().join(format!("etc/systemd/{name}.service"))).expect("a unit");
        // The programs need not be installed where this test runs.
        let unit = unit.replace(&format!("/usr/local/bin/{name}"), "/bin/true");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.service"));
        fs::write(&place, unit).expect("the build directory can be written");
        let verified = std::process::Command::new("systemd-analyze").arg("verify").arg(&place).output();
        let Ok(verified) = verified else {
            println!("SKIPPED: there is no systemd-analyze");
            return;
        };
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        // Errors of other units are printed, too.
        let ours = said.lines().filter(|line| line.contains(&format!("{name}.service")));
        broken.extend(ours.map(str::to_owned));
    }
    report("systemd reads our units without complaint", &broken);
}
