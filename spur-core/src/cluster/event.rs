//! Events: the only things that change a cluster, and the only things that the journal holds.
//!
//! An event carries results (the exact cores, the resolved limits), never the inputs of a decision, so replay
//! decides nothing. **Variants and fields are added, never renamed or reused**, and a new field has a
//! default. A variant that this release does not know stops the start, because ignoring it would lose data.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::accounts::AccountChange;
use super::level::FeatureLevel;
use crate::id::{ArrayTaskId, Attempt, HistoryId, JobId, NodeId, RequestId, StepId};
use crate::model::accounting::{JobRow, StepRow};
use crate::model::accounts::usage::Ratio;
use crate::model::alloc::{Alloc, Replacement, Why};
use crate::model::clock::Clock;
use crate::model::config::{NodeConfig, PartitionConfig, Policy};
use crate::model::idset::IdSet;
use crate::model::job::{Configuring, Job, JobSpec};
use crate::model::node::{Drain, NodeGres, Power, Registration};
use crate::model::nomination::Nomination;
use crate::model::note::JobNote;
use crate::model::phase::{Hold, Outcome, Then};
use crate::model::reservation::Reservation;
use crate::model::step::{Step, StepNodeEnd};
use crate::text::array::TaskSet;
use crate::text::time::Time;

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Position: 1 for the first, no gaps.
    pub seq: u64,
    /// The epoch of the controller that wrote the entry; rises with every start.
    pub epoch: u64,
    /// Time of the entry on the cluster's clock; never earlier than the entry before.
    pub at: Time,
    /// The id of the client's request that caused the entry, if any. A repeated request gets the first reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The change that the entry makes.
    pub event: Event,
    /// The job record that all clusters of one process share when they apply this entry.
    #[serde(skip)]
    pub record: Record,
}

/// The record of a job that an entry brings in. The same entries give the same record. The first cluster that
/// applies the entry makes it, and the others share that memory until one of them changes its own.
#[derive(Clone, Debug, Default)]
pub struct Record(OnceLock<Arc<Job>>);

impl Record {
    /// The record; made by `make` at the first call.
    pub(super) fn get_or_make(&self, make: impl Fn() -> Job) -> Arc<Job> {
        let record = self.0.get_or_init(|| Arc::new(make()));
        debug_assert_eq!(**record, make(), "the same entries give the same record");
        Arc::clone(record)
    }
}

/// A record follows from the rest of the entry, so two records never make entries differ.
impl PartialEq for Record {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The origin of an array task that gets a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The record in which the task waited.
    pub from: JobId,
    /// The task's index in the array.
    pub task: ArrayTaskId,
}

