//! The nodes: their connections, their last heartbeats, and the orders on their way to them.
//!
//! Every node has a queue of its own; a node that does not keep up loses its connection and delays no other.
//! An order is dropped if its node is not connected, or if the order was decided before the connection's
//! registration. The registration brings all valid orders again, and no order may overtake it.

mod attend;
mod claim;
mod orders;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::cluster::FeatureLevel;
use spur_core::controller::Effect;
use spur_core::id::{Attempt, NodeId};
use spur_proto::convert::node::Pulse;
use spur_proto::v1;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use claim::{Identity, Patience};

pub(crate) use attend::Attendance;
pub(crate) use orders::{Renderer, address_of};
pub(crate) use silence::listen;

/// Capacity of a node's queue of orders.
const QUEUE: usize = 4096;
/// Number of low bits of a report number that are the node's own; the higher bits are the connection's
/// number.
const REPORT_BITS: u32 = 40;

/// The nodes' connections. Clones share them.
#[derive(Clone)]
pub(crate) struct Agents {
    slots: Arc<Mutex<Table>>,
    /// Instant at which the controller started; shortly after it, nodes may return to where they were.
    begun: Instant,
    patience: Patience,
    arrivals: mpsc::UnboundedSender<NodeId>,
    /// Notified when a connection has ended.
    departed: Arc<Notify>,
}

/// A message in a node's queue.
#[derive(Debug, PartialEq, Eq)]
enum Errand {
    /// An effect of the core.
    Order(Effect),
    /// A ping for the node's daemon.
    Ping,
    /// The state of the node (busy, full, drained), which its daemon has requested.
    Standing(NodeId),
    /// The order to the node's daemon to end.
    Shutdown,
    /// The question for the usage of these attempts' steps.
    Usage { id: u64, attempts: BTreeSet<Attempt> },
}

#[derive(Default)]
struct Table {
    nodes: BTreeMap<NodeId, Slot>,
    connections: u64,
    /// Receivers of answers about usage, by the number of the question.
    questions: BTreeMap<u64, oneshot::Sender<v1::UsageAnswer>>,
    asked: u64,
}

/// The state of one node.
struct Slot {
    /// Number of the node's current or last connection.
    connection: u64,
    /// Identity of the daemon on that connection.
    identity: Identity,
    /// Number of answers to pings.
    pongs: watch::Sender<u64>,
    /// The queue of orders; `None` while the node is not connected.
    orders: Option<mpsc::Sender<Errand>>,
    /// True once the registration is decided, so that effects of the core may be sent.
    open: bool,
    /// Instant of the last message.
    heard: Instant,
    /// The last heartbeat.
    pulse: Pulse,
}

/// Numbers of connected nodes and of queued orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Nodes with an open stream.
    pub(crate) connected: u64,
    /// Orders in the queues of nodes.
    pub(crate) queued: u64,
    /// Nodes with orders in their queue.
    pub(crate) busy: u64,
}

