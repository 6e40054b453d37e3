//! An amount over time that changes in steps.
//!
//! A balanced tree (treap) over the times of change: each node has its change, and for its subtree the sum of
//! the changes and the smallest prefix sum. Changing the amount during a stretch of time, and finding the
//! last time with too little, takes logarithmic time.

use crate::text::time::Time;

/// An amount from the beginning of time on.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepFunction {
    /// The amount before the first change.
    first: i64,
    nodes: Vec<Change>,
    root: Link,
    /// Indices of removed nodes.
    vacant: Vec<u32>,
}

/// The index of a node.
type Link = Option<u32>;

/// A change of the amount at a time.
#[derive(Clone, Debug)]
struct Change {
    at: Time,
    by: i64,
    /// The sum of all changes in the subtree.
    sum: i64,
    /// The smallest prefix sum of the changes in the subtree, over at least one change.
    least: i64,
    below: [Link; 2],
}

const EARLIER: usize = 0;
const LATER: usize = 1;

impl StepFunction {
    /// One amount at all times.
    pub(crate) fn new(amount: i64) -> Self {
        Self { first: amount, ..Self::default() }
    }

    /// Adds to the amount from `from` until `to`.
    pub(crate) fn add(&mut self, from: Time, to: Time, amount: i64) {
        if from < to {
            self.change(from, amount);
            if !to.is_never() {
                self.change(to, -amount);
            }
        }
    }

    /// The smallest amount from `from` until `to`; the amount at `from` if the stretch is empty.
    pub(crate) fn least(&self, from: Time, to: Time) -> i64 {
        let changes = self.least_between(self.root, self.first, Some(from), Some(to));
        changes.into_iter().fold(self.at(from), i64::min)
    }

    /// The least amount after any change of a subtree behind one time and before another, where `before` is
    /// what there is before the subtree; without a time there is no bound.
    fn least_between(&self, link: Link, before: i64, from: Option<Time>, to: Option<Time>) -> Option<i64> {
        let node = self.node(link)?;
        if from.is_none() && to.is_none() {
            return Some(before + node.least);
        }
        let [earlier, later] = node.below;
        let here = before + self.sum(earlier) + node.by;
        if from.is_some_and(|from| node.at <= from) {
            return self.least_between(later, here, from, to);
        }
        if to.is_some_and(|to| node.at >= to) {
            return self.least_between(earlier, before, from, to);
        }
        let sides =
            [self.least_between(earlier, before, from, None), self.least_between(later, here, None, to)];
        sides.into_iter().flatten().chain([here]).min()
    }

    /// The end of the last step that touches a stretch of time and has less than `need`; [`Time::MAX`] if the
    /// step has no end, `None` if no step has less.
    pub(crate) fn end_of_last_below(&self, need: i64, from: Time, until: Time) -> Option<Time> {
        match self.last_below(self.root, self.first, need, until) {
            // The step may end before the stretch begins.
            Some(at) => Some(self.next_after(at)).filter(|end| *end > from),
            None if self.first < need => Some(self.next_after(Time(i64::MIN))).filter(|end| *end > from),
            None => None,
        }
    }

    /// The amount at a time.
    fn at(&self, time: Time) -> i64 {
        let (mut link, mut amount) = (self.root, self.first);
        while let Some(node) = self.node(link) {
            let goes_on = node.at <= time;
            if goes_on {
                amount += self.sum(node.below[EARLIER]) + node.by;
            }
            link = node.below[if goes_on { LATER } else { EARLIER }];
        }
        amount
    }

    /// The time of the first change after `time`; [`Time::MAX`] if there is none.
    fn next_after(&self, time: Time) -> Time {
        let (mut link, mut next) = (self.root, Time::MAX);
        while let Some(node) = self.node(link) {
            let is_after = node.at > time;
            if is_after {
                next = node.at;
            }
            link = node.below[if is_after { EARLIER } else { LATER }];
        }
        next
    }

