//! Sets of nodes of which no leaf may give more than so much: where the fabric is ignored, the caps of `[topology.limits]` are not.
//!
//! Nodes are taken or left one after another in their order, each as long as the rest can still make up for what is missing.
//! What a leaf may still give falls with every node it gives, so that the most there is of some nodes is a sum of the
//! largest gains: without counts that is exact, and nothing is ever taken back. With counts it is a bound; what it misses is
//! found by going back, as far as the search budget goes. So it is where nodes of a leaf bring unequally much of what it may
//! give only so much of ([`LeafLoad`]).

use std::collections::BTreeMap;

use crate::model::fabric::Pos;
use crate::sched::place::problem::Meter;
use crate::sched::place::{Ask, LeafLoad};

use super::{Free, Wanted};

/// The most that one leaf gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps<'a> {
    /// Nodes, of which each gives a slot at least.
    pub(super) nodes: u32,
    /// Slots.
    pub(super) slots: u32,
    /// What nodes bring.
    pub(super) load: Option<&'a LeafLoad>,
}

impl<'a> Caps<'a> {
    /// No caps: what nodes outside the fabric have.
    pub(super) const NONE: Self = Self { nodes: u32::MAX, slots: u32::MAX, load: None };

    /// What an ask says of leaves; `None` where it says nothing.
    pub(super) fn of(ask: &'a Ask) -> Option<Self> {
        let slots = ask.max_slots_per_leaf.unwrap_or(u32::MAX);
        let nodes = ask.max_nodes_per_leaf.unwrap_or(u32::MAX).min(slots);
        ask.caps_leaves().then_some(Self { nodes, slots, load: ask.leaf_load.as_ref() })
    }

    /// Slots of a leaf whose nodes have so many.
    pub(super) fn most(self, slots: u64) -> u64 {
        slots.min(self.slots.into())
    }

    /// What a node brings.
    pub(super) fn load_of(self, pos: Pos) -> u32 {
        self.load.map_or(0, |load| load.at(pos))
    }

    /// Whether a leaf may give nodes that bring so much.
    pub(super) fn may_bring(self, load: u32) -> bool {
        self.load.is_none_or(|limit| limit.allows(load))
    }
}

/// The nodes of a leaf.
#[derive(Debug)]
struct Leaf<'a> {
    caps: Caps<'a>,
    /// Nodes that are taken, what they have, and what they bring.
    nodes: u32,
    slots: u64,
    load: u32,
    /// How many further nodes there are, by what they take and bring.
    rest: BTreeMap<(u32, u32), u32>,
}

impl Leaf<'_> {
    /// How many further nodes there may be, by their number and by what the fewest bring.
    fn room(&self) -> usize {
        let nodes = usize::try_from(self.caps.nodes.saturating_sub(self.nodes)).unwrap_or(usize::MAX);
        let Some(limit) = self.caps.load else { return nodes };
        let rest = self.rest.iter().flat_map(|((_, load), count)| (0..*count).map(|_| *load));
        limit.most_nodes(self.load, rest.collect()).min(nodes)
    }

    /// Whether nodes differ in what they bring, so that gains are no more than a bound.
    fn is_mixed(&self) -> bool {
        let mut loads = self.rest.keys().map(|(_, load)| *load);
        let first = loads.next();
        self.caps.load.is_some() && loads.any(|load| Some(load) != first)
    }

    /// The most it can give, of however many nodes.
    fn most(&self) -> u64 {
        if !self.is_mixed() {
            return self.held() + self.gains().sum::<u64>();
        }
        // By nodes and by what they bring: the most slots that so many have.
        let mut ways = BTreeMap::from([((self.nodes, self.load), self.slots)]);
        for ((takes, load), count) in &self.rest {
            for _ in 0..*count {
                let more = |(&(nodes, brought), &slots): (&(u32, u32), &u64)| {
                    // Their number is of no interest where it is not limited.
                    let nodes = nodes + u32::from(self.caps.nodes < u32::MAX);
                    let brought = brought.saturating_add(*load);
                    let may = nodes <= self.caps.nodes && self.caps.may_bring(brought);
                    may.then_some(((nodes, brought), slots + u64::from(*takes)))
                };
                for (key, slots) in ways.iter().filter_map(more).collect::<Vec<_>>() {
                    let best = ways.entry(key).or_default();
                    *best = slots.max(*best);
                }
            }
        }
        self.caps.most(ways.into_values().max().unwrap_or(0))
    }

    /// What each further node adds, the largest first.
    fn gains(&self) -> impl Iterator<Item = u64> + '_ {
        let all = self.rest.iter().rev();
        let takes = all.flat_map(|((takes, _), count)| (0..*count).map(|_| u64::from(*takes)));
        takes.take(self.room()).scan(self.slots, |slots, takes| {
            let before = self.caps.most(*slots);
            *slots += takes;
            Some(self.caps.most(*slots) - before)
        })
    }

    fn held(&self) -> u64 {
        self.caps.most(self.slots)
    }

    /// Whether it may give another node that brings so much.
    fn has_room(&self, load: u32) -> bool {
        self.nodes < self.caps.nodes && self.caps.may_bring(self.load.saturating_add(load))
    }
}

