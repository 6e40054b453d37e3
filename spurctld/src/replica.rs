//! The cluster as far as it is durable, for reading.
//!
//! It is changed by the outbox alone, before the replies of the same batch are sent. A reader holds it for a short
//! while only: long lists are read page by page.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread;

use spur_core::cluster::{Cluster, Entry};

/// Entries that are applied while readers wait.
const AT_ONCE: usize = 256;

/// The committed cluster. Clones share it.
#[derive(Clone)]
pub struct Replica {
    cluster: Arc<RwLock<Cluster>>,
}

impl Replica {
    /// A replica that begins with this cluster.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster: Arc::new(RwLock::new(cluster)) }
    }

    /// The cluster as it is now. Replies wait while this is held.
    pub fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings it up to date. Readers come in between parts of a large batch, whose replies wait until all of it is there.
    pub(crate) fn apply(&self, entries: &[Arc<Entry>]) {
        for (number, part) in entries.chunks(AT_ONCE).enumerate() {
            if number > 0 {
                thread::yield_now();
            }
            let mut cluster = self.cluster.write().unwrap_or_else(PoisonError::into_inner);
            part.iter().for_each(|entry| cluster.apply(entry));
        }
    }
}
