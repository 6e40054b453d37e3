//! From what is on the disk to the cluster of before, and how entries and snapshots are written there.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, ensure};
pub(crate) use spur_core::cluster::Names;
use spur_core::cluster::snapshot::{Record, Restore};
use spur_core::cluster::{Cluster, Entry, Event, Record as JobRecord};
use spur_core::text::time::Time;

use crate::store::{self, Recovered};

/// What chunks of a snapshot are called: records of the cluster, one on each line, in the core's own versions.
pub(crate) const CHUNK: &str = "records";

/// Room for most events.
const ENTRY_BYTES: usize = 1000;

/// An entry as the journal keeps it: the event in full, the rest in columns of its own.
pub(crate) fn to_store(entry: &Entry) -> store::Entry {
    let mut body = Vec::with_capacity(ENTRY_BYTES);
    serde_json::to_writer(&mut body, &entry.event).expect("an event holds nothing that JSON cannot");
    store::Entry { seq: entry.seq, epoch: entry.epoch, at: entry.at.0, body }
}

/// An entry read back. An event that this release does not know is an error: to ignore it would lose something.
pub(crate) fn from_store(kept: &store::Entry) -> anyhow::Result<Entry> {
    let event: Event = serde_json::from_slice(&kept.body).with_context(|| {
        format!(
            "entry {} of the journal is not understood: a newer Spur wrote it (start that one), or it is damaged",
            kept.seq
        )
    })?;
    Ok(Entry {
        seq: kept.seq,
        epoch: kept.epoch,
        at: Time(kept.at),
        request: None,
        event,
        record: JobRecord::default(),
    })
}

/// The clusters that the journal leads to: where accounting has got to and, beyond that, where the journal ends.
pub(crate) struct History {
    /// After the last entry.
    pub(crate) cluster: Cluster,
    /// At the snapshot, if there was one.
    pub(crate) base: Cluster,
    /// From the snapshot to the end.
    pub(crate) entries: VecDeque<Arc<Entry>>,
}

impl History {
    /// Applies entries that follow the last one; returns them.
    ///
    /// # Errors
    /// An event that this release does not know.
    pub(crate) fn follow(
        &mut self,
        page: Vec<store::Entry>,
        names: &mut Names,
    ) -> anyhow::Result<Vec<Arc<Entry>>> {
        let mut followed = Vec::with_capacity(page.len());
        for kept in page {
            let mut entry = from_store(&kept)?;
            if let Event::JobSubmitted { spec, .. } | Event::JobUpdated { spec, .. } = &mut entry.event {
                names.share(spec);
            }
            if let Event::HetJobSubmitted { specs, .. } = &mut entry.event {
                specs.iter_mut().for_each(|spec| names.share(spec));
            }
            let entry = Arc::new(entry);
            self.cluster.apply(&entry);
            self.entries.push_back(Arc::clone(&entry));
            followed.push(entry);
        }
        Ok(followed)
    }
}

/// Reads the last snapshot and the entries after it.
///
/// # Errors
/// What the disk refuses, and what cannot be read.
pub(crate) async fn recover(recovered: Recovered) -> anyhow::Result<History> {
    recover_with(recovered, &mut Names::default()).await
}

/// [`recover`] with names that entries which are read later share, too.
///
/// # Errors
/// As [`recover`].
pub(crate) async fn recover_with(mut recovered: Recovered, names: &mut Names) -> anyhow::Result<History> {
    let mut restore = Restore::default();
    let mut restored = false;
    while let Some(chunk) = recovered.next_chunk().await? {
        ensure!(chunk.kind == CHUNK, "the snapshot holds `{}`, which this release does not know", chunk.kind);
        for line in chunk.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let record: Record = serde_json::from_slice(line).context("the snapshot cannot be read")?;
            restore.push(record);
        }
        restored = true;
    }
    let base = if restored { restore.finish() } else { Cluster::default() };
    let mut history = History { cluster: base.clone(), base, entries: VecDeque::new() };
    loop {
        let page = recovered.next_entries().await?;
        if page.is_empty() {
            return Ok(history);
        }
        history.follow(page, names)?;
    }
}
