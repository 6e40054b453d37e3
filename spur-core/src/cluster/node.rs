//! The record of a node: its properties, its state, and the resources that are in use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::NodeAlloc;
use crate::model::config::NodeConfig;
use crate::model::idset::IdSet;
use crate::model::node::{Drain, Health, NodeGres, NodeShape, Power, Predecessor, Reboot, Registration};
use crate::text::time::Time;

/// A node as the controller knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The number of the node.
    pub id: NodeId,
    /// The node's section of the configuration, with the edits of commands.
    pub config: NodeConfig,
    /// True while the configuration or a command defines the node; other nodes get no work.
    pub configured: bool,
    /// Resources that jobs can have on the node: those configured, or registered where the configuration is
    /// silent, less those specialized for the system.
    pub shape: Arc<NodeShape>,
    /// Resources that are reserved for the system.
    #[serde(default, skip_serializing_if = "Specialized::is_nothing")]
    pub specialized: Specialized,
    /// The last registration; `None` if the node has never registered.
    #[serde(default)]
    pub registration: Option<Arc<Registration>>,
    /// The daemon that served the node before the current one; `None` if there was no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Arc<Predecessor>>,
    /// State of health: unknown, up or down.
    pub health: Health,
    /// The drain that keeps the node from new work, if any.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// The power action under way on the node's host, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// True if the node was in service when the current controller opened the journal, and has neither
    /// registered nor been set down since. Its jobs may have ended without the controller's knowledge.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unheard: bool,
    /// Resources of the node that jobs hold.
    #[serde(skip)]
    pub used: Used,
    /// Jobs that hold resources of the node, by number.
    #[serde(skip)]
    pub jobs: Vec<JobId>,
    /// Pending jobs for which resources of the node are reserved, by number.
    #[serde(skip)]
    pub nominees: Vec<JobId>,
    /// The job that holds the node exclusively, if any.
    #[serde(skip)]
    pub exclusive: Option<JobId>,
    /// Attempts of this history that still have processes on the node and must not; the node gets no work
    /// until they are gone.
    #[serde(default)]
    pub stale: Vec<Attempt>,
    /// Attempts of an earlier history that still have processes on the node; the node gets no work until they
    /// are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Attempt>,
    /// Time at which the node last became free of jobs, came into service or was powered on; at first, the
    /// time of its registration.
    #[serde(default)]
    pub last_busy: Option<Time>,
    /// Number of attempts that ended on the node, and of those that were lost with it.
    #[serde(default, skip_serializing_if = "Past::is_empty")]
    pub past: Past,
    /// The comment that an operator set.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub comment: Arc<str>,
    /// The text that an operator keeps for other programs (`Extra=`).
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub extra: Arc<str>,
    /// Places that operators chose or that the node has reported, by topology: the full name of a leaf or
    /// base block, or `None` for no place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

/// The record of attempts on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Number of attempts that have ended on the node.
    pub ended: u64,
    /// Number of those attempts that were lost with the node.
    pub lost: u64,
}

impl Past {
    /// Counts an attempt that ended, or that was lost with the node.
    pub(super) fn add(&mut self, lost: bool) {
        self.ended += 1;
        self.lost += u64::from(lost);
    }

    /// The fraction of attempts that were not lost with the node, in millionths; 1,000,000 if none has ended.
    #[must_use]
    pub fn performance(&self) -> u32 {
        const ONE: u64 = 1_000_000;
        let kept = self.ended.saturating_sub(self.lost).saturating_mul(ONE).checked_div(self.ended);
        kept.and_then(|share| u32::try_from(share).ok()).unwrap_or(1_000_000)
    }

    /// True if no attempt has ended on the node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended == 0
    }
}

/// Resources of a node that are reserved for the system (core and memory specialization).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Specialized {
    /// CPUs, as whole cores.
    pub cpus: IdSet,
    /// Amount of reserved memory in MiB.
    pub memory_mb: u64,
}

impl Specialized {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Resources of a node that jobs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPUs that jobs hold.
    pub cpus: IdSet,
    /// Amount of used memory in MiB.
    pub memory_mb: u64,
    /// Devices, for each entry of the shape's `gres` up to the last one of which something is taken.
    pub gres: Vec<IdSet>,
}

