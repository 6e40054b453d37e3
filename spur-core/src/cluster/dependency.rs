//! Takes out of a job's dependency what has come true, and notices what no longer can.

use std::collections::BTreeSet;

use super::{Array, Jobs};
use crate::id::JobId;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{EndState, Phase};
use crate::model::waits::{Gone, Scope, Wait, WaitKind, Waits};
use crate::text::array::TaskSet;
use crate::text::dependency::DependencyKind;
use crate::text::time::Time;

/// What one condition has come to.
enum Verdict {
    /// It holds from this time on.
    Met(Time),
    /// Not yet.
    Open,
    /// It never will.
    Never,
}

/// The dependency of a new or changed request, as far as it is still open. `of_array` says whether the request is of
/// tasks of an array, each of which may wait for its counterpart.
pub(super) fn of(id: JobId, spec: &JobSpec, of_array: bool, jobs: &Jobs) -> Option<Box<Waits>> {
    let dependency = spec.dependency.as_deref()?;
    // The components of one het job start together, so none of them waits for another.
    let together = |job: &Job| spec.is_component_with(&job.spec);
    let before = |job: &&Job| {
        job.id < id
            && job.spec.name == spec.name
            && job.spec.owner.uid == spec.owner.uid
            && !together(job)
            && !matches!(job.phase, Phase::Ended(_))
    };
    let singleton = dependency.terms.iter().any(|term| term.kind == DependencyKind::Singleton);
    let mut earlier: Vec<JobId> =
        jobs.iter().filter(|_| singleton).filter(before).map(Job::array_id).collect();
    earlier.sort_unstable();
    earlier.dedup();
    Waits::of(dependency, &earlier, of_array, |other| jobs.array(other).is_some()).map(Box::new)
}

/// Whether a job would wait for itself with another request, by way of what others wait for.
pub(super) fn is_circular(job: &Job, spec: &JobSpec, jobs: &Jobs) -> bool {
    let records = |wait: &Wait| -> Vec<JobId> {
        match (wait.scope, jobs.array(wait.job)) {
            (Scope::Task(task), Some(_)) => {
                jobs.task(wait.job, task.0).map(|task| task.id).into_iter().collect()
            }
            (_, Some(array)) => array.records().collect(),
            (_, None) => vec![wait.job],
        }
    };
    let waits = of(job.id, spec, job.array.is_some(), jobs);
    // Tasks that wait as one may come to wait for each other.
    let own_task = |wait: &&Wait| matches!(wait.scope, Scope::Task(_)) && wait.job == job.array_id();
    let terms = waits.iter().flat_map(|waits| &waits.terms).filter(|wait| !own_task(wait));
    let mut next: Vec<JobId> = terms.flat_map(records).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = next.pop() {
        if id == job.id {
            return true;
        }
        let waits = jobs.get(id).and_then(|job| job.waits_for.as_ref()).filter(|_| seen.insert(id));
        next.extend(waits.iter().flat_map(|waits| &waits.terms).flat_map(records));
    }
    false
}

/// Looks at the jobs that `job` waits for, and updates what it still waits for. What could not come true stays so, also if
/// the other job is requeued.
pub(super) fn settle(job: &mut Job, jobs: &Jobs) {
    if job.never {
        return;
    }
    let tasks = job.array.as_deref().map(|part| &part.tasks);
    let gone = job.spec.extra.as_ref().map_or(&[][..], |extra| &extra.gone);
    let Some(waits) = job.waits_for.as_deref_mut() else { return };
    let any = waits.any;
    let (mut held, mut from) = (false, None);
    waits.terms.retain_mut(|wait| match verdict(*wait, tasks, jobs, gone) {
        _ if wait.never => true,
        Verdict::Met(at) => {
            held = true;
            from = from.max(Some(at));
            false
        }
        Verdict::Open => true,
        Verdict::Never => {
            wait.never = true;
            true
        }
    });
    let mut never = waits.terms.iter().map(|wait| wait.never);
    let satisfied = if any { held } else { waits.terms.is_empty() };
    job.never = !satisfied && if any { never.all(|never| never) } else { never.any(|never| never) };
    if satisfied {
        job.waits_for = None;
        if let (Phase::Pending(pending), Some(from)) =
            (&mut job.phase, from.filter(|from| *from > Time::ZERO))
        {
            pending.not_before = pending.not_before.max(Some(from));
        }
    }
}

