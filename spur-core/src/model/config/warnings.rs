//! Warnings about settings that are valid, but that an administrator should know of.

use std::collections::BTreeSet;

use super::{PartitionConfig, Policy};
use crate::model::topology::{DEFAULT_TOPOLOGY, Plugin, TopologyConfig};
use crate::text::hostlist::HostList;

impl Policy {
    /// One sentence for each warning.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.topologies.iter().filter_map(|topology| self.nodes_without_place(topology)).collect()
    }

    /// A warning about nodes of partitions that use a topology but have no place in it. No job that the
    /// topology places gets such nodes. `None` if all nodes have a place.
    fn nodes_without_place(&self, topology: &TopologyConfig) -> Option<String> {
        let (kind, lists): (&str, Vec<&str>) = match topology.plugin {
            Plugin::Tree => {
                ("switch", topology.switches.iter().filter_map(|switch| switch.nodes.as_deref()).collect())
            }
            Plugin::Block => ("block", topology.blocks.iter().map(|block| &*block.nodes).collect()),
            Plugin::None => return None,
        };
        // If no block is named, the node table is cut into blocks.
        if lists.is_empty() {
            return None;
        }
        let lists = lists.into_iter().filter_map(|list| list.parse::<HostList>().ok());
        let placed: BTreeSet<String> = lists.flat_map(|list| list.iter().collect::<Vec<_>>()).collect();
        let uses = |partition: &&PartitionConfig| {
            partition.topology.as_deref().unwrap_or(DEFAULT_TOPOLOGY) == topology.name
        };
        let members = self.partitions.iter().filter(uses).flat_map(|partition| &partition.nodes);
        let without: BTreeSet<&str> =
            members.map(|name| &**name).filter(|name| !placed.contains(*name)).collect();
        (!without.is_empty()).then(|| {
            let list = HostList::from_names(&without).sorted();
            format!(
                "topology {}: switches lack access to {} nodes: {list}; they are in no {kind}, and jobs that are placed by the \
                 topology do not run on them",
                topology.name,
                without.len(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::model::config::Config;

    const NODES: &str = "
        [[nodes]]\nnames = \"n[1-4]\"\ncpus = 1
        [[partitions]]\nname = \"main\"\nnodes = \"ALL\"\n";

    #[test]
    fn nodes_without_a_place_are_told_of() {
        for (topology, told) in [
            ("plugin = \"none\"", None),
            ("plugin = \"block\"\nblock_size = 2", None),
            ("plugin = \"tree\"\n[[topology.switches]]\nname = \"s\"\nnodes = \"n[1-4]\"", None),
            (
                "plugin = \"tree\"\n[[topology.switches]]\nname = \"s\"\nnodes = \"n[1-2]\"",
                Some("n[3-4]; they are in no switch"),
            ),
            (
                "plugin = \"block\"\n[[topology.blocks]]\nname = \"b\"\nnodes = \"n[1,3]\"",
                Some("n[2,4]; they are in no block"),
            ),
        ] {
            let text = format!("{NODES}[topology]\n{topology}\n");
            let warnings =
                Config::parse(&text, "spur.toml").expect("it is a configuration").policy.warnings();
            match told {
                Some(told) => assert!(warnings.len() == 1 && warnings[0].contains(told), "{warnings:?}"),
                None => assert_eq!(warnings, Vec::<String>::new(), "{topology}"),
            }
        }
    }
}
