//! Limits on the CPUs that the jobs of a partition hold together on one node (`max_cpus_per_node`) or on one
//! socket (`max_cpus_per_socket`), as further entries of amounts.
//!
//! Behind the devices, an amount has these entries:
//!
//! 1. For each partition with a limit on nodes: the CPUs that its jobs may still take of the node.
//! 2. If any partition has a limit on sockets, for each socket of the node: the free CPUs.
//! 3. For each partition with a limit on sockets, and each socket: the CPUs that its jobs may still take.
//!
//! A job takes from the entries of its own partition and from those of sockets, so all that plans do with
//! amounts also keeps the limits. Without such limits there are no further entries.

use crate::cluster::{Node, Partition};
use crate::model::idset::IdSet;

/// The limits of all partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuLimits {
    /// The limits on nodes, in the order of their partitions.
    on_nodes: Vec<u32>,
    /// The limits on sockets, in the order of their partitions.
    on_sockets: Vec<u32>,
    /// The place of each partition among those with a limit on nodes, and among those with one on sockets.
    of: Vec<(Option<usize>, Option<usize>)>,
}

/// The further entries of amounts that the jobs of one partition take from. Indices count from the first
/// further entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitEntries {
    /// Number of partitions with a limit on nodes.
    nodes: usize,
    /// Number of partitions with a limit on sockets.
    sockets: usize,
    /// The partition's own place among those with a limit on nodes; `None` without a limit.
    on_node: Option<usize>,
    /// The partition's own place among those with a limit on sockets; `None` without a limit.
    on_socket: Option<usize>,
}

impl CpuLimits {
    /// The limits of partitions.
    pub(super) fn of(partitions: &[Partition]) -> Self {
        let mut limits = Self::default();
        let add = |limits: &mut Vec<u32>, limit: Option<u32>| {
            limits.extend(limit);
            limit.map(|_| limits.len() - 1)
        };
        for Partition { config, .. } in partitions {
            let on_node = add(&mut limits.on_nodes, config.max_cpus_per_node);
            let on_socket = add(&mut limits.on_sockets, config.max_cpus_per_socket);
            limits.of.push((on_node, on_socket));
        }
        limits
    }

    /// True if no partition has a limit.
    pub(super) fn are_none(&self) -> bool {
        self.on_nodes.is_empty() && self.on_sockets.is_empty()
    }

    /// The entries of a partition; for `None`, those of a partition without limits.
    pub(super) fn entries(&self, partition: Option<usize>) -> LimitEntries {
        let (on_node, on_socket) = partition.map(|index| self.of[index]).unwrap_or_default();
        LimitEntries { nodes: self.on_nodes.len(), sockets: self.on_sockets.len(), on_node, on_socket }
    }

    /// The further entries of an idle node.
    pub(super) fn capacity(&self, node: &Node) -> Vec<u64> {
        let within = |most: u64| move |limit: &u32| u64::from(*limit).min(most);
        let mut all: Vec<u64> = self.on_nodes.iter().map(within(u64::from(node.shape.cpus))).collect();
        if !self.on_sockets.is_empty() {
            let usable = IdSet::first(node.all_cpus()).difference(&node.specialized.cpus);
            let each = node.cpus_per_socket();
            let mut free = vec![0; node.all_cpus().div_ceil(each) as usize];
            count_by_socket(&usable, each, &mut free);
            all.extend(&free);
            all.extend(self.on_sockets.iter().flat_map(|limit| free.iter().map(|free| within(*free)(limit))));
        }
        all
    }
}

impl LimitEntries {
    /// True if the partition has a limit.
    pub(crate) fn limit_cpus(&self) -> bool {
        self.on_node.is_some() || self.on_socket.is_some()
    }

    /// True if some partition has a limit on sockets: the number of jobs that fit on a node then does not
    /// follow from dividing its amounts.
    pub(crate) fn have_sockets(&self) -> bool {
        self.sockets > 0
    }

    /// The amount of a node with entries that limit nothing, where no partition has a limit on sockets.
    pub(crate) fn unlimited(&self, amount: Box<[u64]>) -> Box<[u64]> {
        let further = std::iter::repeat_n(u64::MAX, self.nodes);
        if self.nodes == 0 { amount } else { amount.into_iter().chain(further).collect() }
    }

