//! What a node is made of and how it is doing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

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
        self.gres.iter().filter(|gres| *gres.name == *"gpu").map(|gres| gres.count).sum()
    }
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
        let peer_known = !before.peer.is_empty() && !self.peer.is_empty();
        self.spool_id != before.spool_id
            || self.hostname != before.hostname
            || (peer_known && self.peer != before.peer)
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
