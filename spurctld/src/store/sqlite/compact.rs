//! Compaction: the writer deletes rows that are no longer needed, a few hundred at a time, between commits.
//!
//! A step is a transaction of its own that is not synced: losing it loses nothing, and the next commit in the
//! same log syncs both. So a commit never waits for more than the rows of one step. When all rows are
//! deleted, further steps give pages back to the file system.

use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::{reclaim, sql_int};
use crate::store::Compacted;
use crate::store::backend::Compaction;

/// Largest number of entries, of requests and of parts of blobs that one step deletes.
const STEP: i64 = 256;

const ENTRIES: &str = "DELETE FROM journal WHERE seq < (SELECT min(seq) FROM journal) + ? AND seq <= ?";
const REQUESTS: &str = "DELETE FROM request WHERE line < (SELECT min(line) FROM request) + ? AND at < ?";
const PARTS: &str = "DELETE FROM blob WHERE key IN (
        SELECT blob.key FROM released
        JOIN blob ON blob.key BETWEEN released.id << 8 AND (released.id << 8) + 255 LIMIT ?)";
const BLOBS: &str = "DELETE FROM released WHERE id IN (
        SELECT id FROM released
        WHERE NOT EXISTS (SELECT 1 FROM blob WHERE key BETWEEN id << 8 AND (id << 8) + 255) LIMIT ?)";

/// Pause between two steps that give pages back: copying the log into the database keeps up with them.
const PAUSE: Duration = Duration::from_millis(20);

/// A compaction under way.
pub(super) enum Progress {
    /// Rows are deleted.
    Deleting {
        /// The order, whose caller is answered at the end.
        order: Compaction,
        /// The rows deleted so far.
        deleted: Compacted,
    },
    /// All rows are deleted, and pages are given back.
    Reclaiming,
}

impl Progress {
    pub(super) fn new(order: Compaction) -> Self {
        Self::Deleting { order, deleted: Compacted::default() }
    }

    /// Waits until the next step is due.
    pub(super) async fn due(progress: Option<&Progress>) {
        if let Some(Progress::Reclaiming) = progress {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Takes one step; `covered` is the last entry in a durable snapshot, and `kept_bytes` the free space that
/// the database keeps. `None` when nothing is left to do.
pub(super) async fn step(
    progress: Progress,
    covered: u64,
    kept_bytes: u64,
    conn: &mut SqliteConnection,
) -> Result<Option<Progress>, sqlx::Error> {
    sqlx::query("PRAGMA synchronous = NORMAL").execute(&mut *conn).await?;
    let next = match progress {
        Progress::Deleting { order, deleted } => Some(delete(order, deleted, covered, conn).await?),
        Progress::Reclaiming => reclaim::step(conn, kept_bytes).await?.then_some(Progress::Reclaiming),
    };
    sqlx::query("PRAGMA synchronous = FULL").execute(conn).await?;
    Ok(next)
}

/// Deletes some rows of each kind. When nothing is left to delete, the caller is answered.
async fn delete(
    order: Compaction,
    mut deleted: Compacted,
    covered: u64,
    conn: &mut SqliteConnection,
) -> Result<Progress, sqlx::Error> {
    let retention = order.retention;
    let through = sql_int(retention.entries_through.min(covered));
    let mut step = conn.begin_with("BEGIN IMMEDIATE").await?;
    let entries = sqlx::query(ENTRIES).bind(STEP).bind(through).execute(&mut *step).await?.rows_affected();
    let requests = sqlx::query(REQUESTS)
        .bind(STEP)
        .bind(retention.requests_before)
        .execute(&mut *step)
        .await?
        .rows_affected();
    let parts = sqlx::query(PARTS).bind(STEP).execute(&mut *step).await?.rows_affected();
    let blobs = sqlx::query(BLOBS).bind(STEP).execute(&mut *step).await?.rows_affected();
    step.commit().await?;

    deleted.entries += entries;
    deleted.requests += requests;
    deleted.blobs += blobs;
    if entries + requests + parts + blobs > 0 {
        return Ok(Progress::Deleting { order, deleted });
    }
    // The caller may have given up.
    let _ = order.done.send(deleted);
    Ok(Progress::Reclaiming)
}
