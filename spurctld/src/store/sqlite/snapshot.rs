//! Snapshots of a journal in SQLite. A snapshot is a separate database file, so that writing it neither takes
//! the journal's lock nor lengthens its log. The file ends in `.part` until it is complete and synced, and is
//! then renamed to `spur.db.snapshot-N`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Executor, Row};

use super::{StoreError, beside, create, directory, failed, from_sql, read_options, sql_int, sync_directory};
use crate::store::SnapshotChunk;

/// Version of the file's layout; the contents of the chunks have their own versions.
const FORMAT: i64 = 1;
/// Bytes of chunks after which the file is synced. Small portions keep the journal's syncs from waiting
/// behind the flush of a whole snapshot.
const SYNC_BYTES: usize = 2 << 20;
/// Bytes in one page; large pages keep the number of pages per chunk low.
const PAGE_BYTES: u32 = 64 << 10;
const PART: &str = ".part";

/// A complete snapshot on disk.
pub(super) struct Found {
    path: PathBuf,
    pub(super) seq: u64,
}

impl Found {
    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Finds the newest complete snapshot of a journal. Safe while a controller uses the journal.
pub(super) fn newest_whole(journal: &Path) -> Result<Option<Found>, StoreError> {
    Ok(scan(journal)?.whole.into_iter().max_by_key(|found| found.seq))
}

/// Finds the newest complete snapshot of a journal and deletes the incomplete ones.
pub(super) fn newest(journal: &Path) -> Result<Option<Found>, StoreError> {
    let found = scan(journal)?;
    for path in &found.parts {
        remove(path)?;
    }
    Ok(found.whole.into_iter().max_by_key(|found| found.seq))
}

#[derive(Default)]
struct Scan {
    whole: Vec<Found>,
    parts: Vec<PathBuf>,
}

fn scan(journal: &Path) -> Result<Scan, StoreError> {
    let directory = directory(journal);
    let prefix = beside(journal, ".snapshot-");
    let prefix = prefix.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let unreadable = |error| StoreError::io("look for snapshots in", directory, error);
    let mut scan = Scan::default();
    for item in fs::read_dir(directory).map_err(unreadable)? {
        let path = item.map_err(unreadable)?.path();
        let Some(rest) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(prefix))
        else {
            continue;
        };
        if rest.ends_with(PART) {
            scan.parts.push(path);
        } else if let Ok(seq) = rest.parse() {
            scan.whole.push(Found { path, seq });
        }
    }
    Ok(scan)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path).map_err(|error| StoreError::io("remove", path, error))
}

/// A snapshot that is being written.
pub(in crate::store) struct Writer {
    /// The connection that writes the chunks; `None` once the snapshot is finished.
    conn: Option<SqliteConnection>,
    journal: PathBuf,
    part: PathBuf,
    seq: u64,
    chunks: i64,
    /// Bytes of chunks that are not yet synced.
    unsynced: usize,
}

impl Writer {
    pub(in crate::store) async fn begin(journal: &Path, cluster: &str, seq: u64) -> Result<Self, StoreError> {
        let part = beside(journal, &format!(".snapshot-{seq}{PART}"));
        if part.exists() {
            remove(&part)?;
        }
        create(&part)?;
        let begun = Self::begin_file(&part, cluster, seq).await;
        let conn = begun.map_err(|error| failed("begin", &part, error))?;
        Ok(Self { conn: Some(conn), journal: journal.to_owned(), part, seq, chunks: 0, unsynced: 0 })
    }

    async fn begin_file(part: &Path, cluster: &str, seq: u64) -> Result<SqliteConnection, sqlx::Error> {
        // No journal is needed, because a file whose writing was interrupted is deleted. A commit still syncs
        // the file.
        let options = SqliteConnectOptions::new()
            .filename(part)
            .page_size(PAGE_BYTES)
            .locking_mode(SqliteLockingMode::Exclusive)
            .journal_mode(SqliteJournalMode::Off)
            .synchronous(SqliteSynchronous::Normal);
        let mut conn = options.connect().await?;
        conn.execute(include_str!("snapshot.sql")).await?;
        let facts = "INSERT INTO meta (key, value) VALUES ('format', ?), ('cluster', ?), ('seq', ?)";
        sqlx::query(facts).bind(FORMAT).bind(cluster).bind(sql_int(seq)).execute(&mut conn).await?;
        conn.execute("BEGIN").await?;
        Ok(conn)
    }

