//! An amount over time that changes in steps.
//!
//! The changes are kept in order of time, in blocks. Each block knows the amount before its first change and
//! the smallest amount after any of its changes. So an addition or a question reads the changes of two blocks
//! at most, and one pair of numbers for each block between these, which lie side by side. The cost depends on
//! the length of the stretch, not on the number of all changes. For the tens of thousands of changes of a
//! large plan that takes less time than a balanced tree, whose nodes lie apart.

use crate::text::time::Time;

/// Number of changes in a block above which the block is split.
const FULL: usize = 32;

/// An amount from the beginning of time on.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepFunction {
    /// The amount before the first change.
    first: i64,
    /// The time of the first change of each block.
    begins: Vec<Time>,
    /// The amounts of each block.
    levels: Vec<Level>,
    /// The changes in order of time, in blocks of 1 to [`FULL`] changes.
    blocks: Vec<Vec<Change>>,
}

/// A change of the amount at a time, which is not 0.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Time,
    by: i64,
}

/// The amounts of a block.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The amount before the first change.
    before: i64,
    /// The smallest amount after any of the changes.
    least: i64,
}

impl Level {
    /// The amounts of a block with these changes.
    fn of(before: i64, changes: &[Change]) -> Self {
        let (mut amount, mut least) = (before, i64::MAX);
        for change in changes {
            amount += change.by;
            least = least.min(amount);
        }
        Self { before, least }
    }
}

/// The smallest amount so far on a way along the changes.
#[derive(Clone, Copy, Debug)]
struct Lowest {
    amount: i64,
    least: i64,
}

impl Lowest {
    /// Goes along the changes before a time.
    fn read(&mut self, changes: &[Change], until: Time) {
        for change in changes.iter().take_while(|change| change.at < until) {
            self.amount += change.by;
            self.least = self.least.min(self.amount);
        }
    }
}

impl StepFunction {
    /// One amount at all times.
    pub(crate) fn new(amount: i64) -> Self {
        Self { first: amount, ..Self::default() }
    }

    /// Adds to the amount from `from` until `to`.
    pub(crate) fn add(&mut self, from: Time, to: Time, amount: i64) {
        if from >= to || amount == 0 {
            return;
        }
        if self.blocks.is_empty() {
            self.begins.push(from);
            self.levels.push(Level { before: self.first, least: self.first });
            self.blocks.push(Vec::with_capacity(FULL));
        }
        let (first, last) = (self.block_of(from), self.block_of(to));
        // The blocks that begin in between have the amount before their first change.
        for level in &mut self.levels[first + 1..=last] {
            level.before += amount;
            level.least += amount;
        }
        self.change(first, from, amount);
        if !to.is_never() {
            self.change(last, to, -amount);
        }
        // A split or a removal moves the later blocks, so the last block comes first.
        if last > first {
            self.tidy(last);
        }
        self.tidy(first);
    }

    /// The smallest amount from `from` until `to`; the amount at `from` if the stretch is empty.
    pub(crate) fn least(&self, from: Time, to: Time) -> i64 {
        let block = self.block_of(from);
        let Some(changes) = self.blocks.get(block) else { return self.first };
        let begun = changes.partition_point(|change| change.at <= from);
        let before = changes[..begun].iter().map(|change| change.by).sum::<i64>();
        let amount = self.levels[block].before + before;
        let mut lowest = Lowest { amount, least: amount };
        lowest.read(&changes[begun..], to);
        let next = block + 1;
        let end = next + self.begins[next..].partition_point(|begin| *begin < to);
        // The blocks before the last one that begins in time end in time.
        let Some((last, whole)) = self.levels[next..end].split_last() else { return lowest.least };
        let least = whole.iter().fold(lowest.least, |least, level| least.min(level.least));
        lowest = Lowest { amount: last.before, least };
        lowest.read(&self.blocks[end - 1], to);
        lowest.least
    }

    /// The end of the last step that touches a stretch of time and has less than `need`; [`Time::MAX`] if the
    /// step has no end, `None` if no step has less.
    pub(crate) fn end_of_last_below(&self, need: i64, from: Time, until: Time) -> Option<Time> {
        match self.last_below(need, until) {
            // The step may end before the stretch begins.
            Some(at) => Some(self.next_after(at)).filter(|end| *end > from),
            None if self.first < need => Some(self.next_after(Time(i64::MIN))).filter(|end| *end > from),
            None => None,
        }
    }

