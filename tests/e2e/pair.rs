//! Two controllers that share a database: one leads, and the other takes over when the first is killed,
//! stands still or hands over. No acknowledged job is lost or run twice, and a running srun goes on.

use std::fs;
use std::io::BufRead as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use spur_tests::postgres::Postgres;

use crate::cluster::{Cluster, Said, Setup, program, said};

/// A cluster with two controllers, `ctl1` and `ctl2`, and four nodes; `None` without PostgreSQL.
fn pair(name: &str) -> Option<(Cluster, &'static Postgres)> {
    let server = Postgres::shared()?;
    let mut cluster = Cluster::prepare(&Setup { nodes: 4, ..Setup::default() });
    cluster.share_state(&server.create(name));
    cluster.start_controller_of_pair("ctl1");
    cluster.start_controller_of_pair("ctl2");
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.start_node(node);
    }
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    Some((cluster, server))
}

/// The leading controller by the lease row, and the other one.
fn roles(cluster: &Cluster, server: &Postgres, name: &str) -> (&'static str, &'static str) {
    let address = server.sql(name, "SELECT address FROM spur.lease");
    let is_first = address == format!("127.0.0.1:{}", cluster.port());
    if is_first { ("ctl1", "ctl2") } else { ("ctl2", "ctl1") }
}

/// Submits jobs that each leave a line, and returns their names.
fn submit(cluster: &Cluster, round: &str, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("{round}-{number}")).collect();
    for name in &names {
        cluster.ok(&["sbatch", "-J", name, "-o", "/dev/null", "--wrap", &format!("echo ran >> ran.{name}")]);
    }
    names
}

#[test]
fn a_standby_takes_over_from_one_that_dies_stands_still_or_hands_over() {
    let Some((mut cluster, server)) = pair("takes_over") else { return };
    let mut jobs = submit(&cluster, "first", 3);
    let mut sleeper =
        cluster.command(&["srun", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done; echo through"]);
    let sleeper = sleeper.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-t", "R"]).contains("sh"));
    for round in ["killed", "paused", "handed"] {
        let (leader, other) = roles(&cluster, server, "takes_over");
        jobs.extend(submit(&cluster, &format!("{round}-before"), 3));
        match round {
            "killed" => cluster.kill(leader),
            "paused" => cluster.signal(leader, Signal::STOP),
            _ => drop(cluster.ok(&["scontrol", "takeover"])),
        }
        jobs.extend(submit(&cluster, &format!("{round}-after"), 3));
        assert_eq!(roles(&cluster, server, "takes_over").0, other, "{round}: the other one leads");
        if round == "paused" {
            cluster.signal(leader, Signal::CONT);
            let ended = cluster.wait_for_end(leader);
            assert!(
                !ended.success(),
                "a controller that was paused ends, so that it is started as a standby"
            );
            assert!(cluster.log(leader).contains("another controller leads"), "{}", cluster.log(leader));
        }
        if round == "handed" {
            cluster.wait_for_end(leader);
        }
        cluster.start_controller_of_pair(leader);
    }
    fs::write(cluster.work("go"), "").unwrap();
    let said = sleeper.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "the srun goes on: {errors}");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "through\n");
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
    for job in &jobs {
        assert_eq!(cluster.read(&format!("ran.{job}")), "ran\n", "{job} ran once");
    }
    let rows = cluster.ok(&["sacct", "-n", "-X", "-o", "JobName%30,State"]);
    for job in &jobs {
        let row = rows.lines().find(|row| row.split_whitespace().next() == Some(job));
        assert!(row.is_some_and(|row| row.contains("COMPLETED")), "{job} in\n{rows}");
    }
}

#[test]
fn what_one_controller_has_in_force_stays_when_the_other_takes_over() {
    let Some((mut cluster, server)) = pair("policy") else { return };
    let (leader, other) = roles(&cluster, server, "policy");
    cluster.ok(&["scontrol", "update", "PartitionName=main", "MaxTime=30"]);
    let conf = cluster.path(&format!("{other}.toml"));
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text.replace("kill_wait = \"1s\"", "kill_wait = \"7s\"")).unwrap();
    cluster.signal(other, Signal::HUP);
    cluster.wait_for_log(other, "the configuration of this host is not what is in force");
    let pinged = cluster.ok(&["scontrol", "ping"]);
    let of = |role: &str| pinged.lines().find(|line| line.contains(role)).unwrap_or_default().to_owned();
    assert!(of("(primary)").ends_with(" is UP"), "{pinged}");
    assert!(of("(backup)").contains("is UP; its configuration is not what is in force"), "{pinged}");
    // A standby refuses to shut down, because it does not lead, and stays.
    let mut shutdown = cluster.command(&["scontrol", "shutdown", "controller"]);
    shutdown.env("SPUR_CONTROLLER", server.sql("policy", "SELECT address FROM spur.standby"));
    let told = said(shutdown.output().unwrap());
    assert!(told.code == Some(1) && told.err.contains("stands by"), "{told:?}");
    // The leader's file is unchanged, so the policy stays, and the standby's file still differs.
    let told = cluster.run(&["scontrol", "reconfigure"]);
    assert!(told.code == Some(0) && told.err.contains("has another configuration"), "{told:?}");
    cluster.kill(leader);
    let shown = cluster.ok(&["scontrol", "show", "config"]);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("KillWait").contains("1 sec"), "{}", line("KillWait"));
    assert!(cluster.ok(&["scontrol", "show", "partition", "main"]).contains("MaxTime=00:30:00"));
    let told = cluster.run(&["scontrol", "reconfigure"]);
    assert!(told.code == Some(0) && !told.err.contains("another configuration"), "{told:?}");
    let shown = cluster.ok(&["scontrol", "show", "config"]);
    assert!(shown.lines().any(|line| line.starts_with("KillWait") && line.contains("7 sec")), "{shown}");
}

