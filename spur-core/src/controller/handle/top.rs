//! `scontrol top`: moves pending jobs before all others of the same user, partition, account and QOS.
//!
//! Nice values of these jobs fall by as much as those of the user's other jobs rise, so the user as a whole
//! gains nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::target::{Problems, Sorted, Target, sort};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::config::Order;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::Phase;
use crate::sched;
use crate::text::jobid::JobRef;
use crate::text::time::Time;

/// Largest absolute nice value, as in Slurm.
const MOST_NICE: i64 = 2_147_483_645;
/// A nice value at which no priority is cut off at its minimum, so that differences between priorities show.
const LIFT: i32 = -1_000_000_000;

pub(super) struct Decision {
    changes: Vec<(Target, Arc<JobSpec>)>,
    problems: Problems,
}

/// A pending job with its priority before cut-off, which may be below 1.
struct Ranked {
    target: Target,
    spec: Arc<JobSpec>,
    priority: i64,
}

/// Jobs that are only moved in relation to each other: uid, partition, account and QOS.
type Class = (u32, Arc<str>, Option<Arc<str>>, Option<Arc<str>>);

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    if cluster.policy().scheduler.order != Order::Multifactor {
        let text =
            "Requested operation is presently disabled: nice values count in the order multifactor only";
        return Err(Reject::Invalid(text.to_owned()));
    }
    let Sorted { doable, problems } = sort(cluster, caller, jobs, |job| {
        let class = admit(job)?;
        Ok((job.id, class, Arc::clone(&job.spec), priority(cluster, job, now)))
    });
    let mut classes: BTreeMap<Class, Vec<Ranked>> = BTreeMap::new();
    let mut whole = BTreeSet::new();
    for (target, (job, class, spec, priority)) in doable {
        if !target.is_part(cluster) {
            whole.insert(job);
        }
        classes.entry(class).or_default().push(Ranked { target, spec, priority });
    }
    let mut changes = Vec::new();
    for (class, tops) in classes {
        let others = cluster.jobs().pending().filter(|job| !whole.contains(&job.id));
        let others = others.filter(|job| admit(job).as_ref() == Ok(&class));
        let others: Vec<Ranked> = others
            .map(|job| Ranked {
                target: Target::task(job.id, None),
                spec: Arc::clone(&job.spec),
                priority: priority(cluster, job, now),
            })
            .collect();
        changes.extend(raise(tops, others));
    }
    Ok(Decision { changes, problems })
}

/// The class of a job that is pending and not held.
fn admit(job: &Job) -> Result<Class, Reject> {
    match &job.phase {
        Phase::Pending(pending) if pending.hold.is_some() => Err(Reject::Held),
        Phase::Pending(_) => match (&*job.spec.partitions, &job.spec.het) {
            ([partition], None) => {
                let spec = &job.spec;
                Ok((spec.owner.uid, Arc::clone(partition), spec.account.clone(), spec.qos.clone()))
            }
            _ => Err(Reject::Invalid(
                "Requested operation is presently disabled: it is for jobs of one partition and one component"
                    .to_owned(),
            )),
        },
        Phase::Running { .. } | Phase::Suspended(_) => Err(Reject::NotPending),
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    }
}

fn priority(cluster: &Cluster, job: &Job, now: Time) -> i64 {
    if let Some(fixed) = job.spec.priority {
        return i64::from(fixed);
    }
    let spec = JobSpec { nice: LIFT, ..JobSpec::clone(&job.spec) };
    let lifted = Job { spec: Arc::new(spec), ..job.clone() };
    let parts = sched::priorities(cluster, &lifted, now).into_iter().map(|part| part.priority).max();
    let lifted = parts.unwrap_or_else(|| sched::present_priority(cluster, &lifted, now));
    i64::from(lifted) + i64::from(LIFT) - i64::from(job.spec.nice)
}

/// Raises each of `tops` above the next, and the last above all others; the others together lose what these
/// gain.
fn raise(tops: Vec<Ranked>, others: Vec<Ranked>) -> Vec<(Target, Arc<JobSpec>)> {
    // Priorities below 1 count as 1.
    let mut floor = others.iter().map(|other| other.priority.max(1)).max().unwrap_or(i64::MIN);
    let (mut gained, mut changes) = (0, Vec::new());
    for top in tops.into_iter().rev() {
        let wanted = if top.priority > floor { top.priority } else { floor.saturating_add(1) };
        if wanted != top.priority {
            gained += wanted - top.priority;
            changes.push((top.target, moved(&top.spec, wanted - top.priority)));
        }
        floor = wanted.max(1);
    }
    let nicer: Vec<Ranked> = others.into_iter().filter(|other| other.spec.priority.is_none()).collect();
    let each = gained / i64::try_from(nicer.len()).unwrap_or(i64::MAX).max(1);
    if each > 0 {
        changes.extend(nicer.into_iter().map(|other| (other.target, moved(&other.spec, -each))));
    }
    changes
}

/// The request with its priority raised by `by`.
fn moved(spec: &JobSpec, by: i64) -> Arc<JobSpec> {
    let mut spec = spec.clone();
    match &mut spec.priority {
        Some(fixed) => {
            let raised = i64::from(*fixed) + by;
            *fixed = u32::try_from(raised.max(1)).unwrap_or(u32::MAX);
        }
        None => {
            let nice = (i64::from(spec.nice) - by).clamp(-MOST_NICE, MOST_NICE);
            spec.nice = i32::try_from(nice).unwrap_or(spec.nice);
        }
    }
    Arc::new(spec)
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    for (target, spec) in decision.changes {
        let job = target.single_out(ctx);
        ctx.emit(Event::JobUpdated { job, spec });
    }
    Sorted::<()>::reply(decision.problems)
}
