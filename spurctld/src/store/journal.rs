//! The interface of the journal to the rest of the controller: batches, commits, and recovery.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::backend::{Compaction, Opened, Reader, Recovery, Submission};
use super::{
    Batch, Committed, Condition, Entry, Place, Request, RequestId, SnapshotChunk, SnapshotWriter, StoreError,
    postgres, sqlite,
};

/// The wait before a read is repeated that failed because the database is away.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// The open journal. Clones share one journal, which is closed by [`Journal::close`], or when the last
/// clone has been dropped and all submitted batches are durable.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: u64,
    cluster: String,
    batches: mpsc::Sender<Submission>,
    compactions: mpsc::Sender<Compaction>,
    /// The last durable entry.
    committed: watch::Receiver<u64>,
    /// The last entry covered by a durable snapshot; nothing after it is ever deleted.
    snapshot: watch::Sender<u64>,
    /// The failure that ended the writer, if one did.
    failure: Arc<OnceLock<StoreError>>,
    /// Becomes true when the writer has ended and the lock is free.
    ended: watch::Receiver<bool>,
    reader: Reader,
    /// The lease of a journal that several controllers share.
    lease: Option<postgres::Shared>,
}

/// A commit under way: resolves once its batch is durable, or with the reason why it never will be.
#[must_use = "nothing may be acknowledged before the commit has resolved"]
pub struct Commit {
    outcome: oneshot::Receiver<Result<Committed, StoreError>>,
}

/// Sizes that trade disk space for work. The defaults fit any cluster; small values let tests reach every
/// case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of commits after which the write-ahead log is copied into the database. The copied pages are
    /// synced together, and a commit's own sync may have to wait for that: small and frequent copies are
    /// better.
    pub checkpoint_bytes: usize,
    /// Length of the write-ahead log, in bytes, beyond which it is restarted as soon as all of it has been
    /// copied.
    pub long_log_bytes: u64,
    /// Free space, in bytes, that the database keeps for new rows after compaction. The default is more than
    /// what is written between two snapshots, so that only a burst makes the file shorter.
    pub kept_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { checkpoint_bytes: 2 << 20, long_log_bytes: 8 << 20, kept_bytes: 256 << 20 }
    }
}

/// Limits on what compaction may delete. Released blobs are deleted in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Entries up to this one, which the slowest consumer has. Entries after the last durable snapshot stay
    /// anyway.
    pub entries_through: u64,
    /// Requests with an earlier [`Request::at`].
    pub requests_before: i64,
}

/// A standby's last report of itself to the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyRow {
    /// Address of the standby's service.
    pub address: String,
    /// The last entry that the standby has applied.
    pub seq: u64,
    /// Differences between the configuration of the standby's host and the policy in force after that
    /// entry.
    pub differs: String,
}

/// Numbers of records that a compaction deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Number of entries.
    pub entries: u64,
    /// Number of request ids.
    pub requests: u64,
    /// Number of blobs.
    pub blobs: u64,
}

/// The recovered state in two streams: the chunks of the last snapshot, then the entries after it. Neither is
/// ever in memory as a whole. Both should be read before the first commit.
pub struct Recovered {
    /// The epoch that this opening began, greater than that of every entry.
    pub epoch: u64,
    /// The last entry of the journal; 0 in a new one.
    pub last_seq: u64,
    /// The entry of the snapshot; 0 without one.
    pub snapshot_seq: u64,
    source: Recovery,
}

impl Journal {
    /// Opens the journal at `place`, creating it if necessary, and begins a new epoch. Waits until the lease
    /// of a database is free.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another controller has it, [`StoreError::NewerSchema`],
    /// [`StoreError::Damaged`], or the refusal of the disk or the database.
    pub async fn open(place: impl Into<Place>) -> Result<(Self, Recovered), StoreError> {
        match place.into() {
            Place::File(path) => Self::open_with(&path, Tuning::default()).await,
            Place::Database { database, address } => Self::opened(postgres::open(database, address).await?),
        }
    }

    /// Opens an SQLite database as [`Journal::open`] does, with other sizes.
    ///
    /// # Errors
    /// Fails as [`Journal::open`] does.
    pub async fn open_with(path: &Path, tuning: Tuning) -> Result<(Self, Recovered), StoreError> {
        Self::opened(sqlite::open(path, tuning, false).await?)
    }

    /// Opens a journal as [`Journal::open`] does although its end is missing; it continues after its present
    /// last entry.
    ///
    /// # Errors
    /// Fails as [`Journal::open`] does, except with [`StoreError::Shortened`] or for a missing database.
    pub async fn open_shortened(place: impl Into<Place>) -> Result<(Self, Recovered), StoreError> {
        match place.into() {
            Place::File(path) => Self::opened(sqlite::open(&path, Tuning::default(), true).await?),
            place => Self::open(place).await,
        }
    }

