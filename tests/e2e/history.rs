//! The journal that a controller owns: controllers with old copies and foreign ones start nothing and harm
//! nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, Said, Setup, program, said};

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp is there").success());
}

/// Runs `spurctld --new-history` with more words.
fn new_history(cluster: &Cluster, words: &[&str]) -> Said {
    let mut command = Command::new(program("spurctld"));
    command.arg("--new-history").args(words).arg("-f").arg(cluster.path("spur.toml"));
    said(command.output().unwrap())
}

/// Replaces the state directory by an older copy or another one.
fn replace_state(cluster: &Cluster, with: &str) {
    fs::rename(cluster.path("state"), cluster.path("state.latest")).unwrap();
    fs::rename(cluster.path(with), cluster.path("state")).unwrap();
}

/// Asserts that a controller with an old copy reports that and starts nothing.
fn starts_nothing(cluster: &Cluster) {
    let pinged = cluster.ok(&["scontrol", "ping"]);
    assert!(pinged.contains("starts nothing: it has an old copy of its journal"), "{pinged}");
    for words in [&["sbatch", "--wrap", "true"][..], &["scancel", "1"], &["scontrol", "hold", "1"]] {
        let refused = cluster.fails(words);
        assert!(refused.contains("spurctld --new-history"), "{words:?}: {refused}");
    }
}

#[test]
fn an_old_copy_starts_nothing_until_a_new_history_begins() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let wait_at = |cluster: &Cluster, node: &str, gate: &str| {
        let script = format!("echo x >started; read x <{gate}; echo end >{gate}.out");
        cluster.sbatch(&["-w", node, "--wrap", &script])
    };
    let mut started = cluster.gate("started");
    let (mut go, mut leave, _stay) = (cluster.gate("go"), cluster.gate("leave"), cluster.gate("stay"));
    let known = wait_at(&cluster, "n1", "go");
    started.wait();
    cluster.stop("spurctld");
    copy(&cluster.path("state"), &cluster.path("state.copy"));
    cluster.start_controller();
    let (leaving, staying) = (wait_at(&cluster, "n2", "leave"), wait_at(&cluster, "n2", "stay"));
    started.wait();
    started.wait();
    cluster.ok(&["sbatch", "--wait", "-w", "n2", "--wrap", "true"]);
    cluster.stop("spurctld");
    replace_state(&cluster, "state.copy");
    cluster.start_controller();
    cluster.wait_for_log("spurctld", "this controller has an old copy of its journal");
    starts_nothing(&cluster);
    let shown = cluster.ok(&["squeue", "-h", "-o", "%i %T"]);
    assert_eq!(shown, format!("{known} RUNNING\n"));
    let refused = new_history(&cluster, &[]);
    assert!(refused.code == Some(1) && refused.err.contains("in use"), "{refused:?}");
    // The old copy is still known after a restart, whatever nodes are there to report it.
    cluster.stop("spurctld");
    cluster.start_controller();
    starts_nothing(&cluster);
    cluster.stop("spurctld");

    let told = new_history(&cluster, &[]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.out.contains(&format!("the next job is {}", staying + 2)), "{told:?}");
    cluster.start_controller();
    for node in ["n1", "n2"] {
        cluster.wait_for_log(node, "goes on from");
    }
    // The known job is taken over; the unknown job keeps new work away, and was not ended.
    let next = cluster.sbatch(&["-w", "n1", "--wrap", "true"]);
    assert_eq!(next, staying + 2);
    cluster.client().wait_for(next, "COMPLETED");
    let node = cluster.ok(&["scontrol", "show", "node", "n2"]);
    assert!(node.contains(&format!("Foreign={leaving}.r0,{staying}.r0")), "{node}");
    assert_eq!(cluster.ok(&["sinfo", "-h", "-n", "n2", "-o", "%T"]), "draining\n");
    let waits = cluster.sbatch(&["-w", "n2", "--wrap", "true"]);
    go.open();
    let ended = cluster.client().wait_for(known, "COMPLETED");
    assert_eq!((ended.restarts, cluster.read("go.out")), (0, "end\n".to_owned()));
    // One job ends by itself, the other by the operator's choice.
    leave.open();
    cluster.wait_until(|cluster| {
        let node = cluster.ok(&["scontrol", "show", "node", "n2"]);
        node.contains(&format!("Foreign={staying}.r0\n"))
    });
    assert_eq!(cluster.read("leave.out"), "end\n");
    cluster.ok(&["scontrol", "update", "NodeName=n2", "Foreign=END"]);
    cluster.client().wait_for(waits, "COMPLETED");
    assert!(!cluster.work("stay.out").exists());
    let node = cluster.ok(&["scontrol", "show", "node", "n2"]);
    assert!(!node.contains("Foreign"), "{node}");
}

