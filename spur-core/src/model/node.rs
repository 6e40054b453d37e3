//! Nodes: their resources and their state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::GresAlloc;
use super::fabric_report::FabricReport;
use super::idset::IdSet;
use crate::id::Attempt;
use crate::text::time::Time;

/// The resources of a node, as configured or as found by its daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeShape {
    /// Number of CPU sockets.
    pub sockets: u32,
    /// Number of cores in each socket.
    pub cores_per_socket: u32,
    /// Number of hardware threads in each core.
    pub threads_per_core: u32,
    /// Number of schedulable CPUs, which are hardware threads.
    pub cpus: u32,
    /// Amount of memory in MiB.
    pub memory_mb: u64,
    /// Temporary disk in MiB.
    pub tmp_disk_mb: u64,
    /// Devices: one entry for each name and type.
    pub gres: Vec<NodeGres>,
    /// True if jobs may share the GPUs. Each GPU then has an entry of its own that counts its shards; a job
    /// with all of them has the whole GPU.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared_gpus: bool,
    /// Features for `--constraint`, besides the names of the node's domains.
    pub features: Vec<Arc<str>>,
    /// Locations of devices, as the node reports them: those of one name and type in the order of their ids.
    /// Names without a report have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<DevicePlace>,
}

impl NodeShape {
    /// Number of GPUs, of all types.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let gpus = self.gres.iter().filter(|gres| gres.is_gpu());
        gpus.map(|gres| if self.shared_gpus { 1 } else { gres.count }).sum()
    }

    /// True if an entry is one GPU that jobs may share.
    #[must_use]
    pub fn is_shared(&self, entry: usize) -> bool {
        self.shared_gpus && self.gres.get(entry).is_some_and(NodeGres::is_gpu)
    }

    /// Number of earlier entries of the same name and type. For a sharable GPU this is its number among GPUs
    /// of its type.
    #[must_use]
    pub fn alike_before(&self, entry: usize) -> usize {
        let (before, rest) = self.gres.split_at(entry.min(self.gres.len()));
        let alike = |own: &NodeGres| {
            before.iter().filter(|gres| gres.name == own.name && gres.kind == own.kind).count()
        };
        rest.first().map_or(0, alike)
    }

    /// Divides the shards among the GPUs, if there are any: equally, or with a difference of one.
    pub fn share_gpus(&mut self) {
        let Some(at) = self.gres.iter().position(|gres| *gres.name == *SHARD) else { return };
        let (gpus, shards) = (self.gpus(), self.gres[at].count);
        if gpus == 0 {
            return;
        }
        self.gres.remove(at);
        let mut nth = 0;
        let mut split = |gres: &NodeGres| -> Vec<NodeGres> {
            if !gres.is_gpu() {
                return vec![gres.clone()];
            }
            let one = |_| {
                let count = (shards / gpus + u32::from(nth < shards % gpus)).max(1);
                nth += 1;
                NodeGres { count, ..gres.clone() }
            };
            (0..gres.count).map(one).collect()
        };
        self.gres = self.gres.iter().flat_map(&mut split).collect();
        self.shared_gpus = true;
    }

    /// The devices of one entry that a job holds, under the names that users know; `None` if the node does
    /// not have the entry.
    #[must_use]
    pub fn called(&self, held: &GresAlloc) -> Option<Called<'_>> {
        let at = usize::from(held.entry);
        let gres = self.gres.get(at)?;
        let before = self.gres[..at].iter().filter(|other| other.name == gres.name);
        if !self.is_shared(at) {
            let before: u32 = before.map(|other| other.count).sum();
            let ids: IdSet = held.ids.iter().map(|id| id + before).collect();
            return Some(Called { name: &gres.name, kind: &gres.kind, count: ids.len(), ids });
        }
        let ids = std::iter::once(u32::try_from(before.count()).unwrap_or(u32::MAX)).collect();
        Some(match held.shards {
            true => Called { name: SHARD, kind: "", count: held.ids.len(), ids },
            false => Called { name: &gres.name, kind: &gres.kind, count: 1, ids },
        })
    }

    /// The devices as users write them: one entry for each name and type, with its count.
    #[must_use]
    pub fn listed(&self) -> Vec<NodeGres> {
        let mut listed: Vec<NodeGres> = Vec::with_capacity(self.gres.len());
        let mut shards = 0;
        for (at, gres) in self.gres.iter().enumerate() {
            let shared = self.is_shared(at);
            let count = if shared { 1 } else { gres.count };
            shards += if shared { gres.count } else { 0 };
            match listed.iter_mut().find(|other| other.name == gres.name && other.kind == gres.kind) {
                Some(other) => other.count += count,
                None => listed.push(NodeGres { count, ..gres.clone() }),
            }
        }
        if self.shared_gpus {
            listed.push(NodeGres { name: SHARD.into(), kind: "".into(), count: shards });
        }
        listed
    }
}

