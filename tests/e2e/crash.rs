//! Daemons that are killed, or that stop responding, under a stream of submissions and with running jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use spur_proto::v1::Job;

use crate::chance;
use spur_proto::client::Connection;

use crate::client::{Client, batch_job, has_ended};
use crate::cluster::{Cluster, PATIENCE, Setup, free_port, said};

/// Number of times the controller is killed.
const KILLS: usize = 50;
/// Number of clients that submit meanwhile, each as fast as it gets answers.
const CLIENTS: usize = 3;

/// A job that was acknowledged.
struct Accepted {
    id: u32,
    name: String,
    /// The time before the request, in epoch seconds; the job was accepted between it and `answered`.
    asked: i64,
    answered: i64,
}

/// The accepted jobs with their first submit times.
#[derive(Default)]
struct Ledger {
    /// Jobs by number, with the submit time that was first reported.
    jobs: BTreeMap<u32, (Accepted, Option<i64>)>,
}

impl Ledger {
    fn note(&mut self, accepted: Accepted) {
        let id = accepted.id;
        if let Some((before, _)) = self.jobs.insert(id, (accepted, None)) {
            panic!("job number {id} was given to {} and to {}", before.name, self.jobs[&id].0.name);
        }
    }

    /// Asserts that every acknowledged job exists unchanged.
    fn check(&mut self, there: &[Job], when: &str) {
        let there: BTreeMap<u32, &Job> = there.iter().map(|job| (job.id, job)).collect();
        for (id, (accepted, submitted)) in &mut self.jobs {
            let job = there.get(id).unwrap_or_else(|| panic!("{when}: job {id}, acknowledged, is lost"));
            assert_eq!(job.name, accepted.name, "{when}: job {id} is another one");
            assert!(
                (accepted.asked..=accepted.answered).contains(&job.submit_time),
                "{when}: job {id} was submitted between {} and {}, not {}",
                accepted.asked,
                accepted.answered,
                job.submit_time
            );
            let first = *submitted.get_or_insert(job.submit_time);
            assert_eq!(job.submit_time, first, "{when}: the submit time of job {id} has changed");
            assert_eq!(job.restarts, 0, "{when}: job {id} was started again");
        }
    }
}

fn now() -> i64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs().cast_signed())
}

/// Submits jobs that leave a mark when they begin and when they end, until it must stop.
fn submit_all_the_time(
    connection: Connection,
    number: usize,
    work: PathBuf,
    going: Arc<AtomicBool>,
    tell: Sender<Accepted>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut client = Client::new(connection);
        for count in 0.. {
            if !going.load(Ordering::Relaxed) {
                return;
            }
            let name = format!("c{number}-{count}");
            let pause = ["0", "0.2", "1"][count % 3];
            let script = format!(
                "#!/bin/sh\necho begin $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} >>marks\nsleep {pause}\n\
                 echo end $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} >>marks\n"
            );
            let asked = now();
            let id = client.submit(batch_job(&name, &script, &work)).expect("the controller comes back");
            tell.send(Accepted { id, name, asked, answered: now() }).expect("the test listens");
        }
    })
}

/// Kills the controller at random moments and returns the longest time without service.
fn kill_at_random(cluster: &mut Cluster, acks: &Receiver<Accepted>, ledger: &mut Ledger) -> Duration {
    let mut chance = chance::seeded();
    let mut longest = Duration::ZERO;
    for round in 1..=KILLS {
        for _ in 0..chance.below(6) {
            ledger.note(acks.recv_timeout(PATIENCE).expect("submissions go on"));
        }
        // The sleep waits for nothing: the controller must survive a kill at any moment.
        std::thread::sleep(Duration::from_micros(chance.below(30_000)));
        let killed = Instant::now();
        cluster.kill("spurctld");
        cluster.start_controller();
        acks.try_iter().for_each(|accepted| ledger.note(accepted));
        let there = cluster.client().jobs();
        longest = longest.max(killed.elapsed());
        ledger.check(&there, &format!("after kill {round}"));
    }
    longest
}

