//! `--time-min` and `--deadline`: a job may accept less time than it asks for if it starts earlier for that.
//! A job with a deadline starts early enough to end before it by its limit, or not at all.
//!
//! First the search computes the start with the full time. If that is not now, it tries the job's minimum
//! time. If the job starts now with that, bisection finds the longest time with which it still does. So the
//! limit of a job that starts in its turn is never lowered, and no limit is lowered more than necessary. All
//! components of a het job are tried with less time at once.

use crate::text::time::Time;

use super::queue::Candidate;
use super::space::Hit;

/// The run time to plan with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// The job runs as long as planned.
    Full,
    /// The job runs at most this number of seconds, but at least its minimum.
    AtMost(u64),
}

impl Length {
    /// The run time of a job or a component in seconds, and its limit in seconds; the limit is `None` if it
    /// is not lowered.
    pub(super) fn of(self, candidate: &Candidate) -> (u64, Option<u64>) {
        match self {
            Length::AtMost(seconds) if seconds.max(candidate.shortest) < candidate.run_time => {
                let seconds = seconds.max(candidate.shortest);
                (seconds, Some(seconds))
            }
            Length::Full | Length::AtMost(_) => (candidate.run_time, None),
        }
    }

    /// The first start time that is too late for a job or a component with this run time.
    fn in_time(self, candidate: &Candidate) -> Time {
        let (_, lowered) = self.of(candidate);
        let limit = lowered.or(candidate.spec.time_limit.seconds()).unwrap_or(0);
        let last = |deadline: Time| deadline.0.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX));
        candidate.spec.deadline.map_or(Time::MAX, |deadline| Time(last(deadline).saturating_add(1)))
    }
}

/// The earliest start of a job with all its components, which start together. `search` returns the start of
/// components with the given length, before a time. Where a component accepts less time, the shortest lowered
/// limit is as long as possible. `hit` gives the placement of one component in a start.
pub(super) fn earliest<F>(
    candidate: &Candidate,
    now: Time,
    hit: impl Fn(&F) -> &Hit,
    mut search: impl FnMut(Length, Time) -> Option<F>,
) -> Option<F> {
    let mut search = |length: Length, before: Time| {
        let in_time = candidate.all().map(|component| length.in_time(component)).min();
        search(length, before.min(in_time.unwrap_or(Time::MAX)))
    };
    let starts = |found: &Option<F>| found.as_ref().is_some_and(|found| hit(found).starts);
    let full = search(Length::Full, Time::MAX);
    let content = || candidate.all().filter(|component| component.shortest < component.run_time);
    let least = content().map(|component| component.shortest).min();
    let most = content().map(|component| component.run_time).max();
    let (Some(least), Some(most), false) = (least, most, starts(&full)) else { return full };
    let until = full.as_ref().map_or(Time::MAX, |found| hit(found).start.max(now + 1));
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

/// The sentence for a job without a start whose deadline is the cause; `None` for a job without a deadline.
pub(super) fn too_late(candidate: &Candidate) -> Option<String> {
    candidate.all().find_map(|component| component.spec.deadline)?;
    Some("there is no room for it early enough to end before its deadline".to_owned())
}
