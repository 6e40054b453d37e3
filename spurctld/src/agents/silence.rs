//! Detects silent nodes: a node that was heard, and then not for `[recovery] node_timeout`, is reported.
//!
//! A heap holds one time for each node at which the node might be silent. Only at that time is the node's
//! last message looked up, so a heartbeat costs nothing here.
//!
//! Silence during a standstill of the controller itself proves nothing (the process was stopped, its machine
//! was moved or swapped, its disk did not answer). A standstill shows as a gap between two turns here, or as
//! an owner that does not answer; the time of every node then begins again. Many nodes that fall silent at
//! one moment also suggest such a fault: they get the time once more.

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

/// Longest time between two turns.
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// A healthy node is heard within a third of the timeout; a standstill of up to this fraction explains no
/// silence.
const HARMLESS: u32 = 4;
/// Number of silent nodes from which on they may count as many.
const FEW: usize = 2;

/// Reports silent nodes until the owner ends.
///
/// `arrived` names nodes that have connected. Nodes that were heard before the start get one timeout to
/// connect again.
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

/// A question that passes through owner, journal and outbox, by which a standstill of these is noticed.
#[derive(Default)]
struct Pulse(Option<(Instant, Answer)>);

/// The future answer to the question.
type Answer = Pin<Box<dyn Future<Output = Result<(), NoAnswer>> + Send>>;

impl Pulse {
    /// Asks, unless an answer is still due.
    fn ask(&mut self, inbox: &Inbox) {
        let inbox = inbox.clone();
        self.0.get_or_insert_with(|| (Instant::now(), Box::pin(async move { inbox.ping().await })));
    }

    /// Waits for the answer, and returns its delay.
    async fn answer(&mut self) -> Result<Duration, NoAnswer> {
        let Some((asked, answer)) = &mut self.0 else { return std::future::pending().await };
        let answered = answer.await.map(|()| asked.elapsed());
        self.0 = None;
        answered
    }

    /// Returns the time for which the answer has been due; `None` without a question.
    fn waits(&self, now: Instant) -> Option<Duration> {
        self.0.as_ref().map(|(asked, _)| now.duration_since(*asked))
    }
}

/// The watched nodes, and the start of their observation.
struct Watch {
    /// Silence before this instant counts for nothing.
    since: Instant,
    /// Instant of the last turn.
    turned: Instant,
    due: BinaryHeap<Reverse<(Instant, NodeId)>>,
    watched: BTreeSet<NodeId>,
    /// Instant at which many nodes were silent and got the time once more.
    doubted: Option<Instant>,
    /// True if the log has a line about the current standstill.
    said: bool,
}

impl Watch {
    fn new(now: Instant) -> Self {
        let (due, watched) = (BinaryHeap::new(), BTreeSet::new());
        Self { since: now, turned: now, due, watched, doubted: None, said: false }
    }

    /// Begins to watch a node, which cannot be silent before `due`.
    fn add(&mut self, node: NodeId, due: Instant) {
        if self.watched.insert(node) {
            self.due.push(Reverse((due, node)));
        }
    }

    /// Returns the instant of the next turn.
    fn wakes(&self, length: Duration) -> Instant {
        let end = self.turned + length;
        self.due.peek().map_or(end, |Reverse((at, _))| end.min(*at))
    }

    /// Begins a turn, and returns the time since the last one.
    fn turn(&mut self, now: Instant) -> Duration {
        now.duration_since(std::mem::replace(&mut self.turned, now))
    }

    /// Restarts the time of every node after a standstill of `stood`.
    fn begin_anew(&mut self, now: Instant, stood: Duration) {
        self.since = now;
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                seconds = stood.as_secs_f32(),
                "this controller has stood still: no node is taken for silent before another node_timeout"
            );
        }
    }

    /// Returns the nodes that have been silent for too long, and stops watching them.
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
