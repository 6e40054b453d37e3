//! Leaves whose nodes bring unequally much of what one leaf may give only so much of ([`LeafLoad`]).
//!
//! Where whole nodes are counted, a leaf gives the more of them the less each brings: its nodes with the least, as many as
//! are within the limit, are the most it can give. Where all its nodes bring the same that says everything; otherwise, and
//! where tasks are placed, what is brought has to be added up node by node.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::{Ask, LeafLoad};
use crate::sched::place::slots::View;

use super::{Problem, positions};

/// What limits on unequal nodes come to.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads<'a> {
    /// The most nodes of every leaf, by its number; None where tasks are placed, or where no leaf is limited.
    pub(super) caps: Option<Vec<u32>>,
    /// What nodes bring, where that has to be added up.
    each: Option<&'a LeafLoad>,
}

impl<'a> Loads<'a> {
    /// What the limits come to on the open nodes; `by_nodes` as in [`Problem`].
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

    /// Whether no leaf is limited.
    pub(super) fn is_none(&self) -> bool {
        self.caps.is_none() && self.each.is_none()
    }
}

/// The least that so many nodes bring, of which there are so many of each kind; more than any limit where there are fewer.
fn least_of(kinds: &BTreeMap<u32, usize>, count: usize) -> u64 {
    let (mut left, mut sum) = (count, 0);
    for (load, has) in kinds {
        let some = left.min(*has);
        (left, sum) = (left - some, sum + u64::from(*load) * some as u64);
    }
    if left == 0 { sum } else { u64::MAX / 2 }
}

impl Problem<'_> {
    /// Whether what nodes bring has to be added up.
    pub(crate) fn adds_up_loads(&self) -> bool {
        self.loads.each.is_some()
    }

    /// What a node brings, where it has to be added up.
    pub(crate) fn load_of(&self, pos: Pos) -> u32 {
        self.loads.each.map_or(0, |load| load.at(pos))
    }

    /// Whether a leaf may give nodes that bring so much.
    pub(crate) fn may_bring(&self, load: u32) -> bool {
        self.loads.each.is_none_or(|limit| limit.allows(load))
    }

    /// The most one leaf may take, after the caps; a cap on nodes counts only where nodes are placed.
    pub(crate) fn leaf_cap(&self, leaf: DomainId) -> u32 {
        self.loads.caps.as_ref().map_or(self.leaf_cap, |caps| self.leaf_cap.min(caps[leaf.index()]))
    }

    /// Shows so many nodes of a leaf, which may give as many: the first of `open`, or the first with which that is so.
    pub(crate) fn first_allowed(
        &self,
        open: impl Iterator<Item = Pos> + Clone,
        count: usize,
        mut see: impl FnMut(Pos),
    ) {
        let Some(load) = self.loads.each else { return open.take(count).for_each(see) };
        // What those behind a node bring, and how many bring as much.
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

    /// Keeps of the nodes of a leaf, from the first, as many as it may give.
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
