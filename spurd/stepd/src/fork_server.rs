//! The process from which every spurstepd of a spurd is forked.
//!
//! Executing a program for each step would cost more than all that spurstepd does for a short one. So spurd
//! executes it once, and that process, small and with one thread, forks for each step. It ends with the spurd
//! that started it; the steps go on. Over its standard input, spurd sends a byte with the step's control
//! socket and directory, or with one socket for a process that reads a file. The answer is the error number
//! of the fork, 0 for success.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::unistd::ForkResult;

use crate::socket::receive_with_descriptors;

/// The purpose of a forked process.
pub(crate) enum Wanted {
    /// Running a step.
    Step {
        /// The step's control socket.
        listener: UnixListener,
        /// The directory of the step's attempt.
        directory: File,
    },
    /// Reading a file as a user.
    Reader {
        /// Socket on which spurd names the file and reads its bytes.
        socket: UnixStream,
    },
}

impl Wanted {
    /// Recognises a request by the number of its descriptors.
    fn new(files: Vec<File>) -> io::Result<Wanted> {
        let mut files = files.into_iter().map(OwnedFd::from);
        match (files.next(), files.next()) {
            (Some(listener), Some(directory)) => {
                Ok(Wanted::Step { listener: listener.into(), directory: directory.into() })
            }
            (Some(socket), None) => Ok(Wanted::Reader { socket: socket.into() }),
            (None, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "a request without a socket")),
        }
    }
}

/// Forks a process for every request. Returns the request in each child, and `None` in the parent once spurd
/// is gone.
pub(crate) fn tend() -> io::Result<Option<Wanted>> {
    let mut spurd = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Keys typed at spurd's terminal must not reach the steps.
    rustix::process::setsid()?;
    children(SigHandler::SigIgn)?;
    loop {
        let mut byte = [0];
        let files = match receive_with_descriptors(&spurd, &mut byte) {
            Ok((0, _)) => return Ok(None),
            Ok((_, files)) => files,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let wanted = Wanted::new(files)?;
        // SAFETY: this process has one thread, so the child may do everything that the parent may.
        let error = match unsafe { nix::unistd::fork() } {
            Ok(ForkResult::Parent { .. }) => 0,
            Ok(ForkResult::Child) => {
                rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
                children(SigHandler::SigDfl)?;
                return Ok(Some(wanted));
            }
            Err(error) => error as i32,
        };
        spurd.write_all(&error.to_le_bytes())?;
    }
}

/// Lets the kernel discard children that end (`SigIgn`), or keep them until they are waited for (`SigDfl`).
fn children(handler: SigHandler) -> io::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler is one of the predefined ones, no function.
    unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &action) }?;
    Ok(())
}
