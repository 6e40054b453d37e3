//! Forking of spurstepd's children, directly into their control group where the kernel can, and their first
//! actions.
//!
//! Moving a process into a group stops every fork and exit on the node for a moment, some milliseconds on a
//! busy one. A child that is born in its group disturbs nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as NixSignal};
use nix::unistd::ForkResult;
use rustix::process::{Pid, Signal};

/// `CLONE_INTO_CGROUP` of `linux/sched.h`; the C library's constant is too narrow for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// The side of a fork on which the caller is.
pub(crate) enum Forked {
    /// The parent; holds the child's process id.
    Parent(Pid),
    /// The child; `inside` if it was born in the group.
    Child { inside: bool },
}

/// Forks, if possible into the control group whose directory `group` is.
///
/// # Errors
/// The system's error if no process can be created.
///
/// # Safety
/// The requirement of fork(2) applies: this process must have no other thread.
pub(crate) unsafe fn fork(group: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    if let Some(group) = group {
        // SAFETY: as this function's.
        match unsafe { clone_into(group) } {
            Ok(forked) => return Ok(forked),
            // An older kernel, a filter of system calls, or a group that takes no processes this way.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: as this function's.
    Ok(match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Forked::Parent(positive(child.as_raw())),
        ForkResult::Child => Forked::Child { inside: false },
    })
}

/// fork(2) as clone3(2) with `CLONE_INTO_CGROUP`, which no library offers.
///
/// # Safety
/// The requirements of fork(2) apply.
unsafe fn clone_into(group: BorrowedFd<'_>) -> io::Result<Forked> {
    // SAFETY: all fields are numbers, and zero is neutral in each.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = INTO_CGROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
    // SAFETY: the arguments are those of a fork: no shared memory, no new stack, no memory written. The C
    // library's fork handlers only concern other threads, and there are none.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child { inside: true }),
        child => Ok(Forked::Parent(positive(i32::try_from(child).unwrap_or_default()))),
    }
}

fn positive(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("the kernel gives children positive process ids")
}

/// Resets blocked and ignored signals, which the program would inherit.
///
/// spurstepd blocks some, and its parents may ignore others: a shell ignores INT and QUIT for background
/// processes, `nohup` ignores HUP.
pub(crate) fn reset_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let is_fixed = |signal: &NixSignal| matches!(signal, NixSignal::SIGKILL | NixSignal::SIGSTOP);
    for signal in NixSignal::iterator().filter(|signal| !is_fixed(signal)) {
        // SAFETY: no handler is installed, only the default action.
        unsafe { nix::sys::signal::sigaction(signal, &default) }?;
    }
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Has the kernel kill this process when spurstepd dies: a task without spurstepd is reported as lost and
/// must not run on.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from(rustix::io::Errno::SRCH))
    }
}
