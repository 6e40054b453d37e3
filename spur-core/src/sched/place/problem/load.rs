//! Caps per leaf where nodes bring unequal numbers of GPUs ([`LeafLoad`]).
//!
//! Where whole nodes are counted, a leaf can give the most nodes by giving those with the fewest GPUs. If all
//! its nodes have equally many GPUs, that number is all that matters. Otherwise, and where tasks are placed,
//! the GPUs are added up node by node.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::{Ask, LeafLoad};
use crate::sched::place::slots::View;

use super::{Problem, positions};

/// The caps of all leaves.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads<'a> {
    /// The most nodes of every leaf, by its number; `None` where tasks are placed, or where no leaf is
    /// limited.
    pub(super) caps: Option<Vec<u32>>,
    /// The GPUs of each node, where they have to be added up.
    each: Option<&'a LeafLoad>,
}

impl<'a> Loads<'a> {
    /// The caps on the open nodes; `by_nodes` as in [`Problem`].
    pub(super) fn of(view: &View<'_>, ask: &'a Ask, by_nodes: bool) -> Self {
        let Some(load) = &ask.leaf_load else { return Self::default() };
        let (mut add_up, mut is_any_limited) = (false, false);
        let most_nodes = |leaf: DomainId| {
            let open = positions(view.fabric.domain(leaf).range()).filter(|&pos| view.slots.at(pos) > 0);
            let loads: Vec<u32> = open.map(|pos| load.at(pos)).collect();
            let (all, are_alike) = (loads.len(), loads.windows(2).all(|pair| pair[0] == pair[1]));
            let fits = load.most_nodes(0, loads);
            if fits == all {
                return u32::MAX;
            }
            is_any_limited = true;
            add_up |= !by_nodes || !are_alike;
            u32::try_from(fits).unwrap_or(u32::MAX)
        };
        let caps: Vec<u32> = view.fabric.domains_of(Layer::LEAF).map(most_nodes).collect();
        Self { caps: (is_any_limited && by_nodes).then_some(caps), each: Some(load).filter(|_| add_up) }
    }

    /// True if no leaf is limited.
    pub(super) fn is_none(&self) -> bool {
        self.caps.is_none() && self.each.is_none()
    }
}

/// The fewest GPUs that `count` nodes bring, given the number of nodes for each number of GPUs. Returns more
/// than any limit if there are fewer nodes.
fn least_of(kinds: &BTreeMap<u32, usize>, count: usize) -> u64 {
    let (mut left, mut sum) = (count, 0);
    for (load, has) in kinds {
        let some = left.min(*has);
        (left, sum) = (left - some, sum + u64::from(*load) * some as u64);
    }
    if left == 0 { sum } else { u64::MAX / 2 }
}

impl Problem<'_> {
    /// True if GPUs have to be added up node by node.
    pub(crate) fn adds_up_loads(&self) -> bool {
        self.loads.each.is_some()
    }

    /// Number of GPUs of a node, where they have to be added up; otherwise 0.
    pub(crate) fn load_of(&self, pos: Pos) -> u32 {
        self.loads.each.map_or(0, |load| load.at(pos))
    }

    /// True if a leaf may give nodes with this many GPUs together.
    pub(crate) fn may_bring(&self, load: u32) -> bool {
        self.loads.each.is_none_or(|limit| limit.allows(load))
    }

    /// The largest amount of one leaf under all caps; a cap on nodes counts only where nodes are placed.
    pub(crate) fn leaf_cap(&self, leaf: DomainId) -> u32 {
        self.loads.caps.as_ref().map_or(self.leaf_cap, |caps| self.leaf_cap.min(caps[leaf.index()]))
    }

    /// Calls `see` with `count` nodes of a leaf: the first ones of `open`, or the first with which the cap on
    /// GPUs holds. The leaf must be able to give that many.
    pub(crate) fn first_allowed(
        &self,
        open: impl Iterator<Item = Pos> + Clone,
        count: usize,
        mut see: impl FnMut(Pos),
    ) {
        let Some(load) = self.loads.each else { return open.take(count).for_each(see) };
        // For each number of GPUs, the number of nodes behind the current one that have it.
        let mut behind: BTreeMap<u32, usize> = BTreeMap::new();
        open.clone().for_each(|pos| *behind.entry(load.at(pos)).or_default() += 1);
        let (mut left, mut room) = (count, u64::from(load.most));
        for pos in open {
            let own = load.at(pos);
            behind.entry(own).and_modify(|count| *count -= 1);
            if left == 0 {
                break;
            }
            let least = u64::from(own) + least_of(&behind, left - 1);
            if least <= room {
                (left, room) = (left - 1, room - u64::from(own));
                see(pos);
            }
        }
    }

    /// Keeps the leading nodes of a leaf that the caps allow.
    pub(crate) fn keep_allowed<T>(&self, leaf: DomainId, nodes: &mut Vec<T>, pos: impl Fn(&T) -> Pos) {
        if self.adds_up_loads() {
            let mut brought = 0_u32;
            nodes.retain(|node| {
                let sum = brought.saturating_add(self.load_of(pos(node)));
                let may = self.may_bring(sum);
                brought = if may { sum } else { brought };
                may
            });
        }
        nodes.truncate(self.leaf_nodes.unwrap_or(u32::MAX).min(self.leaf_cap(leaf)) as usize);
    }
}
