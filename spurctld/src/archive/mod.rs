//! The archive: follows the feed at its own pace, writes accounting and, now and then, a snapshot.
//!
//! It has a cluster of its own. Rows are written before the snapshot that covers them, so after a restart the
//! snapshot is never ahead of accounting, and the entries after it are enough to go on without losing a row.

mod rows;

pub(crate) use rows::step_label;

use std::sync::Arc;
use std::time::Duration;

use spur_core::cluster::{Cluster, Entry, snapshot};
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::feed::Entries;
use crate::recover::CHUNK;
use crate::store::accounting::Accounting;
use crate::store::{Journal, Retention, StoreError};
use rows::Rows;

/// Entries after which a snapshot is written, so that a start never has to read many more.
const SNAPSHOT_EVERY: u64 = 50_000;
/// Entries whose rows are written at once.
const WRITE_EVERY: usize = 4096;
/// Bytes in one chunk of a snapshot.
const CHUNK_BYTES: usize = 64 << 10;
/// How long request ids are remembered, in seconds.
const REQUESTS_KEPT: i64 = 86_400;
/// How long a database that refuses a write is left alone.
const RETRY: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Archive {
    pub(crate) cluster: Cluster,
    pub(crate) journal: Journal,
    pub(crate) accounting: Accounting,
    /// The last entry that accounting has.
    pub(crate) reached: u64,
    /// The entry of the last snapshot.
    pub(crate) snapshot: u64,
}

/// Those who want a copy of the archive's cluster: the one that nobody waits for.
pub(crate) type Copies = mpsc::Receiver<oneshot::Sender<Cluster>>;

impl Archive {
    /// Works until the feed ends.
    pub(crate) async fn run(mut self, mut feed: mpsc::UnboundedReceiver<Entries>, mut copies: Copies) {
        loop {
            let entries = tokio::select! {
                biased;
                entries = feed.recv() => match entries {
                    Some(entries) => entries,
                    None => return,
                },
                Some(wanted) = copies.recv() => {
                    // Whoever does not wait any more needs no copy.
                    let _ = wanted.send(self.cluster.clone());
                    continue;
                }
            };
            let mut rows = Rows::default();
            let mut taken = self.take(&entries, &mut rows);
            while taken < WRITE_EVERY {
                let Ok(entries) = feed.try_recv() else { break };
                taken += self.take(&entries, &mut rows);
            }
            self.write(rows).await;
            if self.cluster.seq() >= self.snapshot + SNAPSHOT_EVERY {
                self.snapshot().await;
            }
        }
    }

    /// Applies entries, and notes what accounting must know of those it does not have; says how many they were.
    pub(crate) fn take(&mut self, entries: &[Arc<Entry>], rows: &mut Rows) -> usize {
        for entry in entries {
            let new = entry.seq > self.reached;
            if new {
                rows.before(&self.cluster, entry);
            }
            self.cluster.apply(entry);
            if new {
                rows.after(&self.cluster, entry);
            }
        }
        entries.len()
    }

    /// Writes rows, however long the database refuses them: nothing waits for this.
    async fn write(&mut self, rows: Rows) {
        let seq = self.cluster.seq();
        let (jobs, steps) = rows.finish(&self.cluster);
        loop {
            match self.accounting.write(seq, jobs.clone(), steps.clone()).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(%error, cause = ?std::error::Error::source(&error), "accounting cannot be written");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.reached = seq;
    }

    /// Writes a snapshot, and lets the journal drop what it covers. One that fails is tried again later.
    async fn snapshot(&mut self) {
        let seq = self.cluster.seq();
        if let Err(error) = self.write_snapshot(seq).await {
            tracing::error!(%error, "a snapshot cannot be written");
            return;
        }
        self.snapshot = seq;
        let retention = Retention { entries_through: seq, requests_before: clock::now().0 - REQUESTS_KEPT };
        match self.journal.compact(retention).await {
            Ok(done) => tracing::info!(seq, entries = done.entries, blobs = done.blobs, "snapshot written"),
            Err(error) => tracing::warn!(%error, "the journal was not compacted"),
        }
    }

    async fn write_snapshot(&self, seq: u64) -> Result<(), StoreError> {
        let mut writer = self.journal.begin_snapshot(seq).await?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        for record in snapshot::records(&self.cluster) {
            serde_json::to_writer(&mut chunk, &record).expect("a record holds nothing that JSON cannot");
            chunk.push(b'\n');
            if chunk.len() >= CHUNK_BYTES {
                writer.chunk(CHUNK, std::mem::take(&mut chunk)).await?;
            }
        }
        writer.chunk(CHUNK, chunk).await?;
        writer.finish().await
    }
}
