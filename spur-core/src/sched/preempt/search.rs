//! The cheapest victims within one domain: branch and bound over "does this job leave or stay".
//!
//! The search begins with a good set, then looks for a cheaper one wherever the bound in
//! [`cost`](super::cost) allows one. The result is exact unless the budget of the whole search for victims is
//! used up.

use crate::id::NodeId;
use crate::model::config::PreemptCost;
use crate::sched::place::{Placement, SharedBudget};

use super::cost::{ComparedLoss, Loss, Missing, Orders, Share, UNIT, least, likely};
use super::first_set::{self, RoomTrial};
use super::freed_fabric::{Clearing, FreedFabric};
use super::{Victim, plus};

/// Steps that placing the job once counts for, besides those of its placement.
pub(super) const PLACING: u64 = 16;

/// A set of jobs whose leaving makes the job fit in a domain.
#[derive(Clone, Debug)]
pub(super) struct VictimSet {
    /// The indices of the victims.
    pub(super) victims: Vec<usize>,
    pub(super) loss: Loss,
    /// The placement of the job after the victims have left.
    pub(super) placement: Placement,
}

/// One domain, and the jobs that may leave it.
pub(super) struct VictimSearch<'a> {
    freed: FreedFabric<'a>,
    victims: &'a [Victim],
    by: PreemptCost,
    /// The indices of the victims that hold something here. All other indices refer to this list, which is in
    /// the order of decisions.
    local: Vec<usize>,
    shares: Vec<Share>,
    orders: Orders,
    base: &'a [u32],
    /// Number of slots that are missing if every job stays.
    missing: u64,
    /// A lower bound on the loss.
    pub(super) bound: Option<Loss>,
}

/// The decision of the search about one job: it leaves, it stays, or nothing is decided yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lot {
    Open,
    Leaves,
    Stays,
}

impl<'a> VictimSearch<'a> {
    /// The search in one domain; `base` has the slots of every position if no job leaves, `local` the
    /// possible victims.
    pub(super) fn new(
        freed: FreedFabric<'a>,
        base: &'a [u32],
        victims: &'a [Victim],
        local: Vec<usize>,
        by: PreemptCost,
    ) -> Self {
        let shares = shares(&freed, base, victims, &local);
        let order = order(&shares, victims, &local, by);
        let local: Vec<usize> = order.iter().map(|at| local[*at]).collect();
        let shares: Vec<Share> = order.iter().map(|at| shares[*at]).collect();
        let orders = Orders::of(&shares);
        let missing = freed.missing(super::count(&base[freed.range()]));
        let mut search = Self { freed, victims, by, local, shares, orders, base, missing, bound: None };
        search.bound = search.least(missing, &[]);
        search
    }

    /// The number of jobs that may leave.
    pub(super) fn len(&self) -> usize {
        self.local.len()
    }