#[test]
fn a_database_that_is_away_is_waited_for() {
    let Some(mut server) = Postgres::start() else { return };
    let mut cluster = Cluster::prepare(&Setup::default());
    cluster.share_state(&server.create("away"));
    cluster.start_controller_of_pair("ctl1");
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    let runs = cluster.ok(&[
        "sbatch",
        "--parsable",
        "-o",
        "/dev/null",
        "--wrap",
        "while [ ! -e end ]; do sleep 0.1; done",
    ]);
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-t", "R"]).contains(runs.trim()));
    server.kill();
    cluster.wait_for_log("ctl1", "the database is away");
    let waits = cluster
        .command(&["sbatch", "-o", "/dev/null", "--wrap", "true"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    cluster.wait_until(|cluster| {
        let said = cluster.run(&["squeue", "-h", "-o", "%i"]);
        said.code == Some(0) && said.out == runs && said.err.contains("the database is away")
    });
    fs::write(cluster.work("end"), "").unwrap();
    server.restart();
    let said = waits.wait_with_output().unwrap();
    assert!(said.status.success());
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("Submitted batch job"));
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
}

#[test]
fn a_standby_shows_what_it_knows_when_leader_and_database_are_lost() {
    let Some(mut server) = Postgres::start() else { return };
    let mut cluster = Cluster::prepare(&Setup::default());
    cluster.share_state(&server.create("lost"));
    cluster.start_controller_of_pair("ctl1");
    cluster.start_controller_of_pair("ctl2");
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    let line = "while [ ! -e end ]; do sleep 0.1; done";
    let runs = cluster.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", line]);
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-t", "R"]).contains(runs.trim()));
    let well = cluster.ok(&["squeue", "--json=spur"]);
    assert!(!well.contains("stale"), "{well}");
    let (leader, other) = roles(&cluster, &server, "lost");
    // Clients see the standby's replica, which follows within moments.
    let follows = "SELECT bool_and(standby.seq >= lease.seq) FROM spur.standby, spur.lease";
    cluster.wait_until(|_| server.sql("lost", follows) == "t");
    server.kill();
    cluster.kill(leader);
    cluster.wait_for_log(other, "the database is away");
    for command in [
        &["squeue", "-h", "-o", "%i"][..],
        &["squeue", "--json"],
        &["squeue", "--json=spur"],
        &["sinfo", "-hN"],
        &["sinfo", "--json"],
        &["scontrol", "show", "job"],
        &["scontrol", "show", "node", "n1"],
        &["scontrol", "show", "partition"],
        &["scontrol", "show", "config"],
    ] {
        let said = cluster.run(command);
        assert_eq!(said.code, Some(0), "{command:?}: {said:?}");
        assert!(said.err.contains("the database is away"), "{command:?}: {said:?}");
        let is_json = command.iter().any(|word| word.starts_with("--json"));
        assert_eq!(said.out.contains("\"stale\": "), is_json, "{command:?}: {said:?}");
        assert!(!said.out.is_empty());
    }
    assert_eq!(cluster.run(&["squeue", "-h", "-o", "%i"]).out, runs);
    let pinged = cluster.run(&["scontrol", "ping"]);
    assert!(pinged.code == Some(1) && pinged.out.contains("(backup)"), "{pinged:?}");
    assert!(pinged.out.contains("its database is away"), "{pinged:?}");
    let waits =
        cluster.command(&["sbatch", "-o", "/dev/null", "--wrap", "true"]).stdout(Stdio::piped()).spawn();
    fs::write(cluster.work("end"), "").unwrap();
    server.restart();
    let said = waits.unwrap().wait_with_output().unwrap();
    assert!(
        said.status.success() && String::from_utf8_lossy(&said.stdout).starts_with("Submitted"),
        "{said:?}"
    );
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
}

#[test]
fn whoever_watches_sees_changes_and_a_takeover_does_not_end_that() {
    let Some((mut cluster, server)) = pair("watched") else { return };
    let words = ["squeue", "--watch", "-h", "-t", "all", "-S", "i", "-o", "%j %T"];
    let mut watching = cluster.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let mut wait_for = |wanted: &str| {
        let found = lines.by_ref().find(|line| line == wanted);
        assert!(found.is_some(), "the stream ends before `{wanted}`");
    };
    let held = cluster.ok(&["sbatch", "--parsable", "-H", "-J", "one", "-o", "/dev/null", "--wrap", "true"]);
    wait_for("one PENDING");
    let (leader, other) = roles(&cluster, server, "watched");
    cluster.kill(leader);
    cluster.ok(&["scontrol", "release", held.trim()]);
    wait_for("one COMPLETED");
    cluster.ok(&["sbatch", "-J", "two", "-o", "/dev/null", "--wrap", "true"]);
    wait_for("two COMPLETED");
    assert_eq!(roles(&cluster, server, "watched").0, other);
    let mut nodes =
        cluster.command(&["sinfo", "--watch", "-hN", "-o", "%N %T"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(nodes.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.by_ref().any(|line| line == "n2 idle"));
    cluster.ok(&["scontrol", "update", "nodename=n2", "state=drain", "reason=x"]);
    assert!(lines.any(|line| line == "n2 drained"));
    for mut child in [watching, nodes] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Runs `spurctld` with options that end it at once.
fn spurctld(cluster: &Cluster, options: &[&str]) -> Said {
    let mut command = Command::new(program("spurctld"));
    command.args(options).arg("-f").arg(cluster.path("spur.toml"));
    said(command.output().unwrap())
}

#[test]
fn a_cluster_moves_from_sqlite_into_a_database() {
    let Some(server) = Postgres::shared() else { return };
    let mut cluster = Cluster::start(&Setup::default());
    cluster.ok(&["sbatch", "-W", "-J", "over", "-o", "/dev/null", "--wrap", "true"]);
    let held = cluster.ok(&[
        "sbatch",
        "--parsable",
        "-H",
        "-J",
        "held",
        "-o",
        "/dev/null",
        "--wrap",
        "echo ran > ran",
    ]);
    let queue = ["squeue", "-h", "-o", "%i %j %T %V"];
    let history = ["sacct", "-n", "-P", "-o", "JobID,JobName,State,Submit,Start,End,ExitCode"];
    let before = (cluster.ok(&queue), cluster.ok(&history));
    cluster.stop("spurctld");
    cluster.share_state(&server.create("moved"));
    let file = cluster.path("state/spur.db");
    let moved = spurctld(&cluster, &["--migrate", file.to_str().unwrap()]);
    assert!(moved.code == Some(0) && moved.out.contains("2 jobs, 2 scripts, 2 request ids"), "{moved:?}");
    let again = spurctld(&cluster, &["--migrate", file.to_str().unwrap()]);
    assert!(again.code == Some(1) && again.err.contains("is not empty"), "{again:?}");
    cluster.start_controller_of_pair("ctl1");
    assert_eq!((cluster.ok(&queue), cluster.ok(&history)), before);
    cluster.ok(&["scontrol", "release", held.trim()]);
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
    assert_eq!(cluster.read("ran"), "ran\n");
    let backup = spurctld(&cluster, &["--backup", "/nowhere"]);
    assert!(backup.code == Some(1) && backup.err.contains("pg_dump"), "{backup:?}");
}

#[test]
fn a_backup_that_is_restored_is_an_old_copy() {
    let mut cluster = Cluster::start(&Setup::default());
    let first = cluster.ok(&["sbatch", "--parsable", "-H", "--wrap", "true"]);
    let (state, backup) = (cluster.path("state"), cluster.path("backup"));
    // `spur backup` and the daemon's option do the same.
    let said = cluster.run(&["spur", "backup", backup.to_str().unwrap()]);
    assert!(said.code == Some(0) && said.out.contains("holds the journal up to entry"), "{said:?}");
    let again = spurctld(&cluster, &["--backup", backup.to_str().unwrap()]);
    assert!(again.code == Some(1) && again.err.contains("is not empty"), "{again:?}");
    let in_use = spurctld(&cluster, &["--restore", backup.to_str().unwrap()]);
    assert!(in_use.code == Some(1) && in_use.err.contains("in use by another controller"), "{in_use:?}");
    cluster.ok(&["sbatch", "-W", "-o", "/dev/null", "--wrap", "true"]);
    cluster.stop("spurctld");
    fs::rename(&state, cluster.path("state.bad")).unwrap();
    fs::create_dir(&state).unwrap();
    let restored = spurctld(&cluster, &["--restore", backup.to_str().unwrap()]);
    assert!(restored.code == Some(0) && restored.out.contains("--new-history"), "{restored:?}");
    cluster.start_controller();
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i"]), first);
    cluster.wait_until(|cluster| cluster.ok(&["scontrol", "ping"]).contains("old copy"));
    cluster.stop("spurctld");
    let renewed = spurctld(&cluster, &["--new-history"]);
    assert!(renewed.code == Some(0), "{renewed:?}");
    cluster.start_controller();
    cluster.ok(&["scontrol", "release", first.trim()]);
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
}
