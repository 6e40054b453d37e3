//! Changes of a job's request. The changed request is judged like a new one.

use std::slice;
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, ending, tasks};
use super::target::{Sorted, Target, sort};
use super::{account, limits, owned, qos, submit, wckey};
use crate::cluster::{Cluster, Event, Loop};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::change::{JobChange, Reach};
use crate::model::config::Order;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Hold, Phase};
use crate::sched;
use crate::sched::feasible::Feasibility;
use crate::text::jobid::{JobPart, JobRef};
use crate::text::time::{Time, TimeLimit};

pub(super) struct Decision {
    changes: Vec<(Target, Changed)>,
    problems: Vec<(JobRef<JobId>, Reject)>,
    by: Hold,
}

/// The change of one record.
pub(super) struct Changed {
    spec: Arc<JobSpec>,
    /// True to hold the job, false to release it; `None` for neither. As in Slurm, priority 0 holds, any
    /// other releases.
    hold: Option<bool>,
    /// The checkpoint that its user reports with the change, if any.
    checkpoint: Option<Checkpointed>,
    warnings: Vec<String>,
}

/// A checkpoint that a user reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checkpointed {
    /// The request changes nothing else.
    Only,
    /// The request changes the job as well.
    Also,
}

/// Seconds that must pass between two checkpoints of one attempt, each of which is an entry of the journal.
const CHECKPOINT_PERIOD: u64 = 10;

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    named: &JobRef<JobId>,
    changes: &[JobChange],
) -> Result<Decision, Reject> {
    if let Some(job) = cluster.job(named.job).filter(|job| job.spec.het.is_some()) {
        return of_het_job(cluster, now, caller, feasibility, job, changes);
    }
    let throttles = changes.iter().any(|change| matches!(change, JobChange::ArrayTaskThrottle(_)));
    if throttles && named.part != JobPart::Whole {
        return Err(Reject::InvalidArray(format!(
            "ArrayTaskThrottle is of all its tasks together; write JobId={}",
            named.job
        )));
    }
    let ask = |job: &Job| changed(cluster, now, caller, feasibility, job, changes);
    let Sorted { doable, mut problems } = sort(cluster, caller, slice::from_ref(named), ask);
    if doable.is_empty() && !problems.is_empty() {
        return Err(problems.swap_remove(0).1);
    }
    let by = if caller.is_operator() { Hold::Admin } else { Hold::User };
    Ok(Decision { changes: shared(doable), problems, by })
}

/// The changes of those components of a het job that they apply to.
fn of_het_job(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    named: &Job,
    changes: &[JobChange],
) -> Result<Decision, Reject> {
    let by = if caller.is_operator() { Hold::Admin } else { Hold::User };
    let (id, follows) = (named.id, named.spec.is_follower());
    if let Some(het) = named.spec.het.as_deref().filter(|_| follows)
        && changes.iter().any(|change| change.reach() == Reach::Whole)
    {
        return Err(Reject::NotWholeHetJob(*het));
    }
    let (mut specs, mut made) = (Vec::new(), Vec::new());
    for component in cluster.jobs().components(id) {
        let job = owned(cluster, caller, component)?;
        let concerns = |change: &&JobChange| component == id || (!follows && change.reach() != Reach::One);
        let own: Vec<JobChange> = changes.iter().filter(concerns).cloned().collect();
        if own.is_empty() {
            specs.push(Arc::clone(&job.spec));
            continue;
        }
        let offset = specs.len();
        let new = changed(cluster, now, caller, feasibility, job, &own);
        let new = new.map_err(|reject| reject.of_component(offset))?;
        specs.push(Arc::clone(&new.spec));
        made.push((Target::task(component, None), new));
    }
    let hold = made.iter().find_map(|(_, new)| new.hold);
    made.iter_mut().for_each(|(_, new)| new.hold = hold);
    if let (Phase::Pending(_), Some((_, first))) = (&named.phase, made.first_mut()) {
        first.warnings.extend(submit::together(cluster, feasibility, &specs)?);
    }
    Ok(Decision { changes: made, problems: Vec::new(), by })
}

/// Replaces defaults of the old partitions in a job that moves, as Slurm does. Default memory becomes the
/// default of the new partitions; so does a default time limit that exceeds the maximum of all new
/// partitions.
fn defaults(cluster: &Cluster, job: &Job, spec: &mut JobSpec) {
    let of = |spec: &JobSpec| submit::partitions(cluster, spec).ok();
    let Some((before, after)) = of(&job.spec).zip(of(spec)) else { return };
    let had = job.spec.shape.memory;
    if spec.shape.memory == had && had == submit::default_memory(&before) && had.is_some() {
        spec.shape.memory = submit::default_memory(&after);
    }
    let longest = after.iter().map(|partition| partition.config.max_time).max();
    if spec.time_limit == job.spec.time_limit
        && spec.time_limit == submit::default_time(&before)
        && longest.is_some_and(|longest| spec.time_limit > longest)
    {
        spec.time_limit = submit::default_time(&after);
    }
}

