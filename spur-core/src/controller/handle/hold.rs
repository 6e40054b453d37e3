//! Hold pending jobs back.

use super::super::{Ctx, Reject, Reply};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Hold, Phase};
use crate::text::jobid::JobRef;

/// An operator's hold is one that only operators release, unless it is asked for as the user's (`uhold`).
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
    by_user: bool,
) -> Sorted<Hold> {
    let by = if by_user || !caller.operator { Hold::User } else { Hold::Admin };
    sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Pending(pending) if pending.hold == Some(Hold::Admin) => Ok(Hold::Admin),
        Phase::Pending(_) => Ok(by),
        Phase::Running { .. } | Phase::Suspended(_) => Err(Reject::NotPending),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Hold>) -> Reply {
    for (target, by) in decision.doable {
        let job = target.single_out(ctx);
        ctx.emit(Event::JobHeld { job, by });
    }
    Sorted::<Hold>::reply(decision.problems)
}
