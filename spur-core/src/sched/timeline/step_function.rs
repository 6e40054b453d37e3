//! An amount over time that changes in steps.
//!
//! The changes are kept in order of time, in blocks. For each block its sum and its smallest prefix sum are
//! known. So a change or a question reads the sums of the blocks, which lie side by side, and the changes of
//! two blocks at most. For the tens of thousands of changes of a large plan that takes less time than a
//! balanced tree, whose nodes lie apart.

use crate::text::time::Time;

/// Number of changes in a block above which the block is split.
const FULL: usize = 64;

/// An amount from the beginning of time on.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepFunction {
    /// The amount before the first change.
    first: i64,
    /// The changes in order of time, in blocks of 1 to [`FULL`] changes.
    blocks: Vec<Vec<Change>>,
    /// The sums of each block.
    sums: Vec<Sums>,
}

/// A change of the amount at a time, which is not 0.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Time,
    by: i64,
}

/// The sums of a block of changes.
#[derive(Clone, Copy, Debug)]
struct Sums {
    /// The time of the first change.
    from: Time,
    /// The sum of all changes.
    all: i64,
    /// The smallest prefix sum of the changes, over at least one change.
    least: i64,
}

impl Sums {
    /// The sums of a block; `None` if the block is empty.
    fn of(changes: &[Change]) -> Option<Self> {
        let (mut all, mut least) = (0, i64::MAX);
        for change in changes {
            all += change.by;
            least = least.min(all);
        }
        Some(Self { from: changes.first()?.at, all, least })
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

    /// Goes along a whole block.
    fn pass(&mut self, sums: &Sums) {
        self.least = self.least.min(self.amount + sums.least);
        self.amount += sums.all;
    }
}

impl StepFunction {
    /// One amount at all times.
    pub(crate) fn new(amount: i64) -> Self {
        Self { first: amount, ..Self::default() }
    }

    /// Adds to the amount from `from` until `to`.
    pub(crate) fn add(&mut self, from: Time, to: Time, amount: i64) {
        if from < to && amount != 0 {
            self.change(from, amount);
            if !to.is_never() {
                self.change(to, -amount);
            }
        }
    }

    /// The smallest amount from `from` until `to`; the amount at `from` if the stretch is empty.
    pub(crate) fn least(&self, from: Time, to: Time) -> i64 {
        let block = self.block_of(from);
        let Some(changes) = self.blocks.get(block) else { return self.first };
        let begun = changes.partition_point(|change| change.at <= from);
        let before = changes[..begun].iter().map(|change| change.by).sum::<i64>();
        let amount = self.before(block) + before;
        let mut lowest = Lowest { amount, least: amount };
        lowest.read(&changes[begun..], to);
        let next = block + 1;
        let end = self.sums.partition_point(|sums| sums.from < to).max(next);
        // The blocks before the last one that begins in time end in time.
        let Some((_, whole)) = self.sums[next..end].split_last() else { return lowest.least };
        whole.iter().for_each(|sums| lowest.pass(sums));
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
        self.sums.partition_point(|sums| sums.from <= time).saturating_sub(1)
    }

    /// The amount before a block.
    fn before(&self, block: usize) -> i64 {
        self.first + self.sums[..block].iter().map(|sums| sums.all).sum::<i64>()
    }

    /// The time of the first change after `time`; [`Time::MAX`] if there is none.
    fn next_after(&self, time: Time) -> Time {
        let block = self.block_of(time);
        let changes = self.blocks.get(block).into_iter().flatten();
        let next = changes.map(|change| change.at).find(|at| *at > time);
        next.or_else(|| Some(self.sums.get(block + 1)?.from)).unwrap_or(Time::MAX)
    }

    /// The time of the last change before `until` after which the amount is below `need`.
    fn last_below(&self, need: i64, until: Time) -> Option<Time> {
        let begun = self.sums.partition_point(|sums| sums.from < until);
        let (last, whole) = self.sums[..begun].split_last()?;
        let (mut before, mut found) = (self.first, None);
        for (block, sums) in whole.iter().enumerate() {
            if before + sums.least < need {
                found = Some((block, before));
            }
            before += sums.all;
        }
        // Only the last block may also have changes at or after `until`.
        let in_last = (before + last.least < need).then_some((whole.len(), before));
        let mut blocks = in_last.into_iter().chain(found);
        blocks.find_map(|(block, before)| self.last_below_in(block, before, need, until))
    }

    /// The time of the last change of a block before `until` after which the amount is below `need`.
    fn last_below_in(&self, block: usize, before: i64, need: i64, until: Time) -> Option<Time> {
        let (mut amount, mut found) = (before, None);
        for change in self.blocks[block].iter().take_while(|change| change.at < until) {
            amount += change.by;
            if amount < need {
                found = Some(change.at);
            }
        }
        found
    }

    /// Adds to the change at a time; a change that becomes 0 is removed.
    fn change(&mut self, at: Time, by: i64) {
        let block = self.block_of(at);
        if self.blocks.is_empty() {
            self.blocks.push(Vec::with_capacity(FULL));
            self.sums.push(Sums { from: at, all: 0, least: 0 });
        }
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
        let later = if changes.len() > FULL { changes.split_off(FULL / 2) } else { Vec::new() };
        match Sums::of(changes) {
            Some(sums) => self.sums[block] = sums,
            None => {
                self.blocks.remove(block);
                self.sums.remove(block);
            }
        }
        if let Some(sums) = Sums::of(&later) {
            self.blocks.insert(block + 1, later);
            self.sums.insert(block + 1, sums);
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
