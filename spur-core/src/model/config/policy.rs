//! The half of the configuration that decides: journalled when it changes, so that replay needs no file.
//!
//! Every field has a default, so that a journal written by an older release is read by a newer one. Meaning, spelling
//! and defaults of each key are documented in `etc/spur.toml`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::QosConfig;
use crate::model::caller::Caller;
use crate::model::idset::IdSet;
use crate::model::node::NodeShape;
use crate::model::topology::TopologyConfig;
use crate::text::memory::MemoryMb;
use crate::text::time::{Seconds, TimeLimit};
use crate::text::weights::TresWeights;

/// What the controller decides by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// `cluster_name`.
    pub cluster_name: Arc<str>,
    /// `[controller]`, as far as it decides.
    pub jobs: JobPolicy,
    /// `[scheduler]`.
    pub scheduler: SchedulerPolicy,
    /// `[preempt]`.
    pub preempt: PreemptPolicy,
    /// `[recovery]`.
    pub recovery: RecoveryPolicy,
    /// `[power]`.
    pub power: PowerPolicy,
    /// `[[qos]]`, in file order; none: QOS are recorded and mean nothing.
    pub qos: Vec<QosConfig>,
    /// `[[nodes]]`, one for each name, in file order.
    pub nodes: Vec<NodeConfig>,
    /// `[[partitions]]`, in file order.
    pub partitions: Vec<PartitionConfig>,
    /// `[topology]` (named `default`) and `[[topologies]]`.
    pub topologies: Vec<TopologyConfig>,
    /// `[licenses]`: name and how many there are.
    pub licenses: Vec<(Arc<str>, u32)>,
}

/// What is decided about jobs at large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPolicy {
    /// `kill_wait`: from TERM to KILL.
    pub kill_wait: Seconds,
    /// `min_job_age`: how long finished jobs stay in memory.
    pub min_job_age: Seconds,
    /// `max_job_count`: jobs in memory at most; a submission above it is refused.
    pub max_job_count: u32,
    /// `job_requeue`: whether jobs may be requeued unless they say otherwise.
    pub requeue: bool,
    /// `max_array_size`: one more than the largest index of an array.
    pub max_array_size: u32,
    /// `inactive_limit`: how long an allocation outlives the command that holds it; 0: for ever.
    pub inactive_limit: Seconds,
    /// `max_batch_requeue`: a job that has been requeued so often is held by the next failure that is not its own.
    pub max_batch_requeue: u32,
    /// `enforce_part_limits`: whether a job over a limit of its partitions is refused.
    pub enforce_part_limits: EnforcePartLimits,
    /// `mpi_default`: what serves the MPI programs of a step whose `srun` says nothing of it.
    pub mpi_default: MpiDefault,
    /// `kill_on_bad_exit`: whether a step ends with its first task that fails, unless `srun -K` says otherwise.
    pub kill_on_bad_exit: bool,
    /// `propagate_resource_limits`: the limits that jobs get of their users'; `ALL` and `NONE` stand alone.
    pub propagate_resource_limits: Vec<Arc<str>>,
    /// `propagate_resource_limits_except`: the limits that jobs do not get where the former is `ALL`.
    pub propagate_resource_limits_except: Vec<Arc<str>>,
    /// `use_interactive_step`: whether the shell of `salloc` runs on the first node of the allocation.
    pub use_interactive_step: bool,
    /// `private_data`: what is hidden from everybody but operators; in order, each once.
    pub private_data: Vec<Private>,
    /// `accounting_storage_enforce`: the parts of the policy tree that are enforced; in order, each once.
    pub accounting_enforce: Vec<AccountingEnforce>,
    /// `time_zone`: whose midnights usage is reset at; `None`: that of the controller's host at the first start.
    pub time_zone: Option<Arc<str>>,
    /// `prolog_slurmctld`: what the controller runs before anything of a job is launched.
    pub prolog_slurmctld: Option<Arc<str>>,
    /// `epilog_slurmctld`: what it runs when the end of a job is decided.
    pub epilog_slurmctld: Option<Arc<str>>,
    /// `prolog_epilog_timeout`: how long each of the two may take.
    pub prolog_epilog_timeout: Seconds,
}

/// `enforce_part_limits`: what becomes of a job that is over limits of its partitions that an administrator can raise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EnforcePartLimits {
    /// It waits.
    #[default]
    No,
    /// It is refused if every one of them is against it.
    Any,
    /// It is refused if one of them is against it.
    All,
}

