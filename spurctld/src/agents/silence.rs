//! Listens for silence: a node that was heard of, and then not for `[recovery] node_timeout`, is reported as silent.
//!
//! Every node has one place in a heap of times at which it might be silent. Only when that time comes is it looked
//! when the node was last heard, so a heartbeat costs nothing here.
//!
//! Who does not listen hears nothing. Where this controller itself has stood still (it was stopped, its machine was
//! moved or swapped, its disk did not answer), which shows in a gap between two turns here or in an owner that does
//! not answer, the silence of every node begins anew. Many nodes that fall silent at one moment are first taken for
//! such a fault too, and are given the time once more.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use spur_core::controller::Input;
use spur_core::id::NodeId;
use spur_core::model::node::Health;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Agents;
use crate::inbox::{Inbox, NoAnswer};
use crate::replica::Replica;

/// From one turn to the next at most.
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// A node that is well is heard in a third of the timeout; standing still for this part of it explains no silence yet.
const HARMLESS: u32 = 4;
/// Fewer nodes than these are never many.
const FEW: usize = 2;

/// Listens until the owner is gone. `arrived` names nodes that have connected; those that were heard of before are given
/// the time of a timeout to connect again.
pub(crate) async fn listen(
    agents: Agents,
    mut arrived: mpsc::UnboundedReceiver<NodeId>,
    replica: Replica,
    inbox: Inbox,
) {
    let mut watch = Watch::new(Instant::now());
    let mut pulse = Pulse::default();
    let heard = |health: &Health| matches!(health, Health::Up | Health::Down { silent: false, .. });
    let heard: Vec<NodeId> = replica
        .read()
        .nodes()
        .iter()
        .filter(|node| heard(&node.health) && !node.is_off())
        .map(|node| node.id)
        .collect();
    for node in heard {
        watch.add(node, Instant::now() + timeout(&replica));
    }
    loop {
        let length = LONGEST_TURN.min(timeout(&replica) / (2 * HARMLESS));
        let mut answered = None;
        tokio::select! {
            node = arrived.recv() => {
                let Some(node) = node else { return };
                watch.add(node, Instant::now() + timeout(&replica));
            }
            () = tokio::time::sleep_until(watch.wakes(length)) => pulse.ask(&inbox),
            answer = pulse.answer() => match answer {
                Ok(waited) => answered = Some(waited),
                Err(_) => return,
            },
        }
        let (now, timeout) = (Instant::now(), timeout(&replica));
        let stood = watch.turn(now).max(answered.or(pulse.waits(now)).unwrap_or_default());
        if stood > timeout / HARMLESS {
            watch.begin_anew(now, stood);
        }
        let nodes = watch.silent(now, timeout, |node| agents.last_heard(node));
        nodes.iter().for_each(|node| agents.cut_off(*node));
        if !nodes.is_empty() && inbox.tell(Input::Silent { nodes }).await.is_err() {
            return;
        }
    }
}

fn timeout(replica: &Replica) -> Duration {
    Duration::from_secs(replica.read().policy().recovery.node_timeout.0.max(1))
}

/// Whether the owner, the journal and the outbox go on: a question that passes through all of them.
#[derive(Default)]
struct Pulse(Option<(Instant, Answer)>);

/// An answer to come.
type Answer = Pin<Box<dyn Future<Output = Result<(), NoAnswer>> + Send>>;

impl Pulse {
    /// Asks, unless an answer is still awaited.
    fn ask(&mut self, inbox: &Inbox) {
        let inbox = inbox.clone();
        self.0.get_or_insert_with(|| (Instant::now(), Box::pin(async move { inbox.ping().await })));
    }

    /// How long the answer took, once it is there.
    async fn answer(&mut self) -> Result<Duration, NoAnswer> {
        let Some((asked, answer)) = &mut self.0 else { return std::future::pending().await };
        let answered = answer.await.map(|()| asked.elapsed());
        self.0 = None;
        answered
    }

    /// How long the answer has been awaited.
    fn waits(&self, now: Instant) -> Option<Duration> {
        self.0.as_ref().map(|(asked, _)| now.duration_since(*asked))
    }
}

/// Who is listened to, and since when.
struct Watch {
    /// Silence before this time counts for nothing.
    since: Instant,
    /// When the last turn was.
    turned: Instant,
    due: BinaryHeap<Reverse<(Instant, NodeId)>>,
    watched: BTreeSet<NodeId>,
    /// When many were silent, and were given the time once more.
    doubted: Option<Instant>,
    /// Whether it has been said that the controller stands still.
    said: bool,
}

