//! What domains can take of a job and what slots they have for it, after rounding and caps.

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::slots::Takes;

use super::{Problem, gcd, positions};

impl<'a> Problem<'a> {
    /// Counts what is not in the slots as they are: rounding, caps and barred domains.
    pub(super) fn measure(&mut self) {
        if self.barred.is_some() || !self.ask.multiples.is_empty() {
            self.rounded = Some(self.round());
        }
        let units = self.units.iter().all(|&unit| unit == 1) && self.limits.is_empty();
        let plain = self.rounded.is_none() && self.leaf_cap == u32::MAX && units;
        let same = self.per_node.is_none_or(|each| each == 1) && self.ask.max_tasks_per_node.is_none();
        if !plain || !same {
            self.capacity = Some(self.count_capacity());
        }
    }

    /// The most of the amount that one node can take.
    pub(in crate::sched::place) fn most_on(&self, pos: Pos) -> u32 {
        let slots = self.view.slots.at(pos).min(self.ask.max_tasks_per_node.unwrap_or(u32::MAX));
        self.per_node.map_or(slots - slots % self.units[0], |each| u32::from(slots >= each))
    }

    /// What the nodes take, where nothing rounds it and all of them may be used.
    pub(in crate::sched::place) fn takes(&self) -> Option<Takes<'a>> {
        let most = self.ask.max_tasks_per_node.unwrap_or(u32::MAX);
        let plain = self.only.is_none() && self.units[0] == 1 && self.per_node != Some(0);
        plain.then(|| Takes::new(self.fabric, self.view, most, self.per_node)).flatten()
    }

    fn count_capacity(&self) -> Vec<u32> {
        let takes = self.takes();
        let is_each_open = self.per_node == Some(1) && self.only.is_none() && self.units[0] == 1;
        let mut capacity: Vec<u32> = Vec::with_capacity(self.fabric.domains().size_hint().0);
        for (id, domain) in self.fabric.domains() {
            let unit = self.unit(domain.cover());
            let sum = if self.is_barred(id) {
                0
            } else if domain.children().is_empty() {
                let one_by_one = || {
                    let usable = positions(domain.range()).filter(|&pos| self.may_use(pos));
                    usable.fold(0, |sum: u32, pos| sum.saturating_add(self.most_on(pos)))
                };
                let all = || takes.map_or_else(one_by_one, |all| all.room(domain.range()));
                // Every open node takes one.
                let open = || if is_each_open { Some(self.view.slots.nodes_of(id)) } else { None };
                open().unwrap_or_else(all).min(self.leaf_cap)
            } else {
                domain
                    .children()
                    .iter()
                    .fold(0, |sum: u32, child| sum.saturating_add(capacity[child.index()]))
            };
            let sum = sum.min(self.limit(id));
            capacity.push(sum - sum % unit);
        }
        capacity
    }

    /// The most a domain can take: never less than what is possible, often exactly that.
    #[inline]
    pub(in crate::sched::place) fn capacity(&self, id: DomainId) -> u32 {
        match (&self.capacity, self.per_node) {
            (Some(capacity), _) => capacity[id.index()],
            (None, Some(_)) => self.view.slots.nodes_of(id),
            (None, None) => u32::try_from(self.view.slots.of(id)).unwrap_or(u32::MAX),
        }
    }

    /// Slots of a domain, for waste.
    pub(in crate::sched::place) fn slots(&self, id: DomainId) -> u64 {
        match &self.rounded {
            Some(rounded) => rounded.of(self, id),
            None => self.view.slots.of(id),
        }
    }

    /// Compares the slots of two domains of one layer and of their ancestors, from the bottom up.
    pub(in crate::sched::place) fn by_waste(&self, one: DomainId, other: DomainId) -> Ordering {
        let own = self.slots(one).cmp(&self.slots(other));
        if own.is_ne() {
            return own;
        }
        let slots = |id: DomainId, layer| self.slots(self.fabric.covering(id, layer));
        (self.fabric.domain(one).layer().0 + 1..=self.fabric.top().0)
            .map(Layer)
            .map(|layer| slots(one, layer).cmp(&slots(other, layer)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Slots of a node, for waste.
    pub(in crate::sched::place) fn slots_of_node(&self, pos: Pos) -> u64 {
        let slots = u64::from(self.view.slots.at(pos));
        slots - slots % self.node_multiple()
    }

    /// The nodes of a leaf in the order in which they are shared: those with the fewest slots first.
    pub(in crate::sched::place) fn fullest_first(&self, leaf: DomainId) -> Vec<(u64, Pos)> {
        let least = self.per_node.unwrap_or(1).max(1);
        let nodes =
            positions(self.fabric.domain(leaf).range()).filter(|&pos| self.view.slots.at(pos) >= least);
        let mut nodes: Vec<(u64, Pos)> = nodes.map(|pos| (self.slots_of_node(pos), pos)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The slots of none of these nodes, of the first, of the first two, and so on.
    pub(in crate::sched::place) fn slots_of_fullest(&self, leaf: DomainId) -> Vec<u64> {
        let mut sum = 0;
        let rest = self.fullest_first(leaf).into_iter().map(|(slots, _)| {
            sum += slots;
            sum
        });
        std::iter::once(0).chain(rest).collect()
    }

    /// What each piece of a part of the fabric can take: its domains that count for a layer, or its nodes.
    pub(in crate::sched::place) fn pieces(&self, part: DomainId, layer: Layer, out: &mut Vec<u32>) {
        let domain = self.fabric.domain(part);
        if self.is_barred(part) {
            return;
        }
        if domain.layer() <= layer {
            out.push(self.room(part));
        } else if domain.children().is_empty() {
            out.extend(positions(domain.range()).map(|pos| self.most_on(pos)));
        } else {
            domain.children().iter().for_each(|&child| self.pieces(child, layer, out));
        }
    }

    /// The most that one piece can take, a leaf where nodes are alike and a node otherwise: the room that a placement
    /// of the fewest pieces leaves is smaller than that.
    pub(in crate::sched::place) fn largest_piece(&self) -> u32 {
        *self.largest_piece.get_or_init(|| {
            if self.nodes_are_alike() {
                self.fabric.domains_of(Layer::LEAF).map(|leaf| self.room(leaf)).max().unwrap_or(0)
            } else {
                self.view.slots.iter().map(|(pos, _)| self.most_on(pos)).max().unwrap_or(0)
            }
        })
    }

    /// The fewest members of a domain, nodes or domains, that can take the whole job.
    pub(in crate::sched::place) fn fewest_members(&self, id: DomainId) -> usize {
        let domain = self.fabric.domain(id);
        let mut takes: Vec<u32> = match domain.children() {
            [] => positions(domain.range()).map(|pos| self.most_on(pos)).collect(),
            children => children.iter().map(|&child| self.room(child)).collect(),
        };
        takes.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0_u32;
        let reached = |takes: &u32| {
            sum = sum.saturating_add(*takes);
            sum >= self.amount
        };
        takes.iter().position(reached).unwrap_or(usize::MAX)
    }

    /// What a leaf can take of the job as a part of a larger domain; 0 where it may not be used.
    #[inline]
    pub(in crate::sched::place) fn room(&self, leaf: DomainId) -> u32 {
        if self.is_barred(leaf) { 0 } else { self.capacity(leaf) }
    }

    /// The most one leaf may take, after the caps; a cap on nodes counts only where nodes are placed.
    pub(in crate::sched::place) fn leaf_cap(&self) -> u32 {
        self.leaf_cap
    }

    pub(super) fn node_multiple(&self) -> u64 {
        let at_node = self.ask.multiples.iter().filter(|(layer, _)| *layer == Layer::NODE);
        at_node.fold(1, |known, &(_, by)| known / gcd(known, by.into()) * u64::from(by.max(1)))
    }
}