    pub(super) fn budget(&self) -> &'a SharedBudget {
        self.freed.budget
    }

    /// True if the job at a position of the search holds a node outside of the domain.
    pub(super) fn holds_outside(&self, at: usize) -> bool {
        let range = self.freed.range();
        self.victim(at)
            .held
            .iter()
            .any(|(node, _)| self.freed.fabric().pos(*node).is_none_or(|pos| !range.contains(&pos.index())))
    }

    pub(super) fn as_it_is(&self) -> Clearing<'a> {
        Clearing::new(self.freed, self.base)
    }

    pub(super) fn victim(&self, at: usize) -> &'a Victim {
        &self.victims[self.local[at]]
    }

    /// A lower bound on the further loss, given the decisions in `lots`, after which at least `missing` slots
    /// are missing. The job is known not to fit yet.
    ///
    /// If several jobs have to leave a node, each counts with its share of the node, also after the others
    /// have left. So the missing amount of whole nodes is the initial one less the shares of the jobs that
    /// leave.
    pub(super) fn least(&self, missing: u64, lots: &[Lot]) -> Option<Loss> {
        let missing = if self.freed.claimant.request.need.whole {
            let all = self.missing.saturating_mul(UNIT);
            let leave = || (0..lots.len()).filter(|index| lots[*index] == Lot::Leaves);
            Missing {
                gain: all.saturating_sub(leave().map(|index| self.shares[index].gain).sum()).max(1),
                worth: all.saturating_sub(leave().map(|index| self.shares[index].worth).sum()).max(1),
            }
        } else {
            let now = missing.saturating_mul(UNIT).max(1);
            Missing { gain: now, worth: now }
        };
        let is_open = |index: usize| lots.get(index).is_none_or(|lot| *lot == Lot::Open);
        least(&self.shares, &self.orders, self.by, missing, is_open)
    }

    /// The cheapest set that costs less than `limit`; `None` if there is none. If the budget is spent, a
    /// cheaper one may exist.
    pub(super) fn run(&self, limit: Option<ComparedLoss>) -> Option<VictimSet> {
        let order: Vec<usize> = (0..self.local.len()).collect();
        let (leaving, placed) = first_set::good(&mut InDomain { search: self }, &order)?;
        let first = self.found(&leaving, placed);
        let bound = self.bound.map(|bound| bound.price(self.by));
        let is_best = bound.is_some_and(|bound| first.loss.price(self.by) <= bound);
        let beaten = limit.is_some_and(|limit| bound.is_none_or(|bound| bound >= limit));
        let best = if is_best || beaten { first } else { self.better(first, limit) };
        limit.is_none_or(|limit| best.loss.price(self.by) < limit).then_some(best)
    }

    pub(super) fn found(&self, leaving: &[usize], placement: Placement) -> VictimSet {
        let loss = leaving.iter().fold(Loss::default(), |loss, at| loss.and(self.shares[*at].loss));
        let mut victims: Vec<usize> = leaving.iter().map(|at| self.local[*at]).collect();
        victims.sort_unstable();
        VictimSet { victims, loss, placement }
    }

    /// Looks for a cheaper set than the known one.
    fn better(&self, known: VictimSet, limit: Option<ComparedLoss>) -> VictimSet {
        let budget = self.freed.budget;
        let mut best = known;
        let mut target = best.loss.price(self.by);
        target = limit.map_or(target, |limit| limit.min(target));
        let mut lots = vec![Lot::Open; self.local.len()];
        let mut now = self.as_it_is();
        let mut most = self.as_it_is();
        (0..self.local.len()).for_each(|at| most.clear(self.victim(at)));
        let mut loss = vec![Loss::default()];
        let mut at = 0;
        let mut fresh = true;
        loop {
            let step = 1 + (self.local.len() - at) as u64 / 16 + if fresh { PLACING } else { 0 };
            budget.take(step);
            if budget.is_spent() {
                return best;
            }
            let here = *loss.last().expect("there is one for each decision and one before them");
            let fits = if fresh { now.place() } else { None };
            let goes_on = match fits {
                Some(placement) => {
                    if here.price(self.by) < target {
                        let leaving: Vec<usize> = (0..at).filter(|at| lots[*at] == Lot::Leaves).collect();
                        best = self.found(&leaving, placement);
                        target = here.price(self.by);
                    }
                    false
                }
                None => self
                    .least(now.missing(), &lots)
                    .is_some_and(|bound| here.and(bound).price(self.by) < target),
            };
            if goes_on && at < self.local.len() {
                lots[at] = Lot::Leaves;
                now.clear(self.victim(at));
                loss.push(here.and(self.shares[at].loss));
                (at, fresh) = (at + 1, true);
                continue;
            }
            // Backtracks to the last job that leaves; that job now stays.
            fresh = false;
            loop {
                if at == 0 {
                    return best;
                }
                at -= 1;
                loss.pop();
                if lots[at] == Lot::Leaves {
                    now.put_back(self.victim(at));
                    most.put_back(self.victim(at));
                    lots[at] = Lot::Stays;
                    let before = *loss.last().expect("as above");
                    loss.push(before);
                    at += 1;
                    if most.missing() == 0 {
                        break;
                    }
                } else {
                    most.clear(self.victim(at));
                    lots[at] = Lot::Open;
                }
            }
        }
    }
}

/// One domain in which room is made.
pub(super) struct InDomain<'s, 'a> {
    pub(super) search: &'s VictimSearch<'a>,
}

impl RoomTrial for InDomain<'_, '_> {
    type Seats = Placement;

