//! Suspended runs: their run time stops, and their CPUs do not count as allocated.

use super::{Live, Watch, What, World};
use crate::id::JobId;
use crate::sched::forecast::Forecast;
use crate::text::time::Time;

/// Periods in which a run was suspended.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Begin of the present suspension; `None` if the run is not suspended.
    since: Option<Time>,
    /// Seconds of all earlier suspensions.
    seconds: u64,
    /// Seconds that the run has left when it continues; `None` for a run that never ends by itself.
    left: Option<u64>,
}

impl Live {
    /// Seconds that the run was suspended up to `now`.
    pub(super) fn paused(&self, now: Time) -> u64 {
        self.pause.seconds + self.pause.since.map_or(0, |since| now.since(since))
    }

    /// Seconds that the run ran up to `now`.
    pub(super) fn ran(&self, now: Time) -> u64 {
        now.since(self.started).saturating_sub(self.paused(now))
    }

    /// Number of CPUs in use; 0 while the run is suspended.
    pub(super) fn busy_cpus(&self) -> u64 {
        if self.pause.since.is_some() { 0 } else { self.cpus }
    }
}

impl<W: Watch> World<W> {
    /// True if a run is planned to be over at the present time.
    pub(super) fn is_planned_to_end(&self, id: JobId) -> bool {
        let found = self.cluster.job(id).zip(self.live.get(&id));
        let end =
            |(job, live): (_, &Live)| self.truth.end(job, live.started + live.paused(self.now), self.now);
        found.is_some_and(|found| end(found) <= self.now)
    }

    /// Suspends a run, or keeps it suspended.
    pub(super) fn suspended(&mut self, id: JobId) {
        let Some(live) = self.live.get_mut(&id).filter(|live| live.pause.since.is_none()) else { return };
        self.busy_cpus -= live.cpus;
        live.pause.since = Some(self.now);
        live.pause.left = live.ends.map(|at| at.since(self.now));
        if let Some(at) = live.ends.take() {
            self.ends.remove(&(at, live.order));
        }
        let job = self.name(id);
        self.tell(id, || What::Suspend { job });
    }

    /// Continues a suspended run.
    pub(super) fn resumed(&mut self, id: JobId) {
        let Some(live) = self.live.get_mut(&id) else { return };
        self.busy_cpus += live.cpus;
        live.pause.seconds = live.paused(self.now);
        live.pause.since = None;
        live.ends = live.pause.left.take().map(|left| self.now + left);
        self.ends.extend(live.ends.map(|at| ((at, live.order), id)));
        let job = self.name(id);
        self.tell(id, || What::Resume { job });
    }
}
