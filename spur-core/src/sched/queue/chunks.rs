//! Jobs in the order of the queue, in chunks with the least that any job of the chunk takes. A search for a
//! job that fits the free resources skips a chunk whose least does not fit.

use std::cmp::Reverse;

use crate::id::JobId;
use crate::sched::request::counts::Counts;
use crate::text::time::Time;

/// Number of rows in a chunk above which the chunk is split.
const FULL: usize = 128;

/// The sort key of a job; smaller keys come first.
///
/// Jobs that have waited for `max_wait` come before all others, in order of submission. Then count the tier
/// (of QOS, where these preempt, and of partitions), the measure of the order, and the time of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    aged: Reverse<bool>,
    tier: Reverse<u32>,
    /// Planned run time in seconds, where backfill is sorted by it; otherwise 0.
    length: u64,
    priority: Reverse<u32>,
    rank: u64,
    submitted: Time,
    pub(crate) job: JobId,
}

impl Key {
    /// The smallest possible key.
    pub(crate) const FIRST: Self = Self {
        aged: Reverse(true),
        tier: Reverse(u32::MAX),
        length: 0,
        priority: Reverse(u32::MAX),
        rank: 0,
        submitted: Time(i64::MIN),
        job: JobId(0),
    };

    /// The key of a job by tier, priority and rank.
    pub(crate) fn new(tier: u32, priority: u32, rank: Option<f64>, submitted: Time, job: JobId) -> Self {
        Self {
            aged: Reverse(false),
            tier: Reverse(tier),
            length: 0,
            priority: Reverse(priority),
            rank: rank.map_or(0, sortable),
            submitted,
            job,
        }
    }

    /// The key of a job that has waited for `max_wait`.
    pub(crate) fn aged(submitted: Time, job: JobId) -> Self {
        Self { aged: Reverse(true), ..Self::new(0, 0, None, submitted, job) }
    }

    /// True if the job has waited for `max_wait`.
    pub(crate) fn is_aged(&self) -> bool {
        self.aged.0
    }

    /// The key of the job where backfill is sorted by planned run time. A job that has waited for `max_wait`
    /// keeps its key.
    pub(crate) fn by_length(self, seconds: u64) -> Self {
        Self { length: if self.is_aged() { 0 } else { seconds }, ..self }
    }
}

/// Maps a number to an integer with the order of [`f64::total_cmp`].
fn sortable(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The least that a job takes, its run time, and its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Least {
    pub(crate) counts: Counts,
    /// Planned run time in seconds.
    pub(crate) run_time: u64,
    /// The reach of the job: it can preempt running jobs only of levels below this, and none if it is 0. See
    /// [`precedence::reach`](crate::sched::precedence::reach).
    pub(crate) reach: u32,
}

impl Least {
    /// Stands for a job that need not be looked at: more than a cluster ever has.
    pub(crate) const ASLEEP: Self = {
        let counts = Counts { cpus: u64::MAX, nodes: u64::MAX, whole: u64::MAX, devices: u64::MAX };
        Self { counts, run_time: u64::MAX, reach: 0 }
    };

    /// The smaller amounts and run time of the two, with the larger reach.
    fn min(self, other: Self) -> Self {
        Self {
            counts: self.counts.min(other.counts),
            run_time: self.run_time.min(other.run_time),
            reach: self.reach.max(other.reach),
        }
    }
}

/// A job with its key and the least that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) least: Least,
}

/// Adjacent rows in the order of the queue, at least one.
#[derive(Clone, Debug)]
struct Chunk {
    rows: Vec<Row>,
    least: Least,
}

impl Chunk {
    fn new(rows: Vec<Row>) -> Option<Self> {
        let least = rows.iter().map(|row| row.least).reduce(Least::min)?;
        Some(Self { rows, least })
    }
}

/// A place in the order, from which a walk continues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    chunk: usize,
    row: usize,
}

/// Rows in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    chunks: Vec<Chunk>,
    len: usize,
}

impl Rows {
    /// Sorts rows.
    pub(crate) fn new(mut rows: Vec<Row>) -> Self {
        rows.sort_unstable_by_key(|row| row.key);
        let chunks = rows.chunks(FULL / 2).filter_map(|chunk| Chunk::new(chunk.to_vec()));
        Self { chunks: chunks.collect(), len: rows.len() }
    }