/// New places of nodes by topology: the full name of a leaf or base block, or `None` for no place.
pub type PlacesByTopology = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// From this entry on, the journal belongs to this history.
    HistoryBegun {
        /// The name of the history.
        history: HistoryId,
        /// The histories that this one continues, the latest first.
        #[serde(default)]
        parents: Vec<HistoryId>,
        /// The largest job number that any node is known to have seen; the next job gets a larger one.
        #[serde(default)]
        last_job: JobId,
    },
    /// A controller has opened the journal.
    ReignBegun {
        /// A random number that identifies the reign. A controller that opens a copy of the journal has the
        /// same epoch, but another number.
        reign: u64,
    },
    /// The cluster has a higher feature level. Entries from this one on may contain what the level has added.
    FeatureLevelRaised {
        /// The level from this entry on.
        level: FeatureLevel,
    },
    /// The journal is an old copy: a node or the accounting has seen a later state. Nothing starts, ends or
    /// changes until a new history begins.
    JournalDoubted {
        /// The evidence, in words for administrators.
        why: Arc<str>,
        /// The largest job number in that evidence.
        #[serde(default)]
        last_job: JobId,
    },
    /// The policy half of the configuration is replaced. Nodes with new names get numbers in order.
    PolicyChanged {
        /// Partitions, nodes, scheduler and topologies.
        policy: Arc<Policy>,
        /// True if the edits that commands made to partitions and nodes stay in force where the file is
        /// unchanged. False in old entries without this field: there the file replaced all edits, and nothing
        /// could be created.
        #[serde(default)]
        keeps_edits: bool,
    },

    /// A job was accepted.
    JobSubmitted {
        /// The number of the job.
        job: JobId,
        /// Request of the job, with all defaults resolved.
        spec: Arc<JobSpec>,
    },
    /// A het job was accepted with all its components.
    HetJobSubmitted {
        /// The numbers of the components, consecutive and in order.
        jobs: Vec<JobId>,
        /// The resolved requests of the components.
        specs: Vec<Arc<JobSpec>>,
    },
    /// The request of a pending or running job was changed.
    JobUpdated {
        /// The job that is changed.
        job: JobId,
        /// The request after the change.
        spec: Arc<JobSpec>,
    },
    /// The comments or the derived exit code of a job were set, whether the cluster still knows the job or
    /// not.
    JobAnnotated {
        /// The job.
        job: JobId,
        /// The run of the job, as its number of restarts.
        restarts: u32,
        /// The new values.
        note: JobNote,
    },
    /// A pending job is held back.
    JobHeld {
        /// The job that is held.
        job: JobId,
        /// The kind of hold: by the user or by an administrator.
        by: Hold,
    },
    /// A held job is released.
    JobReleased {
        /// The job that is released.
        job: JobId,
    },
    /// The first start time promised to a job that reached the head of the queue.
    StartPromised {
        /// The job that got the promise.
        job: JobId,
        /// The latest start time that is promised.
        start: Time,
    },
    /// Nodes are reserved for a pending job while its victims end.
    JobNominated {
        /// The job for which nodes are reserved.
        job: JobId,
        /// The reserved resources, and the victims.
        nomination: Arc<Nomination>,
    },
    /// The nodes reserved for a pending job are released: a job of higher priority has taken them over.
    NominationDropped {
        /// The job that loses its nomination.
        job: JobId,
    },
    /// A running job is preempted by another one.
    JobPreempted {
        /// The preempted job.
        job: JobId,
        /// The job that preempts it.
        by: JobId,
        /// The job ends or is requeued afterwards; `None` if it is suspended instead.
        #[serde(default)]
        then: Option<Then>,
        /// Time at which the job is ended or suspended: at once, or after its grace time.
        end_at: Time,
    },
    /// A running job is suspended: its CPUs are released; it keeps its memory and devices. For a suspended
    /// job, the CPUs that it had got back are released.
    JobSuspended {
        /// The job that is suspended.
        job: JobId,
        /// True if the job resumes as soon as its CPUs are free; false if only an operator resumes it.
        wanted: bool,
    },
    /// A suspended job is to resume as soon as its CPUs are free.
    JobRecalled {
        /// The job that is to resume.
        job: JobId,
    },
    /// A suspended job gets some of its CPUs back.
    CpusReturned {
        /// The suspended job.
        job: JobId,
        /// The node on which CPUs are returned.
        node: NodeId,
        /// The CPUs of that node that are returned.
        cpus: IdSet,
    },
    /// A suspended job that has all its CPUs resumes.
    JobResumed {
        /// The job that resumes.
        job: JobId,
    },
    /// Some of the tasks that wait in one record of an array get a record of their own.
    TasksSplit {
        /// The number of the new record.
        job: JobId,
        /// The record in which the tasks were.
        from: JobId,
        /// The tasks that move; never all of that record.
        tasks: TaskSet,
    },
    /// A pending job got its resources.
    JobStarted {
        /// The job that starts; for a task that is split off, the number of its new record.
        job: JobId,
        /// The resources that the job holds.
        alloc: Arc<Alloc>,
        /// The origin of an array task that is split off from a record with more tasks; `None` if the record
        /// starts whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        split: Option<Split>,
        /// Conditions that must be met before anything of the job is launched.
        #[serde(default, skip_serializing_if = "Configuring::is_done")]
        configuring: Configuring,
    },
    /// The controller's prolog for a job has succeeded.
    PrologEnded {
        /// The job whose prolog has ended.
        job: JobId,
    },
    /// The controller's epilog for a job has ended, with or without success.
    EpilogEnded {
        /// The job whose epilog has ended.
        job: JobId,
    },
    /// A running job was sent the signal of `--signal` ahead of its time limit.
    JobWarned {
        /// The job that was sent the signal.
        job: JobId,
    },
    /// A running job has used a percentage of its time limit about which its user wants mail.
    TimeUsed {
        /// The running job.
        job: JobId,
        /// Percentage of the time limit that is used.
        percent: u8,
    },
    /// The user of a started job reported a checkpoint: a later attempt can go on from this moment of the
    /// job.
    JobCheckpointed {
        /// The job.
        job: JobId,
    },
    /// A node of a job failed, and the job goes on without it (`--no-kill`).
    JobNodeLost {
        /// The job that lost a node.
        job: JobId,
        /// The node that failed.
        node: NodeId,
        /// True if the node may still have processes of the job; it then gets no new work until they are
        /// gone.
        #[serde(default)]
        lingers: bool,
    },
    /// Other nodes replace nodes that a job has lost.
    JobNodesReplaced {
        /// The job that gets other nodes.
        job: JobId,
        /// Each replaced node, with the resources that the job holds on its replacement.
        replaced: Vec<Replacement>,
        /// The reason for the choice of these nodes.
        why: Why,
    },
    /// The end of a job's attempt is decided; its processes may still exist.
    JobEnding {
        /// The job that ends.
        job: JobId,
        /// The outcome of the attempt.
        outcome: Outcome,
        /// The job is finished afterwards, or is requeued.
        then: Then,
        /// Time at which remaining processes are killed; `None` for at once.
        #[serde(default)]
        kill_at: Option<Time>,
        /// True if the controller's epilog is run; set once for each attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        epilog: bool,
        /// Time at which the node of the batch script saw the script end, if that is earlier than the entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Time>,
    },
    /// The kill of an ending job's remaining processes was ordered.
    JobKilled {
        /// The job whose processes are killed.
        job: JobId,
    },
    /// A node has no processes of an ending job left.
    NodeReleased {
        /// The ending job.
        job: JobId,
        /// The node that is released.
        node: NodeId,
        /// True if the node is silent and the release is therefore an assumption (`[recovery] overlap`).
        #[serde(default)]
        lost: bool,
    },
    /// A job is finished: cancelled while pending, or released by all its nodes.
    JobEnded {
        /// The job that is finished.
        job: JobId,
        /// The outcome. For a job that ran, the one that `JobEnding` decided.
        outcome: Outcome,
    },
    /// A job is requeued after an attempt ended.
    JobRequeued {
        /// The job that is requeued.
        job: JobId,
        /// Earliest time of the next start; `None` for no bound.
        #[serde(default)]
        not_before: Option<Time>,
        /// The hold that the requeued job gets, if any.
        #[serde(default)]
        hold: Option<Hold>,
    },
    /// Finished jobs left memory; accounting still has them.
    JobsForgotten {
        /// The jobs that left memory.
        jobs: Vec<JobId>,
        /// Arrays that have no record left in memory afterwards.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arrays: Vec<JobId>,
    },

    /// A step was created in a running job.
    StepStarted {
        /// The job of the step.
        job: JobId,
        /// Step that starts, with its nodes and tasks.
        step: Arc<Step>,
    },
    /// A user cancelled a step; its tasks are killed.
    StepCancelled {
        /// The job of the step.
        job: JobId,
        /// The step that is cancelled.
        step: StepId,
        /// The uid of the user who cancelled it.
        by: u32,
    },
    /// A step's tasks on one node have ended; the step ends with its last node.
    StepNodeEnded {
        /// The job of the step.
        job: JobId,
        /// The step that ends there.
        step: StepId,
        /// The node on which its tasks have ended.
        node: NodeId,
        /// The exit codes and usage on that node.
        #[serde(flatten)]
        end: StepNodeEnd,
    },
    /// The batch script of a job has ended. This ends the job only if nothing else has ended it before.
    BatchEnded {
        /// The job of the script.
        job: JobId,
        /// The exit code and usage of the script.
        end: StepNodeEnd,
    },

    /// A node registered and can be given work, unless an administrator has drained it or set it down.
    NodeRegistered {
        /// The node that registered.
        node: NodeId,
        /// The registration: the node's hardware and state.
        registration: Arc<Registration>,
        /// Attempts of this history that still have processes on the node and must not.
        #[serde(default)]
        stale: Vec<Attempt>,
        /// Attempts of an earlier history that still have processes on the node.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        foreign: Vec<Attempt>,
        /// The largest job number that the node has seen, if it exceeds every number of this journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_job: Option<JobId>,
    },
    /// An operator orders the foreign attempts of a node to be ended.
    ForeignDropped {
        /// The node with the foreign attempts.
        node: NodeId,
    },
    /// A node has no processes of a stale or foreign attempt left.
    NodeCleaned {
        /// The node that is clean of the attempt.
        node: NodeId,
        /// Attempt that was cleaned up.
        attempt: Attempt,
    },
    /// A node is set down, by an operator or by the controller.
    NodeDowned {
        /// The node that is set down.
        node: NodeId,
        /// The reason, in words for administrators.
        reason: Arc<str>,
        /// True if the node is down because it is silent.
        silent: bool,
        /// The operator who set the node down; `None` if the controller did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
    },
    /// A node is drained: it gets no new work.
    NodeDrained {
        /// The node that is drained.
        node: NodeId,
        /// The reason of the drain and its author.
        drain: Drain,
    },
    /// A node that was drained or set down may get work again.
    NodeResumed {
        /// The node that resumes.
        node: NodeId,
    },
    /// The cluster's clock continues from another boot or host, or its offset from the wall clock has
    /// changed.
    ClockSet {
        /// The clock from this time on.
        clock: Clock,
    },
    /// The condition for which a node had drained itself is over.
    NodeMended {
        /// The node that is no longer drained.
        node: NodeId,
    },
    /// The power action on a node's host (power up, power down, reboot) has changed or ended.
    PowerChanged {
        /// The node whose power action changes.
        node: NodeId,
        /// The power action from here on; `None` for none.
        #[serde(default)]
        power: Option<Power>,
        /// Jobs whose last missing node this is; their time begins.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        jobs: Vec<JobId>,
    },
    /// An operator changed properties of a node.
    NodeUpdated {
        /// The node that is changed.
        node: NodeId,
        /// The new weight, if it changed.
        #[serde(default)]
        weight: Option<u32>,
        /// The new features, if they changed.
        #[serde(default)]
        features: Option<Vec<Arc<str>>>,
        /// The new devices, if they changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gres: Option<Vec<NodeGres>>,
        /// The new comment, if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<Arc<str>>,
        /// The new text for other programs (`Extra=`), if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extra: Option<Arc<str>>,
    },
    /// An operator created nodes that the configuration does not name. Each new name gets the next number.
    NodesCreated {
        /// The configuration of the new nodes.
        nodes: Vec<NodeConfig>,
    },
    /// An operator deleted nodes that the configuration does not name.
    NodesDeleted {
        /// The nodes that are deleted.
        nodes: Vec<NodeId>,
    },
    /// Nodes were moved in their topologies: by an operator, or to where they report to be.
    NodesMoved {
        /// The nodes that are moved.
        nodes: Vec<NodeId>,
        /// The new place by topology: the leaf or base block of that full name, which is made if there is
        /// none, or `None` for no place. In topologies that are not listed the nodes stay where they are.
        places: PlacesByTopology,
    },
    /// An operator changed the state of a partition.
    PartitionSet {
        /// The name of the partition.
        partition: Arc<str>,
        /// New state of the partition.
        state: crate::model::config::PartitionState,
    },
    /// An operator created a partition, or changed more of it than its state.
    PartitionEdited {
        /// The configuration of the partition after the change.
        partition: Arc<PartitionConfig>,
    },
    /// An operator deleted a partition.
    PartitionDeleted {
        /// The name of the partition.
        name: Arc<str>,
    },

    /// A reservation of nodes was created.
    ReservationCreated {
        /// The reservation, with its nodes, users and times.
        reservation: Arc<Reservation>,
    },
    /// A reservation was changed, or moves to its next window.
    ReservationUpdated {
        /// The reservation after the change.
        reservation: Arc<Reservation>,
    },
    /// A reservation is over, or an operator deleted it.
    ReservationDeleted {
        /// The name of the reservation.
        name: Arc<str>,
    },

    /// Accounts, users, associations or QOS were added, changed or deleted; all changes take effect together.
    AccountsChanged {
        /// The login name of the user who made the request.
        by: Arc<str>,
        /// The records after the change, in an order in which each may be applied.
        changes: Vec<AccountChange>,
    },
    /// Jobs begin to gain priority by age, within limits on the number of such jobs.
    AccrualBegun {
        /// The jobs, all pending.
        jobs: Vec<JobId>,
    },
    /// Jobs keep a priority from which they would fall (`INCR_ONLY`).
    PrioritiesKept {
        /// The jobs, all pending.
        jobs: Vec<JobId>,
        /// The priority of each job, in the order of `jobs`.
        priorities: Vec<u32>,
    },
    /// The usage of running jobs was counted up to a time, and all usage decayed.
    UsageRolled {
        /// The time up to which usage is counted: a multiple of the period.
        until: Time,
        /// Number of periods that have ended since usage was last rolled.
        periods: u64,
        /// The factor that all usage is multiplied by, the usage just counted included.
        #[serde(default)]
        ratio: Ratio,
        /// True if usage is set to zero instead.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reset: bool,
    },
    /// The next reset of usage to zero was planned.
    ResetPlanned {
        /// Time of the reset; `None` for never.
        #[serde(default)]
        at: Option<Time>,
        /// The time zone in whose midnight the reset falls.
        #[serde(default)]
        zone: Arc<str>,
    },
    /// Ended runs of another batch system were added to accounting.
    HistoryImported {
        /// The largest job number of the import. Numbers above the largest one used so far, up to this one,
        /// are kept for imported jobs; the next job gets a larger number.
        last_job: JobId,
        /// The runs. None has a number that a job of this cluster has used.
        #[serde(default)]
        jobs: Vec<JobRow>,
        /// The steps of these runs.
        #[serde(default)]
        steps: Vec<StepRow>,
    },
    /// A user changed the time limit of a step.
    StepLimitChanged {
        /// Number of the job.
        job: JobId,
        /// Number of the step.
        step: StepId,
        /// The new limit in seconds; `None`: as long as the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// The time of a step is over, and its nodes are told to end it.
    StepTimedOut {
        /// Number of the job.
        job: JobId,
        /// Number of the step.
        step: StepId,
    },
}

