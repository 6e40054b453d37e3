//! The standard files of a task, opened as its user.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use step_wire::order::{Input, Output};

use crate::task::plan::{Pipes, Plan};
use crate::task::terminal;

/// Interval at which a missing directory is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) type FileError = (String, io::Error);

pub(super) fn standard_files(plan: &Plan<'_>, pipes: Pipes, channel: &UnixStream) -> Result<(), FileError> {
    if let Some(slave) = &pipes.terminal {
        let placed = terminal::control(slave).and_then(|()| {
            rustix::stdio::dup2_stdin(slave)?;
            rustix::stdio::dup2_stdout(slave)?;
            Ok(rustix::stdio::dup2_stderr(slave)?)
        });
        return placed.map_err(|error| ("terminal".to_owned(), error));
    }
    let cwd = &plan.order.cwd;
    let null = || open(Path::new("/dev/null"), OFlags::RDWR, "null device");
    let stdin = match &plan.task.stdin {
        Input::Null => null()?,
        Input::File(path) => open(&cwd.join(path), OFlags::RDONLY, "stdin")?,
        Input::Stream => pipes.stdin.map_or_else(null, Ok)?,
    };
    let output = |to: &Output, pipe: Option<OwnedFd>, truncate: bool, name: &str| match to {
        Output::Null | Output::Stdout => null(),
        Output::File { path, append } => {
            let emptied = if truncate && !append { OFlags::TRUNC } else { OFlags::empty() };
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | emptied;
            match plan.is_task {
                true => open_when_there(&cwd.join(path), flags, name, plan.order.directory_wait_ms),
                // A task may wait for its file (a named pipe); an epilog waits for nothing.
                false => open(&cwd.join(path), flags | OFlags::NONBLOCK, name).or_else(|_| null()),
            }
        }
        Output::Stream => pipe.map_or_else(null, Ok),
    };
    let stdout = output(&plan.task.stdout, pipes.stdout, plan.truncate.0, "stdout")?;
    let stderr = match &plan.task.stderr {
        Output::Stdout => None,
        other => Some(output(other, pipes.stderr, plan.truncate.1, "stderr")?),
    };
    let stderr = stderr.as_ref().unwrap_or(&stdout);
    let stderr_order = if plan.task.stderr == Output::Stdout { &plan.task.stdout } else { &plan.task.stderr };
    // Only the task may hold the end of a pipe, otherwise its close would never show.
    if plan.is_task && matches!(stderr_order, Output::File { .. }) {
        // Without the descriptor, a later notice (cancelled, time limit) is missing in the file.
        let _ = hand_over(channel, stderr.as_fd());
    }
    let placed = rustix::stdio::dup2_stdin(&stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr));
    placed.map_err(|error| ("standard files".to_owned(), error.into()))
}

fn open(path: &Path, flags: OFlags, name: &str) -> Result<OwnedFd, FileError> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::from_bits_truncate(0o666))
        .map_err(|error| (format!("Could not open {name} file {}", path.display()), error.into()))
}

/// Opens a file whose directory may be created shortly after the submission.
///
/// Network file systems do not report new directories, so the open is repeated. The wait is in the task's own
/// process, and is killed like it.
fn open_when_there(path: &Path, flags: OFlags, name: &str, patience_ms: u64) -> Result<OwnedFd, FileError> {
    let until = Instant::now() + Duration::from_millis(patience_ms);
    loop {
        let opened = open(path, flags, name);
        let missing = |(_, error): &FileError| {
            error.kind() == io::ErrorKind::NotFound && path.parent().is_some_and(|parent| !parent.exists())
        };
        if !opened.as_ref().is_err_and(missing) || Instant::now() >= until {
            return opened;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Lets the program inherit a descriptor, and returns its number.
pub(super) fn keep_open(fd: OwnedFd) -> io::Result<i32> {
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?;
    Ok(fd.into_raw_fd())
}

/// Passes spurstepd a copy of the standard error file, which only the user may be able to open.
pub(crate) fn hand_over(channel: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // A descriptor needs at least one byte to travel with; a blank is not part of any report.
    rustix::net::sendmsg(channel, &[io::IoSlice::new(b" ")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
