//! Steps whose `spurstepd` is killed in each state of a step's life, alone and together with the node's
//! daemon. Other steps are started by the programs of an older version.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::has_ended;
use crate::cluster::{Cluster, Gate, Setup, said};

/// Number of times a step is killed in each state, with and without its node's daemon. More rounds:
/// `SPUR_STEP_KILLS=25`.
const KILLS: u32 = 2;

/// A state of a step's life.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The task's prolog waits.
    Starting,
    /// The task waits.
    Running,
    /// The task was asked to end, and does not.
    Ending,
    /// The task has ended, and its output is not read.
    Draining,
}

/// The script of a task that is killed in this state.
fn script(state: State) -> &'static str {
    match state {
        State::Starting => "echo $SLURM_JOB_ID >>ran",
        State::Running => "echo $SLURM_JOB_ID >>ran; echo >up; exec sleep 600",
        State::Ending => {
            "echo $SLURM_JOB_ID >>ran; trap 'echo >up' TERM; echo >up; while :; do sleep 600; done"
        }
        State::Draining => {
            "echo $SLURM_JOB_ID >>ran; echo >up; read x <gate; head -c 200000 /dev/zero; exit 3"
        }
    }
}

/// The gates of a round: the task reports its state through `up`, and waits at `gate`.
struct Gates {
    up: Gate,
    gate: Gate,
}

/// Starts a job of one step and brings the step into a state. Returns the client and the job's number.
fn bring(cluster: &Cluster, gates: &mut Gates, state: State) -> (Child, u32) {
    let mut words = vec!["srun", "-J", "killed"];
    if matches!(state, State::Starting) {
        words.extend(["--task-prolog", "./prolog.sh"]);
    }
    words.extend(["sh", "-c", script(state)]);
    let mut command = cluster.command(&words);
    let srun = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    gates.up.wait();
    let job = cluster.client().jobs().last().expect("the job runs").id;
    match state {
        State::Starting | State::Running => {}
        State::Ending => {
            cluster.ok(&["scancel", &job.to_string()]);
            gates.up.wait();
        }
        State::Draining => {
            kill_process(Pid::from_child(&srun), Signal::STOP).unwrap();
            gates.gate.open();
            cluster.wait_until(|cluster| cluster.ok(&["squeue", "-hs", "-j", &job.to_string()]).is_empty());
        }
    }
    (srun, job)
}

/// Kills a step in a state, with its node's daemon if asked, and checks what remains.
fn kill_step(cluster: &mut Cluster, gates: &mut Gates, state: State, with_daemon: bool) {
    let others = cluster.processes("spurstepd");
    let (srun, job) = bring(cluster, gates, state);
    let own = |cluster: &Cluster| {
        let mut own = cluster.processes("spurstepd");
        own.retain(|pid| !others.contains(pid));
        own
    };
    // The task's process has the same name until it runs its program, and is younger.
    let stepd = *own(cluster).first().expect("the step has its process");
    if with_daemon {
        cluster.kill("n1");
    }
    kill_process(stepd, Signal::KILL).unwrap();
    if with_daemon {
        cluster.start_node("n1");
    }
    // The client may have ended.
    let _ = kill_process(Pid::from_child(&srun), Signal::CONT);
    let ended = cluster.client().wait(job, has_ended);
    let said = said(srun.wait_with_output().unwrap());
    let when = format!("{state:?}, spurd killed: {with_daemon}: {ended:?}, {} {:?}", said.err, said.code);
    match state {
        State::Starting | State::Running => assert_ne!(ended.state, "COMPLETED", "{when}"),
        State::Ending => assert_eq!(ended.state, "CANCELLED", "{when}"),
        State::Draining => assert_eq!((ended.state.as_str(), ended.exit_code), ("FAILED", 3), "{when}"),
    }
    assert_ne!(said.code, Some(0), "{when}");
    let runs = cluster.read("ran").lines().filter(|line| *line == job.to_string()).count();
    assert_eq!(runs, usize::from(!matches!(state, State::Starting)), "{when}");
    cluster.wait_until(|cluster| {
        let programs = ["sh", "sleep", "head", "prolog.sh"];
        programs.iter().all(|program| cluster.processes(program).is_empty()) && own(cluster).len() <= 1
    });
    assert_eq!(cluster.ok(&["srun", "echo", "serves"]), "serves\n", "{when}");
}

#[test]
fn a_step_whose_process_is_killed_in_any_state_ends_once() {
    let rounds = std::env::var("SPUR_STEP_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut cluster = Cluster::start(&Setup { kill_wait: "5s", ..Setup::default() });
    let mut gates = Gates { up: cluster.gate("up"), gate: cluster.gate("gate") };
    spur_tests::write_program(cluster.work("prolog.sh"), "echo >up; read x <never");
    let _never = cluster.gate("never");
    cluster.script("ran", "");
    // From the first step on the node has a process that starts those of steps, under the same name.
    cluster.ok(&["srun", "true"]);
    for _ in 0..rounds {
        for state in [State::Starting, State::Running, State::Ending, State::Draining] {
            for with_daemon in [false, true] {
                kill_step(&mut cluster, &mut gates, state, with_daemon);
            }
        }
    }
}

/// A job whose step an older version starts, and the expected result after the node's daemon was replaced.
struct Old {
    name: &'static str,
    script: &'static str,
    /// The command that runs after the daemon was replaced; without one the gate is opened twice.
    then: &'static [&'static str],
    state: &'static str,
    /// The exit code and signal of the job; `None` where the order of its ends decides.
    exit: Option<(u32, u32)>,
    /// The lines of its output, in order of their text.
    lines: &'static [&'static str],
}

