//! What a job is: the request, and its record.

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

/// Everything a user asked for, resolved at submission. Shared by the controller's threads and never changed: an
/// update makes a new one. Rarely used parts are boxed, because a site may have a million of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// `--job-name`.
    pub name: Arc<str>,
    /// Who submitted it.
    pub owner: Arc<Owner>,
    /// `--account`.
    #[serde(default)]
    pub account: Option<Arc<str>>,
    /// `--qos`.
    #[serde(default)]
    pub qos: Option<Arc<str>>,
    /// `--partition`: acceptable partitions, at least one; the default is filled in at submission.
    pub partitions: Box<[Arc<str>]>,
    /// Nodes, tasks, CPUs, memory, devices.
    #[serde(default)]
    pub shape: Shape,
    /// What it asks of the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Box<FabricAsk>>,
    /// `--time`, the partition's default filled in.
    pub time_limit: TimeLimit,
    /// `--time-min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_min: Option<TimeLimit>,
    /// `--begin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Time>,
    /// `--deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// `--hold`.
    #[serde(default)]
    pub hold: bool,
    /// `--priority`, or what an operator set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// `--nice`: subtracted from the priority.
    #[serde(default)]
    pub nice: i32,
    /// `--dependency`, as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<Box<Dependency<JobId>>>,
    /// `--array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArraySpec>>,
    /// Whether it may be started again after a failure that is not its own.
    #[serde(default)]
    pub requeue: bool,
    /// What the first node runs; `None` for an allocation that a command holds.
    #[serde(default)]
    pub batch: Option<Box<Batch>>,
    /// The command that holds an allocation without a batch script; `None` for a batch job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<Client>>,
    /// The rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<Extra>>,
    /// Which component of which het job it is; `None` for a job by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<Box<HetPart>>,
}

impl JobSpec {
    /// A request for so much and nothing else, without a limit of time, partition or script: where others begin.
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

/// A place in a het job. Its components are jobs with numbers one after another that start together or not at all, and
/// end together; the first one, the *leader*, has the batch script, and its number is that of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HetPart {
    /// The first component.
    pub leader: JobId,
    /// How many components come before this one.
    pub offset: u32,
    /// How many components there are.
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
    /// Whether both are components of one het job.
    #[must_use]
    pub fn is_component_with(&self, other: &JobSpec) -> bool {
        let leader = |spec: &JobSpec| spec.het.as_ref().map(|het| het.leader);
        self.het.is_some() && leader(self) == leader(other)
    }

    /// Whether a command must hold the job, or it ends.
    #[must_use]
    pub fn needs_client(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.no_shell) && !self.is_follower()
    }

    /// The least time that will do.
    #[must_use]
    pub fn least_time(&self) -> TimeLimit {
        self.time_min.unwrap_or(self.time_limit)
    }

    /// The parts of the request that an operator has set.
    pub fn exempt(&self) -> impl Iterator<Item = Exempt> + '_ {
        self.extra.iter().flat_map(|extra| &extra.exempt).copied()
    }

    /// The option that gives it.
    #[must_use]
    pub fn least_time_option(&self) -> &'static str {
        if self.time_min.is_some() { "--time-min" } else { "-t" }
    }

    /// Whether it is a component of a het job behind the first one.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.het.as_ref().is_some_and(|het| het.offset > 0)
    }
}

/// Nodes, tasks and what each needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// `-N`; `None` when only tasks were given.
    pub nodes: Option<NodeCount>,
    /// `-n`.
    pub tasks: Option<u32>,
    /// `--ntasks-per-node`.
    pub tasks_per_node: Option<u32>,
    /// `-c`; one where not given.
    pub cpus_per_task: Option<u32>,
    /// The tasks that start in a job with `--overcommit`, of which each node gives what one needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_tasks: Option<u32>,
    /// `--use-min-nodes`: of a range of nodes the job gets as few as its tasks need.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_min_nodes: bool,
    /// `--mem`, `--mem-per-cpu`, or the partition's default.
    pub memory: Option<MemoryNeed>,
    /// `--tmp`, MiB on each node.
    pub tmp_disk_mb: u64,
    /// `--mincpus`: CPUs a node must have at least.
    pub min_cpus: u32,
    /// `--gres`, `--gpus-per-node`: devices on each node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresSpec>,
    /// `--gpus`: devices of the whole job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GresSpec>,
    /// `--gpus-per-task`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus_per_task: Vec<GresSpec>,
    /// `--constraint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Box<FeatureExpr>>,
    /// `-w`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelist: Option<Box<HostExpr>>,
    /// `-x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<Box<HostExpr>>,
    /// `--exclusive`, `--oversubscribe`.
    pub sharing: Sharing,
    /// `-B`, `--threads-per-core` and their kin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Box<CoreAsk>>,
}

