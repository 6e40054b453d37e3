//! Jobs that go on when one of their nodes fails.

use crate::cluster::{Cluster, Setup};

/// Tasks that run until the gate opens; then the same on the nodes that the job has by then.
const SCRIPT: &str = "\
srun --no-kill sh -c 'echo $SLURMD_NODENAME >>began; echo >up; read x <gate; echo $SLURMD_NODENAME >>ended'
echo $? >code
srun sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_JOB_NODELIST >>again'
echo >up; read x <gate
";

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn tasks_on_other_nodes_go_on_and_a_node_takes_the_place_of_one_that_is_down() {
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut client = cluster.client();
    let job = cluster.sbatch(&["-N3", "--exclusive", "--no-kill", "-t", "10", "--wrap", SCRIPT]);
    (0..3).for_each(|_| up.wait());
    assert_eq!(client.job(job).nodes, "n[1-3]");
    cluster.ok(&["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=fan"]);
    let shown = client.wait(job, |job| job.nodes == "n[1,4,3]");
    assert_eq!((shown.state.as_str(), shown.reason.as_str(), shown.restarts), ("RUNNING", "None", 0));
    let why = cluster.ok(&["spur", "why", &job.to_string()]);
    assert!(why.contains("n4 takes the place of n2, which failed"), "{why}");
    // No other node is left, so the next lost one is not replaced.
    cluster.ok(&["scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=fan"]);
    let shown = client.wait(job, |job| job.nodes == "n[1,3]");
    assert_eq!((shown.state.as_str(), shown.reason.as_str()), ("RUNNING", "ReplacementNode"));
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T %r"]), "RUNNING ReplacementNode\n");
    cluster.ok(&["scontrol", "update", "NodeName=n2", "State=RESUME"]);
    client.wait(job, |job| job.nodes == "n[1-3]" && job.reason == "None");
    gate.open();
    gate.open();
    up.wait();
    assert_eq!(sorted(&cluster.read("began")), ["n1", "n2", "n3"]);
    assert_eq!(
        (sorted(&cluster.read("ended")), cluster.read("code").trim()),
        (vec!["n1".into(), "n3".into()], "137")
    );
    assert_eq!(sorted(&cluster.read("again")), ["0 n1 n[1-3]", "1 n2 n[1-3]", "2 n3 n[1-3]"]);
    gate.open();
    client.wait_for(job, "COMPLETED");
}

#[test]
fn what_a_lost_node_still_runs_is_ended_when_it_is_back() {
    let setup = Setup { nodes: 4, more: "[recovery]\nnode_timeout = \"8s\"", ..Setup::default() };
    let mut cluster = Cluster::start(&setup);
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut tasks = ["n1", "n3", "n2"].map(|node| cluster.gate(&format!("gate.{node}")));
    let mut client = cluster.client();
    let script = "
        srun --overlap --no-kill sh -c '
            echo >up; read x <gate.$SLURMD_NODENAME; echo $SLURMD_NODENAME >>ended; echo >up' &
        read x <gate
        srun --overlap sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_JOB_NODELIST >>again'
        echo >up; read x <gate";
    let job = cluster.sbatch(&["-N3", "--exclusive", "--no-kill", "-t", "10", "--wrap", script]);
    (0..3).for_each(|_| up.wait());
    cluster.kill("n2");
    client.wait(job, |job| job.nodes == "n[1,4,3]");
    // The task has outlived its daemon, and the job no longer needs it. The other nodes are not affected.
    cluster.start_node("n2");
    cluster.ok(&["sbatch", "--wait", "-w", "n2", "--wrap", "true"]);
    assert!(cluster.log("n2").contains(&format!("ended step={job}.0.0 status=0:9")), "{}", cluster.log("n2"));
    tasks.iter_mut().take(2).for_each(|gate| gate.open());
    (0..2).for_each(|_| up.wait());
    assert_eq!(sorted(&cluster.read("ended")), ["n1", "n3"]);
    gate.open();
    up.wait();
    assert_eq!(sorted(&cluster.read("again")), ["0 n1 n[1,4,3]", "1 n4 n[1,4,3]", "2 n3 n[1,4,3]"]);
    gate.open();
    client.wait_for(job, "COMPLETED");
}
