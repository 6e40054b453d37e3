//! Removes the satisfied terms of a job's dependency, and detects terms that can no longer be satisfied.

use std::collections::{BTreeMap, BTreeSet};

use super::{Array, Jobs};
use crate::id::{ArrayTaskId, JobId};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{EndState, Phase};
use crate::model::waits::{Among, Scope, Verdict, Wait, WaitKind, Waits};
use crate::text::array::TaskSet;
use crate::text::dependency::{DependencyKind, TaskRef};
use crate::text::time::Time;

/// Number of terms followed in the search for a job that would wait for itself.
const MOST_FOLLOWED: usize = 65_536;

/// The open terms of a new or changed request's dependency; `None` if none are left. `of_array` is true for
/// requests of array tasks, each of which may wait for its counterpart.
pub(super) fn of(id: JobId, spec: &JobSpec, of_array: bool, jobs: &Jobs) -> Option<Box<Waits>> {
    let dependency = spec.dependency.as_deref()?;
    let singleton = dependency.terms.iter().any(|term| term.kind == DependencyKind::Singleton);
    let own = jobs.get(id).map_or(id, Job::array_id);
    let predecessor = if singleton { jobs.predecessor(own, spec) } else { None };
    let waits = Waits::of(dependency, predecessor, of_array, |other| jobs.array(other).is_some())?;
    Some(Box::new(jobs.share_waits(own, waits)))
}

/// Reasons to refuse a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// The job would wait for itself, directly or through other jobs.
    Circular,
    /// The chain of dependencies has too many terms to be checked.
    TooLong {
        /// Number of terms that are followed.
        most: usize,
    },
}

/// Refuses a request with which a job would wait for itself, directly or through other jobs.
pub(super) fn check_loops(job: &Job, spec: &JobSpec, jobs: &Jobs) -> Result<(), Loop> {
    if names_itself(job, spec) {
        return Err(Loop::Circular);
    }
    if !jobs.is_waited_for(job.id) && !jobs.is_waited_for(job.array_id()) {
        return Ok(());
    }
    let waits = of(job.id, spec, job.array.is_some(), jobs);
    // Tasks in one record may come to wait for each other, which is no cycle of one task with itself.
    let own_task = |wait: &Wait| matches!(wait.scope, Scope::Task(_)) && wait.job == job.array_id();
    let terms = waits.iter().flat_map(|waits| waits.terms()).filter(|wait| !own_task(wait));
    let mut next: Vec<(JobId, Scope)> = terms.map(|wait| (wait.job, wait.scope)).collect();
    let (mut met, mut seen, mut followed) = (BTreeSet::new(), BTreeSet::new(), 0);
    while let Some((other, scope)) = next.pop() {
        if !met.insert((other, task_of(scope))) {
            continue;
        }
        for id in records(other, scope, jobs) {
            if id == job.id {
                return Err(Loop::Circular);
            }
            let waits = jobs.get(id).and_then(|job| job.waits_for.as_ref()).filter(|_| seen.insert(id));
            let more = waits.iter().flat_map(|waits| waits.terms()).map(|wait| (wait.job, wait.scope));
            let before = next.len();
            next.extend(more);
            followed += 1 + next.len() - before;
            if followed > MOST_FOLLOWED {
                return Err(Loop::TooLong { most: MOST_FOLLOWED });
            }
        }
    }
    Ok(())
}

/// True if a dependency names the job that has it, or the whole array of which the job is a task.
fn names_itself(job: &Job, spec: &JobSpec) -> bool {
    let terms = spec.dependency.iter().flat_map(|dependency| &dependency.terms);
    let mut named = terms.flat_map(|term| &term.jobs);
    named.any(|on| match on.task {
        Some(TaskRef::One(task)) => on.job == job.array_id() && job.task() == Some(ArrayTaskId(task)),
        Some(TaskRef::All) | None => on.job == job.array_id() || on.job == job.id,
    })
}

