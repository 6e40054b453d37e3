//! Snapshots: the whole state after one entry, so that recovery need not read what came before.

use tokio::sync::watch;

use super::backend::Reader;
use super::{StoreError, postgres, sqlite};

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
    writer: Writer,
    seq: u64,
    /// Told of the snapshot once it is durable.
    published: watch::Sender<u64>,
}

enum Writer {
    Sqlite(sqlite::snapshot::Writer),
    Postgres(postgres::snapshot::Writer),
}

impl SnapshotWriter {
    pub(super) async fn begin(
        journal: &Reader,
        cluster: &str,
        epoch: u64,
        seq: u64,
        published: watch::Sender<u64>,
    ) -> Result<Self, StoreError> {
        let writer = match journal {
            Reader::Sqlite(reader) => {
                Writer::Sqlite(sqlite::snapshot::Writer::begin(reader.path(), cluster, seq).await?)
            }
            Reader::Postgres(reader) => {
                Writer::Postgres(postgres::snapshot::Writer::begin(reader, cluster, epoch, seq).await?)
            }
        };
        Ok(Self { writer, seq, published })
    }

    /// Adds a piece. Pieces of some ten to hundred kilobytes are best.
    ///
    /// # Errors
    /// What the disk or the database refuses; the snapshot is then lost, the journal is not.
    pub async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        match &mut self.writer {
            Writer::Sqlite(writer) => writer.chunk(kind, body).await,
            Writer::Postgres(writer) => writer.chunk(kind, body).await,
        }
    }

    /// Makes the snapshot durable and lets compaction delete what it covers. Older snapshots are deleted.
    ///
    /// # Errors
    /// What the disk or the database refuses; the snapshot is then lost, the journal is not.
    pub async fn finish(self) -> Result<(), StoreError> {
        match self.writer {
            Writer::Sqlite(writer) => writer.finish().await?,
            Writer::Postgres(writer) => writer.finish().await?,
        }
        self.published.send_if_modified(|last| {
            let newer = self.seq > *last;
            *last = (*last).max(self.seq);
            newer
        });
        Ok(())
    }
}
