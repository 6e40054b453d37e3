//! An upper bound on the free amounts for jobs that may start ahead of others, by which jobs are skipped.

use std::collections::BTreeSet;

use crate::id::JobId;
use crate::sched::inventory::amounts::CPUS;
use crate::sched::queue::chunks::Least;
use crate::sched::request::counts::Counts;
use crate::text::time::Time;

use super::ledger::Books;

/// The free amounts by run time: the longer a job lasts, the more later claims limit it.
#[derive(Clone, Debug, Default)]
pub(super) struct MostFree {
    /// Pairs of seconds and amounts: the amounts hold for jobs that last longer than the seconds; the first
    /// seconds are 0.
    steps: Vec<(u64, Counts)>,
    /// The idle amounts.
    pub(super) idle: Counts,
    /// The jobs that would have more, because claims of their own are in the way.
    pub(super) owners: BTreeSet<JobId>,
}

impl MostFree {
    /// The free amounts in all components of partitions.
    pub(super) fn of(books: &Books) -> Self {
        let (held, now) = (&books.held, books.now);
        let mut all = Counts::default();
        (0..books.inventory.partitions.len()).for_each(|component| all.add(held.free(component)));
        let idle = all;
        let mut less: Vec<(u64, Counts, Counts)> = Vec::new();
        let mut owners = BTreeSet::new();
        for (node, claims) in books.ahead.claims() {
            let free = held.rooms.amount(held.idle(node));
            if !held.is_open(node) || free[CPUS] == 0 {
                continue;
            }
            let full = held.full(node);
            let mut room: Vec<u64> = free.to_vec();
            let mut full_from = Time::MAX;
            for claim in claims {
                // Behind a claim that leaves nothing, dropping a job's own claim gains nothing.
                if claim.from > full_from {
                    break;
                }
                owners.insert(claim.turn.key.job);
                let before = Counts::free(&room, full);
                room.iter_mut().zip(claim.left()).for_each(|(room, left)| *room = (*room).min(left));
                less.push((claim.from.max(now).since(now), before, Counts::free(&room, full)));
                if room[CPUS] == 0 {
                    full_from = full_from.min(claim.from);
                }
            }
        }
        less.sort_unstable_by_key(|(after, ..)| *after);
        let mut steps = vec![(0, all)];
        for (after, before, left) in less {
            if steps.last().is_some_and(|(last, _)| *last < after) {
                steps.push((after, all));
            }
            all.take(before);
            all.add(left);
            if let Some((_, last)) = steps.last_mut() {
                *last = all;
            }
        }
        Self { idle, steps, owners }
    }

    /// True if a job with this least, or one of several, may fit.
    pub(super) fn may_hold(&self, least: &Least) -> bool {
        let at = self.steps.partition_point(|(after, _)| *after < least.run_time);
        let (_, counts) = self.steps[at.saturating_sub(1)];
        least.counts.within(&counts)
    }
}
