//! The SQLite backend.
//!
//! Files beside the database `spur.db`: `spur.db-wal` and `spur.db-shm` are SQLite's, `spur.db.lock` keeps a
//! second controller out, `spur.db.mark` is the last acknowledged entry, and `spur.db.snapshot-N` is the
//! snapshot at entry N. A snapshot that is being written has `.part` appended.

pub(super) mod accounting;
mod checkpoint;
mod compact;
mod copy;
mod events;
mod lock;
mod mark;
mod open;
mod read;
mod reclaim;
mod rows;
mod schema;
pub(super) mod snapshot;
mod transaction;
mod writer;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::StoreError;

pub use copy::{Export, back_up, restore};
pub(super) use open::open;
pub(super) use read::Reader;

/// Number of low bits of a blob part's key that count the parts of one blob.
const BLOB_PART_BITS: u32 = 8;
/// Size of one part of a blob, in bytes. Parts of this size need overflow pages anyway, so that a smaller
/// size would save nothing.
const BLOB_PART_BYTES: usize = super::MAX_BLOB_BYTES >> BLOB_PART_BITS;

/// Page size of a new journal, in bytes.
const JOURNAL_PAGE_BYTES: u32 = 16 << 10;

/// SQLite's primary result code for a full disk.
const SQLITE_FULL: i32 = 13;
/// SQLite's primary result codes for a damaged file.
const SQLITE_DAMAGED: [i32; 2] = [11, 26];

/// Converts a sequence number or id for SQL.
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).expect("ids and sequence numbers are checked to be far below 2^63")
}

/// Converts back a number that only this program writes.
fn from_sql(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns the database's path with a suffix: `spur.db.lock`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the names in a directory durable.
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = directory(path);
    File::open(directory)
        .and_then(|opened| opened.sync_all())
        .map_err(|error| StoreError::io("sync the directory", directory, error))
}

/// Creates the file of a database, readable by its owner only (SQLite gives its side files the same mode),
/// and makes its name durable.
fn create(path: &Path) -> Result<(), StoreError> {
    if path.exists() {
        return Ok(());
    }
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::io("create", path, error))?;
    sync_directory(path)
}

/// Returns the options of a writer: every commit is synced, and no checkpoint runs by itself. A database that
/// is created can be cut when rows are deleted ([`reclaim`]).
fn write_options(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", "0")
        // Almost everything is appended: reads concern the end of each table and the index of requests, whose
        // ids begin with the time.
        .pragma("cache_size", "-4096")
        .pragma("temp_store", "MEMORY")
        .statement_cache_capacity(256);
    // In a database that has content, the pragma writes, which needs room and changes a refused database.
    let is_new = std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
    if is_new { options.auto_vacuum(SqliteAutoVacuum::Incremental) } else { options }
}

/// Returns the options of the journal's writer.
///
/// A page holds two or three jobs with script and environment; with smaller pages every environment would
/// need a page of its own. An existing database keeps its page size.
fn journal_options(path: &Path) -> SqliteConnectOptions {
    write_options(path).page_size(JOURNAL_PAGE_BYTES)
}

/// Returns the options of a reader, for a database that a writer has opened.
fn read_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).read_only(true)
}

/// Converts a database error.
fn failed(action: &'static str, path: &Path, error: sqlx::Error) -> StoreError {
    let code =
        error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i32>().ok());
    if code.is_some_and(|code| code & 0xff == SQLITE_FULL) {
        return StoreError::DiskFull { path: path.to_owned() };
    }
    if code.is_some_and(|code| SQLITE_DAMAGED.contains(&(code & 0xff))) {
        let said = error.as_database_error().map_or_else(String::new, |error| error.message().to_owned());
        return StoreError::damaged(path, said);
    }
    if let sqlx::Error::Io(source) = error {
        return StoreError::io(action, path, source);
    }
    StoreError::Database { action, path: path.to_owned(), source: Arc::new(error) }
}
