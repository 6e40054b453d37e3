//! Why the store could not do what it was asked.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MAX_BLOB_BYTES, MAX_BLOB_ID};

/// A failure of the store. From a commit every one of them is final: the journal takes no further batch, and the
/// owner must end the process.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the lock.
    #[error(
        "{} is in use by another controller ({}): stop that one, or give this one a state of its own",
        path.display(), holder(*pid)
    )]
    InUse {
        /// The database: its file, or its URL.
        path: PathBuf,
        /// The process that holds the lock, where it left its number.
        pid: Option<u32>,
    },
    /// Another controller holds the lease of a database.
    #[error(
        "{} is in use by another controller (at {address}): stop that one, or give this one a state of its own", path.display()
    )]
    Leased {
        /// The database.
        path: PathBuf,
        /// Where the other controller is reached.
        address: String,
    },
    /// Another controller has taken the lease of the database.
    #[error("another controller leads {} (epoch {epoch}): this one commits and answers nothing more", path.display())]
    Fenced {
        /// The database.
        path: PathBuf,
        /// The other's epoch.
        epoch: u64,
    },
    /// The database has become an older copy of itself.
    #[error(
        "{} ends at entry {found}, and entry {confirmed} was confirmed: it was restored, or failed over to a replica \
         that lacked the end", path.display()
    )]
    WentBack {
        /// The database.
        path: PathBuf,
        /// The last entry that was confirmed.
        confirmed: u64,
        /// The last entry that is there.
        found: u64,
    },
    /// Something is where a journal or a copy is to be written.
    #[error("{} is not empty: nothing is written over; name another place, or remove what is there", path.display())]
    NotEmpty {
        /// The database or directory.
        path: PathBuf,
    },
    /// The database cannot keep the store's promises.
    #[error("{} cannot hold the state: {what}", path.display())]
    Unsafe {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The schema is one that this program does not know.
    #[error(
        "{} has schema {found}, written by a newer Spur; this one knows schemas up to {known}: start the newer \
         program", path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Schema found in it.
        found: i64,
        /// Newest schema known here.
        known: i64,
    },
    /// The disk is full.
    #[error("no space is left for {}: nothing can be acknowledged until there is room on its file system", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// A file operation outside the database failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The database refused an operation.
    #[error("cannot {action} {}", path.display())]
    Database {
        /// What was tried, as a verb.
        action: &'static str,
        /// The database.
        path: PathBuf,
        /// What the database said.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The content of the store contradicts itself.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The database or snapshot.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The end of the store is missing.
    #[error(
        "{} is shortened: it ends at entry {last}, and entry {acknowledged} was acknowledged. Find its end (spur.db-wal, \
         or the file system it lies on); nothing was changed. Where it is lost for good, spurctld --new-history goes on \
         from entry {last}, without the jobs of later ones", path.display()
    )]
    Shortened {
        /// The database.
        path: PathBuf,
        /// The last entry there is.
        last: u64,
        /// The last entry that is known to have been acknowledged.
        acknowledged: u64,
    },
    /// The entries of a batch do not continue the journal.
    #[error("entry {found} was handed in where entry {expected} comes next")]
    OutOfOrder {
        /// The sequence number that comes next.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// An entry carries an epoch other than the journal's.
    #[error("entry {seq} carries epoch {found}, the journal is open in epoch {expected}")]
    WrongEpoch {
        /// The entry.
        seq: u64,
        /// The epoch of this journal.
        expected: u64,
        /// The one the entry carries.
        found: u64,
    },
    /// A blob id is in the store already.
    #[error("a {what} of this batch is in the journal already")]
    Duplicate {
        /// `blob id` or `entry`.
        what: &'static str,
    },
    /// Entries that were asked for have been deleted.
    #[error("entry {wanted} has been deleted by compaction, the first one left is {first}")]
    Compacted {
        /// The first one asked for.
        wanted: u64,
        /// The first one there is.
        first: u64,
    },
    /// A blob is larger than the store takes.
    #[error("blob {id} has {size} bytes, at most {MAX_BLOB_BYTES} can be kept")]
    BlobTooLarge {
        /// The blob.
        id: u64,
        /// Its size in bytes.
        size: usize,
    },
    /// A blob id is out of range.
    #[error("blob id {id} is out of range, the largest is {MAX_BLOB_ID}")]
    BlobIdTooLarge {
        /// The id.
        id: u64,
    },
    /// A snapshot was asked for at an entry that is not durable yet.
    #[error("a snapshot at entry {asked} cannot be begun, the journal is durable up to {committed}")]
    SnapshotAhead {
        /// The entry asked for.
        asked: u64,
        /// The last durable one.
        committed: u64,
    },
    /// The journal was closed, or stopped after a failure that was reported to an earlier commit.
    #[error("the journal has stopped")]
    Stopped,
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
