//! Checkpoints: moving pages from the write-ahead log into the database without holding up commits.
//!
//! The pages are copied by a connection of its own while commits go on. But the log can be used again from its
//! start only at a moment when all of it has been copied, which under a steady stream of commits never comes by
//! itself. So once the log is long and the copy is nearly done, the writer copies the short rest between two
//! commits, and the next commit starts the log over.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Row};
use tokio::task::JoinHandle;

use super::{StoreError, failed, write_options};

/// Bytes handed in after which pages are copied.
const BEGIN_BYTES: usize = 16 << 20;
/// Pages in the log from which on it should be started over: 64 MiB of them.
const LONG_LOG_PAGES: i64 = 16 << 10;
/// Bytes handed in since the copy began, up to which the writer copies the rest itself.
const SHORT_REST_BYTES: usize = 1 << 20;
/// Copies without a short enough rest after which the writer copies the rest whatever its length.
const PATIENCE: u32 = 8;

const COPY: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// Watches the length of the log.
pub(super) struct Checkpoints {
    path: PathBuf,
    /// The connection that copies, while it does not.
    idle: Option<SqliteConnection>,
    copying: Option<JoinHandle<Result<Copied, sqlx::Error>>>,
    /// Bytes handed in since the last copy began.
    bytes: usize,
    /// Copies of a long log that left too long a rest.
    patience: u32,
}

struct Copied {
    conn: SqliteConnection,
    log_pages: i64,
}

impl Checkpoints {
    pub(super) async fn new(path: &Path) -> Result<Self, StoreError> {
        let conn = write_options(path).connect().await.map_err(|error| failed("open", path, error))?;
        Ok(Self { path: path.to_owned(), idle: Some(conn), copying: None, bytes: 0, patience: PATIENCE })
    }

    /// To be called after each commit, with the bytes it wrote and the writer's connection.
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
        if let Some(copying) = self.copying.take_if(|copying| copying.is_finished()) {
            let copied = copying.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
            self.idle = Some(copied.conn);
            if copied.log_pages >= LONG_LOG_PAGES {
                again = !self.finish(writer).await?;
            }
        }
        if (again || self.bytes >= BEGIN_BYTES)
            && let Some(mut conn) = self.idle.take()
        {
            self.bytes = 0;
            self.copying = Some(tokio::spawn(async move {
                let log_pages = sqlx::query(COPY).fetch_one(&mut conn).await?.try_get(1)?;
                Ok(Copied { conn, log_pages })
            }));
        }
        Ok(())
    }

    /// Copies the rest if it is short. A reader may keep the log from being started over; the next copy tries again.
    async fn finish(&mut self, writer: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        if self.bytes > SHORT_REST_BYTES && self.patience > 0 {
            self.patience -= 1;
            return Ok(false);
        }
        sqlx::query(COPY).execute(writer).await?;
        self.bytes = 0;
        self.patience = PATIENCE;
        Ok(true)
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
