//! Hold pending jobs back.

use super::super::{Ctx, Reject, Reply};
use super::{Sorted, jobs_reply, owned, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Hold, Phase};

/// An operator's hold is one that only operators release, unless it is asked for as the user's (`uhold`).
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobId],
    by_user: bool,
) -> Sorted<(JobId, Hold)> {
    sort_whole(cluster, jobs, |id| {
        let job = owned(cluster, caller, id)?;
        let by = if by_user || !caller.operator { Hold::User } else { Hold::Admin };
        match &job.phase {
            Phase::Pending(pending) if pending.hold == Some(Hold::Admin) => Ok((id, Hold::Admin)),
            Phase::Pending(_) => Ok((id, by)),
            Phase::Running { .. } => Err(Reject::NotPending),
            Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
        }
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<(JobId, Hold)>) -> Reply {
    for (job, by) in decision.doable {
        ctx.emit(Event::JobHeld { job, by });
    }
    jobs_reply(decision.problems)
}
