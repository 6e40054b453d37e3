//! The configuration of a partition (`[[partitions]]`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::PreemptMode;
use crate::model::node::NodeShape;
use crate::text::gather::Placement;
use crate::text::memory::MemoryMb;
use crate::text::score::Score;
use crate::text::time::{Seconds, TimeLimit};
use crate::text::weights::TresWeights;

/// The configuration of one partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionConfig {
    /// The name of the partition.
    pub name: Arc<str>,
    /// Names of the nodes, in the order of the node table.
    pub nodes: Vec<Arc<str>>,
    /// True if the partition has all nodes, those that operators create later included.
    pub all_nodes: bool,
    /// True if jobs that name no partition go here.
    pub default: bool,
    /// The longest time limit of a job.
    pub max_time: TimeLimit,
    /// The time limit of jobs that request none; `None` for `max_time`.
    pub default_time: Option<TimeLimit>,
    /// The smallest number of nodes of a job.
    pub min_nodes: u32,
    /// The largest number of nodes of a job; `None` for no limit.
    pub max_nodes: Option<u32>,
    /// The tier; jobs of higher tiers come first, and may preempt.
    pub priority_tier: u32,
    /// The value for the partition factor of multifactor priority.
    pub priority_job_factor: u32,
    /// The state of the partition.
    pub state: PartitionState,
    /// The topology of the partition; `None` for the one named `default`, if there is one.
    pub topology: Option<Arc<str>>,
    /// The way in which jobs share nodes.
    pub oversubscribe: Oversubscribe,
    /// The default of `--placement`.
    pub placement: Placement,
    /// Replaces the topology's score for jobs that start in this partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Groups that may use it; empty: all.
    pub allow_groups: Vec<Arc<str>>,
    /// Accounts that may use the partition; empty for all.
    pub allow_accounts: Vec<Arc<str>>,
    /// Accounts that may not use the partition.
    pub deny_accounts: Vec<Arc<str>>,
    /// Hosts from which jobs may be submitted; empty for all.
    pub alloc_nodes: Vec<Arc<str>>,
    /// The partition that gets the jobs while this one accepts none.
    pub alternate: Option<Arc<str>>,
    /// True if root may not use the partition.
    pub disable_root_jobs: bool,
    /// True if lists leave the partition out unless they show everything.
    pub hidden: bool,
    /// True if a job must name a reservation.
    pub req_resv: bool,
    /// True if only root may use the partition.
    pub root_only: bool,
    /// QOS of which a job must name one; empty for any or none.
    pub allow_qos: Vec<Arc<str>>,
    /// QOS whose jobs may not use the partition.
    pub deny_qos: Vec<Arc<str>>,
    /// The QOS of jobs that name none; overrides `[scheduler] default_qos`.
    pub default_qos: Option<Arc<str>>,
    /// The QOS whose limits count for all jobs here, besides those of each job's own QOS.
    pub qos: Option<Arc<str>>,
    /// Memory per CPU in MiB of jobs that request none; `None` if memory is then not counted.
    pub def_mem_per_cpu: Option<u64>,
    /// Largest memory per CPU in MiB.
    pub max_mem_per_cpu: Option<u64>,
    /// Memory per node in MiB of jobs that request none; instead of `def_mem_per_cpu`.
    pub def_mem_per_node: Option<u64>,
    /// Largest memory per node in MiB; instead of `max_mem_per_cpu`.
    pub max_mem_per_node: Option<u64>,
    /// CPUs for each GPU of jobs that name neither CPUs of a task nor of a GPU; `None`: not counted for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_cpu_per_gpu: Option<u32>,
    /// Memory for each GPU, MiB, of jobs with GPUs that name no memory; goes before `def_mem_per_cpu` and
    /// `def_mem_per_node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_mem_per_gpu: Option<u64>,
    /// The most CPUs of a node that the partition's jobs hold together; `None` for no limit. Jobs that run in
    /// other partitions do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_node: Option<u32>,
    /// The most CPUs of a socket that the partition's jobs hold together; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_socket: Option<u32>,
    /// Overrides `[preempt] mode`.
    pub preempt_mode: Option<PreemptMode>,
    /// The grace time of victims; overrides `[preempt] grace_time`.
    pub grace_time: Option<Seconds>,
    /// Weights of resources in the billing of jobs; empty for `[scheduler] billing`.
    #[serde(skip_serializing_if = "TresWeights::is_empty")]
    pub tres_billing_weights: TresWeights,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            name: Arc::default(),
            nodes: Vec::new(),
            all_nodes: false,
            default: false,
            max_time: TimeLimit::Unlimited,
            default_time: None,
            min_nodes: 0,
            max_nodes: None,
            priority_tier: 1,
            priority_job_factor: 1,
            state: PartitionState::default(),
            topology: None,
            oversubscribe: Oversubscribe::default(),
            placement: Placement::default(),
            score: None,
            allow_groups: Vec::new(),
            allow_accounts: Vec::new(),
            deny_accounts: Vec::new(),
            alloc_nodes: Vec::new(),
            alternate: None,
            disable_root_jobs: false,
            hidden: false,
            req_resv: false,
            root_only: false,
            allow_qos: Vec::new(),
            deny_qos: Vec::new(),
            default_qos: None,
            qos: None,
            def_mem_per_cpu: None,
            def_cpu_per_gpu: None,
            def_mem_per_gpu: None,
            max_mem_per_cpu: None,
            def_mem_per_node: None,
            max_mem_per_node: None,
            max_cpus_per_node: None,
            max_cpus_per_socket: None,
            preempt_mode: None,
            grace_time: None,
            tres_billing_weights: TresWeights::default(),
        }
    }
}

