//! The committed cluster, for reading.
//!
//! Only the outbox changes the replica, before the replies of the same batch are sent. A reader holds its
//! lock briefly: long lists are read page by page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;

use spur_core::cluster::{Cluster, Entry};

use crate::tally::Tally;

/// Entries that are applied while readers wait.
const AT_ONCE: usize = 256;

/// The committed cluster. Clones share it.
#[derive(Clone)]
pub struct Replica {
    cluster: Arc<RwLock<Cluster>>,
    /// Counts of jobs. Where both locks are held, the cluster's is taken first.
    tally: Arc<Mutex<Tally>>,
}

impl Replica {
    /// Returns a replica that begins with this cluster.
    pub fn new(mut cluster: Cluster) -> Self {
        let (mut tally, now) = (Tally::default(), cluster.at());
        let jobs = cluster.take_changed_jobs();
        tally.update(&cluster, jobs, now);
        Self { cluster: Arc::new(RwLock::new(cluster)), tally: Arc::new(Mutex::new(tally)) }
    }

    /// Returns the current cluster. Replies wait while the guard is held.
    pub fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of jobs. Replies wait for the guard only when an entry is to be applied.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies committed entries. A large batch is applied in parts, between which readers get the lock; its
    /// replies wait for all parts.
    pub(crate) fn apply(&self, entries: &[Arc<Entry>]) {
        for (number, part) in entries.chunks(AT_ONCE).enumerate() {
            if number > 0 {
                thread::yield_now();
            }
            let mut cluster = self.cluster.write().unwrap_or_else(PoisonError::into_inner);
            part.iter().for_each(|entry| cluster.apply(entry));
            let (changed, now) = (cluster.take_changed_jobs(), cluster.at());
            self.tally().update(&cluster, changed, now);
        }
    }
}
