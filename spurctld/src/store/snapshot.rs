//! Snapshots: the whole state after one entry, so that recovery need not read what came before.

use std::path::Path;

use tokio::sync::watch;

use super::{StoreError, sqlite};

/// A piece of a snapshot. The kinds and their versions are the owner's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChunk {
    /// What the body describes.
    pub kind: String,
    /// The self-describing content.
    pub body: Vec<u8>,
}

/// A snapshot being written. It counts from [`SnapshotWriter::finish`] on; one that is dropped or interrupted
/// before leaves nothing behind.
pub struct SnapshotWriter {
    file: sqlite::snapshot::Writer,
    seq: u64,
    /// Told of the snapshot once it is durable.
    published: watch::Sender<u64>,
}

impl SnapshotWriter {
    pub(super) async fn begin(
        journal: &Path,
        cluster: &str,
        seq: u64,
        published: watch::Sender<u64>,
    ) -> Result<Self, StoreError> {
        Ok(Self { file: sqlite::snapshot::Writer::begin(journal, cluster, seq).await?, seq, published })
    }

    /// Adds a piece. Pieces of some ten to hundred kilobytes are best.
    ///
    /// # Errors
    /// What the disk refuses; the snapshot is then lost, the journal is not.
    pub async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        self.file.chunk(kind, body).await
    }

    /// Makes the snapshot durable and lets compaction delete what it covers. Older snapshots are deleted.
    ///
    /// # Errors
    /// What the disk refuses; the snapshot is then lost, the journal is not.
    pub async fn finish(self) -> Result<(), StoreError> {
        self.file.finish().await?;
        self.published.send_if_modified(|last| {
            let newer = self.seq > *last;
            *last = (*last).max(self.seq);
            newer
        });
        Ok(())
    }
}
