//! The kill matrix. At any moment, each process of a cluster is killed, stopped or asked to end. Jobs of
//! every form are submitted, start, run and end meanwhile. The matrix counts what each kind of fault lost,
//! ran twice and left stuck.
//!
//! `SPUR_FAULT_ROUNDS` is the number of times that each fault happens, one by default. `SPUR_FAULT` selects
//! the faults with this text in their names. The table is printed.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use spur_chance::Chance;
use spur_proto::v1::Job;

use crate::chance;
use crate::client::{Client, batch_job, has_ended};
use crate::cluster::{Cluster, PATIENCE, Said, Setup, said};

/// The longest pause before a fault; the jobs of a round need about as long from submission to end.
const SPREAD_MICROSECONDS: u64 = 700_000;
/// The time for which a stopped process stands still.
const STILL: Duration = Duration::from_secs(2);
/// The time for which an allocation outlives its command. It is longer than commands need to find the
/// controller again, and far shorter than the patience with which the test waits for their end.
const INACTIVE: &str = "inactive_limit = \"10s\"";
/// Number of batch jobs of a round: half of them run a step.
const BATCH_JOBS: usize = 6;

/// The harm that a fault may do to running jobs.
#[derive(Clone, Copy, PartialEq)]
enum Harm {
    /// No harm: every job runs once, to its own end, and every command returns its exit code.
    None,
    /// The fault ends a process that belongs to a job, so that this job may fail.
    Job,
}

/// A row of the matrix.
struct Fault {
    name: &'static str,
    harm: Harm,
    inject: fn(&mut Cluster),
}

const FAULTS: &[Fault] = &[
    Fault { name: "`spurctld` killed", harm: Harm::None, inject: |cluster| kill(cluster, &["spurctld"]) },
    Fault {
        name: "`spurctld` told to end",
        harm: Harm::None,
        inject: |cluster| stop(cluster, &["spurctld"]),
    },
    Fault {
        name: "`spurctld` stopped for 2 s",
        harm: Harm::None,
        inject: |cluster| still(cluster, "spurctld"),
    },
    Fault { name: "a `spurd` killed", harm: Harm::None, inject: |cluster| kill(cluster, &["n1"]) },
    Fault { name: "a `spurd` told to end", harm: Harm::None, inject: |cluster| stop(cluster, &["n1"]) },
    Fault { name: "a `spurd` stopped for 2 s", harm: Harm::None, inject: |cluster| still(cluster, "n1") },
    Fault { name: "every `spurd` killed", harm: Harm::None, inject: |cluster| kill(cluster, &["n1", "n2"]) },
    Fault {
        name: "every daemon killed",
        harm: Harm::None,
        inject: |cluster| kill(cluster, &["spurctld", "n1", "n2"]),
    },
    Fault {
        name: "every daemon killed, nodes first back",
        harm: Harm::None,
        inject: |cluster| kill(cluster, &["n2", "n1", "spurctld"]),
    },
    Fault { name: "a `spurstepd` killed", harm: Harm::Job, inject: |cluster| kill_one(cluster, "spurstepd") },
    Fault { name: "an `srun` killed", harm: Harm::Job, inject: |cluster| kill_one(cluster, "srun") },
    Fault { name: "an `salloc` killed", harm: Harm::Job, inject: |cluster| kill_one(cluster, "salloc") },
    Fault { name: "a task killed", harm: Harm::Job, inject: |cluster| kill_one(cluster, "sleep") },
];

/// Kills daemons and starts them again in the same order.
fn kill(cluster: &mut Cluster, daemons: &[&str]) {
    daemons.iter().for_each(|daemon| cluster.kill(daemon));
    daemons.iter().for_each(|daemon| start(cluster, daemon));
}

fn stop(cluster: &mut Cluster, daemons: &[&str]) {
    daemons.iter().for_each(|daemon| cluster.stop(daemon));
    daemons.iter().for_each(|daemon| start(cluster, daemon));
}

