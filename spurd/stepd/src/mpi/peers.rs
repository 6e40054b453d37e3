//! Messages between the parts of a step on several nodes, which form a star around the step's first node.
//!
//! A message that needs an answer is kept until the answer comes, and sent again over a new connection. The
//! receiver recognises messages that it has answered before. So a connection may break, and spurd restart,
//! without harm to a fence under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use step_wire::v1;
use step_wire::v1::PeerStage;
use step_wire::v1::peer_call::Question;
use step_wire::v1::step_peer::Message;

/// The first node of a step, through which all messages go.
pub(crate) const FIRST: u32 = 0;

/// Time for which the first node waits for the return of a node whose tasks use PMI or PMIx. The other node
/// waits as long for the first one.
const AWAY: Duration = Duration::from_secs(60);
/// Bytes of finished fences that are kept for nodes that ask again. The very last fence is always kept.
const KEPT: usize = 32 << 20;
/// The status of a reply on behalf of a node that cannot answer: `PMIX_ERROR`.
const UNREACHABLE: i32 = -1;

/// A message for this node, from another node or from itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrival {
    /// A fence is over.
    Whole(v1::FenceWhole),
    /// A question of another node.
    Call(v1::PeerCall),
    /// The answer to a question of this node.
    Reply(v1::PeerReply),
}

/// The tasks that meet in a fence.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    /// The numbers of the nodes of these tasks; empty for all.
    pub(crate) nodes: Vec<u32>,
    /// The ranks of the tasks, as text; empty for all.
    pub(crate) ranks: String,
}

/// The first node's knowledge of another node.
#[derive(Clone, Copy, Debug)]
struct Part {
    stage: PeerStage,
    /// The instant since which there has been no connection; `None` while connected.
    away: Option<Instant>,
    /// True if the connection broke while the tasks used PMI, and did not return within [`AWAY`].
    lost: bool,
}

impl Part {
    fn is_speaking(&self) -> bool {
        self.stage == PeerStage::Speaking && !self.lost
    }

    fn is_gone(&self) -> bool {
        self.stage == PeerStage::Ended || self.lost
    }
}

/// The state of messages between this node and the others of its step.
#[derive(Debug)]
pub(crate) struct Peers {
    own: u32,
    /// Number of nodes of the step.
    count: u32,
    /// The progress of this node's tasks.
    stage: PeerStage,
    /// The other nodes that have connected to this one; empty except on the first node.
    parts: BTreeMap<u32, Part>,
    /// Parts of unfinished fences, by fence and node. Only the first node gathers.
    gathers: BTreeMap<(Group, u64), BTreeMap<u32, Bytes>>,
    /// The last finished fence of each group, because one of its nodes may ask again.
    over: BTreeMap<Group, v1::FenceWhole>,
    /// Messages without an answer, each with its receiver.
    unanswered: Vec<(u32, Message)>,
    /// Messages to be sent, each with its receiver.
    outgoing: VecDeque<(u32, Message)>,
    arrived: VecDeque<Arrival>,
    questions: u64,
}

impl Peers {
    pub(crate) fn new(own: u32, count: u32) -> Peers {
        Peers {
            own,
            count,
            stage: PeerStage::Unspecified,
            parts: BTreeMap::new(),
            gathers: BTreeMap::new(),
            over: BTreeMap::new(),
            unanswered: Vec::new(),
            outgoing: VecDeque::new(),
            arrived: VecDeque::new(),
            questions: 0,
        }
    }

    /// Brings this node's part to the fence `number` of a group.
    pub(crate) fn bring(&mut self, Group { nodes, ranks }: Group, number: u64, data: Vec<u8>) {
        if nodes == [self.own] {
            let whole = v1::FenceWhole { nodes, number, data: data.into(), ranks };
            self.arrived.push_back(Arrival::Whole(whole));
            return;
        }
        let part = v1::FencePart { nodes, number, from: self.own, data: data.into(), ranks };
        if self.own == FIRST {
            self.gather(part);
        } else {
            self.ask(FIRST, Message::Part(part));
        }
    }

    /// Sends a question to a node, and returns the question's number, which its reply carries.
    pub(crate) fn call(&mut self, to: u32, question: Question) -> u64 {
        self.questions += 1;
        let call = v1::PeerCall { id: self.questions, from: self.own, to, question: Some(question) };
        self.route_call(call);
        self.questions
    }

    /// Answers a question.
    pub(crate) fn reply(&mut self, call: &v1::PeerCall, status: i32, data: Vec<u8>) {
        self.route_reply(v1::PeerReply { id: call.id, to: call.from, status, data: data.into() });
    }

