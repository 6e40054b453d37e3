//! How spurstepd makes a child, born in its control group where the kernel can do that, and what every child does first.
//!
//! To move a process into a group, the kernel stops every fork and exit on the node for a moment, some milliseconds on a busy
//! one. A child that is born there disturbs nobody.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as NixSignal};
use nix::unistd::ForkResult;
use rustix::process::{Pid, Signal};

/// `CLONE_INTO_CGROUP` of `linux/sched.h`; the C library's constant is too narrow for it.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// Who we are after a fork.
pub(crate) enum Forked {
    /// The parent of this process.
    Parent(Pid),
    /// The child; `inside` if it was born in the group.
    Child { inside: bool },
}

/// Forks, if possible into the control group whose directory `group` is.
///
/// # Errors
/// The system's error if no process can be made.
///
/// # Safety
/// As for fork(2): this process must have no other thread.
pub(crate) unsafe fn fork(group: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    if let Some(group) = group {
        // SAFETY: as ours.
        match unsafe { clone_into(group) } {
            Ok(forked) => return Ok(forked),
            // An older kernel, a filter of system calls, a group that takes no processes this way.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: as ours.
    Ok(match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Forked::Parent(positive(child.as_raw())),
        ForkResult::Child => Forked::Child { inside: false },
    })
}

/// fork(2) as clone3(2) with `CLONE_INTO_CGROUP`, which no library offers.
///
/// # Safety
/// As for fork(2).
unsafe fn clone_into(group: BorrowedFd<'_>) -> io::Result<Forked> {
    // SAFETY: all of its fields are numbers, and zero says nothing in each.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = INTO_CGROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
    // SAFETY: the arguments are those of a fork: no shared memory, no new stack, nothing that is written to; the C library's
    // handlers of forks look after other threads, and there are none.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child { inside: true }),
        child => Ok(Forked::Parent(positive(i32::try_from(child).unwrap_or_default()))),
    }
}

fn positive(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("the kernel gives children positive process ids")
}

/// Undoes what spurstepd blocks or ignores, or was told to ignore by what started it: a shell that runs a daemon in the
/// background has it ignore INT and QUIT, `nohup` HUP. All would be inherited.
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

/// The program is killed if spurstepd dies: a task that nobody watches could not be told from a lost one.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from(rustix::io::Errno::SRCH))
    }
}
