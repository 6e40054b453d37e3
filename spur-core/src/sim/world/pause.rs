//! Runs that are suspended: their time stands still, and their CPUs are not counted as held.

use super::{Live, Watch, What, World};
use crate::id::JobId;
use crate::sched::forecast::Forecast;
use crate::text::time::Time;

/// The times at which a run did not run.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Since when it does not.
    since: Option<Time>,
    /// Seconds it did not before.
    seconds: u64,
    /// How much longer it runs by itself once it goes on; `None` for ever.
    left: Option<u64>,
}

impl Live {
    /// Seconds it was suspended until `now`.
    pub(super) fn paused(&self, now: Time) -> u64 {
        self.pause.seconds + self.pause.since.map_or(0, |since| now.since(since))
    }

    /// Seconds it has run until `now`.
    pub(super) fn ran(&self, now: Time) -> u64 {
        now.since(self.started).saturating_sub(self.paused(now))
    }

    /// CPUs that it has at this moment.
    pub(super) fn busy_cpus(&self) -> u64 {
        if self.pause.since.is_some() { 0 } else { self.cpus }
    }
}

impl<W: Watch> World<W> {
    /// Whether a run is planned to be over by now.
    pub(super) fn is_planned_to_end(&self, id: JobId) -> bool {
        let found = self.cluster.job(id).zip(self.live.get(&id));
        let end =
            |(job, live): (_, &Live)| self.truth.end(job, live.started + live.paused(self.now), self.now);
        found.is_some_and(|found| end(found) <= self.now)
    }

    /// A run is suspended, or stays so.
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

    /// A suspended run goes on.
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
