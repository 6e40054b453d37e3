//! Terminals of tasks: spurstepd has one end, the task the other. The first task of a step may have one as its controlling
//! terminal; one that shall not buffer what it writes has one in place of its standard output.
//!
//! What the task writes, to its standard output and error alike, comes out of our end like out of a pipe; that everybody
//! has closed the other end is told as an error, after all that was written. What is written into our end are keys.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::process::Uid;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};
use step_wire::order::{Identity, Window};

/// Our end.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: OwnedFd,
}

/// Makes a terminal of that size, which belongs to the user, and gives the task's end of it.
///
/// # Errors
/// What the system says.
pub(crate) fn open(window: Window, who: &Identity) -> io::Result<(Terminal, OwnedFd)> {
    let (master, slave) = pair(who)?;
    let terminal = Terminal { master };
    terminal.resize(window)?;
    Ok((terminal, slave))
}

/// A terminal that passes on what is written into the task's end as it is: our end and the task's.
///
/// # Errors
/// What the system says.
pub(crate) fn raw(who: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let (master, slave) = pair(who)?;
    let mut attributes = rustix::termios::tcgetattr(&slave)?;
    attributes.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &attributes)?;
    Ok((master, slave))
}

/// Our end, which does not block, and that of the task, which belongs to the user.
fn pair(who: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    if rustix::process::geteuid().is_root() {
        // It belongs to whoever made it: without this the user could not open /dev/tty's name, nor others be kept from it.
        rustix::fs::fchown(&slave, Some(Uid::from_raw(who.uid)), None)?;
        rustix::fs::fchmod(&slave, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    }
    let flags = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((master, slave))
}

impl Terminal {
    /// Another name of our end, to read from or to write to.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.master, 0)?)
    }

    /// Tells the programs there of another size.
    pub(crate) fn resize(&self, window: Window) -> io::Result<()> {
        let size = Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }
}

/// Makes a terminal the controlling one of this process, which must lead a session.
///
/// # Errors
/// What the system says.
pub(crate) fn control(slave: &OwnedFd) -> io::Result<()> {
    Ok(rustix::process::ioctl_tiocsctty(slave)?)
}
