//! `--time-min` and `--deadline`: a job may do with less time than it asks for, if it starts earlier for that; and it
//! starts early enough to end before its deadline by its limit, or not at all.
//!
//! Asked first is when it starts with all of its time. If that is not now, the time it is content with is tried; and if it
//! starts now with that, the longest with which it does is looked for. So the limit of a job that starts in its turn is
//! never lowered, and no lower than it has to be. Components of a het job are all tried with less time at once.

use crate::model::job::JobSpec;
use crate::text::time::Time;

use super::queue::Candidate;
use super::space::Hit;

/// A start that was found: which of the job's prospects, and where.
pub(super) type EarliestHit = Option<(usize, Hit)>;

/// How long somebody is to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// The job runs as long as planned.
    Full,
    /// No longer than so many seconds, but for what it is content with.
    AtMost(u64),
}

impl Length {
    /// Seconds that a job or a component is to run, and its limit if it is lowered.
    pub(super) fn of(self, candidate: &Candidate) -> (u64, Option<u64>) {
        match self {
            Length::AtMost(seconds) if seconds.max(candidate.shortest) < candidate.run_time => {
                let seconds = seconds.max(candidate.shortest);
                (seconds, Some(seconds))
            }
            Length::Full | Length::AtMost(_) => (candidate.run_time, None),
        }
    }

    /// The first time that is too late for a job or a component that is to run so long.
    pub(super) fn in_time(self, candidate: &Candidate) -> Time {
        let full = || candidate.spec.time_limit.seconds().unwrap_or(0);
        in_time(&candidate.spec, self.of(candidate).1.unwrap_or_else(full))
    }
}

/// The earliest start of a job; `search` finds that of one that runs so many seconds, before a time.
pub(super) fn earliest(
    candidate: &Candidate,
    now: Time,
    mut search: impl FnMut(u64, Time) -> EarliestHit,
) -> EarliestHit {
    let told = |(_, hit): &(usize, Hit)| (hit.start, hit.starts);
    of_all(candidate, now, told, |length, before| {
        let (run_time, limit) = length.of(candidate);
        let (index, mut hit) = search(run_time, before.min(length.in_time(candidate)))?;
        hit.limit = limit;
        Some((index, hit))
    })
}

/// The same for all components of a job, which start together. Where one of them may do with less, none gets less than the
/// others have to: the shortest of the limits that are lowered is as long as can be. `told` says of a start when it is, and whether
/// that is now.
pub(super) fn of_all<F>(
    candidate: &Candidate,
    now: Time,
    told: impl Fn(&F) -> (Time, bool),
    mut search: impl FnMut(Length, Time) -> Option<F>,
) -> Option<F> {
    let starts = |found: &Option<F>| found.as_ref().is_some_and(|found| told(found).1);
    let full = search(Length::Full, Time::MAX);
    let content = || candidate.all().filter(|component| component.shortest < component.run_time);
    let least = content().map(|component| component.shortest).min();
    let most = content().map(|component| component.run_time).max();
    let (Some(least), Some(most), false) = (least, most, starts(&full)) else { return full };
    let until = full.as_ref().map_or(Time::MAX, |found| told(found).0.max(now + 1));
    let mut best = search(Length::AtMost(least), until);
    let (mut enough, mut too_long) = (least, most);
    while starts(&best) && too_long - enough > 1 {
        let middle = enough + (too_long - enough) / 2;
        match search(Length::AtMost(middle), now + 1) {
            found if starts(&found) => (best, enough) = (found, middle),
            _ => too_long = middle,
        }
    }
    best.or(full)
}

/// The first time that is too late for a start with a limit of so many seconds.
fn in_time(spec: &JobSpec, limit: u64) -> Time {
    let last = |deadline: Time| deadline.0.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX));
    spec.deadline.map_or(Time::MAX, |deadline| Time(last(deadline).saturating_add(1)))
}

/// Why a job waits that no start was found for, if it is its deadline.
pub(super) fn too_late(candidate: &Candidate) -> Option<String> {
    candidate.all().find_map(|component| component.spec.deadline)?;
    Some("there is no room for it early enough to end before its deadline".to_owned())
}
