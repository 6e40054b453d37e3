//! The capacity of domains for a job of whole nodes: all open nodes, or only the lightest.

use std::borrow::Cow;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;
use crate::sched::place::slots::{bottom_up, count_both, narrow};
use crate::sched::place::special::fewest::largest;

/// The capacity of every domain for a job of whole nodes.
pub(super) struct Rooms<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    /// The most nodes of each domain that the job may have.
    by_domain: Cow<'p, [u32]>,
    /// The lightest nodes, where all others are left out; `None` if all nodes count.
    pub(super) lightest: Option<&'a FixedBitSet>,
}

impl<'p, 'a> Rooms<'p, 'a> {
    /// Counts open nodes, only the lightest where weights differ. `None` if the lightest are not kept as a
    /// set, or if the problem does not count nodes.
    pub(super) fn new(problem: &'p Problem<'a>) -> Option<Self> {
        match problem.view.weights {
            Some(weights) if problem.layout.weights > 0 => {
                let nodes = weights.set_of(problem.lightest?)?;
                Some(Self { problem, by_domain: count(problem, nodes).into(), lightest: Some(nodes) })
            }
            _ => Some(Self { problem, by_domain: problem.rooms()?.into(), lightest: None }),
        }
    }

    /// The most nodes of a domain that the job may have.
    #[inline]
    pub(super) fn room(&self, id: DomainId) -> u32 {
        self.by_domain[id.index()]
    }

    /// True if `domains` domains of a layer cannot hold the job, wherever they are.
    pub(super) fn are_too_few(&self, layer: Layer, domains: u32) -> bool {
        let Problem { fabric, amount, .. } = *self.problem;
        let covers = |id: &DomainId| fabric.domain(*id).cover() >= layer;
        let lower = (Layer::LEAF.0..layer.0).flat_map(|below| fabric.domains_of(Layer(below))).filter(covers);
        let mut rooms: Vec<u32> = fabric.domains_of(layer).chain(lower).map(|id| self.room(id)).collect();
        let most = rooms.iter().fold(0, |most, &room| most.max(room));
        // In most cases not even the largest possible sum reaches the amount.
        u64::from(most) * u64::from(domains) < u64::from(amount)
            || largest(&mut rooms, amount.into()).is_none_or(|(fewest, _)| fewest > domains.into())
    }

    /// The domains of a layer that can hold the job, in fabric order.
    pub(super) fn holders(&self, layer: Layer) -> Vec<DomainId> {
        let mut holders = Vec::new();
        self.each_holder(layer, |id| holders.push(id));
        holders
    }

    /// The domains of a layer that can hold the job and have the fewest slots.
    pub(super) fn tightest_holders(&self, layer: Layer) -> Vec<DomainId> {
        let (mut tightest, mut least) = (Vec::new(), u64::MAX);
        self.each_holder(layer, |id| {
            if self.problem.no_fewer_slots(id) > least {
                return;
            }
            let slots = self.problem.slots(id);
            if slots < least {
                tightest.clear();
                least = slots;
            }
            if slots == least {
                tightest.push(id);
            }
        });
        tightest
    }

    /// Calls `see` with the domains of a layer that can hold the job, in fabric order.
    pub(super) fn each_holder(&self, layer: Layer, mut see: impl FnMut(DomainId)) {
        let Problem { fabric, amount, .. } = *self.problem;
        fabric.each_with(layer, &self.by_domain, amount, |id| {
            if self.problem.is_inside(id) {
                see(id);
            }
        });
    }

    /// Calls `see` with the domains within `part` that count for a layer and have capacity, in fabric order,
    /// and their capacity; `part` itself may be one of them.
    pub(super) fn each_below(&self, part: DomainId, layer: Layer, mut see: impl FnMut(DomainId, u32)) {
        if self.room(part) > 0 {
            self.show_below(part, layer, &mut see);
        }
    }

    fn show_below(&self, part: DomainId, layer: Layer, see: &mut impl FnMut(DomainId, u32)) {
        let fabric = self.problem.fabric;
        let domain = fabric.domain(part);
        if domain.layer() <= layer {
            see(part, self.room(part));
            return;
        }
        let children = domain.children();
        // Among siblings with adjacent numbers the last is of the highest layer.
        let is_next = |last: &DomainId| fabric.domain(*last).layer() <= layer;
        match domain.row().filter(|_| children.last().is_some_and(is_next)) {
            Some(row) => {
                let all = children.iter().zip(&self.by_domain[row]);
                all.filter(|(_, room)| **room > 0).for_each(|(&child, &room)| see(child, room));
            }
            None => {
                let open = children.iter().filter(|&&child| self.room(child) > 0);
                open.for_each(|&child| self.show_below(child, layer, see));
            }
        }
    }

    /// The amount of every leaf of a domain if the job needs all of the domain's capacity; otherwise `None`.
    pub(super) fn all_of(&self, holder: DomainId) -> Option<Vec<(DomainId, u32)>> {
        let amount = self.problem.amount;
        if self.room(holder) != amount {
            return None;
        }
        let mut shares: Vec<(DomainId, u32)> = Vec::new();
        self.each_below(holder, Layer::LEAF, |leaf, room| shares.push((leaf, room)));
        (shares.iter().map(|(_, room)| room).sum::<u32>() == amount).then_some(shares)
    }

    /// Calls `see` with `count` nodes of a leaf that the job may have, in fabric order: the first ones, or,
    /// where nodes are shared, those with the fewest slots.
    pub(super) fn take_of(&self, leaf: DomainId, count: usize, see: impl FnMut(Pos)) {
        if self.problem.shares_nodes() {
            self.problem.each_of_fullest(leaf, count, see);
        } else {
            self.problem.first_allowed(self.nodes_of(leaf), count, see);
        }
    }

    /// The nodes of a leaf that the job may have, in fabric order.
    #[inline]
    fn nodes_of(&self, leaf: DomainId) -> impl Iterator<Item = Pos> + Clone {
        let is_light = |index| self.lightest.is_none_or(|lightest| lightest.contains(index));
        self.problem.open_nodes(leaf).filter(move |pos| is_light(pos.index()))
    }
}

/// Number of open nodes of a set in every domain.
fn count(problem: &Problem<'_>, nodes: &FixedBitSet) -> Vec<u32> {
    let open = problem.view.slots.open();
    bottom_up(problem.fabric, |id, domain, below| match below {
        _ if problem.is_barred(id) => 0,
        None => count_both(open, nodes, domain.range()),
        Some(sum) => narrow(sum),
    })
}
