//! What a node is made of and how it is doing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::GresAlloc;
use super::idset::IdSet;
use crate::id::Attempt;
use crate::text::time::Time;

/// What a node has, as its configuration or its own inventory says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeShape {
    /// Sockets.
    pub sockets: u32,
    /// Cores in each socket.
    pub cores_per_socket: u32,
    /// Hardware threads in each core.
    pub threads_per_core: u32,
    /// Schedulable CPUs: hardware threads.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Temporary disk in MiB.
    pub tmp_disk_mb: u64,
    /// Devices: one entry for each name and type.
    pub gres: Vec<NodeGres>,
    /// Whether jobs may share its GPUs. Then each GPU has an entry of its own, which counts its shards: who has all of them
    /// has the GPU whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared_gpus: bool,
    /// What `--constraint` may ask for, besides the names of the node's domains.
    pub features: Vec<Arc<str>>,
    /// Where devices lie, as the node itself says: those of one name and type in the order of their numbers. None of the
    /// names of which nothing is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<DevicePlace>,
}

impl NodeShape {
    /// Its GPUs, of whatever type.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let gpus = self.gres.iter().filter(|gres| gres.is_gpu());
        gpus.map(|gres| if self.shared_gpus { 1 } else { gres.count }).sum()
    }

    /// Whether an entry is one GPU that jobs may share.
    #[must_use]
    pub fn is_shared(&self, entry: usize) -> bool {
        self.shared_gpus && self.gres.get(entry).is_some_and(NodeGres::is_gpu)
    }

    /// How many entries of the same name and type stand before an entry: of GPUs that may be shared its number among those.
    #[must_use]
    pub fn alike_before(&self, entry: usize) -> usize {
        let (before, rest) = self.gres.split_at(entry.min(self.gres.len()));
        let alike = |own: &NodeGres| {
            before.iter().filter(|gres| gres.name == own.name && gres.kind == own.kind).count()
        };
        rest.first().map_or(0, alike)
    }

    /// Gives each GPU its shards, if there are any among the devices: as many as the others, or one more.
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

    /// What people call somebody's devices of an entry.
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

    /// Its devices as people write them: one of each name and type, with their count.
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

/// What is wrong with the shards among a node's devices, if anything.
///
/// # Errors
/// For people: shards without GPUs, or of a type, or fewer than GPUs.
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

/// What a part of a GPU is called that several jobs may share.
pub const SHARD: &str = "shard";

/// Devices as people call them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called<'a> {
    /// Such as `gpu`, or `shard`.
    pub name: &'a str,
    /// Such as `mi300x`; may be empty.
    pub kind: &'a str,
    /// How many.
    pub count: u32,
    /// Their numbers among all of their name on the node; of shards that of their GPU.
    pub ids: IdSet,
}

/// Where one device of a node lies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePlace {
    /// Such as `gpu`.
    pub name: Arc<str>,
    /// Its type; may be empty.
    pub kind: Arc<str>,
    /// The node's cores that are near, numbered socket by socket; none: all are alike.
    pub cores: IdSet,
    /// How many links it has to each device of its name, in their order; 0 to itself, and to those that the list is too
    /// short for.
    pub links: Vec<u32>,
}

/// Devices of one name and type on a node, numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGres {
    /// Such as `gpu`.
    pub name: Arc<str>,
    /// Such as `mi300x`; empty when there is one nameless type.
    #[serde(default)]
    pub kind: Arc<str>,
    /// How many.
    pub count: u32,
}

impl NodeGres {
    /// Whether these are GPUs.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        *self.name == *"gpu"
    }
}

/// What a node said of itself when it registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// What it found.
    pub shape: NodeShape,
    /// The kernel's boot id: changes with every boot.
    pub boot_id: Arc<str>,
    /// Changes when the node's spool is new, so that lost records are noticed.
    pub spool_id: Arc<str>,
    /// `host:port` of the node's own service, for clients.
    pub address: Arc<str>,
    /// The host's name, which may differ from the node's.
    pub hostname: Arc<str>,
    /// Release of the daemon.
    pub version: Arc<str>,
    /// Architecture and system, such as `x86_64` and `Linux 6.1`.
    pub arch: Arc<str>,
    /// See `arch`.
    pub os: Arc<str>,
    /// When the host booted.
    pub booted: Time,
    /// When the daemon started.
    pub started: Time,
    /// The address on the network that it connected from.
    #[serde(default)]
    pub peer: Arc<str>,
    /// What holds steps together there and what limits what, such as `kill:cgroup/v2,memory:cgroup/v1`.
    #[serde(default)]
    pub containment: Arc<str>,
    /// What keeps it from taking work, such as a spool that is full; empty if nothing does.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fault: Arc<str>,
}

