//! Compaction: the writer deletes rows that are no longer needed, a few hundred at a time, between commits.
//!
//! A step is a transaction of its own that is not synced: losing it loses nothing, and the next commit in the
//! same log syncs both. So a commit never waits for more than the rows of one step.

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::sql_int;
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

/// A compaction under way.
pub(super) struct Progress {
    order: Compaction,
    deleted: Compacted,
}

impl Progress {
    pub(super) fn new(order: Compaction) -> Self {
        Self { order, deleted: Compacted::default() }
    }
}

/// Takes one step; `covered` is the last entry in a durable snapshot. `None` when nothing is left to delete
/// and the caller has been answered.
pub(super) async fn step(
    mut progress: Progress,
    covered: u64,
    conn: &mut SqliteConnection,
) -> Result<Option<Progress>, sqlx::Error> {
    let retention = progress.order.retention;
    let through = sql_int(retention.entries_through.min(covered));
    sqlx::query("PRAGMA synchronous = NORMAL").execute(&mut *conn).await?;
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
    sqlx::query("PRAGMA synchronous = FULL").execute(conn).await?;

    progress.deleted.entries += entries;
    progress.deleted.requests += requests;
    progress.deleted.blobs += blobs;
    if entries + requests + parts + blobs > 0 {
        return Ok(Some(progress));
    }
    // The caller may have given up.
    let _ = progress.order.done.send(progress.deleted);
    Ok(None)
}