    /// Handles a message of another node.
    pub(crate) fn receive(&mut self, message: Message) {
        match message {
            Message::Part(part) if self.own == FIRST => {
                self.note_speaking(part.from);
                self.gather(part);
            }
            Message::Whole(whole) => {
                let before = self.unanswered.len();
                self.unanswered.retain(|(_, asked)| {
                    !matches!(asked, Message::Part(part)
                        if part.nodes == whole.nodes && part.ranks == whole.ranks && part.number == whole.number)
                });
                // A repeated fence answers nothing.
                if self.unanswered.len() < before {
                    self.arrived.push_back(Arrival::Whole(whole));
                }
            }
            Message::Call(call) => {
                self.note_speaking(call.from);
                self.route_call(call);
            }
            Message::Reply(reply) => self.route_reply(reply),
            Message::Progress(v1::PeerProgress { from, stage }) => {
                let stage = PeerStage::try_from(stage).unwrap_or_default();
                if let Some(part) = self.parts.get_mut(&from) {
                    part.stage = stage;
                    self.refuse_calls_to_gone();
                }
            }
            // Only the first node gathers.
            Message::Part(_) => {}
        }
    }

    /// Records that tasks of another node use PMI: a question may come before the node reports its stage.
    fn note_speaking(&mut self, node: u32) {
        if let Some(part) = self.parts.get_mut(&node)
            && part.stage == PeerStage::Unspecified
        {
            part.stage = PeerStage::Speaking;
        }
    }

    /// Handles a new connection to a node: unanswered messages go to it again.
    pub(crate) fn connected(&mut self, node: u32) {
        self.outgoing.retain(|(to, _)| *to != node);
        let again = self.unanswered.iter().filter(|(to, _)| *to == node).cloned();
        self.outgoing.extend(again);
        if self.own == FIRST {
            let new = Part { stage: PeerStage::Unspecified, away: None, lost: false };
            let part = self.parts.entry(node).or_insert(new);
            (part.away, part.lost) = (None, false);
        } else {
            self.tell_stage();
        }
    }

    /// Sets the progress of this node's tasks, and reports a change to the first node.
    pub(crate) fn set_stage(&mut self, stage: PeerStage) {
        // Tasks that never used PMI or PMIx do not concern other nodes.
        let unheard = self.stage == PeerStage::Unspecified && stage != PeerStage::Speaking;
        if self.own == FIRST || (self.stage != stage && !unheard) {
            self.stage = stage;
            self.tell_stage();
        }
    }

    fn tell_stage(&mut self) {
        if self.own != FIRST && self.stage != PeerStage::Unspecified {
            self.outgoing.retain(|(_, message)| !matches!(message, Message::Progress(_)));
            let progress = v1::PeerProgress { from: self.own, stage: self.stage.into() };
            self.outgoing.push_back((FIRST, Message::Progress(progress)));
        }
    }

    /// Updates, on the first node, which of the others are connected. A node whose tasks use PMI and that has
    /// been away for [`AWAY`] is lost.
    pub(crate) fn watch(&mut self, is_connected: impl Fn(u32) -> bool, now: Instant) {
        for (node, part) in &mut self.parts {
            part.away = if is_connected(*node) { None } else { part.away.or(Some(now)) };
            let is_late = part.away.is_some_and(|since| since + AWAY <= now);
            part.lost |= is_late && part.stage == PeerStage::Speaking;
        }
        self.refuse_calls_to_gone();
    }

    /// Returns the instant at which the next node is lost unless it connects again; `None` if no such node is
    /// away.
    pub(crate) fn due(&self) -> Option<Instant> {
        let speaking = self.parts.values().filter(|part| part.is_speaking());
        speaking.filter_map(|part| part.away).map(|since| since + AWAY).min()
    }

    /// True if tasks of another node may still need this node, the first.
    pub(crate) fn is_needed(&self) -> bool {
        self.parts.values().any(Part::is_speaking)
    }

    /// True if a task of this node waits for another node.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Returns, on the first node, a node that an unfinished fence waits for although its tasks have ended or
    /// it is lost. `None` if there is none.
    pub(crate) fn gone_from_fence(&self) -> Option<u32> {
        self.gathers.iter().find_map(|((group, _), parts)| {
            let mut missing = self.members(&group.nodes).into_iter().filter(|node| !parts.contains_key(node));
            missing.find(|node| self.is_gone(*node))
        })
    }

