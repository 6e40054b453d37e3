//! The journal's writer: one thread with the only connection that changes the journal.
//!
//! All batches that are waiting are committed in one transaction, in order. No timer gathers them: batches
//! that arrive during a commit form the next one. A commit is synced before its callers are answered.
//! Compaction takes one small step after each commit, and continues while no batch is waiting.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::watch;

use super::checkpoint::Checkpoints;
use super::compact::{self, Progress};
use super::mark::Mark;
use super::transaction::Transaction;
use super::{StoreError, failed, reclaim};
use crate::store::backend::{Queues, Submission, check_order, gather, refuse};
use crate::store::{Batch, Committed, Tuning};

/// The connection that writes, and the number of the last entry written.
pub(super) struct Writer {
    conn: SqliteConnection,
    path: PathBuf,
    tuning: Tuning,
    epoch: u64,
    last_seq: u64,
    committed: watch::Sender<u64>,
    snapshot: watch::Receiver<u64>,
    mark: Mark,
}

/// Serves the queues until they are closed or a write fails; `failure` then holds the error.
pub(super) async fn serve(mut writer: Writer, mut queues: Queues, failure: &OnceLock<StoreError>) {
    let mut group = Vec::new();
    let Err(error) = writer.work(&mut queues, &mut group).await else {
        // An error here needs no handling: all commits are durable, and the next start checkpoints.
        let _ = writer.conn.close().await;
        return;
    };
    let error = failure.get_or_init(|| error);
    refuse(&mut queues.batches, group, error);
}

impl Writer {
    #[expect(clippy::too_many_arguments, reason = "all of it is what the writer works with")]
    pub(super) fn new(
        conn: SqliteConnection,
        path: &Path,
        tuning: Tuning,
        epoch: u64,
        last_seq: u64,
        committed: watch::Sender<u64>,
        snapshot: watch::Receiver<u64>,
        mark: Mark,
    ) -> Self {
        Self { conn, path: path.to_owned(), tuning, epoch, last_seq, committed, snapshot, mark }
    }

    /// Commits groups and takes steps of compaction until the queue closes. On an error, the uncommitted
    /// group is left in `group`.
    async fn work(&mut self, queues: &mut Queues, group: &mut Vec<Submission>) -> Result<(), StoreError> {
        let mut checkpoints = Checkpoints::new(&self.path, self.tuning).await?;
        let mut compaction: Option<Progress> = None;
        loop {
            tokio::select! {
                biased;
                first = queues.batches.recv() => {
                    let Some(first) = first else { return checkpoints.close().await };
                    gather(first, &mut queues.batches, group);
                    let bytes = self.commit(group).await?;
                    for submission in group.drain(..) {
                        // The send fails only if the submitter has stopped waiting.
                        let _ = submission.done.send(Ok(Committed { seq: self.last_seq }));
                    }
                    checkpoints.written(bytes, &mut self.conn).await?;
                }
                Some(order) = queues.compactions.recv(), if compaction.is_none() => {
                    compaction = Some(Progress::new(order));
                }
                () = Progress::due(compaction.as_ref()), if compaction.is_some() => {}
            }
            if let Some(progress) = compaction.take() {
                let covered = *self.snapshot.borrow_and_update();
                compaction = compact::step(progress, covered, self.tuning.kept_bytes, &mut self.conn)
                    .await
                    .map_err(|error| failed("compact", &self.path, error))?;
                // The file becomes shorter when the log is copied.
                let bytes = match &compaction {
                    Some(Progress::Deleting { .. }) => 0,
                    Some(Progress::Reclaiming) => reclaim::STEP as usize * super::JOURNAL_PAGE_BYTES as usize,
                    None => self.tuning.checkpoint_bytes,
                };
                checkpoints.written(bytes, &mut self.conn).await?;
            }
        }
    }

    /// Commits the group in one transaction and returns the approximate number of bytes written.
    async fn commit(&mut self, group: &mut [Submission]) -> Result<usize, StoreError> {
        let batches: Vec<Batch> =
            group.iter_mut().map(|submission| std::mem::take(&mut submission.batch)).collect();
        if batches.iter().all(Batch::is_empty) {
            return Ok(0);
        }
        let last_seq =
            check_order(self.last_seq, self.epoch, batches.iter().flat_map(|batch| &batch.entries))?;
        let bytes = batches.iter().map(Batch::size).sum();
        let transaction = Transaction::of(self.last_seq + 1, self.epoch, &batches);
        transaction.commit(&mut self.conn).await.map_err(|error| self.refused(error))?;
        self.last_seq = last_seq;
        self.mark.reach(last_seq);
        self.committed.send_if_modified(|last| {
            let moved = *last != last_seq;
            *last = last_seq;
            moved
        });
        Ok(bytes)
    }

    /// Converts the error of a failed commit. A unique violation can only concern a blob: entries are checked
    /// before, and repeated requests and releases are ignored.
    fn refused(&self, error: sqlx::Error) -> StoreError {
        match error.as_database_error() {
            Some(database) if database.is_unique_violation() => StoreError::Duplicate { what: "blob id" },
            _ => failed("write to", &self.path, error),
        }
    }
}
