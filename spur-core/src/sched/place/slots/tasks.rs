//! Tasks of every position, two bytes each, so that many are looked at in one step.

use std::collections::BTreeMap;
use std::ops::Range;

/// What is written down for a position that takes at least that many, which are kept apart.
const LARGE: u16 = u16::MAX;

/// Tasks of every position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tasks {
    small: Vec<u16>,
    large: BTreeMap<usize, u32>,
}

impl Tasks {
    /// No tasks at so many positions.
    pub(super) fn none(positions: usize) -> Self {
        Self { small: vec![0; positions], large: BTreeMap::new() }
    }

    /// One number for each position.
    pub(super) fn new(by_position: &[u32]) -> Self {
        let mut tasks = Self::none(by_position.len());
        by_position.iter().enumerate().for_each(|(index, &count)| tasks.set(index, count));
        tasks
    }

    /// Tasks of a position.
    #[inline]
    pub(super) fn at(&self, index: usize) -> u32 {
        match self.small[index] {
            LARGE => self.large[&index],
            small => small.into(),
        }
    }

    /// Gives a position another number of tasks.
    #[inline]
    pub(super) fn set(&mut self, index: usize, count: u32) {
        if self.small[index] == LARGE {
            self.large.remove(&index);
        }
        self.small[index] = u16::try_from(count).unwrap_or(LARGE);
        if self.small[index] == LARGE {
            self.large.insert(index, count);
        }
    }

    /// Gives a position that many tasks if it has fewer, and says how many it had then.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, count: u32) -> Option<u32> {
        let had = self.small[index];
        match u16::try_from(count) {
            // By far the most.
            Ok(small) if small < LARGE => {
                (had < small).then(|| u32::from(std::mem::replace(&mut self.small[index], small)))
            }
            _ => {
                let had = self.at(index);
                (had < count).then(|| {
                    self.set(index, count);
                    had
                })
            }
        }
    }

    /// Takes the tasks of some positions away, which are all that have any.
    pub(super) fn clear(&mut self, positions: impl Iterator<Item = usize>) {
        positions.for_each(|index| self.small[index] = 0);
        self.large.clear();
    }

    /// Tasks of all positions of a range.
    pub(super) fn sum(&self, range: Range<usize>) -> u64 {
        let large: u64 =
            self.large.range(range.clone()).map(|(_, &count)| u64::from(count - u32::from(LARGE))).sum();
        large + self.small[range].iter().map(|&count| u64::from(count)).sum::<u64>()
    }

    /// Tasks of all positions, where none has so many that they are kept apart.
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
        tasks.clear([0, 1, 2, 4].into_iter());
        assert_eq!((all(&tasks), tasks.small()), (vec![0; 5], Some(&[0; 5][..])));
    }
}