/// `mpi_default`: how MPI programs learn of each other, by the names of `srun --mpi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiDefault {
    /// They do not: each task is alone, unless the program finds another way.
    None,
    /// Over PMI-1 or PMI-2.
    #[default]
    Pmi2,
    /// Over PMIx.
    Pmix,
}

impl MpiDefault {
    /// Every choice with its name.
    pub const ALL: [(&str, MpiDefault); 3] =
        [("none", MpiDefault::None), ("pmi2", MpiDefault::Pmi2), ("pmix", MpiDefault::Pmix)];

    /// The name that `srun --mpi` has for it.
    pub fn name(self) -> &'static str {
        match self {
            MpiDefault::None => "none",
            MpiDefault::Pmi2 => "pmi2",
            MpiDefault::Pmix => "pmix",
        }
    }
}

/// `private_data`: what may be hidden, by Slurm's names. There are no nodes in clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Private {
    /// Definitions of accounts.
    Accounts,
    /// With it, powered down nodes of a cloud are shown.
    Cloud,
    /// What happened to nodes.
    Events,
    /// Jobs and steps of others, in accounting too.
    Jobs,
    /// The state of nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// Reservations that a user cannot use.
    Reservations,
    /// What others have used.
    Usage,
    /// Other users.
    Users,
}

/// `accounting_storage_enforce`: the parts of the policy tree that are enforced, by Slurm's names. Each word implies
/// `associations`, and `safe` implies `limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountingEnforce {
    /// A job needs an association.
    Associations,
    /// A job needs a QOS of its association.
    Qos,
    /// Jobs stay within the limits of associations and QOS.
    Limits,
    /// A job starts only if it can run to its time limit within the budgets of TRES-minutes.
    Safe,
}

impl JobPolicy {
    /// Whether a part of the policy tree is enforced.
    #[must_use]
    pub fn enforces(&self, part: AccountingEnforce) -> bool {
        match part {
            AccountingEnforce::Associations => !self.accounting_enforce.is_empty(),
            AccountingEnforce::Limits => {
                self.accounting_enforce.contains(&part) || self.enforces(AccountingEnforce::Safe)
            }
            AccountingEnforce::Qos | AccountingEnforce::Safe => self.accounting_enforce.contains(&part),
        }
    }

    /// Whether the caller is not to see what this means of others, or at all.
    #[must_use]
    pub fn hides(&self, what: Private, caller: &Caller) -> bool {
        !caller.is_operator() && self.private_data.contains(&what)
    }
}

/// `[scheduler]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulerPolicy {
    /// `backfill`.
    pub backfill: Backfill,
    /// `order`.
    pub order: Order,
    /// `predict`.
    pub predict: Predict,
    /// `correct`.
    pub correct: Correct,
    /// `depth`: pending jobs considered in one pass; 0 for all.
    pub depth: u32,
    /// `depth_per_user`: of which, at most so many of one user; 0 for no limit.
    pub depth_per_user: u32,
    /// `depth_per_partition`: of which, at most so many in one partition; 0 for no limit.
    pub depth_per_partition: u32,
    /// `max_wait`: a job that has waited so long goes first, in order of submission; 0 for never.
    pub max_wait: Seconds,
    /// `default_qos`: of jobs that name none.
    pub default_qos: Option<Arc<str>>,
    /// `priority_max_age`: the age at which the age factor is 1.
    pub priority_max_age: Seconds,
    /// `priority_decay_half_life`: of recorded usage.
    pub priority_decay_half_life: Seconds,
    /// `priority_weight_age`.
    pub priority_weight_age: u32,
    /// `priority_weight_fairshare`.
    pub priority_weight_fairshare: u32,
    /// `priority_weight_job_size`.
    pub priority_weight_job_size: u32,
    /// `priority_weight_partition`.
    pub priority_weight_partition: u32,
    /// `priority_weight_qos`.
    pub priority_weight_qos: u32,
    /// `priority_favor_small`: small jobs get the larger job-size factor.
    pub priority_favor_small: bool,
    /// `priority_weight_tres`: of the shares of a partition's resources that a job asks for.
    #[serde(skip_serializing_if = "TresWeights::is_empty")]
    pub priority_weight_tres: TresWeights,
    /// `priority_calc_period`: usage is rolled and ranks are computed at multiples of it.
    pub priority_calc_period: Seconds,
    /// `priority_usage_reset_period`: how often usage is set to zero.
    pub priority_usage_reset_period: ResetPeriod,
    /// `priority_flags`; in order, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priority_flags: Vec<PriorityFlag>,
    /// `billing`: what jobs are charged in partitions without weights.
    pub billing: Billing,
}

