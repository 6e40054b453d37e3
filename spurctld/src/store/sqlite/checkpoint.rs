//! Checkpoints: copying pages from the write-ahead log into the database without delaying commits.
//!
//! A separate connection copies the pages while commits continue. But the log can be restarted only at a
//! moment when all of it has been copied. Under a steady stream of commits this moment never comes by itself.
//! Once the log is long and the copy is nearly complete, the writer therefore copies the rest between two
//! commits. The next commit restarts the log.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Row};
use tokio::task::JoinHandle;

use super::{StoreError, failed, from_sql, journal_options};
use crate::store::Tuning;

/// The writer copies the rest itself if at most one part in this many of [`Tuning::checkpoint_bytes`] was
/// written since the copy began.
const SHORT_REST: usize = 2;
/// Multiple of the intended log length beyond which the writer copies the rest whatever its length.
const TOO_LONG: u64 = 2;

const COPY: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// Watches the length of the log, and copies it.
pub(super) struct Checkpoints {
    path: PathBuf,
    tuning: Tuning,
    /// Size of a page of the log, in bytes.
    page_bytes: u64,
    /// The connection that copies, while it is idle.
    idle: Option<SqliteConnection>,
    copying: Option<JoinHandle<Result<Copied, sqlx::Error>>>,
    /// Bytes written since the last copy began.
    bytes: usize,
}

struct Copied {
    conn: SqliteConnection,
    log_bytes: u64,
}

impl Checkpoints {
    pub(super) async fn new(path: &Path, tuning: Tuning) -> Result<Self, StoreError> {
        let opened = async {
            let mut conn = journal_options(path).connect().await?;
            let page: i64 = sqlx::query("PRAGMA page_size").fetch_one(&mut conn).await?.try_get(0)?;
            Ok((conn, from_sql(page)))
        };
        let (conn, page_bytes) = opened.await.map_err(|error| failed("open", path, error))?;
        Ok(Self { path: path.to_owned(), tuning, page_bytes, idle: Some(conn), copying: None, bytes: 0 })
    }

    /// Records a commit with the bytes that it wrote; `writer` is the writer's connection.
    pub(super) async fn written(
        &mut self,
        bytes: usize,
        writer: &mut SqliteConnection,
    ) -> Result<(), StoreError> {
        self.bytes += bytes;
        self.advance(writer).await.map_err(|error| failed("checkpoint", &self.path, error))
    }

    async fn advance(&mut self, writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut again = false;
        let too_long = self.tuning.long_log_bytes * TOO_LONG;
        // A disk that cannot keep up delays commits here, so that the log does not grow without end.
        let wait = self.bytes as u64 >= too_long;
        if let Some(copying) = self.copying.take_if(|copying| wait || copying.is_finished()) {
            let copied = copying.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
            self.idle = Some(copied.conn);
            if copied.log_bytes >= self.tuning.long_log_bytes {
                let short = self.bytes <= self.tuning.checkpoint_bytes / SHORT_REST;
                again = !short && copied.log_bytes < too_long;
                if !again {
                    // A reader may keep the log from being restarted; the next copy tries again.
                    sqlx::query(COPY).execute(writer).await?;
                    self.bytes = 0;
                }
            }
        }
        if (again || self.bytes >= self.tuning.checkpoint_bytes)
            && let Some(mut conn) = self.idle.take()
        {
            self.bytes = 0;
            let page_bytes = self.page_bytes;
            self.copying = Some(tokio::spawn(async move {
                let pages: i64 = sqlx::query(COPY).fetch_one(&mut conn).await?.try_get(1)?;
                Ok(Copied { conn, log_bytes: from_sql(pages) * page_bytes })
            }));
        }
        Ok(())
    }

    /// Waits for a copy under way and closes the connection.
    pub(super) async fn close(self) -> Result<(), StoreError> {
        let idle = match (self.idle, self.copying) {
            (Some(conn), _) => Ok(conn),
            (None, Some(copying)) => {
                copying.await.map_err(|_| sqlx::Error::WorkerCrashed).flatten().map(|copied| copied.conn)
            }
            (None, None) => return Ok(()),
        };
        match idle {
            Ok(conn) => conn.close().await,
            Err(error) => Err(error),
        }
        .map_err(|error| failed("checkpoint", &self.path, error))
    }
}
