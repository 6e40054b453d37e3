//! The controller's own faults: it stops for a while, or a part of it panics. Only the affected job or
//! request suffers.
//!
//! `SPUR_FAULT=PLACE=NAME` selects the place of a panic and the job at which it happens; only debug builds
//! have such places.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::Client;
use crate::cluster::{Cluster, PATIENCE, Setup};

/// A cluster whose controller fails at the given place; `None` in a build without such places.
fn failing(fault: &str) -> Option<Cluster> {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED: only debug builds can be made to fail");
        return None;
    }
    let mut cluster = Cluster::prepare(&Setup::default());
    cluster.start_controller_under(under(fault));
    cluster.start_node("n1");
    Some(cluster)
}

fn under(fault: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("SPUR_FAULT={fault}"));
    command
}

/// Stops a process for `pause`.
fn stop_for(cluster: &Cluster, name: &str, pause: Duration) {
    cluster.signal(name, Signal::STOP);
    let begun = Instant::now();
    while begun.elapsed() < pause {
        std::thread::park_timeout(pause.saturating_sub(begun.elapsed()));
    }
    cluster.signal(name, Signal::CONT);
}

#[test]
fn a_controller_that_stood_still_takes_no_node_for_silent() {
    let more = "[recovery]\nnode_timeout = \"3s\"";
    let cluster = Cluster::start(&Setup { nodes: 2, more, ..Setup::default() });
    let mut gate = cluster.gate("gate");
    let jobs = ["n1", "n2"].map(|node| cluster.sbatch(&["-w", node, "--wrap", "read x <gate"]));
    let mut client = cluster.client();
    for job in jobs {
        client.wait_for(job, "RUNNING");
    }
    stop_for(&cluster, "spurctld", Duration::from_secs(8));
    // The second job lasts longer than another timeout, so that all consequences of the pause have been
    // decided before it ends.
    stop_for(&cluster, "spurctld", Duration::from_secs(4));
    for _ in jobs {
        gate.open();
    }
    for job in jobs {
        let ended = client.wait_for(job, "COMPLETED");
        assert_eq!(ended.restarts, 0, "{}", cluster.log("spurctld"));
    }
    assert!(cluster.log("spurctld").contains("this controller has stood still"), "nothing was said");
}

#[test]
fn a_request_that_cannot_be_judged_is_refused_alone() {
    let Some(cluster) = failing("check=boom") else { return };
    let complaint = cluster.fails(&["sbatch", "-J", "boom", "--wrap", "true"]);
    assert!(complaint.contains("the controller has a fault"), "{complaint}");
    cluster.ok(&["sbatch", "--wait", "-J", "other", "--wrap", "true"]);
    assert!(cluster.ok(&["scontrol", "ping"]).contains("is UP"));
}

#[test]
fn a_job_that_planning_fails_at_is_held_and_others_start() {
    for place in ["deep", "quick"] {
        let Some(cluster) = failing(&format!("{place}=boom")) else { return };
        cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
        // The job waits for its begin time, so that every kind of pass plans it.
        let job = cluster.sbatch(&["-J", "boom", "--begin=now+1hour", "--wrap", "true"]);
        let mut client: Client = cluster.client();
        let held = client.wait(job, |job| job.reason == "SystemFailure");
        assert_eq!(held.state, "PENDING");
        cluster.ok(&["sbatch", "--wait", "-J", "other", "--wrap", "true"]);
        assert!(cluster.log("spurctld").contains("planning has failed"), "{place}");
    }
}

#[test]
fn a_thread_that_panics_ends_the_process_and_nothing_is_lost() {
    for place in ["apply", "outbox"] {
        let Some(mut cluster) = failing(&format!("{place}=boom")) else { return };
        let kept = cluster.sbatch(&["-H", "--wrap", "true"]);
        // The submitter of this job cannot know its fate.
        let mut submission = cluster.command(&["sbatch", "-J", "boom", "--wrap", "true"]).spawn().unwrap();
        let status = cluster.wait_for_end("spurctld");
        assert!(!status.success(), "{place}: {status}");
        let _ = submission.kill();
        let _ = submission.wait();
        let ping = cluster.run(&["scontrol", "ping"]);
        assert!(ping.code == Some(1) && ping.out.contains("is DOWN"), "{ping:?}");
        cluster.start_controller();
        assert_eq!(cluster.client().job(kept).state, "PENDING");
        assert!(cluster.ok(&["scontrol", "ping"]).contains("is UP"));
    }
}

#[test]
fn a_controller_that_answers_nobody_is_not_up() {
    let cluster = Cluster::start(&Setup::default());
    cluster.signal("spurctld", Signal::STOP);
    let mut ping = cluster.command(&["scontrol", "ping"]).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = ping.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE + PATIENCE / 2 {
            break None;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    };
    cluster.signal("spurctld", Signal::CONT);
    assert_eq!(status.and_then(|status| status.code()), Some(1));
}
