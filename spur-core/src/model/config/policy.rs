//! The policy half of the configuration: journalled when it changes, so that replay needs no file.
//!
//! Every field has a default, so that a newer release reads the journal of an older one. `etc/spur.toml`
//! documents meaning, spelling and default of each key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AccountingEnforce, PartitionConfig, PriorityFlag, QosConfig, ResetPeriod};
use crate::model::caller::Caller;
use crate::model::idset::IdSet;
use crate::model::node::NodeShape;
use crate::model::topology::TopologyConfig;
use crate::text::time::Seconds;
use crate::text::weights::TresWeights;

/// The policy by which the controller decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// `cluster_name`: the name of the cluster.
    pub cluster_name: Arc<str>,
    /// The policy keys of `[controller]`.
    pub jobs: JobPolicy,
    /// Section `[scheduler]`: order, backfill, predictions and priority.
    pub scheduler: SchedulerPolicy,
    /// Section `[preempt]`: the rules of preemption.
    pub preempt: PreemptPolicy,
    /// Section `[recovery]`: treatment of lost nodes.
    pub recovery: RecoveryPolicy,
    /// Section `[power]`: rebooting nodes and switching them off and on.
    pub power: PowerPolicy,
    /// The sections `[[qos]]`, in file order; if empty, QOS are recorded without an effect.
    pub qos: Vec<QosConfig>,
    /// The sections `[[nodes]]`, one item for each name, in file order.
    pub nodes: Vec<NodeConfig>,
    /// The sections `[[partitions]]`, in file order.
    pub partitions: Vec<PartitionConfig>,
    /// The sections `[topology]` (named `default`) and `[[topologies]]`.
    pub topologies: Vec<TopologyConfig>,
    /// The section `[licenses]`: names with the number of licenses.
    pub licenses: Vec<(Arc<str>, u32)>,
}

/// True for the default of `propagate_resource_limits`.
fn is_all(limits: &[Arc<str>]) -> bool {
    matches!(limits, [only] if **only == *"ALL")
}

/// Policy for all jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPolicy {
    /// `kill_wait`: time from SIGTERM to SIGKILL.
    pub kill_wait: Seconds,
    /// `min_job_age`: time for which finished jobs stay in memory.
    pub min_job_age: Seconds,
    /// `max_job_count`: largest number of jobs in memory; submissions beyond it are refused.
    pub max_job_count: u32,
    /// `job_requeue`: true if jobs may be requeued by default.
    pub requeue: bool,
    /// `max_array_size`: the largest index of an array, plus 1.
    pub max_array_size: u32,
    /// `inactive_limit`: time for which an allocation outlives the command that holds it; 0 for no limit.
    pub inactive_limit: Seconds,
    /// `max_batch_requeue`: number of requeues after which a further failure of a node holds the job.
    pub max_batch_requeue: u32,
    /// `enforce_part_limits`: the conditions under which a job over a limit of its partitions is refused.
    pub enforce_part_limits: EnforcePartLimits,
    /// `mpi_default`: the interface for MPI programs of steps without `--mpi`.
    pub mpi_default: MpiDefault,
    /// `kill_on_bad_exit`: whether a step ends with its first task that fails, unless `srun -K` says
    /// otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kill_on_bad_exit: bool,
    /// `propagate_resource_limits`: the limits that jobs get of their users'; `ALL` and `NONE` stand alone.
    #[serde(skip_serializing_if = "is_all")]
    pub propagate_resource_limits: Vec<Arc<str>>,
    /// `propagate_resource_limits_except`: the limits that jobs do not get where the former is `ALL`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub propagate_resource_limits_except: Vec<Arc<str>>,
    /// `use_interactive_step`: whether the shell of `salloc` runs on the first node of the allocation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_interactive_step: bool,
    /// `private_data`: what is hidden from everybody but operators; in order, each once.
    pub private_data: Vec<Private>,
    /// `accounting_storage_enforce`: the enforced parts of the policy tree; sorted.
    pub accounting_enforce: Vec<AccountingEnforce>,
    /// `track_wckey`: true if each job has a wckey, by default that of its user.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub track_wckey: bool,
    /// `purge_job_after`: time after its end when a run is deleted from accounting; `None` for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_job_after: Option<Seconds>,
    /// `purge_event_after`: time after its end when an event of a node is deleted from accounting; `None` for
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_event_after: Option<Seconds>,
    /// `time_zone`: the zone in whose midnights usage is reset; `None` for that of the controller's host at
    /// the first start.
    pub time_zone: Option<Arc<str>>,
    /// `prolog_slurmctld`: the program that the controller runs before anything of a job is launched.
    pub prolog_slurmctld: Option<Arc<str>>,
    /// `epilog_slurmctld`: the program that the controller runs when the end of a job is decided.
    pub epilog_slurmctld: Option<Arc<str>>,
    /// `prolog_epilog_timeout`: time that each of the two programs may take.
    pub prolog_epilog_timeout: Seconds,
}

