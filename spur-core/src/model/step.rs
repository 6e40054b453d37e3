//! Steps, which `srun` launches in a job's allocation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::GresAlloc;
use super::distribution::{Distribution, Distributions};
use super::idset::IdSet;
use super::job::MemoryNeed;
use crate::id::{NodeId, StepId};
use crate::model::usage::Usage;
use crate::text::exit::ExitCode;
use crate::text::features::FeatureExpr;
use crate::text::gres::GresSpec;
use crate::text::time::Time;

/// The request for a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepSpec {
    /// `--job-name`: the name, by default the command's base name.
    pub name: Arc<str>,
    /// `-N`: the least number of nodes; `None` for those of the job.
    pub nodes: Option<u32>,
    /// `-N MIN-MAX`: the largest number of nodes; `None` for the least number.
    pub max_nodes: Option<u32>,
    /// `-n`: the number of tasks; `None` for those of the job.
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`: the number of tasks per node.
    pub tasks_per_node: Option<u32>,
    /// `-c`: CPUs per task; `None` for those of the job.
    pub cpus_per_task: Option<u32>,
    /// `-w`: names of the nodes that the step must use.
    pub nodelist: Vec<Arc<str>>,
    /// `-x`: names of the nodes that the step must not use.
    pub exclude: Vec<Arc<str>>,
    /// `-C`: features that its nodes must have.
    pub features: Option<Box<FeatureExpr>>,
    /// `-r`: index of the first node of the allocation that is used.
    pub relative: Option<u32>,
    /// `--overlap`: true if other steps may use the same CPUs.
    pub overlap: bool,
    /// `--no-kill`: true if the step continues without a node that fails.
    pub no_kill: bool,
    /// `--exact`: true if the step only gets what it requests.
    pub exact: bool,
    /// `--whole`: true if the step gets all CPUs of its nodes.
    pub whole: bool,
    /// `--external-launcher`: true if the step takes no resources and may see all of them.
    pub external: bool,
    /// `--overcommit`: true if tasks may share CPUs.
    pub overcommit: bool,
    /// `--distribution`: the distribution of tasks.
    pub distribution: Distributions,
    /// The node of each task, for the distribution `arbitrary`.
    pub hosts: Vec<Arc<str>>,
    /// `--mem`, `--mem-per-cpu`: memory in MiB.
    pub memory: Option<MemoryNeed>,
    /// `--gres`, `--gpus-per-node`: devices per node; `None` if the request says nothing about devices.
    pub gres: Option<Vec<GresSpec>>,
    /// `--gpus`: devices on all nodes together.
    pub gpus: Vec<GresSpec>,
    /// `--gpus-per-task`: devices per task.
    pub gpus_per_task: Vec<GresSpec>,
    /// The command line of `srun`.
    pub submit_line: Option<Box<str>>,
    /// `-t`: seconds that the step's tasks may run; `None`: as long as the job.
    pub time_limit: Option<u64>,
}

/// A step that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the step.
    pub id: StepId,
    /// The name of the step.
    pub name: Arc<str>,
    /// Time of its creation.
    pub started: Time,
    /// Nodes of the step, in rank order.
    pub nodes: Box<[StepNode]>,
    /// CPUs per task; 0 if neither the job nor the step gives a number.
    pub cpus_per_task: u32,
    /// True if other steps may use its CPUs.
    #[serde(default)]
    pub overlap: bool,
    /// True if its other tasks continue when one of its nodes fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_kill: bool,
    /// Seconds that its job had been suspended when it was created.
    #[serde(default)]
    pub paused: u64,
    /// The distribution of its ranks over nodes, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The distribution over nodes, sockets and cores, as Slurm's accounting names it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub layout: Box<str>,
    /// True if it has devices of its own, listed with its nodes. Otherwise these are the devices that it
    /// sees; where none are listed, it sees all of its job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_gres: bool,
    /// GPUs per task; 0 if the tasks of a node share them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus_per_task: u32,
    /// The command line of `srun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_line: Option<Box<str>>,
    /// The uid of the user who cancelled the step; `None` if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// Seconds that the step's tasks may run; `None`: as long as the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<u64>,
    /// Time at which the nodes were last told to end the step because its time was over; `None` if they never
    /// were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<Time>,
}

/// Seconds after which nodes that were told to end a step and have not done so are told again.
const TOLD_AGAIN_AFTER: u64 = 120;

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The part of a step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNode {
    /// Node of this part of the step.
    pub node: NodeId,
    /// Number of tasks on this node.
    pub tasks: u32,
    /// Ranks of the tasks; empty if they follow those of the nodes before.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub ranks: IdSet,
    /// CPUs of the job that the tasks may use.
    pub cpus: IdSet,
    /// Memory in MiB that the step requested here; 0 if it requested none.
    #[serde(default)]
    pub memory_mb: u64,
    /// Devices that the step requested here, or sees.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub gres: Box<[GresAlloc]>,
    /// The exit of the tasks here; `None` while they run.
    #[serde(default)]
    pub exit: Option<ExitCode>,
    /// True if a process was killed here because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// The usage of the tasks here; `None` until they have ended, and if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
}

/// The end of a step on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepNodeEnd {
    /// The highest exit of its tasks there.
    pub exit: ExitCode,
    /// True if a process was killed there because memory ran out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// Milliseconds since the Unix epoch, by the wall clock of this host, at which its last process there was
    /// gone. Not stored.
    #[serde(skip)]
    pub ended_ms: Option<i64>,
    /// The usage of its tasks there, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
}

impl From<ExitCode> for StepNodeEnd {
    fn from(exit: ExitCode) -> Self {
        StepNodeEnd { exit, ..StepNodeEnd::default() }
    }
}

impl Step {
    /// Number of tasks on all nodes together.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.tasks)).sum()
    }

    /// The highest exit of all nodes; `None` until all have ended.
    #[must_use]
    pub fn exit(&self) -> Option<ExitCode> {
        let exits: Option<Vec<ExitCode>> = self.nodes.iter().map(|part| part.exit).collect();
        exits.map(|exits| exits.into_iter().max_by_key(ExitCode::rank).unwrap_or_default())
    }

    /// Time at which the nodes are told to end the step because its time is over, or are told again; `None`
    /// if the step has no time limit. `paused` are the seconds that its job has been suspended.
    #[must_use]
    pub fn ends_at(&self, paused: u64) -> Option<Time> {
        match self.timed_out {
            Some(told) => Some(told + TOLD_AGAIN_AFTER),
            None => Some(self.started + self.time_limit? + paused.saturating_sub(self.paused)),
        }
    }

    /// Takes note of its end on one of its nodes.
    pub fn end_on(&mut self, node: NodeId, end: &StepNodeEnd) {
        for part in self.nodes.iter_mut().filter(|part| part.node == node) {
            part.exit = Some(end.exit);
            part.out_of_memory = end.out_of_memory;
            part.usage.clone_from(&end.usage);
        }
    }
}
