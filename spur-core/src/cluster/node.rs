//! A node's record: what it has, how it is, and what is taken of it.

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
    /// Its number.
    pub id: NodeId,
    /// What the configuration says.
    pub config: NodeConfig,
    /// Whether the configuration still names it; one that it does not gets no work.
    pub configured: bool,
    /// What jobs can have of it: the configuration's word, and the node's own where that is silent, without what is kept
    /// for the system.
    pub shape: Arc<NodeShape>,
    /// What is kept for the system.
    #[serde(default, skip_serializing_if = "Specialized::is_nothing")]
    pub specialized: Specialized,
    /// What it said when it last registered.
    #[serde(default)]
    pub registration: Option<Arc<Registration>>,
    /// The daemon that spoke for it before the one that does, if that was another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Arc<Predecessor>>,
    /// Whether it works.
    pub health: Health,
    /// Whether it is to get no more work.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// What is done to its host, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// Whether the node was in service when the current controller opened the journal, and has neither registered nor
    /// been taken down since: its jobs may have ended without the controller's knowledge.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unheard: bool,
    /// What jobs hold of it.
    #[serde(skip)]
    pub used: Used,
    /// Jobs that hold something of it, by number.
    #[serde(skip)]
    pub jobs: Vec<JobId>,
    /// Pending jobs that something of it is kept for, by number.
    #[serde(skip)]
    pub nominees: Vec<JobId>,
    /// The job that has it for itself.
    #[serde(skip)]
    pub exclusive: Option<JobId>,
    /// Attempts it still has processes of and that nobody wants; it gets no work until they are gone.
    #[serde(default)]
    pub stale: Vec<Attempt>,
    /// Attempts of a history before this one that it still has processes of; it gets no work until they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Attempt>,
    /// When it last became free of jobs, came into service or was switched on; at first, when it registered.
    #[serde(default)]
    pub last_busy: Option<Time>,
    /// How often a job has given back what it had here, and how often of these it was lost with the node.
    #[serde(default, skip_serializing_if = "Past::is_empty")]
    pub past: Past,
    /// What an operator says of it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub comment: Arc<str>,
    /// What an operator keeps there for other programs.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub extra: Arc<str>,
    /// Where operators have put it, by topology: in a leaf or base block, by its full name, or nowhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

/// How jobs have fared on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Attempts that are over here.
    pub ended: u64,
    /// Those of them that were lost with the node.
    pub lost: u64,
}

impl Past {
    /// An attempt is over, or was lost with the node.
    pub(super) fn add(&mut self, lost: bool) {
        self.ended += 1;
        self.lost += u64::from(lost);
    }

    /// The share that was not lost with the node, in millionths; all of it where there was none.
    #[must_use]
    pub fn performance(&self) -> u32 {
        const ONE: u64 = 1_000_000;
        let kept = self.ended.saturating_sub(self.lost).saturating_mul(ONE).checked_div(self.ended);
        kept.and_then(|share| u32::try_from(share).ok()).unwrap_or(1_000_000)
    }

    /// Whether nothing has ended yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended == 0
    }
}

/// What a node keeps from jobs for the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Specialized {
    /// CPUs: whole cores.
    pub cpus: IdSet,
    /// Memory, MiB.
    pub memory_mb: u64,
}

impl Specialized {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What is taken of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPUs.
    pub cpus: IdSet,
    /// Memory, MiB.
    pub memory_mb: u64,
    /// Devices, for each entry of the shape's `gres` up to the last one of which something is taken.
    pub gres: Vec<IdSet>,
}

impl Node {
    /// A node that has never been heard of.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Whether new work may be put on it, if there is room.
    #[must_use]
    pub fn available(&self) -> bool {
        self.drain.is_none() && self.works()
    }

    /// Whether it would be available if nobody had drained it.
    #[must_use]
    pub fn works(&self) -> bool {
        self.configured
            && self.health == Health::Up
            && !self.is_rebooting()
            && !self.is_powering_down()
            && self.stale.is_empty()
            && self.foreign.is_empty()
    }

    /// The boot that somebody wishes and that has not come yet.
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

    /// Whether its host was ordered to boot and has not yet.
    #[must_use]
    pub fn is_rebooting(&self) -> bool {
        self.reboot().is_some_and(|reboot| reboot.issued.is_some())
    }

