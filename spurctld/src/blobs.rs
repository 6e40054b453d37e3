//! Scripts and environments: how they are numbered, and the few that were submitted last.
//!
//! A job's blobs are numbered by the job, so that they are found without being remembered: they are written with the
//! job's submission and released with the entry that forgets it. Most jobs that start at all start soon after they
//! were submitted; for these the launch needs no read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use spur_core::id::{BlobId, JobId};
use spur_core::model::job::Batch;
use spur_proto::convert::spec::Payload;

use crate::store::{Journal, StoreError};

/// How much of what was submitted last is kept in memory, in bytes.
const KEPT_BYTES: usize = 8 << 20;
/// What a blob costs beside its content, about.
const OVERHEAD_BYTES: usize = 128;

/// The number of a job's script.
pub(crate) fn script_of(job: JobId) -> BlobId {
    BlobId(u64::from(job.0) * 2)
}

/// The number of a job's environment.
pub(crate) fn environment_of(job: JobId) -> BlobId {
    BlobId(u64::from(job.0) * 2 + 1)
}

/// Reads blobs, the last ones from memory. Clones share it.
#[derive(Clone)]
pub struct Blobs {
    journal: Journal,
    recent: Arc<Mutex<Recent>>,
}

#[derive(Default)]
struct Recent {
    /// Ascending, as jobs are numbered.
    bodies: VecDeque<(BlobId, Bytes)>,
    bytes: usize,
}

impl Blobs {
    /// Blobs of that journal.
    pub fn new(journal: Journal) -> Self {
        Self { journal, recent: Arc::default() }
    }

    /// Keeps a blob at hand. The content is the journal's to keep; this may forget it at any time.
    pub(crate) fn remember(&self, id: BlobId, body: Bytes) {
        let mut recent = self.recent();
        if recent.bodies.back().is_some_and(|(last, _)| *last >= id) {
            return;
        }
        recent.bytes += body.len() + OVERHEAD_BYTES;
        recent.bodies.push_back((id, body));
        while recent.bytes > KEPT_BYTES {
            let Some((_, oldest)) = recent.bodies.pop_front() else { break };
            recent.bytes -= oldest.len() + OVERHEAD_BYTES;
        }
    }

    /// A blob; `None` if there is no such blob any more.
    ///
    /// # Errors
    /// What the journal's database refuses.
    pub async fn read(&self, id: BlobId) -> Result<Option<Bytes>, StoreError> {
        let kept = {
            let recent = self.recent();
            let at = recent.bodies.binary_search_by_key(&id, |(id, _)| *id);
            at.ok().map(|at| recent.bodies[at].1.clone())
        };
        match kept {
            Some(body) => Ok(Some(body)),
            None => Ok(self.journal.blob(id.0).await?.map(Bytes::from)),
        }
    }

    /// What a batch job carries; `None` if it is gone.
    ///
    /// # Errors
    /// What the journal's database refuses.
    pub async fn payload(&self, batch: &Batch) -> Result<Option<Payload>, StoreError> {
        let script = self.read(batch.script).await?;
        let environment = self.read(batch.environment).await?;
        Ok(script.zip(environment).map(|(script, environment)| Payload { script, environment }))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
