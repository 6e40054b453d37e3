//! Topologies, for `scontrol show topology`.

use spur_core::cluster::{Cluster, Topology};
use spur_core::model::fabric::{DomainFacts, DomainKind, Fabric, Pos};
use spur_core::model::node::Health;
use spur_core::model::topology::Plugin;
use spur_core::text::gather::Latency;
use spur_core::text::hostlist::HostList;

use super::count;
use crate::v1;

/// Encodes a topology without its domains.
pub fn head(topology: &Topology) -> v1::Topology {
    v1::Topology {
        name: topology.name.to_string(),
        plugin: match topology.fabric.plugin() {
            Plugin::Tree => "tree",
            Plugin::Block => "block",
            Plugin::None => "none",
        }
        .to_owned(),
        layers: topology.fabric.layer_names().to_vec(),
        domains: Vec::new(),
    }
}

/// Encodes one domain of a topology.
pub fn domain(cluster: &Cluster, fabric: &Fabric, facts: &DomainFacts) -> v1::Domain {
    let found = fabric.domain(facts.id);
    let (mut free, mut allocated, mut down) = (0, 0, 0);
    let mut first = None;
    for pos in found.range().filter_map(|pos| u32::try_from(pos).ok()).map(Pos) {
        first = first.or(Some(pos));
        let Some(node) = cluster.node(fabric.node(pos)) else { continue };
        match (&node.health, node.available(), node.idle()) {
            (Health::Down { .. } | Health::Unknown, _, _) => down += 1,
            (Health::Up, _, false) => allocated += 1,
            (Health::Up, true, true) => free += 1,
            (Health::Up, false, true) => down += 1,
        }
    }
    let latency = found.link().latency.map(|nanoseconds| Latency(nanoseconds).to_string());
    let block = facts.kind != DomainKind::Switch;
    v1::Domain {
        name: facts.name.clone(),
        path: found.full_name().to_owned(),
        layer: fabric.layer_name(found.layer()).to_owned(),
        level: facts.level.into(),
        nodes: HostList::from_names(&facts.nodes).to_string(),
        children: HostList::from_names(&facts.children).to_string(),
        link_speed: facts.link_speed.to_string(),
        latency: latency.unwrap_or_default(),
        block_index: block.then_some(facts.index),
        block_size: block.then_some(facts.size),
        aggregate: facts.kind == DomainKind::AggregatedBlock,
        total_nodes: count(facts.nodes.len()),
        free_nodes: free,
        allocated_nodes: allocated,
        down_nodes: down,
    }
}
