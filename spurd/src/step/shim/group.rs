//! The control group (version 2) of a step: its processes as one thing that can be limited, counted and killed.
//!
//! Which limits are enforced depends on the controllers that the node's administrator delegated: a file that is
//! not there is a limit that this node does not enforce, and spurd says so when it starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use spur_core::id::StepId;

use super::super::order::Confinement;
use super::tree::Process;
use crate::groups::step_group;

/// One step's control group.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    directory: File,
    processes: File,
    events: File,
}

impl Group {
    /// Makes the group of a step below its job's.
    ///
    /// # Errors
    /// The system's error if the group cannot be made or a limit that exists cannot be set.
    pub(super) fn create(confinement: &Confinement, step: StepId) -> io::Result<Group> {
        let path = confinement.job_group.join(step_group(step));
        fs::create_dir_all(&path)?;
        // A step that has lost a process to the job's limit is of no use: all of it goes.
        set(&path, "memory.oom.group", "1")?;
        if !confinement.cpus.is_empty() {
            let list: Vec<String> = confinement.cpus.iter().map(u32::to_string).collect();
            set(&path, "cpuset.cpus", &list.join(","))?;
        }
        let directory = File::open(&path)?;
        let processes = OpenOptions::new().read(true).write(true).open(path.join("cgroup.procs"))?;
        let events = File::open(path.join("cgroup.events"))?;
        Ok(Group { path, directory, processes, events })
    }

    /// The group, for children that are to be born in it.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Where a process writes `0` to move itself into the group.
    pub(super) fn door(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }

    /// Becomes ready (exceptional condition) when the last process has left.
    pub(super) fn watch(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// True while a process is in the group. A group that somebody removed was empty: the kernel removes no other.
    pub(super) fn populated(&self) -> bool {
        let mut text = String::new();
        let mut events = &self.events;
        match events.rewind().and_then(|()| events.read_to_string(&mut text)) {
            Ok(_) => !text.lines().any(|line| line == "populated 0"),
            Err(error) => error.raw_os_error() != Some(rustix::io::Errno::NODEV.raw_os_error()),
        }
    }

    /// The processes in the group at this moment.
    pub(super) fn members(&self) -> Vec<Process> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| Process::find(line.parse().ok()?)).collect()
    }

    /// Stops every process in the group at once, or lets them go on.
    ///
    /// # Errors
    /// The system's error; a kernel before 5.2 cannot.
    pub(super) fn freeze(&self, stop: bool) -> io::Result<()> {
        write(&self.path.join("cgroup.freeze"), if stop { "1" } else { "0" })
    }

    /// Kills every process in the group, also those that are being forked.
    pub(super) fn kill(&self) {
        if write(&self.path.join("cgroup.kill"), "1").is_err() {
            // Kernels before 5.14: whoever is forked meanwhile is met when the group is looked at again.
            self.members().into_iter().for_each(|process| process.signal(Signal::KILL));
        }
    }

    /// True if the kernel killed a process of the group for lack of memory.
    pub(super) fn out_of_memory(&self) -> bool {
        let text = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
    }

    /// Removes the empty group; the job's stays until spurd is done with the job.
    pub(super) fn remove(self) {
        // A group that stays behind is empty, and goes with the job's.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Writes a limit if this node enforces it.
fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    let error = match write(&group.join(file), value) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => error,
    };
    Err(io::Error::new(error.kind(), format!("{file} = {value}: {error}")))
}

/// Writes a control file that exists.
fn write(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}