    pub(super) fn opened(opened: Opened) -> Result<(Self, Recovered), StoreError> {
        let recovered = Recovered::of(opened.epoch, opened.last_seq, opened.snapshot_seq, opened.recovery);
        let shared = Shared {
            epoch: opened.epoch,
            cluster: opened.cluster,
            batches: opened.batches,
            compactions: opened.compactions,
            committed: opened.committed,
            snapshot: opened.snapshot,
            failure: opened.failure,
            ended: opened.ended,
            reader: opened.reader,
            lease: opened.lease,
        };
        Ok((Self { shared: Arc::new(shared) }, recovered))
    }

    /// Returns a handle of a journal that another controller writes. The handle reads, and accepts no
    /// batches.
    pub(super) fn following(reader: Reader, cluster: String, lease: postgres::Shared) -> Self {
        let (batches, _) = mpsc::channel(1);
        let (compactions, _) = mpsc::channel(1);
        let (committed, snapshot, ended) = (watch::channel(0).1, watch::channel(0).0, watch::channel(true).1);
        let (epoch, failure, lease) = (0, Arc::default(), Some(lease));
        let shared = Shared {
            epoch,
            cluster,
            batches,
            compactions,
            committed,
            snapshot,
            failure,
            ended,
            reader,
            lease,
        };
        Self { shared: Arc::new(shared) }
    }

    /// True if this handle is of a controller that leads, or that led until its lease ended; false for a
    /// standby.
    pub fn leads(&self) -> bool {
        self.shared.epoch > 0
    }

    /// Address of the controller that leads, as a standby last read it; empty if unknown, or if this
    /// controller leads.
    pub fn leader(&self) -> String {
        self.shared.lease.as_ref().map(postgres::Shared::leader).unwrap_or_default()
    }

    /// The epoch of this opening; every entry must carry it.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    /// True if an answer may leave this controller now: without a valid lease it may lack changes that
    /// another controller has acknowledged.
    pub fn may_answer(&self) -> bool {
        self.shared.lease.as_ref().is_none_or(postgres::Shared::may_answer)
    }

    /// Returns whether the database answers; always [`Condition::Well`] for a database on this host's disk.
    pub fn condition(&self) -> Condition {
        self.shared.lease.as_ref().map_or(Condition::Well, |lease| lease.condition().borrow().clone())
    }

    /// Returns a receiver for changes of [`Journal::condition`].
    pub fn conditions(&self) -> watch::Receiver<Condition> {
        let always_well = || watch::channel(Condition::Well).1;
        self.shared.lease.as_ref().map_or_else(always_well, postgres::Shared::condition)
    }

