//! The processes of a step where no control group holds them together: spurstepd's descendants.
//!
//! spurstepd is the reaper of every process below it, so one that a task left behind is still a descendant. A
//! process is named by its id and its start time, and signalled through a descriptor that is checked against
//! both: an id that the kernel has handed out again is never hit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: i32,
    /// Its parent's id.
    pub(crate) parent: i32,
    /// Clock ticks from boot to its start.
    pub(crate) started: u64,
    /// Dead, but not yet waited for.
    pub(crate) zombie: bool,
}

impl Process {
    /// The process with this id, if there is one.
    pub(crate) fn find(pid: i32) -> Option<Process> {
        Stat::of(pid).map(|stat| stat.process)
    }

    /// Sends a signal to this process and no other; says nothing if it is gone.
    pub(crate) fn signal(self, signal: Signal) {
        if let Some(descriptor) = self.descriptor() {
            // The process may have ended in between; then the signal has no addressee, which is no error.
            let _ = rustix::process::pidfd_send_signal(&descriptor, signal);
        }
    }

    /// Kills this process and waits for its end.
    pub(crate) fn kill_and_wait(self) {
        let Some(descriptor) = self.descriptor() else { return };
        if rustix::process::pidfd_send_signal(&descriptor, Signal::KILL).is_ok() {
            let mut ended = [PollFd::new(&descriptor, PollFlags::IN)];
            while rustix::event::poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
        }
    }

    /// A descriptor of this very process.
    fn descriptor(self) -> Option<OwnedFd> {
        let descriptor = rustix::process::pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        Process::find(self.pid).is_some_and(|now| now.started == self.started).then_some(descriptor)
    }
}

/// What a process uses at one moment, together with those that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Which.
    pub(crate) process: Process,
    /// The id of its session.
    pub(crate) session: i32,
    /// Page faults that needed a disk.
    pub(crate) major_faults: u64,
    /// CPU time in user mode, in clock ticks.
    pub(crate) user_ticks: u64,
    /// CPU time in the kernel, in clock ticks.
    pub(crate) system_ticks: u64,
    /// Its address space.
    pub(crate) virtual_bytes: u64,
    /// Its resident memory.
    pub(crate) resident_pages: u64,
}

impl Stat {
    /// Of the process with this id, if there is one.
    pub(crate) fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the line of `/proc/PID/stat`; the program's name in it may hold blanks and parentheses.
    fn parse(line: &str) -> Option<Stat> {
        let pid = line.split(' ').next()?.parse().ok()?;
        // From the third field on, by proc(5).
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

/// Every process there is.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(Process::find)
        .collect()
}

/// The living processes below `root`, not `root` itself.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    below(root, &processes())
}

fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for &process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut seen, mut next) = (Vec::new(), BTreeSet::from([root]), vec![root]);
    while let Some(parent) = next.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if seen.insert(process.pid) {
                next.push(process.pid);
                found.push(process);
            }
        }
    }
    found.retain(|process| !process.zombie);
    found
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

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |pid, parent| Process { pid, parent, started: 0, zombie: pid == 6 };
        let all = [process(1, 0), process(2, 1), process(3, 2), process(4, 3), process(5, 1), process(6, 2)];
        let mut found: Vec<i32> = below(2, &all).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }
}
