//! Jobs: the request of a user, and the record of a job.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::array::ArrayPart;
use super::caller::Owner;
use super::exempt::Exempt;
use super::node::{NodeShape, SHARD};
use super::nomination::Nomination;
use super::phase::{EndState, Phase};
use super::reason::Reason;
use super::step::{Step, StepNodeEnd};
use super::waits::{Gone, Waits};
use crate::id::{ArrayTaskId, Attempt, BlobId, JobId, NodeId, StepId};
use crate::text::array::ArraySpec;
use crate::text::dependency::Dependency;
use crate::text::features::FeatureExpr;
use crate::text::gather::{Gather, HetGather, NetworkNeed, Placement, Switches};
use crate::text::gres::GresSpec;
use crate::text::hostlist::HostExpr;
use crate::text::jobid::{JobPart, JobRef};
use crate::text::mail;
use crate::text::nodes::NodeCount;
use crate::text::pattern::{FilePattern, PatternContext};
use crate::text::signal::WarnSignal;
use crate::text::time::{Time, TimeLimit};

/// The request of a job, resolved at submission. It is shared by the controller's threads and never modified:
/// a change makes a new one. Rarely used parts are boxed, because a site may have a million requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// `--job-name`: the name of the job.
    pub name: Arc<str>,
    /// The user who submitted the job.
    pub owner: Arc<Owner>,
    /// `--account`: the account; `None` if none is named.
    #[serde(default)]
    pub account: Option<Arc<str>>,
    /// `--qos`: the QOS; `None` if none is named.
    #[serde(default)]
    pub qos: Option<Arc<str>>,
    /// `--partition`: partitions in which the job may run; a default is filled in at submission.
    pub partitions: Box<[Arc<str>]>,
    /// Nodes, tasks, CPUs, memory and devices.
    #[serde(default)]
    pub shape: Shape,
    /// Constraints on the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Box<FabricAsk>>,
    /// `--time`: the time limit, with the partition's default filled in.
    pub time_limit: TimeLimit,
    /// `--time-min`: the least time limit that the job accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_min: Option<TimeLimit>,
    /// `--begin`: the earliest start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Time>,
    /// `--deadline`: the time by which the job must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// `--hold`: true if the job is submitted in held state.
    #[serde(default)]
    pub hold: bool,
    /// `--priority`: a fixed priority, also one that an operator has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// `--nice`: a number subtracted from the priority.
    #[serde(default)]
    pub nice: i32,
    /// `--dependency`: the dependency as requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<Box<Dependency<JobId>>>,
    /// `--array`: the tasks of a job array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArraySpec>>,
    /// True if the job may be requeued.
    #[serde(default)]
    pub requeue: bool,
    /// The batch script; `None` for an allocation that a command holds.
    #[serde(default)]
    pub batch: Option<Box<Batch>>,
    /// The command that holds an allocation without a batch script; `None` for a batch job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<Client>>,
    /// Rarely used options; `None` if the request has none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<Extra>>,
    /// The position in a het job; `None` for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<Box<HetPart>>,
}

impl JobSpec {
    /// A request for `shape` without a time limit, partition or script, as a base for others.
    #[must_use]
    pub fn plain(name: Arc<str>, owner: Arc<Owner>, shape: Shape) -> Self {
        Self {
            name,
            owner,
            account: None,
            qos: None,
            partitions: Box::default(),
            shape,
            fabric: None,
            time_limit: TimeLimit::Unlimited,
            time_min: None,
            begin: None,
            deadline: None,
            hold: false,
            priority: None,
            nice: 0,
            dependency: None,
            array: None,
            requeue: false,
            batch: None,
            client: None,
            extra: None,
            het: None,
        }
    }
}

/// The position of a component in a het (heterogeneous) job. Components have consecutive numbers, start
/// together or not at all, and end together. The leader, the first one, has the script and the job's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetPart {
    /// The number of the first component.
    pub leader: JobId,
    /// Number of components before this one.
    pub offset: u32,
    /// Number of components of the het job.
    pub size: u32,
}

