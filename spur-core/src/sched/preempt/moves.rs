//! The search for jobs that move out of one domain: the search for victims of one job under one more
//! condition.
//!
//! [`visit`] goes through sets of jobs that make room in a domain when they leave, and offers each set to a
//! [`MoveGoal`]. A set that the goal refuses may be extended by jobs that also hold nodes outside of the
//! domain, because these make room there.

use crate::model::config::PreemptCost;
use crate::model::fabric::DomainId;
use crate::model::fabric::Pos;
use crate::sched::inventory::Inventory;
use crate::sched::place::{Placement, SharedBudget};

use super::cost::Loss;
use super::first_set;
use super::freed_fabric::{Clearing, FreedFabric};
use super::search::{InDomain, Lot, PLACING, VictimSearch};
use super::{Amount, Claimant, Victim};

/// The largest number of jobs outside of a domain that are considered for a move. Those that lose least come
/// first.
const MOST_OTHERS: usize = 256;

/// The request, and the jobs that may move for it.
pub(in crate::sched) struct MoveSite<'a> {
    pub(in crate::sched) inventory: &'a Inventory,
    pub(in crate::sched) claimant: &'a Claimant<'a>,
    /// By node: the amount that is free without any move.
    pub(in crate::sched) free: &'a [Amount],
    pub(in crate::sched) movable: &'a [Victim],
    pub(in crate::sched) budget: &'a SharedBudget,
}

/// Jobs that make room for the request in a domain when they leave.
pub(in crate::sched) struct MoveSet<'s> {
    pub(in crate::sched) domain: DomainId,
    /// The jobs, as indices into those that may move.
    pub(in crate::sched) jobs: &'s [usize],
    pub(in crate::sched) loss: Loss,
    /// The placement of the request in the domain.
    pub(in crate::sched) placement: &'s Placement,
}

/// The further condition on a set of moves.
pub(in crate::sched) trait MoveGoal {
    /// Offers a set. Returns false if the set does not meet the condition and may do so with more jobs. The
    /// goal keeps the best set.
    fn meets(&mut self, set: &MoveSet<'_>) -> bool;

    /// True if a set that loses no less than `loss` may be better than the best one so far.
    fn is_worth(&self, loss: Loss) -> bool;
}

/// The outcome of [`visit`].
pub(in crate::sched) enum Visited {
    /// The request fits in a domain without any move.
    Fits(DomainId, Placement),
    /// Sets of moves were visited. `complete` is false if jobs were left out or the budget was spent.
    Moves { complete: bool },
}

/// Goes through sets of moves, domain by domain in ascending order of the lower bound of the loss.
pub(in crate::sched) fn visit(site: &MoveSite<'_>, domains: &[DomainId], goal: &mut dyn MoveGoal) -> Visited {
    let MoveSite { inventory, claimant, free, movable, budget } = *site;
    let whole = FreedFabric { inventory, claimant, free, domain: None, budget };
    let fabric = whole.fabric();
    let positions = (0..fabric.len()).map(|index| fabric.node(Pos::at(index)));
    let base: Vec<u32> = positions.map(|node| whole.slots(node, &free[node.index()])).collect();
    for domain in domains {
        let freed = FreedFabric { domain: Some(*domain), ..whole };
        if let Some(placement) = Clearing::new(freed, &base).place() {
            return Visited::Fits(*domain, placement);
        }
    }
    let mut complete = true;
    let mut searches = Vec::new();
    for domain in domains {
        let freed = FreedFabric { domain: Some(*domain), ..whole };
        let range = freed.range();
        let is_inside = |victim: &Victim| {
            victim
                .held
                .iter()
                .any(|(node, _)| fabric.pos(*node).is_some_and(|pos| range.contains(&pos.index())))
        };
        let (mut local, mut others): (Vec<usize>, Vec<usize>) =
            (0..movable.len()).partition(|index| is_inside(&movable[*index]));
        if local.is_empty() {
            continue;
        }
        others.sort_by_key(|index| (movable[*index].loss.work, *index));
        complete &= others.len() <= MOST_OTHERS;
        others.truncate(MOST_OTHERS);
        local.extend(others);
        let search = VictimSearch::new(freed, &base, movable, local, PreemptCost::Work);
        if let Some(bound) = search.bound {
            searches.push((bound.price(PreemptCost::Work), range.start, *domain, bound, search));
        }
    }
    searches.sort_by_key(|(price, start, ..)| (*price, *start));
    for (.., domain, bound, search) in &searches {
        if goal.is_worth(*bound) {
            Walk::new(search, *domain, goal).run();
        }
    }
    Visited::Moves { complete: complete && !budget.is_spent() }
}

/// Branch and bound over "does this job move or stay" in one domain.
struct Walk<'w, 'a> {
    search: &'w VictimSearch<'a>,
    domain: DomainId,
    goal: &'w mut dyn MoveGoal,
    lots: Vec<Lot>,
    /// Positions in the order of the search of the jobs that move.
    moving: Vec<usize>,
    /// The domain after the jobs in `moving` have left.
    now: Clearing<'a>,
    /// The domain after the jobs in `moving` and all undecided jobs have left.
    most: Clearing<'a>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(search: &'w VictimSearch<'a>, domain: DomainId, goal: &'w mut dyn MoveGoal) -> Self {
        let count = search.len();
        let mut most = search.as_it_is();
        (0..count).for_each(|at| most.clear(search.victim(at)));
        let lots = vec![Lot::Open; count];
        Self { search, domain, goal, lots, moving: Vec::new(), now: search.as_it_is(), most }
    }