/// How something that is waited for stands.
#[derive(Clone, Copy)]
struct Standing {
    /// When it started, or ended without; of an array, when the last task did.
    started: Option<Time>,
    /// Whether it completed, once it has ended.
    completed: Option<bool>,
    /// Whether it can no longer complete.
    failed: bool,
}

fn verdict(wait: Wait, tasks: Option<&TaskSet>, jobs: &Jobs, gone: &[Gone]) -> Verdict {
    // A job that has left memory since ended long ago; how is no longer known, and Slurm then takes it as done.
    let standing = standing(wait, tasks, jobs).or_else(|| of_gone(wait, gone));
    let Some(standing) = standing else { return Verdict::Met(Time::ZERO) };
    match (wait.kind, standing.completed) {
        (WaitKind::Started, _) => match standing.started {
            Some(started) if wait.delay == 0 => Verdict::Met(started.min(Time::ZERO)),
            Some(started) => Verdict::Met(started + wait.delay),
            None => Verdict::Open,
        },
        (WaitKind::Ended | WaitKind::Singleton, Some(_))
        | (WaitKind::Completed, Some(true))
        | (WaitKind::Failed, Some(false)) => Verdict::Met(Time::ZERO),
        (WaitKind::Completed, _) if standing.failed => Verdict::Never,
        (WaitKind::Failed, Some(true)) => Verdict::Never,
        (_, _) => Verdict::Open,
    }
}

/// How the thing stands that `tasks` wait for; `None` where nothing is known of it any more.
fn standing(wait: Wait, tasks: Option<&TaskSet>, jobs: &Jobs) -> Option<Standing> {
    match (wait.scope, jobs.array(wait.job)) {
        (Scope::Whole | Scope::All, None) => jobs.get(wait.job).map(of_record),
        (Scope::Whole | Scope::All, Some(array)) => Some(of_array(array, jobs, wait.kind)),
        (Scope::Task(task), Some(array)) => of_task(wait.job, array, task.0, jobs),
        (Scope::Same, Some(array)) => Some(of_counterparts(array, tasks?)),
        (Scope::Task(_) | Scope::Same, None) => None,
    }
}

fn of_record(job: &Job) -> Standing {
    let ended = match &job.phase {
        Phase::Ended(ended) => Some(ended),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) => None,
    };
    let completed = ended.map(|ended| ended.outcome.state == EndState::Completed);
    let started = job.phase.started().or(ended.map(|ended| ended.ended));
    Standing { started, completed, failed: completed == Some(false) }
}

fn of_task(id: JobId, array: &Array, task: u32, jobs: &Jobs) -> Option<Standing> {
    if let Some(record) = jobs.task(id, task) {
        return Some(of_record(record));
    }
    match (array.ended().completed.contains(task), array.ended().failed.contains(task)) {
        (true, _) => Some(long_ended(true)),
        (false, true) => Some(long_ended(false)),
        (false, false) => None,
    }
}

/// What is known of a job that had left memory when it was named.
fn of_gone(wait: Wait, gone: &[Gone]) -> Option<Standing> {
    let task = match wait.scope {
        Scope::Task(task) => Some(task),
        Scope::Whole | Scope::All | Scope::Same => None,
    };
    let known = gone.iter().find(|gone| gone.job == wait.job && gone.task == task)?;
    Some(long_ended(known.completed))
}

fn long_ended(completed: bool) -> Standing {
    Standing { started: Some(Time::ZERO), completed: Some(completed), failed: !completed }
}

/// How the counterparts stand of tasks that wait as one: ended only when they all have, and in the same way. Those that
/// have not come equally far are taken apart.
fn of_counterparts(array: &Array, tasks: &TaskSet) -> Standing {
    let among = |ended: &TaskSet| tasks.without(ended).is_empty();
    let (completed, failed) = (among(&array.ended().completed), among(&array.ended().failed));
    Standing { started: None, completed: (completed || failed).then_some(completed), failed }
}

fn of_array(array: &Array, jobs: &Jobs, kind: WaitKind) -> Standing {
    let records = || array.records().filter_map(|id| jobs.get(id)).map(of_record);
    let all = kind == WaitKind::Started && array.pending() == 0;
    let started = all.then(|| records().filter_map(|record| record.started).max());
    let failed = array.has_failed();
    Standing { started: started.flatten(), completed: array.is_over().then_some(!failed), failed }
}
