//! Sets of small numbers: CPUs or devices of one node.
//!
//! Numbers up to 63, the most frequent case, are stored inline as bits; other sets as runs of consecutive
//! numbers. There are few runs, as the lowest free numbers are taken first. Text is in Slurm's format of CPU
//! lists (`0-3,8`).

use std::fmt;
use std::iter;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smallvec::SmallVec;

/// Number of ids that are stored inline.
const WORD: u32 = u64::BITS;
/// The largest number in a set. It is above the number of CPUs or devices of any node, and enough for a whole
/// machine that a simulation counts as one node.
pub const MAX_ID: u32 = 1_048_575;

/// A set of numbers in `0..=MAX_ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdSet(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Numbers 0 to 63, one bit each.
    Word(u64),
    /// Runs in ascending order with gaps between them; the largest number is above 63.
    Runs(Box<[Run]>),
}

/// A run of consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    from: u32,
    /// The first number after the run.
    to: u32,
}

impl Run {
    /// The run of one number.
    fn of(id: u32) -> Self {
        Self { from: id, to: id + 1 }
    }

    fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

/// A word with all bits from `bit` on; 0 for 64 and above.
fn bits_from(bit: u32) -> u64 {
    u64::MAX.checked_shl(bit).unwrap_or(0)
}

/// The runs of bits in a word.
fn runs_of(word: u64) -> impl Iterator<Item = Run> {
    let mut rest = word;
    iter::from_fn(move || {
        (rest != 0).then(|| {
            let from = rest.trailing_zeros();
            let to = from + (rest >> from).trailing_ones();
            rest &= bits_from(to);
            Run { from, to }
        })
    })
}

/// A text that is not a set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of numbers such as 0-3,8 (each at most {MAX_ID})")]
pub struct IdSetError(String);

impl IdSet {
    /// The set without elements.
    pub const EMPTY: IdSet = IdSet(Form::Word(0));

    /// All numbers below `count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        Self::EMPTY.lowest_outside(count, count)
    }

    /// The runs of the set, in ascending order.
    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (word, runs): (u64, &[Run]) = match &self.0 {
            Form::Word(word) => (*word, &[]),
            Form::Runs(runs) => (0, runs),
        };
        runs_of(word).chain(runs.iter().copied())
    }

    /// The set of these runs, which are sorted by their beginning and may overlap.
    fn from_runs(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut all: SmallVec<[Run; 16]> = SmallVec::new();
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            match all.last_mut().filter(|last| run.from <= last.to) {
                Some(last) => last.to = last.to.max(run.to),
                None => all.push(run),
            }
        }
        if all.last().is_some_and(|last| last.to > WORD) {
            return IdSet(Form::Runs(all.as_slice().into()));
        }
        IdSet(Form::Word(all.iter().fold(0, |word, run| word | (bits_from(run.from) & !bits_from(run.to)))))
    }

    /// Number of elements in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.0 {
            Form::Word(word) => word.count_ones(),
            Form::Runs(runs) => runs.iter().map(|run| run.to - run.from).sum(),
        }
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == Form::Word(0)
    }

    /// True if `id` is in the set.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        match &self.0 {
            Form::Word(word) => id < WORD && word >> id & 1 == 1,
            Form::Runs(runs) => {
                let at = runs.partition_point(|run| run.to <= id);
                runs.get(at).is_some_and(|run| run.from <= id)
            }
        }
    }

    /// The numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs().flat_map(|run| run.from..run.to)
    }

    /// The smallest `count` numbers of the set; fewer if there are not enough.
    #[must_use]
    pub fn lowest(&self, count: u32) -> Self {
        Self::lowest_of(self.runs(), count)
    }

    /// The smallest `count` numbers below `limit` that are not in the set; fewer if there are not enough.
    #[must_use]
    pub fn lowest_outside(&self, limit: u32, count: u32) -> Self {
        let limit = limit.min(MAX_ID + 1);
        let mut from = 0;
        let gaps = self.runs().chain([Run { from: limit, to: limit }]).map(|run| {
            let gap = Run { from, to: run.from.min(limit) };
            from = run.to;
            gap
        });
        Self::lowest_of(gaps.filter(|gap| !gap.is_empty()), count)
    }

    /// The smallest `count` numbers of some runs.
    fn lowest_of(runs: impl Iterator<Item = Run>, count: u32) -> Self {
        let mut left = count;
        Self::from_runs(runs.map_while(|run| {
            let has = left.min(run.to - run.from);
            left -= has;
            (has > 0).then_some(Run { to: run.from + has, ..run })
        }))
    }

    /// Adds the numbers of another set.
    pub fn insert_all(&mut self, other: &Self) {
        *self = self.union(other);
    }

    /// Removes the numbers of another set.
    pub fn remove_all(&mut self, other: &Self) {
        *self = self.difference(other);
    }

    /// The union of two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if let (Form::Word(mine), Form::Word(theirs)) = (&self.0, &other.0) {
            return IdSet(Form::Word(mine | theirs));
        }
        let (mut mine, mut theirs) = (self.runs().peekable(), other.runs().peekable());
        Self::from_runs(iter::from_fn(|| match (mine.peek(), theirs.peek()) {
            (Some(one), Some(other)) if other.from < one.from => theirs.next(),
            (None, _) => theirs.next(),
            (Some(_), _) => mine.next(),
        }))
    }

    /// The numbers that are in this set but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        if let (Form::Word(mine), Form::Word(theirs)) = (&self.0, &other.0) {
            return IdSet(Form::Word(mine & !theirs));
        }
        let (mut mine, mut theirs) = (self.runs(), other.runs().peekable());
        let mut rest = mine.next();
        Self::from_runs(iter::from_fn(|| {
            let run = rest?;
            while theirs.next_if(|less| less.to <= run.from).is_some() {}
            // The part before the next removed run; the run continues after that.
            let to = theirs.peek().map_or(run.to, |less| less.from.clamp(run.from, run.to));
            let next = theirs.peek().map_or(run.to, |less| less.to);
            rest = if next < run.to { Some(Run { from: next, ..run }) } else { mine.next() };
            Some(Run { to, ..run })
        }))
    }

    /// True if no number is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.difference(other) == *self
    }

    /// True if every number of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }
}

