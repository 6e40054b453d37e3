//! Step requests that wait for other steps of their job to end.

use std::collections::BTreeMap;

use spur_core::id::JobId;

use crate::inbox::Ask;

/// Waiting requests by job, in the order of their arrival.
#[derive(Default)]
pub(super) struct WaitingSteps {
    jobs: BTreeMap<JobId, Vec<Ask>>,
}

impl WaitingSteps {
    /// Lets a request wait. A repetition takes the place of the earlier request.
    pub(super) fn park(&mut self, ask: Ask) {
        let Some(job) = ask.step_of() else { return };
        let waiting = self.jobs.entry(job).or_default();
        let name = ask.request();
        waiting.retain(|other| !other.is_given_up() && (name.is_none() || other.request() != name));
        waiting.push(ask);
    }

    /// Takes the requests that wait for a job and whose clients are still there.
    pub(super) fn take(&mut self, job: JobId) -> Vec<Ask> {
        let mut waiting = self.jobs.remove(&job).unwrap_or_default();
        waiting.retain(|ask| !ask.is_given_up());
        waiting
    }
}
