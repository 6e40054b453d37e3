//! What happened: the only things that change a cluster, and the only things the journal holds.
//!
//! An event carries results (the very cores, the resolved limits), never the inputs of a decision, so replay decides
//! nothing. **Variants and fields are added, never renamed or reused**; a new field has a default; a variant this
//! release does not know stops the start, because ignoring it would lose something.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::accounts::AccountChange;
use crate::id::{ArrayTaskId, Attempt, HistoryId, JobId, NodeId, RequestId, StepId};
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

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Position: 1 for the first, no gaps.
    pub seq: u64,
    /// The reign of the controller that wrote it; rises with every start.
    pub epoch: u64,
    /// When: never earlier than the entry before.
    pub at: Time,
    /// The request that caused it, if a client made one; asking again gets the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// What happened.
    pub event: Event,
    /// What the clusters of one process that apply this entry share.
    #[serde(skip)]
    pub record: Record,
}

/// The record of a job that an entry brings in. The same entries give the same record, so the first cluster that
/// applies the entry makes it, and the others hold the same memory until one of them changes its own.
#[derive(Clone, Debug, Default)]
pub struct Record(OnceLock<Arc<Job>>);

impl Record {
    /// The record, made by `make` if nobody has made it yet.
    pub(super) fn get_or_make(&self, make: impl Fn() -> Job) -> Arc<Job> {
        let record = self.0.get_or_init(|| Arc::new(make()));
        debug_assert_eq!(**record, make(), "the same entries give the same record");
        Arc::clone(record)
    }
}

/// It follows from the rest of the entry, so it tells no entries apart.
impl PartialEq for Record {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Where a task of an array comes from that got a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The record it waited in.
    pub from: JobId,
    /// Which of its tasks it is.
    pub task: ArrayTaskId,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The journal is of this history from here on.
    HistoryBegun {
        /// Its name.
        history: HistoryId,
        /// The histories that it goes on from, the latest first.
        #[serde(default)]
        parents: Vec<HistoryId>,
        /// The largest job number that anybody is known to have seen; the next job gets a larger one.
        #[serde(default)]
        last_job: JobId,
    },
    /// A controller has opened the journal.
    ReignBegun {
        /// Drawn at random: a copy of the journal that is opened has another one under the same epoch.
        reign: u64,
    },
    /// The journal is an old copy: somebody has seen a later state of it. Nothing starts, ends or changes until a new
    /// history begins.
    JournalDoubted {
        /// Who has seen what, for people.
        why: Arc<str>,
        /// The largest job number that they have seen.
        #[serde(default)]
        last_job: JobId,
    },
    /// The policy half of the configuration is now this one. Nodes with new names are allotted numbers in order.
    PolicyChanged {
        /// Partitions, nodes, scheduler, topologies.
        policy: Arc<Policy>,
        /// Whether what commands have changed of partitions and nodes stays where the file says what it said before.
        /// In entries that do not say so the file replaced it, and nothing could be created.
        #[serde(default)]
        keeps_edits: bool,
    },

