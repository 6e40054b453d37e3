//! Workload names of jobs and of the tasks of arrays.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::phase::Phase;

/// Names by job number.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Arc<str>>);

impl Names {
    /// Sets the name of a job.
    pub(super) fn set(&mut self, job: JobId, name: &Arc<str>) {
        let index = job.0 as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Arc::default);
        }
        self.0[index] = Arc::clone(name);
    }

    /// Name that a job number was given; the number itself if it has no name.
    pub(super) fn given(&self, job: JobId) -> Arc<str> {
        let known = self.0.get(job.0 as usize).filter(|name| !name.is_empty());
        known.map_or_else(|| job.to_string().into(), Arc::clone)
    }

    /// Names of the tasks of an array record, one by one; the own name of a job that belongs to no array.
    pub(super) fn each(&self, cluster: &Cluster, id: JobId) -> Vec<Arc<str>> {
        let Some(part) = cluster.job(id).and_then(|job| job.array.as_ref()) else {
            return vec![self.given(id)];
        };
        let array = self.given(part.id);
        part.tasks.iter().map(|task| format!("{array}_{task}").into()).collect()
    }

    /// Name of a job.
    ///
    /// A record of an array is named by what it stands for. One task is named by its index. Pending tasks
    /// under the array's own number have the array's name, and other groups of tasks have their indices.
    pub(super) fn of(&self, cluster: &Cluster, id: JobId) -> Arc<str> {
        let Some((job, part)) = cluster.job(id).and_then(|job| Some((job, job.array.as_ref()?))) else {
            return self.given(id);
        };
        let array = self.given(part.id);
        let waits = matches!(job.phase, Phase::Pending(_)) && job.restarts == 0;
        match job.task() {
            Some(task) => format!("{array}_{task}").into(),
            None if waits && part.id == id => array,
            None => format!("{array}_[{}]", part.tasks).into(),
        }
    }
}