impl Node {
    /// A node that has never registered.
    #[must_use]
    pub fn new(id: NodeId, config: NodeConfig) -> Self {
        let mut node = Self {
            id,
            shape: Arc::default(),
            specialized: Specialized::default(),
            config,
            configured: true,
            registration: None,
            predecessor: None,
            health: Health::Unknown,
            drain: None,
            power: None,
            unheard: false,
            used: Used::default(),
            jobs: Vec::new(),
            nominees: Vec::new(),
            exclusive: None,
            stale: Vec::new(),
            foreign: Vec::new(),
            last_busy: None,
            past: Past::default(),
            comment: "".into(),
            extra: "".into(),
            places: BTreeMap::new(),
        };
        node.reshape();
        node
    }

    /// The name of the node.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// True if new work may be put on the node, as far as it has free resources.
    #[must_use]
    pub fn available(&self) -> bool {
        self.drain.is_none() && self.works()
    }

    /// True if the node would be available without its drain.
    #[must_use]
    pub fn works(&self) -> bool {
        self.configured
            && self.health == Health::Up
            && !self.is_rebooting()
            && !self.is_powering_down()
            && self.stale.is_empty()
            && self.foreign.is_empty()
    }

    /// The requested reboot that has not happened yet; `None` if there is none.
    #[must_use]
    pub fn reboot(&self) -> Option<&Reboot> {
        match self.power.as_ref()? {
            Power::Reboot(reboot) => Some(reboot),
            Power::PowerDown { .. }
            | Power::PoweringDown { .. }
            | Power::PoweredDown { .. }
            | Power::PoweringUp { .. } => None,
        }
    }

    /// True if the reboot of the host has been ordered and has not happened yet.
    #[must_use]
    pub fn is_rebooting(&self) -> bool {
        self.reboot().is_some_and(|reboot| reboot.issued.is_some())
    }

    /// True while the host is powering down.
    #[must_use]
    pub fn is_powering_down(&self) -> bool {
        matches!(self.power, Some(Power::PoweringDown { .. }))
    }

    /// True if the host is off or powering up; a job that gets the node waits for it.
    #[must_use]
    pub fn is_off(&self) -> bool {
        matches!(self.power, Some(Power::PoweredDown { .. } | Power::PoweringUp { .. }))
    }

