//! Tests of `spur config` as a user runs it, on the samples of `spur import` and on the reference
//! configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use spur_cli::commands::{config, import};
use spur_cli::error;
use spur_cli::session::Session;
use spur_core::model::config::{Config, PartitionConfig, PreemptBy};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn run(words: &[&str]) -> (u8, String, String) {
    let mut session = Session::in_memory("spur config", BTreeMap::new(), None);
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let code = match config::run(&mut session, &words) {
        Ok(code) => code,
        Err(error) => error::report(&mut session, &error),
    };
    (code, session.out.take_text(), session.take_complaints())
}

fn fresh(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("{ROOT}/tests/data/import")).expect("the samples");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry").path().join("expected.toml")).collect();
    files.sort();
    files.push(format!("{ROOT}/etc/spur.toml").into());
    files
}

#[test]
fn check_names_programs_that_match_nothing() {
    let directory = fresh("programs");
    let (file, place) = (directory.join("spur.toml"), directory.display());
    fs::write(directory.join("10-a"), "").expect("it can be written");
    let text = format!("[agent]\nprolog = [\"{place}/[1]*\", \"{place}/x*\"]\nepilog = \"{place}/10-a\"\n");
    fs::write(&file, text).expect("it can be written");
    let (code, _, said) = run(&["check", &file.display().to_string()]);
    let expected =
        format!("spur config: warning: [agent] prolog: on this host there is no program {place}/x*\n");
    assert_eq!((code, said), (0, expected));
    for (value, mistake) in [("[\"\"]", "a path must not be empty"), ("7", "a list of strings")] {
        fs::write(&file, format!("[agent]\nprolog = {value}\n")).expect("it can be written");
        let (code, _, said) = run(&["check", &file.display().to_string()]);
        assert!(code == 1 && said.contains(mistake), "{value}: {said}");
    }
}

#[test]
fn check_says_what_is_there_or_every_mistake() {
    let (code, out, said) = run(&["check", &format!("{ROOT}/etc/spur.toml")]);
    let absent = ["prolog", "epilog"].map(|key| {
        format!("spur config: warning: [agent] {key}: on this host there is no program /etc/spur/{key}\n")
    });
    assert_eq!((code, said.as_str()), (0, absent.concat().as_str()));
    assert!(out.ends_with("no mistakes; 36 nodes, 1 partition, 4 topologies\n"), "{out}");

    let file = fresh("wrong").join("spur.toml");
    fs::write(&file, "[[nodes]]\nnames = \"n[1-2\"\n[scheduler]\nbackfil = \"easy\"\n")
        .expect("it can be written");
    let (code, out, said) = run(&["check", &file.display().to_string()]);
    assert_eq!((code, out.as_str()), (1, ""));
    for part in ["spur.toml:2: [[nodes]] names: ", "spur.toml:4: [scheduler] backfil: ", "backfill"] {
        assert!(said.contains(part), "{said}");
    }
    for (words, expected) in [
        (&["check", "/nowhere.toml"][..], "cannot read /nowhere.toml"),
        (&["look"], "`look` is neither check nor show"),
        (&["check", "--slurm"], "--slurm is for `spur config show`"),
        (&["show", "-o", "x"], "-o is for the files of --slurm"),
        (&[], "say what to do"),
    ] {
        let (code, out, said) = run(words);
        assert_eq!((code, out.as_str()), (1, ""), "{words:?}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn show_tells_every_setting() {
    let (code, out, said) = run(&["show", &format!("{ROOT}/etc/spur.toml")]);
    assert_eq!((code, said.as_str()), (0, ""));
    for line in [
        "cluster_name            = demo",
        "scheduler.depth         = 1000",
        "licenses                = matlab:20",
    ] {
        assert!(out.lines().any(|shown| shown == line), "{line} is missing in\n{out}");
    }
}

/// Removes the settings that Slurm's files cannot express.
fn without_own(config: Config) -> Config {
    let Config { mut policy, local } = config;
    for partition in &mut policy.partitions {
        let grace = policy.preempt.grace_time;
        let said = partition.grace_time.unwrap_or(grace);
        let own = PartitionConfig::default();
        (partition.placement, partition.default_qos) = (own.placement, own.default_qos);
        partition.score = own.score;
        partition.grace_time = Some(said);
        if policy.preempt.by != PreemptBy::None {
            partition.preempt_mode = partition.preempt_mode.or(Some(policy.preempt.mode));
        }
    }
    for node in &mut policy.nodes {
        let shape = &mut node.shape;
        if shape.cpus == 0 {
            (shape.cpus, shape.sockets, shape.cores_per_socket, shape.threads_per_core) = (1, 0, 0, 0);
        }
    }
    Config { policy, local }
}

/// Importing the Slurm files of a configuration gives the same configuration, as far as Slurm can express it.
#[test]
fn slurms_files_say_the_same() {
    for (index, file) in files().into_iter().enumerate() {
        let name = file.display().to_string();
        let directory = fresh(&index.to_string());
        let (code, _, said) = run(&["show", "--slurm", "-o", &directory.display().to_string(), &name]);
        assert_eq!((code, said.as_str()), (0, ""), "{name}");
        let again = import::directory_of(&directory).expect("it can be imported").text;
        let read = |text: &str| {
            without_own(Config::parse(text, "it").unwrap_or_else(|errors| panic!("{name}: {errors}")))
        };
        let (before, after) = (read(&fs::read_to_string(&file).expect("the sample")), read(&again));
        assert_eq!(before.policy.nodes, after.policy.nodes, "{name}:\n{again}");
        assert_eq!(before.policy.partitions, after.policy.partitions, "{name}:\n{again}");
        assert_eq!(before.policy.jobs, after.policy.jobs, "{name}:\n{again}");
        assert_eq!(before.policy.licenses, after.policy.licenses, "{name}:\n{again}");
        assert_eq!(before.policy.recovery.node_timeout, after.policy.recovery.node_timeout, "{name}");
        assert_eq!(before.local.agent.cgroup_plugin, after.local.agent.cgroup_plugin, "{name}");
        assert_eq!(before.local.node_addresses, after.local.node_addresses, "{name}");
        assert_eq!(before.local.controller.addresses, after.local.controller.addresses, "{name}");
        let shape = |config: &Config| {
            let topologies = config.policy.topologies.iter();
            let one = |topology: &spur_core::model::topology::TopologyConfig| {
                (
                    topology.name.clone(),
                    topology.plugin,
                    topology.switches.len(),
                    topology.block_sizes.clone(),
                )
            };
            topologies.map(one).collect::<Vec<_>>()
        };
        assert_eq!(shape(&before), shape(&after), "{name}:\n{again}");
    }
}

#[test]
fn files_that_are_there_are_left_alone() {
    let directory = fresh("there");
    fs::write(directory.join("slurm.conf"), "mine").expect("it can be written");
    let words = ["show", "--slurm", "-o", &directory.display().to_string(), &format!("{ROOT}/etc/spur.toml")];
    let (code, _, said) = run(&words);
    assert_eq!(code, 1, "{said}");
    assert_eq!(fs::read_to_string(directory.join("slurm.conf")).expect("it is there"), "mine");
}
