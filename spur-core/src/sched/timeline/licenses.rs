//! Licenses over time: counts that belong to no node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::job::JobSpec;
use crate::text::time::Time;

/// What a job wants: names and counts.
pub(in crate::sched) type Wanted = [(Box<str>, u32)];

/// What a request says of licenses.
pub(in crate::sched) fn wanted(spec: &JobSpec) -> &Wanted {
    spec.extra.as_ref().map_or(&[], |extra| &extra.licenses)
}

/// One license: how many are free from which time on, and how many nobody holds at this moment.
#[derive(Clone, Debug)]
struct License {
    /// By time; the first step is now.
    free: Vec<(Time, i64)>,
    idle: i64,
}

/// All licenses by name.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Licenses(BTreeMap<Arc<str>, License>);

impl Licenses {
    /// What is left of the configured licenses by jobs that run until the given times.
    pub(in crate::sched) fn new<'a>(
        cluster: &'a Cluster,
        running: impl Iterator<Item = (Time, JobId)> + 'a,
        now: Time,
    ) -> Self {
        let license = |count: &u32| License { free: vec![(now, i64::from(*count))], idle: i64::from(*count) };
        let configured = &cluster.policy().licenses;
        let mut licenses =
            Self(configured.iter().map(|(name, count)| (Arc::clone(name), license(count))).collect());
        if licenses.0.is_empty() {
            return licenses;
        }
        for (end, job) in running {
            if let Some(job) = cluster.job(job) {
                licenses.take(wanted(&job.spec), now, end, true);
            }
        }
        licenses
    }

    /// Whether none are configured.
    pub(in crate::sched) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes licenses for a stretch of time.
    pub(in crate::sched) fn take(&mut self, wanted: &Wanted, from: Time, to: Time, starts: bool) {
        self.change(wanted, from, to, -1);
        for (name, count) in wanted.iter().filter(|_| starts) {
            if let Some(license) = self.0.get_mut(&**name) {
                license.idle -= i64::from(*count);
            }
        }
    }

    /// Undoes a reservation.
    pub(in crate::sched) fn give_back(&mut self, wanted: &Wanted, from: Time, to: Time) {
        self.change(wanted, from, to, 1);
    }

    fn change(&mut self, wanted: &Wanted, from: Time, to: Time, sign: i64) {
        for (name, count) in wanted {
            let Some(license) = self.0.get_mut(&**name) else { continue };
            split(&mut license.free, from);
            split(&mut license.free, to);
            for (_, free) in license.free.iter_mut().filter(|(at, _)| from <= *at && *at < to) {
                *free += sign * i64::from(*count);
            }
        }
    }

    /// The first time from `from` on at which all that is wanted is free for `seconds`; `None` if there is none.
    pub(in crate::sched) fn earliest(&self, wanted: &Wanted, from: Time, seconds: u64) -> Option<Time> {
        let mut at = from;
        // Each round moves on to the end of a step that is too small, so there are no more rounds than steps.
        'again: loop {
            for (name, count) in wanted {
                let steps = &self.0.get(&**name)?.free;
                let first = steps.partition_point(|(time, _)| *time <= at).saturating_sub(1);
                let until = at + seconds;
                let in_time = steps[first..].iter().take_while(|(time, _)| *time < until).count();
                let short =
                    steps[first..first + in_time].iter().rposition(|(_, free)| *free < i64::from(*count));
                if let Some(short) = short {
                    at = steps.get(first + short + 1)?.0;
                    continue 'again;
                }
            }
            return Some(at);
        }
    }

    /// The first license of which too few are held by nobody at this moment: name, wanted, free.
    pub(in crate::sched) fn lacking(&self, wanted: &Wanted) -> Option<(String, u32, i64)> {
        let free = |name: &str| self.0.get(name).map_or(0, |license| license.idle);
        let short = wanted.iter().find(|(name, count)| free(name) < i64::from(*count))?;
        Some((short.0.to_string(), short.1, free(&short.0)))
    }
}

/// Makes a step begin at `at`.
fn split(steps: &mut Vec<(Time, i64)>, at: Time) {
    let next = steps.partition_point(|(time, _)| *time <= at);
    if let Some((time, free)) = next.checked_sub(1).map(|before| steps[before])
        && time < at
        && !at.is_never()
    {
        steps.insert(next, (at, free));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_is_free_throughout() {
        let license = License { free: vec![(Time(0), 4)], idle: 4 };
        let mut licenses = Licenses(BTreeMap::from([(Arc::from("a"), license)]));
        let want = |count| [(Box::from("a"), count)];
        licenses.take(&want(3), Time(0), Time(10), true);
        licenses.take(&want(2), Time(20), Time(30), false);
        for (count, seconds, start) in [
            (1, 5, Some(0)),
            (2, 5, Some(10)),
            (2, 11, Some(10)),
            (3, 10, Some(10)),
            (3, 11, Some(30)),
            (5, 1, None),
        ] {
            assert_eq!(
                licenses.earliest(&want(count), Time(0), seconds),
                start.map(Time),
                "{count} for {seconds}"
            );
        }
        assert_eq!(licenses.lacking(&want(2)), Some(("a".to_owned(), 2, 1)));
        licenses.give_back(&want(2), Time(20), Time(30));
        assert_eq!(licenses.earliest(&want(3), Time(0), 11), Some(Time(10)));
        assert_eq!(licenses.earliest(&[(Box::from("b"), 1)], Time(0), 1), None);
    }
}
