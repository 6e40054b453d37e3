//! Reclaiming: pages of deleted rows are given back to the file system, some at a time.
//!
//! SQLite uses free pages again for new rows, so that a database keeps a part of them. More are left only
//! after a burst or a purge. Databases have incremental vacuum, in which the last pages move to free places
//! before the file is cut. The file becomes shorter when the log has been copied into it.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Row};

use super::sql_int;

/// Largest number of pages that one step gives back.
pub(super) const STEP: i64 = 32;
/// The part of a database's pages that it keeps free, as a divisor.
const KEPT_PART: i64 = 4;

/// Gives at most [`STEP`] pages back, and returns true if more can follow. The database keeps `kept_bytes` of
/// free space, or a quarter of its pages if that is more. A database without incremental vacuum stays as it
/// is.
pub(super) async fn step(connection: &mut SqliteConnection, kept_bytes: u64) -> Result<bool, sqlx::Error> {
    let before = spare(connection, kept_bytes).await?;
    if before <= 0 {
        return Ok(false);
    }
    let release = format!("PRAGMA incremental_vacuum({})", before.min(STEP));
    sqlx::query(AssertSqlSafe(release)).execute(&mut *connection).await?;
    let after = spare(connection, kept_bytes).await?;
    Ok(0 < after && after < before)
}

/// Rewrites a database without incremental vacuum so that it has it, if most of its pages are free. The work
/// is in proportion to the other pages. A refusal (the disk may lack the room for a copy) leaves the database
/// as it is, and is logged.
pub(super) async fn convert(connection: &mut SqliteConnection, path: &Path, kept_bytes: u64) {
    match converted(connection, kept_bytes).await {
        Ok(true) => tracing::info!(path = %path.display(), "free space was given back"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, path = %path.display(), "free space cannot be given back"),
    }
}

/// Returns true if the database was rewritten.
async fn converted(connection: &mut SqliteConnection, kept_bytes: u64) -> Result<bool, sqlx::Error> {
    let has_none = number(connection, "PRAGMA auto_vacuum").await? == 0;
    let half = number(connection, "PRAGMA page_count").await? / 2;
    let rewrites = has_none && spare(connection, kept_bytes).await? > half;
    if rewrites {
        // A copy of the used pages is made in a file, not in memory.
        let vacuum = ["PRAGMA temp_store = FILE", "PRAGMA auto_vacuum = INCREMENTAL", "VACUUM"];
        for statement in vacuum.into_iter().chain(["PRAGMA temp_store = MEMORY"]) {
            sqlx::query(statement).execute(&mut *connection).await?;
        }
    }
    Ok(rewrites)
}

/// Returns the number of free pages that the database does not keep for new rows; negative if there are
/// fewer.
async fn spare(connection: &mut SqliteConnection, kept_bytes: u64) -> Result<i64, sqlx::Error> {
    let free = number(connection, "PRAGMA freelist_count").await?;
    let pages = number(connection, "PRAGMA page_count").await?;
    let page_bytes = number(connection, "PRAGMA page_size").await?.max(1);
    Ok(free - (sql_int(kept_bytes) / page_bytes).max(pages / KEPT_PART))
}

async fn number(connection: &mut SqliteConnection, pragma: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query(pragma).fetch_one(connection).await?.try_get(0)
}