#[test]
fn killing_the_controller_loses_nothing_and_runs_nothing_twice() {
    let begun = SystemTime::now();
    let mut cluster = Cluster::start(&Setup { nodes: 2, cpus: 256, ..Setup::default() });
    let (tell, acks) = channel();
    let going = Arc::new(AtomicBool::new(true));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let connection = cluster.connection(rustix::process::getuid().as_raw());
            submit_all_the_time(connection, number, cluster.path("work"), going.clone(), tell.clone())
        })
        .collect();
    let mut ledger = Ledger::default();
    let longest = kill_at_random(&mut cluster, &acks, &mut ledger);
    going.store(false, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("the client has not failed"));
    acks.try_iter().for_each(|accepted| ledger.note(accepted));

    let mut client = cluster.client();
    for &id in ledger.jobs.keys() {
        client.wait_for(id, "COMPLETED");
    }
    let there = client.jobs();
    ledger.check(&there, "at the end");
    assert_eq!(
        there.len(),
        ledger.jobs.len(),
        "there are jobs that nobody has submitted, or submitted twice"
    );
    let mut marks: Vec<String> = cluster.read("marks").lines().map(str::to_owned).collect();
    let mut expected: Vec<String> =
        ledger.jobs.keys().flat_map(|id| [format!("begin {id} 0"), format!("end {id} 0")]).collect();
    marks.sort();
    expected.sort();
    assert_eq!(marks, expected, "each job leaves each mark once");
    let rows = cluster.ok(&["sacct", "-a", "-n", "-P", "-X", "-o", "jobid,state"]);
    let completed = rows.lines().filter(|row| row.ends_with("|COMPLETED")).count();
    assert_eq!(
        (rows.lines().count(), completed),
        (ledger.jobs.len(), ledger.jobs.len()),
        "accounting:\n{rows}"
    );
    println!(
        "{KILLS} kills, {} jobs acknowledged, {} marks, {} s, nobody served for {} ms at the longest",
        ledger.jobs.len(),
        marks.len(),
        begun.elapsed().map_or(0, |time| time.as_secs()),
        longest.as_millis()
    );
}

/// Starts a job that reports when it runs, waits at a gate and then ends by the command `last`.
fn gated(cluster: &Cluster, last: &str) -> u32 {
    cluster.sbatch(&["--wrap", &format!("echo $SLURM_JOB_ID >>ran; echo >up; read x <gate; {last}")])
}

#[test]
fn jobs_outlive_their_daemons_and_end_as_they_did() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut client = cluster.client();
    let mut jobs = Vec::new();
    for (dead, end_meanwhile) in
        [(&["n1"][..], true), (&["n1"], false), (&["n1", "spurctld"], true), (&["spurctld", "n1"], false)]
    {
        for (last, code, signal) in [("exit 0", 0, 0), ("exit 7", 7, 0), ("kill -9 $$", 0, 9)] {
            let job = gated(&cluster, last);
            up.wait();
            dead.iter().for_each(|daemon| cluster.kill(daemon));
            if end_meanwhile {
                gate.open();
            }
            if dead.contains(&"spurctld") {
                cluster.start_controller();
            }
            cluster.start_node("n1");
            if !end_meanwhile {
                gate.open();
            }
            let state = if (code, signal) == (0, 0) { "COMPLETED" } else { "FAILED" };
            let ended = client.wait_for(job, state);
            assert_eq!((ended.exit_code, ended.exit_signal), (code, signal), "{dead:?} killed: {ended:?}");
            jobs.push(job.to_string());
        }
    }
    assert_eq!(cluster.read("ran").lines().collect::<Vec<_>>(), jobs, "every job ran once");
}

/// Many configurations ask for a free port, and the next one is another.
#[test]
fn steps_outlive_daemons_that_come_back_at_other_ports() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster
        .script("job.sh", "#!/bin/sh\nsrun -l sh -c 'echo on; echo >up; read x <gate; echo off'; echo $?\n");
    for end_meanwhile in [false, true] {
        let job = cluster.sbatch(&["-N2", "-o", "out", "job.sh"]);
        (0..2).for_each(|_| up.wait());
        ["n1", "n2"].iter().for_each(|node| cluster.kill(node));
        if end_meanwhile {
            (0..2).for_each(|_| gate.open());
        }
        ["n1", "n2"].iter().for_each(|node| cluster.start_node_at(node, free_port()));
        if !end_meanwhile {
            (0..2).for_each(|_| gate.open());
        }
        cluster.client().wait_for(job, "COMPLETED");
        let out = cluster.read("out");
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "0: off", "0: on", "1: off", "1: on"], "ended meanwhile: {end_meanwhile}");
    }
}

