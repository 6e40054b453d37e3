//! The site's program that checks nodes.

use std::fs;

use crate::cluster::{Cluster, Setup};

#[test]
fn a_node_that_is_not_well_is_drained_by_the_sites_program() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let program = cluster.path("check");
    let sick = cluster.path("sick");
    let script = format!(
        "echo $SLURMD_NODENAME >>{}\n[ ! -e {} ] || scontrol update NodeName=$SLURMD_NODENAME State=DRAIN Reason=sick\n",
        cluster.path("checked").display(),
        sick.display()
    );
    spur_tests::write_program(&program, &script);
    let lines = format!("health_check_program = \"{}\"\nhealth_check_interval = \"1s\"\n", program.display());
    cluster.configure("agent", &lines);
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    let checked = fs::read_to_string(cluster.path("checked")).unwrap();
    assert!(checked.starts_with("n1\n"), "it has run before the node registered");
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%T"]), "idle\n");
    fs::write(&sick, "").unwrap();
    cluster.wait_until(|cluster| cluster.ok(&["sinfo", "-h", "-o", "%T %E"]) == "drained sick\n");
}

#[test]
fn a_busy_node_is_left_alone_where_only_idle_ones_are_looked_at() {
    let mut cluster = Cluster::prepare(&Setup { nodes: 2, ..Setup::default() });
    let program = cluster.path("check");
    let script = format!("echo $SLURMD_NODENAME >>{}\n", cluster.work("looked").display());
    spur_tests::write_program(&program, &script);
    let lines = format!(
        "health_check_program = \"{}\"\nhealth_check_interval = \"1s\"\n\
         health_check_node_state = [\"IDLE\"]\n",
        program.display()
    );
    cluster.configure("agent", &lines);
    cluster.start_controller();
    for node in ["n1", "n2"] {
        cluster.start_node(node);
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    let times = |cluster: &Cluster, node: &str| cluster.read("looked").matches(node).count();
    // The number of checks of the idle node tells how often the other one would be checked.
    let pass = |cluster: &Cluster, count: usize| {
        let before = times(cluster, "n2");
        cluster.wait_until(|cluster| times(cluster, "n2") >= before + count);
    };
    let mut up = cluster.gate("up");
    cluster.sbatch(&["-n1", "-w", "n1", "-o", "/dev/null", "--wrap", "echo >up; exec sleep 1000"]);
    up.wait();
    pass(&cluster, 2);
    let before = times(&cluster, "n1");
    pass(&cluster, 3);
    assert_eq!(times(&cluster, "n1"), before);
    cluster.ok(&["scancel", "--me"]);
    cluster.wait_until(|cluster| times(cluster, "n1") > before);
}