fn task_of(scope: Scope) -> Option<u32> {
    match scope {
        Scope::Task(task) => Some(task.0),
        Scope::Whole | Scope::All | Scope::Same => None,
    }
}

/// The records that a term of this scope refers to.
fn records(other: JobId, scope: Scope, jobs: &Jobs) -> Vec<JobId> {
    match (scope, jobs.array(other)) {
        (Scope::Task(task), Some(_)) => jobs.task(other, task.0).map(|task| task.id).into_iter().collect(),
        (_, Some(array)) => array.records().collect(),
        (_, None) => vec![other],
    }
}

/// Judges terms of `job`'s dependency and drops the satisfied ones. A term that could not be satisfied stays
/// so, even if the other job is requeued.
pub(super) fn settle(job: &mut Job, jobs: &Jobs, among: Among) {
    if job.never {
        return;
    }
    let own = job.array_id();
    let tasks = job.array.as_deref().map(|part| &part.tasks);
    let gone = job.spec.extra.as_ref().map_or(&[][..], |extra| &extra.gone);
    // Where all terms are judged, each may refer to any of these jobs, so they are indexed once.
    let all = gone.iter().filter(|_| among == Among::All);
    let by_job: BTreeMap<_, _> = all.map(|gone| ((gone.job, gone.task), gone.completed)).collect();
    let gone = |job, task| match among {
        Among::All => by_job.get(&(job, task)).copied(),
        Among::About { .. } | Among::Counterparts => {
            gone.iter().find(|gone| (gone.job, gone.task) == (job, task)).map(|gone| gone.completed)
        }
    };
    let Some(waits) = job.waits_for.as_deref_mut() else { return };
    let judged = waits.judge(among, |wait| match wait.kind {
        WaitKind::Singleton => {
            jobs.predecessor(own, &job.spec).map_or(Verdict::Met(Time::ZERO), Verdict::Behind)
        }
        _ => verdict(wait, tasks, jobs, gone),
    });
    let satisfied = if waits.any() { judged.held } else { waits.is_met() };
    job.never = !satisfied && waits.is_hopeless();
    if satisfied {
        job.waits_for = None;
        if let (Phase::Pending(pending), Some(from)) =
            (&mut job.phase, judged.from.filter(|from| *from > Time::ZERO))
        {
            pending.not_before = pending.not_before.max(Some(from));
        }
    }
}

/// State of a job, a task or an array that others wait for.
#[derive(Clone, Copy)]
struct Standing {
    /// Time at which it started, or ended without a start; for an array, the time of its last task's start.
    started: Option<Time>,
    /// True if the job, task or array completed, false if it ended otherwise; `None` before its end.
    completed: Option<bool>,
    /// True if the job, task or array can no longer complete.
    failed: bool,
}

/// The verdict on one term. For a job that had left memory when the dependency was made, `gone` says if it
/// completed.
fn verdict(
    wait: Wait,
    tasks: Option<&TaskSet>,
    jobs: &Jobs,
    gone: impl Fn(JobId, Option<ArrayTaskId>) -> Option<bool>,
) -> Verdict {
    // A job that has left memory since has ended. Its outcome is unknown, and Slurm then counts the term as
    // satisfied.
    let task = match wait.scope {
        Scope::Task(task) => Some(task),
        Scope::Whole | Scope::All | Scope::Same => None,
    };
    let standing = standing(wait, tasks, jobs).or_else(|| gone(wait.job, task).map(long_ended));
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

/// The state of the job, task or array that `tasks` wait for; `None` if nothing is known of it.
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

fn long_ended(completed: bool) -> Standing {
    Standing { started: Some(Time::ZERO), completed: Some(completed), failed: !completed }
}

/// The state of the counterparts (`aftercorr`) of tasks in one record. They count as ended only if all have
/// ended in the same way; tasks with different outcomes are split.
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
