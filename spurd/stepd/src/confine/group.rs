//! The control groups of a step: its processes as one thing that can be limited, counted and killed.
//!
//! They are in the hierarchy of version 2, in one of version 1 for each controller that only that has, or in both. Which
//! limits are enforced depends on the host, and spurd says so when it starts.

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
    /// Of version 1, by controller.
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
    /// Makes the groups of a step below its job's.
    ///
    /// # Errors
    /// The system's error if a group cannot be made or a limit that exists cannot be set.
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
                // Without news of it, it is seen when somebody looks.
                memory_events = watch_memory(&path).ok();
            }
            let threads = OpenOptions::new().write(true).open(path.join("tasks"))?;
            legacy.push(Legacy { controller: group.controller.clone(), path, threads });
        }
        Ok(Group { unified, legacy, memory_events })
    }

    /// The group of version 2, for children that are to be born in it.
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|unified| unified.directory.as_fd())
    }

    /// Where a process that has one thread writes `0` to move itself into the groups; `inside`: but for that of version 2.
    pub(crate) fn doors(&self, inside: bool) -> Vec<BorrowedFd<'_>> {
        let unified = self.unified.as_ref().filter(|_| !inside).map(|unified| unified.processes.as_fd());
        // A thread that moves itself stops nobody else meanwhile, as a whole process would.
        unified.into_iter().chain(self.legacy.iter().map(|group| group.threads.as_fd())).collect()
    }

    /// Becomes ready (exceptional condition) when the last process has left; without it nothing tells.
    pub(crate) fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|unified| unified.events.as_fd())
    }

    /// Becomes readable when a limit of memory has been reached.
    pub(crate) fn memory_events(&self) -> Option<BorrowedFd<'_>> {
        self.memory_events.as_ref().map(AsFd::as_fd)
    }

    /// Takes note of such news.
    pub(crate) fn take_memory_event(&self) {
        if let Some(events) = &self.memory_events {
            // It says how often that was, which is of no interest.
            let _ = rustix::io::read(events, &mut [0; 8]);
        }
    }

    /// Whether a process is in the groups; `None` where they cannot tell, and the end of all children does. A group that
    /// somebody removed was empty: the kernel removes no other.
    pub(crate) fn populated(&self) -> Option<bool> {
        let mut text = String::new();
        let mut events = &self.unified.as_ref()?.events;
        Some(match events.rewind().and_then(|()| events.read_to_string(&mut text)) {
            Ok(_) => !text.lines().any(|line| line == "populated 0"),
            Err(error) => error.raw_os_error() != Some(rustix::io::Errno::NODEV.raw_os_error()),
        })
    }

    /// The group of version 1 that holds the step together, where version 2 does not.
    fn freezer(&self) -> Option<&Path> {
        let freezer = self.legacy.iter().find(|group| group.controller == "freezer");
        freezer.map(|group| group.path.as_path())
    }

    /// The processes in the groups at this moment.
    pub(crate) fn members(&self) -> Vec<Process> {
        let path = self.unified.as_ref().map(|unified| unified.path.as_path()).or_else(|| self.freezer());
        path.map(legacy::processes).unwrap_or_default()
    }

    /// Stops every process in the groups at once, or lets them go on.
    ///
    /// # Errors
    /// The system's error; version 2 of a kernel before 5.2 cannot.
    pub(crate) fn freeze(&self, stop: bool) -> io::Result<()> {
        match (&self.unified, self.freezer()) {
            (Some(unified), _) => {
                groups::write(&unified.path.join("cgroup.freeze"), if stop { "1" } else { "0" })
            }
            (None, Some(freezer)) => legacy::set_frozen(freezer, stop),
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Kills every process in the groups, also those that are being forked.
    pub(crate) fn kill(&self) {
        match (&self.unified, self.freezer()) {
            (Some(unified), _) if groups::write(&unified.path.join("cgroup.kill"), "1").is_ok() => {}
            (None, Some(freezer)) => legacy::kill_all(freezer),
            // Kernels before 5.14: whoever is forked meanwhile is met when the group is looked at again.
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
            // A group that stays behind is empty, and goes with the job's.
            let _ = fs::remove_dir(path);
        }
    }
}

/// Whether the steps of a job are in the job's own group: processes are limited for all of them together.
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

/// Something to read when a group of version 1, or one above it, has reached its limit of memory.
fn watch_memory(group: &Path) -> io::Result<OwnedFd> {
    let told = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = File::open(group.join("memory.oom_control"))?;
    let wish = format!("{} {}", told.as_raw_fd(), control.as_raw_fd());
    groups::write(&group.join("cgroup.event_control"), &wish)?;
    Ok(told)
}