/// `[scheduler] billing`: what each second of a job is charged in partitions without weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billing {
    /// For each node its CPUs times the largest share of CPUs, memory and GPUs held, summed and rounded up.
    #[default]
    Share,
    /// The CPUs.
    Cpu,
}

/// `[scheduler] priority_flags`, by Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PriorityFlag {
    /// Billing takes the largest weighted resource of nodes instead of their sum.
    MaxTres,
}

/// `[scheduler] priority_usage_reset_period`: when usage is set to zero, at midnight in the cluster's time zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResetPeriod {
    /// Never.
    #[default]
    None,
    /// Each day.
    Daily,
    /// Each Sunday.
    Weekly,
    /// The first day of each month.
    Monthly,
    /// The first day of each quarter of a year.
    Quarterly,
    /// The first day of each year.
    Yearly,
}

impl SchedulerPolicy {
    /// Whether a flag is among `priority_flags`.
    #[must_use]
    pub fn has_flag(&self, flag: PriorityFlag) -> bool {
        self.priority_flags.contains(&flag)
    }
}

/// `[scheduler] backfill`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backfill {
    /// Only the head of the queue has a reservation.
    #[default]
    Easy,
    /// Every pending job has one.
    Conservative,
    /// Strictly in order.
    None,
}

/// `[scheduler] order`: what the queue is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Multifactor priority.
    #[default]
    Multifactor,
    /// First come, first served.
    Fcfs,
    /// Head first come, first served; the rest by predicted run time.
    Sjf,
    /// Smallest area (time × processors) first.
    Saf,
    /// WFP3.
    Wfp3,
    /// UNICEP.
    Unicep,
    /// F4 of Carastan-Santos and de Camargo.
    F4,
    /// F1 of Carastan-Santos and de Camargo.
    F1,
}

/// `[scheduler] predict`: the run time a plan counts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Predict {
    /// The time limit.
    #[default]
    Requested,
    /// The truth, which only the simulator knows.
    Actual,
    /// Mean of the user's last two.
    Recent2,
    /// What the user's last runs took, weighed by how much they resemble the job.
    Similar,
}

impl Predict {
    /// Whether it is learnt from jobs that have ended.
    #[must_use]
    pub fn is_learnt(self) -> bool {
        matches!(self, Self::Recent2 | Self::Similar)
    }
}

/// `[scheduler] correct`: what a plan counts with once a prediction is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Correct {
    /// The time limit.
    #[default]
    Request,
    /// The prediction and a growing increment.
    Incremental,
}

/// `[preempt]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreemptPolicy {
    /// `by`.
    pub by: PreemptBy,
    /// `mode`.
    pub mode: PreemptMode,
    /// `topology`: victims are chosen domain by domain.
    pub topology: bool,
    /// `grace_time`.
    pub grace_time: Seconds,
    /// `exempt_time`: how long a job runs before it can be a victim.
    pub exempt_time: Seconds,
    /// `cost`.
    pub cost: PreemptCost,
    /// `jobs_may_forbid`: whether `--no-preempt` is taken.
    pub jobs_may_forbid: bool,
}

/// `[preempt] by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptBy {
    /// Never.
    #[default]
    None,
    /// Partitions of higher tier preempt those of lower.
    Partition,
    /// Jobs of a QOS preempt those of the QOS that it lists.
    Qos,
}

/// `[preempt] mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptMode {
    /// Never a victim; for partitions.
    Off,
    /// Victims end.
    Cancel,
    /// Victims wait again.
    #[default]
    Requeue,
    /// Victims pause: they give up their CPUs, and go on when these are free again.
    Suspend,
}

/// `[preempt] cost`: what is compared first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptCost {
    /// The lowest of the highest tier or QOS priority among them, then least node-seconds lost, then fewest jobs.
    #[default]
    Priority,
    /// Fewest jobs, then priority, then work.
    Jobs,
    /// Least node-seconds lost, then as `Priority`.
    Work,
}

/// `[recovery]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryPolicy {
    /// `node_timeout`: silence after which a node is down.
    pub node_timeout: Seconds,
    /// `overlap`: requeue although the silent node may still run.
    pub overlap: bool,
    /// `requeue_delay`: from the end of a failed attempt to the next.
    pub requeue_delay: Seconds,
}