#[test]
fn accounting_that_is_ahead_shows_an_old_copy_and_keeps_its_rows() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    cluster.stop("spurctld");
    copy(&cluster.path("state"), &cluster.path("state.copy"));
    cluster.start_controller();
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let (mut started, _stay) = (cluster.gate("started"), cluster.gate("stay"));
    let foreign = cluster.sbatch(&["--wrap", "echo x >started; read x <stay"]);
    started.wait();
    let lost = cluster.sbatch(&["--hold", "--wrap", "true"]);
    cluster.stop("n1");
    cluster.stop("spurctld");
    replace_state(&cluster, "state.copy");
    for name in ["acct.db", "acct.db-wal", "acct.db-shm"] {
        let _ = fs::remove_file(cluster.path("state").join(name));
        let _ = fs::copy(cluster.path("state.latest").join(name), cluster.path("state").join(name));
    }
    cluster.start_controller();
    starts_nothing(&cluster);
    let told = cluster.log("spurctld");
    assert!(told.contains("accounting has seen entry") && !told.contains("move"), "{told}");
    cluster.stop("spurctld");
    let told = new_history(&cluster, &[]);
    assert!(told.out.contains(&format!("the next job is {}", lost + 1)), "{told:?}");
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_until(|cluster| cluster.ok(&["scontrol", "show", "node"]).contains("Foreign="));
    let runaway =
        || cluster.ok(&["sacctmgr", "-n", "-P", "-r", "show", "runawayjobs", "format=id,state,end"]);
    let listed = |ids: &[u32]| {
        let lines: Vec<String> = ids.iter().map(|id| format!("{id}|PENDING|Unknown\n")).collect();
        lines.concat()
    };
    assert!(runaway().ends_with(&format!("database\n{}", listed(&[lost]))), "{}", runaway());
    cluster.ok(&["scontrol", "update", "NodeName=n1", "Foreign=END"]);
    let last = cluster.sbatch(&["--wait", "--wrap", "true"]);
    let waits = cluster.sbatch(&["--hold", "--array=1-3", "--wrap", "true"]);
    // Jobs are selected by number: held jobs are in no window of time.
    let all = (1..=waits).map(|job| job.to_string()).collect::<Vec<_>>().join(",");
    let rows = |cluster: &Cluster| cluster.ok(&["sacct", "-X", "-n", "-P", "-o", "jobid,state", "-j", &all]);
    let with = |state: &str| {
        let of = |job| match job {
            _ if job == foreign => format!("{job}|CANCELLED\n"),
            _ if job == lost => format!("{job}|{state}\n"),
            _ => format!("{job}|COMPLETED\n"),
        };
        (1..=last).map(of).collect::<String>() + &format!("{waits}_[1-3]|PENDING\n")
    };
    assert_eq!(rows(&cluster), with("PENDING"));
    assert!(cluster.ok(&["sacctmgr", "show", "runawayjobs"]).ends_with("Changes Discarded\n"));
    assert_eq!(rows(&cluster), with("PENDING"));
    cluster.ok(&["sacctmgr", "-i", "show", "runawayjobs"]);
    assert_eq!(rows(&cluster), with("COMPLETED"));
    let none = cluster.ok(&["sacctmgr", "show", "runawayjobs"]);
    assert!(none.starts_with("Runaway Jobs: No runaway jobs found on cluster"), "{none}");
}

#[test]
fn a_second_controller_with_a_state_of_its_own_hurts_nothing() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut started, mut go) = (cluster.gate("started"), cluster.gate("go"));
    let job = cluster.sbatch(&["-o", "out", "--wrap", "echo x >started; read x <go; echo end"]);
    started.wait();
    cluster.stop("spurctld");
    fs::create_dir(cluster.path("empty")).unwrap();
    replace_state(&cluster, "empty");
    cluster.start_controller();
    cluster.wait_for_log("n1", "refuses this node: node n1 belongs to history");
    let advice = cluster.log("spurctld");
    assert!(advice.contains("is its state directory the right one"), "{advice}");
    // No job runs there.
    assert_eq!(cluster.sbatch(&["--wrap", "true"]), 1);
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%t"]), "unk*\n");
    cluster.stop("spurctld");
    fs::rename(cluster.path("state"), cluster.path("state.second")).unwrap();
    fs::rename(cluster.path("state.latest"), cluster.path("state")).unwrap();
    cluster.start_controller();
    go.open();
    assert_eq!(cluster.client().wait_for(job, "COMPLETED").restarts, 0);
    assert_eq!(cluster.read("out"), "end\n");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
}

#[test]
fn the_nodes_of_a_lost_history_are_taken_over_when_the_operator_says_so() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut started, _stay) = (cluster.gate("started"), cluster.gate("stay"));
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let lost = cluster.sbatch(&["--wrap", "echo x >started; read x <stay"]);
    started.wait();
    cluster.stop("spurctld");
    fs::create_dir(cluster.path("empty")).unwrap();
    replace_state(&cluster, "empty");
    let refused = new_history(&cluster, &[]);
    assert!(refused.err.contains("is its file system mounted?"), "{refused:?}");
    cluster.start_controller();
    cluster.wait_for_log("n1", "run spurctld --new-history --adopt ");
    let log = cluster.log("n1");
    let (_, advised) = log.split_once("--adopt ").unwrap();
    let history = &advised[..32];
    cluster.stop("spurctld");
    let told = new_history(&cluster, &["--adopt", history]);
    assert_eq!(told.code, Some(0), "{told:?}");
    cluster.start_controller();
    cluster.wait_for_log("n1", "goes on from");
    let node = cluster.ok(&["scontrol", "show", "node", "n1"]);
    assert!(node.contains(&format!("Foreign={lost}.r0")), "{node}");
    cluster.ok(&["scontrol", "update", "NodeName=n1", "Foreign=END"]);
    let next = cluster.sbatch(&["--wait", "--wrap", "true"]);
    assert!(next > lost, "the node has said which numbers it has seen");
}
