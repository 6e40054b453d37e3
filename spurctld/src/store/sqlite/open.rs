//! Opening a journal in SQLite: the lock, the mark, the schema, a new epoch, recovery and the writer's
//! thread.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::{mpsc, watch};

use super::writer::{self, Writer};
use super::{
    Reader, StoreError, beside, create, failed, from_sql, journal_options, lock, mark, read_options, reclaim,
    schema, snapshot,
};
use crate::store::Tuning;
use crate::store::backend::{self, Chunks, Opened, QUEUED_BATCHES, Queues, Recovery};

/// Opens the journal at `path`; see [`Journal::open`](crate::store::Journal::open). With `shortened`, the
/// mark is ignored, so that a journal whose end is missing opens.
pub(in crate::store) async fn open(
    path: &Path,
    tuning: Tuning,
    shortened: bool,
) -> Result<Opened, StoreError> {
    let lock = lock::take(path)?;
    let marked = mark::read(path)?.filter(|_| !shortened);
    create_unless_lost(path, marked.as_ref().map_or(0, |(_, seq)| *seq))?;
    check_length(path)?;
    let newest = snapshot::newest(path)?;
    let snapshot_seq = newest.as_ref().map_or(0, |found| found.seq);
    check_end(path, marked, snapshot_seq).await?;
    let mut conn = journal_options(path).connect().await.map_err(|error| failed("open", path, error))?;
    schema::migrate(&mut conn, path, schema::JOURNAL).await?;
    reclaim::convert(&mut conn, path, tuning.kept_bytes).await;
    let last_seq = last_entry(&mut conn, path).await?.unwrap_or(snapshot_seq);
    if last_seq < snapshot_seq {
        let what = format!("it ends at entry {last_seq}, before its snapshot at entry {snapshot_seq}");
        return Err(StoreError::damaged(path, what));
    }
    let cluster = name(&mut conn).await.map_err(|error| failed("read", path, error))?;
    let epoch = begin_epoch(&mut conn).await.map_err(|error| failed("begin an epoch in", path, error))?;
    let mark = mark::Mark::open(path, &cluster, last_seq)?;
    let reader = backend::Reader::Sqlite(Reader::open(path).await?);
    let chunks = match newest {
        Some(found) => Some(Chunks::Sqlite(snapshot::Reader::open(&found, &cluster).await?)),
        None => None,
    };
    let recovery = Recovery::new(reader.clone(), chunks, snapshot_seq, last_seq);

    let (batches, batch_queue) = mpsc::channel(QUEUED_BATCHES);
    let (compactions, compaction_queue) = mpsc::channel(1);
    let (committed_sender, committed) = watch::channel(last_seq);
    let (snapshot, snapshot_seen) = watch::channel(snapshot_seq);
    let (ended_sender, ended) = watch::channel(false);
    let queues = Queues { batches: batch_queue, compactions: compaction_queue };
    let writer = Writer::new(conn, path, tuning, epoch, last_seq, committed_sender, snapshot_seen, mark);
    let failure = Arc::new(OnceLock::new());
    let failure_seen = Arc::clone(&failure);
    // The writer has its own thread, so that a commit never waits behind the controller's other tasks.
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
        lease: None,
    })
}

/// Creates the database if none exists. Fails if the file is missing although entry `acknowledged` was
/// acknowledged.
fn create_unless_lost(path: &Path, acknowledged: u64) -> Result<(), StoreError> {
    if acknowledged > 0 && !path.exists() {
        let what = format!("it is missing, and entry {acknowledged} of it was acknowledged");
        return Err(StoreError::damaged(path, what));
    }
    create(path)
}

/// Fails if a database without a log is shorter than its header says.
fn check_length(path: &Path) -> Result<(), StoreError> {
    let has_log = std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let mut header = [0; 32];
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        let whole = length >= header.len() as u64;
        whole.then(|| file.read_exact(&mut header)).transpose()?;
        Ok(whole.then_some(length))
    });
    let Some(length) = read.map_err(|error| StoreError::io("read", path, error))?.filter(|_| !has_log) else {
        return Ok(());
    };
    // The header of an SQLite file holds the page size and the number of pages.
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let wanted = page * u64::from(pages);
    if header.starts_with(b"SQLite format 3\0") && length < wanted {
        let what = format!("it has {length} bytes, and had {wanted}: its end is missing");
        return Err(StoreError::damaged(path, what));
    }
    Ok(())
}

/// Fails if the journal and its snapshot end before the entry that the mark names as acknowledged. The
/// connection is read-only: closing one that can write could copy the log into the database and delete it.
async fn check_end(path: &Path, marked: Option<(String, u64)>, snapshot: u64) -> Result<(), StoreError> {
    let Some((of, acknowledged)) = marked.filter(|(_, seq)| *seq > 0) else { return Ok(()) };
    let look = async {
        let mut conn = read_options(path).connect().await?;
        let name = name(&mut conn).await?;
        let last: Option<i64> =
            sqlx::query("SELECT max(seq) FROM journal").fetch_one(&mut conn).await?.try_get(0)?;
        conn.close().await?;
        Ok((name, last.map_or(0, from_sql).max(snapshot)))
    };
    let (name, last) = look.await.map_err(|error| failed("read", path, error))?;
    if name == of && acknowledged > last {
        return Err(StoreError::Shortened { path: path.to_owned(), last, acknowledged });
    }
    Ok(())
}

/// Returns the journal's random name.
async fn name(conn: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    sqlx::query("SELECT value FROM meta WHERE key = 'cluster'").fetch_one(conn).await?.try_get(0)
}

/// Increments the epoch durably and returns the new one, which is greater than that of every entry.
///
/// The epoch of the last entry counts, too: after errors of the disk the stored one may be an older one, and
/// two reigns must never have the same epoch.
async fn begin_epoch(conn: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let increment = "UPDATE meta SET value = 1 + max(value, coalesce(
        (SELECT epoch FROM journal ORDER BY seq DESC LIMIT 1), 0)) WHERE key = 'epoch'";
    sqlx::query(increment).execute(&mut *conn).await?;
    let read = sqlx::query("SELECT value FROM meta WHERE key = 'epoch'");
    let epoch: i64 = read.fetch_one(conn).await?.try_get(0)?;
    Ok(from_sql(epoch))
}

async fn last_entry(conn: &mut SqliteConnection, path: &Path) -> Result<Option<u64>, StoreError> {
    let row = sqlx::query("SELECT max(seq) FROM journal").fetch_one(conn).await;
    let last: Option<i64> =
        row.and_then(|row| row.try_get(0)).map_err(|error| failed("read the end of", path, error))?;
    Ok(last.map(from_sql))
}
