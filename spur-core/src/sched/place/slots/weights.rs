//! The weights of nodes: lighter nodes are taken first.

use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::model::fabric::Pos;

/// Number of weights, the lightest first, whose nodes are kept as a set.
const SETS: usize = 32;

/// The weight of every position of a fabric.
#[derive(Debug, Clone)]
pub struct Weights {
    by_position: Vec<u32>,
    /// The index of each position's weight in `known`; [`u16::MAX`] stands for all higher indices.
    classes: Vec<u16>,
    /// All weights that occur, the lightest first.
    known: Vec<u32>,
    /// The positions of each of the first [`SETS`] weights.
    sets: Vec<FixedBitSet>,
}

impl Weights {
    /// The weights of all positions, from one number for each.
    #[must_use]
    pub fn new(by_position: Vec<u32>) -> Self {
        let mut known = by_position.clone();
        known.sort_unstable();
        known.dedup();
        let class = |weight| known.binary_search(weight).expect("every weight is known");
        let classes =
            by_position.iter().map(|weight| u16::try_from(class(weight)).unwrap_or(u16::MAX)).collect();
        let mut sets = vec![FixedBitSet::with_capacity(by_position.len()); known.len().min(SETS)];
        for (index, weight) in by_position.iter().enumerate() {
            if let Some(set) = sets.get_mut(class(weight)) {
                set.insert(index);
            }
        }
        Self { by_position, classes, known, sets }
    }

    /// True if all positions have the same weight.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        self.known.len() < 2
    }

    /// The weight of a position.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        self.by_position[pos.index()]
    }

    /// The class of every position and the class of `weight`. `None` if no position has the weight, or
    /// there are too many weights.
    pub(super) fn class_of(&self, weight: u32) -> Option<(&[u16], u16)> {
        let class = u16::try_from(self.known.binary_search(&weight).ok()?).ok()?;
        (class < u16::MAX).then_some((&self.classes, class))
    }

    /// All weights that occur, the lightest first.
    #[must_use]
    pub fn known(&self) -> &[u32] {
        &self.known
    }

    /// The positions of a weight; `None` unless the weight is among the first [`SETS`].
    pub(crate) fn set_of(&self, weight: u32) -> Option<&FixedBitSet> {
        self.sets.get(self.known.binary_search(&weight).ok()?)
    }

    /// The weights that occur among the open positions, the heaviest first.
    pub(crate) fn among(&self, open: &FixedBitSet) -> Vec<u32> {
        let mut found: Vec<u32> = self
            .known
            .iter()
            .zip(&self.sets)
            .filter(|(_, set)| meet(open, set))
            .map(|(weight, _)| *weight)
            .collect();
        if let Some(&light) =
            self.known.get(self.sets.len().wrapping_sub(1)).filter(|_| self.known.len() > SETS)
        {
            found.extend(open.ones().map(|index| self.by_position[index]).filter(|weight| *weight > light));
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        found
    }
}

/// True if two sets have a member in common.
fn meet(one: &FixedBitSet, other: &FixedBitSet) -> bool {
    one.as_slice().iter().zip(other.as_slice()).any(|(a, b)| a & b != 0)
}

/// Number of members of a range that are in both sets.
pub(crate) fn count_both(one: &FixedBitSet, other: &FixedBitSet, range: Range<usize>) -> u32 {
    const BITS: usize = usize::BITS as usize;
    let (one, other) = (one.as_slice(), other.as_slice());
    let mut count = 0;
    for word in range.start / BITS..range.end.div_ceil(BITS).min(one.len()).min(other.len()) {
        let mut both = one[word] & other[word];
        let first = word * BITS;
        if range.start > first {
            both &= usize::MAX << (range.start - first);
        }
        if range.end < first + BITS {
            both &= !(usize::MAX << (range.end - first));
        }
        count += both.count_ones();
    }
    count
}
