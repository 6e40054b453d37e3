//! What a step is told, and what it has its shell do.

use super::{LaunchFailure, TaskExit};
use crate::text::exit::ExitCode;

/// The time of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that nobody sets; deadlines are on this clock.
    pub steady_ms: u64,
    /// Milliseconds since the Unix epoch, for records.
    pub unix_ms: u64,
}

/// What is fixed of a step when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The tasks' ranks in the step, in the order of their local ids.
    pub ranks: Vec<u32>,
    /// The programs that run after each task, one after another.
    pub epilogs: Vec<Epilog>,
    /// The largest number of tasks between fork and exec; at least 1.
    pub launched_together: usize,
    /// Whether a process of its own serves MPI programs. Tasks wait for [`Input::Served`] then.
    pub has_server: bool,
    /// The step's own time limit, in milliseconds; `None` if only its job's counts.
    pub time_limit_ms: Option<u64>,
    /// Whether the step is killed when memory has run out.
    pub ends_out_of_memory: bool,
}

/// A program that runs after each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilog {
    /// The time after which the program is killed, in milliseconds; `None` if it may run as long as it likes.
    pub limit_ms: Option<u64>,
}

/// Why a step ends. The first cause stays, unless it is [`Cause::Finished`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// All tasks have ended.
    Finished,
    /// The controller or a user ordered the end.
    Terminated,
    /// The step's own time limit is over.
    TimeLimit,
    /// Memory has run out.
    OutOfMemory,
    /// A task could not be started.
    NotLaunched,
    /// The MPI programs cannot go on.
    Aborted,
}

/// What happens to a step. An input that does not fit the state changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The shell is ready to start tasks.
    Begin,
    /// The process that serves MPI programs is ready for tasks.
    Served,
    /// The process that serves MPI programs has ended, or could not be made. After [`Effect::EndServer`] the shell says
    /// [`Input::HelperEnded`] instead.
    ServerEnded {
        /// The reason, which counts while tasks wait for the server.
        failure: LaunchFailure,
    },
    /// A task runs its program.
    Launched {
        /// The task's local id.
        task: usize,
    },
    /// A task's process cannot become the program. [`Input::TaskEnded`] follows.
    NotLaunched {
        /// The task's local id.
        task: usize,
        /// The reason.
        failure: LaunchFailure,
    },
    /// No process could be made for a task.
    NotForked {
        /// The task's local id.
        task: usize,
        /// The reason.
        failure: LaunchFailure,
    },
    /// Something that all tasks need cannot be had.
    Failed {
        /// The reason.
        failure: LaunchFailure,
    },
    /// A task's process has ended and was waited for.
    TaskEnded {
        /// The task's local id.
        task: usize,
        /// The status of the process.
        status: ExitCode,
        /// Whether the process left a core dump.
        core_dumped: bool,
    },
    /// A task's epilog has ended and was waited for, or could not be started.
    EpilogEnded {
        /// The task's local id.
        task: usize,
    },
    /// A helper process was started, to write a notice.
    HelperStarted,
    /// A helper process has ended and was waited for.
    HelperEnded,
    /// Whether tasks on other nodes may still need this node's server has changed.
    Needed {
        /// Whether they may.
        by_others: bool,
    },
    /// The step was seen to have used more memory than it may.
    OverMemory,
    /// Processes of the step are left; the answer to [`Step::asks_for_processes`](super::Step::asks_for_processes).
    Left,
    /// No process of the step is left; the answer to [`Step::asks_for_processes`](super::Step::asks_for_processes).
    Emptied {
        /// How long readers may take with the output that is left, in milliseconds.
        patience_ms: u64,
    },
    /// The controller orders the step to stand still, or to go on.
    Suspend {
        /// Whether the step is to stand still.
        stop: bool,
    },
    /// The controller or a user sends a signal.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether only the tasks' own processes get the signal.
        tasks_only: bool,
    },
    /// The controller or a user orders the end of the step.
    Terminate {
        /// The time between TERM and KILL, in milliseconds; 0 kills at once, `None` leaves KILL to a later order.
        kill_wait_ms: Option<u64>,
        /// A line for the step's standard error, written unless the step was told to end before.
        notice: Option<String>,
    },
    /// The MPI programs cannot go on.
    Abort {
        /// The reason, for people.
        message: String,
    },
    /// A line for the step's standard error.
    Notice {
        /// The line, without its end.
        text: String,
    },
    /// Another reader has taken over the step's streams.
    Attached {
        /// How long readers may take with the output that is left, in milliseconds.
        patience_ms: u64,
    },
    /// The disk's answer to [`Effect::WriteRecord`].
    Recorded {
        /// The answer.
        outcome: Outcome,
    },
    /// Every reader has all output, and every subscriber all events. Counts for this moment only.
    ReaderGone,
    /// The time of [`Step::due`](super::Step::due) has come.
    Time,
}

/// What became of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record is on disk.
    Written,
    /// The attempt's directory is gone: the controller knows of the end, and nobody will look for a record.
    Acknowledged,
    /// The disk did not take the record.
    Refused,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the process that serves MPI programs; answer with [`Input::Served`] or [`Input::ServerEnded`].
    StartServer,
    /// Fork a task's process; answer with [`Input::Launched`], [`Input::NotLaunched`] or [`Input::NotForked`].
    Launch {
        /// The task's local id.
        task: usize,
    },
    /// A task will not be launched; its streams end.
    GiveUp {
        /// The task's local id.
        task: usize,
    },
    /// Start a task's epilog; answer with [`Input::EpilogEnded`].
    StartEpilog {
        /// The task's local id.
        task: usize,
        /// The epilog's number in [`Plan::epilogs`].
        number: usize,
    },
    /// Kill a task's epilog and what it has started in its session.
    KillEpilog {
        /// The task's local id.
        task: usize,
    },
    /// Stop every process of the step.
    Freeze,
    /// Let every process of the step go on.
    Resume,
    /// Send TERM and CONT to every process of the step.
    Term,
    /// Send KILL to every process of the step.
    Kill,
    /// Send a signal.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether only the tasks' own processes get the signal.
        tasks_only: bool,
    },
    /// Write a line to the step's standard error; answer with [`Input::HelperStarted`] if a process does that.
    Notice(Notice),
    /// Tell everybody who has subscribed.
    Tell(News),
    /// Tell the process that serves MPI programs to end. It is a helper from now on.
    EndServer,
    /// Kill the helper processes.
    KillHelpers,
    /// Write the record to the disk; answer with [`Input::Recorded`].
    WriteRecord {
        /// Whether this is the first try.
        is_first: bool,
    },
    /// Nothing needs the shell any more.
    Exit,
}

/// A line for the step's standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// These words.
    Text(String),
    /// The step is cancelled because of its own time limit.
    TimeLimit,
    /// Memory has run out.
    OutOfMemory,
}

/// What subscribers hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Every task runs its program.
    Started {
        /// The time, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// A task has ended.
    TaskEnded(TaskExit),
    /// The step is being ended before its time.
    Cancelled,
    /// The MPI programs cannot go on: the step ends on all nodes.
    Aborted {
        /// The reason, for people.
        message: String,
    },
    /// The step has ended, and its record is complete.
    Ended,
}