    fn seats(&mut self, leaving: &[usize]) -> Option<Placement> {
        let mut clearing = self.search.as_it_is();
        leaving.iter().for_each(|at| clearing.clear(self.search.victim(*at)));
        clearing.place()
    }

    /// Jobs stay that hold nothing on the nodes of the placement. A job that wants whole leaves needs the
    /// rest of them, too, so all jobs leave then.
    fn spare(&self, leaving: &mut Vec<usize>, placement: &Placement) {
        let freed = &self.search.freed;
        if freed.claimant.wants_whole_leaves() {
            return;
        }
        let mut nodes: Vec<NodeId> =
            placement.shares.iter().map(|(pos, _)| freed.fabric().node(*pos)).collect();
        nodes.sort_unstable();
        let held = |at: &usize| self.search.victim(*at).held.iter();
        leaving.retain(|at| held(at).any(|(node, _)| nodes.binary_search(node).is_ok()));
    }

    fn goes_on(&mut self) -> bool {
        let budget = self.search.freed.budget;
        let goes_on = !budget.is_spent();
        budget.take(PLACING);
        goes_on
    }
}

/// The loss and the gain of each victim. On a node that is taken whole all jobs have to leave, so they share
/// its slot; elsewhere each of them may be decisive.
fn shares(freed: &FreedFabric<'_>, base: &[u32], victims: &[Victim], local: &[usize]) -> Vec<Share> {
    let mut shares: Vec<Share> =
        local.iter().map(|index| Share { loss: victims[*index].loss, gain: 0, worth: 0 }).collect();
    let range = freed.range();
    let mut on_node: std::collections::BTreeMap<NodeId, Vec<usize>> = std::collections::BTreeMap::new();
    for (at, index) in local.iter().enumerate() {
        for (node, _) in &victims[*index].held {
            on_node.entry(*node).or_default().push(at);
        }
    }
    let closes_leaves = freed.claimant.wants_whole_leaves();
    for (node, here) in on_node {
        let pos = freed.fabric().pos(node).filter(|pos| range.contains(&pos.index()));
        let Some(pos) = pos else { continue };
        let mut free = freed.free[node.index()].clone();
        for at in &here {
            let held = victims[local[*at]].held.iter().filter(|(on, _)| *on == node);
            held.for_each(|(_, held)| plus(&mut free, held));
        }
        let most = if freed.claimant.request.need.counts_nodes() { 1 } else { u32::MAX };
        let now = base[pos.index()].min(most);
        let gain = u64::from(freed.slots(node, &free).min(most).saturating_sub(now)) * UNIT;
        let work: u64 = here.iter().map(|at| shares[*at].loss.work).sum();
        let count = here.len() as u64;
        for at in &here {
            let share = &mut shares[*at];
            let (equal, by_work) = match (freed.claimant.request.need.whole, work) {
                (false, _) => (gain, gain),
                (true, 0) => (gain.div_ceil(count), gain.div_ceil(count)),
                (true, work) => {
                    let part = u128::from(gain) * u128::from(share.loss.work);
                    let part = part.div_ceil(u128::from(work));
                    (gain.div_ceil(count), u64::try_from(part).unwrap_or(gain))
                }
            };
            share.gain += equal;
            share.worth += by_work;
            if closes_leaves {
                (share.gain, share.worth) = (share.gain.max(1), share.worth.max(1));
            }
        }
    }
    shares
}

/// The order in which victims are decided: those first that a cheap set probably contains; of equals, jobs of
/// one node together, the youngest first.
fn order(shares: &[Share], victims: &[Victim], local: &[usize], by: PreemptCost) -> Vec<usize> {
    let mut order = Orders::of(shares).by_work;
    order.sort_by_key(|at| {
        let (share, victim) = (&shares[*at], &victims[local[*at]]);
        let ratio = match share.worth {
            0 => u128::MAX,
            worth => u128::from(share.loss.work) * u128::from(UNIT) / u128::from(worth),
        };
        let node = victim.held.first().map(|(node, _)| *node);
        (likely(by, share.loss.level, ratio, share.gain), node, std::cmp::Reverse(victim.attempt.job))
    });
    order
}