/// One configured node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeConfig {
    /// Its name.
    pub name: Arc<str>,
    /// What the configuration says it has; zero where it leaves that to the node.
    pub shape: NodeShape,
    /// Nodes of low weight are taken first.
    pub weight: u32,
    /// `core_spec_count`: cores that jobs never get.
    #[serde(skip_serializing_if = "is_zero")]
    pub core_spec_count: u32,
    /// `cpu_spec_list`: CPUs that jobs never get, nor the others of their cores.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub cpu_spec_list: IdSet,
    /// `mem_spec_limit`: memory that jobs never get, MiB.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_spec_limit: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionConfig {
    /// Its name.
    pub name: Arc<str>,
    /// Names of its nodes, in the order of the node table.
    pub nodes: Vec<Arc<str>>,
    /// Whether it has all nodes, also those that an operator creates later.
    pub all_nodes: bool,
    /// Whether jobs that name none go here.
    pub default: bool,
    /// Longest limit a job may ask for and run.
    pub max_time: TimeLimit,
    /// The limit of jobs that ask for none; `None`: `max_time`.
    pub default_time: Option<TimeLimit>,
    /// Fewest nodes a job may ask for.
    pub min_nodes: u32,
    /// Most nodes a job may ask for.
    pub max_nodes: Option<u32>,
    /// Jobs of higher tiers come first, and may preempt.
    pub priority_tier: u32,
    /// For the partition factor of multifactor priority.
    pub priority_job_factor: u32,
    /// Whether it takes jobs.
    pub state: PartitionState,
    /// The topology used here; `None`: the one named `default`, if there is one.
    pub topology: Option<Arc<str>>,
    /// Whether jobs share nodes by cores or get them whole.
    pub oversubscribe: Oversubscribe,
    /// Default of `--placement`.
    pub placement: crate::text::gather::Placement,
    /// Overrides the score of its topology, for jobs that start here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<crate::text::score::Score>,
    /// Groups that may use it; empty: all.
    pub allow_groups: Vec<Arc<str>>,
    /// Accounts that may use it; empty: all.
    pub allow_accounts: Vec<Arc<str>>,
    /// Accounts that may not use it.
    pub deny_accounts: Vec<Arc<str>>,
    /// Hosts from which jobs may be submitted to it; empty: all.
    pub alloc_nodes: Vec<Arc<str>>,
    /// The partition that gets its jobs while it takes none.
    pub alternate: Option<Arc<str>>,
    /// Whether root may not use it.
    pub disable_root_jobs: bool,
    /// Whether listings leave it out unless they are asked for everything.
    pub hidden: bool,
    /// Whether a job has to name a reservation to use it.
    pub req_resv: bool,
    /// Whether only root may use it.
    pub root_only: bool,
    /// QOS that a job has to name one of to use it; empty: any or none.
    pub allow_qos: Vec<Arc<str>>,
    /// QOS whose jobs may not use it.
    pub deny_qos: Vec<Arc<str>>,
    /// Overrides `[scheduler] default_qos`.
    pub default_qos: Option<Arc<str>>,
    /// The QOS whose limits count for all jobs here, beside those of each job's own.
    pub qos: Option<Arc<str>>,
    /// Memory for each CPU, MiB, of jobs that ask for none; `None`: not counted for them.
    pub def_mem_per_cpu: Option<u64>,
    /// Most memory for each CPU, MiB.
    pub max_mem_per_cpu: Option<u64>,
    /// Memory on each node, MiB, of jobs that ask for none; instead of `def_mem_per_cpu`.
    pub def_mem_per_node: Option<u64>,
    /// Most memory on each node, MiB; instead of `max_mem_per_cpu`.
    pub max_mem_per_node: Option<u64>,
    /// CPUs for each GPU of jobs that name neither CPUs of a task nor of a GPU; `None`: not counted for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_cpu_per_gpu: Option<u32>,
    /// Memory for each GPU, MiB, of jobs with GPUs that name no memory; goes before `def_mem_per_cpu` and
    /// `def_mem_per_node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_mem_per_gpu: Option<u64>,
    /// Overrides `[preempt] mode`.
    pub preempt_mode: Option<PreemptMode>,
    /// Overrides `[preempt] grace_time`.
    pub grace_time: Option<Seconds>,
    /// What resources count in the billing of jobs; empty: as `[scheduler] billing` says.
    #[serde(skip_serializing_if = "TresWeights::is_empty")]
    pub tres_billing_weights: TresWeights,
}

impl PartitionConfig {
    /// What must hold between its settings and does not: the key of each and what is wrong with it.
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

/// What a partition takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PartitionState {
    /// Queues and runs.
    #[default]
    Up,
    /// Queues, starts nothing.
    Down,
    /// Runs what it has, queues nothing.
    Drain,
    /// Neither.
    Inactive,
}