    /// Number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.chunks.iter().flat_map(|chunk| &chunk.rows)
    }

    /// Number of jobs before a key.
    pub(crate) fn before(&self, key: &Key) -> usize {
        let (at, row) = self.find(key);
        self.chunks[..at].iter().map(|chunk| chunk.rows.len()).sum::<usize>() + row
    }

    /// Number of jobs before a key if it is less than `most`, and otherwise `most`. The cost depends on
    /// `most`, not on the number of jobs.
    pub(crate) fn before_up_to(&self, key: &Key, most: usize) -> usize {
        let (at, row) = self.find(key);
        let mut before = row;
        let mut chunks = self.chunks[..at].iter();
        while before < most
            && let Some(chunk) = chunks.next()
        {
            before += chunk.rows.len();
        }
        before.min(most)
    }

    /// The row with a number, counted from 0.
    pub(crate) fn nth(&self, mut number: usize) -> Option<&Row> {
        for chunk in &self.chunks {
            match number.checked_sub(chunk.rows.len()) {
                Some(rest) => number = rest,
                None => return chunk.rows.get(number),
            }
        }
        None
    }

    /// The last row.
    pub(crate) fn last(&self) -> Option<&Row> {
        self.chunks.last().and_then(|chunk| chunk.rows.last())
    }

    /// Adds a row.
    pub(crate) fn insert(&mut self, row: Row) {
        let (at, place) = self.find(&row.key);
        self.len += 1;
        // A place at the start of a chunk is also the end of the chunk before, which saves a chunk at the end
        // of all rows.
        let (at, place) = match at.checked_sub(1) {
            Some(before) if place == 0 => (before, self.chunks[before].rows.len()),
            _ => (at, place),
        };
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.extend(Chunk::new(vec![row]));
            return;
        };
        chunk.rows.insert(place, row);
        chunk.least = chunk.least.min(row.least);
        if chunk.rows.len() > FULL {
            let second = chunk.rows.split_off(FULL / 2);
            let first = std::mem::take(&mut chunk.rows);
            self.chunks.splice(at..=at, [first, second].into_iter().filter_map(Chunk::new));
        }
    }

    /// Removes a row; does nothing if the row is not there.
    pub(crate) fn remove(&mut self, key: &Key) {
        let (at, place) = self.find(key);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        if chunk.rows.get(place).is_none_or(|row| row.key != *key) {
            return;
        }
        self.len -= 1;
        chunk.rows.remove(place);
        match chunk.rows.iter().map(|row| row.least).reduce(Least::min) {
            Some(least) => chunk.least = least,
            None => drop(self.chunks.remove(at)),
        }
    }

    /// Changes the least needs of a job; does nothing if the job is not in the queue.
    pub(crate) fn change(&mut self, key: &Key, least: Least) {
        let (at, place) = self.find(key);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Some(row) = chunk.rows.get_mut(place).filter(|row| row.key == *key) else { return };
        row.least = least;
        chunk.least = chunk.rows.iter().map(|row| row.least).reduce(Least::min).unwrap_or(least);
    }

    /// The next row at or behind a place for which `may` holds, of a job that is not asleep. If `may` holds
    /// for any of several rows, it has to hold for the minimum of their needs too. The place is moved behind
    /// the row.
    pub(crate) fn next(&self, place: &mut Place, may: impl Fn(&Least) -> bool) -> Option<Row> {
        let may = |least: &Least| *least != Least::ASLEEP && may(least);
        while let Some(chunk) = self.chunks.get(place.chunk) {
            if may(&chunk.least) {
                let rest = &chunk.rows[place.row..];
                if let Some(found) = rest.iter().position(|row| may(&row.least)) {
                    place.row += found + 1;
                    return Some(rest[found]);
                }
            }
            *place = Place { chunk: place.chunk + 1, row: 0 };
        }
        None
    }

    /// The chunk and the index within it at which a key is, or would be.
    fn find(&self, key: &Key) -> (usize, usize) {
        let at = self.chunks.partition_point(|chunk| chunk.rows.last().is_some_and(|row| row.key < *key));
        let place = self.chunks.get(at).map_or(0, |chunk| chunk.rows.partition_point(|row| row.key < *key));
        (at, place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(number: u32, cpus: u64) -> Row {
        let key = Key::new(0, number / 3, None, Time(0), JobId(number));
        let counts = Counts { cpus, nodes: 1, ..Counts::default() };
        Row { key, least: Least { counts, run_time: u64::from(number % 7), reach: 0 } }
    }

    proptest! {
        #[test]
        fn rows_stay_in_order(changes in prop::collection::vec((0_u32..300, 0_u64..50), 0..900), limit in 0_u64..50) {
            let mut rows = Rows::default();
            let mut model = std::collections::BTreeMap::new();
            for (number, cpus) in changes {
                let added = row(number, cpus);
                if model.remove(&added.key).is_some() {
                    rows.remove(&added.key);
                } else {
                    model.insert(added.key, added);
                    rows.insert(added);
                }
                let before = model.range(..added.key).count();
                prop_assert_eq!(rows.before(&added.key), before);
                for most in [0, 1, before, before + 1, 1_000] {
                    prop_assert_eq!(rows.before_up_to(&added.key, most), before.min(most));
                }
            }
            prop_assert_eq!(rows.len(), model.len());
            prop_assert_eq!(rows.iter().copied().collect::<Vec<_>>(), model.values().copied().collect::<Vec<_>>());
            for number in 0..=model.len() {
                prop_assert_eq!(rows.nth(number), model.values().nth(number));
            }
            prop_assert_eq!(rows.last(), model.values().last());
            let mut place = Place::default();
            let fits = |least: &Least| least.counts.cpus <= limit && least.run_time <= 4;
            let found = std::iter::from_fn(|| rows.next(&mut place, fits)).collect::<Vec<_>>();
            prop_assert_eq!(found, model.into_values().filter(|row| fits(&row.least)).collect::<Vec<_>>());
        }

        #[test]
        fn ranks_are_ordered_as_numbers(one in any::<f64>(), other in any::<f64>()) {
            prop_assert_eq!(sortable(one).cmp(&sortable(other)), one.total_cmp(&other));
        }
    }
}