    /// A job was accepted.
    JobSubmitted {
        /// Its number.
        job: JobId,
        /// The request, resolved.
        spec: Arc<JobSpec>,
    },
    /// A het job was accepted, all of its components at once.
    HetJobSubmitted {
        /// The numbers of the components, in order: one after another.
        jobs: Vec<JobId>,
        /// Their requests, resolved.
        specs: Vec<Arc<JobSpec>>,
    },
    /// A pending or running job's request was changed.
    JobUpdated {
        /// Which.
        job: JobId,
        /// The request as it is now.
        spec: Arc<JobSpec>,
    },
    /// The comments or the derived exit code of a job were set, whether the cluster still knows the job or not.
    JobAnnotated {
        /// The job.
        job: JobId,
        /// The run of the job, as its number of restarts.
        restarts: u32,
        /// The values.
        note: JobNote,
    },
    /// A pending job is held back.
    JobHeld {
        /// Which.
        job: JobId,
        /// By whom.
        by: Hold,
    },
    /// A held job may run.
    JobReleased {
        /// Which.
        job: JobId,
    },
    /// The start first promised to a job that reached the head of the queue.
    StartPromised {
        /// Which.
        job: JobId,
        /// No later than.
        start: Time,
    },
    /// Nodes are kept for a pending job while others make way for it.
    JobNominated {
        /// Which.
        job: JobId,
        /// What is kept, and who makes way.
        nomination: Arc<Nomination>,
    },
    /// Nothing is kept for a pending job any more: a job that comes before it has taken it over.
    NominationDropped {
        /// Which.
        job: JobId,
    },
    /// A running job was told to make way.
    JobPreempted {
        /// Which.
        job: JobId,
        /// For which job.
        by: JobId,
        /// Whether it is over then or waits again; `None`: it is suspended.
        #[serde(default)]
        then: Option<Then>,
        /// When it is ended or suspended: now, or after its grace time.
        end_at: Time,
    },
    /// A running job is stopped: its CPUs are free, memory and devices stay its own. Of one that is suspended already:
    /// what CPUs it had got back are free again.
    JobSuspended {
        /// Which.
        job: JobId,
        /// Whether it goes on as soon as its CPUs are free; otherwise when an operator says so.
        wanted: bool,
    },
    /// A suspended job is to go on as soon as its CPUs are free.
    JobRecalled {
        /// Which.
        job: JobId,
    },
    /// CPUs of a suspended job are its own again.
    CpusReturned {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
        /// Which of its CPUs there.
        cpus: IdSet,
    },
    /// A suspended job that has all its CPUs again goes on.
    JobResumed {
        /// Which.
        job: JobId,
    },
    /// Some of the tasks of an array that wait as one record got a record of their own.
    TasksSplit {
        /// Its number.
        job: JobId,
        /// The record they were in.
        from: JobId,
        /// Which tasks; never all that were in it.
        tasks: TaskSet,
    },
    /// A pending job got its resources.
    JobStarted {
        /// Which; of a task that is split off, the number that it gets.
        job: JobId,
        /// What it holds.
        alloc: Arc<Alloc>,
        /// Where it comes from, for a task of an array that others wait beside; the last one has the record to itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        split: Option<Split>,
        /// What has to happen before anything of it is launched.
        #[serde(default, skip_serializing_if = "Configuring::is_done")]
        configuring: Configuring,
    },
    /// The controller's prolog of a job has ended well.
    PrologEnded {
        /// Which.
        job: JobId,
    },
    /// The controller's epilog of a job has ended, however.
    EpilogEnded {
        /// Which.
        job: JobId,
    },
    /// A running job was sent the signal it asked for ahead of its time limit.
    JobWarned {
        /// Which.
        job: JobId,
    },
    /// A running job has used a part of its time limit of which its user wants mail.
    TimeUsed {
        /// Which.
        job: JobId,
        /// The part, in percent.
        percent: u8,
    },
    /// The user of a started job has reported that a later attempt can go on from where the job is at this moment.
    JobCheckpointed {
        /// The job.
        job: JobId,
    },
    /// A node of a job failed, and the job goes on without it (`--no-kill`).
    JobNodeLost {
        /// Which job.
        job: JobId,
        /// Which node.
        node: NodeId,
        /// Whether the node may still have something of it, which keeps it from new work until it is gone.
        #[serde(default)]
        lingers: bool,
    },
    /// Other nodes took the places of some that a job had lost.
    JobNodesReplaced {
        /// Which job.
        job: JobId,
        /// Which nodes, and what the job holds of each.
        replaced: Vec<Replacement>,
        /// Why these.
        why: Why,
    },
    /// The end of a job's attempt was decided; its processes may still be there.
    JobEnding {
        /// Which.
        job: JobId,
        /// How it ends.
        outcome: Outcome,
        /// Whether it is over or waits again.
        then: Then,
        /// When what is left of it is killed; `None`: at once.
        #[serde(default)]
        kill_at: Option<Time>,
        /// Whether the controller's epilog is run, which is said once for each attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        epilog: bool,
        /// When the node of the batch script saw it end, if that was before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Time>,
    },
    /// What is left of an ending job was ordered to be killed.
    JobKilled {
        /// Which.
        job: JobId,
    },
    /// A node has nothing of an ending job any more.
    NodeReleased {
        /// Which job.
        job: JobId,
        /// Which node.
        node: NodeId,
        /// Whether the node went silent, so that this is an assumption (`[recovery] overlap`).
        #[serde(default)]
        lost: bool,
    },
    /// A job is over: cancelled while pending, or released by all its nodes.
    JobEnded {
        /// Which.
        job: JobId,
        /// How; the outcome decided before, for a job that ran.
        outcome: Outcome,
    },
    /// A job waits again after an attempt ended.
    JobRequeued {
        /// Which.
        job: JobId,
        /// Not to be started before.
        #[serde(default)]
        not_before: Option<Time>,
        /// Held back by, if anyone.
        #[serde(default)]
        hold: Option<Hold>,
    },
    /// Finished jobs left memory; accounting still has them.
    JobsForgotten {
        /// Which.
        jobs: Vec<JobId>,
        /// Arrays of which no record is left with that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arrays: Vec<JobId>,
    },

