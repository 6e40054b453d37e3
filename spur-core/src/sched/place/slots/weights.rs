//! What nodes weigh: lighter ones are taken first.

use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::model::fabric::Pos;

/// Weights of which the nodes are known as sets; of more, those of the lightest are.
const SETS: usize = 32;

/// The weight of every position of a fabric.
#[derive(Debug, Clone)]
pub struct Weights {
    by_position: Vec<u32>,
    /// Which of the weights each position has; the last number stands for all beyond it.
    classes: Vec<u16>,
    /// All weights there are, the lightest first.
    known: Vec<u32>,
    /// The positions of each of the first few.
    sets: Vec<FixedBitSet>,
}

impl Weights {
    /// The weights of nodes, from one for each position.
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

    /// Whether all positions weigh the same.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        self.known.len() < 2
    }

    /// The weight of a position.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        self.by_position[pos.index()]
    }

    /// A number for a weight, and for every position that of its own; None where there are too many of them.
    pub(super) fn class_of(&self, weight: u32) -> Option<(&[u16], u16)> {
        let class = u16::try_from(self.known.binary_search(&weight).ok()?).ok()?;
        (class < u16::MAX).then_some((&self.classes, class))
    }

    /// All weights there are, the lightest first.
    #[must_use]
    pub fn known(&self) -> &[u32] {
        &self.known
    }

    /// The positions of a weight, where they are known as a set.
    pub(crate) fn set_of(&self, weight: u32) -> Option<&FixedBitSet> {
        self.sets.get(self.known.binary_search(&weight).ok()?)
    }

    /// The weights that some positions have, the heaviest first.
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

/// Whether two sets have a member in common.
fn meet(one: &FixedBitSet, other: &FixedBitSet) -> bool {
    one.as_slice().iter().zip(other.as_slice()).any(|(a, b)| a & b != 0)
}

/// How many members of a range two sets have in common.
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
