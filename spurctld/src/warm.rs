//! State that a controller keeps ready whether it leads or stands by: the replica for readers, and the
//! planner's queue. A standby that takes over continues with both.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use spur_core::cluster::{Cluster, Entry};
use tokio::sync::mpsc;

use crate::changes::Changes;
use crate::clock;
use crate::feed::Entries;
use crate::inbox::{Inbox, Message};
use crate::planner::{Overlay, Planning};
use crate::replica::Replica;
use crate::statistics::Statistics;
use crate::watchers::Watchers;

/// The replica, its followers and the planner, before the owner runs.
pub(crate) struct Warm {
    /// Queue to the owner of a controller that leads. In a standby, no owner serves the queue.
    pub(crate) inbox: Inbox,
    pub(crate) messages: mpsc::Receiver<Message>,
    pub(crate) replica: Replica,
    pub(crate) watchers: Watchers,
    pub(crate) changes: Changes,
    pub(crate) overlay: Overlay,
    pub(crate) statistics: Statistics,
    /// The planner, before its thread runs.
    pub(crate) planning: Planning,
    /// The planner's feed once its thread runs.
    pub(crate) to_planner: Sender<Entries>,
}

impl Warm {
    /// Returns the state for this cluster, before any further entry.
    pub(crate) fn new(cluster: &Cluster) -> Warm {
        let (inbox, messages) = Inbox::new();
        let (to_planner, entries) = channel();
        let (replica, watchers) = (Replica::new(cluster.clone()), Watchers::default());
        let changes = Changes::after(cluster.seq());
        let overlay = Overlay::new(watchers.clone(), replica.clone(), changes.clone());
        let statistics = Statistics::new(clock::wall());
        let planning =
            Planning::new(cluster.clone(), entries, inbox.clone(), overlay.clone(), statistics.clone());
        Warm { inbox, messages, replica, watchers, changes, overlay, statistics, planning, to_planner }
    }

    /// Applies durable entries to the replica, the watchers, the log of changes and the planner.
    pub(crate) fn follow(&mut self, entries: &[Arc<Entry>]) {
        self.replica.apply(entries);
        self.watchers.tell(&self.replica.read(), entries);
        self.changes.note(&self.replica.read(), entries);
        self.planning.follow(entries);
    }
}