impl Shape {
    /// The fewest and the most nodes that it names, no more than it has tasks; `None` if it names no number.
    #[must_use]
    pub fn node_range(&self) -> Option<(u32, Option<u32>)> {
        let count = self.nodes.as_ref()?;
        let most = self.tasks.map_or(u32::MAX, |tasks| tasks.max(1));
        Some((count.min.min(most), count.max.map(|max| max.min(most))))
    }

    /// Whether it says how many tasks there are.
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

    /// Whether it asks for shards of GPUs.
    #[must_use]
    pub fn gets_shards(&self) -> bool {
        self.gres.iter().chain(&self.gpus_per_task).any(|spec| spec.name == SHARD && spec.count > 0)
    }

    /// `--mem-per-gpu`, MiB.
    #[must_use]
    pub fn memory_per_gpu(&self) -> Option<u64> {
        self.cores.as_ref().and_then(|cores| cores.memory_per_gpu)
    }
}

/// What a job asks of sockets, cores and threads, and what each GPU brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreAsk {
    /// `--sockets-per-node`: sockets that a node must have at least.
    pub sockets_per_node: Option<u32>,
    /// `--cores-per-socket`: cores that each socket must have at least.
    pub cores_per_socket: Option<u32>,
    /// `--threads-per-core`: threads that each core must have at least, and that the job uses at most.
    pub threads_per_core: Option<u32>,
    /// `--ntasks-per-core`: most tasks on one core.
    pub tasks_per_core: Option<u32>,
    /// `--ntasks-per-socket`: most tasks on a node for each of its sockets.
    pub tasks_per_socket: Option<u32>,
    /// `--cpus-per-gpu`.
    pub cpus_per_gpu: Option<u32>,
    /// `--mem-per-gpu`, MiB.
    pub memory_per_gpu: Option<u64>,
}

impl CoreAsk {
    /// Whether a node of that shape has what is asked for.
    #[must_use]
    pub fn suits(&self, shape: &NodeShape) -> bool {
        let has = |asked: Option<u32>, there: u32| asked.is_none_or(|asked| asked <= there.max(1));
        has(self.sockets_per_node, shape.sockets)
            && has(self.cores_per_socket, shape.cores_per_socket)
            && has(self.threads_per_core, shape.threads_per_core)
    }

    /// Cores that so many CPUs and tasks take on a node of that shape.
    #[must_use]
    pub fn cores(&self, shape: &NodeShape, cpus: u64, tasks: u64) -> u64 {
        let by_tasks = self.tasks_per_core.map_or(0, |most| tasks.div_ceil(u64::from(most.max(1))));
        cpus.div_ceil(u64::from(self.threads(shape))).max(by_tasks)
    }

    /// Threads of each core that the job uses.
    #[must_use]
    pub fn threads(&self, shape: &NodeShape) -> u32 {
        let there = shape.threads_per_core.max(1);
        self.threads_per_core.map_or(there, |most| most.clamp(1, there))
    }
}

/// Memory asked for, MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryNeed {
    /// `--mem`; 0 asks for all of each node's.
    PerNode(u64),
    /// `--mem-per-cpu`.
    PerCpu(u64),
}

/// Whether nodes may be shared with other jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// As the partition says.
    #[default]
    Partition,
    /// `--oversubscribe`: by cores.
    Shared,
    /// `--exclusive`: whole nodes.
    Exclusive,
    /// `--exclusive=topo`: whole leaves or base blocks.
    Topo,
}

