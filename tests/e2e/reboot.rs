//! `scontrol reboot` and the site's program that boots a node.

use std::process::Stdio;

use crate::cluster::{Cluster, Setup};
use crate::hosts::{self, boot, noted, shown, wait_for};

fn cluster_with(resume_timeout: &str) -> Cluster {
    let keys = format!("resume_timeout = \"{resume_timeout}\"");
    hosts::cluster(&["reboot_program"], "echo $SLURMD_NODENAME", &keys)
}

#[test]
fn a_node_boots_when_its_last_job_has_ended() {
    let mut cluster = cluster_with("1h");
    let hold = ["-n1", "-w", "n1", "-o", "/dev/null", "--wrap", "exec sleep 1000"];
    cluster.sbatch(&hold);
    wait_for(&cluster, "n1", "mixed mix none");
    cluster.ok(&["scontrol", "reboot", "nextstate=RESUME", "reason=firmware", "n1"]);
    assert_eq!(shown(&cluster, "n1"), "mixed@ mix@ firmware\n");
    let record = cluster.ok(&["scontrol", "show", "node", "n1"]);
    assert!(
        record.contains("State=MIXED+REBOOT_REQUESTED ") && record.contains("NextState=RESUME"),
        "{record}"
    );
    // The node still takes jobs, also from the next controller.
    cluster.kill("spurctld");
    cluster.start_controller();
    let second = cluster.sbatch(&hold);
    let running = ["squeue", "-h", "-t", "R", "-o", "%i %N"];
    cluster.wait_until(|cluster| cluster.ok(&running).contains(&format!("{second} n1")));
    assert_eq!(cluster.ok(&["sinfo", "-hN", "-t", "reboot", "-o", "%N"]), "n1\n");
    assert_eq!(noted(&cluster), "");
    cluster.ok(&["scancel", "--me"]);
    wait_for(&cluster, "n1", "reboot^ boot^ firmware : reboot issued");
    cluster.wait_until(|cluster| noted(cluster) == "n1\n");
    let why = cluster.fails(&["scontrol", "cancel_reboot", "n1"]);
    assert_eq!(
        why,
        "slurm_update error: Invalid node state specified: n1 is booting already, which cannot be cancelled\n"
    );
    cluster.kill("n1");
    boot(&mut cluster, "n1");
    wait_for(&cluster, "n1", "idle idle none");
    assert!(cluster.ok(&["scontrol", "show", "node", "n1"]).contains("State=IDLE "));
    let third = cluster.sbatch(&["-w", "n1", "-o", "third", "--wrap", "echo third"]);
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-j", &third.to_string()]).is_empty());
    assert_eq!(cluster.read("third"), "third\n");
}

#[test]
fn a_node_that_is_to_boot_soon_takes_no_jobs_and_is_down_if_it_stays_away() {
    let cluster = cluster_with("1s");
    cluster.sbatch(&["-n1", "-w", "n1", "-o", "/dev/null", "--wrap", "exec sleep 1000"]);
    wait_for(&cluster, "n1", "mixed mix none");
    cluster.ok(&["scontrol", "reboot", "ASAP", "n1"]);
    assert_eq!(shown(&cluster, "n1"), "draining@ drng@ Reboot ASAP\n");
    cluster.ok(&["scontrol", "cancel_reboot", "n1"]);
    assert_eq!(shown(&cluster, "n1"), "mixed mix none\n");
    let why = cluster.fails(&["scontrol", "update", "NodeName=n1", "State=CANCEL_REBOOT"]);
    assert_eq!(why, "slurm_update error: Invalid node state specified: n1 is not to be booted\n");
    cluster.ok(&["scancel", "--me"]);
    wait_for(&cluster, "n1", "idle idle none");
    cluster.ok(&["scontrol", "reboot", "ASAP", "ALL"]);
    for node in ["n1", "n2"] {
        wait_for(&cluster, node, "down down Reboot ASAP : reboot issued : reboot timed out");
    }
    let mut booted: Vec<String> = noted(&cluster).lines().map(str::to_owned).collect();
    booted.sort_unstable();
    assert_eq!(booted, ["n1", "n2"]);
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=RESUME"]);
    assert_eq!(shown(&cluster, "n1"), "idle idle none\n");
}

#[test]
fn without_a_program_nothing_is_booted() {
    let cluster = Cluster::start(&Setup::default());
    let why = cluster.fails(&["scontrol", "reboot", "n1"]);
    assert!(why.starts_with("scontrol_reboot_nodes error: RebootProgram isn't defined"), "{why}");
    assert_eq!(shown(&cluster, "n1"), "idle idle none\n");
    let told = cluster.run(&["sbatch", "--reboot", "-o", "out", "--wrap", "echo ran"]).err;
    assert!(told.contains("--reboot has no effect"), "{told}");
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h"]).is_empty());
    assert_eq!(cluster.read("out"), "ran\n");
}

#[test]
fn a_job_waits_until_its_nodes_have_booted() {
    let mut cluster = cluster_with("1h");
    let there = cluster.sbatch(&["-n1", "-w", "n1", "-o", "/dev/null", "--wrap", "exec sleep 1000"]);
    wait_for(&cluster, "n1", "mixed mix none");
    let job = cluster.sbatch(&["--reboot", "-n1", "-o", "out", "--wrap", "echo booted on $SLURMD_NODENAME"]);
    cluster.wait_until(|cluster| noted(cluster) == "n2\n");
    let record = cluster.ok(&["scontrol", "show", "node", "n2"]);
    assert!(record.contains("State=ALLOCATED+REBOOT_ISSUED "), "{record}");
    let listed = cluster.ok(&["squeue", "-h", "-j", &job.to_string(), "-o", "%t %N %C %h"]);
    assert_eq!(listed, "CF n2 4 NO\n");
    assert!(cluster.ok(&["scontrol", "show", "job", &job.to_string()]).contains(" Reboot=1 "));
    // The next controller waits as well.
    cluster.kill("spurctld");
    cluster.start_controller();
    cluster.kill("n2");
    boot(&mut cluster, "n2");
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-h", "-j", &job.to_string()]).is_empty());
    assert_eq!(cluster.read("out"), "booted on n2\n");
    assert_eq!(shown(&cluster, "n2"), "idle idle none\n");
    // So does srun.
    let mut srun = cluster.command(&["srun", "--reboot", "-w", "n2", "echo", "here"]);
    let srun = srun.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    cluster.wait_until(|cluster| noted(cluster) == "n2\nn2\n");
    cluster.kill("n2");
    boot(&mut cluster, "n2");
    assert_eq!(String::from_utf8(srun.wait_with_output().unwrap().stdout).unwrap(), "here\n");
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i"]), format!("{there}\n"));
}
