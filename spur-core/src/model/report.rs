//! What nodes tell the controller of the attempts they were given.

use crate::id::StepId;
use crate::model::step::StepNodeEnd;
use crate::text::exit::ExitCode;

/// What a node reports of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The batch script has ended.
    BatchEnded {
        /// How.
        end: StepNodeEnd,
        /// Whether there is no record of how: node or shim died with it.
        lost: bool,
        /// Whether that is all there was of the attempt here, as if [`Report::NodeDone`] without a complaint followed.
        done: bool,
    },
    /// The batch script could not be started.
    LaunchFailed {
        /// Why, for people.
        message: String,
        /// Whether the node is at fault rather than the job.
        node_fault: bool,
        /// What its exit code is taken for.
        exit: ExitCode,
    },
    /// The tasks of a step on this node have ended.
    StepEnded {
        /// Which step.
        step: StepId,
        /// How.
        end: StepNodeEnd,
    },
    /// Nothing of the attempt is left on this node.
    NodeDone {
        /// What the epilog complained of, if it failed.
        epilog_error: Option<String>,
    },
}

impl Report {
    /// Whether it says that nothing of the attempt is left on the node.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Report::BatchEnded { done, .. } => *done,
            Report::NodeDone { .. } => true,
            Report::LaunchFailed { .. } | Report::StepEnded { .. } => false,
        }
    }
}