/// A counted set: how many more nodes of it are needed, and how many there are.
#[derive(Debug, Clone, Copy)]
struct Set {
    need: i64,
    has: i64,
}

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Taken,
    Left,
}

/// A search for the first nodes of which no leaf gives more than it may.
pub(super) struct Capped<'a> {
    free: &'a [Free],
    ask: &'a Ask,
    /// The leaf of every node.
    leaf_of: Vec<usize>,
    leaves: Vec<Leaf<'a>>,
    /// What further nodes add, all leaves together: how many add how much.
    gains: BTreeMap<u64, u64>,
    held: u64,
    /// The most that all leaves can give.
    most: u64,
    /// Whether nodes of a leaf differ in what they bring.
    is_mixed: bool,
    sets: Vec<Set>,
    fates: Vec<Fate>,
    /// Slots that are wanted.
    slots: u64,
    /// Nodes that are still to be taken.
    nodes: i64,
    /// Whether more nodes may be taken after these.
    is_open: bool,
    meter: &'a Meter,
    /// Whether the search was not cut short.
    exact: bool,
}

/// The first nodes, in the order of `free`, with which the job can be completed under the caps. The flag says whether the
/// search was exhaustive.
pub(super) fn pick(free: &[Free], wanted: Wanted<'_>, caps: Caps<'_>) -> (Option<Vec<bool>>, bool) {
    let new = |nodes| Capped::new(free, wanted, nodes, caps);
    let ask = wanted.ask;
    if let Some(nodes) = wanted.nodes {
        let search = if nodes > wanted.slots { None } else { new(nodes) };
        return search.map_or((None, true), |mut search| (search.first(), search.exact));
    }
    let required = u32::try_from(ask.required.len()).unwrap_or(u32::MAX);
    let sum = ask.counts.iter().fold(required, |sum, (_, need)| sum.saturating_add(*need));
    let mut exact = true;
    for nodes in required..=sum.min(wanted.slots) {
        let Some(mut search) = new(nodes) else { break };
        let found = search.first().and_then(|_| search.fill());
        exact &= search.exact;
        if found.is_some() {
            return (found, exact);
        }
    }
    (None, exact)
}

