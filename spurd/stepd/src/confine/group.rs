//! The control groups of a step: its processes as one thing that can be limited, counted and killed.
//!
//! The groups are in the version 2 hierarchy, in a version 1 hierarchy for each controller that only version
//! 1 has, or in both. The enforced limits depend on the host; spurd names them when it starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::EventfdFlags;
use rustix::process::Signal;
use spur_core::id::StepId;
use step_wire::group::{self as groups, legacy, step_group};
use step_wire::order::Confinement;
use step_wire::process::Process;

use crate::confine::bpf;

/// One step's control groups.
#[derive(Debug)]
pub(crate) struct Group {
    unified: Option<Unified>,
    /// The groups of version 1, one for each controller.
    legacy: Vec<Legacy>,
    /// Readable when a group of version 1 has reached its limit of memory.
    memory_events: Option<OwnedFd>,
}

#[derive(Debug)]
struct Unified {
    path: PathBuf,
    directory: File,
    processes: File,
    events: File,
}

#[derive(Debug)]
struct Legacy {
    controller: String,
    path: PathBuf,
    threads: File,
}

impl Group {
    /// Creates the groups of a step below its job's.
    ///
    /// # Errors
    /// The system's error if a group cannot be created, or an existing limit cannot be set.
    pub(crate) fn create(confinement: &Confinement, step: StepId, oom_kill_step: bool) -> io::Result<Group> {
        let unified = confinement
            .job_group
            .as_deref()
            .map(|job| Unified::create(job, confinement, (step, oom_kill_step)));
        let unified = unified.transpose()?;
        let by_controller = confinement.legacy.iter().any(|group| group.controller == "devices");
        if let Some(unified) = unified.as_ref().filter(|_| !by_controller && !confinement.denied.is_empty()) {
            bpf::deny(unified.directory.as_fd(), &confinement.denied).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("devices that are not the step's cannot be denied: {error}"),
                )
            })?;
        }
        let mut legacy = Vec::new();
        let mut memory_events = None;
        for group in &confinement.legacy {
            let path = match is_shared(&group.controller) {
                true => group.job_group.clone(),
                false => legacy::step_group(&group.controller, &group.job_group, step, &confinement.cpus)?,
            };
            if group.controller == "devices" {
                legacy::deny_devices(&path, &confinement.denied)?;
            }
            if group.controller == "memory" {
                if confinement.memory_bytes > 0 {
                    legacy::limit_memory(&path, confinement.memory_bytes)?;
                }
                // Without notifications, running out of memory shows at the next sample.
                memory_events = watch_memory(&path).ok();
            }
            let threads = OpenOptions::new().write(true).open(path.join("tasks"))?;
            legacy.push(Legacy { controller: group.controller.clone(), path, threads });
        }
        Ok(Group { unified, legacy, memory_events })
    }

    /// Returns the directory of the version 2 group, in which children can be born; `None` without that
    /// version.
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|unified| unified.directory.as_fd())
    }

    /// Returns the files into which a process with one thread writes `0` to move itself into the groups.
    /// `inside` leaves out the version 2 group.
    pub(crate) fn doors(&self, inside: bool) -> Vec<BorrowedFd<'_>> {
        let unified = self.unified.as_ref().filter(|_| !inside).map(|unified| unified.processes.as_fd());
        // Moving a thread stops nothing else on the node, unlike moving a process.
        unified.into_iter().chain(self.legacy.iter().map(|group| group.threads.as_fd())).collect()
    }

    /// Becomes ready (exceptional condition) when the last process has left; `None` if the kernel does not
    /// report that.
    pub(crate) fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|unified| unified.events.as_fd())
    }

    /// Becomes readable when a limit of memory has been reached.
    pub(crate) fn memory_events(&self) -> Option<BorrowedFd<'_>> {
        self.memory_events.as_ref().map(AsFd::as_fd)
    }

    /// Reads the notification of a reached limit, so that the next one is seen.
    pub(crate) fn take_memory_event(&self) {
        if let Some(events) = &self.memory_events {
            // The value is the number of events, which does not matter.
            let _ = rustix::io::read(events, &mut [0; 8]);
        }
    }

    /// Returns whether the groups contain processes; `None` if only the end of all children tells that.
    ///
    /// A group that does not exist was empty: the kernel removes no other group.
    pub(crate) fn populated(&self) -> Option<bool> {
        let mut text = String::new();
        let mut events = &self.unified.as_ref()?.events;
        Some(match events.rewind().and_then(|()| events.read_to_string(&mut text)) {
            Ok(_) => !text.lines().any(|line| line == "populated 0"),
            Err(error) => error.raw_os_error() != Some(rustix::io::Errno::NODEV.raw_os_error()),
        })
    }

    /// Returns the freezer group of version 1, through which the step is killed where version 2 is missing;
    /// `None` without that controller.
    fn freezer(&self) -> Option<&Path> {
        let freezer = self.legacy.iter().find(|group| group.controller == "freezer");
        freezer.map(|group| group.path.as_path())
    }

    /// Returns the processes in the groups at this moment.
    pub(crate) fn members(&self) -> Vec<Process> {
        let path = self.unified.as_ref().map(|unified| unified.path.as_path()).or_else(|| self.freezer());
        path.map(legacy::processes).unwrap_or_default()
    }

    /// Stops every process in the groups at once, or lets the processes go on.
    ///
    /// # Errors
    /// The system's error; before kernel 5.2, version 2 cannot freeze.
    pub(crate) fn freeze(&self, stop: bool) -> io::Result<()> {
        match (&self.unified, self.freezer()) {
            (Some(unified), _) => {
                groups::write(&unified.path.join("cgroup.freeze"), if stop { "1" } else { "0" })
            }
            (None, Some(freezer)) => legacy::set_frozen(freezer, stop),
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Kills every process in the groups, including those that are being forked.
    pub(crate) fn kill(&self) {
        match (&self.unified, self.freezer()) {
            (Some(unified), _) if groups::write(&unified.path.join("cgroup.kill"), "1").is_ok() => {}
            (None, Some(freezer)) => legacy::kill_all(freezer),
            // Before kernel 5.14: a process that is forked meanwhile is killed when the group is checked
            // again.
            _ => self.members().into_iter().for_each(|process| process.signal(Signal::KILL)),
        }
    }

    /// True if the kernel killed a process of the groups for lack of memory.
    pub(crate) fn out_of_memory(&self) -> bool {
        let killed = |file: PathBuf| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
        };
        let memory = self.legacy.iter().find(|group| group.controller == "memory");
        self.unified.as_ref().is_some_and(|unified| killed(unified.path.join("memory.events")))
            || memory.is_some_and(|group| killed(group.path.join("memory.oom_control")))
    }

    /// Removes the empty groups; the job's stay until spurd is done with the job.
    pub(crate) fn remove(self) {
        let unified = self.unified.iter().map(|unified| &unified.path);
        let legacy = self.legacy.iter().filter(|group| !is_shared(&group.controller));
        for path in unified.chain(legacy.map(|group| &group.path)) {
            // A group that stays behind is empty, and is removed with the job's.
            let _ = fs::remove_dir(path);
        }
    }
}