impl Default for IdSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<u32> for IdSet {
    /// Collects numbers into a set. Numbers above [`MAX_ID`] cannot be stored and are dropped.
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut ids: Vec<u32> = ids.into_iter().filter(|id| *id <= MAX_ID).collect();
        ids.sort_unstable();
        Self::from_runs(ids.into_iter().map(Run::of))
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for Run { from, to } in self.runs() {
            match to - from {
                1 => write!(f, "{comma}{from}")?,
                _ => write!(f, "{comma}{from}-{}", to - 1)?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for IdSet {
    type Err = IdSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || IdSetError(text.to_owned());
        let number = |part: &str| part.parse().ok().filter(|id| *id <= MAX_ID).ok_or_else(fault);
        let mut runs = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if first > last {
                return Err(fault());
            }
            runs.push(Run { from: first, to: last + 1 });
        }
        runs.sort_unstable_by_key(|run| run.from);
        Ok(Self::from_runs(runs))
    }
}

impl Serialize for IdSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IdSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_forms() {
        for text in ["", "0", "0-3,8", "63-64", "5,7,900-1000"] {
            assert_eq!(text.parse::<IdSet>().expect("a list").to_string(), text);
        }
        for bad in ["x", "3-1", "1,,2", "1048576", "-"] {
            assert!(bad.parse::<IdSet>().is_err(), "{bad}");
        }
    }

    fn numbers() -> impl Strategy<Value = BTreeSet<u32>> {
        prop_oneof![
            prop::collection::btree_set(0u32..200, 0..40),
            prop::collection::btree_set(150u32..300, 0..40),
            prop::collection::btree_set(0u32..4_000, 0..400),
            // All numbers but some.
            (0u32..3_000, 1u32..2_500, 2u32..90)
                .prop_map(|(first, many, skip)| (first..first + many).filter(|id| id % skip > 0).collect()),
        ]
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in numbers(), b in numbers(), count in 0u32..4_000) {
            let (x, y): (IdSet, IdSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(x.union(&y), a.union(&b).copied().collect());
            prop_assert_eq!(x.difference(&y), a.difference(&b).copied().collect());
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.len() as usize, a.len());
            prop_assert_eq!(x.iter().collect::<Vec<_>>(), a.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(IdSet::first(count), (0..count).collect());
            let (mut more, mut less) = (x.clone(), x.clone());
            more.insert_all(&y);
            less.remove_all(&y);
            prop_assert_eq!(more, x.union(&y));
            prop_assert_eq!(less, x.difference(&y));
            let outside = (0..count).filter(|id| !a.contains(id)).take(count as usize / 6);
            prop_assert_eq!(x.lowest_outside(count, count / 6), outside.collect());
            prop_assert_eq!(x.lowest(count / 6), a.iter().copied().take(count as usize / 6).collect());
            prop_assert_eq!(x.to_string().parse::<IdSet>().expect("own text"), x);
        }
    }
}
