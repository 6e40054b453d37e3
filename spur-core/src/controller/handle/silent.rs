//! A node has not been heard of for too long.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, ending};
use crate::cluster::{Cluster, Event};
use crate::id::NodeId;
use crate::model::node::Health;

/// Why a node is down that nothing is heard of, in Slurm's words.
pub(super) const NOT_RESPONDING: &str = "Not responding";

/// A node that is already known to be silent, or was never heard of, stays as it is.
pub(super) fn check(cluster: &Cluster, id: NodeId) -> Result<(), Reject> {
    let node = cluster.node(id).ok_or_else(|| Reject::UnknownNode(id.to_string()))?;
    match node.health {
        Health::Up | Health::Down { silent: false, .. } => Ok(()),
        Health::Unknown | Health::Down { silent: true, .. } => {
            Err(Reject::Stale(format!("node {} is known to be silent", node.name())))
        }
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, node: NodeId) -> Reply {
    let health = ctx.cluster().node(node).map(|node| &node.health);
    let (reason, by) = match health {
        Some(Health::Down { reason, by: Some(by), .. }) => (Arc::clone(reason), Some(Arc::clone(by))),
        _ => (NOT_RESPONDING.into(), None),
    };
    ctx.emit(Event::NodeDowned { node, reason, silent: true, by });
    ending::lose_node(ctx, node);
    Reply::Done
}
