//! The best leaves of one domain, by a dynamic programme from the last leaf to the first. The state is the
//! number still wanted of each kind and in all, and the part of the path that is already in use.

use std::collections::BTreeMap;

use crate::model::fabric::DomainId;
use crate::sched::place::answer::Missed;
use crate::sched::place::problem::position;
use crate::sched::place::special::tree_knapsack::{Price, PriceScale, Total};

use super::kind_counts::KindCounts;

/// The largest number of table entries for one question; larger ones are not tried.
const MOST: usize = 1 << 24;
/// Number of table entries that take as long as one step of a search.
const AT_ONCE: usize = 1 << 7;

/// The numbers that are still wanted, from 0 to what the job needs: for each needed kind, and in all if the
/// job needs further nodes.
struct WantedCounts {
    /// For each entry, its index among the kinds and the number that is needed.
    needs: Vec<(usize, u32)>,
    /// Number of states.
    states: usize,
}

impl WantedCounts {
    fn new(needs: &[u32], amount: u32) -> Option<Self> {
        let rest = amount.checked_sub(needs.iter().sum())?;
        let all = (needs.len(), if rest > 0 { amount } else { 0 });
        let needs: Vec<(usize, u32)> =
            needs.iter().copied().enumerate().chain([all]).filter(|(_, need)| *need > 0).collect();
        let states = needs.iter().try_fold(1_usize, |all, (_, need)| all.checked_mul(*need as usize + 1))?;
        Some(Self { needs, states })
    }

    /// The number of wanted nodes of each entry that a leaf gives.
    fn given(&self, nodes: &[u32]) -> Vec<u32> {
        self.needs.iter().map(|&(number, need)| nodes[number].min(need)).collect()
    }

    /// For every state, the state that is left after giving the numbers.
    fn left(&self, given: &[u32]) -> Vec<u32> {
        let mut left: Vec<u32> = vec![0];
        for (&(_, need), given) in self.needs.iter().zip(given) {
            let width = need + 1;
            let more = (0..width).map(|wanted| wanted.saturating_sub(*given));
            left =
                left.iter().flat_map(|&before| more.clone().map(move |own| before * width + own)).collect();
        }
        left
    }

    /// The largest useful number of leaves that each give these numbers.
    fn most_alike(&self, given: &[u32]) -> u32 {
        let each = self.needs.iter().zip(given).filter(|(_, given)| **given > 0);
        each.map(|((_, need), given)| need.div_ceil(*given)).max().unwrap_or(0)
    }
}

/// A leaf in the dynamic programme.
struct LeafStage {
    leaf: DomainId,
    /// The index in `Programme::given` of the numbers that the leaf gives.
    given: usize,
    /// Number of domains, from below the holder to this leaf, that it shares with the leaf before.
    shared: usize,
    /// The cost of using the leaf, by the number of those domains that are already in use.
    costs: Vec<Price>,
}

/// The leaves of a domain that may be used, in fabric order.
pub(super) struct Programme {
    holder: DomainId,
    wanted: WantedCounts,
    stages: Vec<LeafStage>,
    /// The distinct numbers that leaves give.
    given: Vec<Vec<u32>>,
    /// The largest number of shared domains, plus one.
    depth: usize,
    /// Number of bits of the tail of a cost, and of a whole cost.
    bits: (u32, u32),
}

/// The best leaves in each of several domains that hold the job, in fabric order.
pub(super) fn best_leaves(
    counts: &KindCounts<'_, '_>,
    holders: &[DomainId],
) -> Result<Vec<Vec<DomainId>>, Missed> {
    let walks: Option<Vec<Programme>> =
        holders.iter().map(|&holder| Programme::new(counts, holder)).collect();
    let walks = walks.ok_or(Missed::UNKNOWN)?;
    let numbers = walks.iter().fold(0, |sum: usize, walk| sum.saturating_add(walk.numbers()));
    if numbers > MOST || !counts.problem.meter.take(numbers / AT_ONCE) {
        return Err(Missed::UNKNOWN);
    }
    let best = |walk: &Programme| match walk.bits {
        (_, all) if all < u64::BITS => walk.best::<u64>(),
        _ => walk.best::<Price>(),
    };
    walks.iter().map(|walk| best(walk).ok_or(Missed::NONE)).collect()
}

