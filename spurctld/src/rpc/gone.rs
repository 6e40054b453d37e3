//! The outcome, from accounting, of jobs that have left memory and on which other jobs depend.

use std::collections::BTreeSet;
use std::iter;

use spur_core::controller::{Command, Input};
use spur_core::id::{ArrayTaskId, JobId};
use spur_core::model::phase::EndState;
use spur_core::model::waits::Gone;
use spur_core::text::array::TaskSet;
use spur_core::text::dependency::{Dependency, TaskRef};

use super::Desk;
use crate::inbox::Ask;
use crate::store::StoreError;
use crate::store::accounting::{JobRow, Page, Query};

impl Desk {
    /// Adds to a submission the outcomes of the forgotten jobs that its dependencies name.
    pub(super) async fn look_up(&self, mut ask: Ask) -> Ask {
        if let Input::Command { command: Command::Submit(submission), .. } = &mut ask.input {
            let rest = submission.rest.iter_mut().map(|component| &mut component.spec);
            for spec in iter::once(&mut submission.spec).chain(rest) {
                let Some(dependency) = spec.dependency.as_deref() else { continue };
                let gone = self.gone(dependency).await;
                if !gone.is_empty() {
                    spec.extra.get_or_insert_default().gone = gone;
                }
            }
        }
        ask
    }

    /// Returns the outcomes of the forgotten jobs that a dependency names.
    pub(super) async fn gone(&self, dependency: &Dependency<JobId>) -> Vec<Gone> {
        let named = || dependency.terms.iter().flat_map(|term| &term.jobs);
        let (seen, missing) = {
            let cluster = self.replica.read();
            let is_here = |id: JobId| cluster.job(id).is_some() || cluster.jobs().array(id).is_some();
            let missing: BTreeSet<JobId> = named().map(|on| on.job).filter(|id| !is_here(*id)).collect();
            (cluster.seq(), missing)
        };
        if missing.is_empty() {
            return Vec::new();
        }
        self.accounts.reach(seen).await;
        let rows = match self.rows_of(&missing).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "jobs that others are to wait for cannot be looked up");
                return Vec::new();
            }
        };
        let whole = missing.iter().filter_map(|id| gone_as(*id, None, &rows));
        let tasks: BTreeSet<(JobId, u32)> = named()
            .filter(|on| missing.contains(&on.job))
            .filter_map(|on| match on.task {
                Some(TaskRef::One(task)) => Some((on.job, task)),
                Some(TaskRef::All) | None => None,
            })
            .collect();
        whole.chain(tasks.into_iter().filter_map(|(id, task)| gone_as(id, Some(task), &rows))).collect()
    }

    pub(super) async fn rows_of(&self, jobs: &BTreeSet<JobId>) -> Result<Vec<JobRow>, StoreError> {
        let job_ids = jobs.iter().map(|id| id.0).collect();
        let mut query = Query { job_ids, last_run_only: true, ..Query::default() };
        let mut all = Vec::new();
        loop {
            let Page { rows, more } = self.accounting.jobs(&query).await?;
            query.after = rows.last().map(|row| (row.job_id, row.restarts));
            all.extend(rows);
            if !more {
                return Ok(all);
            }
        }
    }
}

/// Returns the outcome of a job, an array or an array task; `None` if it has not ended, as far as accounting
/// knows, or does not exist.
fn gone_as(job: JobId, task: Option<u32>, rows: &[JobRow]) -> Option<Gone> {
    let has = |row: &JobRow, task: u32| {
        let others = row.array_tasks.as_deref().unwrap_or_default();
        let others = others.split('%').next().unwrap_or_default().parse::<TaskSet>();
        row.array_task_id == Some(task) || others.is_ok_and(|others| others.contains(task))
    };
    let of_array = || rows.iter().filter(|row| row.array_job_id == Some(job.0));
    let found: Vec<&JobRow> = match task {
        Some(task) => of_array().filter(|row| has(row, task)).collect(),
        None if of_array().next().is_some() => of_array().collect(),
        None => rows.iter().filter(|row| row.job_id == job.0).collect(),
    };
    if found.is_empty() || found.iter().any(|row| row.ended.is_none()) {
        return None;
    }
    let completed = found.iter().all(|row| row.state == EndState::Completed.name());
    Some(Gone { job, task: task.map(ArrayTaskId), completed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job_id: u32, array: Option<(u32, u32)>, state: &str) -> JobRow {
        JobRow {
            job_id,
            array_job_id: array.map(|(id, _)| id),
            array_task_id: array.map(|(_, task)| task),
            state: state.to_owned(),
            ended: (state != "RUNNING").then_some(9),
            ..JobRow::default()
        }
    }

    #[test]
    fn an_array_completed_if_all_its_tasks_did() {
        let waited = JobRow {
            array_task_id: None,
            array_tasks: Some("4-5:1%2".to_owned()),
            ..row(7, Some((7, 0)), "CANCELLED")
        };
        let rows = [
            row(3, None, "COMPLETED"),
            row(4, None, "TIMEOUT"),
            row(5, None, "RUNNING"),
            row(8, Some((7, 1)), "COMPLETED"),
            row(9, Some((7, 2)), "FAILED"),
            waited,
            row(21, Some((20, 1)), "COMPLETED"),
            row(20, Some((20, 2)), "COMPLETED"),
        ];
        for (job, task, completed) in [
            (3, None, Some(true)),
            (4, None, Some(false)),
            (5, None, None),
            (6, None, None),
            (7, None, Some(false)),
            (7, Some(1), Some(true)),
            (7, Some(2), Some(false)),
            (7, Some(5), Some(false)),
            (7, Some(6), None),
            (8, None, Some(true)),
            (20, None, Some(true)),
        ] {
            let gone = gone_as(JobId(job), task, &rows);
            assert_eq!(gone.map(|gone| gone.completed), completed, "{job} {task:?}");
        }
    }
}
