//! What a started job holds: nodes in rank order, and on each the very CPUs and devices.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::idset::IdSet;
use crate::id::NodeId;
use crate::text::time::TimeLimit;

/// The resources of one attempt of a job. Results only: replay takes them as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// Partition the job was started in, one of those it asked for.
    pub partition: Arc<str>,
    /// The reservation it was started in, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Arc<str>>,
    /// The time limit it was started with, if that is lower than what it asked for (`--time-min`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimit>,
    /// The nodes in rank order, which is fabric order.
    pub nodes: Box<[NodeAlloc]>,
    /// Whether nobody else may use these nodes meanwhile.
    #[serde(default)]
    pub exclusive: bool,
    /// How it was chosen.
    #[serde(default)]
    pub why: Why,
}

/// What is held on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAlloc {
    /// The node.
    pub node: NodeId,
    /// Tasks the job's default step starts here.
    pub tasks: u32,
    /// CPUs by their number on the node.
    pub cpus: IdSet,
    /// Memory in MiB; 0 when memory is not counted for the job.
    #[serde(default)]
    pub memory_mb: u64,
    /// Devices.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub gres: Box<[GresAlloc]>,
}

/// What is proposed on one node: counts. Which CPUs and devices is decided when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPart {
    /// The node.
    pub node: NodeId,
    /// Tasks of the default step.
    pub tasks: u32,
    /// CPUs, whole cores.
    pub cpus: u32,
    /// Memory, MiB; 0 when it is not counted for the job.
    #[serde(default)]
    pub memory_mb: u64,
    /// Devices: index into the node's `gres`, and how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<(u16, u32)>,
}

/// Devices of one kind on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GresAlloc {
    /// Which of the node's [`gres`](super::node::NodeShape::gres) entries.
    pub entry: u16,
    /// The devices by their number within that entry.
    pub ids: IdSet,
}

/// Why a job got the nodes it got: recorded with its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// One sentence for people.
    pub sentence: String,
    /// Domains touched, for every named layer from `node` upwards.
    #[serde(default)]
    pub spans: Vec<(Arc<str>, u32)>,
    /// Whether the search was exhaustive where it had to search.
    #[serde(default)]
    pub exact: bool,
    /// Whether it started ahead of a job of higher priority.
    #[serde(default)]
    pub backfilled: bool,
    /// What the job counted for when it was started, as `squeue %Q` prints it.
    #[serde(default)]
    pub priority: u32,
    /// What the job had asked for and had waived after waiting long enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxed: Vec<String>,
}

impl Alloc {
    /// What is held on `node`, if anything.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&NodeAlloc> {
        self.nodes.iter().find(|part| part.node == node)
    }

    /// The node that runs the batch script: the first.
    #[must_use]
    pub fn batch_node(&self) -> Option<NodeId> {
        self.nodes.first().map(|part| part.node)
    }

    /// CPUs held on all nodes together.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.cpus.len())).sum()
    }

    /// Tasks of the default step on all nodes together.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.tasks)).sum()
    }
}
