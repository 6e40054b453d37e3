//! Planned run times of jobs: their limits, or a shorter prediction learnt from the past.
//!
//! A plan made from limits keeps its promises, because no job runs longer than its limit. A plan made from
//! predictions packs tighter and promises nothing.

mod similar;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::JobId;
use crate::model::config::{Correct, Predict};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{EndState, Phase};
use crate::sched::inventory::Inventory;
use crate::sched::request::least;
use crate::text::time::Time;

use similar::{Guess, Run};

/// The planned run time of a job without a limit, in seconds: a century. Plans behind it then have a position
/// and are never mistaken for a real time.
pub const ENDLESS: u64 = 100 * 365 * 86_400;

/// Seconds added to a prediction each time it is exceeded; each replaces the previous one.
const INCREMENTS: [u64; 11] = [60, 300, 900, 1_800, 3_600, 7_200, 18_000, 36_000, 72_000, 180_000, 360_000];

/// A source of planned run times.
///
/// The answers for a job change with the events of the job, and otherwise only in one way: a planned end that
/// has come may be put off. So a [`Planner`](crate::sched::Planner) need not ask again before that.
pub trait Forecast {
    /// The planned run time of a waiting job, in seconds; at least 1.
    fn run_time(&self, job: &Job) -> u64;

    /// The run time by which orders weigh a waiting job, in seconds; at least 1.
    fn weighed_time(&self, job: &Job) -> u64 {
        self.run_time(job)
    }

    /// The planned end of a running job. A time that is not after `now` means any moment.
    fn end(&self, job: &Job, started: Time, now: Time) -> Time;

    /// True if no job ever runs longer than planned.
    fn is_firm(&self) -> bool;
}

/// The input of a plan: a cluster at some time, its inventory, and the planned run times of its jobs.
#[derive(Clone, Copy)]
pub(super) struct PlanInput<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) inventory: &'a Arc<Inventory>,
    pub(super) forecast: &'a dyn Forecast,
    pub(super) now: Time,
}

/// Plans by time limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits;

impl Forecast for Limits {
    fn run_time(&self, job: &Job) -> u64 {
        requested(&job.spec)
    }

    fn end(&self, job: &Job, started: Time, _now: Time) -> Time {
        started + requested(&job.spec)
    }

    fn is_firm(&self) -> bool {
        true
    }
}

/// A forecast that uses the limits instead while a job has waited too long or nodes are reserved for some
/// time. Promises to long waiters and reservations hold only in plans in which nothing lasts longer than
/// planned.
#[derive(Clone, Copy)]
pub(crate) struct Prudent<'a> {
    pub(crate) by: &'a dyn Forecast,
    /// True if plans use the limits.
    pub(crate) firm: bool,
}

impl Forecast for Prudent<'_> {
    fn run_time(&self, job: &Job) -> u64 {
        if self.firm { Limits.run_time(job) } else { self.by.run_time(job) }
    }

    fn weighed_time(&self, job: &Job) -> u64 {
        self.by.weighed_time(job)
    }

    fn end(&self, job: &Job, started: Time, now: Time) -> Time {
        if self.firm { Limits.end(job, started, now) } else { self.by.end(job, started, now) }
    }

    /// Only jobs that have waited too long get a promise: after they have started, plans use the forecast
    /// again.
    fn is_firm(&self) -> bool {
        self.by.is_firm()
    }
}

/// The time limit in seconds, or [`ENDLESS`].
fn requested(spec: &JobSpec) -> u64 {
    spec.time_limit.seconds().unwrap_or(ENDLESS).max(1)
}

/// Plans by the run times of the same user's jobs. The guess is made at submission and kept. It is at most
/// the request, and equals the request while too little is known.
///
/// `recent2` is the floor of the mean of the user's last two run times (Tsafrir, Etsion and Feitelson, TPDS
/// 2007). `similar` weighs the user's last runs by how much they resemble the job, see `similar`.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    predict: Predict,
    correct: Correct,
    /// Each user's last runs, the newest first.
    users: BTreeMap<Arc<str>, VecDeque<Run>>,
    /// The guess for each job, made at its submission.
    jobs: BTreeMap<JobId, Guess>,
}

