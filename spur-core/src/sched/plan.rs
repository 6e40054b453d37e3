//! What the planner proposes: starts for now, and for every job it looked at, when and why not yet.

use std::sync::Arc;

use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::Why;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::time::Time;

/// The outcome of one pass over the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Jobs to start now, in this order.
    pub starts: Vec<Start>,
    /// Jobs that were looked at and do not start now, in queue order.
    pub waiting: Vec<Waiting>,
    /// The job that a start was promised to for the first time in this pass, and when.
    pub promise: Option<(JobId, Time)>,
    /// What the pass did, in counts.
    pub report: Report,
}

/// A start that is proposed; `controller/handle/start` checks it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The job and which attempt.
    pub attempt: Attempt,
    /// The request it was planned for; a job that was changed since is planned again.
    pub spec: Arc<JobSpec>,
    /// The partition it runs in.
    pub partition: Arc<str>,
    /// Nodes in rank order.
    pub parts: Vec<StartPart>,
    /// Whether it gets its nodes for itself.
    pub exclusive: bool,
    /// Why these.
    pub why: Why,
}

/// What is proposed on one node: counts. Which CPUs and devices is decided when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPart {
    /// The node.
    pub node: NodeId,
    /// Tasks of the default step.
    pub tasks: u32,
    /// CPUs, whole cores.
    pub cpus: u32,
    /// Memory, MiB; 0 when it is not counted for the job.
    pub memory_mb: u64,
    /// Devices: index into the node's `gres`, and how many.
    pub gres: Vec<(u16, u32)>,
}

/// A job that does not start now.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Which.
    pub job: JobId,
    /// Its priority in this pass, as `squeue %Q` prints it.
    pub priority: u32,
    /// Slurm's word for why.
    pub reason: Reason,
    /// The sentence behind it; empty where the word says all.
    pub detail: String,
    /// When it is planned to start, if that is known.
    pub start: Option<Time>,
    /// Where, if that is known; in rank order.
    pub nodes: Vec<NodeId>,
}

/// What a pass did. Counts, never times: those belong to the shell that has a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Pending jobs looked at.
    pub considered: u32,
    /// Reservations made.
    pub reserved: u32,
    /// Whether jobs were left out because a depth was reached.
    pub truncated: bool,
}
