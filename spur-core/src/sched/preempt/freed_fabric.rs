//! A part of the fabric with some jobs removed, to see whether a job would fit there.

use std::collections::BTreeMap;
use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::sched::inventory::Inventory;
use crate::sched::place::{self, Placement, SharedBudget, Slots, View};
use crate::sched::request::eligible_nodes::slots_by_position;

use super::{Amount, Claimant, Victim, minus, plus};

/// Number of positions whose counting takes as long as one step of a placement.
const POSITIONS_FOR_STEP: usize = 32;

/// The nodes and asks of a job, and the amounts that are free if no job leaves.
#[derive(Clone, Copy)]
pub(super) struct FreedFabric<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) claimant: &'a Claimant<'a>,
    /// The free amounts of every node.
    pub(super) free: &'a [Amount],
    /// The domain that is examined; `None` for all nodes.
    pub(super) domain: Option<DomainId>,
    /// The steps that are left for the whole search for victims.
    pub(super) budget: &'a SharedBudget,
}

impl FreedFabric<'_> {
    pub(super) fn fabric(&self) -> &Fabric {
        &self.claimant.eligible.fabric
    }

    /// Number of slots of a node with this free amount.
    pub(super) fn slots(&self, node: NodeId, free: &[i64]) -> u32 {
        if !self.claimant.may_use(self.inventory, node) {
            return 0;
        }
        self.claimant.request.need.slots(&self.inventory.nodes[node.index()].shape, &positive(free))
    }

    /// Number of missing slots, given the number of nodes and of slots.
    pub(super) fn missing(&self, (nodes, slots): (u64, u64)) -> u64 {
        let request = self.claimant.request;
        let nodes = u64::from(request.min_nodes()).saturating_sub(nodes);
        request.min_slots().saturating_sub(slots).max(nodes)
    }

    /// The positions that are examined.
    pub(super) fn range(&self) -> Range<usize> {
        self.domain.map_or(0..self.fabric().len(), |id| self.fabric().domain(id).range())
    }
}

/// The free amounts, with 0 where more was promised than there is.
pub(in crate::sched) fn positive(free: &[i64]) -> Box<[u64]> {
    free.iter().map(|amount| u64::try_from(*amount).unwrap_or(0)).collect()
}

/// The nodes of one domain while jobs are removed and put back.
pub(super) struct Clearing<'a> {
    freed: FreedFabric<'a>,
    slots: Slots,
    /// Free amounts of the nodes that differ from the initial ones.
    changed: BTreeMap<NodeId, Amount>,
}

impl<'a> Clearing<'a> {
    /// A domain without changes; `base` has the slots of every position of the fabric.
    pub(super) fn new(freed: FreedFabric<'a>, base: &[u32]) -> Self {
        let range = freed.range();
        freed.budget.take((base.len() / POSITIONS_FOR_STEP) as u64);
        let slots = (0..base.len()).map(|index| if range.contains(&index) { base[index] } else { 0 });
        let slots = slots_by_position(freed.fabric(), &freed.claimant.request.need, slots.collect());
        Self { freed, slots, changed: BTreeMap::new() }
    }

    /// Removes a job.
    pub(super) fn clear(&mut self, victim: &Victim) {
        self.shift(victim, plus);
    }

    /// Puts a job back.
    pub(super) fn put_back(&mut self, victim: &Victim) {
        self.shift(victim, minus);
    }

    fn shift(&mut self, victim: &Victim, shift: impl Fn(&mut Amount, &Amount)) {
        let range = self.freed.range();
        for (node, held) in &victim.held {
            let free = self.changed.entry(*node).or_insert_with(|| self.freed.free[node.index()].clone());
            shift(free, held);
            let pos = self.freed.fabric().pos(*node).filter(|pos| range.contains(&pos.index()));
            if let Some(pos) = pos {
                let slots = self.freed.slots(*node, free);
                self.slots.set(self.freed.fabric(), pos, slots);
            }
        }
    }

    /// Number of slots that the job lacks by count alone; even with 0 it may not fit.
    pub(super) fn missing(&self) -> u64 {
        self.freed.missing(match self.freed.domain {
            Some(id) => (u64::from(self.slots.nodes_of(id)), self.slots.of(id)),
            None => (self.slots.nodes() as u64, self.slots.total()),
        })
    }

    /// The placement of the job; `None` if it does not fit.
    pub(super) fn place(&self) -> Option<Placement> {
        if self.missing() > 0 {
            return None;
        }
        let occupied =
            self.freed.claimant.asks.iter().find_map(|ask| ask.minds_others(1)).map(|_| self.occupied());
        let (occupied, budget) = (occupied.as_ref(), Some(self.freed.budget));
        let view = View { occupied, budget, ..self.freed.claimant.eligible.view(&self.slots) };
        self.freed.claimant.asks.iter().find_map(|ask| place::place(&view, ask).ok())
    }

    /// Positions on which some job still is.
    fn occupied(&self) -> FixedBitSet {
        let fabric = self.freed.fabric();
        let somebody = |index: &usize| {
            let node = fabric.node(Pos::at(*index));
            let free = self.changed.get(&node).unwrap_or(&self.freed.free[node.index()]);
            *positive(free) != *self.freed.inventory.full(node)
        };
        let mut occupied = FixedBitSet::with_capacity(fabric.len());
        occupied.extend(self.freed.range().filter(somebody));
        occupied
    }
}