    fn is_gone(&self, node: u32) -> bool {
        match node == self.own {
            true => self.stage == PeerStage::Ended,
            false => self.parts.get(&node).is_some_and(Part::is_gone),
        }
    }

    /// Refuses the questions to nodes that are gone.
    fn refuse_calls_to_gone(&mut self) {
        let calls = self.unanswered.iter().filter_map(|(to, asked)| match asked {
            Message::Call(call) if self.own == FIRST && self.is_gone(*to) => Some((call.id, call.from)),
            _ => None,
        });
        for (id, to) in calls.collect::<Vec<_>>() {
            self.route_reply(v1::PeerReply { id, to, status: UNREACHABLE, data: Bytes::new() });
        }
    }

    /// Returns the next message to a node for which `reachable` is true.
    pub(crate) fn next_outgoing(&mut self, reachable: impl Fn(u32) -> bool) -> Option<(u32, Message)> {
        let at = self.outgoing.iter().position(|(to, _)| reachable(*to))?;
        self.outgoing.remove(at)
    }

    /// True if this node needs a connection to `node`: a message waits, or tasks here still use PMI.
    pub(crate) fn needs(&self, node: u32) -> bool {
        self.stage == PeerStage::Speaking
            || self.outgoing.iter().chain(&self.unanswered).any(|(to, _)| *to == node)
    }

    /// Returns the next message for this node; `None` if there is none.
    pub(crate) fn next_arrival(&mut self) -> Option<Arrival> {
        self.arrived.pop_front()
    }

