//! The queue of each partition and of each reservation of nodes, in which the depth counts.
//!
//! A *section* is a partition, or a reservation with nodes of its own. A pass looks at the first `depth` jobs
//! of the whole queue. It also looks at each later job that has fewer than `depth` jobs before it in one of
//! its sections. In a section the jobs of all sections count that share nodes with it, and a job of several
//! sections counts in each. So a pass looks at a job for idle nodes, however many jobs wait for other nodes.

use std::iter::Peekable;

use smallvec::SmallVec;

use crate::model::reservation::Flag;
use crate::sched::inventory::Inventory;

use super::chunks::{Key, Least, Row, Rows};
use super::{Candidate, Ranked};

/// The numbers of a job's sections.
pub(crate) type OfJob = SmallVec<[usize; 2]>;

/// The rows of the queue by section. No rows are kept if all sections share nodes, or if a pass looks at all
/// jobs anyway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections {
    /// For each section, the sections that share nodes with it, itself included.
    sharing: Vec<Vec<usize>>,
    rows: Vec<Rows>,
}

impl Sections {
    /// The sections of an inventory, without jobs.
    pub(super) fn new(inventory: &Inventory) -> Self {
        let count = inventory.partitions.len() + inventory.reservations.len();
        let sharing: Vec<Vec<usize>> = (0..count).map(|section| sharing(inventory, section)).collect();
        if inventory.policy.scheduler.depth == 0 || sharing.iter().all(|sharing| sharing.len() == count) {
            return Self::default();
        }
        Self { sharing, rows: vec![Rows::default(); count] }
    }

    /// True if the depth counts in the whole queue only.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The sections of a job; empty if there are none.
    pub(super) fn of(&self, inventory: &Inventory, ranked: &Ranked) -> OfJob {
        if self.is_empty() {
            return OfJob::new();
        }
        let components = ranked.candidate.iter().flat_map(|candidate| candidate.all());
        let mut sections: OfJob =
            components.flat_map(|component| of_component(inventory, component)).collect();
        if sections.is_empty() {
            sections.push(ranked.partition);
        }
        sections.sort_unstable();
        sections.dedup();
        sections
    }

    /// Adds a row.
    pub(super) fn insert(&mut self, row: Row, sections: &OfJob) {
        sections.iter().for_each(|section| self.rows[*section].insert(row));
    }

    /// Removes a row.
    pub(super) fn remove(&mut self, key: &Key, sections: &OfJob) {
        sections.iter().for_each(|section| self.rows[*section].remove(key));
    }

    /// Changes the least needs of a job.
    pub(super) fn change(&mut self, key: &Key, least: Least, sections: &OfJob) {
        sections.iter().for_each(|section| self.rows[*section].change(key, least));
    }

    /// Replaces all rows.
    pub(super) fn sort<'a>(&mut self, all: impl Iterator<Item = (Row, &'a OfJob)>) {
        if self.is_empty() {
            return;
        }
        let mut rows = vec![Vec::new(); self.rows.len()];
        for (row, sections) in all {
            sections.iter().for_each(|section| rows[*section].push(row));
        }
        self.rows = rows.into_iter().map(Rows::new).collect();
    }

    /// True if in one of the sections fewer than `depth` jobs come before a key.
    pub(super) fn admits(&self, key: &Key, sections: &OfJob, depth: usize) -> bool {
        sections.iter().any(|section| self.is_within(*section, key, depth))
    }

    /// True if every job is within the depth in all of its sections.
    pub(super) fn admits_all(&self, depth: usize) -> bool {
        !self.is_empty()
            && (0..self.rows.len()).all(|section| {
                self.rows[section].last().is_none_or(|last| self.is_within(section, &last.key, depth))
            })
    }

    /// The rows behind a key of jobs that are within the depth in one of their sections, in order.
    pub(super) fn behind(&self, key: &Key, depth: usize) -> Vec<Row> {
        let mut found = Vec::new();
        for (section, rows) in self.rows.iter().enumerate() {
            let first = rows.before_up_to(key, depth);
            let first = first + usize::from(rows.nth(first).is_some_and(|row| row.key == *key));
            let (mut from, mut to) = (first, rows.len().min(depth).max(first));
            while from < to {
                let middle = from.midpoint(to);
                match rows.nth(middle).is_some_and(|row| self.is_within(section, &row.key, depth)) {
                    true => from = middle + 1,
                    false => to = middle,
                }
            }
            found.extend(rows.iter().take(from).skip(first).copied());
        }
        found.sort_unstable_by_key(|row| row.key);
        found.dedup_by_key(|row| row.key);
        found
    }

    /// True if fewer than `depth` jobs of the sections that share nodes with a section come before a key.
    fn is_within(&self, section: usize, key: &Key, depth: usize) -> bool {
        let mut left = depth;
        self.sharing[section].iter().all(|other| {
            left -= self.rows[*other].before_up_to(key, left);
            left > 0
        })
    }

    /// A walk along the queue, whose rows are `all`.
    pub(super) fn walk<'a>(&'a self, all: &'a Rows, depth: usize) -> Walk<'a, impl Iterator<Item = &'a Row>> {
        let whole = self.is_empty().then_some(all);
        let cursors = self.rows.iter().chain(whole).map(|rows| rows.iter().peekable()).collect();
        Walk { sections: self, depth, cursors, taken: 0, by_section: vec![0; self.rows.len()] }
    }
}