impl Programme {
    /// The programme for one holder; `None` if numbers would overflow.
    fn new(counts: &KindCounts<'_, '_>, holder: DomainId) -> Option<Self> {
        let (problem, fabric) = (counts.problem, counts.problem.fabric);
        let wanted = WantedCounts::new(&counts.needs, problem.amount)?;
        let scale = PriceScale::of_leaves(problem, fabric.domain(holder).layer(), problem.slots(holder))?;
        let bits = scale.bits();
        let mut walk = Self { holder, wanted, stages: Vec::new(), given: Vec::new(), depth: 1, bits };
        if fabric.domain(holder).children().is_empty() {
            return Some(walk);
        }
        let mut known: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let mut used: Vec<(DomainId, usize)> = Vec::new();
        // Of identical leaves with one parent the first few suffice.
        let mut seen: BTreeMap<(Option<DomainId>, usize, u64), u32> = BTreeMap::new();
        for leaf in problem.leaves_below(holder, |_| true) {
            let given = walk.wanted.given(counts.of(leaf));
            if given.iter().all(|given| *given == 0) {
                continue;
            }
            let (next, most) = (known.len(), walk.wanted.most_alike(&given));
            let number = *known.entry(given).or_insert_with_key(|given| {
                walk.given.push(given.clone());
                next
            });
            let like = (fabric.domain(leaf).parent(), number, problem.slots(leaf));
            let count = seen.entry(like).or_default();
            *count += 1;
            if *count > most {
                continue;
            }
            used.push((leaf, number));
        }
        let starts = used.iter().map(|(leaf, _)| position(fabric.domain(*leaf).range().start));
        let mut next = used.iter();
        scale.along(problem, holder, starts, |shared, costs| {
            let Some(&(leaf, given)) = next.next() else { return };
            walk.depth = walk.depth.max(shared + 1);
            walk.stages.push(LeafStage { leaf, given, shared, costs: costs.collect() });
        });
        Some(walk)
    }

    /// Number of table entries to compute.
    fn numbers(&self) -> usize {
        let steps: usize = self.stages.iter().map(|stage| stage.shared + 1).sum();
        (steps + self.depth + self.given.len()).saturating_mul(self.wanted.states)
    }

    /// The leaves of the smallest cost; `None` if no leaves hold the job.
    fn best<P: Total>(&self) -> Option<Vec<DomainId>> {
        if self.stages.is_empty() {
            return Some(vec![self.holder]);
        }
        let states = self.wanted.states;
        let left: Vec<Vec<u32>> = self.given.iter().map(|given| self.wanted.left(given)).collect();
        let mut after = vec![P::NEVER; self.depth * states];
        after.iter_mut().step_by(states).for_each(|done| *done = P::NOTHING);
        let mut here = after.clone();
        // For each stage, by the domains in use and by the state: true if the leaf is used.
        let mut uses: Vec<Vec<bool>> = Vec::with_capacity(self.stages.len());
        for (index, stage) in self.stages.iter().enumerate().rev() {
            let next = self.shared_after(index);
            let left = &left[stage.given];
            let mut own = vec![false; (stage.shared + 1) * states];
            for used in 0..=stage.shared {
                let skips = &after[used.min(next) * states..][..states];
                let taken = &after[next * states..][..states];
                let outcome = &mut here[used * states..][..states];
                let own = &mut own[used * states..][..states];
                let cost = P::pack(stage.costs[used], self.bits.0);
                // In state 0 nothing is wanted, so no leaf is used.
                for (wanted, &rest) in left.iter().enumerate().skip(1) {
                    let take = taken[rest as usize].plus(cost);
                    own[wanted] = take <= skips[wanted] && take != P::NEVER;
                    outcome[wanted] = take.min(skips[wanted]);
                }
                outcome[0] = skips[0];
            }
            uses.push(own);
            std::mem::swap(&mut here, &mut after);
        }
        uses.reverse();
        (after[states - 1] != P::NEVER).then(|| self.follow(&uses, &left))
    }

    /// Number of domains that the leaf at an index shares with the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stages.get(index + 1).map_or(0, |stage| stage.shared)
    }

    fn follow(&self, uses: &[Vec<bool>], left: &[Vec<u32>]) -> Vec<DomainId> {
        let states = self.wanted.states;
        let (mut wanted, mut used) = (states - 1, 0);
        let mut leaves = Vec::new();
        for (index, (stage, uses)) in self.stages.iter().zip(uses).enumerate() {
            let next = self.shared_after(index);
            if uses[used * states + wanted] {
                leaves.push(stage.leaf);
                wanted = left[stage.given][wanted] as usize;
                used = next;
            }
            used = used.min(next);
        }
        leaves
    }
}
