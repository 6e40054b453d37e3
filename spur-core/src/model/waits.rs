//! What a pending job still waits for: its dependency with jobs by number and what is satisfied taken out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ArrayTaskId, JobId};
use crate::text::dependency::{Dependency, DependencyJob, DependencyKind, Join, TaskRef};

/// What is left of a dependency. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Whether one satisfied term is enough (`?` between terms).
    pub any: bool,
    /// The terms not yet satisfied, also those that never will be.
    pub terms: Vec<Wait>,
}

/// One condition on one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What must happen.
    pub kind: WaitKind,
    /// To which job or array.
    pub job: JobId,
    /// To how much of it.
    #[serde(default, skip_serializing_if = "Scope::is_whole")]
    pub scope: Scope,
    /// How many seconds after it.
    #[serde(default)]
    pub delay: u64,
    /// Whether it can happen no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
}

/// How a job had ended that had left memory before another was to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The job, or the array.
    pub job: JobId,
    /// The task of the array that this is about; `None` for all that there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ArrayTaskId>,
    /// Whether it completed, as a whole.
    pub completed: bool,
}

/// How much of a job or array something is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The job.
    #[default]
    Whole,
    /// The array with all its tasks.
    All,
    /// One task of the array.
    Task(ArrayTaskId),
    /// The task of the array that has the same index as the one that waits.
    Same,
}

impl Scope {
    fn is_whole(&self) -> bool {
        *self == Scope::Whole
    }
}

/// What a job may wait for another to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitKind {
    /// To start, or to be cancelled.
    Started,
    /// To end in any way.
    Ended,
    /// To end with exit code 0.
    Completed,
    /// To end in any other way.
    Failed,
    /// To end, because it has the same name and user and came before (`singleton`).
    Singleton,
}

impl Waits {
    /// What a dependency amounts to. `earlier` are the jobs a `singleton` term waits for: those of the same name and
    /// user that were submitted before and have not ended. `of_array` says whether tasks of an array wait, each of which may
    /// have a counterpart, and `is_array` what is one. `None` when nothing is left to wait for.
    #[must_use]
    pub fn of(
        dependency: &Dependency<JobId>,
        earlier: &[JobId],
        of_array: bool,
        is_array: impl Fn(JobId) -> bool,
    ) -> Option<Self> {
        let scope = |kind, on: &DependencyJob<JobId>| match (kind, on.task) {
            (_, Some(TaskRef::One(task))) => Scope::Task(ArrayTaskId(task)),
            (DependencyKind::AfterCorr, None) if of_array && is_array(on.job) => Scope::Same,
            (_, Some(TaskRef::All) | None) if is_array(on.job) => Scope::All,
            (_, Some(TaskRef::All) | None) => Scope::Whole,
        };
        let mut terms = Vec::new();
        for term in &dependency.terms {
            let kind = match term.kind {
                DependencyKind::After => WaitKind::Started,
                DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => WaitKind::Ended,
                DependencyKind::AfterOk | DependencyKind::AfterCorr => WaitKind::Completed,
                DependencyKind::AfterNotOk => WaitKind::Failed,
                DependencyKind::Singleton => {
                    let wait = |job: &JobId| Wait {
                        kind: WaitKind::Singleton,
                        job: *job,
                        scope: Scope::Whole,
                        delay: 0,
                        never: false,
                    };
                    terms.extend(earlier.iter().map(wait));
                    continue;
                }
            };
            terms.extend(term.jobs.iter().map(|on| Wait {
                kind,
                job: on.job,
                scope: scope(term.kind, on),
                delay: u64::from(on.delay_minutes) * 60,
                never: false,
            }));
        }
        (!terms.is_empty()).then_some(Self { any: dependency.join == Join::Any, terms })
    }

    /// The jobs it names.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.terms.iter().map(|wait| wait.job)
    }
}

impl fmt::Display for Waits {
    /// As `squeue %E` prints it: `afterok:36(unfulfilled)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut singleton = false;
        for wait in &self.terms {
            let kind = match wait.kind {
                WaitKind::Started => "after",
                WaitKind::Ended => "afterany",
                WaitKind::Completed if wait.scope == Scope::Same => "aftercorr",
                WaitKind::Completed => "afterok",
                WaitKind::Failed => "afternotok",
                WaitKind::Singleton if singleton => continue,
                WaitKind::Singleton => {
                    singleton = true;
                    write!(f, "{between}singleton(unfulfilled)")?;
                    between = if self.any { "?" } else { "," };
                    continue;
                }
            };
            write!(f, "{between}{kind}:{}", wait.job)?;
            match wait.scope {
                Scope::Whole => {}
                Scope::Task(task) => write!(f, "_{task}")?,
                Scope::All | Scope::Same => f.write_str("_*")?,
            }
            if wait.delay > 0 {
                write!(f, "+{}", wait.delay / 60)?;
            }
            f.write_str(if wait.never { "(failed)" } else { "(unfulfilled)" })?;
            between = if self.any { "?" } else { "," };
        }
        Ok(())
    }
}
