//! Reads pages of entries, blobs and request ids from the journal. Connections are read-only and transactions
//! short, so that readers delay neither commits nor the reuse of the write-ahead log.

use std::path::{Path, PathBuf};

use sqlx::Row;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions, SqliteRow};
use tokio_stream::StreamExt;

use super::{BLOB_PART_BITS, StoreError, failed, from_sql, read_options, sql_int};
use crate::store::{Entry, Request, RequestId};

/// Maximum number of connections for readers.
const READERS: u32 = 4;
/// Bytes of entries after which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Reader of the committed journal.
#[derive(Clone)]
pub(in crate::store) struct Reader {
    pool: SqlitePool,
    path: PathBuf,
}

impl Reader {
    pub(super) async fn open(path: &Path) -> Result<Self, StoreError> {
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(read_options(path))
            .await
            .map_err(|error| failed("open for reading", path, error))?;
        Ok(Self { pool, path: path.to_owned() })
    }

    /// Returns the path of the database.
    pub(in crate::store) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the entries after number `after`: about one megabyte of them, and none at the journal's end.
    pub(in crate::store) async fn page(&self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let mut rows = sqlx::query(
            "SELECT seq, epoch, at, body, sum FROM journal WHERE seq > ? ORDER BY seq LIMIT 8192",
        )
        .bind(sql_int(after))
        .fetch(&self.pool);
        let mut page: Vec<Entry> = Vec::new();
        let (mut bytes, mut last) = (0, after);
        while bytes < PAGE_BYTES {
            let next = rows.next().await.transpose();
            let read = next.and_then(|row| row.map(|row| entry(&row)).transpose());
            let Some((entry, sum)) = read.map_err(|error| self.unreadable(last, error))? else { break };
            if sum.is_some_and(|sum| sum != i64::from(entry.checksum())) {
                let what = format!("entry {} is not what was written: its checksum is another", entry.seq);
                return Err(StoreError::damaged(&self.path, what));
            }
            (bytes, last) = (bytes + entry.body.len(), entry.seq);
            page.push(entry);
        }
        Ok(page)
    }

    /// Converts the error of a read that failed after entry `last`.
    fn unreadable(&self, last: u64, error: sqlx::Error) -> StoreError {
        match failed("read entries of", &self.path, error) {
            StoreError::Damaged { path, what } => {
                StoreError::Damaged { path, what: format!("it cannot be read behind entry {last}: {what}") }
            }
            other => other,
        }
    }

    /// Reads a blob; see [`Journal::blob`](crate::store::Journal::blob).
    pub(in crate::store) async fn blob(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let first = id << BLOB_PART_BITS;
        let last = first | ((1 << BLOB_PART_BITS) - 1);
        let rows = sqlx::query("SELECT body FROM blob WHERE key BETWEEN ? AND ? ORDER BY key")
            .bind(sql_int(first))
            .bind(sql_int(last))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| failed("read a blob of", &self.path, error))?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut body = Vec::new();
        for row in rows {
            let part: &[u8] = row.try_get(0).map_err(|error| failed("read a blob of", &self.path, error))?;
            body.extend_from_slice(part);
        }
        Ok(Some(body))
    }

    /// Reads a request; see [`Journal::request`](crate::store::Journal::request).
    pub(in crate::store) async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        sqlx::query("SELECT uid, seq, at, reply FROM request WHERE id = ?")
            .bind(&id[..])
            .fetch_optional(&self.pool)
            .await
            .and_then(|row| row.map(|row| request(id, &row)).transpose())
            .map_err(|error| failed("read a request of", &self.path, error))
    }

    /// Closes the connections.
    pub(in crate::store) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Decodes an entry and its checksum; entries of early versions have none.
fn entry(row: &SqliteRow) -> Result<(Entry, Option<i64>), sqlx::Error> {
    let entry = Entry {
        seq: from_sql(row.try_get(0)?),
        epoch: from_sql(row.try_get(1)?),
        at: row.try_get(2)?,
        body: row.try_get(3)?,
    };
    Ok((entry, row.try_get(4)?))
}

fn request(id: RequestId, row: &SqliteRow) -> Result<Request, sqlx::Error> {
    Ok(Request {
        id,
        uid: row.try_get(0)?,
        seq: from_sql(row.try_get(1)?),
        at: row.try_get(2)?,
        reply: row.try_get(3)?,
    })
}
