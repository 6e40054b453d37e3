//! Release of held jobs.

use super::super::{Ctx, Reject, Reply};
use super::reservation;
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Hold, Phase};
use crate::text::jobid::JobRef;

/// True if the job is held, or waits for a reservation that does not exist.
pub(super) struct Held(bool);

/// Decides on releases. Releasing a job that is not held does nothing, as in Slurm.
pub(super) fn check(cluster: &Cluster, caller: &Caller, jobs: &[JobRef<JobId>]) -> Sorted<Held> {
    sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Pending(pending) if pending.hold.is_some_and(Hold::is_operators) && !caller.is_operator() => {
            Err(Reject::AccessDenied)
        }
        Phase::Pending(pending) => {
            let is_gone = |name: &str| cluster.reservation(name).is_none();
            Ok(Held(pending.hold.is_some() || job.spec.reservations().any(is_gone)))
        }
        Phase::Running { .. } | Phase::Suspended(_) => Err(Reject::NotPending),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Held>) -> Reply {
    for (target, Held(held)) in decision.doable {
        // A job that is not held keeps its waiting time, and tasks in one record stay together.
        if held {
            let job = target.single_out(ctx);
            reservation::forget_missing(ctx, job);
            let phase = ctx.cluster().job(job).map(|job| &job.phase);
            if matches!(phase, Some(Phase::Pending(pending)) if pending.hold.is_some()) {
                ctx.emit(Event::JobReleased { job });
            }
        }
    }
    Sorted::<Held>::reply(decision.problems)
}