impl Event {
    /// The jobs that the event is about. If tasks are split off, the record that they leave comes first.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.split().map(|(from, _)| from).into_iter().chain(self.scope().jobs().iter().copied())
    }

    /// The record that array tasks leave, and their new record; `None` if the event splits nothing.
    #[must_use]
    pub fn split(&self) -> Option<(JobId, JobId)> {
        match self {
            Event::TasksSplit { job, from, .. }
            | Event::JobStarted { job, split: Some(Split { from, .. }), .. } => Some((*from, *job)),
            _ => None,
        }
    }

    /// The part of the cluster that the event changes. Readers that handle a few events themselves use the
    /// scope for all others, so a new event is classified in this match alone.
    #[must_use]
    pub fn scope(&self) -> Scope<'_> {
        match self {
            Event::HistoryBegun { .. }
            | Event::ReignBegun { .. }
            | Event::FeatureLevelRaised { .. }
            | Event::JournalDoubted { .. }
            | Event::HistoryImported { .. }
            | Event::ClockSet { .. } => Scope::Journal,
            Event::JobSubmitted { job, .. }
            | Event::JobUpdated { job, .. }
            | Event::JobHeld { job, .. }
            | Event::JobReleased { job }
            | Event::TasksSplit { job, .. }
            | Event::JobEnded { job, .. }
            | Event::JobRequeued { job, .. } => Scope::Queue(std::slice::from_ref(job)),
            Event::HetJobSubmitted { jobs, .. }
            | Event::AccrualBegun { jobs }
            | Event::PrioritiesKept { jobs, .. } => Scope::Queue(jobs),
            Event::JobNominated { job, .. }
            | Event::NominationDropped { job }
            | Event::JobPreempted { job, .. }
            | Event::JobStarted { job, .. }
            | Event::JobSuspended { job, .. }
            | Event::JobRecalled { job }
            | Event::CpusReturned { job, .. }
            | Event::JobResumed { job }
            | Event::JobNodeLost { job, .. }
            | Event::JobNodesReplaced { job, .. }
            | Event::JobEnding { job, .. }
            | Event::NodeReleased { job, .. } => Scope::Resources(std::slice::from_ref(job)),
            Event::StartPromised { job, .. }
            | Event::JobAnnotated { job, .. }
            | Event::PrologEnded { job }
            | Event::EpilogEnded { job }
            | Event::JobWarned { job }
            | Event::TimeUsed { job, .. }
            | Event::JobCheckpointed { job }
            | Event::JobKilled { job }
            | Event::StepStarted { job, .. }
            | Event::StepCancelled { job, .. }
            | Event::StepLimitChanged { job, .. }
            | Event::StepTimedOut { job, .. }
            | Event::StepNodeEnded { job, .. }
            | Event::BatchEnded { job, .. } => Scope::Progress(std::slice::from_ref(job)),
            Event::JobsForgotten { jobs, .. } => Scope::Progress(jobs),
            Event::NodeRegistered { node, .. }
            | Event::ForeignDropped { node }
            | Event::NodeCleaned { node, .. }
            | Event::NodeDowned { node, .. }
            | Event::NodeDrained { node, .. }
            | Event::NodeResumed { node }
            | Event::NodeMended { node }
            | Event::NodeUpdated { node, .. } => Scope::Node { node: *node, jobs: &[] },
            Event::PowerChanged { node, jobs, .. } => Scope::Node { node: *node, jobs },
            Event::PolicyChanged { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::NodesMoved { .. }
            | Event::PartitionSet { .. }
            | Event::PartitionEdited { .. }
            | Event::PartitionDeleted { .. } => Scope::Layout,
            Event::ReservationCreated { .. }
            | Event::ReservationUpdated { .. }
            | Event::ReservationDeleted { .. } => Scope::Reservation,
            Event::AccountsChanged { .. } => Scope::Accounts,
            Event::UsageRolled { .. } | Event::ResetPlanned { .. } => Scope::Usage,
        }
    }
}

