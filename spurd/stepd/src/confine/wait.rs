//! Waiting for children: which child has ended, and what it used.

use std::io;

use rustix::process::Pid;

/// A child that has ended and has been waited for; the usage includes its own waited-for children.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    /// The status as wait(2) returns it.
    pub(crate) status: i32,
    /// CPU time in user mode, in microseconds.
    pub(crate) user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub(crate) system_us: u64,
    /// Page faults that needed a disk.
    pub(crate) major_faults: u64,
    /// Largest resident memory of one process, in bytes.
    pub(crate) peak_bytes: u64,
}

/// Returns a child that has ended, without waiting for it; `None` if none has.
///
/// # Errors
/// `ECHILD` if there are no children.
pub(crate) fn ended_child() -> io::Result<Option<Pid>> {
    // SAFETY: all fields are numbers or pointers that are only written to.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `found` is valid for writes.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, how) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid(2) has filled it in, or left it zero.
    Ok(Pid::from_raw(unsafe { found.si_pid() }))
}

/// Waits for a child that has ended.
///
/// # Errors
/// The system's error if `child` is not a child of this process.
pub(crate) fn reap(child: Pid) -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: all fields are numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for writes.
    if unsafe { libc::wait4(child.as_raw_pid(), &raw mut status, 0, &raw mut used) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Ok(Reaped {
        status,
        user_us: micros(used.ru_utime),
        system_us: micros(used.ru_stime),
        major_faults: used.ru_majflt.unsigned_abs(),
        // getrusage(2) counts kibibytes.
        peak_bytes: used.ru_maxrss.unsigned_abs() << 10,
    })
}

/// Returns the clock ticks in a second, and the bytes in a page of memory.
pub(crate) fn units() -> (u64, u64) {
    // SAFETY: sysconf(3) has no preconditions.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    (u64::try_from(ticks).unwrap_or(100).max(1), u64::try_from(page).unwrap_or(4096))
}
