//! The writer: one thread, one connection, and everything that changes the journal.
//!
//! Whole batches that wait together are committed in one transaction, in order, with no timer to gather them: the
//! commit under way is the window in which the next ones arrive. The commit is synced before anyone hears of it.
//! Compaction takes one small step after each commit, and as many as it likes while no batch waits.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Arguments, Connection};
use tokio::sync::{mpsc, oneshot, watch};

use super::checkpoint::Checkpoints;
use super::compact::{self, Progress};
use super::rows::Insert;
use super::{BLOB_PART_BITS, BLOB_PART_BYTES, StoreError, failed, sql_int};
use crate::store::{Batch, Blob, Committed, Compacted, Entry, Request, Retention, Tuning};

/// Batches committed in one transaction at most.
const GROUP: usize = 64;

/// A batch and the one who waits for it.
pub(in crate::store) struct Submission {
    pub(in crate::store) batch: Batch,
    pub(in crate::store) done: oneshot::Sender<Result<Committed, StoreError>>,
}

/// An order to compact and the one who waits for it.
pub(in crate::store) struct Compaction {
    pub(in crate::store) retention: Retention,
    pub(in crate::store) done: oneshot::Sender<Compacted>,
}

/// What the writer is fed from. It ends when the batches do.
pub(super) struct Queues {
    pub(super) batches: mpsc::Receiver<Submission>,
    pub(super) compactions: mpsc::Receiver<Compaction>,
}

/// The one connection that writes, and how far it has written.
pub(super) struct Writer {
    conn: SqliteConnection,
    path: PathBuf,
    tuning: Tuning,
    epoch: u64,
    last_seq: u64,
    committed: watch::Sender<u64>,
    snapshot: watch::Receiver<u64>,
    statements: Statements,
}

struct Statements {
    entries: Insert,
    parts: Insert,
    requests: Insert,
    released: Insert,
}

/// Serves the queues until they are closed or a write fails; the reason is then in `failure`.
pub(super) async fn serve(mut writer: Writer, mut queues: Queues, failure: &OnceLock<StoreError>) {
    let mut group = Vec::with_capacity(GROUP);
    let Err(error) = writer.work(&mut queues, &mut group).await else {
        // Nothing is left to do about an error here: all commits are durable, and the next start checkpoints.
        let _ = writer.conn.close().await;
        return;
    };
    let error = failure.get_or_init(|| error);
    queues.batches.close();
    while let Ok(submission) = queues.batches.try_recv() {
        group.push(submission);
    }
    for submission in group {
        // Whoever does not wait any more need not be told.
        let _ = submission.done.send(Err(error.clone()));
    }
}

impl Writer {
    pub(super) fn new(
        conn: SqliteConnection,
        path: &Path,
        tuning: Tuning,
        epoch: u64,
        last_seq: u64,
        committed: watch::Sender<u64>,
        snapshot: watch::Receiver<u64>,
    ) -> Self {
        let statements = Statements {
            entries: Insert::new("INSERT INTO journal (seq, epoch, at, body)", 4, ""),
            parts: Insert::new("INSERT INTO blob (key, body)", 2, ""),
            requests: Insert::new(
                "INSERT INTO request (id, uid, seq, at, reply)",
                5,
                "ON CONFLICT (id) DO NOTHING",
            ),
            released: Insert::new("INSERT INTO released (id)", 1, "ON CONFLICT DO NOTHING"),
        };
        Self { conn, path: path.to_owned(), tuning, epoch, last_seq, committed, snapshot, statements }
    }

    /// On an error, the group that could not be committed is left in `group`.
    async fn work(&mut self, queues: &mut Queues, group: &mut Vec<Submission>) -> Result<(), StoreError> {
        let mut checkpoints = Checkpoints::new(&self.path, self.tuning).await?;
        let mut compaction: Option<Progress> = None;
        loop {
            tokio::select! {
                biased;
                taken = queues.batches.recv_many(group, GROUP) => {
                    if taken == 0 {
                        return checkpoints.close().await;
                    }
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
        let mut whole = Batch::default();
        for submission in group {
            let batch = std::mem::take(&mut submission.batch);
            whole.entries.extend(batch.entries);
            whole.blobs.extend(batch.blobs);
            whole.requests.extend(batch.requests);
            whole.released.extend(batch.released);
        }
        if whole.is_empty() {
            return Ok(0);
        }
        let last_seq = self.check_order(&whole.entries)?;
        let bytes = whole.size();
        self.insert(whole).await?;
        self.last_seq = last_seq;
        self.committed.send_if_modified(|last| {
            let moved = *last != last_seq;
            *last = last_seq;
            moved
        });
        Ok(bytes)
    }

    fn check_order(&self, entries: &[Entry]) -> Result<u64, StoreError> {
        let mut last = self.last_seq;
        for entry in entries {
            if entry.seq != last + 1 {
                return Err(StoreError::OutOfOrder { expected: last + 1, found: entry.seq });
            }
            if entry.epoch != self.epoch {
                let (seq, found) = (entry.seq, entry.epoch);
                return Err(StoreError::WrongEpoch { seq, expected: self.epoch, found });
            }
            last = entry.seq;
        }
        Ok(last)
    }

    async fn insert(&mut self, whole: Batch) -> Result<(), StoreError> {
        let Self { conn, path, statements, .. } = self;
        let path = path.as_path();
        let mut transaction =
            conn.begin_with("BEGIN IMMEDIATE").await.map_err(|error| failed("write to", path, error))?;
        let refused = |what| move |error| refused(what, path, error);
        statements
            .entries
            .run(&mut transaction, whole.entries.into_iter(), |entry: Entry, row| {
                row.add(sql_int(entry.seq))?;
                row.add(sql_int(entry.epoch))?;
                row.add(entry.at)?;
                row.add(entry.body)
            })
            .await
            .map_err(refused("entry"))?;
        let parts: Vec<(u64, Vec<u8>)> = whole.blobs.into_iter().flat_map(parts).collect();
        statements
            .parts
            .run(&mut transaction, parts.into_iter(), |(key, body), row| {
                row.add(sql_int(key))?;
                row.add(body)
            })
            .await
            .map_err(refused("blob id"))?;
        statements
            .requests
            .run(&mut transaction, whole.requests.into_iter(), |request: Request, row| {
                row.add(request.id.to_vec())?;
                row.add(request.uid)?;
                row.add(sql_int(request.seq))?;
                row.add(request.at)?;
                row.add(request.reply)
            })
            .await
            .map_err(refused("request id"))?;
        statements
            .released
            .run(&mut transaction, whole.released.into_iter(), |id, row| row.add(sql_int(id)))
            .await
            .map_err(refused("released blob"))?;
        transaction.commit().await.map_err(|error| failed("write to", path, error))
    }
}

/// Cuts a blob into parts under ascending keys. An empty one has one empty part, so that it is there.
fn parts(blob: Blob) -> Vec<(u64, Vec<u8>)> {
    let first = blob.id << BLOB_PART_BITS;
    if blob.body.len() <= BLOB_PART_BYTES {
        return vec![(first, blob.body)];
    }
    (first..).zip(blob.body.chunks(BLOB_PART_BYTES)).map(|(key, part)| (key, part.to_vec())).collect()
}

fn refused(what: &'static str, path: &Path, error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.is_unique_violation() => StoreError::Duplicate { what },
        _ => failed("write to", path, error),
    }
}
