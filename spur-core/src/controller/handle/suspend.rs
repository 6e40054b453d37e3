//! Suspend jobs, and let them go on: whole jobs, all components of a het job, all tasks of an array that run.
//!
//! A suspended job keeps memory and devices. It goes on when its CPUs are free, never beside others on the same ones.

use super::super::{Ctx, Reject, Reply, recall};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Phase, Suspended};
use crate::text::jobid::JobRef;

/// It can be done.
pub(super) struct Doable;

/// Suspending a job that is suspended already is nothing new, but for one that made way: it then waits for an operator.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
) -> Result<Sorted<Doable>, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    Ok(sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Running { .. } | Phase::Suspended(_) => Ok(Doable),
        Phase::Pending(_) => Err(Reject::Pending),
        Phase::Completing(_) => Err(Reject::Ending),
        Phase::Ended(_) => Err(Reject::AlreadyDone),
    }))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Doable>) -> Reply {
    for (target, Doable) in decision.doable {
        let job = target.single_out(ctx);
        let waits = |phase: &Phase| matches!(phase, Phase::Suspended(Suspended { wanted: None, .. }));
        if !ctx.cluster().job(job).is_some_and(|job| waits(&job.phase)) {
            ctx.emit(Event::JobSuspended { job, wanted: false });
        }
    }
    Sorted::<Doable>::reply(decision.problems)
}

pub(super) fn check_resume(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
) -> Result<Sorted<Doable>, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    Ok(sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Suspended(_) => Ok(Doable),
        Phase::Pending(_) => Err(Reject::Pending),
        Phase::Running { .. } | Phase::Completing(_) => Err(Reject::NotSuspended),
        Phase::Ended(_) => Err(Reject::AlreadyDone),
    }))
}

/// Whoever has to wait for CPUs is told so.
pub(super) fn enact_resume(ctx: &mut Ctx<'_>, decision: Sorted<Doable>) -> Reply {
    let mut recalled = Vec::new();
    for (target, Doable) in decision.doable {
        let job = target.single_out(ctx);
        let waits = |phase: &Phase| matches!(phase, Phase::Suspended(Suspended { wanted: None, .. }));
        if ctx.cluster().job(job).is_some_and(|job| waits(&job.phase)) {
            ctx.emit(Event::JobRecalled { job });
        }
        recalled.push(job);
    }
    recall::settle(ctx);
    let waits = |id: &JobId| {
        let job = ctx.cluster().job(*id)?;
        matches!(job.phase, Phase::Suspended(_)).then(|| recall::obstacle(ctx.cluster(), job, ctx.now()))
    };
    let told = recalled.iter().filter_map(|id| Some((id, waits(id)?)));
    let warnings = told.map(|(id, why)| format!("job {id} goes on as soon as it can: {why}")).collect();
    Reply::Jobs { problems: decision.problems, warnings }
}
