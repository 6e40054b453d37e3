//! Control groups of version 1: each controller has a hierarchy of its own.
//!
//! The kernel neither reports that such a group is empty nor kills it as one. The freezer stops all processes
//! first, so that none can fork while they are killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use spur_core::id::StepId;

use super::{set, step_group as name_of_step, write};
use crate::order::DeviceNumber;
use crate::process::Process;

/// Time for the processes to freeze, after which they are killed all the same: a process that waits for a
/// disk cannot freeze.
const FREEZING: Duration = Duration::from_millis(20);
/// Interval between two checks whether the processes are frozen, or a group is empty.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Creates a group below another, unless it exists.
pub fn create(controller: &str, group: &Path) -> io::Result<()> {
    fs::create_dir_all(group)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", group.display())))?;
    if controller == "cpuset" {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            inherit(group, file)?;
        }
    }
    Ok(())
}

/// Copies a value from the parent to a new group: a CPU set starts empty and accepts no processes.
fn inherit(group: &Path, file: &str) -> io::Result<()> {
    let own = fs::read_to_string(group.join(file))?;
    if !own.trim().is_empty() {
        return Ok(());
    }
    let above = group
        .parent()
        .map_or_else(String::new, |above| fs::read_to_string(above.join(file)).unwrap_or_default());
    set(&group.join(file), above.trim())
}

/// Creates the group of a step below its job's, and returns its path.
pub fn step_group(controller: &str, job_group: &Path, step: StepId, cpus: &[u32]) -> io::Result<PathBuf> {
    let group = job_group.join(name_of_step(step));
    create(controller, &group)?;
    if controller == "cpuset" && !cpus.is_empty() {
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        set(&group.join("cpuset.cpus"), &list.join(","))?;
    }
    Ok(group)
}

/// Limits memory, and memory plus swap where the kernel accounts that.
pub fn limit_memory(group: &Path, bytes: u64) -> io::Result<()> {
    let both = group.join("memory.memsw.limit_in_bytes");
    let limit = group.join("memory.limit_in_bytes");
    // The kernel requires at any time that the memory limit is at most the combined limit.
    if set(&limit, &bytes.to_string()).is_err() {
        set(&both, &bytes.to_string())?;
        set(&limit, &bytes.to_string())?;
    }
    set(&both, &bytes.to_string())
}

/// Denies devices to all processes of a group.
pub fn deny_devices(group: &Path, devices: &[DeviceNumber]) -> io::Result<()> {
    devices.iter().try_for_each(|DeviceNumber { block, major, minor }| {
        let kind = if *block { 'b' } else { 'c' };
        set(&group.join("devices.deny"), &format!("{kind} {major}:{minor} rwm"))
    })
}

/// Returns the processes in a group.
pub fn processes(group: &Path) -> Vec<Process> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| Process::find(line.parse().ok()?)).collect()
}

/// Stops every process of a freezer group, or lets the processes go on.
pub fn set_frozen(group: &Path, stop: bool) -> io::Result<()> {
    write(&group.join("freezer.state"), if stop { "FROZEN" } else { "THAWED" })
}

/// Kills every process of a freezer group; none can fork meanwhile.
pub fn kill_all(group: &Path) {
    let frozen =
        || fs::read_to_string(group.join("freezer.state")).is_ok_and(|state| state.trim() == "FROZEN");
    if set_frozen(group, true).is_ok() {
        let until = Instant::now() + FREEZING;
        while !frozen() && Instant::now() < until {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    processes(group).into_iter().for_each(|process| process.signal(Signal::KILL));
    // Killed processes die as soon as they thaw; without a freezer nothing needs thawing.
    let _ = set_frozen(group, false);
}

/// Kills the processes of a freezer group, and waits until they are gone.
pub fn kill_and_wait(group: &Path) -> io::Result<()> {
    while group.is_dir() && !fs::read_to_string(group.join("cgroup.procs"))?.is_empty() {
        kill_all(group);
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
