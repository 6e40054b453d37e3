//! The durable store of the controller: the journal with its blobs and request ids, snapshots, accounting.
//!
//! The store promises:
//!
//! * A [`Commit`] resolves only after everything in its [`Batch`] has been synced to the disk; batches become
//!   durable as a whole and in the order of their submission.
//! * The sequence numbers of recovered entries have no gap, and no committed entry is missing.
//! * One controller at a time: in SQLite, [`Journal::open`] holds an operating-system lock while the journal
//!   is open; in PostgreSQL, every commit names its lease.
//! * Nothing slow holds the lock that a commit needs: snapshots are files of their own, compaction runs in
//!   small steps between commits, and checkpoints copy pages on a connection of their own.
//! * After a failed write every further commit fails. The owner must end the process: recovery decides what
//!   happened. A database that does not answer is no failure: commits wait until it does, and
//!   [`Journal::condition`] shows that.
//!
//! The store does not interpret entries, blobs, replies and snapshot chunks: they are bytes with a few
//! columns. Only [`sqlite`] and [`postgres`] contain SQL, behind the same types.

pub mod accounting;
mod backend;
mod batch;
mod error;
mod journal;
mod place;
mod postgres;
mod snapshot;
mod sqlite;

pub use batch::{Batch, Blob, Committed, Entry, MAX_BLOB_BYTES, MAX_BLOB_ID, Request, RequestId};
pub use error::StoreError;
pub use journal::{Commit, Compacted, Journal, Recovered, Retention, StandbyRow, Tuning};
pub use place::{Condition, Place};
pub use postgres::{Database, Follower, Import, Imported, Turn};
pub use snapshot::{SnapshotChunk, SnapshotWriter};
pub use sqlite::{Export, back_up, restore};