/// The treatment of a job over limits of its partitions that an administrator can raise
/// (`enforce_part_limits`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EnforcePartLimits {
    /// The job is accepted and waits.
    #[default]
    No,
    /// The job is refused if it exceeds a limit in every one of its partitions.
    Any,
    /// The job is refused if it exceeds a limit in any of its partitions.
    All,
}

/// The interface by which MPI programs connect (`mpi_default`), with the names of `srun --mpi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiDefault {
    /// No interface: each task starts alone, unless the program connects by other means.
    None,
    /// The interfaces PMI-1 and PMI-2.
    #[default]
    Pmi2,
    /// The PMIx interface, from the node's own library.
    Pmix,
}

impl MpiDefault {
    /// Every choice with its name.
    pub const ALL: [(&str, MpiDefault); 3] =
        [("none", MpiDefault::None), ("pmi2", MpiDefault::Pmi2), ("pmix", MpiDefault::Pmix)];

    /// The name that `srun --mpi` uses.
    pub fn name(self) -> &'static str {
        match self {
            MpiDefault::None => "none",
            MpiDefault::Pmi2 => "pmi2",
            MpiDefault::Pmix => "pmix",
        }
    }
}

/// Information that `private_data` may hide, with Slurm's names. Spur has no cloud nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Private {
    /// Definitions of accounts, except those that the user is in or coordinates.
    Accounts,
    /// Accepted without effect; in Slurm it shows powered-down cloud nodes.
    Cloud,
    /// Times at which nodes were down or drained.
    Events,
    /// Jobs and steps of other users, in accounting too.
    Jobs,
    /// The state of nodes.
    Nodes,
    /// Names and settings of partitions.
    Partitions,
    /// Reservations that the user may not use.
    Reservations,
    /// Usage of other users; hides their records like `Users`.
    Usage,
    /// Names and records of users, except the user's own and those of accounts that the user coordinates.
    Users,
}

impl Policy {
    /// True if a resource has a negative weight, for billing or for priority.
    #[must_use]
    pub fn has_negative_weights(&self) -> bool {
        let billing = self.partitions.iter().map(|partition| &partition.tres_billing_weights);
        billing.chain([&self.scheduler.priority_weight_tres]).any(TresWeights::has_negative)
    }
}

impl JobPolicy {
    /// True if `private_data` hides this information from the caller.
    #[must_use]
    pub fn hides(&self, what: Private, caller: &Caller) -> bool {
        !caller.is_operator() && self.private_data.contains(&what)
    }
}