/// The changed request of one record.
fn changed(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    job: &Job,
    changes: &[JobChange],
) -> Result<Changed, Reject> {
    let pending = match &job.phase {
        Phase::Pending(pending) => Some(pending),
        Phase::Running { .. } | Phase::Suspended(_) => None,
        Phase::Completing(_) | Phase::Ended(_) => return Err(Reject::AlreadyDone),
    };
    if pending.is_none() && changes.iter().any(|change| !change.fits_running()) {
        return Err(Reject::NotPending);
    }
    let checkpoint = checkpoint(cluster, now, job, changes)?;
    let mut spec = JobSpec::clone(&job.spec);
    let (mut hold, mut warnings) = (None, Vec::new());
    for change in changes {
        if let JobChange::Priority(priority) = change {
            hold = pending.map(|_| *priority == 0);
            if *priority == 0 {
                continue;
            }
            // As in Slurm, a change of priority releases no job.
            if pending.is_some_and(|pending| pending.hold.is_some()) {
                return Err(Reject::Held);
            }
            if !caller.is_operator()
                && let Some(nice) = as_nice(cluster, now, job, *priority)
            {
                spec.nice = nice;
                warnings.push(format!(
                    "its priority is lowered by Nice={nice}, and goes on changing with its age"
                ));
                continue;
            }
        }
        match change {
            JobChange::End(end) => spec.time_limit = until(now, job, *end)?,
            JobChange::AdminComment(_) if !caller.is_operator() => return Err(Reject::AccessDenied),
            _ => {}
        }
        if matches!(change, JobChange::ArrayTaskThrottle(_)) && job.array.is_none() {
            return Err(Reject::InvalidArray(format!("job {} is no job array", job.id)));
        }
        change.make(&mut spec);
    }
    requalify(cluster, caller, changes, &mut spec)?;
    if pending.is_some() && spec.partitions != job.spec.partitions {
        defaults(cluster, job, &mut spec);
    }
    if !caller.is_operator() {
        let longer = longer(spec.time_limit, job.spec.time_limit);
        // As in Slurm, an owner may undo an own raise of the nice value.
        let raised = spec.nice < job.spec.nice.min(0) || spec.priority > job.spec.priority;
        let released =
            hold == Some(false) && pending.and_then(|pending| pending.hold).is_some_and(Hold::is_operators);
        if (longer && pending.is_none()) || raised || released {
            return Err(Reject::AccessDenied);
        }
    }
    if pending.is_some() {
        if spec.dependency != job.spec.dependency {
            warnings.extend(submit::without_unknown(cluster, &mut spec));
            submit::dependency(cluster, &spec)?;
            cluster.check_loops(job, &spec).map_err(refusal)?;
        }
        let partitions = submit::partitions(cluster, &spec)?;
        warnings.extend(submit::share_memory(&mut spec.shape, &partitions));
        warnings.extend(submit::judge(cluster, now, caller, feasibility, &spec)?);
        if caller.is_operator() {
            exempt(&mut spec, changes);
        }
        warnings.extend(limits::check_changed(cluster, now, &spec, job)?);
    }
    Ok(Changed { spec: Arc::new(spec), hold, checkpoint, warnings })
}

/// The checkpoint that a change reports; `None` if no change reports one.
///
/// # Errors
/// The job does not run, or its last checkpoint is less than [`CHECKPOINT_PERIOD`] old.
fn checkpoint(
    cluster: &Cluster,
    now: Time,
    job: &Job,
    changes: &[JobChange],
) -> Result<Option<Checkpointed>, Reject> {
    if !changes.contains(&JobChange::Checkpoint) {
        return Ok(None);
    }
    cluster.allows(&Event::JobCheckpointed { job: job.id })?;
    if !matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_)) {
        return Err(Reject::NotRunning);
    }
    let age = job.phase.checkpoint().map(|last| now.since(last.at));
    if let Some(age) = age.filter(|age| *age < CHECKPOINT_PERIOD) {
        return Err(Reject::InvalidTime(format!(
            "LastCheckpoint=now: the last checkpoint of job {} was reported {age} s ago; report one in {} s",
            job.id,
            CHECKPOINT_PERIOD - age
        )));
    }
    let alone = changes.iter().all(|change| *change == JobChange::Checkpoint);
    Ok(Some(if alone { Checkpointed::Only } else { Checkpointed::Also }))
}