/// What a job asks of the fabric (`sbatch --topology` and its kin).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricAsk {
    /// `--topology=tree|block|none|NAME`.
    pub topology: Option<Arc<str>>,
    /// `--gather`.
    pub gather: Option<Gather>,
    /// `--switches`.
    pub switches: Option<Switches>,
    /// `--segment`, nodes.
    pub segment: Option<u32>,
    /// `--spread-segments`.
    pub spread_segments: bool,
    /// `--consolidate-segments`.
    pub consolidate_segments: bool,
    /// `--contiguous`.
    pub contiguous: bool,
    /// `--placement`.
    pub placement: Option<Placement>,
    /// `--prefer`: features, or a domain.
    #[serde(deserialize_with = "wish")]
    pub prefer: Option<Arc<FeatureExpr>>,
    /// `--network`.
    pub network: Option<NetworkNeed>,
    /// `--het-gather`.
    pub het_gather: Option<HetGather>,
    /// `--gather-with`.
    pub gather_with: Option<JobId>,
}

/// What cannot be read was taken by releases that knew only domains, and had no effect.
fn wish<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<FeatureExpr>>, D::Error> {
    let written = Option::<String>::deserialize(deserializer)?;
    Ok(written.and_then(|written| written.parse().ok()).map(Arc::new))
}

/// What the first node of a batch job runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The script.
    pub script: BlobId,
    /// Its environment, `NAME=VALUE` separated by NUL.
    pub environment: BlobId,
    /// How long both are, in bytes; 0 where that was not noted.
    #[serde(default)]
    pub bytes: u32,
    /// Arguments after the script's name.
    #[serde(default)]
    pub args: Box<[Box<str>]>,
    /// What `scontrol show job` calls Command: the script's path, or empty for `--wrap`.
    #[serde(default)]
    pub command: Box<str>,
    /// Working directory.
    pub work_dir: Box<str>,
    /// `--input`, a pattern; `/dev/null` if not given.
    #[serde(default)]
    pub stdin: Option<Box<str>>,
    /// `--output`, a pattern.
    #[serde(default)]
    pub stdout: Option<Box<str>>,
    /// `--error`, a pattern; joins the output if not given.
    #[serde(default)]
    pub stderr: Option<Box<str>>,
    /// `--open-mode=append`; `None` leaves it to the daemon: truncate, but append after a requeue.
    #[serde(default)]
    pub append: Option<bool>,
    /// File mode creation mask.
    #[serde(default)]
    pub umask: u32,
    /// Soft limits to carry over, as (name, value); `u64::MAX` is unlimited.
    #[serde(default)]
    pub limits: Box<[(Box<str>, u64)]>,
    /// Whether `--propagate` named them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_named: bool,
    /// `--acctg-freq`: seconds between two looks at what the script uses; 0: nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: whether everything of the script's step ends when one of its processes was killed for lack of
    /// memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kill_step: Option<bool>,
}

impl Batch {
    /// A script and its environment in `/`, and nothing else: where others begin.
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

/// The command that asked for an allocation without a batch script: `srun` or `salloc`. The job ends when the command says
/// so, or when nothing has been heard of it for `[controller] inactive_limit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// What `scontrol show job` calls Command: the program that runs in the allocation.
    pub command: Box<str>,
    /// The directory in which it was called.
    pub work_dir: Box<str>,
    /// `salloc --no-shell`: nobody holds the allocation, which ends by its limit or when it is cancelled.
    pub no_shell: bool,
}