impl Agents {
    /// Returns an empty table; the returned queue names the nodes that connect.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<NodeId>) {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let (slots, departed, patience) = (Arc::default(), Arc::default(), Patience::default());
        (Self { slots, begun: Instant::now(), patience, arrivals, departed }, arrived)
    }

    /// Returns a node's last heartbeat.
    pub(crate) fn pulse(&self, node: NodeId) -> Pulse {
        self.table().nodes.get(&node).map(|slot| slot.pulse).unwrap_or_default()
    }

    /// Returns the highest feature level that each connected node knows.
    pub(crate) fn known_levels(&self) -> BTreeMap<NodeId, FeatureLevel> {
        let table = self.table();
        let connected =
            table.nodes.keys().filter_map(|node| Some((*node, table.open(*node)?.identity.knows)));
        connected.collect()
    }

    /// Ends the connections of nodes that do not know a level. They are refused when they register again.
    pub(crate) fn cut_off_below(&self, level: FeatureLevel) {
        let old = self.known_levels().into_iter().filter(|(_, knows)| *knows < level);
        old.for_each(|(node, _)| self.cut_off(node));
    }

    /// Returns the numbers of connected nodes and queued orders.
    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for orders in self.table().nodes.values().filter_map(|slot| slot.orders.as_ref()) {
            if !orders.is_closed() {
                let queued = (orders.max_capacity() - orders.capacity()) as u64;
                figures.connected += 1;
                figures.queued += queued;
                figures.busy += u64::from(queued > 0);
            }
        }
        figures
    }

    /// Puts an effect into its node's queue.
    pub(crate) fn order(&self, effect: Effect) {
        let node = match &effect {
            Effect::Open { node, connection } => return self.open(*node, *connection),
            Effect::Launch { node, .. }
            | Effect::Terminate { node, .. }
            | Effect::Suspend { node, .. }
            | Effect::EndStep { node, .. }
            | Effect::Signal { node, .. }
            | Effect::Tell { node: Some(node), .. }
            | Effect::Reboot { node }
            | Effect::Acknowledge { node, .. }
            | Effect::Forget { node, .. } => *node,
            Effect::StepsChanged { .. }
            | Effect::Program { .. }
            | Effect::Power { .. }
            | Effect::Tell { node: None, .. }
            | Effect::Mail { .. } => return,
        };
        let mut table = self.table();
        let Some(slot) = table.nodes.get_mut(&node).filter(|slot| slot.open) else { return };
        let effect = match effect {
            Effect::Acknowledge { node, report } => {
                // Report numbers are valid within one connection only.
                if report >> REPORT_BITS != slot.connection {
                    return;
                }
                Effect::Acknowledge { node, report: report & ((1 << REPORT_BITS) - 1) }
            }
            other => other,
        };
        slot.send(Errand::Order(effect));
    }

    /// Asks a node for the usage of its steps; `None` if it is not connected.
    pub(crate) fn ask_usage(
        &self,
        node: NodeId,
        attempts: BTreeSet<Attempt>,
    ) -> Option<oneshot::Receiver<v1::UsageAnswer>> {
        let mut table = self.table();
        table.questions.retain(|_, waiting| !waiting.is_closed());
        table.open(node).filter(|slot| slot.open)?;
        table.asked += 1;
        let id = table.asked;
        let (answer, answered) = oneshot::channel();
        table.questions.insert(id, answer);
        table.nodes.get_mut(&node)?.send(Errand::Usage { id, attempts });
        Some(answered)
    }

    /// Queues the answer to a node's request for its own state.
    fn asked_standing(&self, node: NodeId) {
        if let Some(slot) = self.table().nodes.get_mut(&node) {
            slot.send(Errand::Standing(node));
        }
    }

    /// Passes a node's answer about usage to the waiting call.
    fn answered_usage(&self, answer: v1::UsageAnswer) {
        let waiting = self.table().questions.remove(&answer.id);
        // The call may have given up.
        drop(waiting.map(|waiting| waiting.send(answer)));
    }

    /// Orders the daemons of all connected nodes to end, and waits until each has disconnected.
    pub(crate) async fn dismiss(&self) {
        self.table().nodes.values_mut().for_each(|slot| slot.send(Errand::Shutdown));
        loop {
            let mut departed = std::pin::pin!(self.departed.notified());
            // From here on no departure is missed.
            departed.as_mut().enable();
            if self.table().nodes.values().all(|slot| slot.orders.is_none()) {
                return;
            }
            departed.await;
        }
    }

    /// Allows effects of the core on a connection, if it is still the node's.
    fn open(&self, node: NodeId, connection: u64) {
        if let Some(slot) = self.table().nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.open = true;
        }
    }

    /// Replaces a node's connection by a new one; `None` if the current connection is not `before`.
    fn attach(
        &self,
        node: NodeId,
        identity: Identity,
        before: Option<u64>,
    ) -> Option<(u64, mpsc::Receiver<Errand>)> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let mut table = self.table();
        if before != table.open(node).map(|slot| slot.connection) {
            return None;
        }
        table.connections += 1;
        let connection = table.connections;
        let pulse = Pulse::default();
        let (orders, heard, pongs) = (Some(orders), Instant::now(), watch::Sender::new(0));
        let slot = Slot { connection, identity, pongs, orders, open: false, heard, pulse };
        table.nodes.insert(node, slot);
        drop(table);
        // The receiver lives as long as the process.
        let _ = self.arrivals.send(node);
        Some((connection, queue))
    }

    /// Ends a connection.
    fn detach(&self, node: NodeId, connection: u64) {
        let mut table = self.table();
        if let Some(slot) = table.nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.orders = None;
        }
        drop(table);
        self.departed.notify_waiters();
    }

    /// Records a message on a connection.
    fn heard(&self, node: NodeId, connection: u64, pulse: Option<Pulse>) {
        let mut table = self.table();
        if let Some(slot) = table.nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.heard = Instant::now();
            slot.pulse = pulse.unwrap_or(slot.pulse);
        }
    }

    /// Returns the instant of a node's last message; `None` if there never was one.
    fn last_heard(&self, node: NodeId) -> Option<Instant> {
        self.table().nodes.get(&node).map(|slot| slot.heard)
    }

    /// Ends a node's connection, so that the node registers again.
    fn cut_off(&self, node: NodeId) {
        if let Some(slot) = self.table().nodes.get_mut(&node) {
            slot.orders = None;
            slot.pulse = Pulse::default();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Returns the state of a node; `None` if the node is not connected.
    fn open(&self, node: NodeId) -> Option<&Slot> {
        self.nodes.get(&node).filter(|slot| slot.orders.as_ref().is_some_and(|orders| !orders.is_closed()))
    }
}

impl Slot {
    /// Puts a message into the queue; a node whose queue is full loses its connection.
    fn send(&mut self, errand: Errand) {
        let full = self.orders.as_ref().is_some_and(|orders| orders.try_send(errand).is_err());
        if full {
            self.orders = None;
        }
    }
}

/// Returns the number under which a report of a connection is acknowledged.
fn report_number(connection: u64, id: u64) -> u64 {
    connection << REPORT_BITS | (id & ((1 << REPORT_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use spur_core::id::JobId;

    use super::*;

    const NODE: NodeId = NodeId(3);

    /// Connects the node in place of its current connection.
    fn attach(agents: &Agents) -> (u64, mpsc::Receiver<Errand>) {
        let before = agents.table().open(NODE).map(|slot| slot.connection);
        agents.attach(NODE, Identity::default(), before).unwrap()
    }

    #[tokio::test]
    async fn an_acknowledgement_reaches_only_the_connection_it_is_for() {
        let (agents, _arrived) = Agents::new();
        let (old, mut first) = attach(&agents);
        agents.open(NODE, old);
        let (new, mut second) = attach(&agents);
        agents.open(NODE, new);
        let acknowledge =
            |connection| Effect::Acknowledge { node: NODE, report: report_number(connection, 7) };
        agents.order(acknowledge(old));
        agents.order(acknowledge(new));
        assert_eq!(first.recv().await, None, "the older connection has ended");
        assert_eq!(second.recv().await, Some(Errand::Order(Effect::Acknowledge { node: NODE, report: 7 })));
        agents.detach(NODE, old);
        agents.order(acknowledge(new));
        assert!(second.recv().await.is_some(), "the end of an older connection does not touch the newer");
    }

    #[tokio::test]
    async fn what_was_decided_before_a_registration_does_not_overtake_it() {
        let (agents, _arrived) = Agents::new();
        let attempt = |job| Attempt { job: JobId(job), restart: 0 };
        let launch = |job| Effect::Launch { node: NODE, attempt: attempt(job) };
        let (old, _first) = attach(&agents);
        let (new, mut second) = attach(&agents);
        agents.order(launch(1));
        agents.order(Effect::Open { node: NODE, connection: old });
        agents.order(launch(2));
        agents.order(Effect::Open { node: NODE, connection: new });
        agents.order(launch(3));
        assert_eq!(second.recv().await, Some(Errand::Order(launch(3))));
    }

    #[tokio::test]
    async fn dismissed_nodes_are_waited_for() {
        let (agents, _arrived) = Agents::new();
        let (connection, mut queue) = attach(&agents);
        let waiting = tokio::spawn({
            let agents = agents.clone();
            async move { agents.dismiss().await }
        });
        assert_eq!(queue.recv().await, Some(Errand::Shutdown));
        assert!(!waiting.is_finished());
        agents.detach(NODE, connection);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_node_that_does_not_keep_up_is_cut_off() {
        let (agents, _arrived) = Agents::new();
        let (connection, mut queue) = attach(&agents);
        agents.open(NODE, connection);
        for id in 0..=QUEUE as u64 {
            agents.order(Effect::Acknowledge { node: NODE, report: report_number(connection, id) });
        }
        let mut received = 0;
        while queue.recv().await.is_some() {
            received += 1;
        }
        assert_eq!(received, QUEUE);
    }
}
