//! The leaves of one domain that whole nodes are spread over best, where only counts matter.
//!
//! Gives what the general solver would: the fewest domains of each layer below the holder, from the top down (those
//! of preferred layers before all others), then the fewest slots in those used, and of equally good choices the one
//! whose nodes come first. Leaves that cannot belong to it are left out (see [`Sieve`]); then one walk over the
//! others from the last to the first, with the least cost for every number of nodes that can still be wanted and for
//! every part of the way up that is in use already. Costs are packed into one number, so that adding and comparing
//! them is cheap.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::short::choice::NoChoice;
use crate::sched::place::short::sieve::{Parts, Sieve, fewest_of};
use crate::sched::place::short::spend::{Prices, Used, choose};
use crate::sched::place::short::step::{Step, Total};

use super::super::standing::order;
use super::rooms::Rooms;
use super::shared_out;

/// Numbers that one walk may work out, beyond which the general solver is quicker.
const MOST: usize = 1 << 24;
/// Numbers that are worked out in the time of one step of a search.
const AT_ONCE: usize = 1 << 7;
/// Numbers that one walk over all leaves works out in less time than it takes to find out which can be left out.
/// Tests of small fabrics look for it anyway.
const FEW: usize = if cfg!(test) { 1 << 4 } else { 1 << 12 };
/// Pieces that room is made for at once.
const MANY: usize = 1 << 12;

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
struct Walk {
    stops: Vec<Stop>,
    costs: Vec<u128>,
    /// Most that is shared anywhere, and one more.
    depth: usize,
    /// How many answers there are in all.
    answers: usize,
}

