//! spurd's end of the process from which spurstepds are forked; `fork_server` in spurstepd is the other end.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The process from which spurstepds are forked. It starts on first use, and again if it has died.
#[derive(Debug)]
pub(super) struct ForkServer {
    program: PathBuf,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    socket: UnixStream,
    child: Child,
}

impl ForkServer {
    pub(super) fn new(program: PathBuf) -> ForkServer {
        ForkServer { program, running: Mutex::new(None) }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a spurstepd that listens on a socket and runs an attempt in its directory, and waits for the
    /// fork.
    ///
    /// # Errors
    /// Explains why no process was created.
    pub(super) fn fork(&self, listener: &UnixListener, directory: &File) -> io::Result<()> {
        self.fork_with(&[listener.as_fd(), directory.as_fd()])
    }

    /// Starts a process that reads a file for the other end of a socket, and waits for the fork.
    ///
    /// # Errors
    /// Explains why no process was created.
    pub(super) fn fork_reader(&self, socket: &UnixStream) -> io::Result<()> {
        self.fork_with(&[socket.as_fd()])
    }

    fn fork_with(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &mut *running {
            match known.send(descriptors) {
                Ok(()) => return known.answer(),
                // The process died before it took the request, so a new one may take the request.
                Err(error) => tracing::warn!(%error, "spurstepd is gone and started anew"),
            }
            *running = None;
        }
        let new = running.insert(Running::start(&self.program)?);
        new.send(descriptors)?;
        new.answer()
    }
}

impl Running {
    fn start(program: &Path) -> io::Result<Running> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new(program).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
        Ok(Running { socket, child })
    }

    fn send(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(descriptors));
        rustix::net::sendmsg(&self.socket, &[io::IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut error = [0; 4];
        self.socket.read_exact(&mut error)?;
        match i32::from_le_bytes(error) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Closing the socket ends the process, if it still lives.
        if self.socket.shutdown(std::net::Shutdown::Both).is_ok()
            && let Err(error) = self.child.wait()
        {
            tracing::warn!(%error, "spurstepd could not be waited for");
        }
    }
}
