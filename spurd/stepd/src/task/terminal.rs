//! Terminals of tasks: spurstepd has one end, the task the other.
//!
//! The first task of a step may have a controlling terminal. A task with unbuffered output has a terminal in
//! place of its standard output. All output of the task can be read at spurstepd's end as from a pipe. When
//! all copies of the other end are closed, reading fails after the last byte. Bytes written to spurstepd's
//! end are keys.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::process::Uid;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};
use step_wire::order::{Identity, Window};

/// spurstepd's end of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: OwnedFd,
}

/// Creates a terminal of that size, which belongs to the user, and returns both ends.
///
/// # Errors
/// The system's error.
pub(crate) fn open(window: Window, who: &Identity) -> io::Result<(Terminal, OwnedFd)> {
    let (master, slave) = pair(who)?;
    let terminal = Terminal { master };
    terminal.resize(window)?;
    Ok((terminal, slave))
}

/// Creates a terminal that passes on bytes unchanged; returns spurstepd's end and the task's.
///
/// # Errors
/// The system's error.
pub(crate) fn raw(who: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let (master, slave) = pair(who)?;
    let mut attributes = rustix::termios::tcgetattr(&slave)?;
    attributes.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &attributes)?;
    Ok((master, slave))
}

/// Returns spurstepd's end, which does not block, and the task's, which belongs to the user.
fn pair(who: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    if rustix::process::geteuid().is_root() {
        // The terminal belongs to its creator: without this the user could not open /dev/tty, and others
        // could.
        rustix::fs::fchown(&slave, Some(Uid::from_raw(who.uid)), None)?;
        rustix::fs::fchmod(&slave, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    }
    let flags = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((master, slave))
}

impl Terminal {
    /// Duplicates spurstepd's end, for reading or writing.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.master, 0)?)
    }

    /// Sets the size of the terminal, and signals the programs in it.
    pub(crate) fn resize(&self, window: Window) -> io::Result<()> {
        let size = Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }
}

/// Makes a terminal the controlling one of this process, which must lead a session.
///
/// # Errors
/// The system's error.
pub(crate) fn control(slave: &OwnedFd) -> io::Result<()> {
    Ok(rustix::process::ioctl_tiocsctty(slave)?)
}
