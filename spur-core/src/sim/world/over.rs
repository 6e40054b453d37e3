//! Results of ended jobs that the controller may have forgotten. They serve as the simulator's accounting for
//! dependencies.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::controller::Command;
use crate::controller::command::Submission;
use crate::id::{ArrayTaskId, JobId};
use crate::model::change::JobChange;
use crate::model::phase::EndState;
use crate::model::waits::Gone;
use crate::text::array::TaskSet;
use crate::text::dependency::{Dependency, TaskRef};

/// Result of every ended record.
#[derive(Debug, Default)]
pub(super) struct Over(BTreeMap<JobId, End>);

#[derive(Debug)]
struct End {
    /// The array of the record and the tasks it had; `None` for a job in no array.
    array: Option<(JobId, TaskSet)>,
    completed: bool,
}

impl Over {
    pub(super) fn note(&mut self, cluster: &Cluster, id: JobId, state: EndState) {
        let array = cluster.job(id).and_then(|job| job.array.as_deref());
        let array = array.map(|part| (part.id, part.tasks.clone()));
        self.0.insert(id, End { array, completed: state == EndState::Completed });
    }

    /// Removes a job that had ended and is pending again.
    pub(super) fn forget(&mut self, id: JobId) {
        self.0.remove(&id);
    }

    /// Adds to a command the results of the jobs that its dependencies name and the controller has forgotten.
    pub(super) fn look_up(&self, cluster: &Cluster, command: &mut Command) {
        match command {
            Command::Submit(submission) => self.look_up_all(cluster, submission),
            Command::UpdateJob { changes, .. } => {
                let gone = changes.iter().filter_map(|change| match change {
                    JobChange::Dependency(Some(dependency)) => Some(self.gone(cluster, dependency)),
                    _ => None,
                });
                let gone: Vec<JobChange> = gone.map(JobChange::Gone).collect();
                changes.extend(gone);
            }
            _ => {}
        }
    }

    /// Adds to a submission the results of the jobs that its dependencies name and the controller has
    /// forgotten.
    pub(super) fn look_up_all(&self, cluster: &Cluster, submission: &mut Submission) {
        for spec in submission.specs_mut() {
            let gone = spec.dependency.as_deref().map(|dependency| self.gone(cluster, dependency));
            if let Some(gone) = gone.filter(|gone| !gone.is_empty()) {
                spec.extra.get_or_insert_default().gone = gone;
            }
        }
    }

    fn gone(&self, cluster: &Cluster, dependency: &Dependency<JobId>) -> Vec<Gone> {
        let named = dependency.terms.iter().flat_map(|term| &term.jobs);
        let is_here = |id: JobId| cluster.job(id).is_some() || cluster.jobs().array(id).is_some();
        let missing = named.filter(|on| !is_here(on.job));
        let wanted: BTreeSet<(JobId, Option<u32>)> = missing
            .flat_map(|on| {
                let task = match on.task {
                    Some(TaskRef::One(task)) => Some(task),
                    Some(TaskRef::All) | None => None,
                };
                [(on.job, None), (on.job, task)]
            })
            .collect();
        wanted.into_iter().filter_map(|(job, task)| self.ended_as(job, task)).collect()
    }

    fn ended_as(&self, job: JobId, task: Option<u32>) -> Option<Gone> {
        let is_meant = |end: &&End| match (&end.array, task) {
            (Some((id, tasks)), Some(task)) => *id == job && tasks.contains(task),
            (Some((id, _)), None) => *id == job,
            (None, _) => false,
        };
        let mut found: Vec<&End> = self.0.values().filter(is_meant).collect();
        if found.is_empty() && task.is_none() {
            found.extend(self.0.get(&job));
        }
        let completed = found.iter().all(|end| end.completed);
        (!found.is_empty()).then_some(Gone { job, task: task.map(ArrayTaskId), completed })
    }
}
