//! Change what a job asks for. The changed request is judged like a new one.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::{jobs_reply, owned, submit};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::change::JobChange;
use crate::model::job::JobSpec;
use crate::model::phase::{Hold, Phase};
use crate::text::time::{Time, TimeLimit};

pub(super) struct Decision {
    job: JobId,
    spec: Arc<JobSpec>,
    /// Setting a priority of 0 holds a job and any other releases it, as with Slurm.
    hold: Option<bool>,
    by: Hold,
    warnings: Vec<String>,
}

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    id: JobId,
    changes: &[JobChange],
) -> Result<Decision, Reject> {
    let job = owned(cluster, caller, id)?;
    let pending = match &job.phase {
        Phase::Pending(pending) => Some(pending),
        Phase::Running { .. } => None,
        Phase::Completing(_) | Phase::Ended(_) => return Err(Reject::AlreadyDone),
    };
    if pending.is_none() && changes.iter().any(|change| !change.fits_running()) {
        return Err(Reject::NotPending);
    }
    let mut spec = JobSpec::clone(&job.spec);
    let mut hold = None;
    for change in changes {
        if let JobChange::Priority(priority) = change {
            hold = pending.map(|_| *priority == 0);
            if *priority == 0 {
                continue;
            }
        }
        change.make(&mut spec);
    }
    if !caller.operator {
        let longer = longer(spec.time_limit, job.spec.time_limit);
        let raised = spec.nice < job.spec.nice || spec.priority > job.spec.priority;
        let released =
            hold == Some(false) && pending.is_some_and(|pending| pending.hold == Some(Hold::Admin));
        if (longer && pending.is_none()) || raised || released {
            return Err(Reject::AccessDenied);
        }
    }
    let warnings = match pending {
        Some(_) => submit::judge(cluster, now, &spec)?,
        None => Vec::new(),
    };
    let by = if caller.operator { Hold::Admin } else { Hold::User };
    Ok(Decision { job: id, spec: Arc::new(spec), hold, by, warnings })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { job, spec, hold, by, warnings } = decision;
    ctx.emit(Event::JobUpdated { job, spec });
    match hold {
        Some(true) => ctx.emit(Event::JobHeld { job, by }),
        Some(false) => ctx.emit(Event::JobReleased { job }),
        None => {}
    }
    match jobs_reply(Vec::new()) {
        Reply::Jobs { problems, .. } => Reply::Jobs { problems, warnings },
        other => other,
    }
}

fn longer(new: TimeLimit, old: TimeLimit) -> bool {
    new > old
}