/// Section `[scheduler]`: order, backfill, predictions and priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulerPolicy {
    /// `backfill`: the number of jobs that get planned starts.
    pub backfill: Backfill,
    /// `order`: the order of the queue.
    pub order: Order,
    /// `predict`: the run times that plans use.
    pub predict: Predict,
    /// `correct`: the run time that plans use once a prediction is exceeded.
    pub correct: Correct,
    /// `depth`: number of pending jobs considered in one pass; 0 for all.
    pub depth: u32,
    /// `depth_per_user`: number of considered jobs per user; 0 for no limit.
    pub depth_per_user: u32,
    /// `depth_per_partition`: number of considered jobs per partition; 0 for no limit.
    pub depth_per_partition: u32,
    /// `max_wait`: time after which a pending job goes first, in the order of submission; 0 for never.
    pub max_wait: Seconds,
    /// `default_qos`: the QOS of jobs that name none.
    pub default_qos: Option<Arc<str>>,
    /// `priority_max_age`: the age at which the age factor is 1.
    pub priority_max_age: Seconds,
    /// `priority_decay_half_life`: half-life of recorded usage; 0 for no decay.
    pub priority_decay_half_life: Seconds,
    /// `priority_weight_age`: the weight of the age factor.
    pub priority_weight_age: u32,
    /// `priority_weight_assoc`: the weight of the association factor.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority_weight_assoc: u32,
    /// `priority_weight_fairshare`: the weight of the fair-share factor.
    pub priority_weight_fairshare: u32,
    /// `priority_weight_job_size`: the weight of the job-size factor.
    pub priority_weight_job_size: u32,
    /// `priority_weight_partition`: the weight of the partition factor.
    pub priority_weight_partition: u32,
    /// `priority_weight_qos`: the weight of the QOS factor.
    pub priority_weight_qos: u32,
    /// `priority_favor_small`: true if small jobs get the larger job-size factor.
    pub priority_favor_small: bool,
    /// `priority_weight_tres`: weights of the shares of a partition's resources that a job requests.
    #[serde(skip_serializing_if = "TresWeights::is_empty")]
    pub priority_weight_tres: TresWeights,
    /// `fair_share_dampening_factor`: the divisor of the exponent of the classic fair-share factor.
    #[serde(skip_serializing_if = "is_one")]
    pub fair_share_dampening_factor: u16,
    /// `priority_calc_period`: usage is rolled and ranks are computed at multiples of this time.
    pub priority_calc_period: Seconds,
    /// `priority_usage_reset_period`: the period after which usage is set to zero.
    pub priority_usage_reset_period: ResetPeriod,
    /// Flags of the priority (`priority_flags`), sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priority_flags: Vec<PriorityFlag>,
    /// `billing`: the billing of jobs in partitions without billing weights.
    pub billing: Billing,
}

/// The billing of jobs per second in partitions without billing weights (`[scheduler] billing`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Billing {
    /// For each node, its CPUs times the largest share of CPUs, memory and GPUs that the job holds; summed
    /// and rounded up.
    #[default]
    Share,
    /// The number of CPUs.
    Cpu,
}

/// The number of jobs that get planned starts (`[scheduler] backfill`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backfill {
    /// Only the head of the queue gets a planned start.
    #[default]
    Easy,
    /// Every pending job gets a planned start.
    Conservative,
    /// No backfill: jobs start strictly in order.
    None,
}

/// The order of the queue (`[scheduler] order`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Multifactor priority decides the order.
    #[default]
    Multifactor,
    /// By submission, the first come first.
    Fcfs,
    /// The head of the queue by submission, the rest by predicted run time, shortest first.
    Sjf,
    /// Smallest area (time × processors) first.
    Saf,
    /// WFP3: the largest `(w/r)³·q` first, with time waited, run time and CPUs.
    Wfp3,
    /// UNICEP: the largest `w / (log₂(q)·r)` first, with time waited, CPUs and run time.
    Unicep,
    /// F4 of Carastan-Santos and de Camargo.
    F4,
    /// F1 of Carastan-Santos and de Camargo.
    F1,
}

/// The run times that plans use (`[scheduler] predict`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Predict {
    /// Plans use the time limit of the job.
    #[default]
    Requested,
    /// The actual run time, which only the simulator knows.
    Actual,
    /// The mean of the user's last two run times.
    Recent2,
    /// The user's last run times, weighted by the similarity of their jobs.
    Similar,
}

impl Predict {
    /// True if run times are learnt from jobs that have ended.
    #[must_use]
    pub fn is_learnt(self) -> bool {
        matches!(self, Self::Recent2 | Self::Similar)
    }
}

/// The run time that plans use once a prediction is exceeded (`[scheduler] correct`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Correct {
    /// Plans use the time limit of the job.
    #[default]
    Request,
    /// The prediction plus a growing increment.
    Incremental,
}

/// Section `[preempt]`: the rules of preemption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreemptPolicy {
    /// `by`: the property that decides about preemption.
    pub by: PreemptBy,
    /// `mode`: the way in which victims leave.
    pub mode: PreemptMode,
    /// `topology`: true if victims are chosen domain by domain.
    pub topology: bool,
    /// `grace_time`: time between the notice and the end of a victim.
    pub grace_time: Seconds,
    /// `exempt_time`: time that a job runs before it can be a victim.
    pub exempt_time: Seconds,
    /// `cost`: the costs by which sets of victims are compared.
    pub cost: PreemptCost,
    /// `jobs_may_forbid`: true if `--no-preempt` is accepted.
    pub jobs_may_forbid: bool,
}

