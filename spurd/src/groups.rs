//! Control groups (version 2) for jobs on this node: the part that belongs to spurd.
//!
//! Below the node's group there is one for each job, with the memory and the CPUs that the job holds here; spurstepd
//! makes one for each step in it. Without the right or the kernel for that, steps are held together as process trees
//! and limits are not enforced; spurd says so once, when it starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use spur_core::id::{Attempt, StepId};

use crate::step::attempt::StepAttempt;

/// What is enforced below the node's group, if the kernel has it.
const CONTROLLERS: [&str; 3] = ["memory", "cpuset", "pids"];

/// The node's control group.
#[derive(Clone, Debug)]
pub struct Groups {
    node: PathBuf,
    /// What can be passed on to the groups of jobs.
    enforced: Arc<[&'static str]>,
}

impl Groups {
    /// Makes the node's group; its name holds the place of the spool, because nodes of several clusters on one host may
    /// share theirs.
    ///
    /// # Errors
    /// Why there can be none, for people.
    pub fn open(node: &str, spool: &str) -> Result<Groups, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("spurd does not run as root".to_owned());
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let path = fields.nth(1)?;
            (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
        });
        let mount = mount.ok_or_else(|| "no control groups of version 2 are mounted".to_owned())?;
        let node = mount.join("spurd").join(format!("{node}_{spool}"));
        fs::create_dir_all(&node).map_err(|error| format!("{}: {error}", node.display()))?;
        for directory in [mount.as_path(), &mount.join("spurd"), &node] {
            enable(directory, &CONTROLLERS);
        }
        let text = fs::read_to_string(node.join("cgroup.controllers")).unwrap_or_default();
        let there = |known: &&str| text.split_whitespace().any(|name| name == *known);
        Ok(Groups { node, enforced: CONTROLLERS.into_iter().filter(there).collect() })
    }

    /// Which of the limits are enforced here.
    pub fn enforced(&self) -> &[&'static str] {
        &self.enforced
    }

    /// Makes the group of a job with what it holds here.
    ///
    /// # Errors
    /// The system's error if the group cannot be made or a limit that is enforced cannot be set.
    pub fn prepare(&self, attempt: Attempt, memory_mb: u64) -> io::Result<PathBuf> {
        let path = self.job(attempt);
        fs::create_dir_all(&path)?;
        enable(&path, &self.enforced);
        if memory_mb > 0 {
            set(&path.join("memory.max"), &(memory_mb << 20).to_string())?;
            set(&path.join("memory.swap.max"), "0")?;
        }
        Ok(path)
    }

    /// The group of a job.
    pub fn job(&self, attempt: Attempt) -> PathBuf {
        self.node.join(format!("job_{}.{}", attempt.job, attempt.restart))
    }

    /// Kills what is left of a step and waits until it is gone.
    ///
    /// # Errors
    /// What the system refused.
    pub fn kill(&self, step: StepAttempt) -> io::Result<()> {
        let group = self.job(step.attempt).join(step_group(step.step));
        let mut events = match File::open(group.join("cgroup.events")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        set(&group.join("cgroup.kill"), "1")?;
        loop {
            let mut text = String::new();
            events.rewind()?;
            events.read_to_string(&mut text)?;
            if !text.lines().any(|line| line == "populated 1") {
                return Ok(());
            }
            // The file becomes ready, exceptionally, when what it says has changed.
            let mut changed = [PollFd::new(&events, PollFlags::PRI)];
            while rustix::event::poll(&mut changed, None) == Err(rustix::io::Errno::INTR) {}
        }
    }

    /// Removes every group of the node that nothing runs in; what runs keeps its own for the next spurd.
    pub fn close(self) {
        let jobs = fs::read_dir(&self.node).into_iter().flatten().filter_map(Result::ok);
        for job in jobs.filter(|entry| entry.path().is_dir()) {
            // The kernel removes no group with processes in it, nor one with groups below.
            remove_steps(&job.path());
            let _ = fs::remove_dir(job.path());
        }
        // The parent is shared with other nodes of this host and goes with the last.
        let _ = fs::remove_dir(&self.node).and_then(|()| self.node.parent().map_or(Ok(()), fs::remove_dir));
    }

    /// Removes the group of a job that has nothing left here.
    pub fn remove(&self, attempt: Attempt) {
        let job = self.job(attempt);
        if !job.is_dir() {
            return;
        }
        remove_steps(&job);
        if let Err(error) = fs::remove_dir(&job) {
            tracing::warn!(group = %job.display(), %error, "a job's control group stays behind");
        }
    }
}

/// Removes the groups of a job's steps that nothing runs in.
fn remove_steps(job: &Path) {
    let steps = fs::read_dir(job).into_iter().flatten().filter_map(Result::ok);
    for step in steps.filter(|entry| entry.path().is_dir()) {
        // One that cannot be removed keeps the job's, which is what counts.
        let _ = fs::remove_dir(step.path());
    }
}

/// The name of a step's group in its job's.
pub(crate) fn step_group(step: StepId) -> String {
    format!("step_{}", step.label())
}

/// Passes on to the groups below what this group has; what it has not is not enforced.
fn enable(group: &Path, controllers: &[&str]) {
    for controller in controllers {
        // Each on its own, because one that is missing makes the whole line fail.
        let _ = set(&group.join("cgroup.subtree_control"), &format!("+{controller}"));
    }
}

/// Writes a control file, if there is one.
fn set(file: &Path, value: &str) -> io::Result<()> {
    let written =
        OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(value.as_bytes()));
    match written {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
        Ok(()) => Ok(()),
    }
}
