//! The nodes' own reports about their places in the network (`[agent] report`), from the controller.

use std::collections::BTreeMap;

use spur_core::text::hostlist::HostList;
use spur_proto::v1::{FabricReport, Node};

use super::hosts::Wanted;
use super::nvlink::Cliques;
use crate::commands::import::rails::{Cabling, Port};

/// The reports of all nodes.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The NVLink clique of each node that reports one.
    pub(super) cliques: Cliques,
    /// The nodes' links to switches, from LLDP.
    pub(super) cabling: Cabling,
    /// The node with each InfiniBand adapter, by the GUIDs of adapters and ports.
    pub(super) guids: BTreeMap<u64, String>,
    /// Sentences about everything that is left out.
    pub(super) left_out: Vec<String>,
}

impl Reports {
    /// Reads the reports of the nodes that are wanted.
    pub(super) fn read(nodes: &[Node], wanted: &Wanted<'_>) -> Reports {
        let mut reports = Reports::default();
        let (mut silent, mut switches) = (Vec::new(), BTreeMap::new());
        for node in nodes.iter().filter(|node| wanted.refusal(&node.name).is_none()) {
            match node.fabric.as_ref().filter(|report| **report != FabricReport::default()) {
                Some(report) => reports.add(&node.name, report, &mut switches),
                None => silent.push(&node.name),
            }
        }
        if !silent.is_empty() {
            let list = HostList::from_names(silent).sorted();
            reports.left_out.push(format!("nodes that report nothing: {list}"));
        }
        reports.cliques.keep(|host| wanted.refusal(host));
        reports
    }

    fn add(&mut self, node: &str, report: &FabricReport, switches: &mut BTreeMap<String, usize>) {
        if !report.clique.is_empty() {
            self.cliques.add(node, &report.clique);
        }
        for neighbour in &report.neighbours {
            let name = short(&neighbour.switch);
            let switch = *switches.entry(name.clone()).or_insert_with(|| {
                self.cabling.switches.push(name);
                self.cabling.switches.len() - 1
            });
            let label = format!("port {} ({})", neighbour.port, neighbour.interface);
            self.cabling.ports.push(Port { host: node.to_owned(), switch, label });
        }
        for port in &report.ports {
            for guid in [port.node_guid, port.guid].into_iter().filter(|guid| *guid != 0) {
                self.guids.insert(guid, node.to_owned());
            }
        }
    }
}

/// The name of a switch as a domain: without its network domain, and with `-` for characters that the names
/// of domains may not have.
fn short(switch: &str) -> String {
    let is_address = switch.matches(':').count() == 5;
    let name = if is_address { switch } else { switch.split('.').next().unwrap_or(switch) };
    name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_get_names_of_domains() {
        for (switch, name) in [
            ("leaf7", "leaf7"),
            ("leaf7.example.org", "leaf7"),
            ("fa:83:fc:4c:22:1e", "fa-83-fc-4c-22-1e"),
            ("rack 3", "rack-3"),
        ] {
            assert_eq!(short(switch), name);
        }
    }
}
