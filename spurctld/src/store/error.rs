//! Failures of the store.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MAX_BLOB_BYTES, MAX_BLOB_ID};

/// A failure of the store. After a failed commit the journal accepts no further batch, and the owner must end
/// the process.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the lock of an SQLite database.
    #[error(
        "{} is in use by another controller ({}): stop that one, or give this one a state of its own",
        path.display(), holder(*pid)
    )]
    InUse {
        /// Path of the database.
        path: PathBuf,
        /// Id of the process that holds the lock, if it is recorded.
        pid: Option<u32>,
    },
    /// Another controller holds the lease of a PostgreSQL database.
    #[error(
        "{} is in use by another controller (at {address}): stop that one, or give this one a state of its own", path.display()
    )]
    Leased {
        /// URL of the database.
        path: PathBuf,
        /// Address of the other controller.
        address: String,
    },
    /// Another controller has taken over the lease of the database.
    #[error("another controller leads {} (epoch {epoch}): this one commits and answers nothing more", path.display())]
    Fenced {
        /// URL of the database.
        path: PathBuf,
        /// Epoch of the other controller.
        epoch: u64,
    },
    /// The database has become an older copy of itself.
    #[error(
        "{} ends at entry {found}, and entry {confirmed} was confirmed: it was restored, or failed over to a replica \
         that lacked the end", path.display()
    )]
    WentBack {
        /// URL of the database.
        path: PathBuf,
        /// The last confirmed entry.
        confirmed: u64,
        /// The last entry that the database has.
        found: u64,
    },
    /// The place where a journal or a copy is to be written is not empty.
    #[error("{} is not empty: nothing is written over; name another place, or remove what is there", path.display())]
    NotEmpty {
        /// The database or directory.
        path: PathBuf,
    },
    /// The database cannot keep the store's promises.
    #[error("{} cannot hold the state: {what}", path.display())]
    Unsafe {
        /// URL of the database.
        path: PathBuf,
        /// The problem with the database.
        what: String,
    },
    /// The schema is newer than this program.
    #[error(
        "{} has schema {found}, written by a newer Spur; this one knows schemas up to {known}: start {}", path.display(),
        able(*.oldest)
    )]
    NewerSchema {
        /// Path or URL of the database.
        path: PathBuf,
        /// The schema of the database.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
        /// The feature level that programs must know to use the schema, if the database names it.
        oldest: Option<i64>,
    },
    /// The disk is full.
    #[error("no space is left for {}: nothing can be acknowledged until there is room on its file system", path.display())]
    DiskFull {
        /// Path or URL of the database.
        path: PathBuf,
    },
    /// A file operation outside the database failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The database refused an operation.
    #[error("cannot {action} {}", path.display())]
    Database {
        /// The operation, as a verb.
        action: &'static str,
        /// Path or URL of the database.
        path: PathBuf,
        /// The database's error.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The content of the store contradicts itself.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// Path or URL of the database or snapshot.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// The end of the store is missing.
    #[error(
        "{} is shortened: it ends at entry {last}, and entry {acknowledged} was acknowledged. Find its end (spur.db-wal, \
         or the file system it lies on); nothing was changed. Where it is lost for good, spurctld --new-history goes on \
         from entry {last}, without the jobs of later ones", path.display()
    )]
    Shortened {
        /// Path of the database.
        path: PathBuf,
        /// The last existing entry.
        last: u64,
        /// The last entry that is known to have been acknowledged.
        acknowledged: u64,
    },
    /// The entries of a batch do not continue the journal.
    #[error("entry {found} was handed in where entry {expected} comes next")]
    OutOfOrder {
        /// The expected sequence number.
        expected: u64,
        /// The sequence number of the entry.
        found: u64,
    },
    /// An entry has an epoch other than the journal's.
    #[error("entry {seq} carries epoch {found}, the journal is open in epoch {expected}")]
    WrongEpoch {
        /// The entry.
        seq: u64,
        /// The epoch of the journal.
        expected: u64,
        /// The epoch of the entry.
        found: u64,
    },
    /// A blob or an entry exists already.
    #[error("a {what} of this batch is in the journal already")]
    Duplicate {
        /// `blob id` or `entry`.
        what: &'static str,
    },
    /// The requested entries have been deleted.
    #[error("entry {wanted} has been deleted by compaction, the first one left is {first}")]
    Compacted {
        /// The first requested entry.
        wanted: u64,
        /// The first existing entry.
        first: u64,
    },
    /// A blob is larger than the store accepts.
    #[error("blob {id} has {size} bytes, at most {MAX_BLOB_BYTES} can be kept")]
    BlobTooLarge {
        /// Id of the blob.
        id: u64,
        /// Size of the blob in bytes.
        size: usize,
    },
    /// The id of a blob is out of range.
    #[error("blob id {id} is out of range, the largest is {MAX_BLOB_ID}")]
    BlobIdTooLarge {
        /// Id of the blob.
        id: u64,
    },
    /// A snapshot was requested at an entry that is not durable yet.
    #[error("a snapshot at entry {asked} cannot be begun, the journal is durable up to {committed}")]
    SnapshotAhead {
        /// The requested entry.
        asked: u64,
        /// The last durable entry.
        committed: u64,
    },
    /// The journal was closed, or stopped after a failure that was reported to an earlier commit.
    #[error("the journal has stopped")]
    Stopped,
}

/// The program that can use a newer schema.
fn able(oldest: Option<i64>) -> String {
    oldest.map_or_else(
        || "the newer program".to_owned(),
        |level| format!("a program that knows FeatureLevel={level}"),
    )
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            return Self::DiskFull { path: path.to_owned() };
        }
        Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "its process id is not known".to_owned(), |pid| format!("process {pid}"))
}
