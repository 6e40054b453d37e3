//! Steps: what `srun` launches inside a job's allocation.

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

/// What `srun` asks for inside a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepSpec {
    /// `--job-name`, or the command's base name.
    pub name: Arc<str>,
    /// `-N`: how many of the job's nodes at least; `None` means as the job.
    pub nodes: Option<u32>,
    /// `-N MIN-MAX`: how many at most; `None` means no more than at least.
    pub max_nodes: Option<u32>,
    /// `-n`: how many tasks; `None` means one for each of the job's.
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`.
    pub tasks_per_node: Option<u32>,
    /// `-c`: CPUs for each task; `None` means as the job.
    pub cpus_per_task: Option<u32>,
    /// `-w`: node names the step must use.
    pub nodelist: Vec<Arc<str>>,
    /// `-x`: node names it must not use.
    pub exclude: Vec<Arc<str>>,
    /// `-C`: features that its nodes must have.
    pub features: Option<Box<FeatureExpr>>,
    /// `-r`: index of the first node of the allocation to use.
    pub relative: Option<u32>,
    /// `--overlap`: other steps may use the same CPUs.
    pub overlap: bool,
    /// `--no-kill`: it goes on without a node that fails.
    pub no_kill: bool,
    /// `--exact`: only what is asked for.
    pub exact: bool,
    /// `--whole`: all CPUs of the nodes.
    pub whole: bool,
    /// `--external-launcher`: it uses nothing and may see everything.
    pub external: bool,
    /// `--overcommit`: tasks may share CPUs.
    pub overcommit: bool,
    /// `--distribution`.
    pub distribution: Distributions,
    /// The node of each task, for an arbitrary distribution.
    pub hosts: Vec<Arc<str>>,
    /// `--mem`, `--mem-per-cpu`.
    pub memory: Option<MemoryNeed>,
    /// `--gres`, `--gpus-per-node`: devices on each node; `None` where nothing was said of devices.
    pub gres: Option<Vec<GresSpec>>,
    /// `--gpus`: on all nodes together.
    pub gpus: Vec<GresSpec>,
    /// `--gpus-per-task`.
    pub gpus_per_task: Vec<GresSpec>,
    /// The line of `srun` that asks for it.
    pub submit_line: Option<Box<str>>,
    /// `-t`: how many seconds its tasks may run; `None`: as long as the job.
    pub time_limit: Option<u64>,
}

/// A step as it was laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number.
    pub id: StepId,
    /// Its name.
    pub name: Arc<str>,
    /// When it was created.
    pub started: Time,
    /// Its nodes in rank order.
    pub nodes: Box<[StepNode]>,
    /// CPUs of each task; 0 where nobody has named them.
    pub cpus_per_task: u32,
    /// Whether its CPUs may be shared with other steps.
    #[serde(default)]
    pub overlap: bool,
    /// Whether its other tasks go on when one of its nodes fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_kill: bool,
    /// Seconds that its job had been suspended when it was created.
    #[serde(default)]
    pub paused: u64,
    /// How its ranks were dealt to nodes, if somebody has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// How they were dealt to nodes, sockets and cores, as Slurm's accounting names it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub layout: Box<str>,
    /// Whether it has devices of its own, those of its nodes; otherwise it sees these, or, where there are none, all that
    /// its job has, as others may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_gres: bool,
    /// GPUs of each task; 0: the tasks of a node share them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus_per_task: u32,
    /// The line of `srun` that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_line: Option<Box<str>>,
    /// The user who ended it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// How many seconds its tasks may run; `None`: as long as the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<u64>,
    /// When its nodes were last told to end it because its time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<Time>,
}

/// Seconds after which nodes that were told to end a step and have not done so are told again.
const TOLD_AGAIN_AFTER: u64 = 120;

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A step's part on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNode {
    /// The node.
    pub node: NodeId,
    /// How many tasks run here.
    pub tasks: u32,
    /// Their ranks; none where they follow those of the nodes before.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub ranks: IdSet,
    /// The CPUs they may use, of those that the job holds.
    pub cpus: IdSet,
    /// Memory that it asked for here, MiB; 0 where it asked for none.
    #[serde(default)]
    pub memory_mb: u64,
    /// Devices that it asked for here, or sees.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub gres: Box<[GresAlloc]>,
    /// How the tasks here ended; `None` while they run.
    #[serde(default)]
    pub exit: Option<ExitCode>,
    /// Whether some of it was killed here because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// What the tasks here used, once they have ended and where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
}

/// How a step ended on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepNodeEnd {
    /// The highest exit of its tasks there.
    pub exit: ExitCode,
    /// Whether some of it was killed because memory ran out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// When its last process there was gone by the wall's clock of this host, milliseconds since 1970. Not kept.
    #[serde(skip)]
    pub ended_ms: Option<i64>,
    /// What its tasks there used, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
}

impl From<ExitCode> for StepNodeEnd {
    fn from(exit: ExitCode) -> Self {
        StepNodeEnd { exit, ..StepNodeEnd::default() }
    }
}

impl Step {
    /// Tasks on all nodes together.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.nodes.iter().map(|part| u64::from(part.tasks)).sum()
    }

    /// The worst exit of all nodes, once all have ended.
    #[must_use]
    pub fn exit(&self) -> Option<ExitCode> {
        let exits: Option<Vec<ExitCode>> = self.nodes.iter().map(|part| part.exit).collect();
        exits.map(|exits| exits.into_iter().max_by_key(ExitCode::rank).unwrap_or_default())
    }

    /// When its nodes are told to end it because its time is over, the next time if they were told before. `paused` are the
    /// seconds that its job has been suspended.
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
