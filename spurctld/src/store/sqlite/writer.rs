//! The writer: one thread, one connection, and everything that changes the journal.
//!
//! Whole batches that wait together are committed in one transaction, in order, with no timer to gather them: the
//! commit under way is the window in which the next ones arrive. The commit is synced before anyone hears of it.
//! Compaction takes one small step after each commit, and as many as it likes while no batch waits.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::watch;

use super::checkpoint::Checkpoints;
use super::compact::{self, Progress};
use super::mark::Mark;
use super::transaction::Transaction;
use super::{StoreError, failed};
use crate::store::backend::{Queues, Submission, check_order, gather, refuse};
use crate::store::{Batch, Committed, Tuning};

/// The one connection that writes, and how far it has written.
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

/// Serves the queues until they are closed or a write fails; the reason is then in `failure`.
pub(super) async fn serve(mut writer: Writer, mut queues: Queues, failure: &OnceLock<StoreError>) {
    let mut group = Vec::new();
    let Err(error) = writer.work(&mut queues, &mut group).await else {
        // Nothing is left to do about an error here: all commits are durable, and the next start checkpoints.
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

    /// On an error, the group that could not be committed is left in `group`.
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
                        // Whoever does not wait any more need not be told.
                        let _ = submission.done.send(Ok(Committed { seq: self.last_seq }));
                    }
                    checkpoints.written(bytes, &mut self.conn).await?;
                }
                Some(order) = queues.compactions.recv(), if compaction.is_none() => {
                    compaction = Some(Progress::new(order));
                }
                () = std::future::ready(()), if compaction.is_some() => {}
            }
            if let Some(progress) = compaction.take() {
                let covered = *self.snapshot.borrow_and_update();
                compaction = compact::step(progress, covered, &mut self.conn)
                    .await
                    .map_err(|error| failed("compact", &self.path, error))?;
            }
        }
    }

    /// Commits the group in one transaction, and returns about how many bytes it wrote.
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

    /// What a commit that failed means. Entries have been checked, and requests and releases may come again, so what was
    /// there already can only be a blob.
    fn refused(&self, error: sqlx::Error) -> StoreError {
        match error.as_database_error() {
            Some(database) if database.is_unique_violation() => StoreError::Duplicate { what: "blob id" },
            _ => failed("write to", &self.path, error),
        }
    }
}