    /// Offers a good set first, then goes through all sets that may be better.
    fn run(mut self) {
        let order: Vec<usize> = (0..self.search.len()).collect();
        let Some((moving, placement)) = first_set::good(&mut InDomain { search: self.search }, &order) else {
            return;
        };
        self.offer(&moving, &placement);
        self.branch(0, Loss::default(), false);
    }

    fn offer(&mut self, moving: &[usize], placement: &Placement) -> bool {
        let set = self.search.found(moving, placement.clone());
        let found = MoveSet { domain: self.domain, jobs: &set.victims, loss: set.loss, placement };
        self.goal.meets(&found)
    }

    /// Branches on the job at a position and all jobs after it. `fits`: the jobs that move make room enough,
    /// but the goal refused them as they are.
    fn branch(&mut self, at: usize, loss: Loss, fits: bool) {
        let count = self.search.len();
        let budget = self.search.budget();
        budget.take(1 + (count - at) as u64 / 16 + PLACING);
        if at == count || budget.is_spent() {
            return;
        }
        let victim = self.search.victim(at);
        let with = loss.and(victim.loss);
        // If the domain has room enough, only room elsewhere helps.
        if (!fits || self.search.holds_outside(at)) && self.goal.is_worth(with) {
            self.lots[at] = Lot::Leaves;
            self.moving.push(at);
            self.now.clear(victim);
            match self.now.place() {
                Some(placement) => {
                    let moving = self.moving.clone();
                    if !self.offer(&moving, &placement) {
                        self.branch(at + 1, with, true);
                    }
                }
                None => self.go_on(at + 1, with),
            }
            self.now.put_back(victim);
            self.moving.pop();
        }
        self.lots[at] = Lot::Stays;
        self.most.put_back(victim);
        match fits {
            true => self.branch(at + 1, loss, true),
            false if self.most.missing() == 0 => self.go_on(at + 1, loss),
            false => {}
        }
        self.most.clear(victim);
        self.lots[at] = Lot::Open;
    }

    /// Branches further while there is too little room, if the lower bound of the loss may still beat the
    /// best set.
    fn go_on(&mut self, at: usize, loss: Loss) {
        let more = self.search.least(self.now.missing(), &self.lots);
        if more.is_some_and(|more| self.goal.is_worth(loss.and(more))) {
            self.branch(at, loss, false);
        }
    }
}