#[test]
fn commands_outlive_the_controller() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script("job.sh", "#!/bin/sh\nsrun -N2 sh -c 'echo >up; read x <gate; exit 7'\n");
    let start = |cluster: &Cluster, words: &[&str]| {
        let mut command = cluster.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command is there")
    };
    let waiting = start(&cluster, &["sbatch", "--wait", "-N2", "-o", "out", "job.sh"]);
    up.wait();
    up.wait();
    cluster.kill("spurctld");
    let submitting = start(&cluster, &["sbatch", "--wait", "--wrap", "exit 3"]);
    gate.open();
    gate.open();
    cluster.start_controller();
    for (child, code) in [(waiting, 7), (submitting, 3)] {
        let said = said(child.wait_with_output().expect("it is ours"));
        assert_eq!(said.code, Some(code), "{said:?}\n{}", cluster.logs());
    }
    assert_eq!(cluster.client().jobs().len(), 2);
}

#[test]
fn what_ran_on_a_node_that_lost_power_is_lost_or_runs_again() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut client = cluster.client();
    let script = "echo $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} >>ran; echo >up; read x <gate";
    let lost = cluster.sbatch(&["--no-requeue", "--wrap", script]);
    let again = cluster.sbatch(&["--requeue", "--wrap", script]);
    up.wait();
    up.wait();
    cluster.cut_power("n1");
    cluster.start_node("n1");
    client.wait_for(lost, "NODE_FAIL");
    up.wait();
    gate.open();
    assert_eq!(client.wait_for(again, "COMPLETED").restarts, 1);
    let mut ran: Vec<String> = cluster.read("ran").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, [format!("{lost} 0"), format!("{again} 0"), format!("{again} 1")]);
}

#[test]
fn a_silent_node_delays_only_its_own_jobs() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let mut client = cluster.client();
    cluster.signal("n1", Signal::STOP);
    let stuck = cluster.sbatch(&["-w", "n1", "-o", "stuck.txt", "--wrap", "echo at last"]);
    let both = cluster.sbatch(&["-N2", "-o", "both.txt", "--wrap", "srun echo both"]);
    client.wait_for(stuck, "RUNNING");
    for _ in 0..20 {
        cluster.ok(&["sbatch", "--wait", "-w", "n2", "--wrap", "echo x >>passed"]);
    }
    assert_eq!(cluster.read("passed").lines().count(), 20);
    assert!(!cluster.work("stuck.txt").exists() && !cluster.work("both.txt").exists());
    assert_eq!(
        cluster.ok(&["squeue", "-h", "-o", "%i %T", "-j", &stuck.to_string()]),
        format!("{stuck} RUNNING\n")
    );
    cluster.signal("n1", Signal::CONT);
    client.wait_for(stuck, "COMPLETED");
    client.wait_for(both, "COMPLETED");
    assert_eq!(
        (cluster.read("stuck.txt").as_str(), cluster.read("both.txt").as_str()),
        ("at last\n", "both\nboth\n")
    );
}

#[test]
fn a_job_that_ends_while_the_controller_is_away_ends_as_it_did() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["-t", "0:03", "--wrap", "echo x >up; read x <gate; echo done >done"]);
    up.wait();
    let started = cluster.client().job(job).start_time.expect("it runs");
    cluster.kill("spurctld");
    cluster.kill("n1");
    gate.open();
    cluster.wait_until(|cluster| cluster.path("work/done").exists());
    // The job's time limit passes.
    cluster.wait_until(|_| now() > started + 4);
    cluster.start_controller();
    // The controller handles what is due at once before a submission.
    cluster.sbatch(&["--hold", "--wrap", "true"]);
    assert_eq!(cluster.client().job(job).state, "RUNNING");
    cluster.start_node("n1");
    let ended = cluster.client().wait(job, has_ended);
    assert_eq!((ended.state.as_str(), ended.exit_code, ended.restarts), ("COMPLETED", 0, 0));
}
