//! Those who wait for something to happen to a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::cluster::{Cluster, Entry};
use spur_core::id::JobId;
use spur_core::model::job::Job;
use tokio::sync::Notify;

/// Who waits for which jobs. Clones share it.
#[derive(Clone, Default)]
pub struct Watchers {
    jobs: Arc<Mutex<BTreeMap<JobId, Vec<Arc<Bell>>>>>,
}

/// Wakes one who watches some jobs, for as long as it lives.
pub struct Watch {
    watchers: Watchers,
    jobs: Vec<JobId>,
    bell: Arc<Bell>,
}

/// Of which jobs one watcher has not heard yet.
#[derive(Default)]
struct Bell {
    rung: Notify,
    jobs: Mutex<BTreeSet<JobId>>,
}

impl Bell {
    fn ring(&self, job: JobId) {
        self.jobs().insert(job);
        self.rung.notify_one();
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchers {
    /// Watches these jobs from now on.
    pub fn watch(&self, jobs: Vec<JobId>) -> Watch {
        let bell = Arc::<Bell>::default();
        let mut table = self.table();
        for job in &jobs {
            table.entry(*job).or_default().push(Arc::clone(&bell));
        }
        drop(table);
        Watch { watchers: self.clone(), jobs, bell }
    }

    /// Wakes those whose jobs, or tasks of whose arrays, are named in committed entries, which `cluster` must have
    /// already.
    pub(crate) fn tell(&self, cluster: &Cluster, entries: &[Arc<Entry>]) {
        let table = self.table();
        if table.is_empty() {
            return;
        }
        for job in entries.iter().flat_map(|entry| entry.event.jobs()) {
            let array = cluster.job(job).map(Job::array_id).filter(|array| *array != job);
            for named in [Some(job), array].into_iter().flatten() {
                table.get(&named).into_iter().flatten().for_each(|bell| bell.ring(named));
            }
        }
    }

    /// Wakes those who watch a job of which this is true.
    pub(crate) fn tell_where(&self, mut changed: impl FnMut(JobId) -> bool) {
        for (job, watching) in self.table().iter() {
            if changed(*job) {
                watching.iter().for_each(|bell| bell.ring(*job));
            }
        }
    }

    /// How many jobs are watched.
    pub(crate) fn count(&self) -> usize {
        self.table().len()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<Arc<Bell>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits until something has happened to some of the jobs since the last time, and says to which.
    pub async fn changed(&self) -> BTreeSet<JobId> {
        loop {
            let changed = std::mem::take(&mut *self.bell.jobs());
            if !changed.is_empty() {
                return changed;
            }
            self.bell.rung.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = self.watchers.table();
        for job in &self.jobs {
            let Some(waiting) = table.get_mut(job) else { continue };
            waiting.retain(|other| !Arc::ptr_eq(other, &self.bell));
            if waiting.is_empty() {
                table.remove(job);
            }
        }
    }
}
