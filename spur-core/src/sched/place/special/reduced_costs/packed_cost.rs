//! How costs are packed into two numbers: domains used of each layer in order, then slots in them from the top down.

use fixedbitset::FixedBitSet;

use crate::model::fabric::Layer;

use super::instance::{Instance, Piece};
use super::multipliers::Scope;

/// How costs of labels are packed into two numbers.
#[derive(Default)]
pub(super) struct CostLayout {
    /// Every layer that is looked at: which it is in order, and where its number of domains stands.
    heads: Vec<(usize, u32)>,
    /// Every layer from the top down. Slots of nodes that are shared stand below.
    tails: Vec<Tail>,
    /// What is added to find out which numbers of domains are too large, and which bits are set then.
    rest: u128,
    marks: u128,
    wanted: u128,
    /// Where the number of domains of the last layer that is known begins, and where it ends.
    last: (u32, u32),
    /// The numbers of domains of layers with a limit, and the bits above them.
    limited: u128,
    above: u128,
}

/// How the slots of the domains of a layer are packed.
struct Tail {
    /// Which of the layers in order it is, and where its number of slots stands.
    layer: usize,
    at: u32,
    /// The fewest slots that one of its domains which may be used has. They are left out: choices are compared by their slots
    /// where each uses as many domains as the other.
    least: u64,
}

impl CostLayout {
    /// Packs numbers of domains up to `counts`; slots count where all layers are looked at.
    /// `usable` says which pieces may be used.
    pub(super) fn new(
        instance: &Instance<'_>,
        scope: &Scope,
        counts: &[u32],
        usable: &FixedBitSet,
    ) -> Option<Self> {
        let mut layout = Self::default();
        let mut used = 0;
        // The first layer stands highest; layers that only have a limit stand below those that count.
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
            // Nodes have no more than their leaves, of which there are no more than may be used.
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
            // Two of them can be added up before it is told that they are too much.
            used += bits(u128::from(most - least) * u128::from(counts[layer])) + 1;
            if used > u128::BITS {
                return None;
            }
        }
        Some(layout)
    }

    /// What using a piece costs by itself.
    pub(super) fn of(&self, piece: &Piece) -> (u128, u128) {
        let counts = |layer: usize| piece.counts >> layer & 1 == 1;
        let heads = self.heads.iter().filter(|(layer, _)| counts(*layer));
        let head = heads.fold(0, |head, (_, at)| head | 1 << at);
        let tails = self.tails.iter().filter(|tail| counts(tail.layer));
        let tail =
            tails.fold(0, |sum, tail| sum | u128::from(piece.slots.saturating_sub(tail.least)) << tail.at);
        (head, tail)
    }

    /// Two numbers of domains together, if that is not too many of any layer.
    pub(super) fn add(&self, one: u128, other: u128) -> Option<u128> {
        let sum = one + other;
        ((sum + self.rest) & self.marks == 0).then_some(sum)
    }

    /// How many domains of the last layer that is known there are, if of each before it there are as many as there are to be.
    pub(super) fn last(&self, head: u128) -> Option<u32> {
        let (from, to) = self.last;
        let others = |head: u128| head.checked_shr(to).unwrap_or(0);
        let last = (head >> from) & ((1 << (to - from)) - 1);
        u32::try_from(last).ok().filter(|_| others(head) == others(self.wanted))
    }

    /// The numbers of domains of layers with a limit.
    pub(super) fn limited(&self, head: u128) -> u128 {
        head & self.limited
    }

    /// Whether there are layers with a limit.
    pub(super) fn has_limits(&self) -> bool {
        self.above != 0
    }

    /// Whether of no layer with a limit one uses more domains than the other.
    pub(super) fn uses_no_more(&self, one: u128, other: u128) -> bool {
        ((self.limited(other) | self.above) - self.limited(one)) & self.above == self.above
    }
}

/// Bits of a number.
fn bits(number: u128) -> u32 {
    u128::BITS - number.leading_zeros()
}
