//! `--time-min` and `--deadline`: a job may do with less time than it asks for, if it starts earlier for that; and it
//! starts early enough to end before its deadline by its limit, or not at all.
//!
//! Asked first is when it starts with all of its time. If that is not now, the time it is content with is tried; and if it
//! starts now with that, the longest with which it does is looked for. So the limit of a job that starts in its turn is
//! never lowered, and no lower than it has to be.

use crate::model::job::JobSpec;
use crate::text::time::{Time, TimeLimit};

use super::queue::Candidate;
use super::state::Hit;

/// A start that was found: which of the job's prospects, and where.
pub(super) type Found = Option<(usize, Hit)>;

/// The earliest start of a job; `search` finds that of one that runs so many seconds, before a time.
pub(super) fn earliest(
    candidate: &Candidate,
    now: Time,
    mut search: impl FnMut(u64, Time) -> Found,
) -> Found {
    let starts = |found: &Found| found.as_ref().is_some_and(|(_, hit)| hit.starts);
    let spec = &candidate.spec;
    let mut search =
        |seconds: u64, before: Time, limit: u64| search(seconds, before.min(in_time(spec, limit)));
    let full = search(candidate.run_time, Time::MAX, spec.time_limit.seconds().unwrap_or(0));
    if candidate.shortest >= candidate.run_time || starts(&full) {
        return full;
    }
    let until = full.as_ref().map_or(Time::MAX, |(_, hit)| hit.start.max(now + 1));
    let mut best = search(candidate.shortest, until, candidate.shortest);
    let (mut enough, mut too_long) = (candidate.shortest, candidate.run_time);
    while starts(&best) && too_long - enough > 1 {
        let middle = enough + (too_long - enough) / 2;
        match search(middle, now + 1, middle) {
            found if starts(&found) => (best, enough) = (found, middle),
            _ => too_long = middle,
        }
    }
    let lowered = best.map(|(index, hit)| (index, Hit { limit: Some(enough), ..hit }));
    lowered.or(full)
}

/// The first time that is too late for a start with a limit of so many seconds.
fn in_time(spec: &JobSpec, limit: u64) -> Time {
    let last = |deadline: Time| deadline.0.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX));
    spec.deadline.map_or(Time::MAX, |deadline| Time(last(deadline).saturating_add(1)))
}

/// Why a job waits that no start was found for, if it is its deadline.
pub(super) fn too_late(candidate: &Candidate) -> Option<String> {
    candidate.spec.deadline?;
    Some("there is no room for it early enough to end before its deadline".to_owned())
}

/// The limit of a start, if it is lowered.
pub(super) fn limit(hit: &Hit) -> Option<TimeLimit> {
    hit.limit.map(TimeLimit::Seconds)
}