/// A walk along the queue in which only the jobs count that a pass takes: users and partitions have depths of
/// their own. A section of which enough jobs were taken is not read any further.
pub(super) struct Walk<'a, I: Iterator<Item = &'a Row>> {
    sections: &'a Sections,
    depth: usize,
    /// The rest of each section; the rest of the queue if there are no sections.
    cursors: Vec<Peekable<I>>,
    taken: usize,
    by_section: Vec<usize>,
}

impl<'a, I: Iterator<Item = &'a Row>> Walk<'a, I> {
    /// The next row that is within the depth.
    pub(super) fn next(&mut self) -> Option<&'a Row> {
        let Self { depth, cursors, taken, by_section, .. } = self;
        let is_open =
            |section: usize| *taken < *depth || by_section.get(section).is_some_and(|taken| *taken < *depth);
        let open = cursors.iter_mut().enumerate().filter(|(section, _)| is_open(*section));
        let first = open.filter_map(|(_, rows)| rows.peek().copied()).min_by_key(|row| row.key)?;
        for rows in cursors {
            rows.next_if(|row| row.key == first.key);
        }
        Some(first)
    }

    /// Counts a job of these sections.
    pub(super) fn take(&mut self, sections: &OfJob) {
        self.taken += 1;
        let sharing = |section: &usize| &self.sections.sharing[*section];
        for section in sections.iter().flat_map(sharing) {
            self.by_section[*section] += 1;
        }
    }
}

/// The sections that share nodes with a section, itself included. Jobs of a reservation with nodes of its own
/// hinder only each other.
fn sharing(inventory: &Inventory, section: usize) -> Vec<usize> {
    let partitions = &inventory.partitions;
    let Some(own) = partitions.get(section) else { return vec![section] };
    let shares = |other: &usize| {
        *other == section || !own.partition.members.is_disjoint(&partitions[*other].partition.members)
    };
    (0..partitions.len()).filter(shares).collect()
}

