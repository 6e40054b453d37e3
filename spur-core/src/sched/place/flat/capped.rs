//! Chooses nodes under caps per leaf. The caps of `[topology.limits]` hold even where a job ignores the
//! fabric.
//!
//! Nodes are taken or left one after another in order of preference, each as long as the rest can still
//! complete the job. What a leaf may still give falls with every node taken, so the most that some nodes give
//! is a sum of the largest gains. Without counted features that sum is exact and nothing is ever undone. With
//! counts, or where nodes of a leaf bring unequal numbers of GPUs ([`LeafLoad`]), it is an upper bound, and
//! the search backtracks within the search budget.

use std::collections::BTreeMap;

use crate::model::fabric::Pos;
use crate::sched::place::problem::Meter;
use crate::sched::place::{Ask, LeafLoad};

use super::{Free, Wanted};

/// The caps of one leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps<'a> {
    /// The largest number of nodes; each gives at least one slot.
    pub(super) nodes: u32,
    /// The largest number of slots.
    pub(super) slots: u32,
    /// The cap on GPUs, by node.
    pub(super) load: Option<&'a LeafLoad>,
}

impl<'a> Caps<'a> {
    /// No caps, for nodes outside the fabric.
    pub(super) const NONE: Self = Self { nodes: u32::MAX, slots: u32::MAX, load: None };

    /// The caps of an ask; `None` if it caps no leaf.
    pub(super) fn of(ask: &'a Ask) -> Option<Self> {
        let slots = ask.max_slots_per_leaf.unwrap_or(u32::MAX);
        let nodes = ask.max_nodes_per_leaf.unwrap_or(u32::MAX).min(slots);
        ask.caps_leaves().then_some(Self { nodes, slots, load: ask.leaf_load.as_ref() })
    }

    /// Number of slots that a leaf may give if its nodes have `slots`.
    pub(super) fn most(self, slots: u64) -> u64 {
        slots.min(self.slots.into())
    }

    /// Number of GPUs that a node brings; 0 if GPUs are not capped.
    pub(super) fn load_of(self, pos: Pos) -> u32 {
        self.load.map_or(0, |load| load.at(pos))
    }

    /// True if a leaf may give nodes with this many GPUs together.
    pub(super) fn may_bring(self, load: u32) -> bool {
        self.load.is_none_or(|limit| limit.allows(load))
    }
}

/// The nodes of one leaf in the search.
#[derive(Debug)]
struct Leaf<'a> {
    caps: Caps<'a>,
    /// Number of nodes taken from this leaf, their slots, and their GPUs.
    nodes: u32,
    slots: u64,
    load: u32,
    /// Number of further nodes, by the slots that they take and the GPUs that they bring.
    rest: BTreeMap<(u32, u32), u32>,
}

impl Leaf<'_> {
    /// An upper bound on the number of further nodes, by the caps on nodes and on GPUs, the fewest GPUs
    /// counted first.
    fn room(&self) -> usize {
        let nodes = usize::try_from(self.caps.nodes.saturating_sub(self.nodes)).unwrap_or(usize::MAX);
        let Some(limit) = self.caps.load else { return nodes };
        let rest = self.rest.iter().flat_map(|((_, load), count)| (0..*count).map(|_| *load));
        limit.most_nodes(self.load, rest.collect()).min(nodes)
    }

    /// True if the nodes bring unequal numbers of GPUs, so that the sum of gains is only an upper bound.
    fn is_mixed(&self) -> bool {
        let mut loads = self.rest.keys().map(|(_, load)| *load);
        let first = loads.next();
        self.caps.load.is_some() && loads.any(|load| Some(load) != first)
    }

    /// The most slots that the leaf can give, with any number of nodes.
    fn most(&self) -> u64 {
        if !self.is_mixed() {
            return self.held() + self.gains().sum::<u64>();
        }
        // A knapsack: for each number of nodes and of GPUs, the most slots.
        let mut ways = BTreeMap::from([((self.nodes, self.load), self.slots)]);
        for ((takes, load), count) in &self.rest {
            for _ in 0..*count {
                let more = |(&(nodes, brought), &slots): (&(u32, u32), &u64)| {
                    // Where nodes are not capped their number stays out of the key, which keeps the table
                    // small.
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

    /// The slots that each further node adds, the largest first.
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

    /// True if the leaf may give another node that brings `load` GPUs.
    fn has_room(&self, load: u32) -> bool {
        self.nodes < self.caps.nodes && self.caps.may_bring(self.load.saturating_add(load))
    }
}

/// A counted set: the number of its nodes that are still needed, and the number that are still open.
#[derive(Debug, Clone, Copy)]
struct Set {
    need: i64,
    has: i64,
}

/// The decision about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Taken,
    Left,
}

/// A search for the first nodes of which no leaf gives more than its caps allow.
pub(super) struct Capped<'a> {
    free: &'a [Free],
    ask: &'a Ask,
    /// The index of each node's leaf.
    leaf_of: Vec<usize>,
    leaves: Vec<Leaf<'a>>,
    /// The gains of further nodes over all leaves: number of nodes by the slots that they add.
    gains: BTreeMap<u64, u64>,
    held: u64,
    /// The most slots that all leaves can give.
    most: u64,
    /// True if nodes of some leaf bring unequal numbers of GPUs.
    is_mixed: bool,
    sets: Vec<Set>,
    fates: Vec<Fate>,
    /// Number of slots that the job wants.
    slots: u64,
    /// Number of nodes that are still to be taken.
    nodes: i64,
    /// True if the number of nodes is open, so that more may be taken after the required and counted ones.
    is_open: bool,
    meter: &'a Meter,
    /// True if the search has not been cut.
    exact: bool,
}

/// The first nodes, in the order of `free`, with which the job can be completed under the caps. The flag is
/// true if the search was exhaustive.
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
    /// The search for `nodes` nodes; `None` if a required node is missing or the caps of a leaf exclude
    /// required nodes.
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

    /// Adds what a leaf holds and may give to the sums, or subtracts it.
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

    /// Number of capped GPUs that a node brings.
    fn load_of(&self, at: usize) -> u32 {
        self.leaves[self.leaf_of[at]].caps.load_of(self.free[at].pos)
    }

    /// True if the node's leaf may give this node besides the ones taken.
    fn has_room(&self, at: usize) -> bool {
        self.leaves[self.leaf_of[at]].has_room(self.load_of(at))
    }

    /// Changes the decision about a node.
    fn turn(&mut self, at: usize, fate: Fate) {
        let (old, node, leaf) =
            (std::mem::replace(&mut self.fates[at], fate), self.free[at], self.leaf_of[at]);
        self.count(leaf, false);
        // Where the number of nodes is open, a node that was left may still be taken later.
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

    /// True if the rest can complete the job. The answer is exact without counts and with equal GPUs;
    /// otherwise it may be true in vain.
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

    /// The first nodes that complete the job; `None` if none do, or if the search was cut.
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
                // The node is required.
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

    /// Decides about a node if the rest can then complete the job; otherwise the node stays open.
    fn turn_if(&mut self, at: usize, fate: Fate) -> bool {
        self.turn(at, fate);
        let may = self.may_be();
        if !may {
            self.turn(at, Fate::Open);
        }
        may
    }

    /// Undoes decisions back to the last node that was taken and may be left instead. Returns that node.
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

    /// Adds nodes in order until the slots are enough, each if the rest can then still complete the job.
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
