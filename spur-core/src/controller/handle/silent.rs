//! A node has not been heard of for too long.

use super::super::{Ctx, Reject, Reply, ending};
use crate::cluster::{Cluster, Event};
use crate::id::NodeId;
use crate::model::node::Health;

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
    ctx.emit(Event::NodeDowned { node, reason: "Not responding".into(), silent: true });
    ending::lose_node(ctx, node);
    Reply::Done
}