impl HetPart {
    /// The numbers of all components, in order.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = JobId> + use<> {
        let leader = self.leader.0;
        (0..self.size as usize).map(move |at| JobId(leader + u32::try_from(at).unwrap_or(u32::MAX)))
    }
}

impl JobSpec {
    /// True if both are components of the same het job.
    #[must_use]
    pub fn is_component_with(&self, other: &JobSpec) -> bool {
        let leader = |spec: &JobSpec| spec.het.as_ref().map(|het| het.leader);
        self.het.is_some() && leader(self) == leader(other)
    }

    /// True if the job ends when no command holds it.
    #[must_use]
    pub fn needs_client(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.no_shell) && !self.is_follower()
    }

    /// The least time limit that the job accepts.
    #[must_use]
    pub fn least_time(&self) -> TimeLimit {
        self.time_min.unwrap_or(self.time_limit)
    }

    /// The parts of the request that an operator has set.
    pub fn exempt(&self) -> impl Iterator<Item = Exempt> + '_ {
        self.extra.iter().flat_map(|extra| &extra.exempt).copied()
    }

    /// The option that sets the least time limit.
    #[must_use]
    pub fn least_time_option(&self) -> &'static str {
        if self.time_min.is_some() { "--time-min" } else { "-t" }
    }

    /// True for a component of a het job after the first.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.het.as_ref().is_some_and(|het| het.offset > 0)
    }
}