/// The sections in which a job or a component may be planned, with repetitions.
fn of_component(inventory: &Inventory, component: &Candidate) -> OfJob {
    let spec = &component.spec;
    let named = || {
        inventory.reservations.iter().enumerate().filter(|(_, own)| {
            let is_named = spec.reservations().any(|name| *name == *own.name);
            let draws = spec.reservations().next().is_none() && own.has(Flag::Magnetic);
            (is_named || draws) && own.admits(&spec.owner, spec.account.as_deref())
        })
    };
    let bound = named().filter(|(_, own)| own.binds_to_nodes());
    let mut sections: OfJob = bound.map(|(index, _)| inventory.partitions.len() + index).collect();
    let is_open = spec.reservations().next().is_none() || named().any(|(_, own)| !own.binds_to_nodes());
    if is_open {
        sections.extend(component.choices.iter().map(|(partition, _)| *partition));
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::id::JobId;
    use crate::sched::request::counts::Counts;
    use crate::text::time::Time;

    use super::*;

    /// A queue with its sections, and which sections of each job are known.
    struct Line {
        sections: Sections,
        all: Rows,
        jobs: Vec<(Row, OfJob)>,
    }

    impl Line {
        /// `pairs` are sections that share nodes, `jobs` the sections of each job as bits.
        fn new(count: usize, pairs: &[(usize, usize)], jobs: &[u8]) -> Self {
            let shares = |one: usize, other: usize| {
                let is_pair = |(a, b): &(usize, usize)| (*a, *b) == (one, other) || (*b, *a) == (one, other);
                one == other || pairs.iter().any(is_pair)
            };
            let sharing = |one| (0..count).filter(|other| shares(one, *other)).collect();
            let sharing: Vec<Vec<usize>> = (0..count).map(sharing).collect();
            let jobs = jobs.iter().zip(1..).map(|(bits, number)| {
                let key = Key::new(0, 0, None, Time(0), JobId(number));
                let least = Least { counts: Counts::default(), run_time: 1, reach: 0 };
                let own = (0..count).filter(|section| bits >> section & 1 != 0).collect::<OfJob>();
                (Row { key, least }, if own.is_empty() { OfJob::from_slice(&[0]) } else { own })
            });
            let jobs: Vec<(Row, OfJob)> = jobs.collect();
            let mut sections = Sections { sharing, rows: vec![Rows::default(); count] };
            sections.sort(jobs.iter().map(|(row, own)| (*row, own)));
            Self { sections, all: Rows::new(jobs.iter().map(|(row, _)| *row).collect()), jobs }
        }

        /// Number of jobs among some that count in a section.
        fn counted<'a>(&self, section: usize, jobs: impl Iterator<Item = &'a (Row, OfJob)>) -> usize {
            let sharing = &self.sections.sharing[section];
            jobs.map(|(_, own)| own.iter().filter(|own| sharing.contains(own)).count()).sum()
        }

        /// The jobs that are within a depth, by their number in the queue.
        fn within(&self, depth: usize) -> Vec<usize> {
            let is_within = |at: &usize| {
                let own = &self.jobs[*at].1;
                *at < depth || own.iter().any(|own| self.counted(*own, self.jobs[..*at].iter()) < depth)
            };
            (0..self.jobs.len()).filter(is_within).collect()
        }
    }

    proptest! {
        #[test]
        fn the_depth_counts_in_sections(
            (count, pairs) in (1_usize..6).prop_flat_map(|count| {
                (Just(count), prop::collection::vec((0..count, 0..count), 0..6))
            }),
            jobs in prop::collection::vec(0_u8..=255, 0..300),
            depth in 1_usize..80,
        ) {
            let mut line = Line::new(count, &pairs, &jobs);
            let within = line.within(depth);
            let beyond = line.jobs.len() - within.len();
            for (at, (row, own)) in line.jobs.iter().enumerate() {
                let is_within = at < depth || line.sections.admits(&row.key, own, depth);
                prop_assert_eq!(is_within, within.contains(&at), "job {}", at);
            }
            prop_assert!(!line.sections.admits_all(depth) || beyond == 0);
            if let Some((last, _)) = line.jobs.get(depth - 1) {
                let found: Vec<Row> = line.sections.behind(&last.key, depth);
                let wanted = within.iter().filter(|at| **at >= depth).map(|at| line.jobs[*at].0);
                prop_assert_eq!(found, wanted.collect::<Vec<Row>>());
            }
            // One by one, the jobs make the same sections.
            let sorted = line.sections.rows.clone();
            line.sections.rows = vec![Rows::default(); count];
            line.jobs.iter().rev().for_each(|(row, own)| line.sections.insert(*row, own));
            for (one, other) in sorted.iter().zip(&line.sections.rows) {
                prop_assert!(one.iter().eq(other.iter()));
            }
        }

        #[test]
        fn a_walk_counts_the_jobs_that_it_takes(
            (count, pairs) in (0_usize..6).prop_flat_map(|count| {
                (Just(count), prop::collection::vec((0..count.max(1), 0..count.max(1)), 0..6))
            }),
            jobs in prop::collection::vec((0_u8..=255, prop::bool::ANY), 0..300),
            depth in 1_usize..80,
        ) {
            let (bits, lets): (Vec<u8>, Vec<bool>) = jobs.into_iter().unzip();
            let mut line = Line::new(count.max(1), &pairs, &bits);
            if count == 0 {
                line.sections = Sections::default();
                line.jobs.iter_mut().for_each(|(_, own)| own.clear());
            }
            let lets: BTreeSet<JobId> =
                line.jobs.iter().zip(lets).filter(|(_, lets)| *lets).map(|((row, _), _)| row.key.job).collect();
            let mut walk = line.sections.walk(&line.all, depth);
            let mut found = Vec::new();
            while let Some(row) = walk.next() {
                let number = row.key.job.0 as usize - 1;
                if lets.contains(&row.key.job) {
                    walk.take(&line.jobs[number].1);
                    found.push(number);
                }
            }
            let mut wanted: Vec<usize> = Vec::new();
            for (at, (row, own)) in line.jobs.iter().enumerate() {
                let counted = |own: &usize| line.counted(*own, wanted.iter().map(|at| &line.jobs[*at]));
                let is_within = wanted.len() < depth || own.iter().any(|own| counted(own) < depth);
                if is_within && lets.contains(&row.key.job) {
                    wanted.push(at);
                }
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
