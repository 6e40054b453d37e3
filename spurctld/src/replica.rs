//! The cluster as far as it is durable, for reading.
//!
//! It is changed by the outbox alone, before the replies of the same batch are sent. A reader holds it for a short
//! while only: long lists are read page by page.

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
    /// Locked after the cluster where both are.
    tally: Arc<Mutex<Tally>>,
}

impl Replica {
    /// A replica that begins with this cluster.
    pub fn new(mut cluster: Cluster) -> Self {
        let (mut tally, now) = (Tally::default(), cluster.at());
        let jobs = cluster.take_changed_jobs();
        tally.update(&cluster, jobs, now);
        Self { cluster: Arc::new(RwLock::new(cluster)), tally: Arc::new(Mutex::new(tally)) }
    }

    /// The cluster as it is now. Replies wait while this is held.
    pub fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of its jobs. No reply waits for whoever holds them, unless an entry is to be applied meanwhile.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings it up to date. Readers come in between parts of a large batch, whose replies wait until all of it is there.
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
