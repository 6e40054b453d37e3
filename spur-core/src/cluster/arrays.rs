//! What is known of a job array as a whole: the records that stand for its tasks, and how tasks ended whose records
//! have left memory.
//!
//! Kept by [`Jobs`](super::Jobs) at the cost of what changes, never of how many tasks there are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::model::array::ArrayPart;
use crate::model::phase::{EndState, Phase};
use crate::text::array::TaskSet;

/// An array of which some record is in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Records that stand for one task.
    singles: BTreeMap<u32, JobId>,
    /// Records that stand for several.
    groups: BTreeSet<JobId>,
    /// How many tasks wait.
    pending: usize,
    /// How many hold something.
    active: usize,
    ended: EndedTasks,
}

/// Tasks that have ended, by how; their records may have left memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTasks {
    /// With exit code 0.
    #[serde(default)]
    pub completed: TaskSet,
    /// In any other way.
    #[serde(default)]
    pub failed: TaskSet,
}

impl EndedTasks {
    /// Whether there are none.
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
    /// The records, by task; those that stand for several tasks come last.
    pub fn records(&self) -> impl Iterator<Item = JobId> + '_ {
        self.singles.values().chain(&self.groups).copied()
    }

    /// The record that stands for this one task alone.
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

    /// The records that stand for several tasks, by number.
    pub fn groups(&self) -> impl Iterator<Item = JobId> + '_ {
        self.groups.iter().copied()
    }

    /// Tasks that wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Tasks that hold something: they run, or are ending.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Whether every task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.pending + self.active == 0
    }

    /// Whether any task has ended in another way than with exit code 0.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.ended.failed.is_empty()
    }

    /// Tasks that have ended.
    #[must_use]
    pub fn ended(&self) -> &EndedTasks {
        &self.ended
    }

    /// Whether nothing in memory belongs to it.
    pub(super) fn is_empty(&self) -> bool {
        self.singles.is_empty() && self.groups.is_empty()
    }

    /// Counts a record in or out.
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
            // How a task ended stays known when its record leaves.
            Phase::Ended(ended) => return self.ended.add(&part.tasks, ended.outcome.state),
        };
        if present {
            *count += part.tasks.len();
        } else {
            *count -= part.tasks.len();
        }
    }

    /// Takes out how tasks ended that are to run again.
    pub(super) fn reopen(&mut self, tasks: &TaskSet) {
        for known in [&mut self.ended.completed, &mut self.ended.failed] {
            *known = known.without(tasks);
        }
    }

    /// Puts in what a snapshot knew of tasks that had ended.
    pub(super) fn restore(&mut self, ended: &EndedTasks) {
        self.ended.completed = self.ended.completed.with(&ended.completed);
        self.ended.failed = self.ended.failed.with(&ended.failed);
    }
}
