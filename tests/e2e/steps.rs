//! `srun` inside a job: its tasks, their order, input, output, ends and signals.

use crate::cluster::{Cluster, Setup, free_port};

/// Two leaves, whose nodes do not follow each other by name.
const FABRIC: &str = r#"
[topology]
plugin = "tree"
layers = ["leaf", "spine"]
[[topology.switches]]
name = "l1"
nodes = "n[1,3]"
[[topology.switches]]
name = "l2"
nodes = "n[2,4]"
[[topology.switches]]
name = "top"
switches = "l[1-2]"
"#;

fn four_nodes() -> Cluster {
    Cluster::start(&Setup { nodes: 4, more: FABRIC, ..Setup::default() })
}

/// Runs a batch script to its end and gives what it printed, its exit code and what it complained of.
fn batch(cluster: &Cluster, options: &[&str], script: &str) -> (String, Option<i32>, String) {
    cluster.script("job.sh", &format!("#!/bin/sh\n{script}\n"));
    let words = [&["sbatch", "--wait", "-o", "out", "-e", "err"], options, &["job.sh"]].concat();
    let said = cluster.run(&words);
    (cluster.read("out"), said.code, cluster.read("err"))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_follow_the_fabric() {
    let cluster = four_nodes();
    let task = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID.$SLURM_LOCALID $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR $SLURM_STEP_ID";
    let (out, code, err) =
        batch(&cluster, &["-N4"], &format!("echo $SLURM_JOB_NODELIST\nsrun sh -c '{task}'"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines = sorted(&out);
    let tasks = [
        "0/4 0.0 n1 top.l1.n1 0",
        "1/4 1.0 n3 top.l1.n3 0",
        "2/4 2.0 n2 top.l2.n2 0",
        "3/4 3.0 n4 top.l2.n4 0",
    ];
    assert_eq!(lines, [&tasks[..], &["n[1,3,2,4]"]].concat());
    let task = "echo $SLURM_PROCID $SLURM_NODEID.$SLURM_LOCALID";
    let (out, _, _) = batch(&cluster, &["-N2", "-n4", "-w", "n[1,2]"], &format!("srun -l sh -c '{task}'"));
    assert_eq!(sorted(&out), ["0: 0 0.0", "1: 1 0.1", "2: 2 0.2", "3: 3 1.0"]);
}

#[test]
fn a_step_ends_as_its_tasks_do() {
    let cluster = four_nodes();
    let script = "srun sh -c 'exit $SLURM_PROCID'; echo $?\nsrun -n1 -N1 sh -c 'kill -9 $$'; echo $?\nsrun true; echo $?\nsrun -n1 -N1 /nowhere; echo $?";
    let (out, code, err) = batch(&cluster, &["-N4"], script);
    assert_eq!((out.as_str(), code), ("3\n137\n0\n2\n", Some(0)), "{err}");
    for (number, line) in
        [("3", "Exited with exit code 3"), ("2", "Exited with exit code 2"), ("0", "Killed")]
    {
        let told = err.lines().any(|said| said.contains(line) && said.contains(&format!("task {number}:")));
        assert!(told, "`{line}` of task {number} is not told:\n{err}");
    }
}

#[test]
fn input_goes_to_all_tasks_or_to_one() {
    let cluster = four_nodes();
    let (out, code, err) = batch(
        &cluster,
        &["-N3"],
        "printf 'one\\ntwo\\n' | srun -l cat\necho --\nprintf 'three\\n' | srun -l -i 1 cat\necho --\nsrun -l -i none cat </dev/zero",
    );
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let parts: Vec<Vec<&str>> = out.split("--\n").map(sorted).collect();
    assert_eq!(parts[0], ["0: one", "0: two", "1: one", "1: two", "2: one", "2: two"]);
    assert_eq!(parts[1..], [vec!["1: three"], vec![]]);
}

#[test]
fn steps_run_beside_each_other_as_far_as_there_is_room() {
    let cluster = four_nodes();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script(
        "job.sh",
        "#!/bin/sh\nfor i in 1 2; do srun -N1 -n1 -c2 sh -c 'echo >up; read x <gate; echo done' & done; wait\n",
    );
    let job = cluster.sbatch(&["-N1", "-n2", "-c2", "-o", "out", "job.sh"]);
    // Both are up before either has passed the gate.
    up.wait();
    up.wait();
    let steps = cluster.ok(&["squeue", "-s", "-h", "-j", &job.to_string(), "-o", "%i"]);
    assert_eq!(sorted(&steps), [format!("{job}.0"), format!("{job}.1"), format!("{job}.batch")]);
    gate.open();
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "done\ndone\n");
}

#[test]
fn signals_reach_the_tasks_of_a_step() {
    let cluster = four_nodes();
    let mut up = cluster.gate("up");
    cluster.script(
        "job.sh",
        "#!/bin/sh\nsrun -l sh -c 'exec 2>/dev/null; trap \"echo got it; exit 0\" USR1; echo >up; while :; do sleep 0.05; done'\necho $?\n",
    );
    let job = cluster.sbatch(&["-N2", "-o", "out", "job.sh"]);
    up.wait();
    up.wait();
    cluster.ok(&["scancel", "-s", "USR1", &format!("{job}.0")]);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(sorted(&cluster.read("out")), ["0", "0: got it", "1: got it"]);
}

#[test]
fn a_node_whose_daemon_was_started_anew_gets_a_newer_credential() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let port = free_port();
    cluster.start_controller();
    cluster.start_node_at("n1", port);
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["-o", "out", "--wrap", "echo x >up; read x <gate; srun echo launched"]);
    up.wait();
    cluster.kill("n1");
    gate.open();
    // Issued while no daemon is there: whoever starts later cannot know whether it was used.
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-s", "-h"]).contains(&format!("{job}.0")));
    cluster.start_node_at("n1", port);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "launched\n");
    cluster.wait_for_log("n1", "issued before this node's daemon started");
}