/// Nodes, tasks, and the resources of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// `-N`: the number of nodes; `None` if only tasks are given.
    pub nodes: Option<NodeCount>,
    /// `-n`: the number of tasks.
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`: the number of tasks per node.
    pub tasks_per_node: Option<u32>,
    /// `-c`: CPUs per task; 1 if not given.
    pub cpus_per_task: Option<u32>,
    /// `-n` of a job with `--overcommit`: the tasks that start, although each node only gives CPUs for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_tasks: Option<u32>,
    /// `--use-min-nodes`: of a range of nodes the job gets as few as its tasks need.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_min_nodes: bool,
    /// `--mem`, `--mem-per-cpu`, or the partition's default.
    pub memory: Option<MemoryNeed>,
    /// `--tmp`: temporary disk per node in MiB.
    pub tmp_disk_mb: u64,
    /// `--mincpus`: the least number of CPUs of a node.
    pub min_cpus: u32,
    /// `--gres`, `--gpus-per-node`: devices per node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresSpec>,
    /// `--gpus`: devices of the whole job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GresSpec>,
    /// `--gpus-per-task`: devices per task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus_per_task: Vec<GresSpec>,
    /// `--constraint`: features that the nodes must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Box<FeatureExpr>>,
    /// `-w`: nodes that the job must get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelist: Option<Box<HostExpr>>,
    /// `-x`: nodes that the job must not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Box<HostExpr>>,
    /// `--exclusive`, `--oversubscribe`: the way in which nodes are shared.
    pub sharing: Sharing,
    /// `-B`, `--threads-per-core` and related options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Box<CoreAsk>>,
}

impl Shape {
    /// The smallest and the largest number of nodes that the request names, limited to the number of tasks;
    /// `None` if it names none.
    #[must_use]
    pub fn node_range(&self) -> Option<(u32, Option<u32>)> {
        let count = self.nodes.as_ref()?;
        let most = self.tasks.map_or(u32::MAX, |tasks| tasks.max(1));
        Some((count.min.min(most), count.max.map(|max| max.min(most))))
    }

    /// True if the request determines the number of tasks.
    #[must_use]
    pub fn names_tasks(&self) -> bool {
        self.tasks.or(self.tasks_per_node).or(self.overcommit_tasks).is_some()
    }

    /// Changes the number of tasks.
    pub fn set_tasks(&mut self, tasks: u32) {
        let is_overcommitted = self.overcommit_tasks.is_some();
        let named = if is_overcommitted { &mut self.overcommit_tasks } else { &mut self.tasks };
        *named = Some(tasks);
    }

    /// True if the job requests shards of GPUs.
    #[must_use]
    pub fn gets_shards(&self) -> bool {
        self.gres.iter().chain(&self.gpus_per_task).any(|spec| spec.name == SHARD && spec.count > 0)
    }

    /// `--mem-per-gpu`: memory per GPU in MiB; `None` if the job does not request it.
    #[must_use]
    pub fn memory_per_gpu(&self) -> Option<u64> {
        self.cores.as_ref().and_then(|cores| cores.memory_per_gpu)
    }
}

/// Requests about sockets, cores and threads, and resources per GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreAsk {
    /// `--sockets-per-node`: the least number of sockets of a node.
    pub sockets_per_node: Option<u32>,
    /// `--cores-per-socket`: the least number of cores of a socket.
    pub cores_per_socket: Option<u32>,
    /// `--threads-per-core`: the least number of threads of a core, and the largest number that the job uses.
    pub threads_per_core: Option<u32>,
    /// `--ntasks-per-core`: the largest number of tasks on one core.
    pub tasks_per_core: Option<u32>,
    /// `--ntasks-per-socket`: the largest number of tasks on a node for each of its sockets.
    pub tasks_per_socket: Option<u32>,
    /// `--cpus-per-gpu`: CPUs per GPU.
    pub cpus_per_gpu: Option<u32>,
    /// `--mem-per-gpu`: memory per GPU in MiB.
    pub memory_per_gpu: Option<u64>,
}

impl CoreAsk {
    /// True if a node of this shape has the requested sockets, cores and threads.
    #[must_use]
    pub fn suits(&self, shape: &NodeShape) -> bool {
        let has = |asked: Option<u32>, there: u32| asked.is_none_or(|asked| asked <= there.max(1));
        has(self.sockets_per_node, shape.sockets)
            && has(self.cores_per_socket, shape.cores_per_socket)
            && has(self.threads_per_core, shape.threads_per_core)
    }

    /// Number of cores that this number of CPUs and tasks takes on a node of this shape.
    #[must_use]
    pub fn cores(&self, shape: &NodeShape, cpus: u64, tasks: u64) -> u64 {
        let by_tasks = self.tasks_per_core.map_or(0, |most| tasks.div_ceil(u64::from(most.max(1))));
        cpus.div_ceil(u64::from(self.threads(shape))).max(by_tasks)
    }

    /// Number of threads of each core that the job uses.
    #[must_use]
    pub fn threads(&self, shape: &NodeShape) -> u32 {
        let there = shape.threads_per_core.max(1);
        self.threads_per_core.map_or(there, |most| most.clamp(1, there))
    }
}

/// Requested memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryNeed {
    /// `--mem`: memory per node; 0 for all memory of each node.
    PerNode(u64),
    /// `--mem-per-cpu`: memory per CPU.
    PerCpu(u64),
}

/// The way in which nodes are shared with other jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// The partition's setting decides about sharing.
    #[default]
    Partition,
    /// `--oversubscribe`: nodes are shared by cores.
    Shared,
    /// `--exclusive`: the job gets whole nodes.
    Exclusive,
    /// `--exclusive=topo`: the job gets whole leaves or base blocks.
    Topo,
}

/// Constraints on the fabric (`sbatch --topology` and related options).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricAsk {
    /// `--topology`: topology or plugin for the placement; `None` for the partition's default.
    pub topology: Option<Arc<str>>,
    /// `--gather`: limits on the domains that the job touches.
    pub gather: Option<Gather>,
    /// `--switches`: the largest number of leaf switches.
    pub switches: Option<Switches>,
    /// `--segment`: the number of nodes in a segment.
    pub segment: Option<u32>,
    /// `--spread-segments`: true if no two segments may share a base block.
    pub spread_segments: bool,
    /// `--consolidate-segments`: true if the block rule holds for the whole job, too.
    pub consolidate_segments: bool,
    /// `--contiguous`: true for consecutive nodes.
    pub contiguous: bool,
    /// `--placement`: the objective of the placement.
    pub placement: Option<Placement>,
    /// `--prefer`: preferred features, or a preferred domain.
    #[serde(deserialize_with = "wish")]
    pub prefer: Option<Arc<FeatureExpr>>,
    /// `--network`: requirements on links.
    pub network: Option<NetworkNeed>,
    /// `--het-gather`: limits on the domains that all components touch together.
    pub het_gather: Option<HetGather>,
    /// `--gather-with`: the job in whose domain this one is placed.
    pub gather_with: Option<JobId>,
}

/// Reads a preference. Text that cannot be read is of releases where it had no effect.
fn wish<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<FeatureExpr>>, D::Error> {
    let written = Option::<String>::deserialize(deserializer)?;
    Ok(written.and_then(|written| written.parse().ok()).map(Arc::new))
}

/// The batch script of a job, with its environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The blob of the script.
    pub script: BlobId,
    /// The blob of the environment: `NAME=VALUE` separated by NUL.
    pub environment: BlobId,
    /// Length of both in bytes; 0 if unknown.
    #[serde(default)]
    pub bytes: u32,
    /// The arguments of the script.
    #[serde(default)]
    pub args: Box<[Box<str>]>,
    /// The Command of `scontrol show job`: the path of the script, or empty for `--wrap`.
    #[serde(default)]
    pub command: Box<str>,
    /// Working directory of the batch script.
    pub work_dir: Box<str>,
    /// `--input`: a pattern; `None` for `/dev/null`.
    #[serde(default)]
    pub stdin: Option<Box<str>>,
    /// `--output`: a pattern; `None` for Slurm's default.
    #[serde(default)]
    pub stdout: Option<Box<str>>,
    /// `--error`: a pattern; `None` to join the output.
    #[serde(default)]
    pub stderr: Option<Box<str>>,
    /// True for `--open-mode=append`, false for `truncate`. `None` leaves this to the daemon: append after a
    /// requeue, else truncate.
    #[serde(default)]
    pub append: Option<bool>,
    /// The file mode creation mask.
    #[serde(default)]
    pub umask: u32,
    /// Soft resource limits of the submitting shell, as name and value; `u64::MAX` is unlimited.
    #[serde(default)]
    pub limits: Box<[(Box<str>, u64)]>,
    /// True if `--propagate` named the limits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_named: bool,
    /// `--acctg-freq`: seconds between two samples of the script's usage; 0 for no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: true if the whole script ends when memory ran out for one of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kill_step: Option<bool>,
}

impl Batch {
    /// A script with its environment in `/`, as a base for others.
    #[must_use]
    pub fn plain(script: BlobId, environment: BlobId) -> Self {
        Self {
            script,
            environment,
            bytes: 0,
            args: Box::default(),
            command: Box::default(),
            work_dir: "/".into(),
            stdin: None,
            stdout: None,
            stderr: None,
            append: None,
            umask: 0o022,
            limits: Box::default(),
            limits_named: false,
            sampling_seconds: None,
            oom_kill_step: None,
        }
    }
}

/// The command that holds an allocation without a batch script: `srun` or `salloc`. The job ends when the
/// command says so, or has been silent for `[controller] inactive_limit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// The Command of `scontrol show job`: the program that runs in the allocation.
    pub command: Box<str>,
    /// The directory in which the command was called.
    pub work_dir: Box<str>,
    /// `salloc --no-shell`: true if no command holds the allocation, which ends at its limit.
    pub no_shell: bool,
}

