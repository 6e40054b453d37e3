//! Scripts and environments of batch jobs: encoding, numbering, and a cache of the latest ones.
//!
//! A job's script and environment are one blob: the script, which has no NUL, a NUL, and the environment.
//! Both ids in the job's record are then equal; older records have two ids, each of a blob of its own. The
//! blob's number follows from the job's number. The blob is written with the job's submission and released
//! with the entry that forgets the job. Most jobs start soon after their submission, so that the launch
//! finds the blob in the cache. For other jobs the blob is read before the start is decided, so that a
//! launch does not depend on the database.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use spur_core::id::{BlobId, JobId};
use spur_core::model::job::Batch;
use spur_proto::convert::spec::Payload;

use crate::store::{Journal, StoreError};

/// Capacity of the cache, in bytes.
const KEPT_BYTES: usize = 8 << 20;
/// Capacity of the cache of blobs that were read for a start, in bytes.
const FETCHED_BYTES: usize = 32 << 20;
/// Estimated memory of a cached blob besides its content, in bytes.
const OVERHEAD_BYTES: usize = 128;

/// Returns the number of the blob that holds a job's script and environment.
pub(crate) fn payload_of(job: JobId) -> BlobId {
    BlobId(u64::from(job.0) * 2)
}

/// Returns the numbers of all blobs that a job may own. In records of earlier releases the second holds the
/// environment.
pub(crate) fn all_of(job: JobId) -> [BlobId; 2] {
    let payload = payload_of(job);
    [payload, BlobId(payload.0 + 1)]
}

/// Joins script and environment into one blob.
///
/// The blob is a copy: a slice would keep the whole network buffer in memory for as long as the blob lives.
pub(crate) fn join(payload: &Payload) -> Bytes {
    [&payload.script[..], &payload.environment[..]].join(&0).into()
}

/// Splits a blob into script and environment.
fn split(blob: &Bytes) -> Payload {
    let end = blob.iter().position(|byte| *byte == 0).unwrap_or(blob.len());
    Payload { script: blob.slice(..end), environment: blob.slice(blob.len().min(end + 1)..) }
}

/// Reads blobs, the latest ones from a cache. Clones share the cache.
#[derive(Clone)]
pub struct Blobs {
    journal: Journal,
    recent: Arc<Mutex<Recent>>,
}

#[derive(Default)]
struct Recent {
    /// Cached blobs, ascending by number, as jobs are numbered.
    bodies: VecDeque<(BlobId, Bytes)>,
    bytes: usize,
    /// Blobs that were read from the journal for a start.
    fetched: BTreeMap<BlobId, Bytes>,
    fetched_bytes: usize,
}

/// The wait of a read while the database is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    None,
    UntilItIsBack,
}

impl Blobs {
    /// Returns a reader of the journal's blobs with an empty cache.
    pub fn new(journal: Journal) -> Self {
        Self { journal, recent: Arc::default() }
    }

    /// Puts a blob in the cache, which may drop it at any time; the journal keeps the content.
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

    /// True if a batch job's script and environment are in memory.
    pub(crate) fn has(&self, batch: &Batch) -> bool {
        self.kept(batch.script).is_some() && self.kept(batch.environment).is_some()
    }

    /// Reads a batch job's script and environment into memory; waits while the database is away. After
    /// another error, the launch reads them again.
    pub(crate) async fn fetch(&self, batch: &Batch) {
        for id in [batch.script, batch.environment] {
            if self.kept(id).is_none()
                && let Ok(Some(body)) = self.journal.blob_when_possible(id.0).await
            {
                self.keep_fetched(id, body.into());
            }
        }
    }

    fn keep_fetched(&self, id: BlobId, body: Bytes) {
        let mut recent = self.recent();
        recent.fetched_bytes += body.len() + OVERHEAD_BYTES;
        if let Some(before) = recent.fetched.insert(id, body) {
            recent.fetched_bytes -= before.len() + OVERHEAD_BYTES;
        }
        while recent.fetched_bytes > FETCHED_BYTES {
            let Some((_, oldest)) = recent.fetched.pop_first() else { break };
            recent.fetched_bytes -= oldest.len() + OVERHEAD_BYTES;
        }
    }

