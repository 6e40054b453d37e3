//! Those who wait for something to happen to a job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::cluster::{Cluster, Entry};
use spur_core::id::JobId;
use spur_core::model::job::Job;
use tokio::sync::Notify;

/// Who waits for which jobs. Clones share it.
#[derive(Clone, Default)]
pub struct Watchers {
    jobs: Arc<Mutex<BTreeMap<JobId, Vec<Arc<Notify>>>>>,
}

/// Wakes one who watches some jobs, for as long as it lives.
pub struct Watch {
    watchers: Watchers,
    jobs: Vec<JobId>,
    notify: Arc<Notify>,
}

impl Watchers {
    /// Watches these jobs from now on.
    pub fn watch(&self, jobs: Vec<JobId>) -> Watch {
        let notify = Arc::new(Notify::new());
        let mut table = self.table();
        for job in &jobs {
            table.entry(*job).or_default().push(Arc::clone(&notify));
        }
        drop(table);
        Watch { watchers: self.clone(), jobs, notify }
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
            for watcher in [Some(job), array].iter().flatten().filter_map(|id| table.get(id)).flatten() {
                watcher.notify_one();
            }
        }
    }

    /// Wakes those who watch a job of which this is true.
    pub(crate) fn tell_where(&self, mut changed: impl FnMut(JobId) -> bool) {
        for (job, watching) in self.table().iter() {
            if changed(*job) {
                watching.iter().for_each(|watcher| watcher.notify_one());
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<Arc<Notify>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits until something has happened to one of the jobs since the last time.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = self.watchers.table();
        for job in &self.jobs {
            let Some(waiting) = table.get_mut(job) else { continue };
            waiting.retain(|other| !Arc::ptr_eq(other, &self.notify));
            if waiting.is_empty() {
                table.remove(job);
            }
        }
    }
}