/// Rarely used options of a request, stored apart to keep requests small.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extra {
    /// `--comment`: the user's comment.
    pub comment: Option<Box<str>>,
    /// `--wckey`: the workload characterization key.
    pub wckey: Option<Box<str>>,
    /// `--extra`: text for other programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Box<str>>,
    /// The comment of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<Box<str>>,
    /// `--licenses`: names and counts.
    pub licenses: Vec<(Box<str>, u32)>,
    /// `--reservation`: names separated by commas.
    pub reservation: Option<Box<str>>,
    /// `--no-kill`: true if the job continues when a node fails.
    pub no_kill: bool,
    /// `--no-preempt`: true if the job is never a victim of preemption.
    pub no_preempt: bool,
    /// `--kill-on-invalid-dep`: true if the job ends when its dependency can no longer be satisfied.
    pub kill_on_invalid_dep: Option<bool>,
    /// `--signal`: a signal ahead of the time limit.
    pub signal: Option<WarnSignal>,
    /// The host on which the job was submitted.
    pub submit_host: Box<str>,
    /// `--mail-type` and `--mail-user`, as written.
    pub mail: Option<(Box<str>, Box<str>)>,
    /// The command line of the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_line: Option<Box<str>>,
    /// Jobs of `--dependency` that had left memory when it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// `--reboot`: true if its nodes are rebooted before it starts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reboot: bool,
    /// `--gres-flags=disable-binding`: true if devices need not be near the CPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gres_anywhere: bool,
    /// The parts of the request that an operator has set and whose limits do not apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<Exempt>,
}

