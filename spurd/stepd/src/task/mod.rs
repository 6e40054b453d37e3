//! One task of the step, from its launch to its end.

pub(crate) mod child;
pub(crate) mod epilog;
pub(crate) mod fork;
pub(crate) mod terminal;
pub(crate) mod user;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::Pid;
use spur_core::text::exit::ExitCode;
use step_wire::message::Stream;
use step_wire::order::{Input, Output, StepOrder, TaskOrder};
use step_wire::record::{LaunchFailure, LaunchStage, NO_STANDARD_FILES, TaskExit};

use crate::step::{now_ms, receive_with_descriptors};
use crate::stream::Outgoing;

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) order: TaskOrder,
    pub(crate) pid: Option<Pid>,
    /// Its process could not become the program.
    pub(crate) failed: bool,
    pub(crate) exit: Option<TaskExit>,
    /// The task epilog, while it runs, and when it is killed, if it is.
    pub(crate) epilog: Option<(Pid, Option<Instant>)>,
    /// How many of its epilogs were begun.
    epilogs: usize,
    pub(crate) stdout: Option<Outgoing>,
    pub(crate) stderr: Option<Outgoing>,
    /// The file behind its standard error, for notices.
    pub(crate) stderr_file: Option<File>,
}

impl Task {
    pub(crate) fn new(order: TaskOrder) -> Task {
        Task {
            order,
            pid: None,
            failed: false,
            exit: None,
            epilog: None,
            epilogs: 0,
            stdout: None,
            stderr: None,
            stderr_file: None,
        }
    }

    /// Whether this process is its epilog.
    pub(crate) fn has_epilog(&self, pid: Pid) -> bool {
        self.epilog.is_some_and(|(epilog, _)| epilog == pid)
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

    /// Takes note of the end of the task's process.
    pub(crate) fn ended(&mut self, status: i32, failure: Option<&LaunchFailure>) -> TaskExit {
        let byte = |value: i32| u8::try_from(value).unwrap_or(0);
        let signaled = libc::WIFSIGNALED(status);
        let own = match signaled {
            true => ExitCode { code: 0, signal: byte(libc::WTERMSIG(status)) },
            false => ExitCode { code: byte(libc::WEXITSTATUS(status)), signal: 0 },
        };
        let status_of = failure.filter(|_| self.failed).map_or(own, failure_status);
        let core_dumped = signaled && libc::WCOREDUMP(status);
        self.note(status_of, core_dumped)
    }

    /// Its end where memory ran out.
    pub(crate) fn out_of_memory(&mut self, exit: TaskExit) -> TaskExit {
        let exit = TaskExit { status: ExitCode::OUT_OF_MEMORY, ..exit };
        self.exit = Some(exit);
        exit
    }

    /// Notes that the task will not be started. Its streams end, since their reader waits for that.
    pub(crate) fn never_ran(&mut self, status: ExitCode) -> TaskExit {
        let ended = |output: &Output| (*output == Output::Stream).then(Outgoing::ended);
        (self.stdout, self.stderr) = (ended(&self.order.stdout), ended(&self.order.stderr));
        self.note(status, false)
    }

    fn note(&mut self, status: ExitCode, core_dumped: bool) -> TaskExit {
        let exit = TaskExit { global: self.order.global, status, core_dumped, at_ms: now_ms() };
        self.exit = Some(exit);
        exit
    }

    /// The epilog that comes next, if the task ran.
    pub(crate) fn next_epilog<'a>(&mut self, order: &'a StepOrder) -> Option<&'a Path> {
        let all = [&order.own_task_epilog, &order.task_epilog].into_iter().flatten();
        let next = all.filter(|_| !self.failed).nth(self.epilogs);
        self.epilogs += 1;
        next.map(PathBuf::as_path)
    }

    /// The order for this task's epilog: the same variables, no streams.
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

/// The status of a task that could not be started, as Slurm reports it.
pub(crate) fn failure_status(failure: &LaunchFailure) -> ExitCode {
    match failure.stage {
        LaunchStage::StandardFiles => NO_STANDARD_FILES,
        _ => ExitCode { code: 1, signal: 0 },
    }
}

/// Whether task `index` is the first of `tasks` to use its output and its error file.
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

/// A task between fork and exec, and what it has reported so far.
#[derive(Debug)]
pub(crate) struct Launching {
    pub(crate) index: usize,
    report: UnixStream,
    text: Vec<u8>,
    stderr: Option<File>,
}

impl Launching {
    pub(crate) fn new(index: usize, report: UnixStream) -> Launching {
        Launching { index, report, text: Vec::new(), stderr: None }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// Reads what is there; true when the report is complete.
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

    /// The task's standard error, which may be in use before the report is complete.
    pub(crate) fn stderr(&mut self) -> Option<&mut File> {
        self.advance();
        self.stderr.as_mut()
    }

    /// The task's index, and its standard error or the reason why it does not run.
    pub(crate) fn conclude(self) -> (usize, Result<Option<File>, LaunchFailure>) {
        let text = self.text.trim_ascii();
        if text.is_empty() {
            return (self.index, Ok(self.stderr));
        }
        let garbled = |_| LaunchFailure {
            stage: LaunchStage::Order,
            message: format!("unreadable launch report: {}", String::from_utf8_lossy(text)),
        };
        (self.index, Err(serde_json::from_slice(text).unwrap_or_else(garbled)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;
    use crate::task::child;

    #[test]
    fn the_standard_error_of_a_task_is_at_hand_before_its_launch_is_over() {
        let (report, channel) = UnixStream::pair().unwrap();
        report.set_nonblocking(true).unwrap();
        let mut launching = Launching::new(0, report);
        assert!(launching.stderr().is_none());
        let mut file = tempfile::tempfile().unwrap();
        child::hand_over(&channel, file.as_fd()).unwrap();
        launching.stderr().unwrap().write_all(b"a notice").unwrap();
        assert!(!launching.advance(), "the task has not said that it runs");
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, "a notice");
    }
}