/// Checks the shards among a node's devices.
///
/// # Errors
/// A message if there are shards without GPUs, with a type, or fewer than GPUs.
pub fn check_shards(gres: &[NodeGres]) -> Result<(), String> {
    let gpus: u32 = gres.iter().filter(|gres| gres.is_gpu()).map(|gres| gres.count).sum();
    match gres.iter().find(|gres| *gres.name == *SHARD) {
        Some(shard) if !shard.kind.is_empty() => Err(format!(
            "shard:{}: shards have no type; they are spread over all GPUs of the node",
            shard.kind
        )),
        Some(_) if gpus == 0 => Err("shards are parts of GPUs: say how many GPUs there are, too".to_owned()),
        Some(shard) if shard.count < gpus => {
            Err(format!("{} shards are too few for {gpus} GPUs: each has one at least", shard.count))
        }
        Some(_) | None => Ok(()),
    }
}

/// The name of a part of a GPU that several jobs may share.
pub const SHARD: &str = "shard";

/// Devices under the names that users know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called<'a> {
    /// The name, such as `gpu` or `shard`.
    pub name: &'a str,
    /// The type, such as `mi300x`; may be empty.
    pub kind: &'a str,
    /// Number of devices with this name.
    pub count: u32,
    /// The devices by number among all of that name on the node; for shards, the number of the GPU.
    pub ids: IdSet,
}

/// The location of one device of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePlace {
    /// The name, such as `gpu`.
    pub name: Arc<str>,
    /// The type; may be empty.
    pub kind: Arc<str>,
    /// The node's cores near the device, numbered socket by socket; empty if all are equally near.
    pub cores: IdSet,
    /// Number of links to each device of its name, in their order; 0 to itself, and to those beyond the end
    /// of the list.
    pub links: Vec<u32>,
}

/// Devices of one name and type on a node, numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGres {
    /// The name, such as `gpu`.
    pub name: Arc<str>,
    /// The type, such as `mi300x`; empty for the only, nameless type.
    #[serde(default)]
    pub kind: Arc<str>,
    /// Number of devices on the node.
    pub count: u32,
}

impl NodeGres {
    /// True if these are GPUs.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        *self.name == *"gpu"
    }
}

/// The data with which a node registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The resources that the daemon found.
    pub shape: NodeShape,
    /// The kernel's boot id, which changes with every boot.
    pub boot_id: Arc<str>,
    /// A random id of the node's spool. A new spool has another one, so that lost records are noticed.
    pub spool_id: Arc<str>,
    /// The `host:port` of the node's own service, for clients.
    pub address: Arc<str>,
    /// The host's name, which may differ from the node's.
    pub hostname: Arc<str>,
    /// The release of the daemon.
    pub version: Arc<str>,
    /// The architecture, such as `x86_64`.
    pub arch: Arc<str>,
    /// The operating system, such as `Linux 6.1`.
    pub os: Arc<str>,
    /// Time at which the host booted.
    pub booted: Time,
    /// Time at which the daemon started.
    pub started: Time,
    /// The network address from which the daemon connected.
    #[serde(default)]
    pub peer: Arc<str>,
    /// The means by which the node contains steps and limits them, such as `kill:cgroup/v2,memory:cgroup/v1`.
    #[serde(default)]
    pub containment: Arc<str>,
    /// The fault that keeps the node from taking work, such as a full spool; empty if there is none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fault: Arc<str>,
    /// The node's place in the network, as far as the daemon reports it.
    #[serde(default, skip_serializing_if = "FabricReport::is_empty")]
    pub fabric: FabricReport,
}