/// The record of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The number of the job.
    pub id: JobId,
    /// Request of the job.
    pub spec: Arc<JobSpec>,
    /// The array and its tasks for which the record stands; `None` for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArrayPart>>,
    /// Time at which the job was submitted.
    pub submitted: Time,
    /// Number of times the job was requeued.
    #[serde(default)]
    pub restarts: u32,
    /// The open terms of its dependency; `None` if there are none.
    #[serde(default)]
    pub waits_for: Option<Box<Waits>>,
    /// True if `waits_for` can no longer be satisfied.
    #[serde(default)]
    pub never: bool,
    /// The phase of the job's life.
    pub phase: Phase,
    /// Time at which the job became eligible, once it is not pending; until then its phase has the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_eligible: Option<Time>,
    /// The start promised when the job first was at the head of the queue.
    #[serde(default)]
    pub promised: Option<Time>,
    /// Steps that have not ended, in the order of creation.
    #[serde(default)]
    pub steps: Vec<Arc<Step>>,
    /// The number of the next step.
    #[serde(default)]
    pub next_step: StepId,
    /// The highest exit code of its ended steps.
    #[serde(default)]
    pub derived_exit: crate::text::exit::ExitCode,
    /// The requested time limit, while the job runs with a lower one; a requeue restores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_limit: Option<TimeLimit>,
    /// The end of the attempt's batch script, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_end: Option<Box<BatchEnd>>,
    /// Conditions that must be met before anything of the attempt is launched.
    #[serde(default, skip_serializing_if = "Configuring::is_done")]
    pub configuring: Configuring,
    /// True until the controller's epilog of the attempt has ended; the job is not finished before that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub epilog: bool,
}

/// Conditions that a started attempt waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configuring {
    /// True while the controller's prolog runs.
    pub prolog: bool,
    /// Nodes that are off or powering up.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<NodeId>,
}

impl Configuring {
    /// True if there is nothing to wait for.
    #[must_use]
    pub fn is_done(&self) -> bool {
        *self == Self::default()
    }
}

/// The end of a batch script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEnd {
    /// Time at which the controller received the report of the end.
    pub at: Time,
    /// The exit code and usage of the script.
    #[serde(flatten)]
    pub end: StepNodeEnd,
}

impl JobSpec {
    /// True if the nodes of the job are rebooted before it starts.
    #[must_use]
    pub fn wants_reboot(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.reboot)
    }

    /// True if devices of the job need not be near its CPUs.
    #[must_use]
    pub fn takes_any_devices(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.gres_anywhere)
    }

    /// The requested reservations, in order.
    pub fn reservations(&self) -> impl Iterator<Item = &str> {
        let asked = self.extra.as_ref().and_then(|extra| extra.reservation.as_deref());
        asked.into_iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty())
    }
}

