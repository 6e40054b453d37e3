//! How long jobs are planned to run: their limits, or something shorter that has been learnt.
//!
//! A plan made from limits keeps its promises, because nothing runs longer than its limit. A plan made from
//! predictions packs tighter and promises nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::JobId;
use crate::model::config::{Correct, Predict};
use crate::model::job::Job;
use crate::model::phase::EndState;
use crate::text::time::Time;

/// What a job without a limit is planned with, seconds: a century, so that plans behind it have a place without ever
/// being taken for a time.
pub const ENDLESS: u64 = 100 * 365 * 86_400;

/// Seconds added to a prediction each time it is exceeded; each replaces the one before.
const INCREMENTS: [u64; 11] = [60, 300, 900, 1_800, 3_600, 7_200, 18_000, 36_000, 72_000, 180_000, 360_000];

/// Says how long jobs are planned to run.
pub trait Forecast {
    /// Seconds a waiting job is planned to run; at least 1.
    fn run_time(&self, job: &Job) -> u64;

    /// When a running job is planned to end. A time that is not after `now` means: any moment.
    fn end(&self, job: &Job, started: Time, now: Time) -> Time;

    /// Whether nothing ever runs longer than it is planned to.
    fn is_firm(&self) -> bool;
}

/// Plans by time limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits;

impl Forecast for Limits {
    fn run_time(&self, job: &Job) -> u64 {
        requested(job)
    }

    fn end(&self, job: &Job, started: Time, _now: Time) -> Time {
        started + requested(job)
    }

    fn is_firm(&self) -> bool {
        true
    }
}

/// The time limit in seconds.
fn requested(job: &Job) -> u64 {
    job.spec.time_limit.seconds().unwrap_or(ENDLESS).max(1)
}

/// Plans by what the same user's last two jobs took: the floor of their mean, at most the request, made at submission
/// and kept; the request while fewer than two have finished.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    predict: Predict,
    correct: Correct,
    /// Run times of each user's last two finished jobs, the newest last.
    users: BTreeMap<Arc<str>, [Option<u64>; 2]>,
    jobs: BTreeMap<JobId, u64>,
}

impl Recent {
    /// Plans by limits until `[scheduler] predict` says otherwise.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let scheduler = &cluster.policy().scheduler;
        Self { predict: scheduler.predict, correct: scheduler.correct, ..Self::default() }
    }

    /// Learns from an event that has just been applied to `cluster`.
    pub fn note(&mut self, cluster: &Cluster, event: &Event) {
        match event {
            Event::PolicyChanged { policy } => {
                self.predict = policy.scheduler.predict;
                self.correct = policy.scheduler.correct;
            }
            Event::JobSubmitted { job, spec } => {
                if let Some([Some(one), Some(other)]) = self.users.get(&spec.owner.user) {
                    self.jobs.insert(*job, (one + other) / 2);
                }
            }
            // How long a run would have taken that was cut short for another job is not known.
            Event::JobEnding { job, outcome, .. } if outcome.state != EndState::Preempted => {
                self.ended(cluster, *job);
            }
            Event::JobsForgotten { jobs } => jobs.iter().for_each(|job| {
                self.jobs.remove(job);
            }),
            _ => {}
        }
    }

    fn ended(&mut self, cluster: &Cluster, id: JobId) {
        let Some(job) = cluster.job(id) else { return };
        let crate::model::phase::Phase::Completing(completing) = &job.phase else { return };
        self.finished(&job.spec.owner.user, completing.ended.since(completing.started));
    }

    /// Learns that a job of a user has finished after so many seconds.
    pub fn finished(&mut self, user: &Arc<str>, ran: u64) {
        let [_, last] = self.users.get(user).copied().unwrap_or_default();
        self.users.insert(Arc::clone(user), [last, Some(ran)]);
    }

    fn predicted(&self, job: &Job) -> u64 {
        let known = self.jobs.get(&job.id).filter(|_| self.predict == Predict::Recent2);
        known.map_or_else(|| requested(job), |seconds| (*seconds).clamp(1, requested(job)))
    }
}

impl Forecast for Recent {
    fn run_time(&self, job: &Job) -> u64 {
        self.predicted(job)
    }

    fn end(&self, job: &Job, started: Time, now: Time) -> Time {
        let (predicted, request) = (self.predicted(job), requested(job));
        corrected(self.correct, predicted, request, now.since(started))
            .map_or(started + request, |run| started + run)
    }

    fn is_firm(&self) -> bool {
        self.predict != Predict::Recent2
    }
}

/// What a job that has run for `ran` seconds is planned to run in all; `None` for its request.
fn corrected(correct: Correct, predicted: u64, request: u64, ran: u64) -> Option<u64> {
    if ran < predicted {
        return Some(predicted);
    }
    let raised = || INCREMENTS.iter().map(|more| predicted + more).find(|run| ran < *run && *run < request);
    if correct == Correct::Incremental { raised() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_corrected_step_by_step() {
        for (correct, ran, planned) in [
            (Correct::Request, 99, Some(100)),
            (Correct::Request, 100, None),
            (Correct::Incremental, 100, Some(160)),
            (Correct::Incremental, 160, Some(400)),
            (Correct::Incremental, 1_000, Some(1_900)),
            (Correct::Incremental, 1_900, None),
        ] {
            assert_eq!(corrected(correct, 100, 1_950, ran), planned, "{correct:?} after {ran}");
        }
    }
}
