//! The number of tasks of every position, in two bytes each, so that one instruction handles many.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::fabric::Pos;

/// The entry in `small` for a position with at least this many tasks, whose number is in `large`.
const LARGE: u16 = u16::MAX;

/// The number of tasks of every position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tasks {
    small: Vec<u16>,
    large: BTreeMap<usize, u32>,
}

impl Tasks {
    /// No tasks at any of `positions` positions.
    pub(super) fn none(positions: usize) -> Self {
        Self { small: vec![0; positions], large: BTreeMap::new() }
    }

    /// The tasks of every position, from one number for each.
    pub(super) fn new(by_position: &[u32]) -> Self {
        let cut = |count: &u32| u16::try_from(*count).unwrap_or(LARGE);
        let small: Vec<u16> = by_position.iter().map(cut).collect();
        let mut large = BTreeMap::new();
        if small.contains(&LARGE) {
            let all = by_position.iter().copied().enumerate();
            large.extend(all.filter(|(_, count)| *count >= u32::from(LARGE)));
        }
        Self { small, large }
    }

    /// The tasks of every position, all numbers below [`LARGE`].
    pub(super) fn few(by_position: Vec<u16>) -> Self {
        debug_assert!(!by_position.contains(&LARGE), "none has very many");
        Self { small: by_position, large: BTreeMap::new() }
    }

    /// The tasks of all positions, with [`LARGE`] for each position that takes at least that many.
    pub(super) fn cut(&self) -> &[u16] {
        &self.small
    }

    /// The tasks of all positions, for changes to numbers below [`LARGE`]; `None` if some position has
    /// [`LARGE`] or more.
    pub(super) fn few_mut(&mut self) -> Option<&mut [u16]> {
        self.large.is_empty().then_some(self.small.as_mut_slice())
    }

    /// Number of tasks of a position.
    #[inline]
    pub(super) fn at(&self, index: usize) -> u32 {
        match self.small[index] {
            LARGE => self.large[&index],
            small => small.into(),
        }
    }

    /// Sets the number of tasks of a position.
    #[inline]
    pub(super) fn set(&mut self, index: usize, count: u32) {
        let known = &mut self.small[index];
        match u16::try_from(count) {
            // The common case.
            Ok(small) if small < LARGE && *known < LARGE => *known = small,
            _ => self.set_many(index, count),
        }
    }

    #[cold]
    fn set_many(&mut self, index: usize, count: u32) {
        if self.small[index] == LARGE {
            self.large.remove(&index);
        }
        self.small[index] = u16::try_from(count).unwrap_or(LARGE);
        if self.small[index] == LARGE {
            self.large.insert(index, count);
        }
    }

    /// Raises a position to `count` tasks and returns its number before, or `None` if it has as many
    /// already.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, count: u32) -> Option<u32> {
        let had = self.at(index);
        (had < count).then(|| {
            self.set(index, count);
            had
        })
    }

    /// Raises each position to its number of tasks, and appends the positions that had none to `begun`.
    /// Positions outside the fabric are ignored. The numbers are below [`LARGE`].
    #[inline]
    pub(super) fn raise_all(
        &mut self,
        tasks: impl ExactSizeIterator<Item = (Pos, u16)>,
        begun: &mut Vec<Pos>,
    ) {
        let small = self.small.as_mut_slice();
        let first = begun.len();
        begun.resize(first + tasks.len(), Pos(0));
        let (new, mut count) = (&mut begun[first..], 0);
        for (pos, tasks) in tasks {
            let Some(had) = small.get_mut(pos.index()).filter(|had| **had < tasks) else { continue };
            new[count] = pos;
            count += usize::from(std::mem::replace(had, tasks) == 0);
        }
        begun.truncate(first + count);
    }

    /// Removes all tasks; `open` has a bit for every position, set where the position has tasks.
    pub(super) fn clear(&mut self, open: &[usize]) {
        const BLOCK: usize = usize::BITS as usize;
        let (blocks, rest) = self.small.as_chunks_mut::<BLOCK>();
        blocks
            .iter_mut()
            .zip(open)
            .filter(|(_, open)| **open != 0)
            .for_each(|(block, _)| *block = [0; BLOCK]);
        rest.fill(0);
        self.large.clear();
    }

    /// The number of positions of a range that have tasks, and their number of tasks.
    pub(super) fn count(&self, range: Range<usize>) -> (u32, u64) {
        let small = &self.small[range.clone()];
        if self.large.is_empty() && small.len() <= usize::from(u16::MAX) {
            // One pass for both numbers; at most 65,535 numbers of 16 bits add up to less than 2³².
            let add = |(open, sum): (u32, u32), &count: &u16| {
                (open + u32::from(count != 0), sum + u32::from(count))
            };
            let (open, sum) = small.iter().fold((0, 0), add);
            return (open, sum.into());
        }
        (small.iter().map(|&count| u32::from(count != 0)).sum(), self.sum(range))
    }

    /// Number of tasks of a range of positions.
    pub(super) fn sum(&self, range: Range<usize>) -> u64 {
        let large: u64 =
            self.large.range(range.clone()).map(|(_, &count)| u64::from(count - u32::from(LARGE))).sum();
        // Parts are so short that their sums fit 32 bits, which are faster to add up.
        let parts = self.small[range].chunks(usize::from(u16::MAX));
        large
            + parts
                .map(|part| u64::from(part.iter().map(|&count| u32::from(count)).sum::<u32>()))
                .sum::<u64>()
    }

    /// The tasks of all positions; `None` if some position has [`LARGE`] or more.
    pub(super) fn small(&self) -> Option<&[u16]> {
        self.large.is_empty().then_some(&self.small)
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;

    #[test]
    fn very_many_tasks_are_kept_apart() {
        let mut tasks = Tasks::new(&[3, 65_534, 65_535, 80_640, 0]);
        let all = |tasks: &Tasks| (0..5).map(|index| tasks.at(index)).collect::<Vec<_>>();
        assert_eq!(all(&tasks), [3, 65_534, 65_535, 80_640, 0]);
        assert_eq!((tasks.sum(0..5), tasks.sum(2..4)), (211_712, 146_175));
        assert_eq!(tasks.small(), None);
        tasks.set(2, 7);
        tasks.set(3, 70_000);
        assert_eq!(all(&tasks), [3, 65_534, 7, 70_000, 0]);
        tasks.set(3, 0);
        assert_eq!((tasks.small(), tasks.sum(0..5)), (Some(&[3, 65_534, 7, 0, 0][..]), 65_544));
        let raised = [(0, 3), (0, 4), (4, 70_000), (4, 65_000), (4, 80_000), (3, 0), (1, 65_535)];
        let had = raised.map(|(index, count)| tasks.raise(index, count));
        assert_eq!(had, [None, Some(3), Some(0), None, Some(70_000), None, Some(65_534)]);
        assert_eq!(all(&tasks), [4, 65_535, 7, 0, 80_000]);
        tasks.clear(&[0b10111]);
        assert_eq!((all(&tasks), tasks.small()), (vec![0; 5], Some(&[0; 5][..])));
    }

    #[test]
    fn many_positions_are_cleared_by_the_block() {
        let mut tasks = Tasks::none(150);
        let mut open = [0_usize; 3];
        for index in [0, 63, 64, 130, 149] {
            tasks.set(index, 3);
            open[index / usize::BITS as usize] |= 1 << (index % usize::BITS as usize);
        }
        assert_eq!(tasks.sum(0..150), 15);
        tasks.clear(&open);
        assert_eq!(tasks, Tasks::none(150));
    }
}
