//! Passes committed entries to everything that follows the journal.

use std::sync::Arc;

use spur_core::cluster::Entry;
use tokio::sync::mpsc;

use crate::changes::Changes;
use crate::holders::Holders;
use crate::replica::Replica;
use crate::statistics::Statistics;
use crate::watchers::Watchers;

/// A batch of committed entries, in order.
pub(crate) type Entries = Arc<[Arc<Entry>]>;

/// The followers of the journal. The replica is updated at once; planner and archive have queues of their
/// own, so that neither delays another.
pub(crate) struct Feed {
    pub(crate) replica: Replica,
    pub(crate) watchers: Watchers,
    pub(crate) changes: Changes,
    pub(crate) holders: Holders,
    pub(crate) statistics: Statistics,
    pub(crate) planner: std::sync::mpsc::Sender<Entries>,
    pub(crate) archive: mpsc::UnboundedSender<Entries>,
}

impl Feed {
    /// Passes a batch of entries to all followers.
    pub(crate) fn publish(&mut self, entries: Vec<Arc<Entry>>) {
        if entries.is_empty() {
            return;
        }
        let entries: Entries = entries.into();
        self.replica.apply(&entries);
        // A command hears of a failed node before the end of its allocation, so holders come before watchers.
        self.holders.tell(&self.replica.read(), &entries);
        self.watchers.tell(&self.replica.read(), &entries);
        self.changes.note(&self.replica.read(), &entries);
        self.statistics.note(&self.replica.read(), &entries);
        // A follower that has ended, at the end of the process, misses nothing: the journal has the entries.
        let _ = self.planner.send(Arc::clone(&entries));
        let _ = self.archive.send(entries);
    }
}
