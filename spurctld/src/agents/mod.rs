//! The nodes: which of them is connected, what it was last heard to say, and the orders on their way to it.
//!
//! Every node has a queue of its own, and one that does not keep up loses its connection, not the others their time.
//! An order for a node that is not connected is dropped, and so is one that was decided before the connection's
//! registration: what counts is said again when the node registers, and nothing may overtake that.

mod attend;
mod claim;
mod orders;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Orders that may wait for one node.
const QUEUE: usize = 4096;
/// Low bits of an acknowledgement's number that are the node's own; the rest names the connection.
const REPORT_BITS: u32 = 40;

/// The nodes' connections. Clones share them.
#[derive(Clone)]
pub(crate) struct Agents {
    slots: Arc<Mutex<Table>>,
    /// When the controller started: until a little later, nodes are waited for where they were before.
    begun: Instant,
    patience: Patience,
    arrivals: mpsc::UnboundedSender<NodeId>,
    /// Told when a connection has ended.
    departed: Arc<Notify>,
}

/// What is on its way to a node.
#[derive(Debug, PartialEq, Eq)]
enum Errand {
    /// Something of the core's.
    Order(Effect),
    /// The node's daemon is to say that it is there.
    Ping,
    /// How the node stands with the controller.
    Standing(NodeId),
    /// The node's daemon is to end.
    Shutdown,
    /// The node's daemon is to say what the steps of these attempts use.
    Usage { id: u64, attempts: BTreeSet<Attempt> },
}

#[derive(Default)]
struct Table {
    nodes: BTreeMap<NodeId, Slot>,
    connections: u64,
    /// Who waits for answers about usage, by the number of the question.
    questions: BTreeMap<u64, oneshot::Sender<v1::UsageAnswer>>,
    asked: u64,
}

/// One node.
struct Slot {
    /// Which of all connections it has, or had last.
    connection: u64,
    /// Whose that is.
    identity: Identity,
    /// How often it has answered a ping.
    pongs: watch::Sender<u64>,
    /// The way to it, while it is connected.
    orders: Option<mpsc::Sender<Errand>>,
    /// Whether its registration is decided, from when on it takes orders of the core.
    open: bool,
    /// When it was last heard.
    heard: Instant,
    /// What it said then.
    pulse: Pulse,
}

/// How many nodes are connected, and what is on its way to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Nodes with an open stream.
    pub(crate) connected: u64,
    /// Orders that wait for their node.
    pub(crate) queued: u64,
    /// Nodes for which orders wait.
    pub(crate) busy: u64,
}

impl Agents {
    /// No node is connected yet; those that connect are named in the queue that is returned.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<NodeId>) {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let (slots, departed, patience) = (Arc::default(), Arc::default(), Patience::default());
        (Self { slots, begun: Instant::now(), patience, arrivals, departed }, arrived)
    }

    /// What a node last said of itself.
    pub(crate) fn pulse(&self, node: NodeId) -> Pulse {
        self.table().nodes.get(&node).map(|slot| slot.pulse).unwrap_or_default()
    }

    /// What lies between the controller and the nodes.
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

    /// Puts an order in its node's queue.
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
                // Report numbers mean something within one connection only.
                if report >> REPORT_BITS != slot.connection {
                    return;
                }
                Effect::Acknowledge { node, report: report & ((1 << REPORT_BITS) - 1) }
            }
            other => other,
        };
        slot.send(Errand::Order(effect));
    }

    /// Asks a node what steps use; `None` if it is not connected.
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

    /// A node asks how it stands.
    fn asked_standing(&self, node: NodeId) {
        if let Some(slot) = self.table().nodes.get_mut(&node) {
            slot.send(Errand::Standing(node));
        }
    }

    /// A node has answered such a question.
    fn answered_usage(&self, answer: v1::UsageAnswer) {
        let waiting = self.table().questions.remove(&answer.id);
        // Who has waited long enough is gone.
        drop(waiting.map(|waiting| waiting.send(answer)));
    }

    /// Tells the daemons of all connected nodes to end, and waits until each has hung up.
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

    /// A connection takes orders from here on, if it is still the node's.
    fn open(&self, node: NodeId, connection: u64) {
        if let Some(slot) = self.table().nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.open = true;
        }
    }

    /// A node has connected: the connection it had before, if any, ends. Fails if that is another one than
    /// `before`, or none.
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
        // The listener ends with the process only.
        let _ = self.arrivals.send(node);
        Some((connection, queue))
    }

    /// A connection has ended.
    fn detach(&self, node: NodeId, connection: u64) {
        let mut table = self.table();
        if let Some(slot) = table.nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.orders = None;
        }
        drop(table);
        self.departed.notify_waiters();
    }

    /// Something came over a connection.
    fn heard(&self, node: NodeId, connection: u64, pulse: Option<Pulse>) {
        let mut table = self.table();
        if let Some(slot) = table.nodes.get_mut(&node).filter(|slot| slot.connection == connection) {
            slot.heard = Instant::now();
            slot.pulse = pulse.unwrap_or(slot.pulse);
        }
    }

    /// When a node was last heard, if it ever was.
    fn last_heard(&self, node: NodeId) -> Option<Instant> {
        self.table().nodes.get(&node).map(|slot| slot.heard)
    }

    /// Ends a node's connection: it has to register anew.
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
    /// A node's place, if it is connected.
    fn open(&self, node: NodeId) -> Option<&Slot> {
        self.nodes.get(&node).filter(|slot| slot.orders.as_ref().is_some_and(|orders| !orders.is_closed()))
    }
}

impl Slot {
    /// Puts something in the queue; a node that does not keep up loses its connection.
    fn send(&mut self, errand: Errand) {
        let full = self.orders.as_ref().is_some_and(|orders| orders.try_send(errand).is_err());
        if full {
            self.orders = None;
        }
    }
}

/// The number under which a report of a connection is acknowledged.
fn report_number(connection: u64, id: u64) -> u64 {
    connection << REPORT_BITS | (id & ((1 << REPORT_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use spur_core::id::JobId;

    use super::*;

    const NODE: NodeId = NodeId(3);

    /// Connects the node, in the place of whatever connection it has.
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
