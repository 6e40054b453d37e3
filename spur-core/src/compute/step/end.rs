//! How the tasks of a step end on one node, and what is kept of the step.

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
    /// Whether the task left a core dump.
    pub core_dumped: bool,
    /// The time of the end, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Why a step's tasks could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchFailure {
    /// The part of the start that failed.
    pub stage: LaunchStage,
    /// The reason, for people.
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

    /// Whether the node is at fault, not the job.
    #[must_use]
    pub fn is_node_fault(&self) -> bool {
        matches!(self.stage, LaunchStage::Spool | LaunchStage::Confinement | LaunchStage::Fork)
    }
}

/// The stages of a start at which it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchStage {
    /// The order itself.
    Order,
    /// The attempt's directory.
    Spool,
    /// The control group.
    Confinement,
    /// The change from root to the user.
    Identity,
    /// The standard files.
    StandardFiles,
    /// Limits and CPU binding.
    Limits,
    /// The task prolog.
    TaskProlog,
    /// The server for MPI programs.
    Mpi,
    /// The making of a process.
    Fork,
}

/// The facts that are kept of a step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time at which every task ran its program, in milliseconds since the Unix epoch; `None` if that never was so.
    pub started_ms: Option<u64>,
    /// The time at which the last process of the step was gone, in milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// The end of every task, in the order of their local ids.
    pub tasks: Vec<TaskExit>,
    /// The reason why tasks could not be started, if that is why the step ended.
    pub failure: Option<LaunchFailure>,
    /// Whether the step used more memory than it may.
    pub out_of_memory: bool,
}
