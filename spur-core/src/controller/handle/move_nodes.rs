//! Moving of nodes to other leaves or base blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Ctx, Reject, reported as reported_places};
use crate::cluster::reported::{self, Reports};
use crate::cluster::{Cluster, Event, PlacesByTopology};
use crate::id::NodeId;
use crate::model::fabric::{Fabric, Layer};
use crate::text::place::Places;

/// The nodes to move, and their new places.
pub(super) struct Decision {
    nodes: Vec<NodeId>,
    /// The full name of a leaf or base block, or `None` for no place, by topology.
    places: PlacesByTopology,
}

/// Decides on a move. The written places replace all others: nodes leave the topologies that are not named.
/// `None` if the nodes are there already.
pub(super) fn check(
    cluster: &Cluster,
    nodes: &[NodeId],
    written: &Places,
) -> Result<Option<Decision>, Reject> {
    let mut places = PlacesByTopology::new();
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

/// Decides on moves of nodes to where they report to be, one for all nodes that go to the same places. Leaves
/// that the configuration does not name are made.
///
/// # Errors
/// A node that reports no place, or one that fits several leaves; a new leaf that the topology cannot have.
pub(super) fn check_reported(cluster: &Cluster, nodes: &[NodeId]) -> Result<Vec<Decision>, Reject> {
    let reports = Reports::about(cluster, nodes);
    let mut moves: BTreeMap<PlacesByTopology, Vec<NodeId>> = BTreeMap::new();
    for node in nodes.iter().filter_map(|id| cluster.node(*id)) {
        let places = reported::places(&reports, node).map_err(Reject::TopologyUnavailable)?;
        let mut changed = BTreeMap::new();
        for (name, leaf) in places {
            let fabric = cluster.topology(&name).map(|topology| &topology.fabric);
            if fabric.is_some_and(|fabric| leaf_of(fabric, node.id) != Some(&*leaf)) {
                changed.insert(name, Some(leaf));
            }
        }
        if !changed.is_empty() {
            moves.entry(changed).or_default().push(node.id);
        }
    }
    let moves: Vec<Decision> = moves.into_iter().map(|(places, nodes)| Decision { nodes, places }).collect();
    let all = moves.iter().flat_map(|Decision { nodes, places }| nodes.iter().map(move |id| (*id, places)));
    cluster.check_moves(&all.collect()).map_err(Reject::TopologyUnavailable)?;
    Ok(moves)
}

/// Moves the nodes. Their places may tell where other nodes belong, which are then moved as well.
pub(super) fn enact(ctx: &mut Ctx<'_>, decisions: Vec<Decision>) {
    for Decision { nodes, places } in decisions {
        ctx.emit(Event::NodesMoved { nodes, places });
    }
    reported_places::settle_all(ctx);
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
