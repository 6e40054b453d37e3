//! A comparison of `spur sim` with a real controller: random workloads through both give every job the same
//! nodes.
//!
//! The simulator's clock is not the controller's, so only the order of events may matter. No two events
//! happen at one simulated second, all happen within one simulated day, and the limits of jobs are whole days
//! apart. The test leads the controller through the same order event by event. In the controller, the nodes
//! of one job become free one after another; the simulator frees them at once. So a job ends while its
//! partition is down. Where every job has a reservation (`conservative`), a controller starts what fits
//! between those of its last deep pass. The simulator plans anew at every event, so this mode is not tested.
//!
//! `SPUR_SIMULATED=200 cargo test -p spur-tests --test e2e simulated` runs more workloads;
//! `SPUR_SIMULATED_SEED=17` one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Setup, program};
use crate::nodes::Nodes;
use spur_chance::Chance;

/// Number of workloads of an ordinary run.
const WORKLOADS: u64 = 8;
/// Number of CPUs of a node.
const CPUS: u32 = 8;
/// The simulated seconds in which jobs arrive.
const ARRIVALS: u64 = 10_000;

#[test]
fn a_controller_does_what_was_simulated() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("SPUR_SIMULATED_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SPUR_SIMULATED").unwrap_or(WORKLOADS),
    };
    let (mut led, mut jobs, mut waited) = (0, 0, 0);
    for seed in seeds {
        println!("SPUR_SIMULATED_SEED={seed}");
        let Some((started, late)) = Workload::new(seed).lead() else { continue };
        led += 1;
        jobs += started;
        waited += late;
    }
    println!("{led} workloads, {jobs} jobs on the nodes foretold, {waited} of them after they had waited");
    assert!(waited > 0, "somebody must have waited: {jobs}");
}

/// A cluster and its events.
struct Workload {
    leaves: Vec<u32>,
    block: bool,
    order: &'static str,
    backfill: &'static str,
    /// The arrival of each job in simulated seconds, its command line, and its run time in seconds.
    jobs: Vec<(u64, Vec<String>, u64)>,
    /// The times at which a node is drained and resumed, and the node.
    drained: Option<(u64, u64, u32)>,
}

/// An event of a simulation that the test repeats on the controller.
enum Step {
    Submit(usize),
    Reject(usize),
    End(usize),
    Drain,
    Resume,
}

