//! A small set of small numbers: the CPUs or GPUs of one node that something holds.
//!
//! Stored inline up to number 63, because most allocations are, and otherwise from its lowest to its highest number;
//! written as Slurm writes CPU lists (`0-3,8`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Numbers per word.
const WORD: u32 = u64::BITS;
/// The largest number a set may hold; more than any node has of anything, and enough for a whole machine that a
/// simulation counts as one node.
pub const MAX_ID: u32 = 1_048_575;

/// A set of numbers in `0..=MAX_ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdSet(Words);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    /// Numbers 0 to 63.
    Inline(u64),
    /// The words from `first` on. Neither the first nor the last of them is zero, and there are numbers above 63.
    Heap { first: u32, words: Box<[u64]> },
}

/// Words that are counted together.
const BLOCK: usize = 16;

/// A block of no more words than that.
fn block(words: &[u64]) -> [u64; BLOCK] {
    let mut block = [0; BLOCK];
    block[..words.len()].copy_from_slice(words);
    block
}

/// The `count` lowest of a word's bits that are set.
fn lowest_bits(word: u64, count: u32) -> u64 {
    if count >= word.count_ones() {
        return word;
    }
    let rest = (0..count).fold(word, |rest, _| rest & rest.wrapping_sub(1));
    word & !rest
}

/// Why a text is not a set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of numbers such as 0-3,8 (each at most {MAX_ID})")]
pub struct IdSetError(String);

impl IdSet {
    /// The set with nothing in it.
    pub const EMPTY: IdSet = IdSet(Words::Inline(0));

