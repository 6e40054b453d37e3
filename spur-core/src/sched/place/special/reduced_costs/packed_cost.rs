//! Packs costs into two numbers: the domains used of each layer in order, and their slots from the top down.

use fixedbitset::FixedBitSet;

use crate::model::fabric::Layer;

use super::instance::{Instance, Piece};
use super::multipliers::Scope;

/// The positions of the fields in packed costs.
#[derive(Default)]
pub(super) struct CostLayout {
    /// For each covered layer: its index in order, and the bit at which its number of domains begins.
    heads: Vec<(usize, u32)>,
    /// The fields of slots for the layers from the bottom up, each in higher bits than the one before. The
    /// slots of shared nodes occupy the lowest bits.
    tails: Vec<Tail>,
    /// A summand that makes numbers of domains over their limit carry into `marks`, and those bits.
    rest: u128,
    marks: u128,
    wanted: u128,
    /// The bits of the number of domains at the last settled layer: begin and end.
    last: (u32, u32),
    /// The bits of the numbers of domains at layers with a limit, and the bits above each of them.
    limited: u128,
    above: u128,
}

/// The position of the slots of one layer.
struct Tail {
    /// The index of the layer in order, and the bit at which its slots begin.
    layer: usize,
    at: u32,
    /// The fewest slots of a usable domain of the layer. They are subtracted from every domain, which changes
    /// no order: costs are compared at equal numbers of domains.
    least: u64,
}

impl CostLayout {
    /// A layout for up to `counts` domains at each layer; slots are packed only once all layers are settled.
    /// `usable` has the pieces that may be used. `None` if the numbers do not fit.
    pub(super) fn new(
        instance: &Instance<'_>,
        scope: &Scope,
        counts: &[u32],
        usable: &FixedBitSet,
    ) -> Option<Self> {
        let mut layout = Self::default();
        let mut used = 0;
        // The first layer has the highest bits; layers that only have a limit have the lowest.
        let unknown = (scope.known..counts.len()).filter(|&layer| scope.covers(layer));
        for layer in unknown.chain((0..scope.known).rev()) {
            let count = u128::from(counts[layer]);
            let bits = bits(count);
            if used + bits + 1 >= u128::BITS {
                return None;
            }
            layout.heads.push((layer, used));
            layout.rest |= ((1 << bits) - 1 - count) << used;
            layout.marks |= 1 << (used + bits);
            layout.wanted |= count << used;
            if scope.most[layer].is_some() {
                layout.limited |= ((1 << bits) - 1) << used;
                layout.above |= 1 << (used + bits);
            }
            if layer + 1 == scope.known {
                layout.last = (used, used + bits + 1);
            }
            used += bits + 1;
        }
        if scope.known < instance.order.len() {
            return Some(layout);
        }
        let mut layers: Vec<(Layer, usize)> = instance.order.iter().copied().zip(0..).collect();
        layers.sort_unstable();
        used = 0;
        if instance.divides_leaves() {
            // A node has at most the slots of its leaf, and there are at most as many leaves as may be used.
            let leaves = usable.ones().filter(|&at| instance.pieces[at].end == at + 1);
            let most = leaves.map(|at| instance.pieces[at].slots).max().unwrap_or(0);
            let count = layers.first().map_or(0, |(_, layer)| counts[*layer]);
            used = bits(u128::from(most) * u128::from(count)) + 1;
        }
        for (_, layer) in layers {
            let counts_for = |piece: &&Piece| piece.counts >> layer & 1 == 1;
            let slots =
                || usable.ones().map(|at| &instance.pieces[at]).filter(counts_for).map(|piece| piece.slots);
            let (least, most) = (slots().min().unwrap_or(0), slots().max().unwrap_or(0));
            layout.tails.push(Tail { layer, at: used, least });
            // One spare bit lets two values be added before the overflow is detected.
            used += bits(u128::from(most - least) * u128::from(counts[layer])) + 1;
            if used > u128::BITS {
                return None;
            }
        }
        Some(layout)
    }

    /// The cost of using a piece by itself: head and tail.
    pub(super) fn of(&self, piece: &Piece) -> (u128, u128) {
        let counts = |layer: usize| piece.counts >> layer & 1 == 1;
        let heads = self.heads.iter().filter(|(layer, _)| counts(*layer));
        let head = heads.fold(0, |head, (_, at)| head | 1 << at);
        let tails = self.tails.iter().filter(|tail| counts(tail.layer));
        let tail =
            tails.fold(0, |sum, tail| sum | u128::from(piece.slots.saturating_sub(tail.least)) << tail.at);
        (head, tail)
    }

    /// The sum of two heads; `None` if it exceeds the number of domains of some layer.
    pub(super) fn add(&self, one: u128, other: u128) -> Option<u128> {
        let sum = one + other;
        ((sum + self.rest) & self.marks == 0).then_some(sum)
    }

    /// The number of domains at the last settled layer, if every layer before it has its full number;
    /// otherwise `None`.
    pub(super) fn last(&self, head: u128) -> Option<u32> {
        let (from, to) = self.last;
        let others = |head: u128| head.checked_shr(to).unwrap_or(0);
        let last = (head >> from) & ((1 << (to - from)) - 1);
        u32::try_from(last).ok().filter(|_| others(head) == others(self.wanted))
    }

    /// The part of a head that counts layers with a limit.
    pub(super) fn limited(&self, head: u128) -> u128 {
        head & self.limited
    }

    /// True if some layer has a limit.
    pub(super) fn has_limits(&self) -> bool {
        self.above != 0
    }

    /// True if `one` uses no more domains than `other` at every layer with a limit.
    pub(super) fn uses_no_more(&self, one: u128, other: u128) -> bool {
        ((self.limited(other) | self.above) - self.limited(one)) & self.above == self.above
    }
}

/// Number of significant bits.
fn bits(number: u128) -> u32 {
    u128::BITS - number.leading_zeros()
}