impl Workload {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let leaves: Vec<u32> =
            (0..1 + chance.below(4)).map(|_| 1 + u32::try_from(chance.below(6)).expect("few")).collect();
        let nodes = u64::from(leaves.iter().sum::<u32>());
        let count = 4 + chance.below(20);
        let mut days: Vec<u64> = (1..=count).collect();
        for last in (1..days.len()).rev() {
            days.swap(last, usize::try_from(chance.below(last as u64 + 1)).expect("few"));
        }
        let job = |(number, day): (u64, u64)| {
            let at = chance.below(ARRIVALS);
            let argv = argv(&mut chance, nodes, number, day);
            (at, argv, 1 + chance.below(ARRIVALS / 3))
        };
        let mut jobs: Vec<_> = (0..).zip(days).map(job).collect();
        jobs.sort_by_key(|(at, ..)| *at);
        let drained = (chance.below(3) == 0).then(|| {
            let from = chance.below(ARRIVALS);
            (from, from + 1 + chance.below(ARRIVALS), 1 + u32::try_from(chance.below(nodes)).expect("few"))
        });
        Self {
            leaves,
            block: chance.below(3) == 0,
            order: ["fcfs", "saf", "multifactor"][usize::try_from(chance.below(3)).expect("few")],
            backfill: ["easy", "easy", "none"][usize::try_from(chance.below(3)).expect("few")],
            jobs,
            drained,
        }
    }

    fn nodes(&self) -> u32 {
        self.leaves.iter().sum()
    }

    /// More lines of spur.toml: a partition without limits, the order, and the fabric.
    fn configuration(&self) -> String {
        let mut lines = format!(
            "[[partitions]]\nname = \"long\"\nnodes = \"ALL\"\n[scheduler]\norder = \"{}\"\nbackfill = \"{}\"\n[topology]\n",
            self.order, self.backfill
        );
        let kind = if self.block { "blocks" } else { "switches" };
        lines += if self.block {
            "plugin = \"block\"\n"
        } else {
            "plugin = \"tree\"\nlayers = [\"leaf\", \"top\"]\n"
        };
        let mut first = 1;
        for (leaf, size) in self.leaves.iter().enumerate() {
            let last = first + size - 1;
            lines += &format!("[[topology.{kind}]]\nname = \"s{leaf}\"\nnodes = \"n[{first}-{last}]\"\n");
            first += size;
        }
        if !self.block {
            let last = self.leaves.len() - 1;
            lines += &format!("[[topology.switches]]\nname = \"top\"\nswitches = \"s[0-{last}]\"\n");
        }
        lines
    }

    /// The workload in the simulator's format.
    fn lines(&self) -> String {
        let mut lines: Vec<Value> = (0..)
            .zip(&self.jobs)
            .map(|(number, (at, argv, runtime))| {
                let id = format!("j{number}");
                json!({"at": at, "submit": {"id": id, "argv": argv, "user": "alice", "runtime": runtime}})
            })
            .collect();
        if let Some((from, to, node)) = self.drained {
            let names = format!("n{node}");
            lines.push(json!({"at": from, "node": {"names": names, "state": "drain"}}));
            lines.push(json!({"at": to, "node": {"names": names, "state": "resume"}}));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Simulates the workload, then leads a controller through it. Returns the number of started jobs, and of
    /// those that started later than they arrived. `None` if two events of the simulation coincide, so that
    /// they have no order.
    fn lead(&self) -> Option<(usize, usize)> {
        let nodes = self.nodes();
        let mut cluster = Cluster::prepare(&Setup { nodes: nodes as usize, cpus: CPUS, ..Setup::default() });
        let file = cluster.path("spur.toml");
        let text = fs::read_to_string(&file).expect("it was written") + &self.configuration();
        fs::write(&file, text).expect("the directory is ours");
        let foretold = Foretold::of(&cluster, self)?;
        cluster.start_controller();
        let names: Vec<String> = (1..=nodes).map(|node| format!("n{node}")).collect();
        let mut nodes = Nodes::start(&cluster, &names, CPUS);
        let mut client = cluster.client();
        self.follow(&foretold, &cluster, &mut nodes, &mut client);
        let late = |(number, (at, _)): (&usize, &(u64, String))| *at > self.jobs[*number].0;
        Some((foretold.starts.len(), foretold.starts.iter().filter(|start| late(*start)).count()))
    }

    /// Repeats the simulation's events on the controller, and compares the starts.
    fn follow(&self, foretold: &Foretold, cluster: &Cluster, nodes: &mut Nodes, client: &mut Client) {
        let mut ids = BTreeMap::new();
        for (at, step) in &foretold.steps {
            match step {
                Step::Submit(number) => {
                    let argv: Vec<&str> = self.jobs[*number].1.iter().map(String::as_str).collect();
                    ids.insert(*number, cluster.sbatch(&[&argv[..], &["--wrap", "true"]].concat()));
                }
                Step::Reject(number) => {
                    let argv: Vec<&str> = self.jobs[*number].1.iter().map(String::as_str).collect();
                    cluster.fails(&[&["sbatch"], &argv[..], &["--wrap", "true"]].concat());
                }
                Step::End(number) => {
                    cluster.ok(&["scontrol", "update", "partitionname=long", "state=down"]);
                    nodes.end(ids[number]);
                    client.wait_for(ids[number], "COMPLETED");
                    cluster.ok(&["scontrol", "update", "partitionname=long", "state=up"]);
                }
                Step::Drain | Step::Resume => {
                    let (_, _, node) = self.drained.expect("the step says so");
                    let name = format!("nodename=n{node}");
                    let state = if matches!(step, Step::Drain) { "state=drain" } else { "state=resume" };
                    cluster.ok(&["scontrol", "update", &name, state, "reason=test"]);
                }
            }
            for (number, (_, expected)) in foretold.starts.iter().filter(|(_, (start, _))| start == at) {
                let found = client.wait_for(ids[number], "RUNNING").nodes;
                assert_eq!(found, *expected, "job j{number} at {at}: {:?}", self.jobs[*number].1);
            }
        }
        for (number, id) in &ids {
            let state = client.job(*id).state;
            let waits = !foretold.starts.contains_key(number);
            assert_eq!(state == "PENDING", waits, "job j{number} is {state}: {:?}", self.jobs[*number].1);
        }
    }
}

/// The result of a simulation.
struct Foretold {
    /// The events by simulated second.
    steps: BTreeMap<u64, Step>,
    /// The start time and the nodes of each job.
    starts: BTreeMap<usize, (u64, String)>,
}

impl Foretold {
    /// Runs the simulator; `None` if two events happened at one second.
    fn of(cluster: &Cluster, workload: &Workload) -> Option<Self> {
        let (jobs, events) = (cluster.path("jobs.jsonl"), cluster.path("events.jsonl"));
        fs::write(&jobs, workload.lines()).expect("the directory is ours");
        let mut simulator = Command::new(program("spur"));
        simulator.arg("sim").arg("--config").arg(cluster.path("spur.toml"));
        simulator.arg("--workload").arg(&jobs).arg("--events").arg(&events);
        let said = simulator.output().expect("it is there");
        assert!(said.status.success(), "{said:?}");
        let (mut steps, mut starts, mut once) = (BTreeMap::new(), BTreeMap::new(), true);
        for line in fs::read_to_string(&events).expect("it was written").lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let at = event["t"].as_u64().expect("a second");
            let number =
                || event["job"].as_str().and_then(|job| job[1..].parse::<usize>().ok()).expect("our name");
            let step = match event["event"].as_str() {
                Some("submit") => Step::Submit(number()),
                Some("reject") => Step::Reject(number()),
                Some("end") => Step::End(number()),
                Some("start") => {
                    let nodes = event["nodes"].as_str().expect("a hostlist");
                    starts.insert(number(), (at, nodes.to_owned()));
                    continue;
                }
                _ => continue,
            };
            once &= steps.insert(at, step).is_none();
        }
        if let Some((from, to, _)) = workload.drained {
            once &= steps.insert(from, Step::Drain).is_none() && steps.insert(to, Step::Resume).is_none();
        }
        let at: BTreeSet<u64> = starts.values().map(|(at, _)| *at).collect();
        assert!(!once || at.iter().all(|at| steps.contains_key(at)), "a job starts when something happens");
        once.then_some(Self { steps, starts })
    }
}

