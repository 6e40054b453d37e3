//! The interface of both backends to the rest of the store: an open journal in parts, and recovery.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Batch, Committed, Compacted, Entry, Request, RequestId, Retention, SnapshotChunk, StandbyRow, StoreError,
    postgres, sqlite,
};

/// Capacity of the queue of batches behind the commit under way. Batches that wait are committed together.
pub(super) const QUEUED_BATCHES: usize = 64;
/// Bytes of content up to which waiting batches are added to a commit. With half of it, a stream of jobs
/// costs 2 us more per job; twice as much saves nothing.
const GROUP_BYTES: usize = 1 << 20;

/// A batch, and the receiver of its outcome.
pub(super) struct Submission {
    pub(super) batch: Batch,
    pub(super) done: oneshot::Sender<Result<Committed, StoreError>>,
}

/// An order to compact, and the receiver of its outcome.
pub(super) struct Compaction {
    pub(super) retention: Retention,
    pub(super) done: oneshot::Sender<Compacted>,
}

/// The queues of a writer, which ends when the queue of batches does.
pub(super) struct Queues {
    pub(super) batches: mpsc::Receiver<Submission>,
    pub(super) compactions: mpsc::Receiver<Compaction>,
}

/// Refuses the batches of `group`, which could not be committed, and all batches behind them.
pub(super) fn refuse(
    batches: &mut mpsc::Receiver<Submission>,
    mut group: Vec<Submission>,
    error: &StoreError,
) {
    batches.close();
    while let Ok(submission) = batches.try_recv() {
        group.push(submission);
    }
    for submission in group {
        // The submitter may have given up.
        let _ = submission.done.send(Err(error.clone()));
    }
}

/// Collects the batches that are committed together.
pub(super) fn gather(first: Submission, queue: &mut mpsc::Receiver<Submission>, group: &mut Vec<Submission>) {
    let mut bytes = first.batch.size();
    group.push(first);
    while bytes < GROUP_BYTES {
        let Ok(next) = queue.try_recv() else { return };
        bytes += next.batch.size();
        group.push(next);
    }
}

/// Checks that entries continue the journal after `last` in this epoch, and returns the number of the last
/// one.
pub(super) fn check_order<'a>(
    mut last: u64,
    epoch: u64,
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<u64, StoreError> {
    for entry in entries {
        if entry.seq != last + 1 {
            return Err(StoreError::OutOfOrder { expected: last + 1, found: entry.seq });
        }
        if entry.epoch != epoch {
            let (seq, found) = (entry.seq, entry.epoch);
            return Err(StoreError::WrongEpoch { seq, expected: epoch, found });
        }
        last = entry.seq;
    }
    Ok(last)
}

/// The parts of an open journal.
pub(super) struct Opened {
    pub(super) epoch: u64,
    /// The random name of the journal.
    pub(super) cluster: String,
    pub(super) last_seq: u64,
    pub(super) snapshot_seq: u64,
    pub(super) recovery: Recovery,
    pub(super) reader: Reader,
    pub(super) batches: mpsc::Sender<Submission>,
    pub(super) compactions: mpsc::Sender<Compaction>,
    pub(super) committed: watch::Receiver<u64>,
    pub(super) snapshot: watch::Sender<u64>,
    pub(super) failure: Arc<OnceLock<StoreError>>,
    pub(super) ended: watch::Receiver<bool>,
    /// The lease of a journal that several controllers share.
    pub(super) lease: Option<postgres::Shared>,
}

/// Reads the committed journal.
#[derive(Clone)]
pub(super) enum Reader {
    Sqlite(sqlite::Reader),
    Postgres(postgres::Reader),
}

impl Reader {
    /// Returns the database's path or URL, for messages.
    pub(super) fn path(&self) -> &Path {
        match self {
            Reader::Sqlite(reader) => reader.path(),
            Reader::Postgres(reader) => reader.place(),
        }
    }

