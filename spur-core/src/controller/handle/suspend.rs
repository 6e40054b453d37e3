//! Suspending and resuming of jobs, of all components of a het job, and of all running tasks of an array.
//!
//! A suspended job keeps memory and devices. It resumes when its CPUs are free, and never shares them.

use super::super::{Ctx, Reject, Reply, recall};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{Phase, Suspended};
use crate::text::jobid::JobRef;

/// The job can be suspended or resumed.
pub(super) struct Doable;

/// Decides on suspensions. Suspending a suspended job changes nothing, unless the job waits for its CPUs,
/// e.g. after a preemption: an operator must then resume it.
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

/// Resumes jobs; for each job that still waits for CPUs, a warning says why.
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
