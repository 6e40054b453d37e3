//! `--time-min` and `--deadline`: a job may do with less time than it asks for, if it starts earlier for that; and it
//! starts early enough to end before its deadline by its limit, or not at all.
//!
//! Asked first is when it starts with all of its time. If that is not now, the time it is content with is tried; and if it
//! starts now with that, the longest with which it does is looked for. So the limit of a job that starts in its turn is
//! never lowered, and no lower than it has to be. Components of a het job are all tried with less time at once.

use crate::text::time::Time;

use super::queue::Candidate;
use super::space::Hit;

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
    fn in_time(self, candidate: &Candidate) -> Time {
        let (_, lowered) = self.of(candidate);
        let limit = lowered.or(candidate.spec.time_limit.seconds()).unwrap_or(0);
        let last = |deadline: Time| deadline.0.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX));
        candidate.spec.deadline.map_or(Time::MAX, |deadline| Time(last(deadline).saturating_add(1)))
    }
}

/// The earliest start of a job with all its components, which start together; `search` finds that of components which run so
/// long, before a time. Where one of them may do with less, none gets less than the others have to: the shortest of the limits
/// that are lowered is as long as can be. `hit` says of a start where one component goes.
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

/// Why a job waits that no start was found for, if it is its deadline.
pub(super) fn too_late(candidate: &Candidate) -> Option<String> {
    candidate.all().find_map(|component| component.spec.deadline)?;
    Some("there is no room for it early enough to end before its deadline".to_owned())
}
