//! Cuts a request about many jobs into commands, between which the owner handles other requests.

use std::collections::BTreeMap;

use spur_core::cluster::Cluster;
use spur_core::id::JobId;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::text::array::TaskSet;
use spur_core::text::jobid::{JobPart, JobRef};

use crate::answer::Problem;

/// Largest number of records in one slice, with the jobs that depend on them.
const WEIGHT: usize = 1000;
/// Largest number of an array's records in one slice; a longer array is cut.
const RECORDS: usize = 250;

/// A request's jobs in slices.
#[derive(Default)]
pub(super) struct Slices {
    slices: Vec<Vec<JobRef<JobId>>>,
    /// Records of the last slice, with the jobs that depend on them.
    weight: usize,
    arrays: CutArrays,
}

/// Arrays that a request names as a whole and that were cut into tasks. Problems with some tasks are ignored
/// if other tasks succeeded.
#[derive(Default)]
pub(super) struct CutArrays(BTreeMap<JobId, CutArray>);

struct CutArray {
    whole: JobRef<JobId>,
    /// Number of tasks that the request covers.
    tasks: usize,
    /// Number of tasks for which the command failed.
    failed: usize,
    /// The first problem.
    problem: Option<Problem>,
}

impl Slices {
    /// Adds jobs; begins a new slice when the last one is full.
    pub(super) fn add(&mut self, cluster: &Cluster, jobs: &[JobRef<JobId>]) {
        for named in jobs {
            for (part, records) in self.arrays.cut(cluster, named) {
                let weight = |id: &JobId| 1 + cluster.jobs().waiting_count(*id, WEIGHT);
                let more = records.iter().map(weight).sum::<usize>().max(1);
                match self.slices.last_mut() {
                    Some(last) if self.weight + more <= WEIGHT => {
                        last.push(part);
                        self.weight += more;
                    }
                    Some(_) | None => {
                        self.slices.push(vec![part]);
                        self.weight = more;
                    }
                }
            }
        }
    }

    /// Returns the slices, and the arrays that were cut.
    pub(super) fn finish(self) -> (Vec<Vec<JobRef<JobId>>>, CutArrays) {
        (self.slices, self.arrays)
    }
}

impl CutArrays {
    /// Cuts a named job into parts, each with its records.
    fn cut(&mut self, cluster: &Cluster, named: &JobRef<JobId>) -> Vec<(JobRef<JobId>, Vec<JobId>)> {
        let records: Vec<JobId> = cluster.jobs().meant(named).into_iter().collect();
        let array = cluster.jobs().array(named.job).filter(|_| named.part == JobPart::Whole);
        if array.is_none() || records.len() <= RECORDS || self.0.contains_key(&named.job) {
            return vec![(named.clone(), records)];
        }
        let has_ended = |job: &Job| matches!(job.phase, Phase::Ended(_));
        let open = records.iter().copied().filter(|id| cluster.job(*id).is_some_and(|job| !has_ended(job)));
        let open: Vec<JobId> = open.collect();
        if open.is_empty() {
            return vec![(named.clone(), records)];
        }
        let tasks = |ids: &[JobId]| {
            let parts = ids.iter().filter_map(|id| cluster.job(*id)?.array.as_deref());
            parts.fold(TaskSet::default(), |all, part| all.with(&part.tasks))
        };
        let parts: Vec<(TaskSet, Vec<JobId>)> =
            open.chunks(RECORDS).map(|some| (tasks(some), some.to_vec())).collect();
        let count = parts.iter().map(|(tasks, _)| tasks.len()).sum();
        self.0.insert(named.job, CutArray { whole: named.clone(), tasks: count, failed: 0, problem: None });
        let part = |tasks| JobRef { part: JobPart::Tasks(tasks), ..named.clone() };
        parts.into_iter().map(|(tasks, records)| (part(tasks), records)).collect()
    }

    /// Records a problem with a part of a cut array; returns false for other problems.
    pub(super) fn take(&mut self, problem: &Problem) -> bool {
        let Ok(named) = problem.job.parse::<JobRef<JobId>>() else { return false };
        let Some(array) = self.0.get_mut(&named.job) else { return false };
        let JobPart::Tasks(tasks) = &named.part else { return false };
        array.failed += tasks.len();
        array.problem.get_or_insert_with(|| problem.clone());
        true
    }

    /// Returns the problems of arrays for all of whose tasks the command failed.
    pub(super) fn problems(self) -> impl Iterator<Item = Problem> {
        let failed = self.0.into_values().filter(|array| array.failed >= array.tasks);
        failed.filter_map(|array| Some(Problem { job: array.whole.to_string(), ..array.problem? }))
    }
}