/// A random command line: a size, a way to share, and a preference for its place.
fn argv(chance: &mut Chance, nodes: u64, number: u64, days: u64) -> Vec<String> {
    let mut argv = vec!["-p".to_owned(), "long".to_owned(), "-t".to_owned(), format!("{days}-0")];
    let size = 1 + chance.below(nodes);
    let mut add = |words: &[String]| argv.extend_from_slice(words);
    match chance.below(5) {
        0 => add(&[format!("-n{}", 1 + chance.below(3 * nodes)), format!("-c{}", 1 + chance.below(3))]),
        1 => add(&[format!("-N{size}-{}", size + chance.below(3)), "--exclusive".to_owned()]),
        2 => add(&[format!("-N{size}"), format!("--mem={}", 1_000 * (1 + chance.below(60)))]),
        3 => add(&[format!("-N{size}"), format!("--ntasks-per-node={}", 1 + chance.below(8))]),
        _ => add(&[format!("-N{size}"), "--exclusive".to_owned()]),
    }
    match chance.below(8) {
        0 => add(&["--gather=must:leaf".to_owned()]),
        1 => add(&["--switches=1".to_owned()]),
        2 => add(&["--topology=none".to_owned()]),
        3 => add(&["--topology=block".to_owned()]),
        4 => add(&["--gather=prefer:leaf".to_owned()]),
        5 => add(&["--contiguous".to_owned()]),
        _ => {}
    }
    if number > 0 && chance.below(10) == 0 {
        add(&[format!("--exclude=n{}", 1 + chance.below(nodes))]);
    }
    argv
}
