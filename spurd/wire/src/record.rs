//! The exit record of a step, which remains after the step has ended.
//!
//! spurstepd writes the record as `exit.json` into the attempt's directory before it reports the end of the
//! step. A spurd that was down meanwhile then finds the real exit codes. The record stays until the
//! controller has acknowledged the report made from it.

use serde::{Deserialize, Serialize};
use spur_core::compute::StepEnd;
pub use spur_core::compute::step::{LaunchFailure, LaunchStage, NO_STANDARD_FILES, Record, TaskExit};
use spur_core::model::step::StepNodeEnd;
use spur_core::model::usage::Usage;
use spur_core::text::exit::ExitCode;

use crate::attempt::StepAttempt;

/// The name of the record's file in the attempt's directory.
pub const EXIT_FILE: &str = "exit.json";
/// The name of the record's file while incomplete. spurstepd creates it before any user code runs: an attempt
/// without it has not begun.
pub const UNFINISHED_FILE: &str = "exit.json.new";

/// The end of a step on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitRecord {
    /// The attempt that has ended.
    pub attempt: StepAttempt,
    /// Milliseconds since the Unix epoch at which every task ran its program; `None` if that never happened.
    pub started_ms: Option<u64>,
    /// Milliseconds since the Unix epoch at which the last process of the step was gone.
    pub ended_ms: u64,
    /// The end of every task, in the order of their local ids.
    pub tasks: Vec<TaskExit>,
    /// The failure to start a task, if there was one.
    pub failure: Option<LaunchFailure>,
    /// True if the step used more memory than it may.
    pub out_of_memory: bool,
    /// The usage of the step's tasks; `None` if it is not known.
    #[serde(default)]
    pub usage: Option<Box<Usage>>,
}

impl ExitRecord {
    /// Returns the record of an attempt whose tasks used `usage`.
    pub fn new(attempt: StepAttempt, record: Record, usage: Usage) -> ExitRecord {
        let Record { started_ms, ended_ms, tasks, failure, out_of_memory } = record;
        let usage = Some(Box::new(usage));
        ExitRecord { attempt, started_ms, ended_ms, tasks, failure, out_of_memory, usage }
    }

    /// Returns the end of the step for the node's pure half.
    ///
    /// A failure to start tasks is reported as such; standard files that cannot be opened have Slurm's exit
    /// status.
    pub fn end(&self) -> StepEnd {
        match &self.failure {
            Some(failure) => StepEnd::NotLaunched {
                message: failure.message.clone(),
                node_fault: failure.is_node_fault(),
                exit: failure.status(),
            },
            None => StepEnd::Exited {
                end: StepNodeEnd {
                    exit: if self.out_of_memory { ExitCode::OUT_OF_MEMORY } else { self.status() },
                    out_of_memory: self.out_of_memory,
                    ended_ms: i64::try_from(self.ended_ms).ok(),
                    usage: self.usage.clone(),
                },
            },
        }
    }

    /// Returns the status of the step on this node: the worst of its tasks'.
    pub fn status(&self) -> ExitCode {
        self.tasks.iter().map(|task| task.status).max_by_key(ExitCode::rank).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(statuses: &[(u8, u8)]) -> ExitRecord {
        let task = |(global, &(code, signal)): (usize, &(u8, u8))| TaskExit {
            global: global as u32,
            status: ExitCode { code, signal },
            core_dumped: false,
            at_ms: 0,
        };
        ExitRecord {
            attempt: "1.0.batch".parse().unwrap(),
            started_ms: None,
            ended_ms: 0,
            tasks: statuses.iter().enumerate().map(task).collect(),
            failure: None,
            out_of_memory: false,
            usage: None,
        }
    }

    #[test]
    fn the_step_ends_as_its_worst_task() {
        let cases = [
            (vec![], (0, 0)),
            (vec![(0, 0), (3, 0), (1, 0)], (3, 0)),
            (vec![(9, 0), (0, 15)], (9, 0)),
            (vec![(0, 9), (0, 15)], (0, 15)),
            (vec![(0, 0)], (0, 0)),
        ];
        for (tasks, (code, signal)) in cases {
            assert_eq!(record(&tasks).status(), ExitCode { code, signal }, "{tasks:?}");
        }
    }
}
