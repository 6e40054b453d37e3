//! How long jobs are planned to run: their limits, or something shorter that has been learnt.
//!
//! A plan made from limits keeps its promises, because nothing runs longer than its limit. A plan made from
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

/// What a job without a limit is planned with, seconds: a century, so that plans behind it have a place without ever
/// being taken for a time.
pub const ENDLESS: u64 = 100 * 365 * 86_400;

/// Seconds added to a prediction each time it is exceeded; each replaces the one before.
const INCREMENTS: [u64; 11] = [60, 300, 900, 1_800, 3_600, 7_200, 18_000, 36_000, 72_000, 180_000, 360_000];

/// Says how long jobs are planned to run.
///
/// What it says of a job changes with what happens to the job, and besides only in one way: a planned end that has come may
/// be put off. So a [`Planner`](crate::sched::Planner) need not ask again before.
pub trait Forecast {
    /// Seconds a waiting job is planned to run; at least 1.
    fn run_time(&self, job: &Job) -> u64;

    /// Seconds that orders weigh a waiting job by; at least 1.
    fn weighed_time(&self, job: &Job) -> u64 {
        self.run_time(job)
    }

    /// When a running job is planned to end. A time that is not after `now` means: any moment.
    fn end(&self, job: &Job, started: Time, now: Time) -> Time;

    /// Whether nothing ever runs longer than it is planned to.
    fn is_firm(&self) -> bool;
}

/// What plans are made from: a cluster at some time, what stands of it, and how long its jobs are planned to run.
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

/// A forecast, or for as long as somebody has waited too long, or nodes are reserved for some time, the limits in its
/// place: a promise made to those who have waited, and what is reserved, is kept only by plans in which nothing lasts
/// longer than planned.
#[derive(Clone, Copy)]
pub(crate) struct Prudent<'a> {
    pub(crate) by: &'a dyn Forecast,
    /// Whether limits are planned with.
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

    /// Only those who have waited too long are promised something: when they have started, plans go by the forecast again.
    fn is_firm(&self) -> bool {
        self.by.is_firm()
    }
}

/// The time limit in seconds.
fn requested(spec: &JobSpec) -> u64 {
    spec.time_limit.seconds().unwrap_or(ENDLESS).max(1)
}

/// Plans by what jobs of the same user took: a guess made at submission and kept, at most the request, and the request
/// itself while too little is known.
///
/// `recent2` is the floor of the mean of the user's last two run times (Tsafrir, Etsion and Feitelson, TPDS 2007);
/// `similar` weighs the user's last runs by how much they resemble the job, see `similar`.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    predict: Predict,
    correct: Correct,
    /// Each user's last runs, the newest first.
    users: BTreeMap<Arc<str>, VecDeque<Run>>,
    /// What was guessed of jobs when they were submitted.
    jobs: BTreeMap<JobId, Guess>,
}

impl Recent {
    /// Learns from what a cluster still knows of its past, and guesses for those that wait as if they came now.
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
            // How long a run would have taken that was cut short for another job is not known.
            Event::JobEnding { job, outcome, .. } if outcome.state != EndState::Preempted => {
                if let Some(job) = cluster.job(*job)
                    && let Phase::Completing(completing) = &job.phase
                {
                    self.finished(&job.spec, job.phase.run_time(completing.ended));
                }
            }
            // What was guessed of an array holds for each of its tasks.
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

    /// Learns that a job has finished after so many seconds.
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

/// The floor of the mean of the last two runs.
fn recent2(runs: &VecDeque<Run>) -> Option<Guess> {
    let (last, before) = (runs.front()?, runs.get(1)?);
    let mean = u64::midpoint(last.seconds, before.seconds);
    Some(Guess { likely: mean, mean })
}

/// What a job asks for, as a run that has taken all of its time.
fn asked(spec: &JobSpec) -> Run {
    let request = requested(spec);
    Run { seconds: request, request, cpus: least(&spec.shape).1 }
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
