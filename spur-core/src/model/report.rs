//! What nodes tell the controller of the attempts they were given.

use crate::id::StepId;
use crate::text::exit::ExitCode;

/// What a node reports of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The batch script has ended.
    BatchEnded {
        /// How.
        exit: ExitCode,
        /// Whether memory ran out.
        out_of_memory: bool,
        /// Whether there is no record of how: node or shim died with it.
        lost: bool,
    },
    /// The batch script could not be started.
    LaunchFailed {
        /// Why, for people.
        message: String,
        /// Whether the node is at fault rather than the job.
        node_fault: bool,
    },
    /// The tasks of a step on this node have ended.
    StepEnded {
        /// Which step.
        step: StepId,
        /// The highest exit.
        exit: ExitCode,
    },
    /// Nothing of the attempt is left on this node.
    NodeDone {
        /// What the epilog complained of, if it failed.
        epilog_error: Option<String>,
    },
}
