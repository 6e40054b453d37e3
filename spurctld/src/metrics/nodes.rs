//! The facts about nodes for metrics, read from the replica a few nodes at a time.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use spur_core::cluster::{Cluster, Node};
use spur_core::id::{JobId, NodeId};
use spur_core::model::node::{Health, NodeShape, Power};
use spur_core::model::reservation::Flag;
use spur_core::text::time::Time;
use spur_proto::convert::node;

use super::Sources;
use crate::clock;
use crate::planner::Outlooks;

/// Number of nodes that are read while the replica is locked.
const PAGE: usize = 512;

/// Slurm's base states, of which each node has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Allocated,
    Down,
    Idle,
    Mixed,
    Unknown,
}

/// Slurm's further states, of which a node may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    Completing,
    Drained,
    Draining,
    Maintenance,
    NotResponding,
    Planned,
    PowerDown,
    PoweredDown,
    PoweringDown,
    PoweringUp,
    RebootIssued,
    RebootRequested,
    Reserved,
}

/// An amount: the total, and the part that jobs hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) total: u64,
    pub(super) used: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.used += other.used;
    }
}

/// The facts about a node that are added up over the cluster and its domains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The state that `sinfo` shows.
    pub(super) state: &'static str,
    pub(super) standing: Standing,
    /// CPUs that jobs can have.
    pub(super) cpus: Amount,
    pub(super) gpus: Amount,
    /// Memory that jobs can have, in MiB.
    pub(super) memory_mb: Amount,
}

/// One configured node.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: NodeId,
    pub(super) name: Arc<str>,
    share: Share,
    pub(super) base: Base,
    marks: u32,
    /// CPUs that are kept for the system.
    pub(super) specialized_cpus: u64,
    /// Memory that is kept for the system, in MiB.
    pub(super) specialized_memory_mb: u64,
    /// Memory available to processes in MiB, in the node's last heartbeat.
    pub(super) free_memory_mb: Option<u64>,
}

/// The state of a node in the counts of its domains, as `sinfo --topology` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Free,
    Allocated,
    Down,
}

impl Share {
    /// `completing` are all jobs of the cluster that are completing.
    fn of(outlooks: &Outlooks, completing: &BTreeSet<JobId>, found: &Node) -> Self {
        Self {
            state: node::state_by(found, outlooks.plans(found.id), |job| completing.contains(&job)),
            standing: standing(found),
            cpus: cpus(found),
            gpus: gpus(&found.shape, found),
            memory_mb: Amount { total: found.shape.memory_mb, used: found.used.memory_mb },
        }
    }
}

impl Deref for Row {
    type Target = Share;

    fn deref(&self) -> &Share {
        &self.share
    }
}

impl Row {
    fn of(sources: &Sources, cluster: &Cluster, share: Share, found: &Node, now: Time) -> Self {
        let state = share.state;
        let reservation = node::reserved(cluster, found, now);
        let mut row = Self {
            id: found.id,
            name: Arc::clone(found.name()),
            share,
            base: base(found),
            marks: 0,
            specialized_cpus: found.specialized.cpus.len().into(),
            specialized_memory_mb: found.specialized.memory_mb,
            free_memory_mb: sources.agents.pulse(found.id).memory_free_mb,
        };
        let silent = matches!(found.health, Health::Unknown | Health::Down { silent: true, .. });
        row.mark(Mark::Completing, state == "completing");
        row.mark(Mark::Drained, state == "drained");
        row.mark(Mark::Draining, state == "draining");
        row.mark(Mark::Planned, state == "planned");
        row.mark(Mark::NotResponding, silent || matches!(found.power, Some(Power::PoweringUp { .. })));
        row.mark(Mark::Reserved, reservation.is_some());
        row.mark(Mark::Maintenance, reservation.is_some_and(|kept| kept.has(Flag::Maint)));
        if let Some(power) = &found.power {
            row.mark(
                match power {
                    Power::Reboot(reboot) if reboot.issued.is_none() => Mark::RebootRequested,
                    Power::Reboot(_) => Mark::RebootIssued,
                    Power::PowerDown { .. } => Mark::PowerDown,
                    Power::PoweringDown { .. } => Mark::PoweringDown,
                    Power::PoweredDown { .. } => Mark::PoweredDown,
                    Power::PoweringUp { .. } => Mark::PoweringUp,
                },
                true,
            );
        }
        row
    }

    fn mark(&mut self, mark: Mark, set: bool) {
        self.marks |= u32::from(set) << mark as u8;
    }

    /// True if the node has this state.
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.marks & 1 << mark as u8 != 0
    }
}

/// The shares of all nodes by number; `None` for a node that is not configured.
pub(super) struct Shares(Vec<Option<Share>>);

impl Shares {
    /// Reads the nodes.
    pub(super) fn read(sources: &Sources) -> Self {
        let mut shares = Vec::new();
        each(sources, |_, found, share| shares.push(found.configured.then_some(share)));
        Self(shares)
    }

    /// Returns the share of a node; `None` if the node is not configured.
    pub(super) fn get(&self, node: NodeId) -> Option<&Share> {
        self.0.get(node.index())?.as_ref()
    }

    /// Returns the shares of all configured nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Share> {
        self.0.iter().flatten()
    }
}

/// Returns all configured nodes, by number.
pub(super) fn rows(sources: &Sources) -> Vec<Row> {
    let mut rows = Vec::new();
    let now = clock::now(&sources.replica.read());
    each(sources, |cluster, found, share| {
        if found.configured {
            rows.push(Row::of(sources, cluster, share, found, now));
        }
    });
    rows
}

/// Calls `see` for every node, by number.
fn each(sources: &Sources, mut see: impl FnMut(&Cluster, &Node, Share)) {
    let outlooks = sources.overlay.read();
    for first in (0..).step_by(PAGE) {
        let cluster = sources.replica.read();
        let tally = sources.replica.tally();
        let nodes = cluster.nodes();
        let Some(rest) = nodes.get(first..).filter(|rest| !rest.is_empty()) else { return };
        for found in rest.iter().take(PAGE) {
            see(&cluster, found, Share::of(&outlooks, tally.completing(), found));
        }
    }
}

fn base(node: &Node) -> Base {
    match node.health {
        Health::Down { .. } => Base::Down,
        Health::Unknown => Base::Unknown,
        Health::Up if node.idle() => Base::Idle,
        Health::Up if cpus(node).used >= cpus(node).total => Base::Allocated,
        Health::Up => Base::Mixed,
    }
}

fn standing(node: &Node) -> Standing {
    match (&node.health, node.available(), node.idle()) {
        (Health::Down { .. } | Health::Unknown, _, _) | (Health::Up, false, true) => Standing::Down,
        (Health::Up, _, false) => Standing::Allocated,
        (Health::Up, true, true) => Standing::Free,
    }
}

fn cpus(node: &Node) -> Amount {
    let total = u64::from(node.shape.cpus);
    let used = if node.exclusive.is_some() { total } else { u64::from(node.used.cpus.len()).min(total) };
    Amount { total, used }
}

/// Returns the GPUs of a node; a shared GPU counts as used while a job has a part of it.
fn gpus(shape: &NodeShape, node: &Node) -> Amount {
    let used = node.used.gres.iter().enumerate().filter(|(entry, _)| shape.gres[*entry].is_gpu());
    let used = used.map(|(entry, ids)| match shape.is_shared(entry) {
        true => u64::from(!ids.is_empty()),
        false => u64::from(ids.len()),
    });
    Amount { total: shape.gpus().into(), used: used.sum() }
}
