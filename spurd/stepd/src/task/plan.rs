//! What one child is to become, and what it is given.

use std::os::fd::OwnedFd;

use step_wire::order::{StepOrder, TaskOrder};

use crate::confine::group::Group;

/// The standard streams of a task as spurstepd made them: the ends of pipes that the child takes over.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// What an MPI library in the task finds its server by.
    pub(crate) mpi: MpiEnd,
    /// The terminal that takes the place of all three.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A task's end of the way to its MPI server.
#[derive(Debug, Default)]
pub(crate) struct MpiEnd {
    /// The socket for PMI.
    pub(crate) socket: Option<OwnedFd>,
    /// What goes into the task's environment.
    pub(crate) variables: Vec<(String, String)>,
}

/// What one child is to become.
pub(crate) struct Plan<'a> {
    pub(crate) order: &'a StepOrder,
    pub(crate) task: &'a TaskOrder,
    /// `NAME=value` entries, each ended by a NUL.
    pub(crate) environment: &'a [u8],
    pub(crate) argv: &'a [String],
    /// Empty the output files that do not append; set for the first task that uses them.
    pub(crate) truncate: (bool, bool),
    /// The control group.
    pub(crate) group: Option<&'a Group>,
    /// The CPU set and the limits are applied, the prolog is run: false for a task's epilog.
    pub(crate) is_task: bool,
}
