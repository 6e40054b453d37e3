//! Control groups for jobs on this node: the part that belongs to spurd.
//!
//! What is used is chosen once, when spurd starts, by what the host has ([`Groups::open`]). Below the node's group there
//! is one for each job, with what the job holds here: in the hierarchy of version 2, and in each of version 1 whose
//! controller that has not; spurstepd makes one for each step in it. A step is killed as one by version 2, else by the
//! freezer of version 1. Where neither can be used, steps are held together as process trees.

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

/// What is limited below the node's group, if the kernel has it.
const CONTROLLERS: [&str; 3] = ["memory", "cpuset", "pids"];
/// What keeps steps from devices that they have not; in version 2 a program does, without a controller.
const DEVICES: &str = "devices";
/// What holds steps together where there is no hierarchy of version 2.
const FREEZER: &str = "freezer";

/// The node's control groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// In the hierarchy of version 2.
    unified: Option<Unified>,
    /// In hierarchies of version 1, by controller.
    legacy: Arc<[(&'static str, PathBuf)]>,
    /// How many processes a job may have.
    max_processes: u64,
    /// Whether a step is kept from devices that it has not.
    constrain_devices: bool,
    /// The locks that say that these groups are in use.
    _held: Arc<[File]>,
}

/// The node's group in the hierarchy of version 2.
#[derive(Clone, Debug)]
struct Unified {
    node: PathBuf,
    /// What can be passed on to the groups of jobs.
    controllers: Arc<[&'static str]>,
}

impl Groups {
    /// Makes the node's groups; their name holds the place of the spool, because nodes of several clusters on one host may
    /// share theirs.
    ///
    /// # Errors
    /// Why there can be none, or not those that `plugin` names, for people.
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
            // A host without it has version 2, where it is not needed.
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

    /// The same with another limit of a job's processes.
    #[must_use]
    pub fn with_max_processes(self, max_processes: u64) -> Groups {
        Groups { max_processes, ..self }
    }

    /// The same, where steps may or may not use devices that they have not.
    #[must_use]
    pub fn constraining_devices(self, constrain_devices: bool) -> Groups {
        Groups { constrain_devices, ..self }
    }

    /// What holds steps together and what limits what, for people: `kill:cgroup/v2,memory:cgroup/v1`.
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

    /// Whether a controller limits jobs here.
    pub fn limits(&self, controller: &str) -> bool {
        self.unified.as_ref().is_some_and(|unified| unified.controllers.contains(&controller))
            || self.has_legacy(controller)
    }

    /// Whether a step is kept from devices that it has not.
    pub fn constrains_devices(&self) -> bool {
        self.constrain_devices && (self.unified.is_some() || self.has_legacy(DEVICES))
    }

    fn has_legacy(&self, controller: &str) -> bool {
        self.legacy.iter().any(|(known, _)| *known == controller)
    }

    /// Makes the groups of a job with what it holds here; `denied` are the devices that a step of it may not use.
    ///
    /// # Errors
    /// The system's error if a group cannot be made or a limit that is enforced cannot be set.
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
            // What is not limited needs no group.
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

    /// The directories of the node's groups.
    fn nodes(&self) -> impl Iterator<Item = &Path> {
        let unified = self.unified.iter().map(|unified| unified.node.as_path());
        unified.chain(self.legacy.iter().map(|(_, node)| node.as_path()))
    }

    /// Kills what is left of a step and waits until it is gone.
    ///
    /// # Errors
    /// What the system refused.
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

    /// Removes every group of the node that nothing runs in, but those of the attempts to `keep`, whose steps may just
    /// begin. What runs keeps its own for the next spurd.
    pub fn close(self, keep: &BTreeSet<Attempt>) {
        let keep: BTreeSet<String> = keep.iter().map(|attempt| job_group(*attempt)).collect();
        for node in self.nodes() {
            remove_node(node, &keep);
            // The parent is shared with other nodes of this host and goes with the last.
            let _ = node.parent().map_or(Ok(()), fs::remove_dir);
        }
    }

    /// Removes the groups of a job that has nothing left here.
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
        // The file becomes ready, exceptionally, when what it says has changed.
        let mut changed = [PollFd::new(&events, PollFlags::PRI)];
        while rustix::event::poll(&mut changed, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Removes what is left of a node's groups in one hierarchy and has no processes.
fn remove_node(node: &Path, keep: &BTreeSet<String>) {
    let jobs = fs::read_dir(node).into_iter().flatten().filter_map(Result::ok);
    let kept = |job: &fs::DirEntry| job.file_name().to_str().is_some_and(|name| keep.contains(name));
    for job in jobs.filter(|entry| entry.path().is_dir() && !kept(entry)) {
        // The kernel removes no group with processes in it, nor one with groups below.
        remove_steps(&job.path());
        let _ = fs::remove_dir(job.path());
    }
    let _ = fs::remove_dir(node);
}

/// Removes the groups of a job's steps that nothing runs in.
fn remove_steps(job: &Path) {
    let steps = fs::read_dir(job).into_iter().flatten().filter_map(Result::ok);
    for step in steps.filter(|entry| entry.path().is_dir()) {
        // One that cannot be removed keeps the job's, which is what counts.
        let _ = fs::remove_dir(step.path());
    }
}

/// Passes on to the groups below what this group has; what it has not is not enforced.
fn enable(group: &Path, controllers: &[&str]) {
    for controller in controllers {
        // Each on its own, because one that is missing makes the whole line fail.
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
