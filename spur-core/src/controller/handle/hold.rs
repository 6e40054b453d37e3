//! Holding of pending jobs.

use super::super::{Ctx, Reject, Reply};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Hold, Phase};
use crate::text::jobid::JobRef;

/// Decides on holds. The hold of an operator can only be released by operators, unless it is made as the
/// user's (`uhold`).
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
    by_user: bool,
) -> Sorted<Hold> {
    let by = if by_user || !caller.is_operator() { Hold::User } else { Hold::Admin };
    sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Pending(pending) => Ok(pending.hold.filter(|hold| hold.is_operators()).unwrap_or(by)),
        Phase::Running { .. } | Phase::Suspended(_) => Err(Reject::NotPending),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

/// The pending components of a job that cannot be planned, which are to be held.
pub(super) fn check_failed(cluster: &Cluster, job: JobId) -> Result<Vec<JobId>, Reject> {
    let mut jobs = cluster.jobs().components(job);
    jobs.retain(|job| {
        cluster
            .job(*job)
            .is_some_and(|job| matches!(&job.phase, Phase::Pending(pending) if pending.hold.is_none()))
    });
    match jobs.is_empty() {
        true => Err(Reject::Stale(format!("job {job} does not wait any more"))),
        false => Ok(jobs),
    }
}

pub(super) fn enact_failed(ctx: &mut Ctx<'_>, jobs: Vec<JobId>) -> Reply {
    for job in jobs {
        ctx.emit(Event::JobHeld { job, by: Hold::Fault });
    }
    Reply::Done
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Hold>) -> Reply {
    for (target, by) in decision.doable {
        let job = target.single_out(ctx);
        ctx.emit(Event::JobHeld { job, by });
    }
    Sorted::<Hold>::reply(decision.problems)
}
