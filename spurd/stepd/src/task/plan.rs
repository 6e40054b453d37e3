//! The plan of a child process: its order, streams and environment.

use std::os::fd::OwnedFd;

use step_wire::order::{StepOrder, TaskOrder};

use crate::confine::group::Group;

/// The task's ends of the pipes that spurstepd made for its standard streams.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// The socket and variables by which an MPI library in the task finds its server.
    pub(crate) mpi: MpiEnd,
    /// The terminal that replaces all three streams.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A task's connection to its MPI server.
#[derive(Debug, Default)]
pub(crate) struct MpiEnd {
    /// The socket for PMI.
    pub(crate) socket: Option<OwnedFd>,
    /// Variables for the task's environment.
    pub(crate) variables: Vec<(String, String)>,
}

/// The plan of one child.
pub(crate) struct Plan<'a> {
    pub(crate) order: &'a StepOrder,
    pub(crate) task: &'a TaskOrder,
    /// `NAME=value` entries, each ended by a NUL.
    pub(crate) environment: &'a [u8],
    pub(crate) argv: &'a [String],
    /// True where the output or error file has to be truncated, unless it appends: for the first task that
    /// uses it.
    pub(crate) truncate: (bool, bool),
    /// The control group.
    pub(crate) group: Option<&'a Group>,
    /// True for a task, which gets CPUs and limits and runs the prolog; false for a task's epilog.
    pub(crate) is_task: bool,
}
