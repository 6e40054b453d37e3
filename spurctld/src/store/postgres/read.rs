//! Reading of the journal: pages of entries, blobs, request ids and snapshots, on a few connections of their
//! own. A read whose connection breaks is repeated once.

use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_stream::StreamExt;

use super::connect::{Database, limited_by};
use super::{Failure, StoreError, failed, failure, from_sql, sql_int};
use crate::store::{Entry, Request, RequestId, SnapshotChunk, StandbyRow};

/// Number of connections for readers.
const READERS: usize = 4;
/// Size of a page in bytes, up to its last entry.
const PAGE_BYTES: usize = 1 << 20;
/// Longest duration of a read; the largest is a blob of 16 MiB.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Reads the committed journal. Clones share the connections.
#[derive(Clone)]
pub(in crate::store) struct Reader {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    /// URL of the server when the journal was opened.
    place: std::path::PathBuf,
    idle: Mutex<Vec<PgConnection>>,
    places: Semaphore,
}

/// A connection in use, which is closed unless it is given back.
pub(super) struct Borrowed<'a> {
    pub(super) connection: PgConnection,
    _place: SemaphorePermit<'a>,
}

/// Reads with a connection, and once more with a new one if it breaks.
macro_rules! read {
    ($reader:expr, $action:literal, |$connection:ident| $read:expr) => {{
        let mut again = true;
        loop {
            let mut borrowed = $reader.borrow().await?;
            let $connection = &mut borrowed.connection;
            match limited_by(READ_LIMIT, async { $read }).await {
                Ok(read) => {
                    $reader.give_back(borrowed);
                    break Ok(read);
                }
                Err(error) if again && failure(&error) == Failure::Lost => {
                    again = false;
                    // The fault that broke one connection has mostly broken the idle ones, so they are
                    // closed.
                    $reader.forget_idle();
                }
                Err(error) => break Err($reader.failed($action, error)),
            }
        }
    }};
}

impl Reader {
    pub(super) fn new(database: Database) -> Self {
        let place = database.place().to_owned();
        let (idle, places) = (Mutex::default(), Semaphore::new(READERS));
        Self { shared: Arc::new(Shared { database, place, idle, places }) }
    }

    /// Returns the URL of the database, for messages.
    pub(in crate::store) fn place(&self) -> &Path {
        &self.shared.place
    }

    pub(super) fn database(&self) -> &Database {
        &self.shared.database
    }

    pub(super) fn failed(&self, action: &'static str, error: sqlx::Error) -> StoreError {
        failed(action, self.place(), error)
    }

