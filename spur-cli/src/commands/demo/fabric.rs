//! The fabric of the demonstration and its configuration: sixteen nodes in leaves of four, with two leaves
//! under each spine.

use std::fmt::Write as _;
use std::path::Path;

/// Number of nodes.
pub(super) const NODES: usize = 16;
const NODES_PER_LEAF: usize = 4;
const LEAVES_PER_SPINE: usize = 2;
const LEAVES: usize = NODES / NODES_PER_LEAF;
const SPINES: usize = LEAVES / LEAVES_PER_SPINE;

/// Returns the names of the nodes.
pub(super) fn nodes() -> impl Iterator<Item = String> {
    (1..=NODES).map(|number| format!("node{number:02}"))
}

/// Returns the leaf of a node; `None` for an unknown node.
pub(super) fn leaf(node: &str) -> Option<String> {
    let at = nodes().position(|name| name == node)?;
    Some(format!("leaf{}", at / NODES_PER_LEAF + 1))
}

/// Returns the spine of a leaf; `None` for a name that is not a leaf's.
pub(super) fn spine(leaf: &str) -> Option<String> {
    let number: usize = leaf.strip_prefix("leaf")?.parse().ok()?;
    Some(format!("spine{}", (number - 1) / LEAVES_PER_SPINE + 1))
}

/// Returns the `spur.toml` of a cluster in `directory`; the first port is the controller's.
pub(super) fn configuration(directory: &Path, ports: &[u16]) -> String {
    let directory = directory.display();
    let mut text = format!(
        r#"cluster_name = "demo"

[controller]
listen_addr = "127.0.0.1:{port}"
state = "sqlite://{directory}/spur.db"
kill_wait = "2s"

[auth]
method = "key"
key_file = "{directory}/cluster.key"
socket = "{directory}/auth.sock"

[agent]
listen_addr = "127.0.0.1:0"
spool_dir = "{directory}/spool/%n"

[scheduler]
backfill = "easy"

[[partitions]]
name = "main"
nodes = "ALL"
default = true
max_time = "1:00:00"
default_time = "5"

[topology]
plugin = "tree"
layers = ["leaf", "spine", "core"]
"#,
        port = ports[0]
    );
    for leaf in 1..=LEAVES {
        let last = leaf * NODES_PER_LEAF;
        let first = last - NODES_PER_LEAF + 1;
        switch(&mut text, &format!("leaf{leaf}"), "nodes", &format!("node[{first:02}-{last:02}]"));
    }
    for spine in 1..=SPINES {
        let last = spine * LEAVES_PER_SPINE;
        let first = last - LEAVES_PER_SPINE + 1;
        switch(&mut text, &format!("spine{spine}"), "switches", &format!("leaf[{first}-{last}]"));
    }
    switch(&mut text, "core", "switches", &format!("spine[1-{SPINES}]"));
    for (node, port) in nodes().zip(&ports[1..]) {
        push(
            &mut text,
            &format!("\n[[nodes]]\nnames = \"{node}\"\naddr = \"127.0.0.1\"\nport = {port}\ncpus = 1"),
        );
    }
    text
}

fn switch(text: &mut String, name: &str, key: &str, members: &str) {
    push(text, &format!("\n[[topology.switches]]\nname = \"{name}\"\n{key} = \"{members}\""));
}

fn push(text: &mut String, lines: &str) {
    writeln!(text, "{lines}").expect("a text takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_leaf_and_spine() {
        assert_eq!(leaf("node01").as_deref(), Some("leaf1"));
        assert_eq!(leaf("node08").as_deref(), Some("leaf2"));
        assert_eq!(leaf("node16").as_deref(), Some("leaf4"));
        assert_eq!(leaf("node17"), None);
        assert_eq!(spine("leaf2").as_deref(), Some("spine1"));
        assert_eq!(spine("leaf3").as_deref(), Some("spine2"));
    }

    #[test]
    fn the_configuration_is_one() {
        let ports: Vec<u16> = (7000..7017).collect();
        let text = configuration(Path::new("/tmp/demo"), &ports);
        let config =
            spur_core::model::config::Config::parse(&text, "spur.toml").map_err(|e| e.to_string()).unwrap();
        assert_eq!(config.policy.nodes.len(), NODES);
        assert_eq!(config.policy.topologies.len(), 1);
        assert_eq!(config.local.controller.listen_addr.port, 7000);
    }
}
