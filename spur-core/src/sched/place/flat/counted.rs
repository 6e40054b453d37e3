//! Chooses nodes for counted features in order of preference, without regard to the fabric.
//!
//! Nodes in the same counted sets are interchangeable, so whether a choice can be completed is decided by
//! kinds, not nodes. The search tries how many nodes of each kind serve the counts; the rest are the nodes
//! that take most. The result is exact unless the search budget runs out.

use std::collections::BTreeMap;

use crate::model::fabric::Pos;

use crate::sched::place::Ask;
use crate::sched::place::problem::Meter;

use super::{Free, largest_of};

/// The counted sets that a node is in, one bit for each.
type Kind = u32;

/// For each counted set, the number of nodes that are still needed.
type Needs = Vec<u32>;

/// Number of nodes that are not chosen yet, by kind and by the amount that they take.
type Rest = BTreeMap<Kind, BTreeMap<u32, u32>>;

/// A search for the first nodes that meet the counts.
pub(super) struct Counted {
    /// The amount that each node takes, and its kind, in order of preference.
    nodes: Vec<(u32, Kind)>,
    needs: Needs,
    required: Vec<bool>,
    meter: Meter,
    /// True if the search has not been cut.
    pub(super) exact: bool,
}

/// The nodes and slots that are missing in a partial choice.
#[derive(Clone, Copy)]
struct Open {
    /// Number of nodes that must still be added.
    nodes: u32,
    /// The fewest slots that these nodes must have together.
    slots: u32,
}

impl Counted {
    /// The search over nodes in order of preference; `None` if a required node is missing.
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

    /// The smallest number of nodes, at most `most`, that includes the required ones and meets the counts; of
    /// such sets the first.
    pub(super) fn fewest(&mut self, most: u32) -> Option<Vec<bool>> {
        let required = u32::try_from(self.required.iter().filter(|required| **required).count()).ok()?;
        let sum = self.needs.iter().fold(required, |sum, need| sum.saturating_add(*need));
        (required..=sum.min(most)).find_map(|nodes| self.first(nodes, 0))
    }

    /// The first set of exactly `nodes` nodes that includes the required ones, meets the counts and has at
    /// least `slots` slots; `None` if there is none.
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
        // A kind and amount that failed once fails again until another node is taken.
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

    /// True if the rest can complete the choice.
    fn can_complete(&mut self, rest: &Rest, needs: &Needs, open: Open) -> bool {
        if needs.iter().all(|need| *need == 0) {
            return has_room(rest, &[], open);
        }
        let kinds: Vec<(Kind, u32)> =
            rest.iter().map(|(kind, takes)| (*kind, takes.values().sum())).collect();
        let mut served = vec![0; kinds.len()];
        self.serve_by(rest, &kinds, &mut served, 0, needs, open)
    }

    /// Tries numbers of nodes of the kinds from `at` on that serve the counts, the largest number first.
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
    /// The missing nodes and slots once a node is taken; `None` if no more nodes are wanted.
    fn less(self, takes: u32) -> Option<Self> {
        Some(Self { nodes: self.nodes.checked_sub(1)?, slots: self.slots.saturating_sub(takes) })
    }
}

/// The needs of the sets that a kind is in.
fn members(needs: &Needs, kind: Kind) -> impl Iterator<Item = u32> {
    needs.iter().enumerate().filter(move |(index, _)| kind >> index & 1 == 1).map(|(_, need)| *need)
}

/// Subtracts `nodes` nodes of a kind from the needs.
fn serve(needs: &mut Needs, kind: Kind, nodes: u32) {
    let inside = needs.iter_mut().enumerate().filter(|(index, _)| kind >> index & 1 == 1);
    inside.for_each(|(_, need)| *need = need.saturating_sub(nodes));
}

/// Removes one node from the rest.
fn leave(rest: &mut Rest, kind: Kind, takes: u32) {
    if let Some(count) = rest.get_mut(&kind).and_then(|kind| kind.get_mut(&takes)) {
        *count -= 1;
    }
}

/// True if there are enough nodes with enough slots: of each kind the largest that serve it, then the largest
/// others. `served` may omit trailing kinds.
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

/// True if there are enough nodes and the largest of them have the slots.
fn largest(takes: &BTreeMap<u32, u32>, open: Open) -> bool {
    let (missing, slots) = largest_of(takes, open.nodes);
    missing == 0 && slots >= open.slots.into()
}
