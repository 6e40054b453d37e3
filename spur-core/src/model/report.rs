//! Reports of nodes about their attempts.

use crate::id::StepId;
use crate::model::step::StepNodeEnd;
use crate::text::exit::ExitCode;

/// A report of a node about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The batch script has ended.
    BatchEnded {
        /// The exit code and usage of the script.
        end: StepNodeEnd,
        /// True if there is no record of the end: the node or spurstepd died with it.
        lost: bool,
        /// True if nothing of the attempt is left here, as if [`Report::NodeDone`] without an error followed.
        done: bool,
    },
    /// The batch script could not be started.
    LaunchFailed {
        /// The reason, in words for users.
        message: String,
        /// True if the node is at fault, false if the job is.
        node_fault: bool,
        /// The exit code that the script gets.
        exit: ExitCode,
    },
    /// The tasks of a step on this node have ended.
    StepEnded {
        /// The step that has ended there.
        step: StepId,
        /// The exit codes and usage on this node.
        end: StepNodeEnd,
    },
    /// Nothing of the attempt is left on this node.
    NodeDone {
        /// The error of the epilog, if it failed.
        epilog_error: Option<String>,
    },
}

impl Report {
    /// True if the report says that nothing of the attempt is left on the node.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Report::BatchEnded { done, .. } => *done,
            Report::NodeDone { .. } => true,
            Report::LaunchFailed { .. } | Report::StepEnded { .. } => false,
        }
    }
}
