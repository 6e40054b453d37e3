//! Change what a job asks for. The changed request is judged like a new one.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::{jobs_reply, owned, submit};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::change::{JobChange, Reach};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Hold, Phase};
use crate::text::time::{Time, TimeLimit};

pub(super) struct Decision {
    /// The changed requests: of one job, or of all components of a het job that a change is about.
    changed: Vec<(JobId, Arc<JobSpec>)>,
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
    let named = owned(cluster, caller, id)?;
    let by = if caller.operator { Hold::Admin } else { Hold::User };
    let Some(het) = named.spec.het.as_deref() else {
        let One { spec, hold, warnings } = one(cluster, now, caller, named, changes)?;
        return Ok(Decision { changed: vec![(id, spec)], hold, by, warnings });
    };
    if het.offset > 0 && changes.iter().any(|change| change.reach() == Reach::Whole) {
        return Err(Reject::NotWholeHetJob(*het));
    }
    let (mut specs, mut changed, mut hold, mut warnings) = (Vec::new(), Vec::new(), None, Vec::new());
    for component in cluster.jobs().components(id) {
        let job = owned(cluster, caller, component)?;
        let concerns =
            |change: &&JobChange| component == id || (het.offset == 0 && change.reach() != Reach::One);
        let own: Vec<JobChange> = changes.iter().filter(concerns).cloned().collect();
        if own.is_empty() {
            specs.push(Arc::clone(&job.spec));
            continue;
        }
        let offset = specs.len();
        let made = one(cluster, now, caller, job, &own).map_err(|reject| reject.of_component(offset))?;
        warnings.extend(made.warnings);
        hold = hold.or(made.hold);
        specs.push(Arc::clone(&made.spec));
        changed.push((component, made.spec));
    }
    if matches!(named.phase, Phase::Pending(_)) {
        warnings.extend(submit::together(cluster, &specs)?);
    }
    Ok(Decision { changed, hold, by, warnings })
}

/// What the changes of one job come to.
struct One {
    spec: Arc<JobSpec>,
    hold: Option<bool>,
    warnings: Vec<String>,
}

fn one(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    job: &Job,
    changes: &[JobChange],
) -> Result<One, Reject> {
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
    Ok(One { spec: Arc::new(spec), hold, warnings })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { changed, hold, by, warnings } = decision;
    for (job, spec) in changed {
        ctx.emit(Event::JobUpdated { job, spec });
        match hold {
            Some(true) => ctx.emit(Event::JobHeld { job, by }),
            Some(false) => ctx.emit(Event::JobReleased { job }),
            None => {}
        }
    }
    match jobs_reply(Vec::new()) {
        Reply::Jobs { problems, .. } => Reply::Jobs { problems, warnings },
        other => other,
    }
}

fn longer(new: TimeLimit, old: TimeLimit) -> bool {
    new > old
}
