//! The leaves over which nodes that are shared are spread best, and how many of each.
//!
//! As for whole nodes the fewest domains come first and then the fewest slots in those, but of choices that have as many
//! there that one is better whose nodes have fewer: of every leaf the fullest are taken, so that it costs what these have
//! for every number of them.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::special::comparison::order;
use crate::sched::place::special::outcome::NoChoice;
use crate::sched::place::special::slack_bound::{Parts, SlackBound, fewest_of};
use crate::sched::place::special::slack_tables::{Prices, Used, choose};

use super::capacity::Rooms;

/// Pieces that room is made for at once.
const MANY: usize = 1 << 12;

/// The domains of two layers below the holder.
#[derive(Default)]
struct Members {
    parts: Vec<DomainId>,
    /// What the parts consist of, part after part.
    pieces: Vec<DomainId>,
    /// What the pieces have room for, in units.
    sizes: Parts,
}

impl Members {
    fn piece(&self, part: usize, piece: usize) -> DomainId {
        self.pieces[self.sizes.start(part) + piece]
    }

    /// The best choice of some of the parts; None where that is not told soon.
    fn cheapest(
        &self,
        slack_bound: &SlackBound,
        admitted: &[usize],
        prices: &impl Prices,
    ) -> Option<Vec<Used>> {
        let mut fewer = slack_bound.of_fewer_parts(&self.sizes);
        let found = fewer.find_map(|slack_bound| match choose(&self.sizes, &slack_bound, admitted, prices) {
            Err(NoChoice::Nowhere) => None,
            found => Some(found),
        });
        let known = || choose(&self.sizes, &slack_bound.of_known_parts(), admitted, prices);
        found.unwrap_or_else(known).ok()
    }

    fn slack_bound(&self, amount: u32, are_parts_first: bool) -> Option<SlackBound> {
        if are_parts_first {
            SlackBound::new(&self.sizes, amount)
        } else {
            SlackBound::of_fewest_pieces(&self.sizes, amount)
        }
    }
}

/// Fewer slots of parts are better, then fewer of leaves, then fewer of nodes.
struct BySlots<'s, 'a> {
    problem: &'s Problem<'a>,
    members: &'s Members,
    /// Bits of what leaves have.
    bits: u32,
    /// Nodes of one step.
    unit: u32,
    /// By leaf: what its fullest nodes have.
    nodes: Vec<OnceCell<Vec<u64>>>,
}

impl<'s, 'a> BySlots<'s, 'a> {
    /// None where the numbers are too large.
    fn new(
        problem: &'s Problem<'a>,
        members: &'s Members,
        slack_bound: &SlackBound,
        unit: u32,
    ) -> Option<Self> {
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        let has = |&id: &DomainId| problem.view.slots.of(id);
        let parts = members.parts.iter().map(has).max()?.checked_mul(slack_bound.parts() as u64)?;
        let leaves = members.pieces.iter().map(has).max()?.checked_mul(slack_bound.pieces()?)?;
        let nodes = members.pieces.iter().map(|_| OnceCell::new()).collect();
        let fits = bits(parts) + 2 * bits(leaves) <= 61;
        fits.then_some(Self { problem, members, bits: bits(leaves), unit, nodes })
    }
}

impl Prices for BySlots<'_, '_> {
    fn of_part(&self, part: usize) -> u64 {
        self.problem.slots(self.members.parts[part]) << (2 * self.bits)
    }

    fn of_piece(&self, part: usize, piece: usize, less: usize) -> u64 {
        let leaf = self.members.piece(part, piece);
        let nodes = &self.nodes[self.members.sizes.start(part) + piece];
        let nodes = nodes.get_or_init(|| self.problem.slots_of_fullest(leaf));
        let taken = (self.members.sizes.of(part)[piece] as usize - less) * self.unit as usize;
        self.problem.slots(leaf) << self.bits | nodes[taken]
    }