/// Options few jobs use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extra {
    /// `--comment`.
    pub comment: Option<Box<str>>,
    /// `--wckey`.
    pub wckey: Option<Box<str>>,
    /// `--extra`: text for other programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Box<str>>,
    /// What an operator says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<Box<str>>,
    /// `--licenses`, name and count.
    pub licenses: Vec<(Box<str>, u32)>,
    /// `--reservation`: names with commas between.
    pub reservation: Option<Box<str>>,
    /// `--no-kill`.
    pub no_kill: bool,
    /// `--no-preempt`: it never makes way for others.
    pub no_preempt: bool,
    /// `--kill-on-invalid-dep`.
    pub kill_on_invalid_dep: Option<bool>,
    /// `--signal`.
    pub signal: Option<WarnSignal>,
    /// The host `sbatch` ran on.
    pub submit_host: Box<str>,
    /// `--mail-type` and `--mail-user`, as written.
    pub mail: Option<(Box<str>, Box<str>)>,
    /// The command line by which it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_line: Option<Box<str>>,
    /// Of the jobs that `--dependency` names, those that had left memory when it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// `--reboot`: its nodes are booted before it starts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reboot: bool,
    /// `--gres-flags=disable-binding`: devices are chosen without a look at which CPUs they are near.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gres_anywhere: bool,
    /// The parts of the request that an operator has set, and limits of which do not hold for the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<Exempt>,
}

/// One job, and what became of it so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub spec: Arc<JobSpec>,
    /// The array it belongs to, and what it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArrayPart>>,
    /// When it was submitted.
    pub submitted: Time,
    /// How often it has been requeued.
    #[serde(default)]
    pub restarts: u32,
    /// What is left of its dependency; `None` when nothing is.
    #[serde(default)]
    pub waits_for: Option<Box<Waits>>,
    /// Whether `waits_for` can no longer be satisfied.
    #[serde(default)]
    pub never: bool,
    /// Where it stands.
    pub phase: Phase,
    /// When it became eligible, of a job that waits no more; a waiting one has it in its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_eligible: Option<Time>,
    /// The start promised to it when it was first at the head of the queue.
    #[serde(default)]
    pub promised: Option<Time>,
    /// Steps that have not ended, in order of creation.
    #[serde(default)]
    pub steps: Vec<Arc<Step>>,
    /// The number the next step gets.
    #[serde(default)]
    pub next_step: StepId,
    /// The highest exit code of its ended steps.
    #[serde(default)]
    pub derived_exit: crate::text::exit::ExitCode,
    /// The time limit it asked for, while it runs with a lower one; it asks for that again if it is requeued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_limit: Option<TimeLimit>,
    /// How the batch script of the attempt ended, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_end: Option<Box<BatchEnd>>,
    /// What the attempt still waits for before anything of it is launched.
    #[serde(default, skip_serializing_if = "Configuring::is_done")]
    pub configuring: Configuring,
    /// Whether the controller's epilog of the attempt has not ended; the job is not over before it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub epilog: bool,
}

/// What an attempt that has its resources waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configuring {
    /// The end of the controller's prolog.
    pub prolog: bool,
    /// Nodes that are off, or on their way up.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<NodeId>,
}

impl Configuring {
    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_done(&self) -> bool {
        *self == Self::default()
    }
}

/// The end of a batch script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEnd {
    /// When it was heard of.
    pub at: Time,
    /// How.
    #[serde(flatten)]
    pub end: StepNodeEnd,
}

impl JobSpec {
    /// Whether its nodes are booted before it starts.
    #[must_use]
    pub fn wants_reboot(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.reboot)
    }

    /// Whether devices are chosen for it without a look at which CPUs they are near.
    #[must_use]
    pub fn takes_any_devices(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.gres_anywhere)
    }

    /// The reservations that are asked for, the first first.
    pub fn reservations(&self) -> impl Iterator<Item = &str> {
        let asked = self.extra.as_ref().and_then(|extra| extra.reservation.as_deref());
        asked.into_iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty())
    }
}

impl Job {
    /// The reason for which a pending job waits whatever nodes are free: a hold, a dependency or its begin time. `None` if
    /// there is none of these, or the job is not pending.
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

    /// Slurm's long and short names of its state.
    #[must_use]
    pub fn state_names(&self) -> (&'static str, &'static str) {
        match &self.phase {
            Phase::Running { .. } if !self.configuring.is_done() => ("CONFIGURING", "CF"),
            phase => phase.names(),
        }
    }

    /// The file that its batch script reads.
    #[must_use]
    pub fn input_path(&self, batch: &Batch) -> String {
        self.file_path(batch, batch.stdin.as_deref().unwrap_or("/dev/null"))
    }