    /// True if the node is down because it is silent.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(self.health, Health::Down { silent: true, .. })
    }

    /// True if no job holds anything of the node.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// True if no job holds a CPU of the node. Suspended jobs may still hold memory and devices.
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.used.cpus.is_empty() && self.exclusive.is_none()
    }

    /// Number of CPUs with the specialized ones; the ids of all CPUs are smaller.
    #[must_use]
    pub fn all_cpus(&self) -> u32 {
        self.shape.cpus + self.specialized.cpus.len()
    }

    /// Number of CPUs of each socket, with the specialized ones: CPU `id` is in socket `id / number`. All
    /// CPUs count as one socket if the sockets and cores of the node have other CPUs.
    #[must_use]
    pub fn cpus_per_socket(&self) -> u32 {
        let NodeShape { sockets, cores_per_socket, threads_per_core, .. } = *self.shape;
        let each = cores_per_socket.saturating_mul(threads_per_core);
        let all = self.all_cpus();
        if each.saturating_mul(sockets) == all { each.max(1) } else { all.max(1) }
    }

    /// CPUs that a starting job cannot have: those of jobs and the specialized ones.
    fn taken_cpus(&self) -> Cow<'_, IdSet> {
        match self.specialized.cpus.is_empty() {
            true => Cow::Borrowed(&self.used.cpus),
            false => Cow::Owned(self.used.cpus.union(&self.specialized.cpus)),
        }
    }

    /// CPUs that are free; none while a job has the node exclusively.
    #[must_use]
    pub fn free_cpus(&self) -> IdSet {
        match self.exclusive {
            Some(_) => IdSet::EMPTY,
            None => IdSet::first(self.all_cpus()).difference(&self.taken_cpus()),
        }
    }

    /// The lowest free CPUs, at most `count`; none while a job has the node exclusively.
    #[must_use]
    pub fn lowest_free_cpus(&self, count: u32) -> IdSet {
        match self.exclusive {
            Some(_) => IdSet::EMPTY,
            None => self.taken_cpus().lowest_outside(self.all_cpus(), count),
        }
    }

    /// Free memory in MiB.
    #[must_use]
    pub fn free_memory_mb(&self) -> u64 {
        self.shape.memory_mb.saturating_sub(self.used.memory_mb)
    }

    /// Free devices of one entry of the shape's `gres`.
    #[must_use]
    pub fn free_gres(&self, entry: usize) -> IdSet {
        let all = self.shape.gres.get(entry).map_or(IdSet::EMPTY, |gres| IdSet::first(gres.count));
        self.used.gres.get(entry).map_or(all.clone(), |used| all.difference(used))
    }

    /// Takes over a registration. The node is up then, unless an operator has set it down.
    pub(super) fn register(&mut self, registration: &Arc<Registration>, at: Time) {
        let before = self.registration.replace(Arc::clone(registration));
        if let Some(before) = before.filter(|before| registration.is_another(before)) {
            self.predecessor = Some(Arc::new(Predecessor {
                hostname: Arc::clone(&before.hostname),
                peer: Arc::clone(&before.peer),
                spool_id: Arc::clone(&before.spool_id),
                until: at,
            }));
        }
        match &mut self.health {
            Health::Down { silent, by: Some(_), .. } => *silent = false,
            health => *health = Health::Up,
        }
        self.last_busy.get_or_insert(at);
        self.reshape();
    }

    /// Recomputes the shape after a change of configuration or registration. Devices stay unchanged while a
    /// job holds any that the new shape would change.
    pub(super) fn reshape(&mut self) {
        let mut shape = whole(&self.config, self.registration.as_deref());
        if !self.holds_the_same(&shape) {
            shape.gres.clone_from(&self.shape.gres);
            shape.shared_gpus = self.shape.shared_gpus;
        }
        let cpus = self.config.specialized_cpus(&shape);
        let memory_mb = self.config.mem_spec_limit.min(shape.memory_mb);
        shape.cpus -= cpus.len();
        shape.memory_mb -= memory_mb;
        self.shape = Arc::new(shape);
        self.specialized = Specialized { cpus, memory_mb };
    }

    /// True if another shape keeps every entry of devices that jobs hold. An entry whose devices have
    /// vanished altogether counts as kept.
    fn holds_the_same(&self, other: &NodeShape) -> bool {
        let held = self.used.gres.iter().enumerate().filter(|(_, ids)| !ids.is_empty());
        held.map(|(entry, _)| entry).all(|entry| {
            let Some(mine) = self.shape.gres.get(entry) else { return true };
            let same_kind = |gres: &NodeGres| (&gres.name, &gres.kind) == (&mine.name, &mine.kind);
            let shared = [&*self.shape, other].map(|shape| shape.is_shared(entry));
            match other.gres.get(entry) {
                // A job that holds a whole GPU holds all of its shards.
                Some(gres) if shared != [false; 2] => shared == [true; 2] && gres == mine,
                Some(gres) => same_kind(gres),
                None => !other.gres.iter().any(same_kind),
            }
        })
    }

    /// Adds a job's part to the resources in use.
    pub(crate) fn take(&mut self, job: JobId, part: &NodeAlloc, exclusive: bool) {
        self.used.cpus.insert_all(&part.cpus);
        self.used.memory_mb += part.memory_mb;
        for gres in &part.gres {
            let entry = usize::from(gres.entry);
            if self.used.gres.len() <= entry {
                self.used.gres.resize(entry + 1, IdSet::EMPTY);
            }
            self.used.gres[entry].insert_all(&gres.ids);
        }
        if let Err(at) = self.jobs.binary_search(&job) {
            self.jobs.insert(at, job);
        }
        if exclusive {
            self.exclusive = Some(job);
        }
    }

    /// Frees CPUs of a job that keeps its other resources. The node is then no longer exclusive to the job.
    pub(super) fn free_cpus_of(&mut self, job: JobId, cpus: &IdSet) {
        self.used.cpus.remove_all(cpus);
        if self.exclusive == Some(job) {
            self.exclusive = None;
        }
    }

    /// Takes CPUs for a suspended job that holds its other resources already.
    pub(super) fn return_cpus(&mut self, cpus: &IdSet) {
        self.used.cpus.insert_all(cpus);
    }

    /// Releases a job's part; does nothing if the job holds nothing here.
    pub(super) fn give_back(&mut self, job: JobId, part: &NodeAlloc, at: Time) {
        if !self.jobs.contains(&job) {
            return;
        }
        self.used.cpus.remove_all(&part.cpus);
        self.used.memory_mb = self.used.memory_mb.saturating_sub(part.memory_mb);
        for gres in &part.gres {
            if let Some(used) = self.used.gres.get_mut(usize::from(gres.entry)) {
                used.remove_all(&gres.ids);
            }
        }
        // A cluster that was read from a snapshot has no empty sets behind the last device in use.
        while self.used.gres.last().is_some_and(IdSet::is_empty) {
            self.used.gres.pop();
        }
        self.jobs.retain(|held| *held != job);
        if self.exclusive == Some(job) {
            self.exclusive = None;
        }
        if self.jobs.is_empty() {
            self.last_busy = Some(at);
        }
    }
}

