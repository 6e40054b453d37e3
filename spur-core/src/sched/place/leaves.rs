//! The leaves of one domain that whole nodes are spread over best, where only counts matter.
//!
//! Gives what the general solver would: the fewest domains of each layer below the holder, from the top down (those
//! of preferred layers before all others), then the fewest slots in those used, and of equally good choices the one
//! whose nodes come first. One walk over the leaves from the last to the first, with the least cost for every number
//! of nodes that is still wanted and for every part of the way up that is in use already. Costs are packed into one
//! number, so that adding and comparing them is cheap.

use crate::model::fabric::{DomainId, Layer};

use super::problem::Problem;

/// Numbers that one walk may work out, beyond which the general solver is quicker.
const MOST: usize = 1 << 18;
/// What cannot be done.
const NEVER: u128 = u128::MAX;

/// The best way to spread a job over the leaves of a domain.
pub(super) struct Spread {
    /// Spans, packed: smaller is better.
    pub(super) spans: u128,
    /// Slots of the domains used, packed: smaller is better.
    pub(super) slots: u128,
    /// The leaves in fabric order, and how many nodes each gives.
    pub(super) shares: Vec<(DomainId, u32)>,
}

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
        let spans = u32::try_from(prefer.len()).ok()? + layers;
        // One bit is left so that nothing is taken for what cannot be done.
        (spans * packing.span + layers * packing.slots < u128::BITS).then_some(packing)
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

    /// The spans and the slots of a cost.
    fn split(&self, cost: u128) -> (u128, u128) {
        let bits = self.layers * self.slots;
        (cost >> bits, cost & ((1 << bits) - 1))
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
}

/// The leaves of a domain that have room, in fabric order.
struct Walk {
    stops: Vec<Stop>,
    costs: Vec<u128>,
    /// Most that is shared anywhere, and one more.
    depth: usize,
}

impl Walk {
    fn new(problem: &Problem<'_>, holder: DomainId, packing: &Packing<'_>) -> Self {
        let fabric = problem.fabric;
        let mut walk = Self { stops: Vec::new(), costs: Vec::new(), depth: 1 };
        let (mut before, mut path): (Vec<DomainId>, Vec<DomainId>) = (Vec::new(), Vec::new());
        // Branches without room are not entered.
        let mut ahead = vec![holder];
        while let Some(id) = ahead.pop() {
            if id != holder && problem.room(id) == 0 {
                continue;
            }
            let children = fabric.domain(id).children();
            if !children.is_empty() {
                ahead.extend(children.iter().rev());
                continue;
            }
            path.clear();
            path.extend(
                std::iter::successors(Some(id), |&id| fabric.domain(id).parent())
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
            walk.stops.push(Stop { leaf: id, room: problem.room(id), shared, costs });
            walk.depth = walk.depth.max(shared + 1);
            std::mem::swap(&mut before, &mut path);
        }
        walk
    }

    /// What is shared between the leaf at an index and the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stops.get(index + 1).map_or(0, |stop| stop.shared)
    }
}

/// Spreads a job over the leaves of a domain that can hold it; None where the numbers are too large.
pub(super) fn spread(problem: &Problem<'_>, holder: DomainId, packing: &Packing<'_>) -> Option<Spread> {
    let walk = Walk::new(problem, holder, packing);
    let wanted = problem.amount as usize;
    let (width, stops) = (wanted + 1, walk.stops.len());
    if stops.checked_mul(walk.depth)?.checked_mul(width)? > MOST {
        return None;
    }
    // By what is in use and what is wanted: the least cost of all leaves from some one on, and whether to use that.
    let mut after = vec![NEVER; walk.depth * width];
    let mut here = after.clone();
    let mut uses = vec![false; stops * walk.depth * width];
    after.iter_mut().step_by(width).for_each(|done| *done = 0);
    for (index, stop) in walk.stops.iter().enumerate().rev() {
        let next = walk.shared_after(index);
        let costs = &walk.costs[stop.costs.clone()];
        for (used, &cost) in costs.iter().enumerate().take(stop.shared + 1) {
            let (row, skipped, taken) = (used * width, used.min(next) * width, next * width);
            for left in 0..width {
                let skip = after[skipped + left];
                let take = after[taken + left.saturating_sub(stop.room as usize)].saturating_add(cost);
                let take_it = left > 0 && take != NEVER && take <= skip;
                here[row + left] = if take_it { take } else { skip };
                uses[index * walk.depth * width + row + left] = take_it;
            }
        }
        std::mem::swap(&mut here, &mut after);
    }
    let best = after[wanted];
    if best == NEVER {
        return None;
    }
    let (spans, slots) = packing.split(best);
    let (mut left, mut used) = (problem.amount, 0);
    let mut shares = Vec::new();
    for (index, stop) in walk.stops.iter().enumerate() {
        let next = walk.shared_after(index);
        if uses[(index * walk.depth + used) * width + left as usize] {
            let part = stop.room.min(left);
            shares.push((stop.leaf, part));
            left -= part;
            used = next;
        }
        used = used.min(next);
    }
    Some(Spread { spans, slots, shares })
}
