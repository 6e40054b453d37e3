//! Tests of `spur import slurm` as a user runs it, on the directories in `tests/data/import` with
//! `expected.toml` in each. The result must load, and jobs must run on it. `UPDATE_EXPECT=1` rewrites the
//! expected results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use spur_cli::commands::{import, sim};
use spur_cli::error;
use spur_cli::session::Session;
use spur_core::model::config::{Config, PartitionConfig, PartitionState};

fn samples() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/import");
    let entries = fs::read_dir(directory).expect("the samples").map(|entry| entry.expect("an entry").path());
    let mut samples: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    samples.sort();
    samples
}

fn name(sample: &Path) -> String {
    sample.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Runs `spur import`; returns its exit code, output and messages.
fn run(words: &[&str]) -> (u8, String, String) {
    let mut session = Session::in_memory("spur import", BTreeMap::new(), None);
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let code = match runtime.block_on(import::run(&mut session, &words)) {
        Ok(code) => code,
        Err(error) => error::report(&mut session, &error),
    };
    (code, session.out.take_text(), session.take_complaints())
}

fn imported(sample: &Path) -> String {
    let (code, text, said) = run(&["slurm", &sample.display().to_string()]);
    assert_eq!(code, 0, "{}: {said}", name(sample));
    text
}

#[test]
fn directories_become_what_is_expected() {
    for sample in samples() {
        let (text, path) = (imported(&sample), sample.join("expected.toml"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &text).expect("the expectation can be written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(text == expected, "{}: not as expected, but\n{text}", name(&sample));
    }
}

#[test]
fn what_is_written_loads() {
    let samples = samples();
    assert!(samples.len() >= 15);
    for sample in samples {
        if let Err(errors) = Config::parse(&imported(&sample), "imported") {
            panic!("{}: {errors}", name(&sample));
        }
    }
}

/// A setting without a counterpart is in a comment, with its value and the reason.
#[test]
fn keys_without_a_counterpart_are_named() {
    for (sample, key) in [
        ("small", "Waittime=0"),
        ("tree", "SchedulerParameters=bf_window=4320,bf_continue,defer"),
        ("gpu", "ConstrainSwapSpace=no"),
        ("nonsense", "CoreSpecCount=4: 4 of 4 cores leave none to jobs; keep 3 at the most"),
        ("cloud", "State=FUTURE"),
        ("nonsense", "Foo=bar: not a key of Slurm's"),
        ("nonsense", "SlurmctldTimout=300: not a key of Slurm's; was SlurmctldTimeout meant?"),
        ("nonsense", "KillWait=60: it is said again"),
        ("old", "CheckpointType=checkpoint/none"),
    ] {
        let sample = samples().into_iter().find(|path| name(path) == sample).expect("a sample");
        let text = imported(&sample);
        let is_named = text.lines().any(|line| line.starts_with('#') && line.contains(key));
        assert!(is_named, "{}: {key} is not named in\n{text}", name(&sample));
    }
}

#[test]
fn jobs_run_on_what_is_written() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("import");
    fs::create_dir_all(&directory).expect("the target directory can be written");
    for sample in samples() {
        let text = imported(&sample);
        let config = Config::parse(&text, "imported").expect("it loads");
        // As with Slurm, some partitions require more nodes than they have, or are not for users.
        let has_room = |partition: &&PartitionConfig| {
            let is_for_users = !partition.root_only && partition.alloc_nodes.is_empty();
            partition.nodes.len() >= partition.min_nodes.max(1) as usize && is_for_users
        };
        let partitions = config.policy.partitions.iter().filter(has_room);
        let mut jobs = String::new();
        let mut names = Vec::new();
        for partition in partitions.filter(|partition| partition.state == PartitionState::Up) {
            let size = partition.min_nodes.max(1).to_string();
            let mut argv = vec!["-p", &partition.name, "-t", "5", "-N", &size];
            if let Some(first) = partition.allow_qos.first() {
                argv.extend(["--qos", first]);
            }
            if let Some(first) = partition.allow_accounts.first() {
                argv.extend(["-A", first]);
            }
            let submit = json!({ "id": &*partition.name, "argv": argv, "runtime": 60 });
            jobs.push_str(&format!("{}\n", json!({ "at": 0, "submit": submit })));
            names.push(partition.name.to_string());
        }
        let file = |ending: &str| directory.join(format!("{}.{ending}", name(&sample)));
        let (toml, workload, events) = (file("toml"), file("jobs"), file("events"));
        fs::write(&toml, &text).expect("it can be written");
        fs::write(&workload, &jobs).expect("it can be written");
        let words = [("--config", &toml), ("--workload", &workload), ("--events", &events)];
        let words: Vec<String> = words
            .iter()
            .flat_map(|(option, path)| [(*option).to_owned(), path.display().to_string()])
            .collect();
        let mut session = Session::in_memory("spur sim", BTreeMap::new(), None);
        let ended = sim::run(&mut session, &words);
        assert!(ended.is_ok(), "{}: {ended:?}\n{text}", name(&sample));
        let events = fs::read_to_string(events).expect("events were written");
        let events = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        let mut ended: Vec<String> = events
            .filter(|event| event["event"] == "end" && event["state"] == "COMPLETED")
            .map(|event| event["job"].as_str().expect("a job").to_owned())
            .collect();
        names.sort();
        ended.sort();
        assert_eq!(ended, names, "{}\n{text}", name(&sample));
        assert!(!names.is_empty(), "{}: nothing ran", name(&sample));
    }
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("imported.toml");
    let _ = fs::remove_file(&path);
    let (sample, path) = (samples()[0].display().to_string(), path.display().to_string());
    assert_eq!(run(&["slurm", "-o", &path, &sample]).0, 0);
    let (code, out, said) = run(&["slurm", "-o", &path, &sample]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(said.contains("imported.toml"), "{said}");
}

#[test]
fn what_cannot_be_imported_is_refused() {
    for (words, expected) in [
        (&["slurm", "/nowhere"][..], "cannot read /nowhere"),
        (&["pbs", "/etc"], "`pbs` cannot be imported"),
        (&["slurm"], "one directory is expected"),
        (&["slurm", env!("CARGO_MANIFEST_DIR")], "has neither slurm.conf nor topology.conf"),
    ] {
        let (code, out, said) = run(words);
        assert_eq!((code, out.as_str()), (1, ""), "{words:?}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}
