//! The leaves of one domain that whole nodes are spread over best, where only counts matter.
//!
//! Gives what the general solver would: the fewest domains of each layer below the holder, from the top down (those
//! of preferred layers before all others), then the fewest slots in those used, and of equally good choices the one
//! whose nodes come first. One walk over the leaves from the last to the first, a knapsack on a tree: the least cost for
//! every number of nodes that can still be wanted and for every part of the way up that is in use already. Costs are packed
//! into one number, so that adding and comparing them is cheap.

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::special::knapsack_step::{KnapsackStep, Total};

use super::capacity::Rooms;

/// Numbers that one walk may work out where another solver may answer. Tests allow fewer, so that brute force on small
/// fabrics meets the other solver and the long walk too.
pub(super) const FEW: usize = if cfg!(test) { 1 << 5 } else { 1 << 14 };
/// Numbers that one walk may work out where no other solver answers.
pub(super) const MOST: usize = 1 << 24;
/// Numbers that are worked out in the time of one step of a search.
const AT_ONCE: usize = 1 << 7;
/// How costs are packed: bits of a span and of a number of slots, and the layers that are charged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing<'a> {
    prefer: &'a [Layer],
    /// Layers below the holder, `node` left out.
    layers: u32,
    span: u32,
    slots: u32,
}

impl<'a> Packing<'a> {
    /// How to pack costs of domains of that layer with no more than so many slots; None where they are too large.
    pub(super) fn new(problem: &'a Problem<'_>, holders: Layer, most_slots: u64) -> Option<Self> {
        let prefer = problem.layout.prefer.as_slice();
        let layers = u32::from(holders.0).saturating_sub(1);
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        let packing = Self { prefer, layers, span: bits(problem.amount.into()), slots: bits(most_slots) };
        // One bit is left so that nothing is taken for what cannot be done.
        (packing.bits() < u128::BITS).then_some(packing)
    }

    /// Bits of a cost.
    fn bits(&self) -> u32 {
        let spans = u32::try_from(self.prefer.len()).unwrap_or(u32::MAX).saturating_add(self.layers);
        spans.saturating_mul(self.span).saturating_add(self.layers.saturating_mul(self.slots))
    }

    /// What using a domain below the holder costs by itself.
    fn charge(&self, problem: &Problem<'_>, id: DomainId) -> u128 {
        let domain = problem.fabric.domain(id);
        let counts = |layer: Layer| (domain.layer()..=domain.cover()).contains(&layer);
        let below = || (1..=self.layers).rev().filter_map(|layer| u8::try_from(layer).ok()).map(Layer);
        let mut cost = 0_u128;
        for layer in self.prefer.iter().copied().chain(below()) {
            cost = cost << self.span | u128::from(counts(layer));
        }
        for layer in below() {
            cost = cost << self.slots | if counts(layer) { u128::from(problem.slots(id)) } else { 0 };
        }
        cost
    }
}

/// A leaf on the walk.
struct Stop {
    leaf: DomainId,
    room: u32,
    /// How many of the domains from the holder down to this leaf it shares with the leaf before it.
    shared: usize,
    /// What using it costs, where so many of the domains from the holder down are in use.
    costs: std::ops::Range<usize>,
    /// Least and most of the job that can still be wanted here.
    wanted: (usize, usize),
    /// Where the answers begin.
    answers: usize,
}

/// The leaves of a domain that may be used, in fabric order.
struct LeafKnapsack {
    stops: Vec<Stop>,
    costs: Vec<u128>,
    /// Most that is shared anywhere, and one more.
    depth: usize,
    /// How many answers there are in all.
    answers: usize,
}

impl LeafKnapsack {
    fn new(rooms: &Rooms<'_, '_>, holder: DomainId, leaves: &[DomainId], packing: &Packing<'_>) -> Self {
        let (problem, fabric) = (rooms.problem, rooms.problem.fabric);
        let (stops, costs) = (Vec::with_capacity(leaves.len()), Vec::with_capacity(2 * leaves.len()));
        let mut walk = Self { stops, costs, depth: 1, answers: 0 };
        let (mut before, mut path): (Vec<DomainId>, Vec<DomainId>) = (Vec::new(), Vec::new());
        for &leaf in leaves {
            path.clear();
            path.extend(
                std::iter::successors(Some(leaf), |&id| fabric.domain(id).parent())
                    .take_while(|&id| id != holder),
            );
            path.reverse();
            let shared = before.iter().zip(&path).take_while(|(one, other)| one == other).count();
            let first = walk.costs.len();
            let mut sum = 0;
            walk.costs.resize(first + path.len(), 0);
            for (at, id) in path.iter().enumerate().rev() {
                sum += packing.charge(problem, *id);
                walk.costs[first + at] = sum;
            }
            let costs = first..walk.costs.len();
            walk.stops.push(Stop { leaf, room: rooms.room(leaf), shared, costs, wanted: (0, 0), answers: 0 });
            walk.depth = walk.depth.max(shared + 1);
            std::mem::swap(&mut before, &mut path);
        }
        walk.bound(problem.amount as usize);
        walk
    }

