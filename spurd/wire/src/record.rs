//! What remains of a step that has ended: the exit record.
//!
//! spurstepd writes it as `exit.json` into the attempt's directory before it says that the step has ended, so
//! that a spurd that was away finds the real exit codes when it returns. It stays until the controller has
//! acknowledged the report made from it.

use serde::{Deserialize, Serialize};
use spur_core::compute::StepEnd;
pub use spur_core::compute::step::{LaunchFailure, LaunchStage, NO_STANDARD_FILES, Record, TaskExit};
use spur_core::model::step::StepNodeEnd;
use spur_core::model::usage::Usage;
use spur_core::text::exit::ExitCode;

use crate::attempt::StepAttempt;

/// The name of the record's file in the attempt's directory.
pub const EXIT_FILE: &str = "exit.json";
/// The name of the record's file until it is whole. It is made before anything of the user's runs: an attempt without it
/// has not begun.
pub const UNFINISHED_FILE: &str = "exit.json.new";

/// The end of a step on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitRecord {
    /// Which attempt ended.
    pub attempt: StepAttempt,
    /// When the first task ran its program; `None` if none did. Milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// When the last process of the step was gone. Milliseconds since 1970.
    pub ended_ms: u64,
    /// The end of every task, in the order of their local ids.
    pub tasks: Vec<TaskExit>,
    /// Set if a task could not be started at all.
    pub failure: Option<LaunchFailure>,
    /// The kernel killed a process of the step for lack of memory.
    pub out_of_memory: bool,
    /// What its tasks used; `None` where that is not known.
    #[serde(default)]
    pub usage: Option<Box<Usage>>,
}

impl ExitRecord {
    /// The record of an attempt whose tasks used `usage`.
    pub fn new(attempt: StepAttempt, record: Record, usage: Usage) -> ExitRecord {
        let Record { started_ms, ended_ms, tasks, failure, out_of_memory } = record;
        let usage = Some(Box::new(usage));
        ExitRecord { attempt, started_ms, ended_ms, tasks, failure, out_of_memory, usage }
    }

    /// The end of the step as the node's pure half knows it. What keeps tasks from starting is told as such; standard files that
    /// cannot be opened have Slurm's status for that.
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

    /// The status of the step on this node: the worst of its tasks'.
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
