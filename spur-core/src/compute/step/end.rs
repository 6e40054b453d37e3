//! The end of a step's tasks on one node, and the record of the step.

use serde::{Deserialize, Serialize};

use crate::text::exit::ExitCode;

/// The status that Slurm reports for a step whose standard files could not be opened.
pub const NO_STANDARD_FILES: ExitCode = ExitCode { code: 0, signal: 53 };

/// The end of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskExit {
    /// The task's rank in the step.
    pub global: u32,
    /// The exit code and the signal with which the task counts.
    pub status: ExitCode,
    /// True if the task left a core dump.
    pub core_dumped: bool,
    /// The time of the end, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// The reason for which a step's tasks could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchFailure {
    /// The part of the start that failed.
    pub stage: LaunchStage,
    /// The reason, in words for users.
    pub message: String,
}

impl LaunchFailure {
    /// The status of a task that could not be started, as Slurm reports it.
    #[must_use]
    pub fn status(&self) -> ExitCode {
        match self.stage {
            LaunchStage::StandardFiles => NO_STANDARD_FILES,
            _ => ExitCode::exited(1),
        }
    }

    /// True if the node is at fault, false if the job is.
    #[must_use]
    pub fn is_node_fault(&self) -> bool {
        matches!(self.stage, LaunchStage::Spool | LaunchStage::Confinement | LaunchStage::Fork)
    }
}

/// The stages of a start at which it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchStage {
    /// The order was not usable.
    Order,
    /// The attempt's directory could not be used.
    Spool,
    /// The control group could not be set up.
    Confinement,
    /// The change from root to the user failed.
    Identity,
    /// The standard files could not be opened.
    StandardFiles,
    /// Limits or CPU binding could not be set.
    Limits,
    /// The task prolog failed.
    TaskProlog,
    /// The server for MPI programs failed.
    Mpi,
    /// A process could not be created.
    Fork,
}

/// The record of a step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since the Unix epoch at which every task ran its program; `None` if that never happened.
    pub started_ms: Option<u64>,
    /// Milliseconds since the Unix epoch at which the last process of the step was gone.
    pub ended_ms: u64,
    /// The end of every task, in the order of their local ids.
    pub tasks: Vec<TaskExit>,
    /// The reason for which tasks could not be started, if this ended the step.
    pub failure: Option<LaunchFailure>,
    /// True if the step used more memory than allowed.
    pub out_of_memory: bool,
}
