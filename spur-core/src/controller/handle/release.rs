//! Let held jobs go.

use super::super::{Ctx, Reject, Reply};
use super::{Sorted, jobs_reply, owned, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Hold, Phase};

/// Releasing a job that is not held does nothing, as with Slurm.
pub(super) fn check(cluster: &Cluster, caller: &Caller, jobs: &[JobId]) -> Sorted<JobId> {
    sort_whole(cluster, jobs, |id| match &owned(cluster, caller, id)?.phase {
        Phase::Pending(pending) if pending.hold == Some(Hold::Admin) && !caller.operator => {
            Err(Reject::AccessDenied)
        }
        Phase::Pending(_) => Ok(id),
        Phase::Running { .. } => Err(Reject::NotPending),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<JobId>) -> Reply {
    for job in decision.doable {
        ctx.emit(Event::JobReleased { job });
    }
    jobs_reply(decision.problems)
}
