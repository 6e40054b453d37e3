//! One task of the step, from its launch to its end.

mod binding;
pub(crate) mod child;
mod files;
pub(crate) mod fork;
pub(crate) mod plan;
mod prolog;
mod say;
pub(crate) mod set;
pub(crate) mod terminal;
pub(crate) mod user;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Pid;
use spur_core::text::exit::ExitCode;
use step_wire::message::Stream;
use step_wire::order::{Input, Output, TaskOrder};
use step_wire::record::{LaunchFailure, LaunchStage};

use crate::socket::receive_with_descriptors;
use crate::stream::Outgoing;

/// The process and streams of a task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) order: TaskOrder,
    pub(crate) pid: Option<Pid>,
    /// The process's report between fork and exec.
    pub(crate) launching: Option<Launching>,
    /// The task epilog, while it runs.
    pub(crate) epilog: Option<Pid>,
    pub(crate) stdout: Option<Outgoing>,
    pub(crate) stderr: Option<Outgoing>,
    /// The file behind the task's standard error, for notices.
    pub(crate) stderr_file: Option<File>,
}

impl Task {
    pub(crate) fn new(order: TaskOrder) -> Task {
        Task {
            order,
            pid: None,
            launching: None,
            epilog: None,
            stdout: None,
            stderr: None,
            stderr_file: None,
        }
    }

    /// Returns the process id as messages carry it; `None` before the task is started.
    pub(crate) fn id(&self) -> Option<u32> {
        self.pid.map(|pid| pid.as_raw_pid().unsigned_abs())
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = (Stream, &Outgoing)> {
        let stdout = self.stdout.as_ref().map(|outgoing| (Stream::Stdout, outgoing));
        stdout.into_iter().chain(self.stderr.as_ref().map(|outgoing| (Stream::Stderr, outgoing)))
    }

    pub(crate) fn streams_mut(&mut self) -> impl Iterator<Item = (Stream, &mut Outgoing)> {
        let stdout = self.stdout.as_mut().map(|outgoing| (Stream::Stdout, outgoing));
        stdout.into_iter().chain(self.stderr.as_mut().map(|outgoing| (Stream::Stderr, outgoing)))
    }

    pub(crate) fn stream(&mut self, stream: Stream) -> Option<&mut Outgoing> {
        match stream {
            Stream::Stdout => self.stdout.as_mut(),
            Stream::Stderr => self.stderr.as_mut(),
        }
    }

    /// Ends the streams of a task that will not be started, since the client waits for their end.
    pub(crate) fn give_up(&mut self) {
        let ended = |output: &Output| (*output == Output::Stream).then(Outgoing::ended);
        (self.stdout, self.stderr) = (ended(&self.order.stdout), ended(&self.order.stderr));
    }

    /// Returns the order for this task's epilog: the same variables, no streams.
    pub(crate) fn epilog_order(&self) -> TaskOrder {
        let quiet = |output: &Output| match output {
            Output::File { path, .. } => Output::File { path: path.clone(), append: true },
            Output::Stdout => Output::Stdout,
            Output::Null | Output::Stream => Output::Null,
        };
        TaskOrder {
            stdin: Input::Null,
            stdout: quiet(&self.order.stdout),
            stderr: quiet(&self.order.stderr),
            ..self.order.clone()
        }
    }
}

/// Returns the exit code of a process, and whether it dumped core, from the status of wait(2).
pub(crate) fn exit_of(status: i32) -> (ExitCode, bool) {
    let byte = |value: i32| u8::try_from(value).unwrap_or(0);
    match libc::WIFSIGNALED(status) {
        true => (ExitCode::signaled(byte(libc::WTERMSIG(status))), libc::WCOREDUMP(status)),
        false => (ExitCode::exited(byte(libc::WEXITSTATUS(status))), false),
    }
}

/// Returns whether task `index` is the first of `tasks` to use its output file, and its error file.
pub(crate) fn first_users(tasks: &[Task], index: usize) -> (bool, bool) {
    let file = |output: &Output| match output {
        Output::File { path, .. } => Some(path.clone()),
        _ => None,
    };
    let used = |path: &Path| {
        let mut before = tasks[..index].iter().flat_map(|task| [&task.order.stdout, &task.order.stderr]);
        before.any(|output| file(output).as_deref() == Some(path))
    };
    let order = &tasks[index].order;
    let (stdout, stderr) = (file(&order.stdout), file(&order.stderr));
    let first_stdout = stdout.as_ref().is_some_and(|path| !used(path));
    let first_stderr = stderr.as_ref().is_some_and(|path| stdout.as_ref() != Some(path) && !used(path));
    (first_stdout, first_stderr)
}

/// A task between fork and exec, with its report so far.
#[derive(Debug)]
pub(crate) struct Launching {
    report: UnixStream,
    text: Vec<u8>,
    stderr: Option<File>,
}

impl Launching {
    pub(crate) fn new(report: UnixStream) -> Launching {
        Launching { report, text: Vec::new(), stderr: None }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// Reads the available bytes; true when the report is complete or cannot be read on.
    pub(crate) fn advance(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match receive_with_descriptors(&self.report, &mut bytes) {
                Ok((0, _)) => return true,
                Ok((count, files)) => {
                    self.text.extend_from_slice(&bytes[..count]);
                    self.stderr = self.stderr.take().or(files.into_iter().next());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Returns the task's standard error file, which may be known before the report is complete. `None` if it
    /// is not known.
    pub(crate) fn stderr(&mut self) -> Option<&mut File> {
        self.advance();
        self.stderr.as_mut()
    }

    /// Returns the task's standard error file, or the reason why the task does not run.
    pub(crate) fn conclude(self) -> Result<Option<File>, LaunchFailure> {
        let text = self.text.trim_ascii();
        if text.is_empty() {
            return Ok(self.stderr);
        }
        let garbled = |_| LaunchFailure {
            stage: LaunchStage::Order,
            message: format!("unreadable launch report: {}", String::from_utf8_lossy(text)),
        };
        Err(serde_json::from_slice(text).unwrap_or_else(garbled))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;
    use crate::task::files;

    #[test]
    fn the_standard_error_of_a_task_is_at_hand_before_its_launch_is_over() {
        let (report, channel) = UnixStream::pair().unwrap();
        report.set_nonblocking(true).unwrap();
        let mut launching = Launching::new(report);
        assert!(launching.stderr().is_none());
        let mut file = tempfile::tempfile().unwrap();
        files::hand_over(&channel, file.as_fd()).unwrap();
        launching.stderr().unwrap().write_all(b"a notice").unwrap();
        assert!(!launching.advance(), "the task has not said that it runs");
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, "a notice");
    }
}
