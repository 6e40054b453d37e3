//! Clusters whose site programs act on the hosts of nodes, and here only record their calls.

use std::fs;
use std::process::Command;

use crate::cluster::{Cluster, Setup, program};

/// Two nodes, with a `[power]` table of these keys and with programs of these names. Each program appends the
/// output of `says`, a part of a script, to the file `noted`.
pub(crate) fn cluster(programs: &[&str], says: &str, keys: &str) -> Cluster {
    let mut cluster = Cluster::prepare(&Setup { nodes: 2, ..Setup::default() });
    let mut power = format!("[power]\n{keys}\n");
    for name in programs {
        let script = cluster.path(name);
        let text = format!("name={name}\n{says} >>{}", cluster.work("noted").display());
        spur_tests::write_program(&script, &text);
        power += &format!("{name} = \"{}\"\n", script.display());
    }
    let configuration = cluster.path("spur.toml");
    let text = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, text + &power).unwrap();
    cluster.start_controller();
    for node in ["n1", "n2"] {
        cluster.start_node(node);
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    cluster
}

/// The records of the programs.
pub(crate) fn noted(cluster: &Cluster) -> String {
    fs::read_to_string(cluster.work("noted")).unwrap_or_default()
}

/// State, short state and reason of a node.
pub(crate) fn shown(cluster: &Cluster, node: &str) -> String {
    cluster.ok(&["sinfo", "-hN", "-n", node, "-o", "%T %t %E"])
}

pub(crate) fn wait_for(cluster: &Cluster, node: &str, state: &str) {
    cluster.wait_until(|cluster| shown(cluster, node) == format!("{state}\n"));
}

/// Starts a node's daemon as if its host had booted.
pub(crate) fn boot(cluster: &mut Cluster, node: &str) {
    let mut command = Command::new(program("spurd"));
    command.arg("-b");
    cluster.start_node_as(node, command);
}
