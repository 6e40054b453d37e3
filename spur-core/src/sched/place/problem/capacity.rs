//! The amounts that domains can take of a job and the slots that they have for it, after rounding and caps.

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::slots::{Takes, bottom_up, narrow};

use super::rounding::Rounded;
use super::{Problem, added_up, gcd, positions, reach};

impl<'a> Problem<'a> {
    /// Computes the numbers that plain slots do not give: rounding, caps and barred domains.
    pub(super) fn measure(&mut self) {
        if self.barred.is_some() || !self.ask.multiples.is_empty() {
            self.rounded = self.round();
        }
        let units = self.units.iter().all(|&unit| unit == 1) && self.limits.is_empty();
        let plain = matches!(self.rounded, Rounded::Not)
            && self.leaf_cap == u32::MAX
            && self.loads.caps.is_none()
            && units;
        let same = self.ask.max_tasks_per_node.is_none();
        if !plain || !same {
            self.capacity = Some(self.count_capacity());
        }
    }

    /// The largest amount that one node can take.
    pub(crate) fn most_on(&self, pos: Pos) -> u32 {
        let slots = self.view.slots.at(pos).min(self.ask.max_tasks_per_node.unwrap_or(u32::MAX));
        if self.by_nodes { slots.min(1) } else { slots - slots % self.units[0] }
    }