/// The part of the cluster that an event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'e> {
    /// The journal: its history, its controller, its clock, its job numbers.
    Journal,
    /// Requests of jobs, or the set of jobs that wait for resources.
    Queue(&'e [JobId]),
    /// Resources that jobs hold, or that are reserved for them or taken from them.
    Resources(&'e [JobId]),
    /// Progress of jobs and their steps, without a change of requests or resources.
    Progress(&'e [JobId]),
    /// One node: its service state, its power, its properties.
    Node {
        /// Node whose state, power or properties changed.
        node: NodeId,
        /// Jobs that waited for the node only; their time begins.
        jobs: &'e [JobId],
    },
    /// The configuration: the nodes and partitions that exist, and their places in the topologies.
    Layout,
    /// A reservation of nodes and time.
    Reservation,
    /// The policy tree of accounts, users and QOS.
    Accounts,
    /// The usage of associations and QOS.
    Usage,
}

impl<'e> Scope<'e> {
    /// The jobs that the scope names.
    fn jobs(self) -> &'e [JobId] {
        match self {
            Scope::Queue(jobs)
            | Scope::Resources(jobs)
            | Scope::Progress(jobs)
            | Scope::Node { jobs, .. } => jobs,
            Scope::Journal | Scope::Layout | Scope::Reservation | Scope::Accounts | Scope::Usage => &[],
        }
    }
}