/// True if the steps of a job share the job's group: the number of processes is limited for all steps
/// together.
fn is_shared(controller: &str) -> bool {
    controller == "pids"
}

impl Unified {
    fn create(
        job: &Path,
        confinement: &Confinement,
        (step, oom_kill_step): (StepId, bool),
    ) -> io::Result<Unified> {
        let path = job.join(step_group(step));
        fs::create_dir_all(&path)?;
        groups::set(&path.join("memory.oom.group"), if oom_kill_step { "1" } else { "0" })?;
        if confinement.memory_bytes > 0 {
            groups::set(&path.join("memory.max"), &confinement.memory_bytes.to_string())?;
        }
        if !confinement.cpus.is_empty() {
            let list: Vec<String> = confinement.cpus.iter().map(u32::to_string).collect();
            groups::set(&path.join("cpuset.cpus"), &list.join(","))?;
        }
        let directory = File::open(&path)?;
        let processes = OpenOptions::new().read(true).write(true).open(path.join("cgroup.procs"))?;
        let events = File::open(path.join("cgroup.events"))?;
        Ok(Unified { path, directory, processes, events })
    }
}

/// Returns a descriptor that becomes readable when a version 1 group, or one above it, reaches its limit of
/// memory.
fn watch_memory(group: &Path) -> io::Result<OwnedFd> {
    let told = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = File::open(group.join("memory.oom_control"))?;
    let wish = format!("{} {}", told.as_raw_fd(), control.as_raw_fd());
    groups::write(&group.join("cgroup.event_control"), &wish)?;
    Ok(told)
}