/// The property that decides about preemption (`[preempt] by`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptBy {
    /// No job is preempted.
    #[default]
    None,
    /// Jobs in partitions of a higher tier preempt those of a lower tier.
    Partition,
    /// Jobs of a QOS preempt those of the QOS that it lists.
    Qos,
}

/// The way in which victims leave (`[preempt] mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptMode {
    /// Jobs are never victims; for partitions and QOS.
    Off,
    /// Victims are ended and not requeued.
    Cancel,
    /// Victims are ended and requeued.
    #[default]
    Requeue,
    /// Victims are suspended: they release their CPUs, and resume when these are free again.
    Suspend,
}

/// The order in which costs of sets of victims are compared (`[preempt] cost`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptCost {
    /// The highest tier or QOS priority among the victims, lowest first; then least node-seconds lost, then
    /// fewest jobs.
    #[default]
    Priority,
    /// Fewest jobs, then priority, then work.
    Jobs,
    /// Least node-seconds lost, then as `Priority`.
    Work,
}

/// Section `[recovery]`: treatment of lost nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryPolicy {
    /// `node_timeout`: silence after which a node is down.
    pub node_timeout: Seconds,
    /// `overlap`: true if jobs are requeued although they may still run on a silent node.
    pub overlap: bool,
    /// `requeue_delay`: least time from the end of an attempt to the next. After a lost attempt it doubles
    /// with each earlier restart, up to a limit.
    pub requeue_delay: Seconds,
}

/// The configuration of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeConfig {
    /// The name of the node.
    pub name: Arc<str>,
    /// The configured resources; zero for those that the node reports itself.
    pub shape: NodeShape,
    /// Weight of the node; lower weights are used first.
    pub weight: u32,
    /// `core_spec_count`: number of cores that jobs never get.
    #[serde(skip_serializing_if = "is_zero")]
    pub core_spec_count: u32,
    /// `cpu_spec_list`: CPUs that jobs never get, nor the other threads of their cores.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub cpu_spec_list: IdSet,
    /// `mem_spec_limit`: memory in MiB that jobs never get.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_spec_limit: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the type that serde calls")]
fn is_one(number: &u16) -> bool {
    *number == 1
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
            track_wckey: false,
            purge_job_after: None,
            purge_event_after: None,
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
            priority_weight_assoc: 0,
            priority_weight_fairshare: 0,
            priority_weight_job_size: 0,
            priority_weight_partition: 1000,
            priority_weight_qos: 0,
            priority_favor_small: false,
            priority_weight_tres: TresWeights::default(),
            fair_share_dampening_factor: 1,
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

/// The section `[power]`: reboots, and powering nodes down and up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerPolicy {
    /// `reboot_program`: the program that a node's daemon runs to reboot its host.
    pub reboot_program: Option<Arc<str>>,
    /// `resume_timeout`: time that a node may take to register after it is powered up or rebooted.
    pub resume_timeout: Seconds,
    /// `suspend_program`: the program that the controller runs to power nodes down. It is set if and only if
    /// `resume_program` is.
    pub suspend_program: Option<Arc<str>>,
    /// `resume_program`: the program that the controller runs to power nodes up.
    pub resume_program: Option<Arc<str>>,
    /// `resume_fail_program`: the program that the controller runs for nodes that do not power up in time.
    pub resume_fail_program: Option<Arc<str>>,
    /// `suspend_time`: idle time after which a node is powered down; `None` for never.
    pub suspend_time: Option<Seconds>,
    /// `suspend_timeout`: time that a node may take to power down.
    pub suspend_timeout: Seconds,
    /// `suspend_rate`: number of nodes powered down per minute; 0 for no limit.
    pub suspend_rate: u32,
    /// `resume_rate`: number of nodes powered up per minute; 0 for no limit.
    pub resume_rate: u32,
    /// `suspend_exc_nodes`: nodes that stay on when idle.
    pub suspend_exc_nodes: Vec<Arc<str>>,
    /// `suspend_exc_parts`: partitions whose nodes stay on when idle.
    pub suspend_exc_parts: Vec<Arc<str>>,
    /// `suspend_exc_states`: states in which nodes stay on when idle; only `DRAIN` is supported.
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
