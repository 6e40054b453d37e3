//! Amounts of a cluster or a job that are added and compared independently of nodes.

use crate::sched::inventory::amounts::{CPUS, GRES};

use super::Request;

/// The least amounts of a job, or the largest free amounts. The minimum of two jobs' least amounts bounds
/// both jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cpus: u64,
    /// Number of nodes with a free CPU; for a job, the fewest nodes.
    pub(crate) nodes: u64,
    /// Number of nodes whose CPUs are all free; for a job, the nodes that it takes whole.
    pub(crate) whole: u64,
    /// Number of devices of all kinds.
    pub(crate) devices: u64,
}

impl Counts {
    /// The least that a request takes.
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

    /// The counts of a node with the free amount `amount` of `full`.
    pub(crate) fn free(amount: &[u64], full: &[u64]) -> Self {
        let some = amount[CPUS] > 0;
        Self {
            cpus: amount[CPUS],
            nodes: u64::from(some),
            whole: u64::from(some && amount[CPUS] == full[CPUS]),
            devices: amount[GRES..].iter().sum(),
        }
    }

    /// True if no count exceeds that of `other`.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.cpus <= other.cpus
            && self.nodes <= other.nodes
            && self.whole <= other.whole
            && self.devices <= other.devices
    }

    /// The minimum of each count.
    pub(crate) fn min(self, other: Self) -> Self {
        self.with(other, u64::min)
    }

    /// Adds the other counts.
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.with(other, |own, more| own + more);
    }

    /// Subtracts the other counts.
    pub(crate) fn take(&mut self, other: Self) {
        *self = self.with(other, |own, less| own - less);
    }

    /// Combines each count with the other's.
    fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpus: join(self.cpus, other.cpus),
            nodes: join(self.nodes, other.nodes),
            whole: join(self.whole, other.whole),
            devices: join(self.devices, other.devices),
        }
    }
}
