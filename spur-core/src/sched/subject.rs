//! The job that a planner is planning, for code that must know on which job it failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::id::JobId;

/// The job being planned. Clones share one value.
#[derive(Clone, Debug, Default)]
pub struct Subject(Arc<AtomicU32>);

impl Subject {
    /// Records the job that is planned from now on.
    pub fn set(&self, job: JobId) {
        self.0.store(job.0, Ordering::Relaxed);
    }

    /// Records that no job is being planned.
    pub fn clear(&self) {
        self.set(JobId(0));
    }

    /// The job being planned, if any.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        // Job ids begin at 1.
        Some(JobId(self.0.load(Ordering::Relaxed))).filter(|job| job.0 != 0)
    }
}
