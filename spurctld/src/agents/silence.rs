//! Listens for silence: a node that was heard of, and then not for `[recovery] node_timeout`, is reported as silent.
//!
//! Every node has one place in a heap of times at which it might be silent. Only when that time comes is it looked
//! when the node was last heard, so a heartbeat costs nothing here.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use spur_core::controller::Input;
use spur_core::id::NodeId;
use spur_core::model::node::Health;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Agents;
use crate::inbox::Inbox;
use crate::replica::Replica;

/// Listens until the owner is gone. `arrived` names nodes that have connected; those that were heard of before are given
/// the time of a timeout to connect again.
pub(crate) async fn listen(
    agents: Agents,
    mut arrived: mpsc::UnboundedReceiver<NodeId>,
    replica: Replica,
    inbox: Inbox,
) {
    let begun = Instant::now();
    let mut due = BinaryHeap::new();
    let mut watched = BTreeSet::new();
    let heard = |health: &Health| matches!(health, Health::Up | Health::Down { silent: false, .. });
    let heard: Vec<NodeId> =
        replica.read().nodes().iter().filter(|node| heard(&node.health)).map(|node| node.id).collect();
    for node in heard {
        watched.insert(node);
        due.push(Reverse((begun + timeout(&replica), node)));
    }
    loop {
        let next = due.peek().map(|Reverse((at, _))| *at);
        let wait = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            node = arrived.recv() => {
                let Some(node) = node else { return };
                if watched.insert(node) {
                    due.push(Reverse((Instant::now() + timeout(&replica), node)));
                }
            }
            () = wait => {
                let (now, timeout) = (Instant::now(), timeout(&replica));
                let mut nodes = Vec::new();
                while let Some(Reverse((_, node))) = due.peek().copied().filter(|Reverse((at, _))| *at <= now) {
                    due.pop();
                    let silent_at = agents.last_heard(node).unwrap_or(begun) + timeout;
                    if silent_at > now {
                        due.push(Reverse((silent_at, node)));
                        continue;
                    }
                    watched.remove(&node);
                    agents.cut_off(node);
                    nodes.push(node);
                }
                if !nodes.is_empty() && inbox.tell(Input::Silent { nodes }).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn timeout(replica: &Replica) -> Duration {
    Duration::from_secs(replica.read().policy().recovery.node_timeout.0.max(1))
}