    /// Finds what can still be wanted at each stop: no less than what those before cannot take, no more than what it
    /// and those after it can.
    fn bound(&mut self, amount: usize) {
        let mut before = 0;
        for stop in &mut self.stops {
            stop.wanted.0 = amount.saturating_sub(before);
            before += stop.room as usize;
        }
        let mut after = 0;
        for stop in self.stops.iter_mut().rev() {
            after += stop.room as usize;
            stop.wanted.1 = amount.min(after);
        }
        for stop in &mut self.stops {
            stop.answers = self.answers;
            let amounts = (stop.wanted.1 + 1).saturating_sub(stop.wanted.0);
            self.answers = self.answers.saturating_add((stop.shared + 1) * amounts);
        }
    }

    /// What is shared between the leaf at an index and the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stops.get(index + 1).map_or(0, |stop| stop.shared)
    }

    /// For every stop and everything that may be wanted there whether its leaf is used in the choice of the least cost;
    /// None where nothing holds the job. Costs fit the type they are added up in.
    fn uses_from_the_end<T: Total>(&self, amount: usize, narrow: impl Fn(u128) -> T) -> Option<Vec<bool>> {
        let width = amount + 1;
        // By what is in use and what is wanted: the least cost of all leaves from some one on.
        let mut after = vec![T::NEVER; self.depth * width];
        let mut here = after.clone();
        let mut uses = vec![false; self.answers];
        after.iter_mut().step_by(width).for_each(|done| *done = T::NOTHING);
        // Of nothing but what those after can take is anything known.
        let mut most_after = 0;
        for (index, stop) in self.stops.iter().enumerate().rev() {
            let next = self.shared_after(index);
            let (least, most) = stop.wanted;
            let amounts = (most + 1).saturating_sub(least);
            let mut answer = stop.answers;
            for (used, &cost) in self.costs[stop.costs.clone()].iter().enumerate().take(stop.shared + 1) {
                let (row, skipped, taken) = (used * width, used.min(next) * width, next * width);
                if most > most_after {
                    after[skipped + most_after + 1..=skipped + most].fill(T::NEVER);
                }
                let step = KnapsackStep {
                    skips: &after[skipped + least..skipped + least + amounts],
                    taken: Some(&after[taken..taken + width]),
                    takes: stop.room as usize,
                    least,
                    price: narrow(cost),
                };
                let outcome = &mut here[row + least..row + least + amounts];
                step.choose(outcome, &mut uses[answer..answer + amounts], false);
                answer += amounts;
            }
            most_after = most;
            std::mem::swap(&mut here, &mut after);
        }
        (amount <= most_after && after[amount] != T::NEVER).then_some(uses)
    }

    /// The leaves that are used, and how much of the job each takes.
    fn follow(&self, uses: &[bool], amount: u32) -> Vec<(DomainId, u32)> {
        let (mut left, mut used) = (amount, 0);
        let mut shares = Vec::new();
        for (index, stop) in self.stops.iter().enumerate() {
            let next = self.shared_after(index);
            let (least, most) = stop.wanted;
            if uses[stop.answers + used * (most - least + 1) + left as usize - least] {
                let part = stop.room.min(left);
                shares.push((stop.leaf, part));
                left -= part;
                used = next;
            }
            used = used.min(next);
        }
        shares
    }
}

/// The leaves of a domain that holds a job over which it is spread best, in fabric order, and how many nodes each gives; None
/// where more than so many numbers have to be worked out.
pub(super) fn spread(
    rooms: &Rooms<'_, '_>,
    holder: DomainId,
    packing: &Packing<'_>,
    limit: usize,
) -> Option<Vec<(DomainId, u32)>> {
    let amount = rooms.problem.amount;
    let walk = LeafKnapsack::new(rooms, holder, &rooms.below(holder, Layer::LEAF), packing);
    let most = walk.answers.max(walk.depth.checked_mul(amount as usize + 1)?);
    if most > limit || !rooms.problem.meter.take(most / AT_ONCE) {
        return None;
    }
    let uses = if packing.bits() < u64::BITS {
        let narrow = |cost| u64::try_from(cost).unwrap_or(u64::MAX);
        walk.uses_from_the_end(amount as usize, narrow)?
    } else {
        walk.uses_from_the_end::<u128>(amount as usize, |cost| cost)?
    };
    Some(walk.follow(&uses, amount))
}
