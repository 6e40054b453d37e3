//! The cheapest victims for several jobs that start together: the components of a het job.
//!
//! The search that places components together decides, over all nodes at once, whether a set of victims is
//! enough. It keeps the constraints of each component and of `--het-gather`. The search begins with a good
//! set, then looks for a cheaper one by branch and bound over "does this job leave or stay". The result is
//! exact unless the budget is used up, which is that of the first component.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::config::PreemptCost;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{CPUS, RoomId, Rooms};
use crate::sched::place::SharedBudget;
use crate::sched::request::eligible_nodes::positions_where;
use crate::sched::together::{Member, Nearness, Seat, is_sure, place_together};

use super::cost::{ComparedLoss, Loss, likely};
use super::first_set::{RoomTrial, good};
use super::freed_fabric::positive;
use super::{Amount, Choice, Claimant, Victim, add, minus, plus, signed};

/// The least number of steps of one test whether all components fit.
const ASKING: u64 = 16;

/// The components, and the jobs that may leave for them.
pub(super) struct Group<'a> {
    inventory: &'a Inventory,
    claimants: &'a [Claimant<'a>],
    near: &'a Nearness,
    /// The free amounts of every node if no job leaves.
    free: &'a [Amount],
    victims: &'a [Victim],
    by: PreemptCost,
    rooms: Rooms,
    /// For each component and node, the amount there if no job leaves.
    base: Vec<Vec<Option<RoomId>>>,
    budget: u64,
    /// The steps that are left for the whole search for victims.
    shared: &'a SharedBudget,
    exact: bool,
}

impl<'a> Group<'a> {
    pub(super) fn new(
        inventory: &'a Inventory,
        claimants: &'a [Claimant<'a>],
        near: &'a Nearness,
        (free, victims, by): (&'a [Amount], &'a [Victim], PreemptCost),
        shared: &'a SharedBudget,
    ) -> Self {
        let asks = claimants.first().map_or(&[][..], |claimant| claimant.asks);
        let budget = asks.iter().map(|ask| ask.budget).max().unwrap_or(0);
        let (rooms, base) = (inventory.rooms.clone(), Vec::with_capacity(claimants.len()));
        let mut group =
            Self { inventory, claimants, near, free, victims, by, rooms, base, budget, shared, exact: true };
        for claimant in claimants {
            let nodes = (0..).map(NodeId).zip(free);
            let base = nodes.map(|(node, free)| group.room(claimant, node, free)).collect();
            group.base.push(base);
        }
        group
    }

    /// The amount that a component has on a node with this free amount; `None` if it may not run there.
    fn room(&mut self, claimant: &Claimant<'_>, node: NodeId, free: &[i64]) -> Option<RoomId> {
        let class = self.inventory.nodes[node.index()].class;
        claimant.may_use(self.inventory, node).then(|| self.rooms.intern(class, &positive(free)))
    }

    /// The cheapest set of victims among `may`.
    pub(super) fn cheapest(mut self, may: &[usize]) -> Option<Choice> {
        if let Some(seats) = self.seats(&[]) {
            return Some(Choice { victims: Vec::new(), loss: Loss::default(), seats, exact: true });
        }
        let order = self.order(may);
        let (leaving, seats) = good(&mut self, &order)?;
        let mut best = self.found(&leaving, seats);
        self.branch(&order, &mut Vec::new(), Loss::default(), &mut best);
        best.victims.sort_unstable();
        Some(Choice { exact: self.exact, ..best })
    }

    /// Positions on which some job still is if `leaving` leave. A suspended job still occupies its nodes.
    fn occupied(
        &self,
        claimant: &Claimant<'_>,
        leaving: &[usize],
        cleared: &BTreeMap<NodeId, Amount>,
    ) -> FixedBitSet {
        let staying = leaving.iter().map(|index| &self.victims[*index]).filter(|victim| victim.stays);
        let suspended: BTreeSet<NodeId> =
            staying.flat_map(|victim| victim.held.iter().map(|(node, _)| *node)).collect();
        positions_where(&claimant.eligible.fabric, |node| {
            let free = cleared.get(&node).unwrap_or(&self.free[node.index()]);
            suspended.contains(&node) || *positive(free) != *self.inventory.full(node)
        })
    }

    /// The jobs that hold something where a component may run, those first that a cheap set probably
    /// contains; of equals, jobs of one node together, the youngest first.
    fn order(&self, may: &[usize]) -> Vec<usize> {
        let admits = |node: &NodeId| {
            self.claimants.iter().any(|claimant| claimant.eligible.admitted.contains(node.index()))
        };
        let held = |index: &usize| self.victims[*index].held.iter().filter(|(node, _)| admits(node));
        let mut order: Vec<usize> =
            may.iter().copied().filter(|index| held(index).next().is_some()).collect();
        order.sort_by_cached_key(|index| {
            let Victim { loss, attempt, .. } = &self.victims[*index];
            let cpus: i64 = held(index).map(|(_, held)| held[CPUS]).sum();
            let gain = u64::try_from(cpus).unwrap_or(0);
            let ratio = u128::from(loss.work) * 1_000 / u128::from(gain.max(1));
            let place = (held(index).next().map(|(node, _)| *node), Reverse(attempt.job));
            (likely(self.by, loss.level, ratio, gain), place)
        });
        order
    }

    fn found(&self, leaving: &[usize], seats: Vec<Seat>) -> Choice {
        let loss = leaving.iter().fold(Loss::default(), |loss, index| loss.and(self.victims[*index].loss));
        Choice { victims: leaving.to_vec(), loss, seats, exact: self.exact }
    }

    /// Decides about the jobs in order, given those in `leaving`, which are not enough. Keeps the cheapest
    /// sufficient set.
    fn branch(&mut self, order: &[usize], leaving: &mut Vec<usize>, loss: Loss, best: &mut Choice) {
        let by = self.by;
        let price = |loss: Loss| -> ComparedLoss { loss.price(by) };
        let Some((first, rest)) = order.split_first() else { return };
        if !self.goes_on() {
            self.exact = false;
            return;
        }
        let with = loss.and(self.victims[*first].loss);
        if price(with) < price(best.loss) {
            leaving.push(*first);
            match self.seats(leaving) {
                Some(seats) => *best = self.found(leaving, seats),
                None => self.branch(rest, leaving, with, best),
            }
            leaving.pop();
        }
        // Any later victim costs something, too.
        let cheapest = rest.iter().map(|index| self.victims[*index].loss.and(loss).price(self.by)).min();
        if cheapest.is_some_and(|cheapest| cheapest < best.loss.price(self.by)) {
            let all: Vec<usize> = leaving.iter().chain(rest).copied().collect();
            if self.seats(&all).is_some() {
                self.branch(rest, leaving, loss, best);
            }
        }
    }
}

