//! The content of one commit: entries of the journal, blobs, and ids of handled requests.

use bytes::Bytes;

use super::StoreError;

/// Largest blob that the store accepts, in bytes; larger than any script or environment of a submission.
pub const MAX_BLOB_BYTES: usize = 16 << 20;

/// Largest id of a blob: the low byte of the key of a stored part counts the parts.
pub const MAX_BLOB_ID: u64 = (1 << 55) - 1;

/// One row of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Position in the journal, from 1, without gaps.
    pub seq: u64,
    /// Epoch of the controller that wrote the entry: [`Journal::epoch`](super::Journal::epoch) at the time.
    pub epoch: u64,
    /// Time of the entry on the owner's clock, which the store does not interpret.
    pub at: i64,
    /// The self-describing event (JSON).
    pub body: Vec<u8>,
}

impl Entry {
    /// Returns the CRC-32 of all fields; an entry that is read back with another one is damaged.
    pub(super) fn checksum(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.seq.to_le_bytes());
        sum.update(&self.epoch.to_le_bytes());
        sum.update(&self.at.to_le_bytes());
        sum.update(&self.body);
        sum.finalize()
    }
}

/// Content too large for memory or an entry: a batch script, an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Id that the owner chooses, at most [`MAX_BLOB_ID`], never used twice. Ascending ids are stored
    /// fastest.
    pub id: u64,
    /// Content, at most [`MAX_BLOB_BYTES`].
    pub body: Bytes,
}

/// The UUID under which a client sent a request.
pub type RequestId = [u8; 16];

/// A handled request that changed something: a client that repeats it gets the same reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's id of the request.
    pub id: RequestId,
    /// User who sent the request: an id is only valid for its user.
    pub uid: u32,
    /// Entry after which the reply may be sent.
    pub seq: u64,
    /// Time of the request on the clock of [`Entry::at`], which decides when it is dropped.
    pub at: i64,
    /// The reply, as the owner encodes it.
    pub reply: Vec<u8>,
}

/// Everything that becomes durable at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Entries that follow the last submitted one, in order.
    pub entries: Vec<Entry>,
    /// Blobs that the entries refer to.
    pub blobs: Vec<Blob>,
    /// Requests that the entries answer. An existing id keeps its first answer; a client that uses an id
    /// twice harms only itself.
    pub requests: Vec<Request>,
    /// Ids of blobs that are no longer referenced; compaction deletes them.
    pub released: Vec<u64>,
}

impl Batch {
    /// True if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.blobs.is_empty()
            && self.requests.is_empty()
            && self.released.is_empty()
    }

    /// Refuses content that the store cannot hold, before anything is queued.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        for blob in &self.blobs {
            if blob.body.len() > MAX_BLOB_BYTES {
                return Err(StoreError::BlobTooLarge { id: blob.id, size: blob.body.len() });
            }
        }
        match self
            .blobs
            .iter()
            .map(|blob| blob.id)
            .chain(self.released.iter().copied())
            .find(|&id| id > MAX_BLOB_ID)
        {
            Some(id) => Err(StoreError::BlobIdTooLarge { id }),
            None => Ok(()),
        }
    }

    /// Returns the bytes of content, a lower bound of what the commit writes.
    pub(crate) fn size(&self) -> usize {
        let entries: usize = self.entries.iter().map(|entry| entry.body.len()).sum();
        let blobs: usize = self.blobs.iter().map(|blob| blob.body.len()).sum();
        let requests: usize = self.requests.iter().map(|request| request.reply.len()).sum();
        entries + blobs + requests
    }
}

/// The outcome of a durable batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The last durable entry; all earlier entries are durable, too.
    pub seq: u64,
}
