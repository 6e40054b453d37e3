//! Allocations: the nodes of a started job in rank order, with the exact CPUs and devices on each.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::accounts::Charged;
use super::accounts::usage::Rate;
use super::idset::IdSet;
use crate::id::NodeId;
use crate::text::time::TimeLimit;

/// The resources of one attempt of a job. Replay takes them as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// The partition in which the job was started, one of those requested.
    pub partition: Arc<str>,
    /// The reservation in which the job was started, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Arc<str>>,
    /// The time limit of the start, if lower than the requested one (`--time-min`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimit>,
    /// The association and the QOS that the job counts for. Empty in old entries without this field.
    #[serde(default, skip_serializing_if = "Charged::is_nothing")]
    pub charged: Charged,
    /// The billing per second, in units of 2^-32. `None`, as in old entries without this field, for the
    /// number of CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<Rate>,
    /// The nodes in rank order, which is fabric order.
    pub nodes: Parts,
    /// True if no other job may use these nodes at the same time.
    #[serde(default)]
    pub exclusive: bool,
    /// The reason for the choice of nodes.
    #[serde(default)]
    pub why: Why,
    /// Nodes that failed and have not been replaced (`--no-kill`), by rank.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub lost: Box<[LostNode]>,
}

/// The parts on several nodes: a list in rank order with an index by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    by_rank: Box<[NodeAlloc]>,
    /// Ranks in the order of node numbers; empty if ranks have that order already, as they mostly do.
    by_node: Box<[u32]>,
}

/// A node that failed while its job went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostNode {
    /// The rank of the node in the original allocation.
    pub rank: u32,
    /// The resources that the job held on the node.
    pub part: NodeAlloc,
}

/// The replacement of a failed node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The node that failed.
    pub lost: NodeId,
    /// The resources that the job holds on the new node.
    pub part: NodeAlloc,
}

/// The resources that a job holds on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAlloc {
    /// Node of this part.
    pub node: NodeId,
    /// Number of tasks of the job's default step on this node.
    pub tasks: u32,
    /// CPUs by their id on the node.
    pub cpus: IdSet,
    /// Memory in MiB; 0 if memory is not counted for the job.
    #[serde(default)]
    pub memory_mb: u64,
    /// Devices that the job holds on the node.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub gres: Box<[GresAlloc]>,
}

/// Counts that are proposed for one node. The CPUs and devices themselves are chosen at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPart {
    /// Node of this part.
    pub node: NodeId,
    /// Number of tasks of the default step.
    pub tasks: u32,
    /// Number of CPUs, in whole cores.
    pub cpus: u32,
    /// Memory in MiB; 0 if memory is not counted for the job.
    #[serde(default)]
    pub memory_mb: u64,
    /// Number of devices, by index into the node's `gres`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<(u16, u32)>,
}

/// Devices of one kind on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GresAlloc {
    /// Index into the node's [`gres`](super::node::NodeShape::gres).
    pub entry: u16,
    /// Devices by their id within that entry.
    pub ids: IdSet,
    /// True if the devices are shards of a GPU, of which other jobs may have further shards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shards: bool,
}

/// The reason for the choice of nodes, recorded with the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// A sentence for users.
    pub sentence: String,
    /// Number of domains that the nodes touch, by layer name, from `node` upwards.
    #[serde(default)]
    pub spans: Vec<(Arc<str>, u32)>,
    /// True if the search was exhaustive, or none was needed.
    #[serde(default)]
    pub exact: bool,
    /// True if the job started ahead of one with higher priority.
    #[serde(default)]
    pub backfilled: bool,
    /// The priority of the job at its start, which `squeue %Q` prints.
    #[serde(default)]
    pub priority: u32,
    /// Requested constraints that were relaxed after the job had waited long enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxed: Vec<String>,
}

