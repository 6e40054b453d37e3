//! The nodes on which jobs fit that only a limit stops, kept from quick pass to quick pass.
//!
//! A job that a limit stops now may have a later start, so its earliest start is searched for: the limit
//! stops the job if it leaves too little then. That search costs as much as that for the head of the queue.
//! If the job still fits on the nodes that were found before, at the last moment before the limit leaves
//! enough, its earliest start is no later than that. So the limit stops the job, and nothing is searched.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::JobId;
use crate::sched::forecast::ENDLESS;
use crate::sched::planned_starts::{Reservation, Turn};
use crate::sched::prospect::Prospect;
use crate::sched::queue::Queued;
use crate::sched::request::Part;
use crate::sched::space::{Hit, Space};
use crate::sched::timeline::realm::OPEN;
use crate::text::time::Time;

use super::super::walk::Walk;
use super::room::Over;

/// The places of jobs that only a limit stopped when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Fits {
    /// The places that the passes before have found.
    before: BTreeMap<JobId, Reservation>,
    /// The places that this pass has found, or at which the jobs still fit.
    now: BTreeMap<JobId, Reservation>,
}

impl Fits {
    /// These places for the next pass; the places of jobs that this pass has not looked at only if it need
    /// not look at all jobs.
    pub(crate) fn next(self, was_settled: bool) -> Self {
        let Self { before, mut now } = self;
        if was_settled {
            for (job, place) in before {
                now.entry(job).or_insert(place);
            }
        }
        Self { before: now, now: BTreeMap::new() }
    }
}

impl<S: Space> Walk<S> {
    /// Notes the nodes at which a job fits later, and that a limit stops it there. Only quick passes need
    /// them, and only where the nodes follow from the request alone.
    pub(super) fn note_fit(
        &mut self,
        candidate: &Queued,
        prospect: &Prospect,
        hit: &Hit,
        parts: Option<Vec<Part>>,
    ) {
        let is_plain = candidate.choices.len() == 1
            && candidate.array.is_none()
            && prospect.realm == OPEN
            && !hit.whole_leaves
            && prospect.follows_from(&self.inventory, &candidate.spec);
        let (false, true, Some(parts)) = (self.deep, is_plain, parts) else { return };
        let place = Reservation {
            job: candidate.attempt.job,
            spec: Arc::clone(&candidate.spec),
            start: hit.start,
            end: hit.start + hit.lasts,
            partition: Arc::clone(self.inventory.partitions[prospect.partition].partition.name()),
            within: None,
            parts,
            told: None,
            turn: Turn { key: candidate.key, number: 0 },
        };
        if let Some(limits) = self.limits.as_mut().filter(|limits| limits.lacks.is_some()) {
            limits.fits.now.insert(place.job, place);
        }
    }

    /// True if a job is known to fit at some time before a limit, which counts running jobs, leaves enough
    /// for the job.
    pub(super) fn fits_too_early(&mut self, candidate: &Queued, choice: usize, over: &Over) -> bool {
        let Some(limits) = &mut self.limits else { return false };
        let known = limits.fits.before.remove(&candidate.attempt.job);
        let known = known.filter(|known| Arc::ptr_eq(&known.spec, &candidate.spec));
        let (Some(mut place), Some(own)) = (known, &candidate.limits) else { return false };
        let enough = limits.room.enough_from(&own[choice].rules, over, candidate.shortest);
        let last = Time(enough.0.saturating_sub(1)).min(self.now + ENDLESS);
        place.turn.key = candidate.key;
        (place.start, place.end) = (last, last + candidate.run_time);
        if last <= self.now || !self.space.has(OPEN, &place) {
            return false;
        }
        limits.last_stopped = limits.last_stopped.max(Some(candidate.key));
        limits.fits.now.insert(place.job, place);
        true
    }
}