    /// Returns a batch job's script and environment; `None` if the journal has deleted them.
    ///
    /// # Errors
    /// Fails if the journal's database cannot be read.
    pub async fn payload(&self, batch: &Batch) -> Result<Option<Payload>, StoreError> {
        self.payload_by(batch, Patience::None).await
    }

    /// Returns a batch job's script and environment as [`Blobs::payload`] does, but waits while the
    /// database is away.
    ///
    /// # Errors
    /// Fails if the journal's database refuses for another reason than being away.
    pub(crate) async fn payload_when_possible(&self, batch: &Batch) -> Result<Option<Payload>, StoreError> {
        self.payload_by(batch, Patience::UntilItIsBack).await
    }

    async fn payload_by(&self, batch: &Batch, patience: Patience) -> Result<Option<Payload>, StoreError> {
        let first = self.read(batch.script, patience).await?;
        if batch.script == batch.environment {
            return Ok(first.as_ref().map(split));
        }
        let environment = self.read(batch.environment, patience).await?;
        Ok(first.zip(environment).map(|(script, environment)| Payload { script, environment }))
    }

    async fn read(&self, id: BlobId, patience: Patience) -> Result<Option<Bytes>, StoreError> {
        if let Some(body) = self.kept(id) {
            return Ok(Some(body));
        }
        let body = match patience {
            Patience::None => self.journal.blob(id.0).await?,
            Patience::UntilItIsBack => self.journal.blob_when_possible(id.0).await?,
        };
        Ok(body.map(Bytes::from))
    }

    /// Returns a blob from memory; `None` if the blob is not there.
    fn kept(&self, id: BlobId) -> Option<Bytes> {
        let recent = self.recent();
        let at = recent.bodies.binary_search_by_key(&id, |(id, _)| *id);
        at.ok().map(|at| &recent.bodies[at].1).or_else(|| recent.fetched.get(&id)).cloned()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use spur_proto::convert::spec;
    use spur_proto::v1;

    use super::*;
    use crate::store::{self, Blob};

    fn payload(script: &'static str, environment: &'static str) -> Payload {
        Payload { script: script.into(), environment: environment.into() }
    }

    fn batch(script: BlobId, environment: BlobId) -> Batch {
        let wire = v1::Batch { script: "#!".into(), work_dir: "/".into(), ..v1::Batch::default() };
        let wire = v1::JobSpec { batch: Some(wire), ..v1::JobSpec::default() };
        let (submission, _) = spec::submission(wire).unwrap();
        Batch { script, environment, ..*submission.spec.batch.unwrap() }
    }

    #[test]
    fn script_and_environment_come_apart_as_they_were() {
        for (script, environment) in [("#!/bin/sh\n", "A=1\0B=\0"), ("#!/bin/sh\n", ""), ("#!x", "A=\0")] {
            let payload = payload(script, environment);
            assert_eq!(split(&join(&payload)), payload);
        }
    }

    #[tokio::test]
    async fn what_a_job_carries_is_found_in_one_blob_and_in_two() {
        let directory = std::env::temp_dir().join(format!("spurctld-blobs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (journal, _) = Journal::open(&directory.join("spur.db")).await.unwrap();
        let carried = payload("#!/bin/sh\n", "A=1\0");
        let ([old, second], new) = (all_of(JobId(1)), payload_of(JobId(2)));
        let bodies =
            [(old, carried.script.clone()), (second, carried.environment.clone()), (new, join(&carried))];
        let blobs = bodies.map(|(id, body)| Blob { id: id.0, body });
        journal.commit(store::Batch { blobs: blobs.into(), ..store::Batch::default() }).await.unwrap();
        let blobs = Blobs::new(journal);
        for (script, environment) in [(old, second), (new, new)] {
            assert_eq!(blobs.payload(&batch(script, environment)).await.unwrap().as_ref(), Some(&carried));
        }
        // A blob that was read for a start is returned without the journal.
        for (script, environment) in [(old, second), (new, new)] {
            let batch = batch(script, environment);
            assert!(!blobs.has(&batch));
            blobs.fetch(&batch).await;
            assert!(blobs.has(&batch));
            assert_eq!(blobs.payload_when_possible(&batch).await.unwrap().as_ref(), Some(&carried));
        }
        let gone = payload_of(JobId(3));
        assert_eq!(blobs.payload(&batch(gone, gone)).await.unwrap(), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
