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
    /// Tasks of these records, by where they stand.
    counts: Counts,
    gone: Gone,
}

/// How many tasks stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    pending: usize,
    active: usize,
    completed: usize,
    failed: usize,
}

/// Tasks whose records have left memory, by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// With exit code 0.
    #[serde(default)]
    pub completed: TaskSet,
    /// In any other way.
    #[serde(default)]
    pub failed: TaskSet,
}

impl Gone {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.failed.is_empty()
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

    /// The records that stand for several tasks, by number.
    pub fn groups(&self) -> impl Iterator<Item = JobId> + '_ {
        self.groups.iter().copied()
    }

    /// Tasks that wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.counts.pending
    }

    /// Tasks that hold something: they run, or are ending.
    #[must_use]
    pub fn active(&self) -> usize {
        self.counts.active
    }

    /// Whether every task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.counts.pending + self.counts.active == 0
    }

    /// Whether any task has ended in another way than with exit code 0.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.counts.failed > 0 || !self.gone.failed.is_empty()
    }

    /// Tasks whose records have left memory.
    #[must_use]
    pub fn gone(&self) -> &Gone {
        &self.gone
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
        let counts = &mut self.counts;
        let count = match phase {
            Phase::Pending(_) => &mut counts.pending,
            Phase::Running { .. } | Phase::Completing(_) => &mut counts.active,
            Phase::Ended(ended) if ended.outcome.state == EndState::Completed => &mut counts.completed,
            Phase::Ended(_) => &mut counts.failed,
        };
        if present {
            *count += part.tasks.len();
        } else {
            *count -= part.tasks.len();
        }
    }

    /// Remembers how the tasks of a record ended that is about to leave memory.
    pub(super) fn remember(&mut self, part: &ArrayPart, phase: &Phase) {
        let Phase::Ended(ended) = phase else { return };
        let completed = ended.outcome.state == EndState::Completed;
        let tasks = if completed { &mut self.gone.completed } else { &mut self.gone.failed };
        *tasks = tasks.with(&part.tasks);
    }

    /// Puts in what a snapshot knew of tasks that have left memory.
    pub(super) fn restore(&mut self, gone: Gone) {
        self.gone = gone;
    }
}
