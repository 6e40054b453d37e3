//! Files chosen by a job's user that block for ever: pipes without another end, full ones, and those with a
//! stopped reader. The job may wait there for ever; its end never does.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::client::has_ended;
use crate::cluster::{Cluster, Setup};

/// Makes a pipe in the directory of the jobs.
fn pipe(cluster: &Cluster, name: &str) {
    assert!(Command::new("mkfifo").arg(cluster.work(name)).status().unwrap().success());
}

/// Fills a pipe to the last byte. While the returned file is kept, the pipe has a reader that does not read.
fn fill(path: &Path) -> File {
    let non_blocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut ends = File::options().read(true).write(true).custom_flags(non_blocking).open(path).unwrap();
    for part in [4096, 1] {
        loop {
            match ends.write(&[b'x'; 4096][..part]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }
    ends
}

#[test]
fn jobs_that_wait_for_pipes_are_cancelled_and_timed_out() {
    let cluster = Cluster::start(&Setup { cpus: 16, ..Setup::default() });
    let mut kept = Vec::new();
    for name in ["full-out", "full-err", "full-both", "full-append"] {
        pipe(&cluster, name);
        kept.push(fill(&cluster.work(name)));
    }
    pipe(&cluster, "nobody");
    let wrap = "echo out; echo err >&2; sleep 1000";
    let cases: [&[&str]; 8] = [
        &["-o", "nobody"],
        &["-e", "nobody"],
        &["-i", "nobody"],
        &["-o", "full-out"],
        &["-e", "full-err"],
        &["-o", "full-both", "-e", "full-both"],
        &["-o", "full-append", "--open-mode=append"],
        &["-o", "/dev/null", "-e", "full-err", "--signal=B:USR1@30"],
    ];
    let mut client = cluster.client();
    let submit = |words: &[&str]| cluster.sbatch(&[words, &["--wrap", wrap]].concat());
    let jobs = cases.map(submit);
    for job in jobs {
        client.wait_for(job, "RUNNING");
    }
    let [first, rest @ ..] = jobs;
    cluster.ok(&["scontrol", "update", &format!("JobId={first}"), "TimeLimit=0:01"]);
    for job in rest {
        cluster.ok(&["scancel", &job.to_string()]);
    }
    for (job, words) in rest.into_iter().zip(&cases[1..]) {
        assert_eq!(client.wait(job, has_ended).state, "CANCELLED", "{words:?}");
    }
    assert_eq!(client.wait(first, has_ended).state, "TIMEOUT");
    // The node remains usable.
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
}

#[test]
fn a_time_limit_is_told_where_somebody_reads_it() {
    let cluster = Cluster::start(&Setup { cpus: 16, ..Setup::default() });
    pipe(&cluster, "full");
    let _kept = fill(&cluster.work("full"));
    let told = cluster.sbatch(&["-o", "told.out", "--wrap", "sleep 1000"]);
    let untold = cluster.sbatch(&["-o", "/dev/null", "-e", "full", "--wrap", "sleep 1000"]);
    let mut client = cluster.client();
    for job in [told, untold] {
        client.wait_for(job, "RUNNING");
        cluster.ok(&["scontrol", "update", &format!("JobId={job}"), "TimeLimit=0:01"]);
    }
    for job in [told, untold] {
        assert_eq!(client.wait(job, has_ended).state, "TIMEOUT");
    }
    assert!(cluster.read("told.out").contains("DUE TO TIME LIMIT"), "{}", cluster.read("told.out"));
}

#[test]
fn a_node_stops_and_comes_back_while_jobs_wait_for_pipes() {
    let mut cluster = Cluster::start(&Setup::default());
    pipe(&cluster, "full");
    pipe(&cluster, "nobody");
    let _kept = fill(&cluster.work("full"));
    let jobs = [
        cluster.sbatch(&["-o", "full", "--wrap", "echo x; sleep 1000"]),
        cluster.sbatch(&["-o", "nobody", "--wrap", "sleep 1000"]),
    ];
    let mut client = cluster.client();
    for job in jobs {
        client.wait_for(job, "RUNNING");
    }
    cluster.stop("n1");
    cluster.start_node("n1");
    for job in jobs {
        cluster.ok(&["scancel", &job.to_string()]);
        assert_eq!(client.wait(job, has_ended).state, "CANCELLED");
    }
}

#[test]
fn an_output_file_that_cannot_be_opened_is_named() {
    let cluster = Cluster::start(&Setup::default());
    cluster.script("plain", "");
    let job = cluster.sbatch(&["-o", "plain/out", "--wrap", "true"]);
    let ended = cluster.client().wait(job, has_ended);
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("FAILED", "JobLaunchFailure"));
    assert_eq!((ended.exit_code, ended.exit_signal), (0, 53));
    assert!(ended.reason_detail.contains("Could not open stdout file"), "{}", ended.reason_detail);
    assert!(ended.reason_detail.contains("plain/out"), "{}", ended.reason_detail);
    let shown = cluster.ok(&["scontrol", "show", "job", &job.to_string()]);
    assert!(shown.contains("Reason=JobLaunchFailure") && shown.contains("plain/out"), "{shown}");
}