    /// The file of its batch script's standard output; Slurm's default without a pattern.
    #[must_use]
    pub fn output_path(&self, batch: &Batch) -> String {
        let default = if self.array.is_some() { FilePattern::DEFAULT_ARRAY } else { FilePattern::DEFAULT };
        self.file_path(batch, batch.stdout.as_deref().unwrap_or(default))
    }

    /// The file of its batch script's standard error.
    #[must_use]
    pub fn error_path(&self, batch: &Batch) -> String {
        match batch.stderr.as_deref() {
            Some(pattern) => self.file_path(batch, pattern),
            None => self.output_path(batch),
        }
    }

    /// A file of a batch job, as far as it is known outside its nodes: a node's name stays `%N`, as with Slurm.
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

    /// The number of the array it belongs to; of a job that belongs to none, its own.
    #[must_use]
    pub fn array_id(&self) -> JobId {
        self.array.as_ref().map_or(self.id, |part| part.id)
    }

    /// The one task of an array that it stands for.
    #[must_use]
    pub fn task(&self) -> Option<ArrayTaskId> {
        self.array.as_ref().and_then(|part| part.tasks.only()).map(ArrayTaskId)
    }

    /// How many tasks of an array it stands for; 1 for a job that belongs to none.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.array.as_ref().map_or(1, |part| part.tasks.len())
    }

    /// How people name it: `36`, `36_3`, `36_[4-7]`.
    #[must_use]
    pub fn reference(&self) -> JobRef<JobId> {
        let tasks = self.array.as_ref().map(|part| JobPart::Tasks(part.tasks.clone()));
        JobRef { job: self.array_id(), part: tasks.unwrap_or_default(), step: None }
    }

    /// Whether it is of an array of which it was cancelled alone before it started: as in Slurm, only accounting shows it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        let Phase::Ended(ended) = &self.phase else { return false };
        let cancelled = ended.outcome.state == EndState::Cancelled && ended.started.is_none();
        cancelled && self.array.as_ref().is_some_and(|part| part.id != self.id)
    }

    /// What is kept for it while others make way, or while its last attempt ends.
    #[must_use]
    pub fn nomination(&self) -> Option<&Arc<Nomination>> {
        match &self.phase {
            Phase::Pending(pending) => pending.nominated.as_ref(),
            Phase::Completing(completing) => completing.nominated.as_ref(),
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => None,
        }
    }

    /// The time after which it can no longer end before its `--deadline`.
    #[must_use]
    pub fn latest_start(&self) -> Option<Time> {
        let shortest = self.spec.least_time().seconds().unwrap_or(0);
        let deadline = self.spec.deadline?;
        Some(Time(deadline.0.saturating_sub(i64::try_from(shortest).unwrap_or(i64::MAX))))
    }

    /// When it has to end, having started at `started`: at its limit, for which the time that it was suspended does not
    /// count, or with the reservation that it runs in. While it is suspended its limit does not come nearer.
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

    /// How much longer a started job may run: its limit without what it has run.
    #[must_use]
    pub fn remaining(&self, now: Time) -> TimeLimit {
        match self.spec.time_limit.seconds() {
            Some(limit) => TimeLimit::Seconds(limit.saturating_sub(self.phase.run_time(now))),
            None => TimeLimit::Unlimited,
        }
    }

    /// When the signal of `--signal` is due, had it started at `started`.
    #[must_use]
    pub fn warn_at(&self, started: Time) -> Option<Time> {
        let warn = self.spec.extra.as_ref()?.signal.as_ref()?;
        let end = self.ends_at(started);
        (!end.is_never()).then(|| started.max(Time(end.0 - i64::from(warn.seconds))))
    }

    /// When its user is told next how much of its time limit a running job has used, and at how many percent of it.
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

    /// When nothing but resources kept it waiting any more, if that came.
    #[must_use]
    pub fn eligible(&self) -> Option<Time> {
        match &self.phase {
            Phase::Pending(pending) => pending.eligible,
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) | Phase::Ended(_) => {
                self.was_eligible
            }
        }
    }

    /// Whether it may be considered by the planner at `now`: pending, not held, nothing to wait for.
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