impl Registration {
    /// Whether another daemon than the one of `before` speaks for the node: with another spool, or on another host.
    #[must_use]
    pub fn is_another(&self, before: &Registration) -> bool {
        self.spool_id != before.spool_id || self.is_called_otherwise(before)
    }

    /// Whether the daemon is on another host than the one of `before`, of which it therefore knows nothing. One with the same
    /// spool under the same boot is on the same host, whatever that calls itself.
    #[must_use]
    pub fn is_elsewhere(&self, before: &Registration) -> bool {
        let is_same = self.spool_id == before.spool_id && self.boot_id == before.boot_id;
        self.is_called_otherwise(before) && !is_same
    }

    /// Whether its host has another name, or another address on the network where both are known.
    fn is_called_otherwise(&self, before: &Registration) -> bool {
        let peers_known = !before.peer.is_empty() && !self.peer.is_empty();
        self.hostname != before.hostname || (peers_known && self.peer != before.peer)
    }
}

/// The daemon that spoke for a node before the one that does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// Its host.
    pub hostname: Arc<str>,
    /// The address on the network that it connected from; empty if that is not known.
    pub peer: Arc<str>,
    /// Its spool.
    pub spool_id: Arc<str>,
    /// When another one took its place.
    pub until: Time,
}

/// Whether a node can be given work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Configured, never heard of.
    Unknown,
    /// Registered and heard of.
    Up,
    /// Out of service.
    Down {
        /// Why, for people.
        reason: Arc<str>,
        /// Since when.
        at: Time,
        /// Whether nothing is heard of it.
        silent: bool,
        /// Who took it out of service. It is up again when that is taken back; if nobody did, as soon as it is heard.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
    },
}

/// The wish that a node gets no new work: an administrator's, or that of Spur itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Why, for people.
    pub reason: Arc<str>,
    /// Who wished it.
    pub by: Arc<str>,
    /// Since when.
    pub at: Time,
    /// Whether it ends by itself, when the node says that its fault is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_mended: bool,
}

/// What is done to the host of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// It is booted again.
    Reboot(Reboot),
    /// It is switched off when the node has no jobs.
    PowerDown {
        /// Whether the node was drained for that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drained: bool,
    },
    /// The program that switches it off has been called.
    PoweringDown {
        /// When.
        since: Time,
        /// Whether it is to be switched on again afterwards.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wake: bool,
    },
    /// It is off.
    PoweredDown {
        /// When the last program was called.
        since: Time,
        /// Whether it is to be switched on, also without a job that needs it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wake: bool,
    },
    /// The program that switches it on has been called.
    PoweringUp {
        /// When.
        since: Time,
    },
}

/// A boot of a node's host that somebody wishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reboot {
    /// Why, and how far it has come, for people.
    pub reason: Arc<str>,
    /// Who wished it.
    pub by: Arc<str>,
    /// Since when the reason is this one.
    pub at: Time,
    /// When it was ordered; until then the node's jobs are waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Time>,
    /// What becomes of the node when it has booted; otherwise it is what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextState>,
    /// Whether the node was drained for it, which ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
}

/// What `scontrol reboot nextstate=` makes of a node that has booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextState {
    /// It gets work, whatever kept it from that before.
    Resume,
    /// It stays out of service.
    Down,
}

impl Reboot {
    /// Slurm's reason for a boot that nobody has given another one for.
    pub const REQUESTED: &'static str = "reboot requested";
    /// The same where the node is drained for it.
    pub const ASAP: &'static str = "Reboot ASAP";

    /// The reason with one more word of how far it has come, as Slurm puts them together.
    #[must_use]
    pub fn reason_with(&self, word: &str) -> Arc<str> {
        format!("{} : {word}", self.reason).into()
    }
}

/// An attempt that a node still has processes of although the controller is done with it.
pub type Stale = Attempt;