    /// Returns a page of about a megabyte of entries after `after`, each with its checksum verified.
    pub(super) async fn page(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        match self {
            Reader::Sqlite(reader) => reader.page(after).await,
            Reader::Postgres(reader) => reader.page(after).await,
        }
    }

    /// Implements [`Journal::entries`](super::Journal::entries).
    pub(super) async fn entries(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let page = self.page(after).await?;
        match page.windows(2).find(|pair| pair[1].seq != pair[0].seq + 1) {
            Some(gap) => {
                Err(StoreError::damaged(self.path(), format!("entry {} is missing", gap[0].seq + 1)))
            }
            None => Ok(page),
        }
    }

    /// Implements [`Journal::blob`](super::Journal::blob).
    pub(super) async fn blob(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Reader::Sqlite(reader) => reader.blob(id).await,
            Reader::Postgres(reader) => reader.blob(id).await,
        }
    }

    /// Implements [`Journal::request`](super::Journal::request).
    pub(super) async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        match self {
            Reader::Sqlite(reader) => reader.request(id).await,
            Reader::Postgres(reader) => reader.request(id).await,
        }
    }

    /// See [`Journal::standbys`](super::Journal::standbys).
    pub(super) async fn standbys(&self) -> Result<Vec<StandbyRow>, StoreError> {
        match self {
            Reader::Sqlite(_) => Ok(Vec::new()),
            Reader::Postgres(reader) => reader.standbys().await,
        }
    }

    /// Closes the connections.
    pub(super) async fn close(&self) {
        match self {
            Reader::Sqlite(reader) => reader.close().await,
            Reader::Postgres(reader) => reader.close().await,
        }
    }
}

/// Reads a whole snapshot, chunk by chunk.
pub(super) enum Chunks {
    Sqlite(sqlite::snapshot::Reader),
    Postgres(postgres::Chunks),
}

/// A recovery under way: first the snapshot, then the entries after it, each of which has to follow the last.
pub(super) struct Recovery {
    reader: Reader,
    chunks: Option<Chunks>,
    /// The last entry that was returned, or that the snapshot covers.
    seq: u64,
    /// The epoch of that entry.
    epoch: u64,
    /// The last entry of the journal when it was opened.
    last: u64,
}

impl Recovery {
    pub(super) fn new(reader: Reader, chunks: Option<Chunks>, snapshot_seq: u64, last: u64) -> Self {
        Self { reader, chunks, seq: snapshot_seq, epoch: 0, last }
    }

    /// Implements [`Recovered::next_chunk`](super::Recovered::next_chunk).
    pub(super) async fn next_chunk(&mut self) -> Result<Option<SnapshotChunk>, StoreError> {
        match &mut self.chunks {
            Some(Chunks::Sqlite(chunks)) => chunks.next().await,
            Some(Chunks::Postgres(chunks)) => chunks.next().await,
            None => Ok(None),
        }
    }

    /// Implements [`Recovered::next_entries`](super::Recovered::next_entries).
    pub(super) async fn next_entries(&mut self) -> Result<Vec<Entry>, StoreError> {
        if self.seq >= self.last {
            return Ok(Vec::new());
        }
        let page = self.reader.page(self.seq).await?;
        if page.is_empty() {
            return Err(self.damaged(format!("entry {} is missing", self.seq + 1)));
        }
        for entry in &page {
            if entry.seq != self.seq + 1 {
                let what = format!("entry {} is missing, entry {} follows", self.seq + 1, entry.seq);
                return Err(self.damaged(what));
            }
            if entry.epoch < self.epoch {
                let what = format!(
                    "entry {} is of epoch {}, the one before of {}",
                    entry.seq, entry.epoch, self.epoch
                );
                return Err(self.damaged(what));
            }
            (self.seq, self.epoch) = (entry.seq, entry.epoch);
        }
        Ok(page)
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::damaged(self.reader.path(), what)
    }
}