impl Watch {
    fn new(now: Instant) -> Self {
        let (due, watched) = (BinaryHeap::new(), BTreeSet::new());
        Self { since: now, turned: now, due, watched, doubted: None, said: false }
    }

    /// Listens to a node, which cannot be silent before `due`.
    fn add(&mut self, node: NodeId, due: Instant) {
        if self.watched.insert(node) {
            self.due.push(Reverse((due, node)));
        }
    }

    /// When the next turn is.
    fn wakes(&self, length: Duration) -> Instant {
        let end = self.turned + length;
        self.due.peek().map_or(end, |Reverse((at, _))| end.min(*at))
    }

    /// Begins a turn; says how long ago the last one was.
    fn turn(&mut self, now: Instant) -> Duration {
        now.duration_since(std::mem::replace(&mut self.turned, now))
    }

    /// The controller itself has stood still for so long.
    fn begin_anew(&mut self, now: Instant, stood: Duration) {
        self.since = now;
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                seconds = stood.as_secs_f32(),
                "this controller has stood still: no node is taken for silent before another node_timeout"
            );
        }
    }

    /// Those that have been silent for too long; they are no longer listened to.
    fn silent(
        &mut self,
        now: Instant,
        timeout: Duration,
        last_heard: impl Fn(NodeId) -> Option<Instant>,
    ) -> Vec<NodeId> {
        let since = self.since;
        self.said &= now.duration_since(since) < timeout / HARMLESS;
        let heard = |node| last_heard(node).map_or(since, |heard| heard.max(since));
        let mut nodes = Vec::new();
        while let Some(Reverse((_, node))) = self.due.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.due.pop();
            let silent_at = heard(node) + timeout;
            match silent_at > now {
                true => self.due.push(Reverse((silent_at, node))),
                false => nodes.push(node),
            }
        }
        if nodes.is_empty() {
            return nodes;
        }
        let quiet = self.watched.iter().filter(|node| heard(**node) + timeout / 2 <= now).count();
        let many = quiet >= FEW && quiet * 2 > self.watched.len();
        if many && self.doubted.is_none_or(|doubted| now.duration_since(doubted) > timeout * 2) {
            tracing::warn!(
                nodes = quiet,
                of = self.watched.len(),
                "many nodes are silent at one moment: this may be the fault of this controller or of its network; they \
                 have another node_timeout to be heard"
            );
            (self.since, self.doubted) = (now, Some(now));
            self.due.extend(nodes.into_iter().map(|node| Reverse((now + timeout, node))));
            return Vec::new();
        }
        nodes.iter().for_each(|node| {
            self.watched.remove(node);
        });
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    fn of(nodes: u32, begun: Instant) -> Watch {
        let mut watch = Watch::new(begun);
        (1..=nodes).for_each(|node| watch.add(NodeId(node), begun + TIMEOUT));
        watch
    }

    #[test]
    fn one_silent_node_among_others_is_reported_once() {
        let begun = Instant::now();
        let mut watch = of(4, begun);
        let now = begun + TIMEOUT;
        let last = |node| Some(if node == NodeId(3) { begun } else { now - SECOND });
        assert_eq!(watch.silent(now - SECOND, TIMEOUT, last), []);
        assert_eq!(watch.silent(now, TIMEOUT, last), [NodeId(3)]);
        assert_eq!(watch.silent(now + SECOND, TIMEOUT, last), []);
    }

    #[test]
    fn who_has_stood_still_begins_to_listen_anew() {
        let begun = Instant::now();
        let mut watch = of(1, begun);
        let now = begun + TIMEOUT * 3;
        let stood = watch.turn(now);
        assert_eq!(stood, TIMEOUT * 3);
        watch.begin_anew(now, stood);
        assert_eq!(watch.silent(now, TIMEOUT, |_| Some(begun)), []);
        assert_eq!(watch.silent(now + TIMEOUT, TIMEOUT, |_| Some(begun)), [NodeId(1)]);
    }

    #[test]
    fn many_at_one_moment_are_given_the_time_once_more() {
        let begun = Instant::now();
        let mut watch = of(4, begun);
        let last = |node| Some(if node == NodeId(4) { begun + TIMEOUT * 2 } else { begun });
        assert_eq!(watch.silent(begun + TIMEOUT, TIMEOUT, last), []);
        assert_eq!(watch.silent(begun + TIMEOUT * 2 - SECOND, TIMEOUT, last), []);
        let mut silent = watch.silent(begun + TIMEOUT * 2, TIMEOUT, last);
        silent.sort_unstable();
        assert_eq!(silent, [NodeId(1), NodeId(2), NodeId(3)]);
    }
}