impl Job {
    /// The reason for which a pending job waits whatever nodes are free: a hold, a dependency or its begin
    /// time. `None` if there is none of these, or the job is not pending.
    #[must_use]
    pub fn waits_because(&self, now: Time) -> Option<Reason> {
        let Phase::Pending(pending) = &self.phase else { return None };
        let depends = self.waits_for.is_some();
        match pending.hold {
            Some(hold) => Some(hold.reason()),
            None if depends && self.never => Some(Reason::DependencyNeverSatisfied),
            None if depends => Some(Reason::Dependency),
            None => pending.not_before.is_some_and(|begin| begin > now).then_some(Reason::BeginTime),
        }
    }

    /// Slurm's long and short name of the job's state.
    #[must_use]
    pub fn state_names(&self) -> (&'static str, &'static str) {
        match &self.phase {
            Phase::Running { .. } if !self.configuring.is_done() => ("CONFIGURING", "CF"),
            phase => phase.names(),
        }
    }

    /// The input file of the batch script.
    #[must_use]
    pub fn input_path(&self, batch: &Batch) -> String {
        self.file_path(batch, batch.stdin.as_deref().unwrap_or("/dev/null"))
    }

    /// The output file of the batch script; Slurm's default without a pattern.
    #[must_use]
    pub fn output_path(&self, batch: &Batch) -> String {
        let default = if self.array.is_some() { FilePattern::DEFAULT_ARRAY } else { FilePattern::DEFAULT };
        self.file_path(batch, batch.stdout.as_deref().unwrap_or(default))
    }

    /// The file of the batch script's standard error.
    #[must_use]
    pub fn error_path(&self, batch: &Batch) -> String {
        match batch.stderr.as_deref() {
            Some(pattern) => self.file_path(batch, pattern),
            None => self.output_path(batch),
        }
    }

    /// A file of a batch job as far as it is known outside its nodes. As in Slurm, `%N` stays.
    fn file_path(&self, batch: &Batch, pattern: &str) -> String {
        let context = PatternContext {
            job: self.id.0,
            array: self.array.as_ref().zip(self.task()).map(|(part, task)| (part.id.0, task.0)),
            step: None,
            node: "%N",
            node_number: 0,
            task: 0,
            user: &self.spec.owner.user,
            job_name: &self.spec.name,
            restarts: self.restarts,
        };
        let path = match pattern.parse::<FilePattern>() {
            Ok(parsed) => parsed.render(&context),
            Err(_) => pattern.to_owned(),
        };
        if path.starts_with('/') { path } else { format!("{}/{path}", batch.work_dir.trim_end_matches('/')) }
    }