impl<'a> Capped<'a> {
    /// The question for so many nodes; `None` where a required one is missing or there are too many of them in one leaf.
    fn new(free: &'a [Free], wanted: Wanted<'a>, nodes: u32, caps: Caps<'a>) -> Option<Self> {
        let Wanted { fabric, ask, meter, .. } = wanted;
        let (mut leaves, mut numbers): (Vec<Leaf<'_>>, BTreeMap<_, usize>) = (Vec::new(), BTreeMap::new());
        let mut leaf_of = Vec::with_capacity(free.len());
        for node in free {
            let mut new = |caps| {
                leaves.push(Leaf { caps, nodes: 0, slots: 0, load: 0, rest: BTreeMap::new() });
                leaves.len() - 1
            };
            let leaf = match fabric.leaf_of(node.pos) {
                Some(id) => *numbers.entry(id).or_insert_with(|| new(caps)),
                None => new(Caps::NONE),
            };
            let leaf_caps = leaves[leaf].caps;
            *leaves[leaf].rest.entry((node.takes, leaf_caps.load_of(node.pos))).or_default() += 1;
            leaf_of.push(leaf);
        }
        let has = |set: &fixedbitset::FixedBitSet| {
            free.iter().filter(|node| set.contains(node.pos.index())).count()
        };
        let sets = ask.counts.iter().map(|(set, need)| Set {
            need: (*need).into(),
            has: i64::try_from(has(set)).unwrap_or(i64::MAX),
        });
        let mut search = Self {
            sets: sets.collect(),
            free,
            ask,
            leaf_of,
            gains: BTreeMap::new(),
            held: 0,
            most: 0,
            is_mixed: leaves.iter().any(Leaf::is_mixed),
            fates: vec![Fate::Open; free.len()],
            slots: wanted.slots.into(),
            nodes: nodes.into(),
            is_open: wanted.nodes.is_none(),
            meter,
            exact: true,
            leaves,
        };
        for leaf in 0..search.leaves.len() {
            search.count(leaf, true);
        }
        for pos in &ask.required {
            let at = free.iter().position(|node| node.pos == *pos)?;
            if search.nodes == 0 || !search.has_room(at) {
                return None;
            }
            search.turn(at, Fate::Taken);
        }
        Some(search)
    }

    /// Counts what a leaf has and may give, or no longer does.
    fn count(&mut self, leaf: usize, counts: bool) {
        let leaf = &self.leaves[leaf];
        for gain in leaf.gains() {
            let count = self.gains.entry(gain).or_default();
            *count = if counts { *count + 1 } else { *count - 1 };
        }
        let (held, most) = (leaf.held(), if self.is_open { leaf.most() } else { 0 });
        (self.held, self.most) =
            if counts { (self.held + held, self.most + most) } else { (self.held - held, self.most - most) };
    }

    /// What a node brings of what its leaf may give only so much of.
    fn load_of(&self, at: usize) -> u32 {
        self.leaves[self.leaf_of[at]].caps.load_of(self.free[at].pos)
    }

    /// Whether a leaf may give this node besides those that are taken.
    fn has_room(&self, at: usize) -> bool {
        self.leaves[self.leaf_of[at]].has_room(self.load_of(at))
    }

    /// Gives a node another fate.
    fn turn(&mut self, at: usize, fate: Fate) {
        let (old, node, leaf) =
            (std::mem::replace(&mut self.fates[at], fate), self.free[at], self.leaf_of[at]);
        self.count(leaf, false);
        // One that is left may still be taken afterwards, where the number of nodes is open.
        let is_open = self.is_open;
        let rests = |fate: Fate| fate == Fate::Open || (fate == Fate::Left && is_open);
        let load = self.load_of(at);
        let here = &mut self.leaves[leaf];
        let kind = (node.takes, load);
        if rests(old) {
            let count = here.rest.entry(kind).or_default();
            *count -= 1;
            if *count == 0 {
                here.rest.remove(&kind);
            }
        }
        if rests(fate) {
            *here.rest.entry(kind).or_default() += 1;
        }
        let takes = u64::from(node.takes);
        if old == Fate::Taken {
            (here.nodes, here.slots, here.load) = (here.nodes - 1, here.slots - takes, here.load - load);
        }
        if fate == Fate::Taken {
            (here.nodes, here.slots, here.load) = (here.nodes + 1, here.slots + takes, here.load + load);
        }
        self.count(leaf, true);
        let (taken, open) = (
            i64::from(fate == Fate::Taken) - i64::from(old == Fate::Taken),
            i64::from(fate == Fate::Open) - i64::from(old == Fate::Open),
        );
        for (set, (counted, _)) in self.sets.iter_mut().zip(&self.ask.counts) {
            if counted.contains(node.pos.index()) {
                set.need -= taken;
                set.has += open;
            }
        }
        self.nodes -= taken;
    }

    /// Whether the rest may make up for what is missing; without counts, and where what nodes bring is the same, that is
    /// certain.
    fn may_be(&self) -> bool {
        let left = self.nodes.max(0);
        let nodes = left.unsigned_abs();
        if self.sets.iter().any(|set| set.need > set.has.min(left))
            || self.gains.values().sum::<u64>() < nodes
        {
            return false;
        }
        if self.is_open {
            return self.most >= self.slots;
        }
        let (mut room, mut most) = (nodes, self.held);
        for (gain, count) in self.gains.iter().rev() {
            if room == 0 || most >= self.slots {
                break;
            }
            let some = room.min(*count);
            (room, most) = (room - some, most + some * gain);
        }
        most >= self.slots
    }

    /// The first nodes that will do; `None` if none will, or if the search was cut short.
    fn first(&mut self) -> Option<Vec<bool>> {
        if !self.may_be() {
            return None;
        }
        let mut decided: Vec<usize> = Vec::new();
        let mut at = 0;
        while self.nodes > 0 {
            if (self.is_mixed || !self.sets.is_empty()) && !self.meter.take(1) {
                self.exact = false;
                return None;
            }
            let fate = self.fates.get(at).copied();
            let goes_on = match fate {
                // Required.
                Some(Fate::Taken) => true,
                Some(_) => {
                    decided.push(at);
                    self.has_room(at) && self.turn_if(at, Fate::Taken) || self.turn_if(at, Fate::Left)
                }
                None => false,
            };
            at += 1;
            if !goes_on {
                at = self.go_back(&mut decided)? + 1;
            }
        }
        Some(self.taken())
    }

    /// Gives a node a fate if the rest may then do; otherwise it is open again.
    fn turn_if(&mut self, at: usize, fate: Fate) -> bool {
        self.turn(at, fate);
        let may = self.may_be();
        if !may {
            self.turn(at, Fate::Open);
        }
        may
    }

    /// Takes decisions back up to a node that was taken and may be left instead; which one.
    fn go_back(&mut self, decided: &mut Vec<usize>) -> Option<usize> {
        while let Some(at) = decided.pop() {
            let was_taken = self.fates[at] == Fate::Taken;
            self.turn(at, Fate::Open);
            if was_taken && self.turn_if(at, Fate::Left) {
                decided.push(at);
                return Some(at);
            }
        }
        None
    }

    /// Adds nodes in their order until there are slots for all, each if the rest then still has a place.
    fn fill(&mut self) -> Option<Vec<bool>> {
        for at in 0..self.free.len() {
            if self.held >= self.slots {
                break;
            }
            let leaf = &self.leaves[self.leaf_of[at]];
            let may_add = leaf.has_room(self.load_of(at)) && leaf.held() < leaf.caps.slots.into();
            if self.fates[at] == Fate::Taken || !may_add {
                continue;
            }
            let before = self.fates[at];
            self.turn(at, Fate::Taken);
            if !self.may_be() {
                self.turn(at, before);
            }
        }
        (self.held >= self.slots).then(|| self.taken())
    }

    fn taken(&self) -> Vec<bool> {
        self.fates.iter().map(|fate| *fate == Fate::Taken).collect()
    }
}
