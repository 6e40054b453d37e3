//! Waiting for jobs: receives their states from the controller, also across its restarts.

use std::collections::BTreeMap;

use spur_proto::client::CallError;
use spur_proto::v1::{Job, WatchJobsRequest};

use crate::session::Session;

/// Long names of the final states.
const FINAL: &[&str] = &[
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
];

/// True if the state is final.
pub fn is_final(state: &str) -> bool {
    FINAL.contains(&state)
}

/// Last known state of each job, by number.
pub type Jobs = BTreeMap<u32, Job>;

/// Waits until all jobs have ended. Returns the last known state of each job and, for arrays, of their tasks.
///
/// # Errors
/// A refusal by the controller, e.g. of an unknown job.
pub async fn until_ended(session: &mut Session, job_ids: Vec<u32>) -> anyhow::Result<Jobs> {
    until(session, job_ids, |_, _| false).await
}

/// Waits until `wanted` returns true or all jobs have ended; `wanted` is called at every change, with the
/// changed job. Waits for a controller that is away.
///
/// # Errors
/// A refusal by the controller, e.g. of an unknown job.
pub async fn until(
    session: &mut Session,
    job_ids: Vec<u32>,
    mut wanted: impl FnMut(&Jobs, &Job) -> bool,
) -> anyhow::Result<Jobs> {
    let request = WatchJobsRequest { job_ids };
    let mut jobs = Jobs::new();
    let mut told = false;
    loop {
        match follow(session, &request, &mut jobs, &mut wanted).await {
            Ok(()) => return Ok(jobs),
            Err(error) => {
                if !error.downcast_ref::<CallError>().is_some_and(CallError::is_transient) {
                    return Err(error);
                }
                if !told {
                    session.warn(&format!("{error}; waiting for it"));
                    told = true;
                }
            }
        }
    }
}

/// Follows one stream to its end, or until `wanted` returns true.
async fn follow(
    session: &mut Session,
    request: &WatchJobsRequest,
    jobs: &mut Jobs,
    wanted: &mut impl FnMut(&Jobs, &Job) -> bool,
) -> anyhow::Result<()> {
    let connection = session.connection()?;
    let mut changes =
        connection.read(request.clone(), async |mut controller, r| controller.watch_jobs(r).await).await?;
    while let Some(change) = connection.next(&mut changes).await? {
        if let Some(job) = change.job {
            jobs.insert(job.id, job.clone());
            if wanted(jobs, &job) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the exit code of `sbatch --wait`: the highest of these jobs. A job that was ended by a signal or
/// never ran counts as 1.
pub fn exit_code(jobs: &Jobs) -> u8 {
    let code = |job: &Job| match (job.exit_code, job.exit_signal) {
        (0, 0) => u8::from(job.state != "COMPLETED"),
        (0, _) => 1,
        (code, _) => u8::try_from(code).unwrap_or(u8::MAX),
    };
    jobs.values().map(code).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_worst_of_the_jobs() {
        let job = |id, state: &str, exit_code, exit_signal| {
            (id, Job { id, state: state.into(), exit_code, exit_signal, ..Job::default() })
        };
        for (jobs, expected) in [
            (vec![job(1, "COMPLETED", 0, 0)], 0),
            (vec![job(1, "FAILED", 7, 0), job(2, "FAILED", 3, 0), job(3, "COMPLETED", 0, 0)], 7),
            (vec![job(1, "TIMEOUT", 0, 15)], 1),
            (vec![job(1, "CANCELLED", 0, 0)], 1),
            (vec![], 0),
        ] {
            assert_eq!(exit_code(&jobs.into_iter().collect()), expected);
        }
    }
}
