//! Processes of this host, as `/proc` shows them.
//!
//! A process is identified by its id and its start time, and signalled through a descriptor that is checked
//! against both. A signal therefore never reaches another process with the same id.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The parent's process id.
    pub parent: i32,
    /// Clock ticks from boot to the start of the process.
    pub started: u64,
    /// True if the process is dead, but has not been waited for.
    pub zombie: bool,
}

impl Process {
    /// Returns the process with this id; `None` if there is none.
    pub fn find(pid: i32) -> Option<Process> {
        Stat::of(pid).map(|stat| stat.process)
    }

    /// Sends a signal to this process and no other; does nothing if the process is gone.
    pub fn signal(self, signal: Signal) {
        if let Some(descriptor) = self.descriptor() {
            // The process may have ended in between, which is no error.
            let _ = rustix::process::pidfd_send_signal(&descriptor, signal);
        }
    }

    /// Kills this process and waits for its end.
    pub fn kill_and_wait(self) {
        let Some(descriptor) = self.descriptor() else { return };
        if rustix::process::pidfd_send_signal(&descriptor, Signal::KILL).is_ok() {
            let mut ended = [PollFd::new(&descriptor, PollFlags::IN)];
            while rustix::event::poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
        }
    }

    /// Opens a descriptor of this process; `None` if the process is gone.
    fn descriptor(self) -> Option<OwnedFd> {
        let descriptor = rustix::process::pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        Process::find(self.pid).is_some_and(|now| now.started == self.started).then_some(descriptor)
    }
}

/// The usage of a process at one moment, including children that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub process: Process,
    /// The id of the process's session.
    pub session: i32,
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// CPU time in user mode, in clock ticks.
    pub user_ticks: u64,
    /// CPU time in the kernel, in clock ticks.
    pub system_ticks: u64,
    /// Size of the address space, in bytes.
    pub virtual_bytes: u64,
    /// Size of the resident memory, in pages.
    pub resident_pages: u64,
}

impl Stat {
    /// Reads the usage of the process with this id; `None` if there is none.
    pub fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a line of `/proc/PID/stat`; the program's name in it may contain spaces and parentheses. `None`
    /// for a malformed line.
    fn parse(line: &str) -> Option<Stat> {
        let pid = line.split(' ').next()?.parse().ok()?;
        // The rest begins with field 3 of proc(5).
        let rest: Vec<&str> = line.get(line.rfind(')')? + 2..)?.split_ascii_whitespace().collect();
        let field = |number: usize| rest.get(number - 3)?.parse::<u64>().ok();
        let process = Process {
            pid,
            parent: rest.get(1)?.parse().ok()?,
            started: field(22)?,
            zombie: matches!(*rest.first()?, "Z" | "X"),
        };
        Some(Stat {
            process,
            session: rest.get(3)?.parse().ok()?,
            major_faults: field(12)? + field(13)?,
            user_ticks: field(14)? + field(16)?,
            system_ticks: field(15)? + field(17)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Returns all processes of the host.
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(Process::find)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let tail = "S 7 42 43 0 -1 4194560 1 0 2 3 10 20 30 40 20 0 1 0 98765 4096 5 18446744073709551615";
        for name in ["cat", "a b", ") S 1 (", "x)"] {
            let read = Stat::parse(&format!("42 ({name}) {tail}\n")).unwrap();
            let expected = Stat {
                process: Process { pid: 42, parent: 7, started: 98765, zombie: false },
                session: 43,
                major_faults: 5,
                user_ticks: 40,
                system_ticks: 60,
                virtual_bytes: 4096,
                resident_pages: 5,
            };
            assert_eq!(read, expected, "{name}");
        }
        assert_eq!(Stat::parse("42 (cat"), None);
    }
}
