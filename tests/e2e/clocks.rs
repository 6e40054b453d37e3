//! Wrong wall clocks that are set while jobs run.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use spur_powerloss::Wall;

use crate::cluster::{Cluster, Setup, program};

fn wait_for(cluster: &Cluster, job: u32, state: &str) {
    let job = job.to_string();
    let shown = ["squeue", "-h", "-o", "%T", "--states=all", "-j", &job];
    cluster.wait_until(|cluster| cluster.ok(&shown).trim() == state);
}

#[test]
fn whoever_sets_the_clock_on_the_wall_moves_no_limit() {
    let mut cluster = Cluster::prepare(&Setup { nodes: 1, ..Setup::default() });
    let wall = Wall::new(&cluster.path("wall"), 7_200).unwrap();
    cluster.start_controller_as(wall.command(program("spurctld")));
    cluster.start_node_as("n1", wall.command(program("spurd")));
    let limited = ["-t", "0:02", "--wrap", "sleep 600"];
    let first = cluster.sbatch(&limited);
    wait_for(&cluster, first, "RUNNING");
    // An operator notices that the clock is two hours ahead, and sets it right.
    wall.set(0).unwrap();
    wait_for(&cluster, first, "TIMEOUT");
    cluster.wait_for_log("spurctld", "it is 7200 s behind");
    assert!(cluster.ok(&["scontrol", "ping"]).contains("its wall clock is 7200 s behind"));

    // The next controller has a journal whose last entry is two hours ahead.
    cluster.signal("spurctld", Signal::KILL);
    cluster.wait_for_end("spurctld");
    cluster.start_controller_as(wall.command(program("spurctld")));
    let second = cluster.sbatch(&limited);
    wait_for(&cluster, second, "TIMEOUT");
    let started = cluster.client().job(second).start_time.unwrap();
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    assert!((now - started).abs() < 3_600, "people read the time on the wall: {started}, and it is {now}");

    // Times in commands are wall-clock times.
    let later = cluster.sbatch(&["--begin=now+30minutes", "--wrap", "true"]);
    wait_for(&cluster, later, "PENDING");
    wall.set(3_600).unwrap();
    wait_for(&cluster, later, "COMPLETED");
}

#[test]
fn clocks_that_disagree_keep_no_node_out() {
    let mut cluster = Cluster::prepare(&Setup { nodes: 2, ..Setup::default() });
    // The controller, which issues the tokens here, is two hours ahead; one node is two hours behind.
    let ahead = Wall::new(&cluster.path("ahead"), 7_200).unwrap();
    let behind = Wall::new(&cluster.path("behind"), -7_200).unwrap();
    cluster.start_controller_as(ahead.command(program("spurctld")));
    cluster.start_node_as("n1", behind.command(program("spurd")));
    cluster.start_node("n2");
    let mut go = cluster.gate("go");
    let job = cluster.sbatch(&["-w", "n1", "-o", "out", "--wrap", "read x <go; srun echo went on"]);
    wait_for(&cluster, job, "RUNNING");
    cluster.ok(&["sbatch", "--wait", "-N2", "-n2", "--wrap", "srun hostname"]);
    cluster.signal("spurctld", Signal::KILL);
    cluster.wait_for_end("spurctld");
    cluster.start_controller_as(ahead.command(program("spurctld")));
    for node in ["n1", "n2"] {
        cluster.wait_until(|cluster| cluster.log(node).matches("registered as").count() == 2);
    }
    go.open();
    wait_for(&cluster, job, "COMPLETED");
    assert_eq!(cluster.read("out"), "went on\n");
    let restarts = cluster.ok(&["sacct", "-nXP", "-D", "-o", "state", "-j", &job.to_string()]);
    assert_eq!(restarts, "COMPLETED\n");
}