    /// Writes the further entries that `cpus` CPUs take of `amount` into `taken`: whole cores of `threads`
    /// CPUs from the lowest sockets, or everything if the node is taken whole. `None` if the limits of the
    /// partition do not admit them.
    pub(crate) fn take(
        &self,
        amount: &[u64],
        (cpus, threads, whole): (u64, u64, bool),
        taken: &mut [u64],
    ) -> Option<()> {
        if self.nodes == 0 && self.sockets == 0 {
            return Some(());
        }
        let sockets = self.sockets_of(amount);
        if let Some(own) = self.on_node {
            if amount[own] < cpus {
                return None;
            }
            taken[own] = cpus;
        }
        let own = self.on_socket.map(|own| self.nodes + sockets * (1 + own));
        let mut left = cpus;
        for socket in 0..sockets {
            let free = amount[self.nodes + socket];
            let may = own.map_or(free, |own| amount[own + socket].min(free));
            let takes = if whole { may } else { (may / threads * threads).min(left) };
            taken[self.nodes + socket] = takes;
            if let Some(own) = own {
                taken[own + socket] = takes;
            }
            left = left.saturating_sub(takes);
        }
        if whole {
            taken.copy_from_slice(amount);
        }
        // Jobs of other partitions are not held up by an uneven use of sockets.
        (left == 0 || own.is_none()).then_some(())
    }

    /// Adds the CPUs of a job that has started to the further entries of what it holds; each socket of the
    /// node has `per_socket` CPUs.
    pub(crate) fn hold(&self, cpus: &IdSet, per_socket: u32, held: &mut [u64]) {
        if let Some(own) = self.on_node {
            held[own] += u64::from(cpus.len());
        }
        let sockets = self.sockets_of(held);
        if sockets > 0 {
            let (free, own) = held[self.nodes..].split_at_mut(sockets);
            count_by_socket(cpus, per_socket, free);
            if let Some(at) = self.on_socket {
                own[at * sockets..(at + 1) * sockets].copy_from_slice(free);
            }
        }
    }

    /// Number of sockets for which the further entries of an amount count.
    fn sockets_of(&self, entries: &[u64]) -> usize {
        if self.sockets == 0 { 0 } else { (entries.len() - self.nodes) / (1 + self.sockets) }
    }
}

/// Adds the CPUs of each socket of `per_socket` CPUs to the count of the socket.
fn count_by_socket(cpus: &IdSet, per_socket: u32, counts: &mut [u64]) {
    for cpu in cpus.iter() {
        if let Some(count) = counts.get_mut((cpu / per_socket.max(1)) as usize) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of the second of three partitions: the first has a limit on nodes, the second has both,
    /// the third has a limit on sockets.
    const SECOND: LimitEntries = LimitEntries { nodes: 2, sockets: 2, on_node: Some(1), on_socket: Some(0) };

    #[test]
    fn a_job_takes_from_its_own_entries_and_from_sockets() {
        let idle = [3, 6, 4, 4, 3, 3, 2, 2];
        for (cpus, threads, wanted) in [
            (2, 1, Some([0, 2, 2, 0, 2, 0, 0, 0])),
            (4, 1, Some([0, 4, 3, 1, 3, 1, 0, 0])),
            (6, 1, Some([0, 6, 3, 3, 3, 3, 0, 0])),
            (7, 1, None),
            (4, 2, Some([0, 4, 2, 2, 2, 2, 0, 0])),
            (6, 2, None),
        ] {
            let mut taken = [0; 8];
            let fits = SECOND.take(&idle, (cpus, threads, false), &mut taken);
            assert_eq!(fits.map(|()| taken), wanted, "{cpus} CPUs in cores of {threads}");
        }
        let free = LimitEntries { on_node: None, on_socket: None, ..SECOND };
        let mut taken = [0; 8];
        assert_eq!(free.take(&idle, (5, 1, false), &mut taken), Some(()));
        assert_eq!(taken, [0, 0, 4, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_whole_node_is_taken_only_within_the_limits() {
        let own = LimitEntries { nodes: 1, sockets: 1, on_node: Some(0), on_socket: Some(0) };
        for (idle, fits) in [([8, 4, 4, 4, 4], true), ([7, 4, 4, 4, 4], false), ([8, 4, 4, 4, 3], false)] {
            let mut taken = [0; 5];
            assert_eq!(own.take(&idle, (8, 1, true), &mut taken).is_some(), fits, "{idle:?}");
        }
    }

    #[test]
    fn held_cpus_count_in_their_sockets() {
        let mut held = [0; 8];
        SECOND.hold(&"0,4-5".parse().expect("it is a list"), 4, &mut held);
        assert_eq!(held, [0, 3, 1, 2, 1, 2, 0, 0]);
    }
}