impl RoomTrial for Group<'_> {
    /// The nodes of every component.
    type Seats = Vec<Seat>;

    fn seats(&mut self, leaving: &[usize]) -> Option<Vec<Seat>> {
        let mut cleared: BTreeMap<NodeId, Amount> = BTreeMap::new();
        for (node, held) in leaving.iter().flat_map(|index| &self.victims[*index].held) {
            plus(cleared.entry(*node).or_insert_with(|| self.free[node.index()].clone()), held);
        }
        let mut members = Vec::with_capacity(self.claimants.len());
        for (at, claimant) in self.claimants.iter().enumerate() {
            let mut rooms = self.base[at].clone();
            for (node, free) in &cleared {
                rooms[node.index()] = self.room(claimant, *node, free);
            }
            let minds = claimant.asks.iter().any(|ask| ask.minds_others(1).is_some());
            let occupied = minds.then(|| self.occupied(claimant, leaving, &cleared));
            let (eligible, need) = (&**claimant.eligible, &claimant.request.need);
            members.push(Member { eligible, need, asks: claimant.asks, rooms, occupied });
        }
        let mut left = self.budget;
        let found = place_together(
            self.inventory,
            &mut self.rooms,
            &members,
            self.near,
            (&mut left, Some(self.shared)),
        );
        self.budget = left.min(self.budget.saturating_sub(ASKING));
        self.exact &= is_sure(&found);
        found.ok()
    }

    /// The most expensive victims stay first.
    fn spare(&self, leaving: &mut Vec<usize>, seats: &Vec<Seat>) {
        let mut left = self.free.to_vec();
        leaving.iter().for_each(|index| add(&mut left, &self.victims[*index].held));
        let parts = || seats.iter().flat_map(|seat| &seat.parts);
        parts().for_each(|part| minus(&mut left[part.node.index()], &signed(&part.taken)));
        let used: FixedBitSet = parts().map(|part| part.node.index()).collect();
        for victim in leaving.clone().into_iter().rev() {
            let held = &self.victims[victim].held;
            let may_stay = held.iter().filter(|(node, _)| used.contains(node.index())).all(|(node, held)| {
                left[node.index()].iter().zip(held).all(|(left, held)| left >= held || *held == 0)
            });
            if may_stay {
                held.iter().for_each(|(node, held)| minus(&mut left[node.index()], held));
                leaving.retain(|other| *other != victim);
            }
        }
    }

    /// Steps are counted where they are taken.
    fn goes_on(&mut self) -> bool {
        self.budget > 0 && !self.shared.is_spent()
    }
}
