//! What a controller keeps ready, whether it leads or stands by: the cluster for readers, and the planner's
//! queue. A standby that takes over goes on with both.

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

/// Readers and planner, before anybody decides.
pub(crate) struct Warm {
    /// The way to the owner of a controller that leads. Nobody serves the queue of a standby.
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
    /// Begins with this cluster.
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

    /// Follows entries that are durable.
    pub(crate) fn follow(&mut self, entries: &[Arc<Entry>]) {
        self.replica.apply(entries);
        self.watchers.tell(&self.replica.read(), entries);
        self.changes.note(&self.replica.read(), entries);
        self.planning.follow(entries);
    }
}
