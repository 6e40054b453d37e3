//! What only a simulation knows: how long each job would run. The planner is told as much of it as the predictor in
//! force allows.

use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::config::Predict;
use crate::model::job::{Job, JobSpec};
use crate::sched::forecast::{Forecast, Recent};
use crate::text::time::Time;

/// The true run times, and the predictor that stands between them and the planner.
#[derive(Debug, Default)]
pub(super) struct Truth {
    predict: Predict,
    recent: Recent,
    /// By job number: how long it would run if nothing stopped it; `None` for ever.
    run_times: Vec<Option<u64>>,
}

impl Truth {
    /// Learns how long a job would run.
    pub(super) fn learn(&mut self, job: JobId, run_time: Option<u64>) {
        let index = job.0 as usize;
        if self.run_times.len() <= index {
            self.run_times.resize(index + 1, None);
        }
        self.run_times[index] = run_time;
    }

    /// How long a job would run if nothing stopped it; `None` for ever.
    pub(super) fn run_time(&self, job: JobId) -> Option<u64> {
        self.run_times.get(job.0 as usize).copied().flatten()
    }

    /// Lets the predictor learn from an event that was just applied.
    pub(super) fn note(&mut self, cluster: &Cluster, event: &Event) {
        if let Event::PolicyChanged { policy, .. } = event {
            self.predict = policy.scheduler.predict;
        }
        if let Some((from, job)) = event.split() {
            self.learn(job, self.run_time(from));
        }
        self.recent.note(cluster, event);
    }

    /// Lets the predictor learn of a run whose end it was not told of when it happened.
    pub(super) fn finished(&mut self, spec: &JobSpec, ran: u64) {
        self.recent.finished(spec, ran);
    }

    /// How long an attempt really lasts: its run time, or its limit.
    fn actual(&self, job: &Job) -> Option<u64> {
        let limit = job.spec.time_limit.seconds();
        match (self.run_time(job.id), limit) {
            (Some(run), Some(limit)) => Some(run.min(limit)),
            (run, limit) => run.or(limit),
        }
    }
}

impl Forecast for Truth {
    fn run_time(&self, job: &Job) -> u64 {
        match self.predict {
            Predict::Actual => self.actual(job).map_or_else(|| self.recent.run_time(job), |run| run.max(1)),
            Predict::Requested | Predict::Recent2 | Predict::Similar => self.recent.run_time(job),
        }
    }

    fn weighed_time(&self, job: &Job) -> u64 {
        if self.predict.is_learnt() { self.recent.weighed_time(job) } else { Forecast::run_time(self, job) }
    }

    /// A job that ends exactly when it was planned to was planned right: no correction is made at that moment, even
    /// where its end is handled after something else that happens then.
    fn end(&self, job: &Job, started: Time, now: Time) -> Time {
        let actual = self.actual(job);
        match (self.predict, actual) {
            (Predict::Actual, Some(run)) => started + run.max(1),
            (Predict::Recent2 | Predict::Similar, Some(run)) if started + run == now && run > 0 => {
                self.recent.end(job, started, Time(now.0 - 1))
            }
            _ => self.recent.end(job, started, now),
        }
    }

    fn is_firm(&self) -> bool {
        self.recent.is_firm()
    }
}
