//! Export of a journal's blobs and requests from SQLite, and copies of a journal in use.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Row};

use super::{
    BLOB_PART_BITS, StoreError, beside, failed, from_sql, lock, read_options, snapshot, sql_int,
    sync_directory,
};
use crate::store::Request;

/// Number of ids or requests in one page.
const PAGE: i64 = 1000;
/// Largest number of attempts to copy, each of which may fail because a snapshot is replaced meanwhile.
const TRIES: u32 = 5;

/// Reads the blobs and requests of a journal's database.
pub struct Export {
    connection: SqliteConnection,
    path: PathBuf,
}

impl Export {
    /// Opens the database at `path` for reading.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = read_options(path).connect().await.map_err(|error| failed("open", path, error))?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Returns the ids of the next referenced blobs after `after`, ascending.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn blobs(&mut self, after: Option<u64>) -> Result<Vec<u64>, StoreError> {
        let sql = format!(
            "SELECT DISTINCT key >> {BLOB_PART_BITS} AS id FROM blob
             WHERE key >= ? AND key >> {BLOB_PART_BITS} NOT IN (SELECT id FROM released) ORDER BY id LIMIT ?"
        );
        let first = after.map_or(0, |after| (after + 1) << BLOB_PART_BITS);
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(sql_int(first)).bind(PAGE);
        let rows = query.fetch_all(&mut self.connection).await;
        let rows = rows.map_err(|error| failed("read the blobs of", &self.path, error))?;
        rows.iter()
            .map(|row| {
                row.try_get(0).map(from_sql).map_err(|error| failed("read the blobs of", &self.path, error))
            })
            .collect()
    }

    /// Returns the next requests after line `after`, in the order of their arrival, and the line of the last.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn requests(&mut self, after: i64) -> Result<(Vec<Request>, i64), StoreError> {
        let sql = "SELECT line, id, uid, seq, at, reply FROM request WHERE line > ? ORDER BY line LIMIT ?";
        let rows = sqlx::query(sql).bind(after).bind(PAGE).fetch_all(&mut self.connection).await;
        let read = rows.and_then(|rows| {
            let mut last = after;
            let mut requests = Vec::with_capacity(rows.len());
            for row in &rows {
                last = row.try_get(0)?;
                let id: &[u8] = row.try_get(1)?;
                requests.push(Request {
                    id: id.try_into().map_err(|_| sqlx::Error::Decode("an id has 16 bytes".into()))?,
                    uid: row.try_get(2)?,
                    seq: from_sql(row.try_get(3)?),
                    at: row.try_get(4)?,
                    reply: row.try_get(5)?,
                });
            }
            Ok((requests, last))
        });
        read.map_err(|error| failed("read the requests of", &self.path, error))
    }
}

/// Copies a journal and its accounting into a new directory, also while a controller uses them. Returns the
/// last entry of the copy.
///
/// # Errors
/// Fails if the directory is not empty, or if the disk refuses.
pub async fn back_up(journal: &Path, to: &Path) -> Result<u64, StoreError> {
    make_empty(to)?;
    // Accounting first: accounting ahead of its journal would mark the copy as an old one.
    vacuum_into(&journal.with_file_name("acct.db"), &to.join("acct.db")).await?;
    let copy = to.join("spur.db");
    for _ in 0..TRIES {
        let newest = snapshot::newest_whole(journal)?;
        let covered = newest.as_ref().map_or(0, |found| found.seq);
        let kept = newest.map(|found| (beside(&copy, &format!(".snapshot-{covered}")), found));
        if let Some((name, found)) = &kept {
            // A link keeps a snapshot that is replaced meanwhile.
            let linked =
                fs::hard_link(found.path(), name).or_else(|_| fs::copy(found.path(), name).map(drop));
            linked.map_err(|error| StoreError::io("copy", found.path(), error))?;
        }
        vacuum_into(journal, &copy).await?;
        let (first, last) = ends(&copy).await?;
        if first.is_none_or(|first| first <= covered + 1) && last.is_none_or(|last| last >= covered) {
            sync_directory(&copy)?;
            return Ok(last.unwrap_or(covered));
        }
        for name in kept.iter().map(|(name, _)| name).chain([&copy]) {
            fs::remove_file(name).map_err(|error| StoreError::io("remove", name, error))?;
        }
    }
    Err(StoreError::damaged(journal, "no copy of it and of its snapshot agree"))
}

/// Puts a copy in the journal's place, which has to be empty.
///
/// # Errors
/// Fails if a journal exists or is in use, or if the disk refuses.
pub fn restore(from: &Path, journal: &Path) -> Result<(), StoreError> {
    let _lock = lock::take(journal)?;
    if journal.exists() {
        return Err(StoreError::NotEmpty { path: journal.to_owned() });
    }
    let listed = fs::read_dir(from).map_err(|error| StoreError::io("read", from, error))?;
    let mut names = Vec::new();
    for item in listed {
        names.push(item.map_err(|error| StoreError::io("read", from, error))?.file_name());
    }
    let is_copy =
        |name: &str| name == "acct.db" || name == "spur.db" || name.starts_with("spur.db.snapshot-");
    // The journal itself comes last: until then there is none.
    names.sort_by_key(|name| name == "spur.db");
    if !names.iter().any(|name| name == "spur.db") {
        return Err(StoreError::damaged(from, "there is no spur.db in it"));
    }
    for name in names.iter().filter_map(|name| name.to_str()).filter(|name| is_copy(name)) {
        let source = from.join(name);
        let target = match name.strip_prefix("spur.db") {
            Some(suffix) => beside(journal, suffix),
            None => journal.with_file_name(name),
        };
        let copied = fs::copy(&source, &target).and_then(|_| fs::File::open(&target)?.sync_all());
        copied.map_err(|error| StoreError::io("copy", &source, error))?;
    }
    sync_directory(journal)
}

fn make_empty(directory: &Path) -> Result<(), StoreError> {
    let refused = |error| StoreError::io("create", directory, error);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(refused)?;
    match fs::read_dir(directory).map_err(refused)?.next() {
        None => Ok(()),
        Some(_) => Err(StoreError::NotEmpty { path: directory.to_owned() }),
    }
}

/// Copies the state of a database at one moment. Commits continue; the log is not restarted meanwhile.
async fn vacuum_into(from: &Path, to: &Path) -> Result<(), StoreError> {
    let copied = async {
        let mut connection = read_options(from).connect().await?;
        let name = to.to_string_lossy().into_owned();
        sqlx::query("VACUUM INTO ?").bind(name).execute(&mut connection).await?;
        connection.close().await
    };
    copied.await.map_err(|error| failed("copy", from, error))?;
    let synced = fs::File::open(to).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::io("sync", to, error))
}

/// Returns the first and the last entry.
async fn ends(path: &Path) -> Result<(Option<u64>, Option<u64>), StoreError> {
    let read = async {
        let mut connection = read_options(path).connect().await?;
        let row = sqlx::query("SELECT min(seq), max(seq) FROM journal").fetch_one(&mut connection).await?;
        let ends: (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        connection.close().await?;
        Ok((ends.0.map(from_sql), ends.1.map(from_sql)))
    };
    read.await.map_err(|error| failed("read", path, error))
}
