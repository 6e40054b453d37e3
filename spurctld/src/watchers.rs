//! Clients that wait for changes of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::cluster::{Cluster, Entry};
use spur_core::id::JobId;
use spur_core::model::job::Job;
use tokio::sync::Notify;

/// The waiting clients by job. Clones share them.
#[derive(Clone, Default)]
pub struct Watchers {
    jobs: Arc<Mutex<BTreeMap<JobId, Vec<Arc<Bell>>>>>,
}

/// One client's watch on some jobs; dropping the value ends it.
pub struct Watch {
    watchers: Watchers,
    jobs: Vec<JobId>,
    bell: Arc<Bell>,
}

/// The watched jobs that have changed and whose watcher has not been woken for them yet.
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
    /// Begins to watch these jobs.
    pub fn watch(&self, jobs: Vec<JobId>) -> Watch {
        let bell = Arc::<Bell>::default();
        let mut table = self.table();
        for job in &jobs {
            table.entry(*job).or_default().push(Arc::clone(&bell));
        }
        drop(table);
        Watch { watchers: self.clone(), jobs, bell }
    }

    /// Wakes the watchers of the jobs, and of the arrays, that committed entries concern. `cluster` already
    /// has the entries applied.
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

    /// Wakes the watchers of the jobs for which `changed` is true.
    pub(crate) fn tell_where(&self, mut changed: impl FnMut(JobId) -> bool) {
        for (job, watching) in self.table().iter() {
            if changed(*job) {
                watching.iter().for_each(|bell| bell.ring(*job));
            }
        }
    }

    /// Returns the number of watched jobs.
    pub(crate) fn count(&self) -> usize {
        self.table().len()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<Arc<Bell>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits for changes since the last call, and returns the changed jobs.
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