const OLD: &[Old] = &[
    Old {
        name: "batch",
        script: "echo on; echo >up; echo >up; read x <gate; read x <gate; echo off; exit 7",
        then: &[],
        state: "FAILED",
        exit: Some((7, 0)),
        lines: &["off", "on"],
    },
    Old {
        name: "steps",
        script: "srun -l sh -c 'echo on; echo >up; read x <gate; echo off; exit 3'; echo $?",
        then: &[],
        state: "COMPLETED",
        exit: Some((0, 0)),
        lines: &["0: off", "0: on", "1: off", "1: on", "3"],
    },
    Old {
        name: "killed",
        script: "srun -Q sh -c 'echo >up; read x <gate; kill -9 $$'; echo $?",
        then: &[],
        state: "COMPLETED",
        exit: Some((0, 0)),
        lines: &["137"],
    },
    Old {
        name: "signalled",
        script: "srun sh -c 'trap \"echo usr1; exit 5\" USR1; echo >up; while :; do sleep 0.1; done'; echo $?",
        then: &["scancel", "-s", "USR1", "-n", "signalled"],
        state: "COMPLETED",
        exit: Some((0, 0)),
        lines: &["5", "usr1", "usr1"],
    },
    Old {
        // The end of the job ends its srun, too: the tasks write their file themselves.
        name: "cancelled",
        script: "srun --open-mode=append -o cancelled sh -c 'trap \"echo term; exit 5\" TERM; echo >up; while :; do sleep 0.1; done'",
        then: &["scancel", "-n", "cancelled"],
        state: "CANCELLED",
        exit: None,
        lines: &["term", "term"],
    },
];

/// Replaces the daemons of both nodes, or of the first only, before or after the job of an older version goes
/// on.
fn replace(cluster: &mut Cluster, old: &Old, nodes: &[&str], ends_meanwhile: bool) {
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script("job.sh", &format!("#!/bin/sh\n{}\n", old.script));
    let job = cluster.sbatch(&["-N2", "--ntasks-per-node=1", "-J", old.name, "-o", old.name, "job.sh"]);
    (0..2).for_each(|_| up.wait());
    let go_on = |cluster: &Cluster, gate: &mut Gate| {
        if old.then.is_empty() {
            (0..2).for_each(|_| gate.open());
        } else {
            cluster.ok(old.then);
        }
    };
    nodes.iter().for_each(|node| cluster.kill(node));
    if ends_meanwhile {
        go_on(cluster, &mut gate);
    }
    nodes.iter().for_each(|node| cluster.start_node(node));
    if !ends_meanwhile {
        // The older daemon has logged this once.
        let registered =
            |cluster: &Cluster, node: &&str| cluster.log(node).matches("registered as").count() == 2;
        cluster.wait_until(|cluster| nodes.iter().all(|node| registered(cluster, node)));
        go_on(cluster, &mut gate);
    }
    let ended = cluster.client().wait(job, has_ended);
    // A cancelled job may still be completing.
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
    let out = cluster.read(old.name);
    let when = format!("{}: {nodes:?}, {ends_meanwhile}: {ended:?}: {out}", old.name);
    assert_eq!(ended.state, old.state, "{when}");
    let exit = (ended.exit_code, ended.exit_signal);
    assert_eq!(exit, old.exit.unwrap_or(exit), "{when}");
    // Shells and srun print more about signals.
    let mut lines: Vec<&str> = out.lines().filter(|line| old.lines.contains(line)).collect();
    lines.sort_unstable();
    assert_eq!(lines, old.lines, "{when}");
}

/// `SPUR_OLD` names the directory of the older programs: its `spurd` and `spurstepd` start the steps, and its
/// `spurctld` begins the journal, so that the cluster has the feature level of these programs.
#[test]
#[ignore = "takes programs of an older version: SPUR_OLD=DIRECTORY"]
fn steps_of_an_older_version_outlive_the_change_of_their_daemon() {
    let older = PathBuf::from(std::env::var_os("SPUR_OLD").expect("SPUR_OLD names the older programs"));
    for nodes in [&["n1", "n2"][..], &["n1"]] {
        for ends_meanwhile in [false, true] {
            for old in OLD {
                if ends_meanwhile && !old.then.is_empty() {
                    continue;
                }
                let mut cluster = Cluster::prepare(&Setup { nodes: 2, kill_wait: "30s", ..Setup::default() });
                cluster.start_controller_as(Command::new(older.join("spurctld")));
                cluster.stop("spurctld");
                cluster.start_controller();
                for node in ["n1", "n2"] {
                    cluster.start_node_as(node, Command::new(older.join("spurd")));
                    cluster.wait_for_log(node, &format!("registered as {node}"));
                }
                replace(&mut cluster, old, nodes, ends_meanwhile);
                assert_eq!(cluster.ok(&["srun", "-N2", "echo", "serves"]), "serves\nserves\n");
            }
        }
    }
}
