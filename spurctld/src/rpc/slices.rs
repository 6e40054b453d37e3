//! A request about many jobs, cut into commands that the owner carries out one after another, so that the requests of
//! others go between them.

use std::collections::BTreeMap;

use spur_core::cluster::Cluster;
use spur_core::id::JobId;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::text::array::TaskSet;
use spur_core::text::jobid::{JobPart, JobRef};

use crate::answer::Problem;

/// Records in one slice, and jobs that wait for them.
const WEIGHT: usize = 1000;
/// Records of an array that are handled at once; a longer array is cut.
const RECORDS: usize = 250;

/// A request's jobs in slices.
#[derive(Default)]
pub(super) struct Slices {
    slices: Vec<Vec<JobRef<JobId>>>,
    /// Records of the last slice, and jobs that wait for them.
    weight: usize,
    arrays: CutArrays,
}

/// Arrays that a request names as a whole and that were cut into tasks. What is wrong with some tasks counts for nothing, as
/// long as something could be done to others.
#[derive(Default)]
pub(super) struct CutArrays(BTreeMap<JobId, CutArray>);

struct CutArray {
    whole: JobRef<JobId>,
    /// Tasks to which something was to be done.
    tasks: usize,
    /// Tasks to which nothing could be done.
    failed: usize,
    /// The first problem.
    problem: Option<Problem>,
}

impl Slices {
    /// Adds jobs; begins a new slice where the records, and the jobs that wait for them, are many.
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

    /// The jobs of each command, and the arrays that were cut.
    pub(super) fn finish(self) -> (Vec<Vec<JobRef<JobId>>>, CutArrays) {
        (self.slices, self.arrays)
    }
}

impl CutArrays {
    /// The parts of what a request names, each with its records.
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

    /// Takes a problem that is about an array that was cut, and returns whether it is.
    pub(super) fn take(&mut self, problem: &Problem) -> bool {
        let Ok(named) = problem.job.parse::<JobRef<JobId>>() else { return false };
        let Some(array) = self.0.get_mut(&named.job) else { return false };
        let JobPart::Tasks(tasks) = &named.part else { return false };
        array.failed += tasks.len();
        array.problem.get_or_insert_with(|| problem.clone());
        true
    }

    /// The problems with arrays to none of whose tasks anything could be done.
    pub(super) fn problems(self) -> impl Iterator<Item = Problem> {
        let failed = self.0.into_values().filter(|array| array.failed >= array.tasks);
        failed.filter_map(|array| Some(Problem { job: array.whole.to_string(), ..array.problem? }))
    }
}
