//! Derives node events from entries: the times during which nodes were out of service, with the reasons.

use std::sync::Arc;

use spur_core::cluster::{Cluster, Entry, Event, Node, Scope};
use spur_core::id::NodeId;
use spur_core::model::node::Health;

use crate::store::accounting::{NodeChange, Outage};

/// The user of outages that no operator ordered.
const SPUR: &str = "spur";

/// The changes of nodes in a run of entries, in order.
#[derive(Default)]
pub(super) struct Outages {
    /// The state, before the current entry, of the node that the entry concerns.
    before: Option<(NodeId, Option<Outage>)>,
    changes: Vec<NodeChange>,
}

impl Outages {
    /// Returns the nodes of a cluster that are out of service: at a start, accounting may lack them.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let known = |node: &Node| {
            let (outage, since) = outage(node)?;
            let at = cluster.clock().wall(since).0;
            Some(NodeChange { node: node.name().to_string(), at, outage: Some(outage), is_new: false })
        };
        Self { before: None, changes: cluster.nodes().iter().filter_map(known).collect() }
    }

    /// Records the state of the node that `entry` concerns.
    pub(super) fn before(&mut self, cluster: &Cluster, entry: &Entry) {
        if let Event::NodesDeleted { nodes } = &entry.event {
            let at = cluster.clock().wall(entry.at).0;
            let out = nodes.iter().filter_map(|id| cluster.node(*id)).filter(|node| outage(node).is_some());
            let end =
                |node: &Node| NodeChange { node: node.name().to_string(), at, outage: None, is_new: true };
            self.changes.extend(out.map(end));
        }
        self.before = match entry.event.scope() {
            Scope::Node { node, .. } => Some((node, state_of(cluster, node))),
            _ => None,
        };
    }

    /// Records the change of that node by `entry`.
    pub(super) fn after(&mut self, cluster: &Cluster, entry: &Entry) {
        let Some((id, before)) = self.before.take() else { return };
        let outage = state_of(cluster, id);
        if outage == before {
            return;
        }
        let Some(name) = cluster.node(id).map(|node| Arc::clone(node.name())) else { return };
        let at = cluster.clock().wall(entry.at).0;
        self.changes.push(NodeChange { node: name.to_string(), at, outage, is_new: true });
    }

    /// Takes all changes.
    pub(super) fn take(&mut self) -> Vec<NodeChange> {
        std::mem::take(&mut self.changes)
    }

    /// Puts back changes that could not be written, before later ones.
    pub(super) fn put_back(&mut self, mut changes: Vec<NodeChange>) {
        changes.append(&mut self.changes);
        self.changes = changes;
    }

    /// Returns the number of changes.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }
}

fn state_of(cluster: &Cluster, node: NodeId) -> Option<Outage> {
    outage(cluster.node(node)?).map(|(outage, _)| outage)
}

/// Returns the outage of a node and its beginning; `None` if the node is in service.
fn outage(node: &Node) -> Option<(Outage, spur_core::text::time::Time)> {
    match (&node.health, &node.drain) {
        (Health::Down { reason, at, silent, by }, drain) => {
            let state =
                ["DOWN", if *silent { "*" } else { "" }, drain.as_ref().map_or("", |_| "+DRAIN")].concat();
            let (reason, user) = match drain {
                Some(drain) => (&drain.reason, &*drain.by),
                None => (reason, by.as_deref().unwrap_or(SPUR)),
            };
            Some((Outage { state, reason: reason.to_string(), user: user.to_owned() }, *at))
        }
        (_, Some(drain)) => {
            let (reason, user) = (drain.reason.to_string(), drain.by.to_string());
            Some((Outage { state: "DRAIN".to_owned(), reason, user }, drain.at))
        }
        (_, None) => None,
    }
}
