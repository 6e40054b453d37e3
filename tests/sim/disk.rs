//! The controller's disk: synced content stays, whatever happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use spur_core::cluster::snapshot::{self, Record, Restore};
use spur_core::cluster::{Cluster, Entry};
use spur_core::controller::Reply;
use spur_core::id::RequestId;

/// The content that a commit makes durable.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) answered: Option<(RequestId, Reply)>,
}

/// The journal, the answers to requests, and the last snapshot.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) journal: Vec<Arc<Entry>>,
    answers: BTreeMap<RequestId, Reply>,
    snapshot: Option<(u64, Vec<String>)>,
}

impl Disk {
    pub(crate) fn write(&mut self, batch: &Batch) {
        self.journal.extend(batch.entries.iter().cloned());
        if let Some((request, reply)) = &batch.answered {
            self.answers.insert(*request, reply.clone());
        }
    }

    pub(crate) fn answer(&self, request: RequestId) -> Option<&Reply> {
        self.answers.get(&request)
    }

    /// Writes a snapshot of a cluster that has applied a part of the journal.
    pub(crate) fn snapshot(&mut self, cluster: &Cluster) {
        let text = |record| serde_json::to_string(&record).expect("a record is plain data");
        self.snapshot = Some((cluster.seq(), snapshot::records(cluster).map(text).collect()));
    }

    /// The cluster that recovery rebuilds, with or without the snapshot. Everything is read from its written
    /// form.
    pub(crate) fn recover(&self, use_snapshot: bool) -> Cluster {
        let (mut cluster, from) = match &self.snapshot {
            Some((seq, records)) if use_snapshot => {
                let mut restore = Restore::default();
                for record in records {
                    restore.push(serde_json::from_str::<Record>(record).expect("our own record"));
                }
                (restore.finish(), *seq)
            }
            _ => (Cluster::default(), 0),
        };
        for entry in &self.journal[usize::try_from(from).expect("small")..] {
            let text = serde_json::to_string(entry).expect("an entry is plain data");
            cluster.apply(&serde_json::from_str(&text).expect("our own entry"));
        }
        cluster
    }
}
