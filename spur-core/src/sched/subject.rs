//! Which job a planner looks at, for whoever has to know what it failed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::id::JobId;

/// The job that is looked at. Clones name the same.
#[derive(Clone, Debug, Default)]
pub struct Subject(Arc<AtomicU32>);

impl Subject {
    /// Names the job that is looked at from now on.
    pub fn set(&self, job: JobId) {
        self.0.store(job.0, Ordering::Relaxed);
    }

    /// No job is looked at.
    pub fn clear(&self) {
        self.set(JobId(0));
    }

    /// The job, if one is looked at.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        // Jobs are numbered from 1.
        Some(JobId(self.0.load(Ordering::Relaxed))).filter(|job| job.0 != 0)
    }
}
