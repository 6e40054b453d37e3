//! Requeueing of jobs that run or have ended.

use super::super::{Ctx, Reject, Reply, ending};
use super::target::{Sorted, components, sort};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Hold, Phase, Then};
use crate::model::reason::Reason;
use crate::text::jobid::JobRef;

/// The effect of requeueing on one job.
pub(super) enum Decision {
    Running(Option<Hold>),
    /// The job has ended, or is ending.
    Over(Option<Hold>),
    /// The job is pending, with its components if it has any, and is only held.
    Pending(Hold),
}

/// Decides on requeues. A job that has ended can be requeued while its record is in memory.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
    hold: bool,
) -> Sorted<Decision> {
    let by = if caller.is_operator() { Hold::Admin } else { Hold::User };
    let (mut leaders, problems) = components(cluster, jobs);
    leaders.retain(|named| !cluster.job(named.job).is_some_and(|job| job.spec.is_follower()));
    let mut sorted = sort(cluster, caller, &leaders, |job| match &job.phase {
        Phase::Pending(_) if hold => Ok(Decision::Pending(by)),
        Phase::Pending(_) => Err(Reject::Pending),
        _ if !job.spec.requeue || job.spec.batch.is_none() => Err(Reject::NotRequeueable),
        Phase::Running { .. } => Ok(Decision::Running(hold.then_some(by))),
        // As in Slurm, a suspended job is held after the requeue.
        Phase::Suspended(_) => Ok(Decision::Running(Some(by))),
        Phase::Completing(_) | Phase::Ended(_) => Ok(Decision::Over(hold.then_some(by))),
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
            Decision::Over(hold) => again(ctx, job, hold),
            Decision::Pending(by) => {
                for job in ctx.cluster().jobs().components(job) {
                    ctx.emit(Event::JobHeld { job, by });
                }
            }
        }
    }
    Sorted::<Decision>::reply(decision.problems)
}

/// Requeues a job that has ended, with its components. Components that are still ending are requeued when
/// that is over.
fn again(ctx: &mut Ctx<'_>, job: JobId, hold: Option<Hold>) {
    for id in ctx.cluster().jobs().components(job) {
        match ctx.cluster().job(id).map(|job| &job.phase) {
            Some(Phase::Ended(_)) => ending::requeue(ctx, id, hold),
            Some(Phase::Completing(completing)) => {
                let before = match completing.then {
                    Then::Requeue { hold } => hold,
                    Then::End => None,
                };
                let then = Then::Requeue { hold: hold.or(before) };
                let (outcome, kill_at) = (completing.outcome.clone(), completing.kill_at);
                ctx.emit(Event::JobEnding { job: id, outcome, then, kill_at, epilog: false, seen: None });
            }
            Some(Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_)) | None => {}
        }
    }
}
