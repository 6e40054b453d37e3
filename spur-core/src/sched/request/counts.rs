//! Amounts of a cluster or a job that are added up and compared, whatever nodes they are of.

use crate::sched::inventory::amounts::{CPUS, GRES};

use super::Request;

/// Amounts that a job takes at least, or that are free at most. Two jobs' minima together hold for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cpus: u64,
    /// Nodes with a CPU to take.
    pub(crate) nodes: u64,
    /// Nodes of which all CPUs are taken.
    pub(crate) whole: u64,
    /// Devices of all kinds.
    pub(crate) devices: u64,
}

impl Counts {
    /// What a request takes at least.
    pub(crate) fn of(request: &Request) -> Self {
        let (nodes, slots) = (u64::from(request.min_nodes()), request.min_slots());
        let need = &request.need;
        let on_nodes = need.devices_of_node().saturating_mul(nodes);
        Self {
            cpus: need.cpus_of_slot().saturating_mul(slots).max(nodes),
            nodes,
            whole: if need.whole { nodes } else { 0 },
            devices: need.devices_of_slot().saturating_mul(slots).saturating_add(on_nodes),
        }
    }

    /// What a node counts for that has an amount of what it has in full.
    pub(crate) fn free(amount: &[u64], full: &[u64]) -> Self {
        let some = amount[CPUS] > 0;
        Self {
            cpus: amount[CPUS],
            nodes: u64::from(some),
            whole: u64::from(some && amount[CPUS] == full[CPUS]),
            devices: amount[GRES..].iter().sum(),
        }
    }

    /// Whether this is no more than `other` in any count.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.cpus <= other.cpus
            && self.nodes <= other.nodes
            && self.whole <= other.whole
            && self.devices <= other.devices
    }

    /// The smaller of each.
    pub(crate) fn min(self, other: Self) -> Self {
        self.with(other, u64::min)
    }

    /// Adds counts to these.
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.with(other, |own, more| own + more);
    }

    /// Takes counts out of these.
    pub(crate) fn take(&mut self, other: Self) {
        *self = self.with(other, |own, less| own - less);
    }

    /// Each count made of both.
    fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpus: join(self.cpus, other.cpus),
            nodes: join(self.nodes, other.nodes),
            whole: join(self.whole, other.whole),
            devices: join(self.devices, other.devices),
        }
    }
}
