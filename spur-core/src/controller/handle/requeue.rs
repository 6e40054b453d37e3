//! End jobs and let them wait again.

use super::super::{Ctx, Reject, Reply, ending};
use super::target::{Sorted, components, sort};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Hold, Phase, Then};
use crate::model::reason::Reason;
use crate::text::jobid::JobRef;

/// What requeueing means for one job.
pub(super) enum Decision {
    Running(Option<Hold>),
    /// It waits already, with its components if it has any, and is only to be held.
    Pending(Hold),
}

/// A job that has ended keeps its record: it is submitted anew, not started again.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
    hold: bool,
) -> Sorted<Decision> {
    let by = if caller.operator { Hold::Admin } else { Hold::User };
    let (mut leaders, problems) = components(cluster, jobs);
    leaders.retain(|named| !cluster.job(named.job).is_some_and(|job| job.spec.is_follower()));
    let mut sorted = sort(cluster, caller, &leaders, |job| match &job.phase {
        Phase::Pending(_) if hold => Ok(Decision::Pending(by)),
        Phase::Pending(_) => Err(Reject::Pending),
        Phase::Running { .. } | Phase::Suspended(_) if !job.spec.requeue || job.spec.batch.is_none() => {
            Err(Reject::NotRequeueable)
        }
        Phase::Running { .. } => Ok(Decision::Running(hold.then_some(by))),
        // As with Slurm, one that was suspended is held.
        Phase::Suspended(_) => Ok(Decision::Running(Some(by))),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    });
    sorted.problems.splice(0..0, problems);
    sorted
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Decision>) -> Reply {
    for (target, decision) in decision.doable {
        let job = target.single_out(ctx);
        match decision {
            Decision::Running(hold) => {
                let outcome = ending::outcome(EndState::Cancelled, Reason::None);
                ending::begin(ctx, job, outcome, Then::Requeue { hold });
            }
            Decision::Pending(by) => {
                for job in ctx.cluster().jobs().components(job) {
                    ctx.emit(Event::JobHeld { job, by });
                }
            }
        }
    }
    Sorted::<Decision>::reply(decision.problems)
}