    /// The last change before `until` after which the amount is below `need`; `before` is the amount before
    /// the subtree.
    fn last_below(&self, link: Link, before: i64, need: i64, until: Time) -> Option<Time> {
        let node = self.node(link).filter(|node| before + node.least < need)?;
        let [earlier, later] = node.below;
        let after = before + self.sum(earlier) + node.by;
        if node.at < until {
            let found = self.last_below(later, after, need, until);
            if let Some(found) = found.or_else(|| (after < need).then_some(node.at)) {
                return Some(found);
            }
        }
        self.last_below(earlier, before, need, until)
    }

    fn node(&self, link: Link) -> Option<&Change> {
        link.map(|place| &self.nodes[place as usize])
    }

    fn sum(&self, link: Link) -> i64 {
        self.node(link).map_or(0, |node| node.sum)
    }

    /// Adds to the change at a time; a change that becomes 0 is removed.
    fn change(&mut self, at: Time, by: i64) {
        let (before, rest) = self.split(self.root, at, false);
        let (here, after) = self.split(rest, at, true);
        let place = match here {
            Some(place) => {
                let node = &mut self.nodes[place as usize];
                node.by += by;
                (node.sum, node.least) = (node.by, node.by);
                place
            }
            None => self.put(Change { at, by, sum: by, least: by, below: [None; 2] }),
        };
        let before = if self.nodes[place as usize].by == 0 {
            self.vacant.push(place);
            before
        } else {
            self.join(before, Some(place))
        };
        self.root = self.join(before, after);
    }

    fn put(&mut self, node: Change) -> u32 {
        match self.vacant.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }

    /// Splits a subtree into the changes before `at` (and at it if `with`) and the others.
    fn split(&mut self, link: Link, at: Time, with: bool) -> (Link, Link) {
        let Some(place) = link else { return (None, None) };
        let node = &self.nodes[place as usize];
        let is_first = node.at < at || (with && node.at == at);
        let [earlier, later] = node.below;
        if is_first {
            let (first, second) = self.split(later, at, with);
            self.nodes[place as usize].below[LATER] = first;
            self.sum_up(place);
            (Some(place), second)
        } else {
            let (first, second) = self.split(earlier, at, with);
            self.nodes[place as usize].below[EARLIER] = second;
            self.sum_up(place);
            (first, Some(place))
        }
    }

    /// Joins two subtrees, all changes of the first before those of the second.
    fn join(&mut self, earlier: Link, later: Link) -> Link {
        let (Some(one), Some(other)) = (earlier, later) else { return earlier.or(later) };
        let [rank, others] = [one, other].map(|place| rank(self.nodes[place as usize].at));
        if rank > others {
            let joined = self.join(self.nodes[one as usize].below[LATER], later);
            self.nodes[one as usize].below[LATER] = joined;
            self.sum_up(one);
            earlier
        } else {
            let joined = self.join(earlier, self.nodes[other as usize].below[EARLIER]);
            self.nodes[other as usize].below[EARLIER] = joined;
            self.sum_up(other);
            later
        }
    }

    fn sum_up(&mut self, place: u32) {
        let node = &self.nodes[place as usize];
        let [earlier, later] = node.below.map(|link| self.node(link));
        let mine = earlier.map_or(0, |earlier| earlier.sum) + node.by;
        let sum = mine + later.map_or(0, |later| later.sum);
        let least = [earlier.map(|earlier| earlier.least), Some(mine), later.map(|later| mine + later.least)];
        let least = least.into_iter().flatten().min().unwrap_or(mine);
        let node = &mut self.nodes[place as usize];
        (node.sum, node.least) = (sum, least);
    }
}

/// The heap priority of a node: larger above smaller. The bits of the time are mixed well, so the tree is as
/// deep as a random one.
fn rank(at: Time) -> u64 {
    let mixed = at.0.cast_unsigned().wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_answer_is_that_of_a_list(
            first in -3_i64..9,
            changes in prop::collection::vec((0_i64..30, 0_i64..40, -4_i64..5), 0..30),
            asked in prop::collection::vec((0_i64..35, 1_i64..20, -2_i64..9), 1..9),
        ) {
            let mut steps = StepFunction::new(first);
            let mut list = [first; 60];
            for (from, to, amount) in changes {
                // The last times stand for never.
                let end = if to >= 35 { Time::MAX } else { Time(to) };
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