    /// The amounts that the nodes take; `None` where nodes are rounded or confined, and where [`Takes::new`]
    /// returns `None`.
    pub(crate) fn takes(&self) -> Option<Takes<'a>> {
        let most = if self.by_nodes { 1 } else { self.ask.max_tasks_per_node.unwrap_or(u32::MAX) };
        let plain = self.only.is_none() && self.units[0] == 1;
        plain.then(|| Takes::new(self.view, most)).flatten()
    }

    fn count_capacity(&self) -> Vec<u32> {
        let takes = self.takes();
        let is_each_open = self.by_nodes && self.only.is_none() && self.units[0] == 1;
        if is_each_open && self.barred.is_none() && self.limits.is_empty() {
            return self.count_open();
        }
        bottom_up(self.fabric, |id, domain, below| {
            let one_by_one = || {
                let usable = positions(domain.range()).filter(|&pos| self.may_use(pos));
                narrow(usable.map(|pos| u64::from(self.most_on(pos))).sum())
            };
            let room = match (below, takes) {
                _ if self.is_barred(id) => 0,
                (Some(sum), _) => narrow(sum),
                // Every open node takes one unit.
                (None, _) if is_each_open => self.view.slots.nodes_of(id).min(self.leaf_cap(id)),
                (None, takes) => {
                    takes.map_or_else(one_by_one, |all| all.room(domain.range())).min(self.leaf_cap(id))
                }
            };
            let room = room.min(self.limit(id));
            room - room % self.unit(domain.cover())
        })
    }

    /// The capacity of every domain where each open node takes one unit.
    fn count_open(&self) -> Vec<u32> {
        let mut capacity = self.view.slots.nodes_by_number().to_vec();
        let leaves = self.fabric.domains_of(Layer::LEAF);
        let (cap, units) = (self.leaf_cap, &self.units[Layer::LEAF.index()..]);
        if let Some(caps) = &self.loads.caps {
            capacity.iter_mut().zip(caps).for_each(|(room, cap)| *room = (*room).min(*cap));
        }
        let same = units.first().filter(|unit| units.iter().all(|other| other == *unit));
        if let Some(unit) = same {
            capacity[..leaves.len()].iter_mut().for_each(|room| *room = (*room).min(cap) / unit * unit);
        } else {
            for id in leaves {
                let (room, unit) = (&mut capacity[id.index()], self.unit(self.fabric.domain(id).cover()));
                *room = (*room).min(cap) / unit * unit;
            }
        }
        for (id, domain, row) in self.fabric.inner() {
            let sum: u32 = match row {
                Some(row) => capacity[row].iter().sum(),
                None => domain.children().iter().map(|child| capacity[child.index()]).sum(),
            };
            capacity[id.index()] = sum - sum % self.unit(domain.cover());
        }
        capacity
    }

    /// An upper bound on the amount that a domain can take, often exact.
    #[inline]
    pub(crate) fn capacity(&self, id: DomainId) -> u32 {
        match (&self.capacity, self.by_nodes) {
            (Some(capacity), _) => capacity[id.index()],
            (None, true) => self.view.slots.nodes_of(id),
            (None, false) => u32::try_from(self.view.slots.of(id)).unwrap_or(u32::MAX),
        }
    }

    /// Number of slots of a domain that count for waste.
    pub(crate) fn slots(&self, id: DomainId) -> u64 {
        self.rounded.of(self, id)
    }

    /// A lower bound on the slots of a domain, faster to compute where slots are rounded.
    pub(crate) fn no_fewer_slots(&self, id: DomainId) -> u64 {
        self.rounded.no_fewer(self, id)
    }

    /// Keeps only the domains with the fewest slots.
    pub(crate) fn keep_fewest_slots(&self, domains: &mut Vec<DomainId>) {
        self.rounded.keep_fewest(self, domains);
    }

    /// Compares the slots of two domains of one layer and of their ancestors, from the bottom up.
    pub(crate) fn by_waste(&self, one: DomainId, other: DomainId) -> Ordering {
        let layers = (self.fabric.domain(one).layer().0..=self.fabric.top().0).map(Layer);
        let slots = |id| layers.clone().map(move |layer| self.slots(self.fabric.covering(id, layer)));
        slots(one).cmp(slots(other))
    }

    /// Number of slots of a node that count for waste.
    pub(crate) fn slots_of_node(&self, pos: Pos) -> u64 {
        let slots = u64::from(self.view.slots.at(pos));
        slots - slots % self.node_multiple()
    }

    /// Calls `see` with the slots and the position of each node of a leaf that has slots, in fabric order.
    fn each_shared_node(&self, leaf: DomainId, mut see: impl FnMut(u64, Pos)) {
        let range = self.fabric.domain(leaf).range();
        match (self.view.slots.small_tasks(), self.node_multiple()) {
            (Some(small), 1) => {
                let all = small[range.clone()].iter().map(|&has| u32::from(has)).zip(positions(range));
                all.filter(|(has, _)| *has > 0).for_each(|(has, pos)| see(has.into(), pos));
            }
            (_, by) => {
                let all = positions(range).map(|pos| (self.view.slots.at(pos), pos));
                all.filter(|(has, _)| *has > 0).for_each(|(has, pos)| see(u64::from(has) / by * by, pos));
            }
        }
    }

    /// The slots of the nodes of a leaf that may be shared, in fabric order.
    fn slots_of_shared(&self, leaf: DomainId) -> Vec<u64> {
        let mut slots = Vec::with_capacity(self.view.slots.nodes_of(leaf) as usize + 1);
        self.each_shared_node(leaf, |has, _| slots.push(has));
        slots
    }

    /// Calls `see` with the `count` nodes of a leaf that have the fewest slots, in fabric order.
    pub(crate) fn each_of_fullest(&self, leaf: DomainId, count: usize, mut see: impl FnMut(Pos)) {
        let mut slots = self.slots_of_shared(leaf);
        if count >= slots.len() {
            return self.each_shared_node(leaf, |_, pos| see(pos));
        }
        let (last, mut like_it) = last_of_smallest(&mut slots, count);
        self.each_shared_node(leaf, |has, pos| {
            let is_like_it = has == last && like_it > 0;
            like_it -= usize::from(is_like_it);
            if has < last || is_like_it {
                see(pos);
            }
        });
    }

    /// Prefix sums of the slots of a leaf's nodes, sorted ascending: entry `k` is the sum of the `k`
    /// smallest.
    pub(crate) fn slots_of_fullest(&self, leaf: DomainId) -> Vec<u64> {
        let mut slots = self.slots_of_shared(leaf);
        slots.sort_unstable();
        added_up(slots.into_iter())
    }

    /// The fewest members of a domain, nodes or domains, that can take the whole job.
    pub(crate) fn fewest_members(&self, id: DomainId) -> usize {
        let domain = self.fabric.domain(id);
        let mut takes: Vec<u32> = match domain.children() {
            [] => positions(domain.range()).map(|pos| self.most_on(pos)).collect(),
            children => children.iter().map(|&child| self.room(child)).collect(),
        };
        takes.sort_unstable_by(|a, b| b.cmp(a));
        reach(takes, self.amount.into()).unwrap_or(usize::MAX)
    }

    /// The amount that a leaf can take of a job as a part of a larger domain; 0 if the leaf may not be used.
    #[inline]
    pub(crate) fn room(&self, leaf: DomainId) -> u32 {
        if self.is_barred(leaf) { 0 } else { self.capacity(leaf) }
    }

    /// The amount that every domain can take, by its number; `None` where tasks are placed and capacities are
    /// plain sums.
    pub(crate) fn rooms(&self) -> Option<&[u32]> {
        // A domain that may not be used has capacity 0.
        self.capacity.as_deref().or_else(|| self.by_nodes.then(|| self.view.slots.nodes_by_number()))
    }

    pub(super) fn node_multiple(&self) -> u64 {
        let at_node = self.ask.multiples.iter().filter(|(layer, _)| *layer == Layer::NODE);
        at_node.fold(1, |known, &(_, by)| known / gcd(known, by.into()) * u64::from(by.max(1)))
    }
}

/// The largest of the `count` smallest numbers, and how many of these equal it.
fn last_of_smallest(numbers: &mut [u64], count: usize) -> (u64, usize) {
    let Some(at) = count.checked_sub(1) else { return (0, 0) };
    let (smaller, last, _) = numbers.select_nth_unstable(at);
    (*last, count - smaller.iter().filter(|number| *number < last).count())
}