impl Alloc {
    /// The resources on `node`; `None` if the allocation does not include it.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&NodeAlloc> {
        self.nodes.rank_of(node).map(|rank| &self.nodes[rank])
    }

    /// The allocation without a node that failed; `None` if the node is not in it.
    #[must_use]
    pub fn without(&self, node: NodeId) -> Option<Self> {
        let at = self.nodes.rank_of(node)?;
        let is_lost = |rank: &u32| self.lost.iter().any(|lost| lost.rank == *rank);
        let rank = (0..).filter(|rank| !is_lost(rank)).nth(at)?;
        let mut nodes = self.nodes.to_vec();
        let mut lost = self.lost.to_vec();
        lost.push(LostNode { rank, part: nodes.remove(at) });
        lost.sort_by_key(|lost| lost.rank);
        Some(Self { nodes: nodes.into(), lost: lost.into(), ..self.clone() })
    }

    /// The allocation with a node in place of a failed one, at its rank, so that no other node changes its
    /// rank. `None` if that node is not missing.
    #[must_use]
    pub fn with(&self, replacement: &Replacement) -> Option<Self> {
        let found = self.lost.iter().position(|lost| lost.part.node == replacement.lost)?;
        // Lost nodes before this one have no place in the list.
        let at = self.lost[found].rank as usize - found;
        let (mut nodes, mut lost) = (self.nodes.to_vec(), self.lost.to_vec());
        lost.remove(found);
        nodes.insert(at, replacement.part.clone());
        Some(Self { nodes: nodes.into(), lost: lost.into(), ..self.clone() })
    }

    /// The node that runs the batch script, which is the first one; `None` without nodes.
    #[must_use]
    pub fn batch_node(&self) -> Option<NodeId> {
        self.nodes.first().map(|part| part.node)
    }

    /// Number of CPUs on all nodes together.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.cpus.len())).sum()
    }

    /// The billing of the job per second.
    #[must_use]
    pub fn billed(&self) -> Rate {
        self.billing.unwrap_or_else(|| Rate::whole(self.cpus()))
    }

    /// Number of tasks of the default step on all nodes together.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.tasks)).sum()
    }
}

impl Parts {
    /// Position of a node in the list; `None` if the list does not have it.
    fn rank_of(&self, node: NodeId) -> Option<usize> {
        if self.by_node.is_empty() {
            return self.by_rank.binary_search_by_key(&node, |part| part.node).ok();
        }
        let ranked = |rank: &u32| self.by_rank[*rank as usize].node;
        let found = self.by_node.binary_search_by_key(&node, ranked).ok()?;
        Some(self.by_node[found] as usize)
    }
}

impl From<Vec<NodeAlloc>> for Parts {
    fn from(by_rank: Vec<NodeAlloc>) -> Self {
        let by_rank = by_rank.into_boxed_slice();
        if by_rank.is_sorted_by_key(|part| part.node) {
            return Self { by_rank, by_node: Box::default() };
        }
        let mut by_node: Box<[u32]> = (0..).zip(&by_rank).map(|(rank, _)| rank).collect();
        by_node.sort_by_key(|rank| by_rank[*rank as usize].node);
        Self { by_rank, by_node }
    }
}

impl FromIterator<NodeAlloc> for Parts {
    fn from_iter<I: IntoIterator<Item = NodeAlloc>>(parts: I) -> Self {
        parts.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for Parts {
    type Target = [NodeAlloc];

    fn deref(&self) -> &[NodeAlloc] {
        &self.by_rank
    }
}

impl<'a> IntoIterator for &'a Parts {
    type Item = &'a NodeAlloc;
    type IntoIter = std::slice::Iter<'a, NodeAlloc>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_rank.iter()
    }
}

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_rank.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(node: u32) -> NodeAlloc {
        NodeAlloc { node: NodeId(node), tasks: 1, cpus: IdSet::first(1), memory_mb: 0, gres: Box::default() }
    }

    fn nodes(alloc: &Alloc) -> Vec<u32> {
        alloc.nodes.iter().map(|part| part.node.0).collect()
    }

    #[test]
    fn nodes_are_found_in_any_order() {
        for order in [vec![], vec![3], vec![1, 2, 5], vec![5, 1, 2], vec![9, 7, 4, 0]] {
            let alloc = Alloc { nodes: order.iter().copied().map(part).collect(), ..Alloc::default() };
            let found = |node| alloc.on(NodeId(node)).map(|part| part.node.0);
            let held: Vec<u32> = (0..11).filter_map(found).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(held, sorted, "{order:?}");
            assert_eq!(nodes(&alloc), order);
        }
    }

    #[test]
    fn whoever_stays_keeps_his_rank() {
        let alloc = Alloc { nodes: (0..6).map(part).collect(), ..Alloc::default() };
        let lose = |alloc: Alloc, node| alloc.without(NodeId(node)).expect("it has the node");
        let short = [1, 4, 2].into_iter().fold(alloc.clone(), lose);
        assert_eq!(nodes(&short), [0, 3, 5]);
        let ranks: Vec<u32> = short.lost.iter().map(|lost| lost.rank).collect();
        assert_eq!(ranks, [1, 2, 4]);
        let stands_in = |alloc: Alloc, (lost, node)| {
            alloc.with(&Replacement { lost: NodeId(lost), part: part(node) }).expect("the node is missing")
        };
        let whole = [(4, 14), (1, 11), (2, 12)].into_iter().fold(short.clone(), stands_in);
        assert_eq!((nodes(&whole), whole.lost.len()), (vec![0, 11, 12, 3, 14, 5], 0));
        assert_eq!(short.without(NodeId(1)), None);
        assert_eq!(alloc.with(&Replacement { lost: NodeId(1), part: part(7) }), None);
    }
}