    /// Returns the standbys that reported in the last ten seconds; none for a database on this host's
    /// disk.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn standbys(&self) -> Result<Vec<StandbyRow>, StoreError> {
        self.shared.reader.standbys().await
    }

    /// Waits while half of the queue of batches, or more, is taken. Returns at once if the journal has
    /// ended.
    pub async fn has_room(&self) {
        let mut committed = self.shared.committed.clone();
        loop {
            // The mark is set before the queue is read: a batch leaves the queue before it is committed.
            committed.borrow_and_update();
            if !self.is_busy() || committed.changed().await.is_err() {
                return;
            }
        }
    }

    /// True if half of the queue of batches, or more, is taken.
    pub fn is_busy(&self) -> bool {
        let queue = &self.shared.batches;
        queue.capacity() <= queue.max_capacity() / 2
    }

    /// Records the reading of the cluster's own clock beside the lease at each renewal: `base_ms` more
    /// than the milliseconds since boot.
    pub fn follow_clock(&self, base_ms: i64) {
        if let Some(lease) = &self.shared.lease {
            lease.follow_clock(base_ms);
        }
    }

    /// Queues a batch, so that the next one can be prepared while this one syncs. Batches that wait are
    /// committed together. Waits while the queue is full.
    ///
    /// # Errors
    /// Fails at once for a batch that cannot be stored, and with [`StoreError::Stopped`]. Other failures come
    /// from the [`Commit`].
    pub async fn submit(&self, batch: Batch) -> Result<Commit, StoreError> {
        let (submission, commit) = submission(batch)?;
        self.shared.batches.send(submission).await.map_err(|_| self.stopped())?;
        Ok(commit)
    }

    /// Queues a batch as [`Journal::submit`] does, from a thread outside any async runtime.
    ///
    /// # Errors
    /// Fails as [`Journal::submit`] does.
    pub fn submit_blocking(&self, batch: Batch) -> Result<Commit, StoreError> {
        let (submission, commit) = submission(batch)?;
        self.shared.batches.blocking_send(submission).map_err(|_| self.stopped())?;
        Ok(commit)
    }

    /// Queues a batch and waits until it is durable.
    ///
    /// # Errors
    /// Fails as [`Journal::submit`] and [`Commit`] do.
    pub async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.submit(batch).await?.await
    }

    /// Returns a receiver of the last durable entry, which closes when the journal stops.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.shared.committed.clone()
    }

    /// Returns a page of about a megabyte of durable entries after `after`, in order; empty at the end.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is missing, [`StoreError::Compacted`] if they have been deleted.
    pub async fn entries(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let durable = *self.shared.committed.borrow();
        let page = self.shared.reader.entries(after).await?;
        match page.first() {
            Some(first) if first.seq > after + 1 => {
                Err(StoreError::Compacted { wanted: after + 1, first: first.seq })
            }
            None if durable > after => Err(StoreError::Compacted { wanted: after + 1, first: durable + 1 }),
            _ => Ok(page),
        }
    }

    /// Returns the content of a blob; `None` if there is no such blob.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn blob(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.reader.blob(id).await
    }

    /// Reads a blob as [`Journal::blob`] does, but repeats the read while the database is away.
    ///
    /// # Errors
    /// Fails if the database refuses for another reason than being away.
    pub async fn blob_when_possible(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        loop {
            match self.blob(id).await {
                Err(error) if postgres::may_pass(&error) => {
                    tracing::debug!(%error, id, "a blob cannot be read now");
                    tokio::time::sleep(READ_AGAIN).await;
                }
                read => return read,
            }
        }
    }

    /// Returns a served request with its reply; `None` if the request is unknown or its record has been
    /// deleted.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.shared.reader.request(id).await
    }

    /// Begins a snapshot of the state after entry `seq`. Commits continue meanwhile at their usual speed.
    ///
    /// # Errors
    /// [`StoreError::SnapshotAhead`] if `seq` is not durable yet; otherwise the refusal of the disk or the
    /// database.
    pub async fn begin_snapshot(&self, seq: u64) -> Result<SnapshotWriter, StoreError> {
        let committed = *self.shared.committed.borrow();
        if seq > committed {
            return Err(StoreError::SnapshotAhead { asked: seq, committed });
        }
        let published = self.shared.snapshot.clone();
        SnapshotWriter::begin(&self.shared.reader, &self.shared.cluster, self.shared.epoch, seq, published)
            .await
    }

    /// Deletes everything that is no longer needed, in small steps between commits, and waits for the end.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] if the journal ends first.
    pub async fn compact(&self, retention: Retention) -> Result<Compacted, StoreError> {
        let (done, outcome) = oneshot::channel();
        let order = Compaction { retention, done };
        self.shared.compactions.send(order).await.map_err(|_| self.stopped())?;
        outcome.await.map_err(|_| self.stopped())
    }

    /// Waits until the journal has ended, and returns the reason. While this handle exists, only a failed
    /// write ends the journal; the process must then end, too.
    pub async fn ended(&self) -> StoreError {
        // An error means that the writer's thread is gone, which ends the wait as well.
        let _ = self.shared.ended.clone().wait_for(|&ended| ended).await;
        self.stopped()
    }

    fn stopped(&self) -> StoreError {
        self.shared.failure.get().cloned().unwrap_or(StoreError::Stopped)
    }

    /// Waits until all batches are durable, closes the database and releases the lock. Waits for other clones
    /// to be dropped.
    pub async fn close(self) {
        let mut ended = self.shared.ended.clone();
        self.shared.reader.close().await;
        drop(self);
        // An error means that the writer's thread is gone, which ends the wait as well.
        let _ = ended.wait_for(|&ended| ended).await;
    }
}

fn submission(batch: Batch) -> Result<(Submission, Commit), StoreError> {
    batch.check()?;
    let (done, outcome) = oneshot::channel();
    Ok((Submission { batch, done }, Commit { outcome }))
}

impl Commit {
    /// Waits on a thread outside any async runtime.
    ///
    /// # Errors
    /// The reason why the batch will never be durable.
    pub fn wait_blocking(self) -> Result<Committed, StoreError> {
        self.outcome.blocking_recv().unwrap_or(Err(StoreError::Stopped))
    }
}

impl Future for Commit {
    type Output = Result<Committed, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome).poll(context).map(|outcome| outcome.unwrap_or(Err(StoreError::Stopped)))
    }
}

impl Recovered {
    pub(super) fn of(epoch: u64, last_seq: u64, snapshot_seq: u64, source: Recovery) -> Self {
        Self { epoch, last_seq, snapshot_seq, source }
    }

    /// Returns the next chunk of the snapshot, in the order of writing; `None` after the last.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is missing; otherwise the database's refusal.
    pub async fn next_chunk(&mut self) -> Result<Option<SnapshotChunk>, StoreError> {
        self.source.next_chunk().await
    }

    /// Returns the next page of about a megabyte of entries after the snapshot; empty after the last.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is missing; otherwise the database's refusal.
    pub async fn next_entries(&mut self) -> Result<Vec<Entry>, StoreError> {
        self.source.next_entries().await
    }
}
