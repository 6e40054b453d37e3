//! Sets of nodes of which some must be of certain kinds, in a given order of preference, without regard to the fabric.
//!
//! Nodes that are in the same counted sets can stand in for one another, so whether a choice can be completed is asked of
//! kinds, not of nodes: how many of each kind serve the counts is tried out, the rest are the nodes that take most. It
//! is exact unless the search budget runs out.

use std::collections::BTreeMap;

use crate::model::fabric::Pos;

use crate::sched::place::Ask;
use crate::sched::place::problem::Meter;

use super::{Free, largest_of};

/// The counted sets a node is in, one bit for each.
type Kind = u32;

/// What is still to be had once some nodes are chosen: at least so many nodes of each counted set.
type Needs = Vec<u32>;

/// Nodes that are not chosen yet: by kind and by what they take, how many.
type Rest = BTreeMap<Kind, BTreeMap<u32, u32>>;

/// A search for the first nodes that meet the counts.
pub(super) struct Counted {
    /// What each node takes, and its kind, in order of preference.
    nodes: Vec<(u32, Kind)>,
    needs: Needs,
    required: Vec<bool>,
    meter: Meter,
    /// Whether nothing was left out so far.
    pub(super) exact: bool,
}

/// A question whether a choice can be completed.
#[derive(Clone, Copy)]
struct Open {
    /// Nodes that may be added, and are.
    nodes: u32,
    /// Slots that they must have at least.
    slots: u32,
}

impl Counted {
    /// The question for nodes in order of preference, each with what it takes; `None` where a required one is missing.
    pub(super) fn new(free: &[Free], ask: &Ask, meter: &Meter) -> Option<Self> {
        let kind = |pos: Pos| {
            let sets = ask.counts.iter().enumerate().filter(|(_, (set, _))| set.contains(pos.index()));
            sets.fold(0, |kind, (index, _)| kind | 1 << index)
        };
        let mut required = vec![false; free.len()];
        for pos in &ask.required {
            required[free.iter().position(|free| free.pos == *pos)?] = true;
        }
        Some(Self {
            nodes: free.iter().map(|free| (free.takes, kind(free.pos))).collect(),
            needs: ask.counts.iter().map(|(_, need)| *need).collect(),
            required,
            meter: meter.clone(),
            exact: true,
        })
    }

    /// The fewest nodes that hold the required ones and meet the counts, of those the first; at most `most`.
    pub(super) fn fewest(&mut self, most: u32) -> Option<Vec<bool>> {
        let required = u32::try_from(self.required.iter().filter(|required| **required).count()).ok()?;
        let sum = self.needs.iter().fold(required, |sum, need| sum.saturating_add(*need));
        (required..=sum.min(most)).find_map(|nodes| self.first(nodes, 0))
    }

    /// The first so many nodes that hold the required ones, meet the counts and have so many slots.
    pub(super) fn first(&mut self, nodes: u32, slots: u32) -> Option<Vec<bool>> {
        let mut taken = self.required.clone();
        let mut open = Open { nodes, slots };
        let mut needs = self.needs.clone();
        let mut rest = Rest::new();
        for (&(takes, kind), &taken) in self.nodes.iter().zip(&taken) {
            if taken {
                open = open.less(takes)?;
                serve(&mut needs, kind, 1);
            } else {
                *rest.entry(kind).or_default().entry(takes).or_default() += 1;
            }
        }
        if !self.can_complete(&rest, &needs, open) {
            return None;
        }
        // What would not do once does not until something else is taken.
        let mut in_vain: Option<(u32, Kind)> = None;
        let nodes = std::mem::take(&mut self.nodes);
        for (&(takes, kind), taken) in nodes.iter().zip(&mut taken) {
            if open.nodes == 0 {
                break;
            }
            if *taken {
                continue;
            }
            leave(&mut rest, kind, takes);
            if in_vain == Some((takes, kind)) {
                continue;
            }
            let Some(next) = open.less(takes) else { break };
            let mut served = needs.clone();
            serve(&mut served, kind, 1);
            if self.can_complete(&rest, &served, next) {
                (open, needs, in_vain) = (next, served, None);
                *taken = true;
            } else {
                in_vain = Some((takes, kind));
            }
        }
        self.nodes = nodes;
        (open.nodes == 0).then_some(taken)
    }

