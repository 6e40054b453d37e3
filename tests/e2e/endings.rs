//! The ends of steps that fail, are cancelled or lose a node, as `srun`, `sattach` and `spur logs -f` show
//! them: every stream ends, and the exit codes are Slurm's.

use std::process::{Child, Stdio};

use crate::cluster::{Cluster, Gate, Said, Setup, await_word, said};

fn begin(cluster: &Cluster, words: &[&str]) -> Child {
    cluster.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it is a program")
}

fn at_end(child: Child) -> Said {
    said(child.wait_with_output().expect("it is a child"))
}

/// A step of two nodes with its `srun` and with an `sattach` that watches both nodes.
struct Watched {
    srun: Child,
    sattach: Child,
    /// The name of the step, such as `1.0`.
    step: String,
}

/// Starts a step whose tasks open the gate `up` first, and watches it.
fn watched(cluster: &Cluster, up: &mut Gate, task: &str) -> Watched {
    let srun = begin(cluster, &["srun", "-N2", "sh", "-c", &format!("echo >up; {task}")]);
    (0..2).for_each(|_| up.wait());
    let steps = cluster.ok(&["squeue", "-s", "-h", "-o", "%i"]);
    let step = steps.lines().find(|step| step.ends_with(".0")).expect("the step runs").to_owned();
    let sattach = begin(cluster, &["sattach", &step]);
    for node in ["n1", "n2"] {
        cluster.wait_for_log(node, &format!("somebody looks on step={}", step.replace('.', ".0.")));
    }
    Watched { srun, sattach, step }
}

/// Asserts the exit code of a command, and that it has said all of some words.
fn ended_with(case: &str, said: &Said, code: i32, words: &[&str]) {
    assert_eq!(said.code, Some(code), "{case}: {said:?}");
    for word in words {
        assert!(said.err.contains(word), "{case}: `{word}` is not said: {said:?}");
    }
}

#[test]
fn a_step_that_ends_early_ends_its_streams() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let Watched { srun, sattach, .. } =
        watched(&cluster, &mut up, "read x <gate; exit $((SLURM_PROCID + 3))");
    (0..2).for_each(|_| gate.open());
    let words = ["srun: error: n1: task 0: Exited with exit code 3", "n2: task 1: Exited with exit code 4"];
    ended_with("tasks that fail", &at_end(srun), 4, &words);
    let words = ["sattach: error: task 0 exited with exit code 3", "task 1 exited with exit code 4"];
    ended_with("tasks that fail", &at_end(sattach), 4, &words);

    for (what, code, word) in [("step", 137, "Killed"), ("job", 143, "Terminated")] {
        let Watched { srun, sattach, step } = watched(&cluster, &mut up, "exec sleep 1000");
        let name = if what == "step" { &*step } else { step.trim_end_matches(".0") };
        cluster.ok(&["scancel", name]);
        let cancelled = format!("*** STEP {step} ON n1 CANCELLED AT ");
        let killed = format!("srun: error: n2: task 1: {word}");
        ended_with(what, &at_end(srun), code, &[&cancelled, &killed]);
        ended_with(what, &at_end(sattach), 0, &[]);
    }

    let Watched { srun, sattach, step } = watched(&cluster, &mut up, "exec sleep 1000");
    cluster.ok(&["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=fan"]);
    let cancelled = format!("*** STEP {step} ON n1 CANCELLED AT ");
    let words = ["srun: error: Node failure on n2", &*cancelled, "DUE TO NODE FAILURE"];
    ended_with("a node that is down", &at_end(srun), 143, &words);
    ended_with("a node that is down", &at_end(sattach), 0, &[]);
}

#[test]
fn a_step_that_loses_a_node_ends_its_streams() {
    let more = "[recovery]\nnode_timeout = \"3s\"";
    let mut cluster = Cluster::start(&Setup { nodes: 2, more, ..Setup::default() });
    let mut up = cluster.gate("up");
    let Watched { srun, sattach, .. } = watched(&cluster, &mut up, "exec sleep 1000");
    cluster.kill("n2");
    ended_with("srun", &at_end(srun), 143, &["srun: error: Node failure on n2"]);
    let words = ["sattach: error: n2: ", "; the rest of its output is missing"];
    ended_with("sattach", &at_end(sattach), 1, &words);
}

#[test]
fn a_step_that_cannot_start_ends_its_streams() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    for (words, code, said) in [
        (&["-o", "none/such/file", "true"][..], 1, "none/such/file"),
        (&["/no/such/program"], 2, "/no/such/program: No such file or directory"),
    ] {
        let srun = cluster.run(&[&["srun", "-N2"], words].concat());
        ended_with(&format!("{words:?}"), &srun, code, &[said]);
    }
    let job = cluster.sbatch(&["-o", "none/such/file", "--wrap", "true"]);
    cluster.client().wait_for(job, "FAILED");
    let logs = cluster.run(&["spur", "logs", "-f", &job.to_string()]);
    ended_with("a script without its output", &logs, 1, &["none/such/file on n1: No such file"]);
}

#[test]
fn logs_end_with_their_script() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let mut up = cluster.gate("up");
    let held = cluster.sbatch(&["--hold", "--wrap", "true"]).to_string();
    let mut logs = begin(&cluster, &["spur", "logs", "-f", &held]);
    await_word(logs.stderr.as_mut().expect("a pipe"), "waits");
    cluster.ok(&["scancel", &held]);
    ended_with("never started", &at_end(logs), 1, &["ended before it had started: CANCELLED"]);

    let script = "echo first; echo >up; exec sleep 1000";
    let mut follow = |cluster: &Cluster, node: &str| {
        let job = cluster.sbatch(&["-w", node, "--no-requeue", "-o", "out-%j", "--wrap", script]).to_string();
        up.wait();
        let mut logs = begin(cluster, &["spur", "logs", "-f", &job]);
        await_word(logs.stdout.as_mut().expect("a pipe"), "first\n");
        (job, logs)
    };
    let (job, logs) = follow(&cluster, "n1");
    cluster.ok(&["scancel", &job]);
    ended_with("cancelled", &at_end(logs), 0, &[]);

    let (_, logs) = follow(&cluster, "n2");
    cluster.kill("n2");
    ended_with("a lost node", &at_end(logs), 1, &["n2: ", "; the rest of the output is missing"]);
}