impl Recent {
    /// Learns from the past that a cluster still has, and guesses for waiting jobs as if they were submitted
    /// now.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let scheduler = &cluster.policy().scheduler;
        let mut recent = Self { predict: scheduler.predict, correct: scheduler.correct, ..Self::default() };
        let past = cluster.jobs().iter().filter_map(|job| match &job.phase {
            Phase::Ended(ended) if ended.outcome.state != EndState::Preempted => {
                ended.started.map(|_| (ended.ended, job.phase.run_time(ended.ended), job))
            }
            _ => None,
        });
        let mut past: Vec<(Time, u64, &Job)> = past.collect();
        past.sort_by_key(|(at, _, job)| (*at, job.id));
        past.into_iter().for_each(|(_, ran, job)| recent.finished(&job.spec, ran));
        cluster.jobs().pending().for_each(|job| recent.submitted(job.id, &job.spec));
        recent
    }

    /// Learns from an event that has just been applied to `cluster`.
    pub fn note(&mut self, cluster: &Cluster, event: &Event) {
        match event {
            Event::PolicyChanged { policy, .. } => {
                if self.predict == policy.scheduler.predict {
                    self.correct = policy.scheduler.correct;
                } else {
                    *self = Self::new(cluster);
                }
            }
            Event::JobSubmitted { job, spec } => self.submitted(*job, spec),
            Event::HetJobSubmitted { jobs, specs } => {
                jobs.iter().zip(specs).for_each(|(job, spec)| self.submitted(*job, spec));
            }
            // The full run time of a job that was preempted is not known.
            Event::JobEnding { job, outcome, .. } if outcome.state != EndState::Preempted => {
                if let Some(job) = cluster.job(*job)
                    && let Phase::Completing(completing) = &job.phase
                {
                    self.finished(&job.spec, job.phase.run_time(completing.ended));
                }
            }
            // The guess for an array holds for each of its tasks.
            Event::TasksSplit { .. } | Event::JobStarted { .. } => {
                let split = event.split().and_then(|(from, job)| Some((job, *self.jobs.get(&from)?)));
                self.jobs.extend(split);
            }
            Event::JobsForgotten { jobs, .. } => jobs.iter().for_each(|job| {
                self.jobs.remove(job);
            }),
            _ => {}
        }
    }

    fn submitted(&mut self, job: JobId, spec: &JobSpec) {
        let Some(runs) = self.users.get(&spec.owner.user) else { return };
        let guess = match self.predict {
            Predict::Requested | Predict::Actual => None,
            Predict::Recent2 => recent2(runs),
            Predict::Similar => similar::guess(runs, &asked(spec)),
        };
        if let Some(guess) = guess {
            self.jobs.insert(job, guess);
        }
    }

    /// Learns that a job has finished after `ran` seconds.
    pub fn finished(&mut self, spec: &JobSpec, ran: u64) {
        if !self.predict.is_learnt() {
            return;
        }
        let runs = self.users.entry(Arc::clone(&spec.owner.user)).or_default();
        runs.truncate(similar::REMEMBERED - 1);
        runs.push_front(Run { seconds: ran, ..asked(spec) });
    }

    fn guessed(&self, job: &Job, which: impl Fn(&Guess) -> u64) -> u64 {
        let request = requested(&job.spec);
        self.jobs.get(&job.id).map_or(request, |guess| which(guess).clamp(1, request))
    }
}

impl Forecast for Recent {
    fn run_time(&self, job: &Job) -> u64 {
        self.guessed(job, |guess| guess.likely)
    }

    fn weighed_time(&self, job: &Job) -> u64 {
        self.guessed(job, |guess| guess.mean)
    }

    fn end(&self, job: &Job, started: Time, now: Time) -> Time {
        let (predicted, request) = (self.run_time(job), requested(&job.spec));
        corrected(self.correct, predicted, request, now.since(started))
            .map_or(started + request, |run| started + run)
    }

    fn is_firm(&self) -> bool {
        !self.predict.is_learnt()
    }
}

/// The floor of the mean of the last two run times, in seconds; `None` if there are fewer than two.
fn recent2(runs: &VecDeque<Run>) -> Option<Guess> {
    let (last, before) = (runs.front()?, runs.get(1)?);
    let mean = u64::midpoint(last.seconds, before.seconds);
    Some(Guess { likely: mean, mean })
}

/// The request of a job, as a run that took all of its time.
fn asked(spec: &JobSpec) -> Run {
    let request = requested(spec);
    Run { seconds: request, request, cpus: least(&spec.shape).1 }
}

/// The planned total run time of a job that has run for `ran` seconds; `None` for its request.
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