    /// The attempt that is under way, was last, or will be next.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        Attempt { job: self.id, restart: self.restarts }
    }

    /// The number of the job's array; the job's own number outside arrays.
    #[must_use]
    pub fn array_id(&self) -> JobId {
        self.array.as_ref().map_or(self.id, |part| part.id)
    }

    /// The task that the record stands for; `None` if it stands for several or is no array task.
    #[must_use]
    pub fn task(&self) -> Option<ArrayTaskId> {
        self.array.as_ref().and_then(|part| part.tasks.only()).map(ArrayTaskId)
    }

    /// Number of array tasks that the record stands for; 1 outside arrays.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.array.as_ref().map_or(1, |part| part.tasks.len())
    }

    /// The reference by which users name the record: `36`, `36_3`, `36_[4-7]`.
    #[must_use]
    pub fn reference(&self) -> JobRef<JobId> {
        let tasks = self.array.as_ref().map(|part| JobPart::Tasks(part.tasks.clone()));
        JobRef { job: self.array_id(), part: tasks.unwrap_or_default(), step: None }
    }

    /// True for tasks of an array that were cancelled apart from the others before they started. As in Slurm,
    /// only accounting shows them.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        let Phase::Ended(ended) = &self.phase else { return false };
        let cancelled = ended.outcome.state == EndState::Cancelled && ended.started.is_none();
        cancelled && self.array.as_ref().is_some_and(|part| part.id != self.id)
    }

    /// The start that nodes are kept for while victims leave, or while the last attempt ends.
    #[must_use]
    pub fn nomination(&self) -> Option<&Arc<Nomination>> {
        match &self.phase {
            Phase::Pending(pending) => pending.nominated.as_ref(),
            Phase::Completing(completing) => completing.nominated.as_ref(),
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => None,
        }
    }

    /// The latest start with which the job ends by its `--deadline`; `None` without a deadline.
    #[must_use]
    pub fn latest_start(&self) -> Option<Time> {
        let shortest = self.spec.least_time().seconds().unwrap_or(0);
        let deadline = self.spec.deadline?;
        Some(Time(deadline.0.saturating_sub(i64::try_from(shortest).unwrap_or(i64::MAX))))
    }

    /// Time at which the job must end if it started at `started`: at its limit, not counting time in
    /// suspension, or with its reservation. The limit of a suspended job does not come nearer.
    #[must_use]
    pub fn ends_at(&self, started: Time) -> Time {
        let limit = self.spec.time_limit.end(started);
        match &self.phase {
            Phase::Running { ends_by, pauses, .. } => {
                let limit = if limit.is_never() { limit } else { limit + pauses.seconds };
                limit.min(ends_by.unwrap_or(Time::MAX))
            }
            Phase::Suspended(suspended) => suspended.ends_by.unwrap_or(Time::MAX),
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => limit,
        }
    }

    /// Time left to a started job: its limit less its run time.
    #[must_use]
    pub fn remaining(&self, now: Time) -> TimeLimit {
        match self.spec.time_limit.seconds() {
            Some(limit) => TimeLimit::Seconds(limit.saturating_sub(self.phase.run_time(now))),
            None => TimeLimit::Unlimited,
        }
    }

    /// Time at which the signal of `--signal` is due if the job started at `started`.
    #[must_use]
    pub fn warn_at(&self, started: Time) -> Option<Time> {
        let warn = self.spec.extra.as_ref()?.signal.as_ref()?;
        let end = self.ends_at(started);
        (!end.is_never()).then(|| started.max(Time(end.0 - i64::from(warn.seconds))))
    }

    /// Time of the next mail about the used part of the time limit, with the percentage; `None` if the job
    /// does not run or has no time limit, or if no more such mail is wanted.
    #[must_use]
    pub fn tells_at(&self) -> Option<(Time, u8)> {
        let (types, _) = self.spec.extra.as_ref()?.mail.as_ref()?;
        let Phase::Running { started, told, .. } = &self.phase else { return None };
        let (_, percent) =
            mail::OF_TIME.into_iter().find(|(name, percent)| percent > told && mail::has(types, name))?;
        let (end, limit) = (self.ends_at(*started), self.spec.time_limit.seconds()?);
        let left = limit - limit * u64::from(percent) / 100;
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        Some(((*started).max(Time(end.0.saturating_sub(left))), percent))
    }

    /// Time from which only resources kept the job waiting; `None` if that never was so.
    #[must_use]
    pub fn eligible(&self) -> Option<Time> {
        match &self.phase {
            Phase::Pending(pending) => pending.eligible,
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) | Phase::Ended(_) => {
                self.was_eligible
            }
        }
    }

    /// True if the planner may consider the job at `now`: it is pending, not held, and waits for nothing.
    #[must_use]
    pub fn eligible_at(&self, now: Time) -> bool {
        match &self.phase {
            Phase::Pending(pending) => {
                pending.hold.is_none()
                    && self.waits_for.is_none()
                    && pending.not_before.is_none_or(|begin| begin <= now)
            }
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) | Phase::Ended(_) => false,
        }
    }
}
