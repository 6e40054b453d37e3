//! Targets of a request about jobs: the records that it names, and the result for each.
//!
//! `36` is a job, or an array with all its tasks; `36_3` and `36_[4-7]` are tasks of an array. Tasks that
//! share a record with others are split off when only they are changed.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Ctx, Reject, Reply};
use super::owned;
use crate::cluster::{Cluster, Event};
use crate::id::{ArrayTaskId, JobId};
use crate::model::caller::Caller;
use crate::model::job::Job;
use crate::text::array::TaskSet;
use crate::text::jobid::{JobPart, JobRef};

/// A record, or some of the tasks that wait in one.
#[derive(Clone, Debug)]
pub(super) struct Target {
    record: JobId,
    /// The tasks that are meant, for a record of an array.
    tasks: Option<TaskSet>,
}

impl Target {
    /// One task of a record, or the whole record without `task`.
    pub(super) fn task(record: JobId, task: Option<ArrayTaskId>) -> Self {
        Self { record, tasks: task.map(|task| TaskSet::from(task.0)) }
    }

    /// True if the record stands for further tasks.
    pub(super) fn is_part(&self, cluster: &Cluster) -> bool {
        let part = cluster.job(self.record).and_then(|job| job.array.as_deref());
        self.tasks.as_ref().zip(part).is_some_and(|(tasks, part)| part.tasks != *tasks)
    }

    /// The number of a record that stands for exactly this target; other tasks stay in the old record.
    pub(super) fn single_out(&self, ctx: &mut Ctx<'_>) -> JobId {
        let Some(tasks) = self.tasks.as_ref().filter(|_| self.is_part(ctx.cluster())) else {
            return self.record;
        };
        let job = ctx.cluster().next_job();
        ctx.emit(Event::TasksSplit { job, from: self.record, tasks: tasks.clone() });
        job
    }
}

/// Jobs that cannot be changed, with the reasons.
pub(super) type Problems = Vec<(JobRef<JobId>, Reject)>;

/// The results for several jobs.
pub(super) struct Sorted<T> {
    /// Targets that can be changed, each with its decision.
    pub(super) doable: Vec<(Target, T)>,
    /// Jobs that cannot be changed, with the reasons.
    pub(super) problems: Problems,
}

impl<T> Sorted<T> {
    /// The reply to a request with these problems.
    pub(super) fn reply(problems: Problems) -> Reply {
        Reply::Jobs { problems, warnings: Vec::new() }
    }
}

/// Decides about each record separately, so that a request does what it can. For an array as a whole, tasks
/// that cannot be changed are only reported if none can.
pub(super) fn sort<T>(
    cluster: &Cluster,
    caller: &Caller,
    named: &[JobRef<JobId>],
    ask: impl Fn(&Job) -> Result<T, Reject>,
) -> Sorted<T> {
    let mut sorted = Sorted { doable: Vec::new(), problems: Vec::new() };
    let mut taken = BTreeMap::new();
    for reference in named {
        let asked = |id| owned(cluster, caller, id).and_then(&ask);
        let records = cluster.jobs().meant(reference);
        let whole = reference.part == JobPart::Whole;
        let (before, mut why_not) = (sorted.doable.len(), None);
        let mut left = match &reference.part {
            JobPart::Tasks(tasks) => tasks.clone(),
            JobPart::Whole | JobPart::Component(_) => TaskSet::default(),
        };
        let mut repeated = false;
        for job in records.iter().filter_map(|id| cluster.job(*id)) {
            let meant = tasks_of(job, reference);
            left = meant.as_ref().map_or_else(TaskSet::default, |meant| left.without(meant));
            let Some(target) = untaken(&mut taken, job.id, meant.as_ref()) else {
                repeated = true;
                continue;
            };
            match asked(job.id) {
                Ok(decision) => sorted.doable.push((target, decision)),
                Err(reject) if whole => why_not = more_telling(why_not, reject),
                Err(reject) => sorted.problems.push((named_alone(job, meant), reject)),
            }
        }
        let none = sorted.doable.len() == before && !repeated;
        if whole && none {
            sorted.problems.push((reference.clone(), why_not.unwrap_or(Reject::InvalidJobId)));
        } else if !left.is_empty() {
            let part = JobPart::Tasks(left);
            sorted.problems.push((JobRef { part, ..reference.clone() }, Reject::InvalidJobId));
        } else if matches!(reference.part, JobPart::Component(_)) {
            sorted.problems.push((reference.clone(), Reject::InvalidJobId));
        }
    }
    sorted
}

/// Like [`sort`], for changes of whole het jobs only. A leader stands for all components; a later component
/// named without its leader is a problem. The problem of a het job is reported once.
pub(super) fn sort_whole<T>(
    cluster: &Cluster,
    caller: &Caller,
    named: &[JobRef<JobId>],
    ask: impl Fn(&Job) -> Result<T, Reject>,
) -> Sorted<T> {
    let (all, problems) = components(cluster, named);
    let mut sorted = sort(cluster, caller, &all, ask);
    let follows = |id: JobId| cluster.job(id).is_some_and(|job| job.spec.is_follower());
    sorted.problems.retain(|(named, _)| !follows(named.job));
    sorted.problems.splice(0..0, problems);
    sorted
}

/// The named jobs, with all components of het jobs named by their leader; and the components named without
/// their leader, as problems.
pub(super) fn components(cluster: &Cluster, named: &[JobRef<JobId>]) -> (Vec<JobRef<JobId>>, Problems) {
    let (mut all, mut problems) = (Vec::with_capacity(named.len()), Vec::new());
    let jobs: BTreeSet<JobId> = named.iter().map(|other| other.job).collect();
    for reference in named {
        let whole = reference.part == JobPart::Whole;
        let job = cluster.job(reference.job).filter(|_| whole);
        match job.and_then(|job| job.spec.het.as_deref()) {
            None => all.push(reference.clone()),
            Some(het) if het.offset == 0 => {
                all.extend(cluster.jobs().components(reference.job).into_iter().map(JobRef::whole));
            }
            Some(het) if jobs.contains(&het.leader) => {}
            Some(het) => problems.push((reference.clone(), Reject::NotWholeHetJob(*het))),
        }
    }
    (all, problems)
}

/// The tasks of an array's record that a reference denotes; `None` for other jobs.
fn tasks_of(job: &Job, reference: &JobRef<JobId>) -> Option<TaskSet> {
    let part = job.array.as_ref()?;
    match &reference.part {
        JobPart::Tasks(tasks) => Some(part.tasks.common(tasks)),
        JobPart::Whole | JobPart::Component(_) => Some(part.tasks.clone()),
    }
}

/// The target without tasks that the same request has named before; `None` if nothing is left.
fn untaken(taken: &mut BTreeMap<JobId, TaskSet>, record: JobId, meant: Option<&TaskSet>) -> Option<Target> {
    let Some(meant) = meant else { return Some(Target { record, tasks: None }) };
    let before = taken.entry(record).or_default();
    let tasks = meant.without(before);
    *before = before.with(&tasks);
    (!tasks.is_empty()).then_some(Target { record, tasks: Some(tasks) })
}

fn named_alone(job: &Job, tasks: Option<TaskSet>) -> JobRef<JobId> {
    JobRef { part: tasks.map(JobPart::Tasks).unwrap_or_default(), ..JobRef::whole(job.array_id()) }
}

/// The more informative of two refusals; that a task has ended is the least informative.
fn more_telling(one: Option<Reject>, other: Reject) -> Option<Reject> {
    match one {
        None | Some(Reject::AlreadyDone) => Some(other),
        Some(_) => one,
    }
}
