//! What one commit carries: entries of the journal, blobs, and the request ids that must not be served twice.

use bytes::Bytes;

use super::StoreError;

/// Largest blob the store takes, in bytes. Larger than any script or environment that a submission may carry.
pub const MAX_BLOB_BYTES: usize = 16 << 20;

/// Largest id a blob may have: the low byte of the key under which a part is stored counts the parts.
pub const MAX_BLOB_ID: u64 = (1 << 55) - 1;

/// One row of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Position in the journal, from 1, without gaps.
    pub seq: u64,
    /// Epoch of the controller that wrote it: [`Journal::epoch`](super::Journal::epoch) at the time.
    pub epoch: u64,
    /// When, on the owner's clock. The store keeps the number and does not read it.
    pub at: i64,
    /// The self-describing event (JSON).
    pub body: Vec<u8>,
}

impl Entry {
    /// CRC-32 over everything: what is read back with another one is damaged.
    pub(super) fn checksum(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.seq.to_le_bytes());
        sum.update(&self.epoch.to_le_bytes());
        sum.update(&self.at.to_le_bytes());
        sum.update(&self.body);
        sum.finalize()
    }
}

/// Content too large to live in memory or in an entry: a batch script, an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Chosen by the owner, at most [`MAX_BLOB_ID`], never used twice. Ascending ids are stored fastest.
    pub id: u64,
    /// At most [`MAX_BLOB_BYTES`].
    pub body: Bytes,
}

/// The UUID under which a client sent a request.
pub type RequestId = [u8; 16];

/// The memory of a request that changed something: a client that sends it again gets the same reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the client called it.
    pub id: RequestId,
    /// User who sent it: an id is only good for the one who made it up.
    pub uid: u32,
    /// Entry after which the reply may be given.
    pub seq: u64,
    /// When, on the clock of [`Entry::at`]. Decides how long it is kept.
    pub at: i64,
    /// The reply, as the owner encodes it.
    pub reply: Vec<u8>,
}

/// Everything that becomes durable at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Entries that follow the last one handed in, in order.
    pub entries: Vec<Entry>,
    /// Blobs the entries refer to.
    pub blobs: Vec<Blob>,
    /// Requests the entries answer. An id that is there already keeps its first answer: a client that makes one up
    /// twice harms nobody but itself.
    pub requests: Vec<Request>,
    /// Ids of blobs that nothing refers to any more; compaction takes their space back.
    pub released: Vec<u64>,
}

impl Batch {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.blobs.is_empty()
            && self.requests.is_empty()
            && self.released.is_empty()
    }

    /// Refuses what the store could not hold, before anything is queued.
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

    /// Bytes of content, a lower bound of what the commit writes.
    pub(crate) fn size(&self) -> usize {
        let entries: usize = self.entries.iter().map(|entry| entry.body.len()).sum();
        let blobs: usize = self.blobs.iter().map(|blob| blob.body.len()).sum();
        let requests: usize = self.requests.iter().map(|request| request.reply.len()).sum();
        entries + blobs + requests
    }
}

/// What is known once a batch is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The last entry that is durable; everything before it is too.
    pub seq: u64,
}