    pub(in crate::store) async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        self.chunks += 1;
        self.unsynced += body.len();
        let flush = self.unsynced >= SYNC_BYTES;
        if flush {
            self.unsynced = 0;
        }
        let number = self.chunks;
        let Some(conn) = &mut self.conn else { return Err(StoreError::Stopped) };
        let write = async {
            let insert = sqlx::query("INSERT INTO chunk (number, kind, body) VALUES (?, ?, ?)");
            insert.bind(number).bind(kind).bind(body).execute(&mut *conn).await?;
            if flush {
                conn.execute("COMMIT; BEGIN").await?;
            }
            Ok(())
        };
        write.await.map_err(|error| failed("write", &self.part, error))
    }

    /// Syncs the file, renames it and deletes older snapshots.
    pub(in crate::store) async fn finish(mut self) -> Result<(), StoreError> {
        let Some(mut conn) = self.conn.take() else { return Err(StoreError::Stopped) };
        let chunks = self.chunks;
        let whole = async {
            sqlx::query("INSERT INTO meta (key, value) VALUES ('chunks', ?)")
                .bind(chunks)
                .execute(&mut conn)
                .await?;
            conn.execute("COMMIT").await?;
            conn.close().await
        };
        whole.await.map_err(|error| failed("finish", &self.part, error))?;
        let (journal, part, seq) = (self.journal.clone(), self.part.clone(), self.seq);
        let published = tokio::task::spawn_blocking(move || publish(&journal, &part, seq)).await;
        published.unwrap_or(Err(StoreError::Stopped))
    }
}

/// Turns a complete file into the snapshot at entry `seq`, durably, and deletes older snapshots.
fn publish(journal: &Path, part: &Path, seq: u64) -> Result<(), StoreError> {
    // SQLite has synced every page; this sync also makes the file's size durable.
    let synced = File::open(part).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::io("sync", part, error))?;
    let name = beside(journal, &format!(".snapshot-{seq}"));
    fs::rename(part, &name).map_err(|error| StoreError::io("rename", part, error))?;
    sync_directory(&name)?;
    for older in scan(journal)?.whole.iter().filter(|found| found.seq < seq) {
        remove(&older.path)?;
    }
    Ok(())
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.conn.take().is_some() {
            // The next start deletes the file if this fails.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Reads a complete snapshot, chunk by chunk.
pub(in crate::store) struct Reader {
    conn: SqliteConnection,
    path: PathBuf,
    chunks: i64,
    read: i64,
}

impl Reader {
    pub(super) async fn open(found: &Found, cluster: &str) -> Result<Self, StoreError> {
        let path = found.path.clone();
        let opened = read_options(&path).connect().await;
        let mut conn = opened.map_err(|error| failed("open", &path, error))?;
        let facts: Facts = facts(&mut conn).await.map_err(|error| failed("read", &path, error))?;
        if facts.format > FORMAT {
            return Err(StoreError::NewerSchema { path, found: facts.format, known: FORMAT, oldest: None });
        }
        if facts.cluster != cluster {
            return Err(StoreError::damaged(&path, "it is the snapshot of another cluster"));
        }
        if facts.seq != found.seq {
            let what = format!("it is the snapshot at entry {}, not what its name says", facts.seq);
            return Err(StoreError::damaged(&path, what));
        }
        Ok(Self { conn, path, chunks: facts.chunks, read: 0 })
    }

    pub(in crate::store) async fn next(&mut self) -> Result<Option<SnapshotChunk>, StoreError> {
        if self.read == self.chunks {
            return Ok(None);
        }
        self.read += 1;
        let row = sqlx::query("SELECT kind, body FROM chunk WHERE number = ?")
            .bind(self.read)
            .fetch_optional(&mut self.conn)
            .await
            .map_err(|error| failed("read", &self.path, error))?;
        let Some(row) = row else {
            return Err(StoreError::damaged(
                &self.path,
                format!("chunk {} of {} is missing", self.read, self.chunks),
            ));
        };
        let chunk = row.try_get(0).and_then(|kind| Ok(SnapshotChunk { kind, body: row.try_get(1)? }));
        chunk.map(Some).map_err(|error| failed("read", &self.path, error))
    }
}

struct Facts {
    format: i64,
    cluster: String,
    seq: u64,
    chunks: i64,
}

async fn facts(conn: &mut SqliteConnection) -> Result<Facts, sqlx::Error> {
    let sql = "SELECT (SELECT value FROM meta WHERE key = 'format'), (SELECT value FROM meta WHERE key = 'cluster'),
                      (SELECT value FROM meta WHERE key = 'seq'), (SELECT value FROM meta WHERE key = 'chunks')";
    let row = sqlx::query(sql).fetch_one(conn).await?;
    let seq: i64 = row.try_get(2)?;
    Ok(Facts {
        format: row.try_get(0)?,
        cluster: row.try_get(1)?,
        seq: from_sql(seq),
        chunks: row.try_get(3)?,
    })
}
