//! Nodes that the site's programs switch off and on.

use std::process::Stdio;

use crate::cluster::Cluster;
use crate::hosts::{self, boot, noted, shown, wait_for};

fn cluster_with(more: &str) -> Cluster {
    let keys = format!("suspend_timeout = \"1s\"\n{more}");
    hosts::cluster(&["suspend_program", "resume_program", "resume_fail_program"], "echo $name $1", &keys)
}

fn wait_for_program(cluster: &Cluster, line: &str) {
    cluster.wait_until(|cluster| noted(cluster).lines().any(|said| said == line));
}

#[test]
fn a_job_waits_for_nodes_that_were_off() {
    let mut cluster = cluster_with("resume_timeout = \"1h\"");
    cluster.ok(&["scontrol", "update", "NodeName=n[1-2]", "State=POWER_DOWN"]);
    wait_for_program(&cluster, "suspend_program n[1-2]");
    wait_for(&cluster, "n1", "idle~ idle~ none");
    wait_for(&cluster, "n2", "idle~ idle~ none");
    assert!(cluster.ok(&["scontrol", "show", "node", "n1"]).contains("State=IDLE+POWERED_DOWN "));
    ["n1", "n2"].iter().for_each(|node| cluster.kill(node));
    let job =
        cluster.sbatch(&["-N2", "-t", "1", "-o", "out", "--wrap", "srun -l hostname >/dev/null && echo ran"]);
    wait_for_program(&cluster, "resume_program n[1-2]");
    wait_for(&cluster, "n1", "mixed# mix# none");
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i %t %N"]), format!("{job} CF n[1-2]\n"));
    // The next controller knows.
    cluster.kill("spurctld");
    cluster.start_controller();
    boot(&mut cluster, "n1");
    wait_for(&cluster, "n1", "mixed mix none");
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i %t %N"]), format!("{job} CF n[1-2]\n"));
    boot(&mut cluster, "n2");
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
    assert_eq!(cluster.read("out"), "ran\n");
    assert_eq!(shown(&cluster, "n2"), "idle idle none\n");
}

#[test]
fn an_idle_node_is_switched_off_and_down_if_it_does_not_come_up() {
    let mut cluster =
        cluster_with("resume_timeout = \"1s\"\nsuspend_time = \"2s\"\nsuspend_exc_nodes = \"n2\"");
    wait_for(&cluster, "n1", "idle~ idle~ none");
    assert_eq!(noted(&cluster), "suspend_program n1\n");
    assert_eq!(shown(&cluster, "n2"), "idle idle none\n");
    cluster.kill("n1");
    // Nodes that are on come first.
    let first = cluster.sbatch(&["-n1", "-o", "/dev/null", "--wrap", "exec sleep 1000"]);
    cluster
        .wait_until(|cluster| cluster.ok(&["squeue", "-h", "-o", "%i %t %N"]) == format!("{first} R n2\n"));
    cluster.sbatch(&["-w", "n1", "-o", "/dev/null", "--wrap", "true"]);
    wait_for(&cluster, "n1", "down~ down~ ResumeTimeout reached");
    wait_for_program(&cluster, "resume_fail_program n1");
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-t", "PD", "-o", "%t"]) == "PD\n");
    boot(&mut cluster, "n1");
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=RESUME"]);
    cluster
        .wait_until(|cluster| cluster.ok(&["squeue", "-h", "-o", "%i %t %N"]) == format!("{first} R n2\n"));
}

#[test]
fn a_drained_node_is_switched_off_too_and_stays_drained() {
    let cluster = cluster_with("suspend_time = \"2s\"\nsuspend_exc_nodes = \"n2\"");
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=fan"]);
    wait_for(&cluster, "n1", "drained~ drain~ fan");
    assert_eq!(noted(&cluster), "suspend_program n1\n");
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=RESUME"]);
    wait_for(&cluster, "n1", "idle~ idle~ none");
}

#[test]
fn a_command_waits_for_a_node_that_was_off() {
    let mut cluster = cluster_with("resume_timeout = \"1h\"");
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=POWER_DOWN"]);
    wait_for(&cluster, "n1", "idle~ idle~ none");
    cluster.kill("n1");
    let mut srun = cluster.command(&["srun", "-w", "n1", "echo", "here"]);
    let srun = srun.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&cluster, "n1", "mixed# mix# none");
    boot(&mut cluster, "n1");
    assert_eq!(String::from_utf8(srun.wait_with_output().unwrap().stdout).unwrap(), "here\n");
    // A cancelled job does not wait for the node.
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=POWER_DOWN_FORCE"]);
    wait_for(&cluster, "n1", "idle~ idle~ none");
    let job = cluster.sbatch(&["-w", "n1", "-o", "/dev/null", "--wrap", "true"]).to_string();
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-o", "%t"]) == "CF\n");
    cluster.ok(&["scancel", &job]);
    assert_eq!(cluster.ok(&["squeue", "-h"]), "");
    assert_eq!(shown(&cluster, "n1"), "idle# idle# none\n");
}
