//! True run times of jobs, known only in a simulation. The planner learns as much of them as the predictor in
//! force allows.

use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::config::Predict;
use crate::model::job::{Job, JobSpec};
use crate::sched::forecast::{Forecast, Recent};
use crate::text::time::Time;

/// The true run times, and the predictor that limits what the planner knows of them.
#[derive(Debug, Default)]
pub(super) struct Truth {
    predict: Predict,
    recent: Recent,
    /// Run time in seconds of each job that nothing stops, by job number; `None` if it never ends.
    run_times: Vec<Option<u64>>,
}

impl Truth {
    /// Records the run time of a job in seconds; `None` if it never ends.
    pub(super) fn learn(&mut self, job: JobId, run_time: Option<u64>) {
        let index = job.0 as usize;
        if self.run_times.len() <= index {
            self.run_times.resize(index + 1, None);
        }
        self.run_times[index] = run_time;
    }

    /// Run time in seconds of a job that nothing stops; `None` if it never ends.
    pub(super) fn run_time(&self, job: JobId) -> Option<u64> {
        self.run_times.get(job.0 as usize).copied().flatten()
    }

    /// Passes an event that was just applied to the predictor.
    pub(super) fn note(&mut self, cluster: &Cluster, event: &Event) {
        if let Event::PolicyChanged { policy, .. } = event {
            self.predict = policy.scheduler.predict;
        }
        if let Some((from, job)) = event.split() {
            self.learn(job, self.run_time(from));
        }
        self.recent.note(cluster, event);
    }

    /// Passes a run to the predictor whose end was withheld when it happened.
    pub(super) fn finished(&mut self, spec: &JobSpec, ran: u64) {
        self.recent.finished(spec, ran);
    }

    /// Actual duration of an attempt in seconds: its run time or its time limit, whichever is shorter; `None`
    /// if neither ends it.
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

    /// Predicted end of a job.
    ///
    /// A job that ends exactly when planned was predicted correctly. Its prediction is not corrected at that
    /// time, even if another event of the same time is handled first.
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