impl PartitionConfig {
    /// The most CPUs of an idle node of this shape that the partition's jobs hold together.
    #[must_use]
    pub fn most_cpus(&self, shape: &NodeShape) -> u32 {
        let on_sockets = self.max_cpus_per_socket.map(|most| most.saturating_mul(shape.sockets.max(1)));
        self.max_cpus_per_node.into_iter().chain(on_sockets).fold(shape.cpus, u32::min)
    }

    /// The contradictions between settings, each with the key and a message.
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Some(default) = self.default_time.filter(|default| *default > self.max_time) {
            wrong.push(("default_time", format!("{default} is longer than max_time, {}", self.max_time)));
        }
        if let Some(max) = self.max_nodes.filter(|max| *max < self.min_nodes) {
            wrong.push(("max_nodes", format!("{max} is less than min_nodes, {}", self.min_nodes)));
        }
        let memory = [
            ("def_mem_per_cpu", "max_mem_per_cpu", self.def_mem_per_cpu, self.max_mem_per_cpu),
            ("def_mem_per_node", "max_mem_per_node", self.def_mem_per_node, self.max_mem_per_node),
        ];
        for (key, bound, def, max) in memory {
            if let (Some(def), Some(max)) = (def, max)
                && def > max
            {
                wrong.push((key, format!("{} is more than {bound}, {}", MemoryMb(def), MemoryMb(max))));
            }
        }
        let either = "memory is counted by CPU or by node; leave one of them out".to_owned();
        if self.def_mem_per_cpu.is_some() && self.def_mem_per_node.is_some() {
            wrong.push(("def_mem_per_node", either.clone()));
        }
        if self.max_mem_per_cpu.is_some() && self.max_mem_per_node.is_some() {
            wrong.push(("max_mem_per_node", either));
        }
        let listed =
            |what: &str| format!("nothing but what {what} lists is allowed anyway; leave one of them out");
        if !self.allow_qos.is_empty() && !self.deny_qos.is_empty() {
            wrong.push(("deny_qos", listed("allow_qos")));
        }
        if !self.allow_accounts.is_empty() && !self.deny_accounts.is_empty() {
            wrong.push(("deny_accounts", listed("allow_accounts")));
        }
        if let Some(default) = self.default_qos.as_deref().filter(|name| !self.takes_qos(Some(name))) {
            wrong.push(("default_qos", format!("{default} is not allowed in this partition")));
        }
        if self.alternate.as_ref() == Some(&self.name) {
            wrong.push(("alternate", "a partition cannot stand in for itself".to_owned()));
        }
        wrong
    }
}

/// The state of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PartitionState {
    /// Accepts and starts jobs.
    #[default]
    Up,
    /// Accepts jobs, starts none.
    Down,
    /// Starts jobs, accepts none.
    Drain,
    /// Neither accepts nor starts jobs.
    Inactive,
}

/// The way in which jobs share nodes (`oversubscribe`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Oversubscribe {
    /// Jobs share nodes by cores.
    #[default]
    No,
    /// Jobs get whole nodes.
    Exclusive,
}