impl Registration {
    /// True if the registration is from another daemon than `before`: with another spool, or on another host.
    #[must_use]
    pub fn is_another(&self, before: &Registration) -> bool {
        self.spool_id != before.spool_id || self.is_called_otherwise(before)
    }

    /// True if the daemon is on another host than that of `before`, of which it therefore knows nothing. The
    /// same spool with the same boot id is on the same host, whatever its name.
    #[must_use]
    pub fn is_elsewhere(&self, before: &Registration) -> bool {
        let is_same = self.spool_id == before.spool_id && self.boot_id == before.boot_id;
        self.is_called_otherwise(before) && !is_same
    }

    /// True if the host has another name, or another network address where both are known.
    fn is_called_otherwise(&self, before: &Registration) -> bool {
        let peers_known = !before.peer.is_empty() && !self.peer.is_empty();
        self.hostname != before.hostname || (peers_known && self.peer != before.peer)
    }
}

/// The daemon that served a node before the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// The name of its host.
    pub hostname: Arc<str>,
    /// The network address from which it connected; empty if unknown.
    pub peer: Arc<str>,
    /// The id of its spool.
    pub spool_id: Arc<str>,
    /// Time at which the current daemon took over.
    pub until: Time,
}

/// The health of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// The node has never registered.
    Unknown,
    /// The node has registered and is not silent.
    Up,
    /// The node is out of service.
    Down {
        /// The reason, in words for administrators.
        reason: Arc<str>,
        /// Time since which it is down.
        at: Time,
        /// True if the node is silent.
        silent: bool,
        /// The operator who set the node down; it stays down until an operator resumes it. `None` if the
        /// controller did; the node is then up as soon as it registers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
    },
}

/// A drain, which keeps a node from new work: by an administrator, or by Spur itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The reason, in words for administrators.
    pub reason: Arc<str>,
    /// The author of the drain.
    pub by: Arc<str>,
    /// Time since which the node is drained.
    pub at: Time,
    /// True if the drain ends by itself when the node reports that its fault is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_mended: bool,
}

/// A power action on the host of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// The host is to be rebooted, or is being rebooted.
    Reboot(Reboot),
    /// The host is powered down when the node has no jobs.
    PowerDown {
        /// True if the node was drained for that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drained: bool,
    },
    /// The program that powers the host down has been called.
    PoweringDown {
        /// Time at which it was called.
        since: Time,
        /// True if the host is to be powered up again afterwards.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wake: bool,
    },
    /// The host is off.
    PoweredDown {
        /// Time at which the last program was called.
        since: Time,
        /// True if the host is to be powered up even without a job that needs it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wake: bool,
    },
    /// The program that powers the host up has been called.
    PoweringUp {
        /// Time at which it was called.
        since: Time,
    },
}

/// A requested reboot of a node's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reboot {
    /// The reason and the progress of the reboot, in words for administrators.
    pub reason: Arc<str>,
    /// The author of the request.
    pub by: Arc<str>,
    /// Time since which the reason is this one.
    pub at: Time,
    /// Time at which the reboot was ordered; `None` while the node has jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Time>,
    /// The state of the node after the reboot; `None` for its previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextState>,
    /// True if the node was drained for the reboot; the drain ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
}

/// The state of a node after a reboot (`scontrol reboot nextstate=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextState {
    /// The node gets work, whatever prevented that before.
    Resume,
    /// The node stays down.
    Down,
}

impl Reboot {
    /// Slurm's reason of a reboot without a given one.
    pub const REQUESTED: &'static str = "reboot requested";
    /// Slurm's reason of a reboot for which the node is drained, without a given one.
    pub const ASAP: &'static str = "Reboot ASAP";

    /// The reason with a further word about the progress, joined as in Slurm.
    #[must_use]
    pub fn reason_with(&self, word: &str) -> Arc<str> {
        format!("{} : {word}", self.reason).into()
    }
}

/// An attempt that still has processes on a node although the controller has ended it.
pub type Stale = Attempt;
