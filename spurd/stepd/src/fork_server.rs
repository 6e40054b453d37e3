//! The process that every spurstepd of a spurd is forked from.
//!
//! To execute a program for each step costs more than all that spurstepd does for a short one. So spurd executes it
//! once, and that process, small and with one thread, forks itself for each step. It ends with the spurd that started
//! it; the steps do not. The dialogue over its standard input: spurd sends a byte and with it the step's control
//! socket and its directory, or for a process that reads a file one socket, and is answered with the error number of the
//! fork, 0 for none.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::unistd::ForkResult;

use crate::socket::receive_with_descriptors;

/// What spurd wants a process for.
pub(crate) enum Wanted {
    /// A step.
    Step {
        /// Its control socket.
        listener: UnixListener,
        /// The directory of its attempt.
        directory: File,
    },
    /// A file that is read as a user.
    Reader {
        /// Where spurd says which file, and reads its bytes.
        socket: UnixStream,
    },
}

impl Wanted {
    /// What is asked for with these descriptors: how many there are says what they are.
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

/// Forks a process for everything that is wanted. Returns what is wanted in each of them, and `None` in the first process,
/// when spurd is gone.
pub(crate) fn tend() -> io::Result<Option<Wanted>> {
    let mut spurd = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // What somebody types at spurd's terminal is not meant for the steps.
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
        // SAFETY: this process has only this thread, so the child may do everything that the parent may.
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

/// Has the kernel forget children that end (`SigIgn`), or keep them for who waits for them (`SigDfl`).
fn children(handler: SigHandler) -> io::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: no function of ours is installed as a handler.
    unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &action) }?;
    Ok(())
}