    /// Returns the nodes that the first unfinished fence waits for.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let Some(((group, _), parts)) = self.gathers.first_key_value() else { return Vec::new() };
        self.members(&group.nodes).into_iter().filter(|node| !parts.contains_key(node)).collect()
    }

    fn members(&self, nodes: &[u32]) -> Vec<u32> {
        if nodes.is_empty() { (0..self.count).collect() } else { nodes.to_vec() }
    }

    fn ask(&mut self, to: u32, message: Message) {
        self.unanswered.push((to, message.clone()));
        self.outgoing.push_back((to, message));
    }

    fn gather(&mut self, part: v1::FencePart) {
        let v1::FencePart { nodes, number, from, data, ranks } = part;
        let group = Group { nodes, ranks };
        if let Some(over) = self.over.get(&group).filter(|over| over.number >= number) {
            if over.number == number {
                self.outgoing.push_back((from, Message::Whole(over.clone())));
            }
            return;
        }
        let members = self.members(&group.nodes);
        let parts = self.gathers.entry((group.clone(), number)).or_default();
        parts.insert(from, data);
        if !members.iter().all(|node| parts.contains_key(node)) {
            return;
        }
        let data: Vec<u8> = parts.values().flat_map(|part| part.iter().copied()).collect();
        self.gathers.remove(&(group.clone(), number));
        let (nodes, ranks) = (group.nodes.clone(), group.ranks.clone());
        let whole = v1::FenceWhole { nodes, number, data: data.into(), ranks };
        for node in members {
            if node == self.own {
                self.arrived.push_back(Arrival::Whole(whole.clone()));
            } else {
                self.outgoing.push_back((node, Message::Whole(whole.clone())));
            }
        }
        self.over.insert(group.clone(), whole);
        // A node that lost its connection just now may ask again; older fences are dropped beyond [`KEPT`].
        while self.over.values().map(|over| over.data.len()).sum::<usize>() > KEPT {
            let Some(other) = self.over.keys().find(|other| **other != group).cloned() else { break };
            self.over.remove(&other);
        }
    }

    fn route_call(&mut self, call: v1::PeerCall) {
        if call.to == self.own {
            self.arrived.push_back(Arrival::Call(call));
            return;
        }
        let by_way_of = if self.own == FIRST { call.to } else { FIRST };
        self.unanswered.retain(|(_, asked)| {
            !matches!(asked, Message::Call(known) if known.id == call.id && known.from == call.from)
        });
        self.ask(by_way_of, Message::Call(call));
        self.refuse_calls_to_gone();
    }

    fn route_reply(&mut self, reply: v1::PeerReply) {
        let before = self.unanswered.len();
        self.unanswered.retain(|(_, asked)| {
            !matches!(asked, Message::Call(call) if call.id == reply.id && call.from == reply.to)
        });
        if reply.to != self.own {
            let by_way_of = if self.own == FIRST { reply.to } else { FIRST };
            self.outgoing.push_back((by_way_of, Message::Reply(reply)));
        } else if self.unanswered.len() < before || self.own == FIRST {
            self.arrived.push_back(Arrival::Reply(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers messages until there are none. With `twice`, each message is delivered a second time, as
    /// after a broken connection.
    fn settle(nodes: &mut [Peers], twice: bool) {
        loop {
            let mut moved = false;
            for at in 0..nodes.len() {
                while let Some((to, message)) = nodes[at].next_outgoing(|_| true) {
                    moved = true;
                    if twice {
                        nodes[to as usize].receive(message.clone());
                    }
                    nodes[to as usize].receive(message);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn star(count: u32) -> Vec<Peers> {
        (0..count).map(|own| Peers::new(own, count)).collect()
    }

    #[test]
    fn a_fence_brings_everything_to_everybody_once() {
        for twice in [false, true] {
            let mut nodes = star(3);
            for number in 0..2 {
                for at in [2, 0] {
                    nodes[at].bring(Group::default(), number, vec![b'a' + at as u8]);
                }
                settle(&mut nodes, twice);
                assert_eq!(nodes[0].missing(), [1]);
                assert!(nodes.iter_mut().all(|node| node.next_arrival().is_none()));
                nodes[1].bring(Group::default(), number, b"b".to_vec());
                settle(&mut nodes, twice);
                let whole = v1::FenceWhole { number, data: "abc".into(), ..v1::FenceWhole::default() };
                for node in &mut nodes {
                    assert_eq!(node.next_arrival(), Some(Arrival::Whole(whole.clone())));
                    assert_eq!(node.next_arrival(), None);
                }
            }
        }
    }

    fn group(nodes: &[u32], ranks: &str) -> Group {
        Group { nodes: nodes.to_vec(), ranks: ranks.to_owned() }
    }

    #[test]
    fn a_fence_may_be_of_some_tasks() {
        let mut nodes = star(3);
        nodes[1].bring(group(&[1, 2], "1,2"), 0, b"b".to_vec());
        // Other tasks of the same nodes, which come in another order.
        nodes[2].bring(group(&[1, 2], "4-5"), 0, b"C".to_vec());
        nodes[2].bring(group(&[1, 2], "1,2"), 0, b"c".to_vec());
        settle(&mut nodes, false);
        assert_eq!(nodes[0].next_arrival(), None);
        let whole = |data: &str, ranks: &str| {
            let (nodes, data, ranks) = (vec![1, 2], data.to_owned().into(), ranks.to_owned());
            Some(Arrival::Whole(v1::FenceWhole { nodes, number: 0, data, ranks }))
        };
        assert_eq!(nodes[2].next_arrival(), whole("bc", "1,2"));
        assert_eq!(nodes[2].next_arrival(), None);
        nodes[1].bring(group(&[1, 2], "4-5"), 0, b"B".to_vec());
        settle(&mut nodes, false);
        assert_eq!(nodes[2].next_arrival(), whole("BC", "4-5"));
    }

    #[test]
    fn a_fence_of_one_node_needs_no_other() {
        let mut nodes = star(2);
        nodes[1].bring(group(&[1], "2-3"), 0, b"b".to_vec());
        assert!(matches!(nodes[1].next_arrival(), Some(Arrival::Whole(whole)) if whole.data == "b"));
        assert!(nodes[1].next_outgoing(|_| true).is_none());
    }

    #[test]
    fn what_was_not_answered_is_sent_again() {
        let mut nodes = star(2);
        nodes[1].bring(Group::default(), 0, b"b".to_vec());
        assert!(nodes[1].next_outgoing(|_| true).is_some(), "it is lost with the connection");
        assert!(nodes[1].needs(FIRST));
        nodes[1].connected(FIRST);
        nodes[0].bring(Group::default(), 0, b"a".to_vec());
        settle(&mut nodes, false);
        assert!(matches!(nodes[1].next_arrival(), Some(Arrival::Whole(whole)) if whole.data == "ab"));
        assert!(!nodes[1].needs(FIRST));
    }

    #[test]
    fn a_question_finds_its_node_and_the_answer_its_way_back() {
        for twice in [false, true] {
            let mut nodes = star(3);
            let id = nodes[1].call(2, Question::Modex(5));
            settle(&mut nodes, twice);
            let Some(Arrival::Call(call)) = nodes[2].next_arrival() else { panic!("node 2 is asked") };
            assert_eq!((call.from, call.question.clone()), (1, Some(Question::Modex(5))));
            nodes[2].reply(&call, 0, b"blob".to_vec());
            settle(&mut nodes, twice);
            let reply = v1::PeerReply { id, to: 1, status: 0, data: "blob".into() };
            assert_eq!(nodes[1].next_arrival(), Some(Arrival::Reply(reply)));
            assert_eq!(nodes[1].next_arrival(), None);
        }
    }

    fn progress(from: u32, stage: PeerStage) -> Message {
        Message::Progress(v1::PeerProgress { from, stage: stage.into() })
    }

    #[test]
    fn the_first_node_is_needed_until_the_others_have_finalized_ended_or_been_lost() {
        let now = Instant::now();
        for over in [Some(PeerStage::Finalized), Some(PeerStage::Ended), None] {
            let mut nodes = star(3);
            assert!(!nodes[0].is_needed(), "the others never spoke");
            nodes[0].connected(1);
            nodes[1].set_stage(PeerStage::Speaking);
            settle(&mut nodes, false);
            nodes[0].set_stage(PeerStage::Ended);
            assert!(nodes[0].is_needed());
            match over {
                Some(stage) => {
                    nodes[1].set_stage(stage);
                    settle(&mut nodes, false);
                }
                None => {
                    nodes[0].watch(|_| false, now);
                    assert_eq!(nodes[0].due(), Some(now + AWAY));
                    nodes[0].watch(|_| true, now + AWAY / 2);
                    nodes[0].watch(|_| false, now + AWAY);
                    assert!(nodes[0].is_needed(), "the connection came back in between");
                    nodes[0].watch(|_| false, now + AWAY * 2);
                }
            }
            assert!(!nodes[0].is_needed(), "{over:?}");
            assert_eq!(nodes[0].due(), None);
        }
    }

    #[test]
    fn who_brings_a_part_needs_the_first_node_before_its_stage_is_known() {
        let mut first = Peers::new(FIRST, 2);
        first.connected(1);
        first.bring(Group::default(), 0, b"0".to_vec());
        let part = v1::FencePart { number: 0, from: 1, data: "1".into(), ..v1::FencePart::default() };
        first.receive(Message::Part(part));
        assert!(matches!(first.next_arrival(), Some(Arrival::Whole(_))));
        assert!(first.is_needed());
        first.receive(progress(1, PeerStage::Finalized));
        assert!(!first.is_needed());
    }

    #[test]
    fn a_node_tells_its_stage_when_it_changes_and_over_each_connection() {
        let mut node = Peers::new(1, 2);
        for stage in [PeerStage::Finalized, PeerStage::Ended] {
            node.set_stage(stage);
            node.connected(FIRST);
            assert_eq!(node.next_outgoing(|_| true), None, "no task has spoken");
        }
        node.set_stage(PeerStage::Speaking);
        assert!(node.needs(FIRST));
        node.set_stage(PeerStage::Finalized);
        node.connected(FIRST);
        for _ in 0..2 {
            assert_eq!(node.next_outgoing(|_| true), Some((FIRST, progress(1, PeerStage::Finalized))));
            assert_eq!(node.next_outgoing(|_| true), None);
            node.set_stage(PeerStage::Finalized);
            assert!(!node.needs(FIRST));
            node.connected(FIRST);
        }
    }

    #[test]
    fn a_fence_that_waits_for_ended_tasks_names_their_node() {
        for (gone, waiting) in [(0, 1), (1, 0)] {
            let mut nodes = star(2);
            nodes[0].connected(1);
            nodes[1].set_stage(PeerStage::Speaking);
            nodes[waiting].bring(Group::default(), 0, Vec::new());
            settle(&mut nodes, false);
            assert_eq!(nodes[0].gone_from_fence(), None);
            nodes[gone].set_stage(PeerStage::Ended);
            settle(&mut nodes, false);
            assert_eq!(nodes[0].gone_from_fence(), u32::try_from(gone).ok());
        }
    }

    #[test]
    fn a_question_to_ended_tasks_is_refused() {
        for ended_first in [false, true] {
            let mut nodes = star(3);
            for node in [1, 2] {
                nodes[0].connected(node);
                nodes[node as usize].set_stage(PeerStage::Speaking);
            }
            if ended_first {
                nodes[2].set_stage(PeerStage::Ended);
            }
            settle(&mut nodes, false);
            let id = nodes[1].call(2, Question::Modex(5));
            nodes[2].set_stage(PeerStage::Ended);
            settle(&mut nodes, false);
            let refused = v1::PeerReply { id, to: 1, status: UNREACHABLE, data: Bytes::new() };
            assert_eq!(nodes[1].next_arrival(), Some(Arrival::Reply(refused)));
            assert!(!nodes[1].is_waiting());
        }
    }
}
