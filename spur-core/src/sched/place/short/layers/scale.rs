//! How costs are packed into two numbers: domains used of each layer in order, then slots in them from the top down.

use crate::model::fabric::Layer;

use super::ground::{Ground, Part};

/// See the module.
pub(super) struct Scale {
    /// Of every layer in order: where its number of domains stands.
    heads: Vec<u32>,
    /// Every layer from the top down, where its number of slots stands, and which layers in order it is.
    tails: Vec<(u32, usize)>,
    /// What is added to find out which numbers of domains are too large, and which bits are set then.
    rest: u128,
    marks: u128,
    wanted: u128,
    /// Bits of the number of domains of the last layer.
    last: u32,
}

impl Scale {
    /// For no more domains of the first few layers in order than `counts` says; slots count where those are all.
    pub(super) fn new(ground: &Ground, counts: &[u32]) -> Option<Self> {
        let mut scale =
            Self { heads: vec![0; counts.len()], tails: Vec::new(), rest: 0, marks: 0, wanted: 0, last: 0 };
        let mut used = 0;
        for (layer, &count) in counts.iter().enumerate().rev() {
            let bits = bits(count.into());
            scale.heads[layer] = used;
            scale.rest |= ((1 << bits) - 1 - u128::from(count)) << used;
            scale.marks |= 1 << (used + bits);
            scale.wanted |= u128::from(count) << used;
            used += bits + 1;
            scale.last = if scale.last == 0 { used } else { scale.last };
            if used >= u128::BITS {
                return None;
            }
        }
        if counts.len() < ground.order.len() {
            return Some(scale);
        }
        let mut layers: Vec<(Layer, usize)> = ground.order.iter().copied().zip(0..).collect();
        layers.sort_unstable();
        used = 0;
        for (_, layer) in layers {
            let counts_for = |part: &&Part| part.counts >> layer & 1 == 1;
            let most = ground.parts.iter().filter(counts_for).map(|part| part.slots).max().unwrap_or(0);
            scale.tails.push((used, layer));
            // Two of them can be added up before it is told that they are too much.
            used += bits(u128::from(most) * u128::from(counts[layer])) + 1;
            if used > u128::BITS {
                return None;
            }
        }
        Some(scale)
    }

    /// What using a part costs by itself.
    pub(super) fn of(&self, part: &Part) -> (u128, u128) {
        let counts = |layer: usize| part.counts >> layer & 1 == 1;
        let heads = self.heads.iter().enumerate().filter(|(layer, _)| counts(*layer));
        let head = heads.fold(0, |head, (_, at)| head | 1 << at);
        let tails = self.tails.iter().filter(|(_, layer)| counts(*layer));
        let tail = tails.fold(0, |tail, (at, _)| tail | u128::from(part.slots) << at);
        (head, tail)
    }

    /// Two numbers of domains together, if that is not too many of any layer.
    pub(super) fn add(&self, one: u128, other: u128) -> Option<u128> {
        let sum = one + other;
        ((sum + self.rest) & self.marks == 0).then_some(sum)
    }

    /// How many domains of the last layer there are, if of each other there are as many as there are to be.
    pub(super) fn last(&self, head: u128) -> Option<u32> {
        let others = |head: u128| head.checked_shr(self.last).unwrap_or(0);
        let last = head & ((1 << self.last) - 1);
        u32::try_from(last).ok().filter(|_| others(head) == others(self.wanted))
    }
}

/// Bits of a number.
fn bits(number: u128) -> u32 {
    u128::BITS - number.leading_zeros()
}
