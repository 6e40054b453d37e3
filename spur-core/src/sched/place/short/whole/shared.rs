//! The leaves over which nodes that are shared are spread best, and how many of each.
//!
//! As for whole nodes the fewest domains come first and then the fewest slots in those, but of choices that have as many
//! there that one is better whose nodes have fewer: of every leaf the fullest are taken, so that it costs what these have
//! for every number of them.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::short::sieve::Sieve;
use crate::sched::place::short::spend::Prices;
use crate::sched::place::short::standing::order;

use super::leaves::{Members, Sift};

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
    fn new(problem: &'s Problem<'a>, members: &'s Members, sieve: &Sieve, unit: u32) -> Option<Self> {
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        let has = |&id: &DomainId| problem.view.slots.of(id);
        let parts = members.parts.iter().map(has).max()?.checked_mul(sieve.parts() as u64)?;
        let leaves = members.pieces.iter().map(has).max()?.checked_mul(sieve.pieces()?)?;
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

impl Sift<'_, '_, '_> {
    /// The leaves of the best choice and how many nodes each gives; None where that is not told soon.
    pub(super) fn shares(&self) -> Option<Vec<(DomainId, u32)>> {
        let problem = self.rooms.problem;
        let unit = problem.unit(Layer::LEAF);
        let amount = problem.amount / unit;
        let layers = order(problem, problem.fabric.domain(self.holder).layer());
        let (first, second) = match layers[..] {
            [only] => (only, only),
            [first, second] => (first, second),
            _ => return None,
        };
        let members = self.members(first, second, unit);
        let sieve = members.sieve(amount, first >= second)?;
        let prices = BySlots::new(problem, &members, &sieve, unit)?;
        let used = members.cheapest(&sieve, &worth_it(problem, &members, sieve.parts()), &prices)?;
        let share = used.into_iter().map(|used| {
            let size = members.sizes.of(used.part)[used.piece] as usize - used.less;
            Some((members.piece(used.part, used.piece), u32::try_from(size).ok()? * unit))
        });
        share.collect()
    }
}