/// The configured shape of a node, completed by the registration wherever the configuration says 0 or
/// nothing.
fn whole(config: &NodeConfig, registration: Option<&Registration>) -> NodeShape {
    let said = &config.shape;
    let nothing = NodeShape::default();
    let found = registration.map_or(&nothing, |registration| &registration.shape);
    let cpus_said = said.cpus > 0;
    let layout = if cpus_said { said } else { found };
    let mut features = said.features.clone();
    for feature in &found.features {
        if !features.contains(feature) {
            features.push(Arc::clone(feature));
        }
    }
    let (cores, threads) = (layout.cores_per_socket.max(1), layout.threads_per_core.max(1));
    // With only the number of CPUs given, each counts as a socket, as in Slurm.
    let sockets = if layout.sockets > 0 { layout.sockets } else { layout.cpus / (cores * threads) };
    let mut shape = NodeShape {
        sockets: sockets.max(1),
        cores_per_socket: cores,
        threads_per_core: threads,
        cpus: layout.cpus,
        memory_mb: if said.memory_mb > 0 { said.memory_mb } else { found.memory_mb },
        tmp_disk_mb: if said.tmp_disk_mb > 0 { said.tmp_disk_mb } else { found.tmp_disk_mb },
        gres: if said.gres.is_empty() { found.gres.clone() } else { said.gres.clone() },
        features,
        places: found.places.clone(),
        shared_gpus: false,
    };
    shape.share_gpus();
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::GresAlloc;

    fn devices(list: &[(&str, u32)]) -> Vec<NodeGres> {
        let one = |&(name, count): &(&str, u32)| NodeGres { name: name.into(), kind: "".into(), count };
        list.iter().map(one).collect()
    }

    #[test]
    fn devices_that_jobs_hold_stay_what_they_are() {
        // Columns: the devices, the entry of which a job holds the first device, the devices registered then,
        // and whether that change waits.
        for (before, held, after, waits) in [
            (&[("gpu", 2)][..], 0, &[("gpu", 4)][..], false),
            (&[("gpu", 2)], 0, &[("nic", 1)], true),
            (&[("gpu", 2)], 0, &[], false),
            (&[("nic", 1), ("gpu", 2)], 0, &[("nic", 1), ("fpga", 1)], false),
            (&[("nic", 1), ("gpu", 2)], 1, &[("gpu", 2)], true),
            (&[("gpu", 2)], 0, &[("gpu", 2), ("shard", 8)], true),
            (&[("gpu", 2), ("shard", 8)], 0, &[("gpu", 2), ("shard", 16)], true),
            (&[("gpu", 2), ("shard", 8)], 1, &[("gpu", 2)], true),
            (&[("nic", 1), ("gpu", 2), ("shard", 8)], 0, &[("nic", 1), ("gpu", 2)], false),
        ] {
            let with = |gres| NodeConfig {
                shape: NodeShape { gres: devices(gres), ..NodeShape::default() },
                ..NodeConfig::default()
            };
            let mut node = Node::new(NodeId(0), with(before));
            let (old, new) = (Arc::clone(&node.shape), Node::new(NodeId(0), with(after)).shape);
            let gres = GresAlloc { entry: held, ids: IdSet::first(1), shards: false };
            let part = NodeAlloc {
                node: NodeId(0),
                tasks: 1,
                cpus: IdSet::EMPTY,
                memory_mb: 0,
                gres: [gres].into(),
            };
            node.take(JobId(1), &part, false);
            node.config = with(after);
            node.reshape();
            assert_eq!(node.shape.gres, if waits { &old } else { &new }.gres, "{before:?} {held} {after:?}");
            node.give_back(JobId(1), &part, Time(0));
            node.reshape();
            assert_eq!(node.shape, new, "{before:?} {after:?}");
        }
    }
}