/// Records limits from which an operator's change exempts the job.
fn exempt(spec: &mut JobSpec, changes: &[JobChange]) {
    for part in changes.iter().filter_map(JobChange::exempts) {
        let extra = spec.extra.get_or_insert_default();
        if !extra.exempt.contains(&part) {
            extra.exempt.push(part);
        }
    }
}

/// The refusal of a dependency.
fn refusal(found: Loop) -> Reject {
    match found {
        Loop::Circular => Reject::CircularDependency,
        Loop::TooLong { most } => Reject::Dependency(format!(
            "the jobs that it names wait for more than {most} others, by way of these too; name fewer jobs, or an array \
             in place of its tasks"
        )),
    }
}

/// The time limit with which a running job ends at `end`.
fn until(now: Time, job: &Job, end: Time) -> Result<TimeLimit, Reject> {
    if !matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_)) {
        return Err(Reject::NotRunning);
    }
    if end <= now {
        return Err(Reject::InvalidTime("EndTime is not in the future".to_owned()));
    }
    Ok(TimeLimit::Seconds(job.phase.run_time(now) + end.since(now)))
}

/// The nice value that gives a pending job a lower priority for now. An owner's fixed priority would not
/// fall with the others'. `None` if the job is not pending, is held, or has a fixed priority or one that is
/// lower already. Also `None` unless the order of the queue is multifactor.
fn as_nice(cluster: &Cluster, now: Time, job: &Job, priority: u32) -> Option<i32> {
    let Phase::Pending(pending) = &job.phase else { return None };
    let is_weighed = cluster.policy().scheduler.order == Order::Multifactor;
    if pending.hold.is_some() || job.spec.priority.is_some() || !is_weighed {
        return None;
    }
    let parts = sched::priorities(cluster, job, now).into_iter().map(|part| part.priority).max();
    let has = parts.unwrap_or_else(|| sched::present_priority(cluster, job, now));
    let less = has.checked_sub(priority)?;
    Some(job.spec.nice.saturating_add(i32::try_from(less).unwrap_or(i32::MAX)))
}

/// Completes and checks a new QOS or wckey: fills in the default account, QOS and wckey of a request that
/// names none, and checks that they admit the job.
fn requalify(
    cluster: &Cluster,
    caller: &Caller,
    changes: &[JobChange],
    spec: &mut JobSpec,
) -> Result<(), Reject> {
    if changes.iter().any(|change| matches!(change, JobChange::WcKey(_))) {
        wckey::fill_in(cluster, spec)?;
    }
    if !changes.iter().any(|change| matches!(change, JobChange::Qos(_))) {
        return Ok(());
    }
    account::fill_in(cluster, spec);
    account::check(cluster, spec)?;
    if spec.qos.is_none() {
        let partitions: Vec<_> = spec.partitions.iter().filter_map(|name| cluster.partition(name)).collect();
        spec.qos = qos::default(cluster, &partitions, spec);
    }
    qos::check(cluster, caller, spec)
}

/// Lets neighbouring records with equal requests share one, as array tasks do.
fn shared(mut changes: Vec<(Target, Changed)>) -> Vec<(Target, Changed)> {
    let mut last: Option<Arc<JobSpec>> = None;
    for (_, changed) in &mut changes {
        match &last {
            Some(last) if **last == *changed.spec => changed.spec = Arc::clone(last),
            Some(_) | None => last = Some(Arc::clone(&changed.spec)),
        }
    }
    changes
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { changes, problems, by } = decision;
    let mut warnings = Vec::new();
    for (target, Changed { spec, hold, checkpoint, warnings: more }) in changes {
        let job = target.single_out(ctx);
        if checkpoint.is_some() {
            ctx.emit(Event::JobCheckpointed { job });
        }
        if checkpoint == Some(Checkpointed::Only) {
            continue;
        }
        let told = ctx.cluster().job(job).filter(|job| job.never && job.spec.dependency == spec.dependency);
        let told = told.map(|job| job.id);
        ctx.emit(Event::JobUpdated { job, spec });
        match hold {
            Some(true) => ctx.emit(Event::JobHeld { job, by }),
            // A job that is not held keeps its waiting time.
            Some(false) if is_held(ctx.cluster(), job) => ctx.emit(Event::JobReleased { job }),
            Some(false) | None => {}
        }
        let mut records = tasks::part_ways(ctx, job, None);
        records.push(job);
        ending::end_hopeless(ctx, records, told);
        warnings.extend(more);
    }
    warnings.dedup();
    Reply::Jobs { problems, warnings }
}

fn is_held(cluster: &Cluster, job: JobId) -> bool {
    let phase = cluster.job(job).map(|job| &job.phase);
    matches!(phase, Some(Phase::Pending(pending)) if pending.hold.is_some())
}

fn longer(new: TimeLimit, old: TimeLimit) -> bool {
    new > old
}
