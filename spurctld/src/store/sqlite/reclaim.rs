//! Reclaiming: pages of deleted rows are given back to the file system, some at a time.
//!
//! SQLite uses free pages again for new rows, so that a database keeps a part of them. More are left only
//! after a burst or a purge. Databases have incremental vacuum, in which the last pages move to free places
//! before the file is cut. The file becomes shorter when the log has been copied into it.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};

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
/// as it is.
pub(super) async fn convert(
    path: &Path,
    options: SqliteConnectOptions,
    kept_bytes: u64,
) -> Result<(), sqlx::Error> {
    // A copy of the used pages is made in a file, not in memory.
    let mut connection = options.pragma("temp_store", "FILE").connect().await?;
    let has_none = number(&mut connection, "PRAGMA auto_vacuum").await? == 0;
    let half = number(&mut connection, "PRAGMA page_count").await? / 2;
    if has_none && spare(&mut connection, kept_bytes).await? > half {
        match sqlx::query("VACUUM").execute(&mut connection).await {
            Ok(_) => tracing::info!(path = %path.display(), "free space was given back"),
            Err(error) => tracing::warn!(%error, path = %path.display(), "free space cannot be given back"),
        }
    }
    connection.close().await
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