    /// All numbers below `count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        let count = count.min(MAX_ID + 1);
        let mut words = vec![u64::MAX; (count / WORD) as usize];
        words.push((1 << (count % WORD)) - 1);
        Self::from_words(0, words)
    }

    /// The words that are stored, and which the first of them is.
    fn words(&self) -> (usize, &[u64]) {
        match &self.0 {
            Words::Inline(word) => (0, std::slice::from_ref(word)),
            Words::Heap { first, words } => (*first as usize, words),
        }
    }

    /// Any word.
    fn word(&self, at: usize) -> u64 {
        let (first, words) = self.words();
        at.checked_sub(first).and_then(|at| words.get(at)).copied().unwrap_or(0)
    }

    /// The set of these words, `first` being the number of the first of them.
    fn from_words(first: usize, mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        let zeros = words.iter().take_while(|word| **word == 0).count();
        words.drain(..zeros);
        let first = u32::try_from(first + zeros).expect("numbers are limited");
        match words.as_slice() {
            [] => Self::EMPTY,
            [word] if first == 0 => IdSet(Words::Inline(*word)),
            _ => IdSet(Words::Heap { first, words: words.into_boxed_slice() }),
        }
    }

    /// How many numbers are in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.words().1.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == Words::Inline(0)
    }

    /// Whether `id` is in the set.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.word((id / WORD) as usize) >> (id % WORD) & 1 == 1
    }

    /// The numbers, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (first, words) = self.words();
        let first = u32::try_from(first).expect("numbers are limited");
        words.iter().zip(first..).flat_map(|(word, at)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    at * WORD + bit
                })
            })
        })
    }

    /// The smallest `count` numbers of the set; fewer if there are not as many.
    #[must_use]
    pub fn lowest(&self, count: u32) -> Self {
        let (first, words) = self.words();
        Self::lowest_of(first, words.chunks(BLOCK).map(block), count)
    }

    /// The smallest `count` numbers below `limit` that are not in the set; fewer if there are not as many.
    #[must_use]
    pub fn lowest_outside(&self, limit: u32, count: u32) -> Self {
        let limit = limit.min(MAX_ID + 1);
        let (first, words) = self.words();
        // Where much is held, mostly the low numbers are.
        let held = words.iter().filter(|_| first == 0).take_while(|word| **word == u64::MAX).count();
        let (whole, end) = ((limit / WORD) as usize, limit.div_ceil(WORD) as usize);
        let outside = (held..end).step_by(BLOCK).map(|at| {
            let stored = at.clamp(first, first + words.len())..(at + BLOCK).clamp(first, first + words.len());
            let mut inside = [0; BLOCK];
            if !stored.is_empty() {
                let to = stored.start - at..stored.end - at;
                inside[to].copy_from_slice(&words[stored.start - first..stored.end - first]);
            }
            let mut outside = inside.map(|word| !word);
            for (word, at) in outside.iter_mut().zip(at..).filter(|(_, at)| *at >= whole) {
                *word &= if at == whole { (1 << (limit % WORD)) - 1 } else { 0 };
            }
            outside
        });
        Self::lowest_of(held, outside, count)
    }

    /// The smallest numbers of some words, the first of which has that number.
    fn lowest_of(first: usize, blocks: impl Iterator<Item = [u64; BLOCK]>, count: u32) -> Self {
        let (mut first, mut found, mut left) = (first, Vec::new(), count);
        for block in blocks {
            if left == 0 {
                break;
            }
            let has: u32 = block.iter().map(|word| word.count_ones()).sum();
            if has == 0 && found.is_empty() {
                first += BLOCK;
                continue;
            }
            found.extend(block);
            if has > left {
                let start = found.len() - BLOCK;
                for word in &mut found[start..] {
                    let has = word.count_ones().min(left);
                    *word = lowest_bits(*word, has);
                    left -= has;
                }
            }
            left -= has.min(left);
        }
        Self::from_words(first, found)
    }

    /// Adds what is in another set.
    pub fn insert_all(&mut self, other: &Self) {
        let (begin, more) = other.words();
        match &mut self.0 {
            Words::Heap { first, words }
                if begin >= *first as usize && begin + more.len() <= *first as usize + words.len() =>
            {
                let at = begin - *first as usize;
                words[at..].iter_mut().zip(more).for_each(|(mine, theirs)| *mine |= theirs);
            }
            Words::Inline(_) | Words::Heap { .. } => *self = self.union(other),
        }
    }

    /// Takes out what is in another set.
    pub fn remove_all(&mut self, other: &Self) {
        let (begin, less) = other.words();
        let Words::Heap { first, words } = &mut self.0 else {
            *self = self.difference(other);
            return;
        };
        let first = *first as usize;
        let skip = first.saturating_sub(begin).min(less.len());
        let at = (begin + skip).saturating_sub(first).min(words.len());
        words[at..].iter_mut().zip(&less[skip..]).for_each(|(mine, theirs)| *mine &= !theirs);
        if words.first() == Some(&0) || words.last() == Some(&0) {
            *self = Self::from_words(first, words.to_vec());
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |mine, theirs| mine | theirs)
    }

    /// What is in this one and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |mine, theirs| mine & !theirs)
    }

    /// Whether no number is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (first, words) = self.words();
        words.iter().zip(first..).all(|(mine, at)| mine & other.word(at) == 0)
    }

    /// Whether every number of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        if let (Words::Inline(mine), Words::Inline(theirs)) = (&self.0, &other.0) {
            return IdSet(Words::Inline(join(*mine, *theirs)));
        }
        let ((mine, my_words), (theirs, their_words)) = (self.words(), other.words());
        let (first, end) = (mine.min(theirs), (mine + my_words.len()).max(theirs + their_words.len()));
        let joined = (first..end).map(|at| join(self.word(at), other.word(at)));
        Self::from_words(first, joined.collect())
    }
}

impl Default for IdSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<u32> for IdSet {
    /// Numbers above [`MAX_ID`] are not representable and left out; no node has as many of anything.
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut words: Vec<u64> = vec![0];
        for id in ids.into_iter().filter(|id| *id <= MAX_ID) {
            let at = (id / WORD) as usize;
            if at >= words.len() {
                words.resize(at + 1, 0);
            }
            words[at] |= 1 << (id % WORD);
        }
        Self::from_words(0, words)
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
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
        let mut ids = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if first > last {
                return Err(fault());
            }
            ids.extend(first..=last);
        }
        Ok(ids.into_iter().collect())
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
            // All but some.
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
