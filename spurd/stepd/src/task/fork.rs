//! How spurstepd makes a child, born in its control group where the kernel can do that, and how it waits for one.
//!
//! To move a process into a group, the kernel stops every fork and exit on the node for a moment, some milliseconds on a busy
//! one. A child that is born there disturbs nobody.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::unistd::ForkResult;
use rustix::process::Pid;

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

/// A child that has ended and has been waited for, with all that it had waited for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    /// As wait(2) gives it.
    pub(crate) status: i32,
    /// CPU time in user mode, microseconds.
    pub(crate) user_us: u64,
    /// CPU time in the kernel, microseconds.
    pub(crate) system_us: u64,
    /// Page faults that needed a disk.
    pub(crate) major_faults: u64,
    /// The most resident memory of one process.
    pub(crate) peak_bytes: u64,
}

/// A child that has ended, which stays until it is waited for; `None` if none has.
///
/// # Errors
/// `ECHILD` if there are no children.
pub(crate) fn ended_child() -> io::Result<Option<Pid>> {
    // SAFETY: all of its fields are numbers or pointers that are only written to.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `found` is a place for the answer.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, how) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid(2) has filled it in, or left it zero.
    Ok(Pid::from_raw(unsafe { found.si_pid() }))
}

/// Waits for a child that has ended.
///
/// # Errors
/// The system's error if it is no child of ours.
pub(crate) fn reap(child: Pid) -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: all of its fields are numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are places for the answer.
    if unsafe { libc::wait4(child.as_raw_pid(), &raw mut status, 0, &raw mut used) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Ok(Reaped {
        status,
        user_us: micros(used.ru_utime),
        system_us: micros(used.ru_stime),
        major_faults: used.ru_majflt.unsigned_abs(),
        // In kibibytes, by getrusage(2).
        peak_bytes: used.ru_maxrss.unsigned_abs() << 10,
    })
}

/// Clock ticks in a second, and bytes in a page of memory.
pub(crate) fn units() -> (u64, u64) {
    // SAFETY: sysconf(3) has no preconditions.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    (u64::try_from(ticks).unwrap_or(100).max(1), u64::try_from(page).unwrap_or(4096))
}