    /// Whether its host is being switched off.
    #[must_use]
    pub fn is_powering_down(&self) -> bool {
        matches!(self.power, Some(Power::PoweringDown { .. }))
    }

    /// Whether its host is off, or on its way up; jobs that get it wait for it.
    #[must_use]
    pub fn is_off(&self) -> bool {
        matches!(self.power, Some(Power::PoweredDown { .. } | Power::PoweringUp { .. }))
    }

    /// Whether it is out of service because nothing is heard of it.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(self.health, Health::Down { silent: true, .. })
    }

    /// Whether nothing of it is taken.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether nobody has a CPU of it. Suspended jobs may still hold memory and devices.
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.used.cpus.is_empty() && self.exclusive.is_none()
    }

    /// How many CPUs it has with those that are kept for the system; their numbers are below.
    #[must_use]
    pub fn all_cpus(&self) -> u32 {
        self.shape.cpus + self.specialized.cpus.len()
    }

    /// CPUs that a job that starts cannot have.
    fn taken_cpus(&self) -> Cow<'_, IdSet> {
        match self.specialized.cpus.is_empty() {
            true => Cow::Borrowed(&self.used.cpus),
            false => Cow::Owned(self.used.cpus.union(&self.specialized.cpus)),
        }
    }

    /// CPUs nobody holds.
    #[must_use]
    pub fn free_cpus(&self) -> IdSet {
        match self.exclusive {
            Some(_) => IdSet::EMPTY,
            None => IdSet::first(self.all_cpus()).difference(&self.taken_cpus()),
        }
    }

    /// The lowest CPUs nobody holds, at most so many.
    #[must_use]
    pub fn lowest_free_cpus(&self, count: u32) -> IdSet {
        match self.exclusive {
            Some(_) => IdSet::EMPTY,
            None => self.taken_cpus().lowest_outside(self.all_cpus(), count),
        }
    }

    /// Memory nobody holds, MiB.
    #[must_use]
    pub fn free_memory_mb(&self) -> u64 {
        self.shape.memory_mb.saturating_sub(self.used.memory_mb)
    }

    /// Devices of one entry of the shape's `gres` that nobody holds.
    #[must_use]
    pub fn free_gres(&self, entry: usize) -> IdSet {
        let all = self.shape.gres.get(entry).map_or(IdSet::EMPTY, |gres| IdSet::first(gres.count));
        self.used.gres.get(entry).map_or(all.clone(), |used| all.difference(used))
    }

    /// Takes what a daemon that speaks for it says of itself: it is up, unless an operator has taken it out of service.
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

    /// Recomputes the shape after its configuration or its registration changed. Devices stay what they are while a job holds
    /// some that would be others then.
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

    /// Whether entries whose devices are held by jobs are the same in another shape; one whose devices are gone is none.
    fn holds_the_same(&self, other: &NodeShape) -> bool {
        let held = self.used.gres.iter().enumerate().filter(|(_, ids)| !ids.is_empty());
        held.map(|(entry, _)| entry).all(|entry| {
            let Some(mine) = self.shape.gres.get(entry) else { return true };
            let same_kind = |gres: &NodeGres| (&gres.name, &gres.kind) == (&mine.name, &mine.kind);
            let shared = [&*self.shape, other].map(|shape| shape.is_shared(entry));
            match other.gres.get(entry) {
                // Who has a GPU whole has all its shards.
                Some(gres) if shared != [false; 2] => shared == [true; 2] && gres == mine,
                Some(gres) => same_kind(gres),
                None => !other.gres.iter().any(same_kind),
            }
        })
    }

    /// Takes a job's part.
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

    /// Takes CPUs away from a job that keeps the rest; nobody has the node to itself any more.
    pub(super) fn free_cpus_of(&mut self, job: JobId, cpus: &IdSet) {
        self.used.cpus.remove_all(cpus);
        if self.exclusive == Some(job) {
            self.exclusive = None;
        }
    }

    /// Gives CPUs to a job that has the rest already.
    pub(super) fn return_cpus(&mut self, cpus: &IdSet) {
        self.used.cpus.insert_all(cpus);
    }

    /// Gives a job's part back.
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
        // A cluster that was read from a snapshot knows of no devices that nobody has.
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

/// The configuration's word on each number, and the registration's where the configuration says 0 or nothing.
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
    // Where nothing but the number of CPUs is said, each counts as a socket, as with Slurm.
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
        // What a node has, of which entry a job holds the first device, what the node has then, and whether that waits.
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