impl Walk {
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
                let step = Step {
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
/// where the numbers are too large.
pub(super) fn spread(
    rooms: &Rooms<'_, '_>,
    holder: DomainId,
    packing: &Packing<'_>,
) -> Option<Vec<(DomainId, u32)>> {
    let amount = rooms.problem.amount;
    let sift = Sift { rooms, holder };
    if rooms.problem.shares_nodes() {
        return sift.shares();
    }
    let leaves = match sift.leaves(packing) {
        Leaves::Best(leaves) => {
            return Some(shared_out(amount, leaves.into_iter().map(|leaf| (leaf, rooms.room(leaf)))));
        }
        Leaves::Open(leaves) => leaves,
    };
    let walk = Walk::new(rooms, holder, &leaves, packing);
    let most = walk.answers.max(walk.depth.checked_mul(amount as usize + 1)?);
    if most > MOST || !rooms.problem.meter.take(most / AT_ONCE) {
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

/// Leaves out what cannot belong to the best way to spread a job over a domain.
pub(super) struct Sift<'s, 'p, 'a> {
    pub(super) rooms: &'s Rooms<'p, 'a>,
    pub(super) holder: DomainId,
}

/// What leaving out comes to.
enum Leaves {
    /// These are used.
    Best(Vec<DomainId>),
    /// Only these may be.
    Open(Vec<DomainId>),
}

/// The domains of two layers below the holder.
#[derive(Default)]
pub(super) struct Members {
    pub(super) parts: Vec<DomainId>,
    /// What the parts consist of, part after part.
    pub(super) pieces: Vec<DomainId>,
    /// What the pieces have room for, in units.
    pub(super) sizes: Parts,
}

impl Members {
    pub(super) fn piece(&self, part: usize, piece: usize) -> DomainId {
        self.pieces[self.sizes.start(part) + piece]
    }

    /// The best choice of some of the parts; None where that is not told soon.
    pub(super) fn cheapest(
        &self,
        sieve: &Sieve,
        admitted: &[usize],
        prices: &impl Prices,
    ) -> Option<Vec<Used>> {
        let mut fewer = sieve.of_fewer_parts(&self.sizes);
        let found = fewer.find_map(|sieve| match choose(&self.sizes, &sieve, admitted, prices) {
            Err(NoChoice::Nowhere) => None,
            found => Some(found),
        });
        let known = || choose(&self.sizes, &sieve.of_known_parts(), admitted, prices);
        found.unwrap_or_else(known).ok()
    }

    pub(super) fn sieve(&self, amount: u32, are_parts_first: bool) -> Option<Sieve> {
        if are_parts_first {
            Sieve::new(&self.sizes, amount)
        } else {
            Sieve::of_fewest_pieces(&self.sizes, amount)
        }
    }
}

/// Fewer slots of parts are better, then fewer of pieces.
struct BySlots<'s, 'a> {
    problem: &'s Problem<'a>,
    members: &'s Members,
    bits: u32,
}

impl Prices for BySlots<'_, '_> {
    fn of_part(&self, part: usize) -> u64 {
        self.problem.slots(self.members.parts[part]) << self.bits
    }

    fn of_piece(&self, part: usize, piece: usize, _: usize) -> u64 {
        self.problem.slots(self.members.piece(part, piece))
    }
}

/// A part of the fabric that may be used.
struct Part {
    id: DomainId,
    /// What may be used of it.
    pieces: Vec<DomainId>,
    /// No more parts like it are used.
    most: usize,
}

/// What tells parts of one domain apart: its layers, what it has room for, and its slots; domain by domain.
type Likeness = Vec<(Layer, Layer, u32, u64)>;

impl Sift<'_, '_, '_> {
    /// The leaves of the best way, or those that may belong to it, in fabric order.
    fn leaves(&self, packing: &Packing<'_>) -> Leaves {
        let amount = self.rooms.problem.amount;
        let are_few = |leaves: &[DomainId]| leaves.len().saturating_mul(amount as usize + 1) <= FEW;
        let layers = order(self.rooms.problem, self.rooms.problem.fabric.domain(self.holder).layer());
        let Some((&first, rest)) = layers.split_first() else {
            return Leaves::Open(self.rooms.below(self.holder, Layer::LEAF));
        };
        let Some(&second) = rest.first() else {
            let leaves = self.rooms.below(self.holder, first);
            return if are_few(&leaves) { Leaves::Open(leaves) } else { self.of_large(leaves) };
        };
        let members = self.members(first, second, 1);
        if first.min(second) == Layer::LEAF && are_few(&members.pieces) {
            return Leaves::Open(members.pieces);
        }
        let Some(sieve) = members.sieve(amount, first > second) else {
            return self.of_large(self.rooms.below(self.holder, first));
        };
        let best = if layers.len() == 2 { self.best(&members, &sieve, packing) } else { None };
        let parts = match best {
            Some(leaves) => return Leaves::Best(leaves),
            None => self.admitted(&members, &sieve),
        };
        self.of_parts(parts)
    }

    /// The leaves of those of some domains that are large enough.
    fn of_large(&self, domains: Vec<DomainId>) -> Leaves {
        let (large, most) = self.large_enough(domains);
        self.of_parts(large.into_iter().map(|id| Part { id, pieces: vec![id], most }).collect())
    }

    /// The leaves of parts that may be used.
    fn of_parts(&self, parts: Vec<Part>) -> Leaves {
        let mut leaves = Vec::new();
        let mut alike: BTreeMap<(Option<DomainId>, Likeness), usize> = BTreeMap::new();
        for Part { id, pieces, most } in parts {
            // Of parts that are alike and lie side by side, those that come first are used.
            let likeness = (self.rooms.problem.fabric.domain(id).parent(), self.likeness(id));
            let count = alike.entry(likeness).or_default();
            *count += 1;
            if *count <= most {
                pieces.into_iter().for_each(|piece| leaves.extend(self.rooms.below(piece, Layer::LEAF)));
            }
        }
        Leaves::Open(leaves)
    }

    /// Those of some domains without which the largest of the others, as many as there have to be, do not hold the job; and how
    /// many there have to be.
    fn large_enough(&self, mut domains: Vec<DomainId>) -> (Vec<DomainId>, usize) {
        let mut rooms: Vec<u32> = domains.iter().map(|&id| self.rooms.room(id)).collect();
        let (count, least) = fewest_of(&mut rooms, self.rooms.problem.amount.into()).unwrap_or((0, 0));
        domains.retain(|&id| self.rooms.room(id) >= least);
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        (domains, count.unwrap_or(rooms.len()))
    }

    /// What each of as few domains of a layer as hold the job takes at least.
    fn least_of_few(&self, layer: Layer) -> u32 {
        let mut rooms = Vec::with_capacity(MANY);
        self.rooms.each_below(self.holder, layer, |_, room| rooms.push(room));
        fewest_of(&mut rooms, self.rooms.problem.amount.into()).map_or(0, |(_, least)| least)
    }

    /// The domains of two layers, as few of the first of them as hold the job and then of the other: those of the higher one,
    /// each with those of the lower one in it, as far as they have room and are not too small for so few.
    pub(super) fn members(&self, first: Layer, second: Layer, unit: u32) -> Members {
        let (rooms, mut members) = (self.rooms, Members::default());
        if first < second {
            let least = self.least_of_few(first);
            for part in rooms.below(self.holder, second) {
                let Members { parts, pieces, sizes } = &mut members;
                let start = pieces.len();
                rooms.each_below(part, first, |piece, room| {
                    if room >= least {
                        pieces.push(piece);
                        sizes.add(room / unit);
                    }
                });
                if pieces.len() > start {
                    parts.push(part);
                    sizes.close();
                }
            }
            return members;
        }
        let (large, _) = self.large_enough(rooms.below(self.holder, first));
        members.parts = large;
        let open = rooms.problem.view.slots.nodes_of(self.holder) as usize;
        members.pieces.reserve(open.min(MANY));
        members.sizes.reserve(members.parts.len(), open.min(MANY));
        let Members { parts, pieces, sizes } = &mut members;
        for &part in &*parts {
            rooms.each_below(part, second, |piece, room| {
                pieces.push(piece);
                sizes.add(room / unit);
            });
            sizes.close();
        }
        members
    }

    /// The best leaves, where they are pieces of which it is known how many there are; None where that is not told soon.
    fn best(&self, members: &Members, sieve: &Sieve, packing: &Packing<'_>) -> Option<Vec<DomainId>> {
        let problem = self.rooms.problem;
        let slots = BySlots { problem, members, bits: packing.slots };
        // What parts have and what pieces have is each no more than the holder has.
        if 2 * packing.slots > 61 {
            return None;
        }
        let mut alike: BTreeMap<(Option<DomainId>, u64, &[u32]), usize> = BTreeMap::new();
        let is_one_of_few = |&part: &usize| {
            let (id, sizes) = (members.parts[part], members.sizes.of(part));
            if sizes.iter().any(|&size| size != sizes[0]) {
                return true;
            }
            let count =
                alike.entry((problem.fabric.domain(id).parent(), problem.slots(id), sizes)).or_default();
            *count += 1;
            *count <= sieve.parts()
        };
        let admitted: Vec<usize> = (0..members.parts.len()).filter(is_one_of_few).collect();
        let used = members.cheapest(sieve, &admitted, &slots)?;
        Some(used.into_iter().map(|used| members.piece(used.part, used.piece)).collect())
    }

    /// The parts that may be used, each with its pieces that may.
    fn admitted(&self, members: &Members, sieve: &Sieve) -> Vec<Part> {
        let admitted = members.parts.iter().enumerate().filter_map(|(part, &id)| {
            let sizes = members.sizes.of(part);
            let lacks = sieve.admits(sizes.iter().copied())?;
            let pieces = sizes.iter().enumerate().filter(|(_, size)| sieve.admits_piece(lacks, **size));
            let pieces = pieces.map(|(piece, _)| members.piece(part, piece)).collect();
            Some(Part { id, pieces, most: sieve.parts() })
        });
        admitted.collect()
    }

    fn likeness(&self, part: DomainId) -> Likeness {
        let (mut likeness, mut ahead) = (Vec::new(), vec![part]);
        while let Some(id) = ahead.pop() {
            let problem = self.rooms.problem;
            let domain = problem.fabric.domain(id);
            likeness.push((domain.layer(), domain.cover(), self.rooms.room(id), problem.slots(id)));
            ahead.extend(domain.children().iter().rev());
        }
        likeness
    }
}
