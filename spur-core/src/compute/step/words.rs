//! Inputs and effects of a step.

use super::{LaunchFailure, TaskExit};
use crate::text::exit::ExitCode;

/// The time of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a monotonic clock; deadlines are on this clock.
    pub steady_ms: u64,
    /// Milliseconds since the Unix epoch, for records.
    pub unix_ms: u64,
}

/// The constants of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The tasks' ranks in the step, in the order of their local ids.
    pub ranks: Vec<u32>,
    /// The programs that run after each task, one after another.
    pub epilogs: Vec<Epilog>,
    /// The largest number of tasks between fork and exec; at least 1.
    pub launched_together: usize,
    /// True if a process of its own serves MPI programs. Tasks then wait for [`Input::Served`].
    pub has_server: bool,
    /// The step's own time limit in milliseconds; `None` if only the job's limit counts.
    pub time_limit_ms: Option<u64>,
    /// True if the step is killed when memory runs out.
    pub ends_out_of_memory: bool,
}

/// A program that runs after each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilog {
    /// Milliseconds after which the program is killed; `None` for no limit.
    pub limit_ms: Option<u64>,
}

/// The cause of a step's end. The first cause stays, unless it is [`Cause::Finished`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// All tasks have ended.
    Finished,
    /// The controller or a user ordered the end.
    Terminated,
    /// The step's own time limit expired.
    TimeLimit,
    /// Memory has run out.
    OutOfMemory,
    /// A task could not be started.
    NotLaunched,
    /// The MPI programs cannot continue.
    Aborted,
}

/// An input of a step. One that does not fit the state changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The shell is ready to start tasks.
    Begin,
    /// The process that serves MPI programs is ready for tasks.
    Served,
    /// The process that serves MPI programs has ended, or could not be created. After [`Effect::EndServer`]
    /// the shell sends [`Input::HelperEnded`] instead.
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
        /// Reason for which the process cannot become the program.
        failure: LaunchFailure,
    },
    /// No process could be made for a task.
    NotForked {
        /// The task's local id.
        task: usize,
        /// Reason for which no process could be made.
        failure: LaunchFailure,
    },
    /// A resource that all tasks need is unavailable.
    Failed {
        /// Reason for which the resource is unavailable.
        failure: LaunchFailure,
    },
    /// A task's process has ended and was waited for.
    TaskEnded {
        /// The task's local id.
        task: usize,
        /// The status of the process.
        status: ExitCode,
        /// True if the process left a core dump.
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
    /// The need of tasks on other nodes for this node's server has changed.
    Needed {
        /// True if tasks on other nodes may still need the server.
        by_others: bool,
    },
    /// The step was found to use more memory than allowed.
    OverMemory,
    /// Processes of the step are left; the answer to
    /// [`Step::asks_for_processes`](super::Step::asks_for_processes).
    Left,
    /// No process of the step is left; the answer to
    /// [`Step::asks_for_processes`](super::Step::asks_for_processes).
    Emptied {
        /// Milliseconds that readers may take for the remaining output.
        patience_ms: u64,
    },
    /// The controller orders the step to be suspended or resumed.
    Suspend {
        /// True to suspend, false to resume.
        stop: bool,
    },
    /// The controller or a user sends a signal.
    Signal {
        /// Number of the signal.
        signal: i32,
        /// True if only the tasks' own processes get the signal.
        tasks_only: bool,
    },
    /// The controller or a user orders the end of the step.
    Terminate {
        /// Milliseconds between TERM and KILL; 0 kills at once, `None` leaves KILL to a later order.
        kill_wait_ms: Option<u64>,
        /// A line for the step's standard error, written unless the end was ordered before.
        notice: Option<String>,
    },
    /// The MPI programs cannot continue.
    Abort {
        /// The reason, in words for users.
        message: String,
    },
    /// A line for the step's standard error.
    Notice {
        /// The line, without its end.
        text: String,
    },
    /// Another reader has taken over the step's streams.
    Attached {
        /// Milliseconds that readers may take for the remaining output.
        patience_ms: u64,
    },
    /// The disk's answer to [`Effect::WriteRecord`].
    Recorded {
        /// Outcome of the write.
        outcome: Outcome,
    },
    /// Every reader has all output, and every subscriber all events, at this moment.
    ReaderGone,
    /// The time of [`Step::due`](super::Step::due) has come.
    Time,
}

/// The fate of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record is on disk.
    Written,
    /// The attempt's directory is gone: the controller knows of the end and needs no record.
    Acknowledged,
    /// The disk refused the record.
    Refused,
}

/// An effect that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Starts the process that serves MPI programs; the answer is [`Input::Served`] or
    /// [`Input::ServerEnded`].
    StartServer,
    /// Forks a task's process; the answer is [`Input::Launched`], [`Input::NotLaunched`] or
    /// [`Input::NotForked`].
    Launch {
        /// The task's local id.
        task: usize,
    },
    /// Ends the streams of a task that will not be launched.
    GiveUp {
        /// The task's local id.
        task: usize,
    },
    /// Starts a task's epilog; the answer is [`Input::EpilogEnded`].
    StartEpilog {
        /// The task's local id.
        task: usize,
        /// The epilog's number in [`Plan::epilogs`].
        number: usize,
    },
    /// Kills a task's epilog and the other processes of its session.
    KillEpilog {
        /// The task's local id.
        task: usize,
    },
    /// Suspends every process of the step.
    Freeze,
    /// Resumes every process of the step.
    Resume,
    /// Sends TERM and CONT to every process of the step.
    Term,
    /// Sends KILL to every process of the step.
    Kill,
    /// Sends a signal to processes of the step.
    Signal {
        /// Number of the signal.
        signal: i32,
        /// True if only the tasks' own processes get the signal.
        tasks_only: bool,
    },
    /// Writes a line to the step's standard error; the answer is [`Input::HelperStarted`] if a process does
    /// that.
    Notice(Notice),
    /// Sends an event to all subscribers.
    Tell(News),
    /// Orders the process that serves MPI programs to end. It counts as a helper from here on.
    EndServer,
    /// Kills the helper processes.
    KillHelpers,
    /// Writes the record to the disk; the answer is [`Input::Recorded`].
    WriteRecord {
        /// True for the first try.
        is_first: bool,
    },
    /// Ends the shell, which is no longer needed.
    Exit,
}

/// A line for the step's standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The line has this text.
    Text(String),
    /// The step is cancelled by its own time limit.
    TimeLimit,
    /// The step is ended because its memory ran out.
    OutOfMemory,
}

/// An event for subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Every task runs its program.
    Started {
        /// Milliseconds since the Unix epoch at which the last of them started.
        at_ms: u64,
    },
    /// A task has ended.
    TaskEnded(TaskExit),
    /// The step is ended before its time.
    Cancelled,
    /// The MPI programs cannot continue: the step ends on all nodes.
    Aborted {
        /// The reason, in words for users.
        message: String,
    },
    /// The step has ended, and its record is complete.
    Ended,
}
