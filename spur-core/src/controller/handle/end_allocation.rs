//! End of an allocation without a batch script: its command has ended, or is gone.

use super::super::{Ctx, Reject, Reply, ending};
use super::owned;
use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Outcome, Phase, Then};
use crate::model::reason::Reason;
use crate::text::exit::ExitCode;

pub(super) struct Decision {
    job: JobId,
    outcome: Outcome,
}

/// Decides how an allocation ends. A job that has not started is cancelled by its user; one that is ending is
/// refused.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    id: JobId,
    exit: ExitCode,
) -> Result<Decision, Reject> {
    let job = owned(cluster, caller, id)?;
    if job.spec.batch.is_some() {
        let problem = format!("job {id} has a batch script, with which it ends; cancel it with scancel");
        return Err(Reject::Invalid(problem));
    }
    let outcome = match &job.phase {
        Phase::Pending(_) => {
            let by = Some(caller.owner.uid);
            Outcome { by, ..ending::outcome(EndState::Cancelled, Reason::None) }
        }
        Phase::Running { .. } | Phase::Suspended(_) => {
            ending::ended_with(exit, exit == ExitCode::OUT_OF_MEMORY)
        }
        Phase::Completing(_) | Phase::Ended(_) => return Err(Reject::AlreadyDone),
    };
    Ok(Decision { job: id, outcome })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    end(ctx, decision.job, decision.outcome);
    Reply::Done
}

/// The jobs among `ids` that still need a command to hold them. A job with a node that has not reported to a
/// new controller is left out, as it may have ended.
pub(super) fn check_inactive(cluster: &Cluster, ids: &[JobId]) -> Result<Vec<JobId>, Reject> {
    let held = |id: &&JobId| {
        cluster.job(**id).is_some_and(|job| {
            let over = matches!(job.phase, Phase::Completing(_) | Phase::Ended(_));
            job.spec.needs_client() && !over && !cluster.awaits_report(job.id)
        })
    };
    let gone: Vec<JobId> = ids.iter().filter(held).copied().collect();
    if !gone.is_empty() {
        return Ok(gone);
    }
    let awaited = ids.iter().any(|id| cluster.awaits_report(*id));
    let why = if awaited { "their nodes have not reported" } else { "they have ended" };
    Err(Reject::Stale(why.to_owned()))
}

pub(super) fn enact_inactive(ctx: &mut Ctx<'_>, gone: Vec<JobId>) -> Reply {
    for job in gone {
        let pending = ctx.cluster().job(job).is_some_and(|job| matches!(job.phase, Phase::Pending(_)));
        let state = if pending { EndState::Cancelled } else { EndState::Timeout };
        end(ctx, job, ending::outcome(state, Reason::InactiveLimit));
    }
    Reply::Done
}

fn end(ctx: &mut Ctx<'_>, job: JobId, outcome: Outcome) {
    ending::end_pending(ctx, job, outcome.clone());
    ending::begin(ctx, job, outcome, Then::End);
}
