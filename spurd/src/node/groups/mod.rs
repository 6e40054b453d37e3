//! Control groups for jobs on this node: the part that belongs to spurd.
//!
//! spurd chooses the hierarchies once, when it starts ([`Groups::open`]). Below the node's group it creates
//! one group for each job, with limits on the job's resources. The groups are in the version 2 hierarchy, and
//! in version 1 hierarchies of controllers that version 2 lacks. Below the job's group spurstepd creates one
//! for each step. A step is killed as one through version 2, else through the version 1 freezer. Where
//! neither works, steps are process trees.

mod held;
mod host;
mod legacy;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use spur_core::id::Attempt;
use spur_core::model::config::CgroupPlugin;
use step_wire::attempt::StepAttempt;
use step_wire::group::{job_group, legacy as version_1, set, step_group};
use step_wire::order::{Confinement, DeviceNumber, LegacyGroup};

use self::host::Host;

/// Controllers that limit jobs below the node's group, if the kernel has them.
const CONTROLLERS: [&str; 3] = ["memory", "cpuset", "pids"];
/// Version 1 controller that denies devices to steps; in version 2 a BPF program does, without a controller.
const DEVICES: &str = "devices";
/// Version 1 controller through which a step is killed as one where there is no version 2 hierarchy.
const FREEZER: &str = "freezer";