    fn of_any_of_piece(&self, part: usize, piece: usize) -> u64 {
        self.problem.slots(self.members.piece(part, piece)) << self.bits
    }

    fn are_for_what_is_taken(&self) -> bool {
        true
    }
}

/// Parts that may belong to a choice of so many: of those whose pieces all take as much, and are as many, the ones with the
/// fewest slots.
fn worth_it(problem: &Problem<'_>, members: &Members, count: usize) -> Vec<usize> {
    let mut alike: BTreeMap<(u32, usize), Vec<u64>> = BTreeMap::new();
    let kind = |part: usize| match members.sizes.of(part) {
        sizes @ [size, ..] if sizes.iter().all(|other| other == size) => Some((*size, sizes.len())),
        _ => None,
    };
    let all = 0..members.parts.len();
    for (part, kind) in all.clone().filter_map(|part| Some((part, kind(part)?))) {
        alike.entry(kind).or_default().push(problem.slots(members.parts[part]));
    }
    alike.values_mut().for_each(|slots| slots.sort_unstable());
    let is_worth_it = |part: &usize| {
        let least = kind(*part).and_then(|kind| alike[&kind].get(count - 1));
        least.is_none_or(|least| problem.slots(members.parts[*part]) <= *least)
    };
    all.filter(is_worth_it).collect()
}

/// Those of some domains without which the largest of the others, as many as there have to be, do not hold the job.
fn large_enough(rooms: &Rooms<'_, '_>, mut domains: Vec<DomainId>) -> Vec<DomainId> {
    let mut sizes: Vec<u32> = domains.iter().map(|&id| rooms.room(id)).collect();
    let least = fewest_of(&mut sizes, rooms.problem.amount.into()).map_or(0, |(_, least)| least);
    domains.retain(|&id| rooms.room(id) >= least);
    domains
}

/// What each of as few domains of a layer below a holder as hold the job takes at least.
fn least_of_few(rooms: &Rooms<'_, '_>, holder: DomainId, layer: Layer) -> u32 {
    let mut sizes = Vec::with_capacity(MANY);
    rooms.each_below(holder, layer, |_, room| sizes.push(room));
    fewest_of(&mut sizes, rooms.problem.amount.into()).map_or(0, |(_, least)| least)
}

/// The domains of two layers, as few of the first of them as hold the job and then of the other: those of the higher one,
/// each with those of the lower one in it, as far as they have room and are not too small for so few.
fn members(rooms: &Rooms<'_, '_>, holder: DomainId, (first, second): (Layer, Layer), unit: u32) -> Members {
    let mut members = Members::default();
    if first < second {
        let least = least_of_few(rooms, holder, first);
        for part in rooms.below(holder, second) {
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
    members.parts = large_enough(rooms, rooms.below(holder, first));
    let open = rooms.problem.view.slots.nodes_of(holder) as usize;
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

/// The leaves of the best choice and how many nodes each gives; None where that is not told soon.
pub(super) fn shares(rooms: &Rooms<'_, '_>, holder: DomainId) -> Option<Vec<(DomainId, u32)>> {
    let problem = rooms.problem;
    let unit = problem.unit(Layer::LEAF);
    let amount = problem.amount / unit;
    let layers = order(problem, problem.fabric.domain(holder).layer());
    let (first, second) = match layers[..] {
        [only] => (only, only),
        [first, second] => (first, second),
        _ => return None,
    };
    let members = members(rooms, holder, (first, second), unit);
    let slack_bound = members.slack_bound(amount, first >= second)?;
    let prices = BySlots::new(problem, &members, &slack_bound, unit)?;
    let used = members.cheapest(&slack_bound, &worth_it(problem, &members, slack_bound.parts()), &prices)?;
    let share = used.into_iter().map(|used| {
        let size = members.sizes.of(used.part)[used.piece] as usize - used.less;
        Some((members.piece(used.part, used.piece), u32::try_from(size).ok()? * unit))
    });
    share.collect()
}
