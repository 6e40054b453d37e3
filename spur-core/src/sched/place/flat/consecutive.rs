//! Consecutive positions without regard to the fabric: one pass with a sliding window.

use std::collections::{BTreeSet, VecDeque};

use crate::model::fabric::{DomainId, Pos};

use super::capped::Caps;
use super::{Free, Wanted};

/// The best window: the fewest nodes of the heaviest weight, then of the next, and so on, then the fewest
/// slots, then the first. `free` is in fabric order. Where the number of nodes is open, a window ends as soon
/// as it holds the job.
pub(super) fn best(free: &[Free], wanted: Wanted<'_>) -> Option<Vec<Free>> {
    let required = wanted.ask.required.iter().copied().collect();
    let weights: BTreeSet<u32> = free.iter().map(|free| free.weight).collect();
    let question = Question { wanted, required, weights: weights.into_iter().skip(1).rev().collect() };
    let mut best: Option<(Vec<u64>, u64, &[Free])> = None;
    for run in free.chunk_by(|one, next| next.pos.0 == one.pos.0 + 1) {
        let mut window = Window::empty(&question);
        let mut end = 0;
        for (start, first) in run.iter().enumerate() {
            while let Some(next) = run.get(end).filter(|_| !window.has_enough()) {
                window.add(next);
                end += 1;
            }
            if !window.has_enough() {
                break;
            }
            let is_better = |(of_weights, slots, _): &(Vec<u64>, u64, _)| {
                (&window.of_weights, window.slots) < (of_weights, *slots)
            };
            if window.is_allowed() && best.as_ref().is_none_or(is_better) {
                best = Some((window.of_weights.clone(), window.slots, &run[start..end]));
            }
            window.remove(first);
        }
    }
    best.map(|(_, _, chosen)| chosen.to_vec())
}

struct Question<'a> {
    wanted: Wanted<'a>,
    required: BTreeSet<Pos>,
    /// The weights above the lightest, the heaviest first.
    weights: Vec<u32>,
}

/// Consecutive nodes, with their sums.
struct Window<'a> {
    question: &'a Question<'a>,
    leaves: VecDeque<Leaf<'a>>,
    /// Number of leaves that may not give what the window uses of them.
    over: u64,
    nodes: u64,
    /// The amount of the job that the nodes take, within the caps of their leaves.
    takes: u64,
    /// Number of free slots of the nodes.
    slots: u64,
    required: u64,
    /// Number of nodes in each counted set.
    counted: Vec<u64>,
    /// Number of nodes of each weight in `weights`.
    of_weights: Vec<u64>,
}

/// The part of a leaf in a window. Consecutive nodes outside the fabric count as a leaf without caps.
struct Leaf<'a> {
    id: Option<DomainId>,
    caps: Caps<'a>,
    nodes: u64,
    takes: u64,
    load: u64,
}

impl Leaf<'_> {
    fn gives(&self) -> u64 {
        self.caps.most(self.takes)
    }

    fn is_over(&self) -> bool {
        let load = u32::try_from(self.load).unwrap_or(u32::MAX);
        self.nodes > self.caps.nodes.into() || !self.caps.may_bring(load)
    }
}

impl<'a> Window<'a> {
    fn empty(question: &'a Question<'a>) -> Self {
        Self {
            question,
            leaves: VecDeque::new(),
            over: 0,
            nodes: 0,
            takes: 0,
            slots: 0,
            required: 0,
            counted: vec![0; question.wanted.ask.counts.len()],
            of_weights: vec![0; question.weights.len()],
        }
    }

    /// True if no more nodes are needed.
    fn has_enough(&self) -> bool {
        let Question { wanted, required, .. } = self.question;
        self.nodes >= wanted.nodes.unwrap_or(1).max(1).into()
            && self.takes >= wanted.slots.into()
            && self.required == required.len() as u64
            && self.counted.iter().zip(&wanted.ask.counts).all(|(count, (_, need))| *count >= (*need).into())
    }

    /// True if a job may use exactly these nodes, with at least one slot on each.
    fn is_allowed(&self) -> bool {
        let Wanted { nodes, slots, .. } = self.question.wanted;
        self.over == 0
            && nodes.is_none_or(|nodes| self.nodes == u64::from(nodes))
            && self.nodes <= slots.into()
    }

    /// Adds the next node at the end.
    fn add(&mut self, free: &Free) {
        let Wanted { fabric, caps, .. } = self.question.wanted;
        let id = fabric.leaf_of(free.pos);
        if self.leaves.back().is_none_or(|leaf| leaf.id != id) {
            let caps = caps.filter(|_| id.is_some()).unwrap_or(Caps::NONE);
            self.leaves.push_back(Leaf { id, caps, nodes: 0, takes: 0, load: 0 });
        }
        self.count(free, VecDeque::back_mut, u64::wrapping_add);
    }

    /// Removes the first node.
    fn remove(&mut self, free: &Free) {
        self.count(free, VecDeque::front_mut, u64::wrapping_sub);
        if self.leaves.front().is_some_and(|leaf| leaf.nodes == 0) {
            self.leaves.pop_front();
        }
    }

    /// Adds or subtracts a node at one end of the window.
    fn count(
        &mut self,
        free: &Free,
        end: for<'d> fn(&'d mut VecDeque<Leaf<'a>>) -> Option<&'d mut Leaf<'a>>,
        change: fn(u64, u64) -> u64,
    ) {
        let question = self.question;
        let by = |count: &mut u64, by: u32| *count = change(*count, by.into());
        by(&mut self.nodes, 1);
        by(&mut self.slots, free.slots);
        by(&mut self.required, question.required.contains(&free.pos).into());
        for (counted, (set, _)) in self.counted.iter_mut().zip(&question.wanted.ask.counts) {
            by(counted, set.contains(free.pos.index()).into());
        }
        if let Ok(at) = question.weights.binary_search_by(|weight| free.weight.cmp(weight)) {
            by(&mut self.of_weights[at], 1);
        }
        let Some(leaf) = end(&mut self.leaves) else { return };
        let (gave, was_over) = (leaf.gives(), leaf.is_over());
        by(&mut leaf.nodes, 1);
        by(&mut leaf.takes, free.takes);
        by(&mut leaf.load, leaf.caps.load_of(free.pos));
        self.takes = self.takes + leaf.gives() - gave;
        self.over = self.over + u64::from(leaf.is_over()) - u64::from(was_over);
    }
}
