//! Snapshots: the whole state after one entry, so that recovery need not read earlier entries.

use tokio::sync::watch;

use super::backend::Reader;
use super::{StoreError, postgres, sqlite};

/// A chunk of a snapshot. The owner defines the kinds and their versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChunk {
    /// The kind of content.
    pub kind: String,
    /// The self-describing content.
    pub body: Vec<u8>,
}

/// A snapshot being written. It becomes valid with [`SnapshotWriter::finish`]; one that is dropped or
/// interrupted earlier leaves nothing behind.
pub struct SnapshotWriter {
    writer: Writer,
    seq: u64,
    /// Receives the entry of the snapshot once it is durable.
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

    /// Adds a chunk, best of some ten to hundred kilobytes.
    ///
    /// # Errors
    /// Fails if the disk or the database refuses; the snapshot is then lost, the journal is not.
    pub async fn chunk(&mut self, kind: &str, body: Vec<u8>) -> Result<(), StoreError> {
        match &mut self.writer {
            Writer::Sqlite(writer) => writer.chunk(kind, body).await,
            Writer::Postgres(writer) => writer.chunk(kind, body).await,
        }
    }

    /// Makes the snapshot durable, so that compaction may delete what it covers, and deletes older snapshots.
    ///
    /// # Errors
    /// Fails if the disk or the database refuses; the snapshot is then lost, the journal is not.
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