/// The node's control groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The node's group in the version 2 hierarchy.
    unified: Option<Unified>,
    /// The node's groups in version 1 hierarchies, by controller.
    legacy: Arc<[(&'static str, PathBuf)]>,
    /// Largest number of processes that a job may have.
    max_processes: u64,
    /// True if steps are denied the devices that they do not hold.
    constrain_devices: bool,
    /// The locks by which other spurds see that the groups are in use.
    _held: Arc<[File]>,
}

/// The node's group in the version 2 hierarchy.
#[derive(Clone, Debug)]
struct Unified {
    node: PathBuf,
    /// Controllers that the groups of jobs can use.
    controllers: Arc<[&'static str]>,
}

impl Groups {
    /// Creates the node's groups. Their name contains the spool's place, because nodes of several clusters on
    /// one host may have the same name.
    ///
    /// # Errors
    /// Explains why there can be no groups, or none of the version that `plugin` names, for users.
    pub fn open(plugin: CgroupPlugin, node: &str, spool: &str) -> Result<Groups, String> {
        if plugin == CgroupPlugin::Disabled {
            return Err("[agent] cgroup_plugin = \"disabled\"".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("spurd does not run as root".to_owned());
        }
        let host = Host::read(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
        let name = format!("{node}_{spool}");
        let (mut missing, mut held) = (Vec::new(), Vec::new());
        let mut unified = None;
        if plugin != CgroupPlugin::V1 {
            match host.unified.ok_or_else(|| "no control groups of version 2 are mounted".to_owned()) {
                Ok(mount) => match Unified::open(&mount, &name) {
                    Ok((opened, lock)) => {
                        unified = Some(opened);
                        held.push(lock);
                    }
                    Err(error) => missing.push(error.to_string()),
                },
                Err(none) => missing.push(none),
            }
        }
        let mut legacy = Vec::new();
        if plugin != CgroupPlugin::V2 {
            let has = |controller| {
                unified.as_ref().is_some_and(|unified| unified.controllers.contains(&controller))
            };
            let freezer = unified.is_none().then_some(FREEZER);
            // A host without the version 1 controller has version 2, which needs none.
            let devices = host.legacy.contains_key(DEVICES).then_some(DEVICES);
            let wanted = freezer.into_iter().chain(CONTROLLERS).chain(devices);
            for controller in wanted.filter(|&controller| !has(controller)) {
                let Some(mount) = host.legacy.get(controller) else {
                    missing.push(format!("no controller {controller} of version 1"));
                    continue;
                };
                match legacy::open(controller, mount, &name) {
                    Ok((group, lock)) => {
                        legacy.push((controller, group));
                        held.push(lock);
                    }
                    Err(error) => missing.push(error.to_string()),
                }
            }
        }
        if unified.is_none() && legacy.first().is_none_or(|(controller, _)| *controller != FREEZER) {
            return Err(missing.join("; "));
        }
        let max_processes = host::max_processes() / 2;
        let groups = Groups {
            unified,
            legacy: legacy.into(),
            max_processes,
            constrain_devices: true,
            _held: held.into(),
        };
        groups.nodes().for_each(held::sweep);
        Ok(groups)
    }

    /// Returns these groups with another limit of a job's processes.
    #[must_use]
    pub fn with_max_processes(self, max_processes: u64) -> Groups {
        Groups { max_processes, ..self }
    }

    /// Returns these groups; with `constrain_devices`, steps are denied the devices that they do not hold.
    #[must_use]
    pub fn constraining_devices(self, constrain_devices: bool) -> Groups {
        Groups { constrain_devices, ..self }
    }

    /// Describes how steps are killed and what is limited, for users: `kill:cgroup/v2,memory:cgroup/v1`.
    pub fn describe(&self) -> String {
        let holder = if self.unified.is_some() { "cgroup/v2" } else { "cgroup/v1" };
        let unified = self.unified.iter().flat_map(|unified| unified.controllers.iter());
        let mut parts = vec![format!("kill:{holder}")];
        parts.extend(unified.map(|controller| format!("{controller}:cgroup/v2")));
        let limits = |controller| match controller {
            FREEZER => false,
            DEVICES => self.constrain_devices,
            _ => true,
        };
        let limiting = self.legacy.iter().filter(|(controller, _)| limits(*controller));
        parts.extend(limiting.map(|(controller, _)| format!("{controller}:cgroup/v1")));
        if self.constrains_devices() && !self.has_legacy(DEVICES) {
            parts.push(format!("{DEVICES}:cgroup/v2"));
        }
        if !self.limits("memory") {
            parts.push("memory:sampled".to_owned());
        }
        parts.join(",")
    }

    /// True if `controller` limits jobs on this node.
    pub fn limits(&self, controller: &str) -> bool {
        self.unified.as_ref().is_some_and(|unified| unified.controllers.contains(&controller))
            || self.has_legacy(controller)
    }

    /// True if steps are denied the devices that they do not hold.
    pub fn constrains_devices(&self) -> bool {
        self.constrain_devices && (self.unified.is_some() || self.has_legacy(DEVICES))
    }

    fn has_legacy(&self, controller: &str) -> bool {
        self.legacy.iter().any(|(known, _)| *known == controller)
    }

    /// Creates the groups of a job, with limits on its resources here; `denied` are the devices that its step
    /// may not use.
    ///
    /// # Errors
    /// Fails if a group cannot be created, or if an enforced limit cannot be set.
    pub fn prepare(
        &self,
        attempt: Attempt,
        memory_bytes: u64,
        cpus: Vec<u32>,
        denied: Vec<DeviceNumber>,
    ) -> io::Result<Confinement> {
        let denied = if self.constrain_devices { denied } else { Vec::new() };
        let mut confinement = Confinement::default();
        if let Some(unified) = &self.unified {
            let job = unified.node.join(job_group(attempt));
            fs::create_dir_all(&job)?;
            enable(&job, &unified.controllers);
            if memory_bytes > 0 {
                set(&job.join("memory.max"), &memory_bytes.to_string())?;
                set(&job.join("memory.swap.max"), "0")?;
            }
            set(&job.join("pids.max"), &self.max_processes.to_string())?;
            confinement.job_group = Some(job);
        }
        for (controller, node) in self.legacy.iter() {
            // A resource without a limit needs no group.
            match *controller {
                "memory" if memory_bytes == 0 => continue,
                "cpuset" if cpus.is_empty() => continue,
                DEVICES if denied.is_empty() => continue,
                _ => {}
            }
            let group = node.join(job_group(attempt));
            version_1::create(controller, &group)?;
            match *controller {
                "memory" => version_1::limit_memory(&group, memory_bytes)?,
                "pids" => set(&group.join("pids.max"), &self.max_processes.to_string())?,
                _ => {}
            }
            confinement.legacy.push(LegacyGroup { controller: (*controller).to_owned(), job_group: group });
        }
        Ok(Confinement { cpus, denied, ..confinement })
    }

    /// Returns the directories of the node's groups.
    fn nodes(&self) -> impl Iterator<Item = &Path> {
        let unified = self.unified.iter().map(|unified| unified.node.as_path());
        unified.chain(self.legacy.iter().map(|(_, node)| node.as_path()))
    }

    /// Kills the processes of a step and waits until they are gone.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn kill(&self, step: StepAttempt) -> io::Result<()> {
        let name = Path::new(&job_group(step.attempt)).join(step_group(step.step));
        match &self.unified {
            Some(unified) => kill_unified(&unified.node.join(name)),
            None => {
                let freezer = self.legacy.iter().find(|(controller, _)| *controller == FREEZER);
                freezer.map_or(Ok(()), |(_, node)| version_1::kill_and_wait(&node.join(name)))
            }
        }
    }

    /// Removes every group of the node without processes, except those of the attempts in `keep`, whose steps
    /// may be starting. Groups with processes stay for the next spurd.
    pub fn close(self, keep: &BTreeSet<Attempt>) {
        let keep: BTreeSet<String> = keep.iter().map(|attempt| job_group(*attempt)).collect();
        for node in self.nodes() {
            remove_node(node, &keep);
            // The parent is shared with other nodes of this host; it can be removed once the last of them has
            // gone.
            let _ = node.parent().map_or(Ok(()), fs::remove_dir);
        }
    }

    /// Removes the groups of a job that has no processes here.
    pub fn remove(&self, attempt: Attempt) {
        for job in self.nodes().map(|node| node.join(job_group(attempt))).filter(|job| job.is_dir()) {
            remove_steps(&job);
            if let Err(error) = fs::remove_dir(&job) {
                tracing::warn!(group = %job.display(), %error, "a job's control group stays behind");
            }
        }
    }
}

impl Unified {
    fn open(mount: &Path, name: &str) -> io::Result<(Unified, File)> {
        let node = mount.join("spurd").join(name);
        let held = held::hold(&node, || {
            fs::create_dir_all(&node)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", node.display())))
        })?;
        for directory in [mount, &mount.join("spurd"), &node] {
            enable(directory, &CONTROLLERS);
        }
        let text = fs::read_to_string(node.join("cgroup.controllers")).unwrap_or_default();
        let there = |known: &&str| text.split_whitespace().any(|name| name == *known);
        Ok((Unified { node, controllers: CONTROLLERS.into_iter().filter(there).collect() }, held))
    }
}

fn kill_unified(group: &Path) -> io::Result<()> {
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
        // The kernel reports a change of this file as an exceptional condition.
        let mut changed = [PollFd::new(&events, PollFlags::PRI)];
        while rustix::event::poll(&mut changed, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Removes the groups of a node in one hierarchy, except groups with processes and those to `keep`.
fn remove_node(node: &Path, keep: &BTreeSet<String>) {
    let jobs = fs::read_dir(node).into_iter().flatten().filter_map(Result::ok);
    let kept = |job: &fs::DirEntry| job.file_name().to_str().is_some_and(|name| keep.contains(name));
    for job in jobs.filter(|entry| entry.path().is_dir() && !kept(entry)) {
        // The kernel refuses to remove a group with processes or with groups below.
        remove_steps(&job.path());
        let _ = fs::remove_dir(job.path());
    }
    let _ = fs::remove_dir(node);
}

/// Removes the groups of a job's steps without processes.
fn remove_steps(job: &Path) {
    let steps = fs::read_dir(job).into_iter().flatten().filter_map(Result::ok);
    for step in steps.filter(|entry| entry.path().is_dir()) {
        // A step's group that stays keeps the job's group, whose removal then fails.
        let _ = fs::remove_dir(step.path());
    }
}

/// Enables controllers for the groups below; a controller that this group lacks is not enforced.
fn enable(group: &Path, controllers: &[&str]) {
    for controller in controllers {
        // One line for each controller: the kernel refuses a whole line for one unknown name.
        let _ = set(&group.join("cgroup.subtree_control"), &format!("+{controller}"));
    }
}

#[cfg(test)]
mod tests {
    use spur_core::id::JobId;

    use super::*;

    #[test]
    fn what_a_killed_spurd_has_left_is_removed_by_the_next() {
        let name = |which: &str| format!("{which}-{}", std::process::id());
        let open = |which: &str| Groups::open(CgroupPlugin::Autodetect, "held", &name(which));
        let killed = match open("killed") {
            Ok(groups) => groups,
            Err(why) => return println!("SKIPPED: {why}"),
        };
        killed.prepare(Attempt { job: JobId(7), restart: 0 }, 1 << 20, vec![0], vec![]).unwrap();
        let left: Vec<PathBuf> = killed.nodes().map(Path::to_owned).collect();
        let first = open("first").unwrap();
        assert!(left.iter().all(|node| node.is_dir()), "its spurd lives: {left:?}");
        drop(killed);
        let second = open("second").unwrap();
        assert!(!left.iter().any(|node| node.is_dir()), "{left:?}");
        assert!(first.nodes().chain(second.nodes()).all(Path::is_dir));
        first.close(&BTreeSet::new());
        second.close(&BTreeSet::new());
    }
}