    /// Returns a connection, once one of the few is free.
    pub(super) async fn borrow(&self) -> Result<Borrowed<'_>, StoreError> {
        let place = self.shared.places.acquire().await.map_err(|_| StoreError::Stopped)?;
        let idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.shared.database.connect().await?,
        };
        Ok(Borrowed { connection, _place: place })
    }

    /// Closes the idle connections.
    pub(super) fn forget_idle(&self) {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn give_back(&self, borrowed: Borrowed<'_>) {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(borrowed.connection);
    }

    /// Returns a page of about a megabyte of entries after `after`.
    pub(in crate::store) async fn page(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let page: Vec<(Entry, i64)> = read!(self, "read entries of", |connection| {
            let sql = "SELECT seq, epoch, at, body, sum FROM journal WHERE seq > $1 ORDER BY seq LIMIT 2048";
            let mut rows = sqlx::query(sql).bind(sql_int(after)).fetch(connection);
            let (mut page, mut bytes) = (Vec::new(), 0);
            // The remaining rows must be read before the connection can be used again.
            while let Some(row) = rows.next().await.transpose()? {
                if bytes < PAGE_BYTES {
                    let (entry, sum) = entry(&row)?;
                    bytes += entry.body.len();
                    page.push((entry, sum));
                }
            }
            Ok(page)
        })?;
        if let Some((entry, _)) = page.iter().find(|(entry, sum)| *sum != i64::from(entry.checksum())) {
            let what = format!("entry {} is not what was written: its checksum is another", entry.seq);
            return Err(StoreError::damaged(self.place(), what));
        }
        Ok(page.into_iter().map(|(entry, _)| entry).collect())
    }

    /// Implements [`Journal::blob`](crate::store::Journal::blob).
    pub(in crate::store) async fn blob(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        read!(self, "read a blob of", |connection| {
            let row = sqlx::query("SELECT body FROM blob WHERE id = $1").bind(sql_int(id));
            row.fetch_optional(connection).await?.map(|row| row.try_get(0)).transpose()
        })
    }

    /// Implements [`Journal::request`](crate::store::Journal::request).
    pub(in crate::store) async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        read!(self, "read a request of", |connection| {
            let row = sqlx::query("SELECT uid, seq, at, reply FROM request WHERE id = $1").bind(&id[..]);
            row.fetch_optional(connection).await?.map(|row| request(id, &row)).transpose()
        })
    }

    /// See [`Journal::standbys`](crate::store::Journal::standbys).
    pub(in crate::store) async fn standbys(&self) -> Result<Vec<StandbyRow>, StoreError> {
        read!(self, "read the standbys of", |connection| {
            let sql = "SELECT address, seq, differs FROM standby
                WHERE seen > clock_timestamp() - interval '10 s' ORDER BY name";
            let rows = sqlx::query(sql).fetch_all(connection).await?;
            let row = |row: PgRow| {
                let seq = from_sql(row.try_get(1)?);
                Ok(StandbyRow { address: row.try_get(0)?, seq, differs: row.try_get(2)? })
            };
            rows.into_iter().map(row).collect()
        })
    }

    /// The last entry; `None` if there is none.
    pub(super) async fn last_entry(&self) -> Result<Option<u64>, StoreError> {
        read!(self, "read the end of", |connection| {
            let row = sqlx::query("SELECT max(seq) FROM journal").fetch_one(connection).await?;
            Ok(row.try_get::<Option<i64>, _>(0)?.map(from_sql))
        })
    }

    /// Returns entry and epoch of the newest complete snapshot.
    pub(super) async fn newest_snapshot(&self) -> Result<Option<(u64, u64)>, StoreError> {
        read!(self, "look for snapshots in", |connection| {
            let sql = "SELECT seq, epoch FROM snapshot WHERE chunks IS NOT NULL ORDER BY seq DESC, epoch DESC LIMIT 1";
            let row = sqlx::query(sql).fetch_optional(connection).await?;
            row.map(|row| Ok((from_sql(row.try_get(0)?), from_sql(row.try_get(1)?)))).transpose()
        })
    }

    /// Closes the connections.
    pub(in crate::store) async fn close(&self) {
        self.shared.places.close();
        let idle = std::mem::take(&mut *self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            // Connections for reading hold no changes.
            let _ = limited_by(READ_LIMIT, connection.close()).await;
        }
    }
}

fn entry(row: &PgRow) -> Result<(Entry, i64), sqlx::Error> {
    let entry = Entry {
        seq: from_sql(row.try_get(0)?),
        epoch: from_sql(row.try_get(1)?),
        at: row.try_get(2)?,
        body: row.try_get(3)?,
    };
    Ok((entry, row.try_get(4)?))
}

fn request(id: RequestId, row: &PgRow) -> Result<Request, sqlx::Error> {
    Ok(Request {
        id,
        uid: u32::try_from(row.try_get::<i64, _>(0)?).unwrap_or(u32::MAX),
        seq: from_sql(row.try_get(1)?),
        at: row.try_get(2)?,
        reply: row.try_get(3)?,
    })
}

/// Reads a whole snapshot, chunk by chunk.
pub(in crate::store) struct Chunks {
    reader: Reader,
    /// Entry and epoch of the snapshot.
    of: (u64, u64),
    chunks: i64,
    read: i64,
}

impl Chunks {
    pub(super) async fn open(reader: Reader, of: (u64, u64)) -> Result<Self, StoreError> {
        let chunks = read!(reader, "read a snapshot of", |connection| {
            let row = sqlx::query("SELECT chunks FROM snapshot WHERE seq = $1 AND epoch = $2");
            let row = row.bind(sql_int(of.0)).bind(sql_int(of.1)).fetch_one(connection).await?;
            Ok(row.try_get::<Option<i64>, _>(0)?.unwrap_or(0))
        })?;
        Ok(Self { reader, of, chunks, read: 0 })
    }

    pub(in crate::store) async fn next(&mut self) -> Result<Option<SnapshotChunk>, StoreError> {
        if self.read == self.chunks {
            return Ok(None);
        }
        self.read += 1;
        let ((seq, epoch), number) = (self.of, self.read);
        let chunk = read!(self.reader, "read a snapshot of", |connection| {
            let row =
                sqlx::query("SELECT kind, body FROM chunk WHERE seq = $1 AND epoch = $2 AND number = $3");
            let row =
                row.bind(sql_int(seq)).bind(sql_int(epoch)).bind(number).fetch_optional(connection).await?;
            row.map(|row| Ok(SnapshotChunk { kind: row.try_get(0)?, body: row.try_get(1)? })).transpose()
        })?;
        if chunk.is_none() {
            let what =
                format!("chunk {} of {} of its snapshot at entry {seq} is missing", self.read, self.chunks);
            return Err(StoreError::damaged(self.reader.place(), what));
        }
        Ok(chunk)
    }
}
