//! Nodes that have been silent for too long.
//!
//! Nodes that are found silent together are lost together, so that none of them becomes a replacement of
//! another.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, ending};
use crate::cluster::{Cluster, Event, Node};
use crate::id::NodeId;
use crate::model::node::Health;

/// Slurm's reason for a node that is down because it is silent.
pub(super) const NOT_RESPONDING: &str = "Not responding";

/// The nodes for which silence is a change. Left out are nodes known to be silent, never heard from, off or
/// powering down.
pub(super) fn check(cluster: &Cluster, ids: &[NodeId]) -> Result<Vec<NodeId>, Reject> {
    let mut silent = Vec::with_capacity(ids.len());
    for &id in ids {
        let node = cluster.node(id).ok_or_else(|| Reject::UnknownNode(id.to_string()))?;
        // A node that is off is silent anyway.
        let is_off = node.is_off() || node.is_powering_down();
        if !is_off
            && matches!(node.health, Health::Up | Health::Down { silent: false, .. })
            && !silent.contains(&id)
        {
            silent.push(id);
        }
    }
    if silent.is_empty() {
        let names: Vec<&str> = ids.iter().filter_map(|&id| Some(&**cluster.node(id)?.name())).collect();
        return Err(Reject::Stale(format!("known to be silent: {}", names.join(","))));
    }
    Ok(silent)
}

pub(super) fn enact(ctx: &mut Ctx<'_>, nodes: Vec<NodeId>) -> Reply {
    for node in nodes {
        let health = ctx.cluster().node(node).map(|node| &node.health);
        let (reason, by) = match health {
            Some(Health::Down { reason, by: Some(by), .. }) => (Arc::clone(reason), Some(Arc::clone(by))),
            _ => (NOT_RESPONDING.into(), None),
        };
        // Jobs that wait for the node's reboot keep waiting, however long that takes.
        let boots = ctx.cluster().node(node).is_some_and(Node::is_rebooting);
        ctx.emit(Event::NodeDowned { node, reason, silent: true, by });
        if !boots {
            ending::lose_node(ctx, node);
        }
    }
    Reply::Done
}