fn start(cluster: &mut Cluster, daemon: &str) {
    match daemon {
        "spurctld" => cluster.start_controller(),
        node => cluster.start_node(node),
    }
}

fn still(cluster: &mut Cluster, daemon: &str) {
    cluster.signal(daemon, Signal::STOP);
    std::thread::sleep(STILL);
    cluster.signal(daemon, Signal::CONT);
}

/// Kills the process of this program that is found first; there may be none at this moment.
fn kill_one(cluster: &mut Cluster, program: &str) {
    if let Some(&pid) = cluster.processes(program).first() {
        // The process may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The fate of the jobs under one kind of fault.
#[derive(Default)]
struct Tally {
    times: u32,
    jobs: usize,
    lost: Vec<String>,
    doubled: Vec<String>,
    stuck: Vec<String>,
    /// The longest wait of a request to the controller for its answer.
    silence: Duration,
}

/// The jobs of a round.
struct Round {
    batch: Vec<u32>,
    /// `srun` and `salloc` commands by the name of their jobs.
    commands: Vec<(&'static str, Child)>,
}

/// A script that leaves a mark at its beginning and at its end, and that finds the cluster's commands.
fn marked(cluster: &Cluster, body: &str) -> String {
    let (bin, configuration) = (cluster.path("bin"), cluster.path("spur.toml"));
    let surroundings = format!("PATH={}:$PATH SPUR_CONF={}", bin.display(), configuration.display());
    let mark = |word: &str| format!("echo {word} $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} >>marks\n");
    format!("#!/bin/sh\nexport {surroundings}\n{}{body}\n{}", mark("begin"), mark("end"))
}

fn begin(cluster: &Cluster, client: &mut Client) -> Round {
    let work = cluster.path("work");
    let bodies = ["sleep 0.1", "srun sleep 0.2 || exit 9"];
    let command = |words: &[&str]| -> Child {
        let mut command: Command = cluster.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command is there")
    };
    let task = "echo task $SLURM_JOB_ID >>marks; sleep 0.2; exit 5";
    let commands = vec![
        ("srun", command(&["srun", "-n1", "sh", "-c", task])),
        ("salloc", command(&["salloc", "-n1", "srun", "sh", "-c", task])),
    ];
    let submit = |number: usize| {
        let mut job = batch_job("matrix", &marked(cluster, bodies[number % bodies.len()]), &work);
        job.batch.as_mut().expect("it is a batch job").stdout = "slurm-%j.out".to_owned();
        client.submit(job).expect("the controller comes back")
    };
    Round { batch: (0..BATCH_JOBS).map(submit).collect(), commands }
}

/// Waits until all jobs have ended; those that do not are stuck.
fn settle(client: &mut Client, tally: &mut Tally) -> Vec<Job> {
    let begun = Instant::now();
    loop {
        let jobs = client.jobs_patiently();
        let open: Vec<&Job> = jobs.iter().filter(|job| !has_ended(job)).collect();
        if open.is_empty() {
            return jobs;
        }
        if begun.elapsed() > PATIENCE {
            tally
                .stuck
                .extend(open.iter().map(|job| format!("job {} is {} ({})", job.id, job.state, job.reason)));
            return jobs;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a command to end.
fn end(mut child: Child) -> Result<Said, String> {
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("{:?}", said(child.wait_with_output().expect("it is ours"))));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(said(child.wait_with_output().expect("it is ours")))
}

/// Asks the controller all the time, and returns the longest wait for an answer.
fn ask(cluster: &Cluster, going: &Arc<AtomicBool>) -> JoinHandle<Duration> {
    let (mut client, going) = (cluster.client(), Arc::clone(going));
    std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        while going.load(Ordering::Relaxed) {
            let asked = Instant::now();
            client.jobs_patiently();
            longest = longest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        longest
    })
}

/// Runs one fault under the jobs of one round.
fn round(cluster: &mut Cluster, fault: &Fault, chance: &mut Chance, tally: &mut Tally) {
    let mut client = cluster.client();
    let known = client.jobs_patiently().len();
    let going = Arc::new(AtomicBool::new(true));
    let asking = ask(cluster, &going);
    let round = begin(cluster, &mut client);
    // The sleep waits for nothing: the cluster must survive a fault at any moment.
    std::thread::sleep(Duration::from_micros(chance.below(SPREAD_MICROSECONDS)));
    (fault.inject)(cluster);
    for (name, child) in round.commands {
        match end(child) {
            Err(stuck) => tally.stuck.push(format!("{name}: {stuck}")),
            Ok(said) if fault.harm == Harm::None && said.code != Some(5) => {
                tally.lost.push(format!("the exit code of {name}: {said:?}"));
            }
            Ok(_) => {}
        }
    }
    let jobs = settle(&mut client, tally);
    going.store(false, Ordering::Relaxed);
    tally.silence = tally.silence.max(asking.join().expect("it has not failed"));
    tally.times += 1;
    tally.jobs += jobs.len() - known;
    for id in round.batch {
        match jobs.iter().find(|job| job.id == id) {
            None => tally.lost.push(format!("job {id}, acknowledged")),
            Some(job) if fault.harm == Harm::None && (job.state != "COMPLETED" || job.restarts != 0) => {
                let said = std::fs::read_to_string(cluster.work(&format!("slurm-{id}.out")));
                tally.lost.push(format!(
                    "job {id} is {} ({}) after {} restarts and has said {:?}",
                    job.state,
                    job.reason,
                    job.restarts,
                    said.unwrap_or_default()
                ));
            }
            Some(_) => {}
        }
    }
}

/// Counts the jobs that ran twice, and those that are reported as completed but have not run.
fn judge(cluster: &Cluster, jobs: &[Job], tally: &mut Tally) {
    let marks = std::fs::read_to_string(cluster.work("marks")).unwrap_or_default();
    let mut counts = BTreeMap::<&str, u32>::new();
    marks.lines().for_each(|mark| *counts.entry(mark).or_default() += 1);
    let twice = counts.iter().filter(|&(_, &count)| count > 1);
    tally.doubled.extend(twice.map(|(mark, count)| format!("`{mark}` {count} times")));
    for job in jobs.iter().filter(|job| job.batch && job.state == "COMPLETED") {
        if !counts.contains_key(format!("end {} {}", job.id, job.restarts).as_str()) {
            tally.lost.push(format!("job {} is COMPLETED and has not run to its end", job.id));
        }
    }
}

#[test]
fn no_fault_loses_doubles_or_leaves_a_job() {
    let rounds = std::env::var("SPUR_FAULT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut chance = chance::seeded();
    let mut failed = Vec::new();
    println!("| fault | times | jobs | lost | doubled | stuck | longest wait for an answer |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let only = std::env::var("SPUR_FAULT").unwrap_or_default();
    for fault in FAULTS.iter().filter(|fault| fault.name.contains(&only)) {
        let mut tally = Tally::default();
        let setup = Setup { nodes: 2, cpus: 64, controller: INACTIVE, ..Setup::default() };
        let mut cluster = Cluster::start(&setup);
        for _ in 0..rounds {
            round(&mut cluster, fault, &mut chance, &mut tally);
        }
        judge(&cluster, &cluster.client().jobs_patiently(), &mut tally);
        let Tally { times, jobs, lost, doubled, stuck, silence } = tally;
        let (l, d, s) = (lost.len(), doubled.len(), stuck.len());
        println!("| {} | {times} | {jobs} | {l} | {d} | {s} | {} ms |", fault.name, silence.as_millis());
        if l + d + s > 0 {
            failed.push(format!(
                "{}: lost {lost:?}, doubled {doubled:?}, stuck {stuck:?}\n{}",
                fault.name,
                cluster.logs()
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