    /// Whether the rest can make up for what is missing.
    fn can_complete(&mut self, rest: &Rest, needs: &Needs, open: Open) -> bool {
        if needs.iter().all(|need| *need == 0) {
            return has_room(rest, &[], open);
        }
        let kinds: Vec<(Kind, u32)> =
            rest.iter().map(|(kind, takes)| (*kind, takes.values().sum())).collect();
        let mut served = vec![0; kinds.len()];
        self.serve_by(rest, &kinds, &mut served, 0, needs, open)
    }

    /// Tries how many of the kinds from `at` on serve the counts, most first.
    fn serve_by(
        &mut self,
        rest: &Rest,
        kinds: &[(Kind, u32)],
        served: &mut Vec<u32>,
        at: usize,
        needs: &Needs,
        open: Open,
    ) -> bool {
        if needs.iter().all(|need| *need == 0) {
            return has_room(rest, &served[..at], open);
        }
        let Some(&(kind, count)) = kinds.get(at) else { return false };
        let wanted = members(needs, kind).max().unwrap_or(0);
        let used: u32 = served[..at].iter().sum();
        for some in (0..=wanted.min(count).min(open.nodes.saturating_sub(used))).rev() {
            if !self.meter.take(1) {
                self.exact = false;
                return false;
            }
            served[at] = some;
            let mut left = needs.clone();
            serve(&mut left, kind, some);
            if self.serve_by(rest, kinds, served, at + 1, &left, open) {
                return true;
            }
        }
        false
    }
}

impl Open {
    /// Once a node is taken; `None` where no more are wanted.
    fn less(self, takes: u32) -> Option<Self> {
        Some(Self { nodes: self.nodes.checked_sub(1)?, slots: self.slots.saturating_sub(takes) })
    }
}

/// What is needed of the sets that a kind is in.
fn members(needs: &Needs, kind: Kind) -> impl Iterator<Item = u32> {
    needs.iter().enumerate().filter(move |(index, _)| kind >> index & 1 == 1).map(|(_, need)| *need)
}

/// Counts so many nodes of a kind.
fn serve(needs: &mut Needs, kind: Kind, nodes: u32) {
    let inside = needs.iter_mut().enumerate().filter(|(index, _)| kind >> index & 1 == 1);
    inside.for_each(|(_, need)| *need = need.saturating_sub(nodes));
}

/// Takes one node out of the rest.
fn leave(rest: &mut Rest, kind: Kind, takes: u32) {
    if let Some(count) = rest.get_mut(&kind).and_then(|kind| kind.get_mut(&takes)) {
        *count -= 1;
    }
}

/// Whether the largest nodes of each kind that serve it, and of the others the largest, are as many as are wanted and
/// have the slots; `served` may leave out the last kinds.
fn has_room(rest: &Rest, served: &[u32], open: Open) -> bool {
    if let (1, Some(only)) = (rest.len(), rest.values().next()) {
        return largest(only, open);
    }
    let Some(nodes) = open.nodes.checked_sub(served.iter().sum()) else { return false };
    let mut slots = 0_u32;
    let mut others: BTreeMap<u32, u32> = BTreeMap::new();
    for (kind, serving) in rest.values().zip(served.iter().copied().chain(std::iter::repeat(0))) {
        let mut serving = serving;
        for (&takes, &count) in kind.iter().rev() {
            let some = count.min(serving);
            serving -= some;
            slots = slots.saturating_add(takes.saturating_mul(some));
            *others.entry(takes).or_default() += count - some;
        }
    }
    largest(&others, Open { nodes, slots: open.slots.saturating_sub(slots) })
}

/// Whether there are so many nodes, and the largest of them have the slots.
fn largest(takes: &BTreeMap<u32, u32>, open: Open) -> bool {
    let (missing, slots) = largest_of(takes, open.nodes);
    missing == 0 && slots >= open.slots.into()
}