/// `oversubscribe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Oversubscribe {
    /// Jobs share nodes by cores.
    #[default]
    No,
    /// Jobs get whole nodes.
    Exclusive,
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self {
            kill_wait: Seconds(30),
            min_job_age: Seconds(300),
            max_job_count: 1_000_000,
            requeue: true,
            max_array_size: 1001,
            max_batch_requeue: 5,
            inactive_limit: Seconds(60),
            enforce_part_limits: EnforcePartLimits::default(),
            mpi_default: MpiDefault::default(),
            kill_on_bad_exit: false,
            propagate_resource_limits: vec!["ALL".into()],
            propagate_resource_limits_except: Vec::new(),
            use_interactive_step: false,
            private_data: Vec::new(),
            accounting_enforce: Vec::new(),
            time_zone: None,
            prolog_slurmctld: None,
            epilog_slurmctld: None,
            prolog_epilog_timeout: Seconds(300),
        }
    }
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            backfill: Backfill::default(),
            order: Order::default(),
            predict: Predict::default(),
            correct: Correct::default(),
            depth: 1000,
            depth_per_user: 0,
            depth_per_partition: 0,
            max_wait: Seconds(0),
            default_qos: None,
            priority_max_age: Seconds(7 * 86_400),
            priority_decay_half_life: Seconds(7 * 86_400),
            priority_weight_age: 1000,
            priority_weight_fairshare: 0,
            priority_weight_job_size: 0,
            priority_weight_partition: 1000,
            priority_weight_qos: 0,
            priority_favor_small: false,
            priority_weight_tres: TresWeights::default(),
            priority_calc_period: Seconds(300),
            priority_usage_reset_period: ResetPeriod::default(),
            priority_flags: Vec::new(),
            billing: Billing::default(),
        }
    }
}

impl Default for PreemptPolicy {
    fn default() -> Self {
        Self {
            by: PreemptBy::default(),
            mode: PreemptMode::default(),
            topology: true,
            grace_time: Seconds(0),
            exempt_time: Seconds(0),
            cost: PreemptCost::default(),
            jobs_may_forbid: true,
        }
    }
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        Self { node_timeout: Seconds(60), overlap: true, requeue_delay: Seconds(1) }
    }
}

/// `[power]`: how the hosts of nodes are booted, and switched off and on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerPolicy {
    /// `reboot_program`: what a node's daemon runs to boot its host again.
    pub reboot_program: Option<Arc<str>>,
    /// `resume_timeout`: how long a node may take to come back.
    pub resume_timeout: Seconds,
    /// `suspend_program`: what the controller runs to switch nodes off; there are both programs or neither.
    pub suspend_program: Option<Arc<str>>,
    /// `resume_program`: what it runs to switch them on.
    pub resume_program: Option<Arc<str>>,
    /// `resume_fail_program`: what it runs for those that do not come up in time.
    pub resume_fail_program: Option<Arc<str>>,
    /// `suspend_time`: how long a node is idle before it is switched off; `None`: for ever.
    pub suspend_time: Option<Seconds>,
    /// `suspend_timeout`: how long a node may take to go down.
    pub suspend_timeout: Seconds,
    /// `suspend_rate`: nodes that are switched off in a minute at most; 0: all.
    pub suspend_rate: u32,
    /// `resume_rate`: nodes that are switched on in a minute at most; 0: all.
    pub resume_rate: u32,
    /// `suspend_exc_nodes`: nodes that stay on however long they are idle.
    pub suspend_exc_nodes: Vec<Arc<str>>,
    /// `suspend_exc_parts`: partitions whose nodes do.
    pub suspend_exc_parts: Vec<Arc<str>>,
    /// `suspend_exc_states`: states in which they do; `DRAIN` is the only one.
    pub suspend_exc_states: Vec<Arc<str>>,
}

impl Default for PowerPolicy {
    fn default() -> Self {
        Self {
            reboot_program: None,
            resume_timeout: Seconds(60),
            suspend_program: None,
            resume_program: None,
            resume_fail_program: None,
            suspend_time: None,
            suspend_timeout: Seconds(30),
            suspend_rate: 60,
            resume_rate: 300,
            suspend_exc_nodes: Vec::new(),
            suspend_exc_parts: Vec::new(),
            suspend_exc_states: Vec::new(),
        }
    }
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
            placement: crate::text::gather::Placement::default(),
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
            preempt_mode: None,
            grace_time: None,
            tres_billing_weights: TresWeights::default(),
        }
    }
}