    /// A step was laid out inside a running job.
    StepStarted {
        /// Which job.
        job: JobId,
        /// The step.
        step: Arc<Step>,
    },
    /// A user ended a step, whose tasks are killed.
    StepCancelled {
        /// Which job.
        job: JobId,
        /// Which step.
        step: StepId,
        /// The user.
        by: u32,
    },
    /// A step's tasks on one node have ended; the step ends with its last node.
    StepNodeEnded {
        /// Which job.
        job: JobId,
        /// Which step.
        step: StepId,
        /// Which node.
        node: NodeId,
        /// How.
        #[serde(flatten)]
        end: StepNodeEnd,
    },
    /// The batch script of a job has ended, which is an end of the job only while nothing else has ended it.
    BatchEnded {
        /// Which job.
        job: JobId,
        /// How.
        end: StepNodeEnd,
    },

    /// A node registered and can be given work, unless somebody has taken it out of service.
    NodeRegistered {
        /// Which.
        node: NodeId,
        /// What it said.
        registration: Arc<Registration>,
        /// Attempts it still has processes of and that nobody wants.
        #[serde(default)]
        stale: Vec<Attempt>,
        /// Attempts of a history before this one that it still has processes of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        foreign: Vec<Attempt>,
        /// The largest job number that it has seen, if that is larger than any of this journal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_job: Option<JobId>,
    },
    /// An operator has what is foreign on a node ended.
    ForeignDropped {
        /// Which node.
        node: NodeId,
    },
    /// A node got rid of an attempt that nobody wanted.
    NodeCleaned {
        /// Which.
        node: NodeId,
        /// The attempt.
        attempt: Attempt,
    },
    /// A node is out of service.
    NodeDowned {
        /// Which.
        node: NodeId,
        /// Why, for people.
        reason: Arc<str>,
        /// Whether because nothing is heard of it.
        silent: bool,
        /// Who wished it, if somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Arc<str>>,
    },
    /// A node gets no new work.
    NodeDrained {
        /// Which.
        node: NodeId,
        /// Who and why.
        drain: Drain,
    },
    /// A drained or downed node may get work again.
    NodeResumed {
        /// Which.
        node: NodeId,
    },
    /// The own clock of the cluster goes on so from now on, or the wall's clock was set.
    ClockSet {
        /// Both.
        clock: Clock,
    },
    /// What a node was drained for by itself is over.
    NodeMended {
        /// Which.
        node: NodeId,
    },
    /// Something else is done to the host of a node than before, or nothing any more.
    PowerChanged {
        /// Which node.
        node: NodeId,
        /// What is done from now on.
        #[serde(default)]
        power: Option<Power>,
        /// Jobs that have waited for it alone; their time begins.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        jobs: Vec<JobId>,
    },
    /// An operator changed what a node counts as.
    NodeUpdated {
        /// Which.
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
    /// An operator created nodes that the configuration does not name. A new name is allotted the next number.
    NodesCreated {
        /// What they are.
        nodes: Vec<NodeConfig>,
    },
    /// An operator deleted such nodes.
    NodesDeleted {
        /// Which.
        nodes: Vec<NodeId>,
    },
    /// An operator put nodes somewhere else in their topologies.
    NodesMoved {
        /// Which.
        nodes: Vec<NodeId>,
        /// Where they are now, by topology: in the leaf or base block of that full name, or nowhere. In topologies that are
        /// not listed they stay where they are.
        places: BTreeMap<Arc<str>, Option<Arc<str>>>,
    },
    /// An operator opened or closed a partition.
    PartitionSet {
        /// Its name.
        partition: Arc<str>,
        /// What it is now.
        state: crate::model::config::PartitionState,
    },
    /// An operator created a partition, or changed more of it than its state.
    PartitionEdited {
        /// As it is now.
        partition: Arc<PartitionConfig>,
    },
    /// An operator deleted a partition.
    PartitionDeleted {
        /// Its name.
        name: Arc<str>,
    },

    /// Nodes were reserved for some time.
    ReservationCreated {
        /// Which, for whom and when.
        reservation: Arc<Reservation>,
    },
    /// A reservation was changed, or goes on to its next window.
    ReservationUpdated {
        /// As it is now.
        reservation: Arc<Reservation>,
    },
    /// A reservation is over, or an operator deleted it.
    ReservationDeleted {
        /// Its name.
        name: Arc<str>,
    },

    /// Accounts, users, associations or QOS were added, changed or deleted, all of them at once.
    AccountsChanged {
        /// The login name of the user who asked for it.
        by: Arc<str>,
        /// The records as they are now, in an order in which each may be applied.
        changes: Vec<AccountChange>,
    },
    /// The usage of running jobs was counted up to a time, and all usage decayed.
    UsageRolled {
        /// The time up to which usage is counted: a multiple of the period.
        until: Time,
        /// How many periods have ended since usage was last rolled.
        periods: u64,
        /// What is left of all usage, with that which was counted just now.
        #[serde(default)]
        ratio: Ratio,
        /// Whether usage is set to zero instead.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reset: bool,
    },
    /// When usage is set to zero next.
    ResetPlanned {
        /// The time; `None` for never.
        #[serde(default)]
        at: Option<Time>,
        /// The time zone whose midnight that is.
        #[serde(default)]
        zone: Arc<str>,
    },
    /// A user changed how long a step may run.
    StepLimitChanged {
        /// Which job.
        job: JobId,
        /// Which step.
        step: StepId,
        /// Seconds; `None`: as long as the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// The time of a step is over, and its nodes are told to end it.
    StepTimedOut {
        /// Which job.
        job: JobId,
        /// Which step.
        step: StepId,
    },
}

impl Event {
    /// The jobs that the event is about, the record that tasks leave first.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.split().map(|(from, _)| from).into_iter().chain(self.scope().jobs().iter().copied())
    }

    /// The record that tasks of an array were in, and the one of their own that they have got.
    #[must_use]
    pub fn split(&self) -> Option<(JobId, JobId)> {
        match self {
            Event::TasksSplit { job, from, .. }
            | Event::JobStarted { job, split: Some(Split { from, .. }), .. } => Some((*from, *job)),
            _ => None,
        }
    }

    /// The part of the cluster that the event changes. Readers that treat a few events in their own way ask here what
    /// all others mean to them, so a new event is classified in this match alone.
    #[must_use]
    pub fn scope(&self) -> Scope<'_> {
        match self {
            Event::HistoryBegun { .. }
            | Event::ReignBegun { .. }
            | Event::JournalDoubted { .. }
            | Event::ClockSet { .. } => Scope::Journal,
            Event::JobSubmitted { job, .. }
            | Event::JobUpdated { job, .. }
            | Event::JobHeld { job, .. }
            | Event::JobReleased { job }
            | Event::TasksSplit { job, .. }
            | Event::JobEnded { job, .. }
            | Event::JobRequeued { job, .. } => Scope::Queue(std::slice::from_ref(job)),
            Event::HetJobSubmitted { jobs, .. } => Scope::Queue(jobs),
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
    /// The journal: its history, its controller, its clock.
    Journal,
    /// The requests of jobs, or whether these jobs wait for resources.
    Queue(&'e [JobId]),
    /// The resources that jobs hold, or that are kept for them or taken from them.
    Resources(&'e [JobId]),
    /// The progress of jobs and their steps; requests and resources stay as they are.
    Progress(&'e [JobId]),
    /// One node: its service, its power, what it offers.
    Node {
        /// The node.
        node: NodeId,
        /// Jobs that have waited for the node and begin.
        jobs: &'e [JobId],
    },
    /// The configuration: the nodes and partitions that exist, and their places in the topologies.
    Layout,
    /// A reservation.
    Reservation,
    /// The policy tree.
    Accounts,
    /// The usage of associations and QOS.
    Usage,
}

impl<'e> Scope<'e> {
    /// The jobs that the event names.
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
