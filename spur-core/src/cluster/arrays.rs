//! Job arrays as a whole: the records that stand for their tasks, and the outcomes of tasks whose records
//! have left memory.
//!
//! [`Jobs`](super::Jobs) keeps them. An update costs in proportion to the change, not to the number of tasks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::model::array::ArrayPart;
use crate::model::phase::{EndState, Phase};
use crate::text::array::TaskSet;

/// An array with at least one record in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Records that stand for one task, by task.
    singles: BTreeMap<u32, JobId>,
    /// Records that stand for several tasks.
    groups: BTreeSet<JobId>,
    /// Number of pending tasks.
    pending: usize,
    /// Number of tasks that hold resources.
    active: usize,
    ended: EndedTasks,
}

/// Tasks that have ended, by outcome; their records may have left memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTasks {
    /// Tasks that completed with exit code 0.
    #[serde(default)]
    pub completed: TaskSet,
    /// Tasks that ended, but did not complete with exit code 0.
    #[serde(default)]
    pub failed: TaskSet,
}

impl EndedTasks {
    /// True if no task has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.failed.is_empty()
    }

    fn add(&mut self, tasks: &TaskSet, state: EndState) {
        let known = if state == EndState::Completed { &mut self.completed } else { &mut self.failed };
        *known = known.with(tasks);
    }
}

impl Array {
    /// The records by task, followed by those that stand for several tasks.
    pub fn records(&self) -> impl Iterator<Item = JobId> + '_ {
        self.singles.values().chain(&self.groups).copied()
    }

    /// The record that stands for this task alone; `None` if there is none.
    #[must_use]
    pub fn single(&self, task: u32) -> Option<JobId> {
        self.singles.get(&task).copied()
    }

    /// The records that stand for one of these tasks each.
    pub(super) fn singles_among(&self, tasks: &TaskSet) -> Vec<JobId> {
        if tasks.len() < self.singles.len() {
            return tasks.iter().filter_map(|task| self.single(task)).collect();
        }
        self.singles.iter().filter(|(task, _)| tasks.contains(**task)).map(|(_, id)| *id).collect()
    }

    /// The records that stand for several tasks, by job number.
    pub fn groups(&self) -> impl Iterator<Item = JobId> + '_ {
        self.groups.iter().copied()
    }

    /// Number of pending tasks.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Number of tasks that hold resources: running, suspended or completing ones.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// True if every task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.pending + self.active == 0
    }

    /// True if any task has ended other than with exit code 0.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.ended.failed.is_empty()
    }

    /// The tasks that have ended.
    #[must_use]
    pub fn ended(&self) -> &EndedTasks {
        &self.ended
    }

    /// True if no record of the array is in memory.
    pub(super) fn is_empty(&self) -> bool {
        self.singles.is_empty() && self.groups.is_empty()
    }

    /// Adds a record, or removes one if `present` is false.
    pub(super) fn count(&mut self, id: JobId, part: &ArrayPart, phase: &Phase, present: bool) {
        match (part.tasks.only(), present) {
            (Some(task), true) => drop(self.singles.insert(task, id)),
            (Some(task), false) => drop(self.singles.remove(&task)),
            (None, true) => drop(self.groups.insert(id)),
            (None, false) => drop(self.groups.remove(&id)),
        }
        let count = match phase {
            Phase::Pending(_) => &mut self.pending,
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) => &mut self.active,
            // The outcome of an ended task stays known after its record has left memory.
            Phase::Ended(ended) => return self.ended.add(&part.tasks, ended.outcome.state),
        };
        if present {
            *count += part.tasks.len();
        } else {
            *count -= part.tasks.len();
        }
    }

    /// Forgets the outcomes of tasks that run again.
    pub(super) fn reopen(&mut self, tasks: &TaskSet) {
        for known in [&mut self.ended.completed, &mut self.ended.failed] {
            *known = known.without(tasks);
        }
    }

    /// Restores the outcomes that a snapshot holds.
    pub(super) fn restore(&mut self, ended: &EndedTasks) {
        self.ended.completed = self.ended.completed.with(&ended.completed);
        self.ended.failed = self.ended.failed.with(&ended.failed);
    }
}
