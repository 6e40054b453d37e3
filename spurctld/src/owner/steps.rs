//! Step requests that wait for other steps of their job to end.

use std::collections::BTreeMap;

use spur_core::id::JobId;

use crate::inbox::Ask;

/// Requests by job, in the order in which they came.
#[derive(Default)]
pub(super) struct WaitingSteps {
    jobs: BTreeMap<JobId, Vec<Ask>>,
}

impl WaitingSteps {
    /// Lets a request wait. One that was made before and whose client asks again takes its own place.
    pub(super) fn park(&mut self, ask: Ask) {
        let Some(job) = ask.step_of() else { return };
        let waiting = self.jobs.entry(job).or_default();
        let name = ask.request();
        waiting.retain(|other| !other.is_given_up() && (name.is_none() || other.request() != name));
        waiting.push(ask);
    }

    /// Takes those out that wait for a job and whose clients are still there.
    pub(super) fn take(&mut self, job: JobId) -> Vec<Ask> {
        let mut waiting = self.jobs.remove(&job).unwrap_or_default();
        waiting.retain(|ask| !ask.is_given_up());
        waiting
    }
}