    /// The last block that begins no later than a time; the first block if there is none.
    fn block_of(&self, time: Time) -> usize {
        self.begins.partition_point(|begin| *begin <= time).saturating_sub(1)
    }

    /// The time of the first change after `time`; [`Time::MAX`] if there is none.
    fn next_after(&self, time: Time) -> Time {
        let block = self.block_of(time);
        let changes = self.blocks.get(block).into_iter().flatten();
        let next = changes.map(|change| change.at).find(|at| *at > time);
        next.or_else(|| self.begins.get(block + 1).copied()).unwrap_or(Time::MAX)
    }

    /// The time of the last change before `until` after which the amount is below `need`.
    fn last_below(&self, need: i64, until: Time) -> Option<Time> {
        let begun = self.begins.partition_point(|begin| *begin < until);
        let last = begun.checked_sub(1)?;
        // Only the last block may also have changes at or after `until`.
        let in_last = self.last_below_in(last, need, until);
        in_last.or_else(|| {
            let block = self.levels[..last].iter().rposition(|level| level.least < need)?;
            self.last_below_in(block, need, until)
        })
    }

    /// The time of the last change of a block before `until` after which the amount is below `need`.
    fn last_below_in(&self, block: usize, need: i64, until: Time) -> Option<Time> {
        let Level { before: mut amount, least } = self.levels[block];
        if least >= need {
            return None;
        }
        let mut found = None;
        for change in self.blocks[block].iter().take_while(|change| change.at < until) {
            amount += change.by;
            if amount < need {
                found = Some(change.at);
            }
        }
        found
    }

    /// Adds to the change of a block at a time; a change that becomes 0 is removed.
    fn change(&mut self, block: usize, at: Time, by: i64) {
        let changes = &mut self.blocks[block];
        match changes.binary_search_by_key(&at, |change| change.at) {
            Ok(place) => {
                changes[place].by += by;
                if changes[place].by == 0 {
                    changes.remove(place);
                }
            }
            Err(place) => changes.insert(place, Change { at, by }),
        }
    }

    /// Updates what is known of a block whose changes have changed: removes it if it is empty, and splits it
    /// if it is full.
    fn tidy(&mut self, block: usize) {
        let changes = &mut self.blocks[block];
        let Some(begin) = changes.first().map(|change| change.at) else {
            self.begins.remove(block);
            self.levels.remove(block);
            self.blocks.remove(block);
            return;
        };
        let before = self.levels[block].before;
        let later = if changes.len() > FULL { changes.split_off(FULL / 2) } else { Vec::new() };
        self.begins[block] = begin;
        self.levels[block] = Level::of(before, changes);
        if let Some(begin) = later.first().map(|change| change.at) {
            let before = before + changes.iter().map(|change| change.by).sum::<i64>();
            self.begins.insert(block + 1, begin);
            self.levels.insert(block + 1, Level::of(before, &later));
            self.blocks.insert(block + 1, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_answer_is_that_of_a_list(
            first in -3_i64..9,
            changes in prop::collection::vec((0_i64..300, 0_i64..400, -4_i64..5), 0..300),
            asked in prop::collection::vec((0_i64..350, 1_i64..200, -20_i64..20), 1..20),
        ) {
            let mut steps = StepFunction::new(first);
            let mut list = [first; 600];
            for (from, to, amount) in changes {
                // The last times stand for never.
                let end = if to >= 350 { Time::MAX } else { Time(to) };
                steps.add(Time(from), end, amount);
                let end = if end.is_never() { list.len() } else { end.0 as usize };
                list.iter_mut().take(end).skip(from as usize).for_each(|has| *has += amount);
            }
            for (from, lasts, need) in asked {
                let span = &list[from as usize..(from + lasts) as usize];
                prop_assert_eq!(steps.least(Time(from), Time(from + lasts)), *span.iter().min().unwrap());
                let last = span.iter().rposition(|has| *has < need);
                let found = steps.end_of_last_below(need, Time(from), Time(from + lasts));
                prop_assert_eq!(found.is_some(), last.is_some());
                if let (Some(last), Some(found)) = (last, found) {
                    let last = from as usize + last;
                    let end = (last..list.len()).find(|at| list[*at] != list[last]);
                    prop_assert!(found > Time(last as i64), "{:?}", found);
                    prop_assert_eq!(found, end.map_or(Time::MAX, |end| Time(end as i64)));
                }
            }
        }
    }
}
