//! Recovery: rebuilds the cluster from the journal and its last snapshot; also encodes entries and snapshots
//! for the store.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, ensure};
pub(crate) use spur_core::cluster::Names;
use spur_core::cluster::snapshot::{Record, Restore};
use spur_core::cluster::{Cluster, Entry, Event, FeatureLevel, Record as JobRecord};
use spur_core::text::time::Time;

use crate::store::{self, Recovered};

/// The kind of a snapshot's chunks: records of the cluster, one per line, in the core's own versions.
pub(crate) const CHUNK: &str = "records";

/// Initial capacity of an encoded event, in bytes; enough for most.
const ENTRY_BYTES: usize = 1000;

/// Encodes an entry for the journal: the event as JSON, the rest in columns.
pub(crate) fn to_store(entry: &Entry) -> store::Entry {
    let mut body = Vec::with_capacity(ENTRY_BYTES);
    serde_json::to_writer(&mut body, &entry.event).expect("an event holds nothing that JSON cannot");
    store::Entry { seq: entry.seq, epoch: entry.epoch, at: entry.at.0, body }
}

/// Decodes an entry. An event that this release does not know is an error: skipping the event would lose its
/// effect.
pub(crate) fn from_store(kept: &store::Entry) -> anyhow::Result<Entry> {
    let event: Event = serde_json::from_slice(&kept.body).with_context(|| {
        format!(
            "entry {} of the journal is not understood: a newer Spur wrote it (start that one), or it is damaged",
            kept.seq
        )
    })?;
    if let Event::FeatureLevelRaised { level } = &event {
        known(*level)?;
    }
    Ok(Entry {
        seq: kept.seq,
        epoch: kept.epoch,
        at: Time(kept.at),
        request: None,
        event,
        record: JobRecord::default(),
    })
}

/// Checks that this program knows the feature level of a journal.
fn known(level: FeatureLevel) -> anyhow::Result<()> {
    ensure!(
        level <= FeatureLevel::NEWEST,
        "the journal has FeatureLevel={level}, and this spurctld knows FeatureLevel={} at most: start a spurctld of the \
         newer release; a level cannot be lowered",
        FeatureLevel::NEWEST
    );
    Ok(())
}

/// The cluster at the snapshot and at the journal's end, with the entries between.
pub(crate) struct History {
    /// The cluster after the last entry.
    pub(crate) cluster: Cluster,
    /// The cluster at the snapshot; empty without one.
    pub(crate) base: Cluster,
    /// The entries from the snapshot to the end.
    pub(crate) entries: VecDeque<Arc<Entry>>,
}

impl History {
    /// Applies entries that follow the last one, and returns them.
    ///
    /// # Errors
    /// Fails at an event that this release does not know.
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
/// Fails if the disk or the database refuses, or if a record cannot be decoded.
pub(crate) async fn recover(recovered: Recovered) -> anyhow::Result<History> {
    recover_with(recovered, &mut Names::default()).await
}

/// Does what [`recover`] does; entries that are read later share `names`, too.
///
/// # Errors
/// Fails as [`recover`] does.
pub(crate) async fn recover_with(mut recovered: Recovered, names: &mut Names) -> anyhow::Result<History> {
    let mut restore = Restore::default();
    let mut restored = false;
    while let Some(chunk) = recovered.next_chunk().await? {
        ensure!(chunk.kind == CHUNK, "the snapshot holds `{}`, which this release does not know", chunk.kind);
        for line in chunk.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let record: Record = serde_json::from_slice(line).context(
                "the snapshot is not understood: a newer Spur wrote it (start that one), or it is damaged",
            )?;
            if let Record::FeatureLevel(level) = &record {
                known(*level)?;
            }
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
