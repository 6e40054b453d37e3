//! End jobs and let them wait again.

use super::super::{Ctx, Reject, Reply, ending};
use super::{Sorted, jobs_reply, owned, sort, whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Hold, Phase, Then};
use crate::model::reason::Reason;

/// What requeueing means for one job.
pub(super) enum Decision {
    Running(JobId, Option<Hold>),
    /// It waits already, with its components if it has any, and is only to be held.
    Pending(JobId, Hold),
}

/// A job that has ended keeps its record: it is submitted anew, not started again.
pub(super) fn check(cluster: &Cluster, caller: &Caller, jobs: &[JobId], hold: bool) -> Sorted<Decision> {
    let by = if caller.operator { Hold::Admin } else { Hold::User };
    let of_leaders = |id: &JobId| !cluster.job(*id).is_some_and(|job| job.spec.is_follower());
    let Sorted { doable, problems } = whole(cluster, jobs);
    let leaders: Vec<JobId> = doable.into_iter().filter(of_leaders).collect();
    let mut sorted = sort(&leaders, |id| {
        let job = owned(cluster, caller, id)?;
        match &job.phase {
            Phase::Pending(_) if hold => Ok(Decision::Pending(id, by)),
            Phase::Pending(_) => Err(Reject::Pending),
            Phase::Running { .. } if !job.spec.requeue || job.spec.batch.is_none() => {
                Err(Reject::NotRequeueable)
            }
            Phase::Running { .. } => Ok(Decision::Running(id, hold.then_some(by))),
            Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
        }
    });
    sorted.problems.splice(0..0, problems);
    sorted
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Decision>) -> Reply {
    for job in decision.doable {
        match job {
            Decision::Running(id, hold) => {
                let outcome = ending::outcome(EndState::Cancelled, Reason::None);
                ending::begin(ctx, id, outcome, Then::Requeue { hold });
            }
            Decision::Pending(job, by) => {
                for job in ctx.cluster().jobs().components(job) {
                    ctx.emit(Event::JobHeld { job, by });
                }
            }
        }
    }
    jobs_reply(decision.problems)
}
