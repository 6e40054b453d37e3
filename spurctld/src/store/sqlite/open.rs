//! Opening a journal: the lock, the schema, the new epoch, what there is to recover, and the writer's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Row};
use tokio::sync::{mpsc, watch};

use super::writer::{self, Writer};
use super::{
    Compaction, Reader, Recovery, StoreError, Submission, create, failed, from_sql, journal_options, lock,
    schema, snapshot,
};
use crate::store::Tuning;

/// Batches that may wait for the commit under way. Those that wait together are committed together.
const QUEUED_BATCHES: usize = 64;

/// An open journal, taken apart for the handle that the rest of the controller holds.
pub(in crate::store) struct Opened {
    pub(in crate::store) epoch: u64,
    pub(in crate::store) cluster: String,
    pub(in crate::store) last_seq: u64,
    pub(in crate::store) snapshot_seq: u64,
    pub(in crate::store) recovery: Recovery,
    pub(in crate::store) reader: Reader,
    pub(in crate::store) batches: mpsc::Sender<Submission>,
    pub(in crate::store) compactions: mpsc::Sender<Compaction>,
    pub(in crate::store) committed: watch::Receiver<u64>,
    pub(in crate::store) snapshot: watch::Sender<u64>,
    pub(in crate::store) failure: Arc<OnceLock<StoreError>>,
    pub(in crate::store) ended: watch::Receiver<bool>,
}

/// Opens the journal at `path`; see [`Journal::open`](crate::store::Journal::open).
pub(in crate::store) async fn open(path: &Path, tuning: Tuning) -> Result<Opened, StoreError> {
    let lock = lock::take(path)?;
    create(path)?;
    let mut conn = journal_options(path).connect().await.map_err(|error| failed("open", path, error))?;
    schema::migrate(&mut conn, path, schema::JOURNAL).await?;
    let (epoch, cluster) =
        begin_epoch(&mut conn).await.map_err(|error| failed("begin an epoch in", path, error))?;
    let newest = snapshot::newest(path)?;
    let snapshot_seq = newest.as_ref().map_or(0, |found| found.seq);
    let last_seq = last_entry(&mut conn, path).await?.unwrap_or(snapshot_seq);
    if last_seq < snapshot_seq {
        let what = format!("it ends at entry {last_seq}, before its snapshot at entry {snapshot_seq}");
        return Err(StoreError::damaged(path, what));
    }
    let reader = Reader::open(path).await?;
    let chunks = match newest {
        Some(found) => Some(snapshot::Reader::open(&found, &cluster).await?),
        None => None,
    };
    let recovery = Recovery::new(reader.clone(), chunks, snapshot_seq, last_seq);

    let (batches, batch_queue) = mpsc::channel(QUEUED_BATCHES);
    let (compactions, compaction_queue) = mpsc::channel(1);
    let (committed_sender, committed) = watch::channel(last_seq);
    let (snapshot, snapshot_seen) = watch::channel(snapshot_seq);
    let (ended_sender, ended) = watch::channel(false);
    let queues = writer::Queues { batches: batch_queue, compactions: compaction_queue };
    let writer = Writer::new(conn, path, tuning, epoch, last_seq, committed_sender, snapshot_seen);
    let failure = Arc::new(OnceLock::new());
    let failure_seen = Arc::clone(&failure);
    // A thread of its own, so that a commit never waits for a turn among the controller's other tasks.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| StoreError::io("start a thread for", path, error))?;
    thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || {
            let serve = AssertUnwindSafe(|| runtime.block_on(writer::serve(writer, queues, &failure)));
            if catch_unwind(serve).is_err() {
                crate::fault::end("the journal thread has panicked");
            }
            drop(lock);
            ended_sender.send_replace(true);
        })
        .map_err(|error| StoreError::io("start a thread for", path, error))?;
    Ok(Opened {
        epoch,
        cluster,
        last_seq,
        snapshot_seq,
        recovery,
        reader,
        batches,
        compactions,
        committed,
        snapshot,
        failure: failure_seen,
        ended,
    })
}

/// Counts the epoch up, durably, and returns it with the name of the cluster.
async fn begin_epoch(conn: &mut SqliteConnection) -> Result<(u64, String), sqlx::Error> {
    let epoch: i64 = sqlx::query("UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value")
        .fetch_one(&mut *conn)
        .await?
        .try_get(0)?;
    let cluster =
        sqlx::query("SELECT value FROM meta WHERE key = 'cluster'").fetch_one(conn).await?.try_get(0)?;
    Ok((from_sql(epoch), cluster))
}

async fn last_entry(conn: &mut SqliteConnection, path: &Path) -> Result<Option<u64>, StoreError> {
    let row = sqlx::query("SELECT max(seq) FROM journal").fetch_one(conn).await;
    let last: Option<i64> =
        row.and_then(|row| row.try_get(0)).map_err(|error| failed("read the end of", path, error))?;
    Ok(last.map(from_sql))
}
