//! Moving of nodes to other leaves or base blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Ctx, Reject};
use crate::cluster::{Cluster, Event};
use crate::id::NodeId;
use crate::model::fabric::{Fabric, Layer};
use crate::text::place::Places;

/// The nodes to move, and their new places.
pub(super) struct Decision {
    nodes: Vec<NodeId>,
    /// The full name of a leaf or base block, or `None` for no place, by topology.
    places: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

/// Decides on a move. The written places replace all others: nodes leave the topologies that are not named.
/// `None` if the nodes are there already.
pub(super) fn check(
    cluster: &Cluster,
    nodes: &[NodeId],
    written: &Places,
) -> Result<Option<Decision>, Reject> {
    let mut places: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    let wired = cluster.topologies().iter().filter(|topology| topology.fabric.top() > Layer::NODE);
    for topology in wired.clone() {
        places.insert(Arc::clone(&topology.name), None);
    }
    for place in &written.0 {
        let found = wired.clone().find(|topology| *topology.name == *place.topology);
        let topology = found.ok_or_else(|| Reject::TopologyUnavailable(unknown(cluster, &place.topology)))?;
        let leaf = topology.fabric.leaf_at(&place.above, &place.leaf);
        let leaf = leaf.map_err(|error| Reject::TopologyUnavailable(format!("Topology={place}: {error}")))?;
        let name = topology.fabric.domain(leaf).full_name().into();
        places.insert(Arc::clone(&topology.name), Some(name));
    }
    places.retain(|name, place| {
        let fabric = cluster.topology(name).map(|topology| &topology.fabric);
        fabric.is_some_and(|fabric| nodes.iter().any(|node| leaf_of(fabric, *node) != place.as_deref()))
    });
    Ok((!places.is_empty()).then(|| Decision { nodes: nodes.to_vec(), places }))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) {
    let Decision { nodes, places } = decision;
    ctx.emit(Event::NodesMoved { nodes, places });
}

/// The full name of the leaf or base block of a node; `None` if the node has no place.
fn leaf_of(fabric: &Fabric, node: NodeId) -> Option<&str> {
    let leaf = fabric.pos(node).and_then(|pos| fabric.leaf_of(pos));
    leaf.map(|leaf| fabric.domain(leaf).full_name())
}

fn unknown(cluster: &Cluster, name: &str) -> String {
    let known: Vec<&str> = cluster.topologies().iter().map(|topology| &*topology.name).collect();
    if known.contains(&name) {
        return format!("topology {name} has no domains");
    }
    match known[..] {
        [] => format!("there is no topology {name}, nor any other"),
        _ => format!("there is no topology {name}; there is {}", known.join(", ")),
    }
}
