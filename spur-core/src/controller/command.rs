//! Inputs of the controller, commands of clients, and replies: three closed lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::FeatureLevel;
use crate::id::{Attempt, HistoryId, JobId, NodeId, RequestId, StepId};
use crate::model::accounting::{JobRow, StepRow};
use crate::model::accounts::ask::Ask;
use crate::model::caller::Caller;
use crate::model::change::JobChange;
use crate::model::clock::Clock;
use crate::model::config::{Policy, QosConfig};
use crate::model::history::Seen;
use crate::model::job::JobSpec;
use crate::model::node::{NextState, NodeGres, Registration};
use crate::model::note::JobNote;
pub use crate::model::report::Report;
use crate::model::reservation::ReservationAsk;
use crate::model::step::{Step, StepSpec};
use crate::sched::plan::{Preemption, Start};
use crate::text::ParseError;
use crate::text::exit::ExitCode;
use crate::text::jobid::JobRef;
use crate::text::place::Places;
use crate::text::signal::Signal;
use crate::text::time::{Time, TimeLimit};

use super::{Haste, Program, Reject};

/// An input to the owner of the cluster.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client sends a command.
    Command {
        /// Authenticated caller of the command.
        caller: Caller,
        /// The client's id of this request; `None` if the request changes nothing.
        request: Option<RequestId>,
        /// Command to handle.
        command: Command,
    },
    /// The planner proposes to start a job.
    Start(Box<Start>),
    /// The planner proposes jobs to preempt for another job.
    Preempt(Box<Preemption>),
    /// The planner promises a latest start time to the job at the head of the queue.
    Promise {
        /// The job that gets the promise.
        job: JobId,
        /// The latest start time.
        start: Time,
    },
    /// The planner failed while it planned a job.
    PlanFailed {
        /// The job; it is held until an operator releases it.
        job: JobId,
    },
    /// A node has opened its stream.
    Registered {
        /// The name of the node.
        name: Arc<str>,
        /// The registration of the node.
        registration: Arc<Registration>,
        /// Attempts in the node's spool.
        held: Vec<Held>,
        /// Reports that no controller has acknowledged, oldest first. They are handled with the registration,
        /// so that ends on the node are known at once.
        reports: Vec<Unacknowledged>,
        /// The latest state of the journal that the node has seen.
        seen: Seen,
        /// The shell's number of the stream, which comes back in [`Effect::Open`](super::Effect::Open).
        connection: u64,
    },
    /// A node sends a report.
    Report {
        /// The node that reports.
        node: NodeId,
        /// The report's number, for the acknowledgement.
        id: u64,
        /// The attempt that the report is about.
        attempt: Attempt,
        /// Report of the node.
        report: Report,
    },
    /// These nodes were silent for `[recovery] node_timeout`.
    Silent {
        /// The silent nodes. They are handled together, so that a job that loses several loses them at once.
        nodes: Vec<NodeId>,
    },
    /// A node reports a condition that keeps it from taking work, or the end of that condition.
    Condition {
        /// The node that reports.
        node: NodeId,
        /// The condition in words for administrators; empty if there is none.
        fault: Arc<str>,
    },
    /// The controller's prolog or epilog of an attempt has ended.
    ProgramEnded {
        /// The attempt that the program was run for.
        attempt: Attempt,
        /// The program: prolog or epilog.
        program: Program,
        /// The reason for which the program counts as failed; `None` if it succeeded.
        failed: Option<String>,
    },
    /// The cluster's clock continues from another boot or host, or its offset from the wall clock has
    /// changed.
    Clock(Clock),
    /// A controller has opened the journal: its first input.
    Begin {
        /// The history to begin if the journal has none.
        history: HistoryId,
        /// A random number that distinguishes this reign from those of copies of the journal.
        reign: u64,
        /// The last entry that accounting has recorded, and the largest job number there.
        accounting: (u64, JobId),
    },
    /// An operator begins a new history: for an old copy of the journal, or for a journal that replaces a
    /// lost one.
    NewHistory {
        /// The name of the new history.
        history: HistoryId,
        /// A lost history whose nodes are taken over as well.
        adopted: Option<HistoryId>,
        /// The largest job number in accounting.
        last_job: JobId,
    },
    /// The next reset of usage to zero, on the cluster's clock.
    NextReset {
        /// Time of the reset; `None` for never.
        at: Option<Time>,
        /// The name of the time zone in whose midnight the reset falls.
        zone: Arc<str>,
    },
    /// The `[[qos]]` sections of the configuration, once its policy is in force at a start. A new policy tree
    /// begins with them.
    FileQos(Vec<QosConfig>),
    /// The commands that hold these allocations have been silent for `[controller] inactive_limit`.
    Inactive {
        /// The allocations of the silent commands.
        jobs: Vec<JobId>,
    },
    /// The time that `timers::next_wakeup` returned has come.
    Wakeup {
        /// The time up to which due actions are carried out.
        due: Time,
    },
}

/// A command of a client.
#[derive(Clone, Debug)]
pub enum Command {
    /// Changes accounts, users, associations or QOS.
    ChangeAccounts {
        /// The request, as `sacctmgr` sends it.
        ask: Box<Ask>,
        /// The lines that the user was shown and agreed to; `None` if the user was not asked.
        shown: Option<Vec<String>>,
    },
    /// Set comments or derived exit codes of jobs.
    AnnotateJobs {
        /// The runs whose values are set.
        runs: Vec<Annotated>,
        /// The new values.
        note: JobNote,
    },
    /// Adds ended runs of another batch system to accounting.
    ImportHistory {
        /// The largest job number of the whole import, of which this is a slice.
        last_job: JobId,
        /// The runs.
        jobs: Vec<JobRow>,
        /// The steps of these runs.
        steps: Vec<StepRow>,
    },
    /// Accept a job.
    Submit(Box<Submission>),
    /// Cancels jobs, pending or running.
    Cancel {
        /// The jobs to cancel.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Sends a signal to jobs or a step.
    Signal {
        /// The jobs to signal.
        jobs: Vec<JobRef<JobId>>,
        /// The step to signal; `None` for the jobs as a whole.
        step: Option<StepId>,
        /// The signal to send.
        signal: Signal,
        /// True if the batch script gets the signal.
        batch: bool,
        /// True if the steps get the signal.
        steps: bool,
    },
    /// Sends a message to the user of a job (`scontrol notify`).
    Notify {
        /// The job whose user gets the message.
        job: JobId,
        /// The text of the message.
        message: String,
    },
    /// Cancels one step of a job.
    CancelStep {
        /// The job of the step.
        job: JobId,
        /// The step to cancel.
        step: StepId,
    },
    /// Change the time limit of a step.
    LimitStep {
        /// The job.
        job: JobId,
        /// The step.
        step: StepId,
        /// The new time limit of the step.
        limit: TimeLimit,
    },
    /// Hold pending jobs back.
    Hold {
        /// The jobs to hold.
        jobs: Vec<JobRef<JobId>>,
        /// True if the user may release the jobs even though an operator holds them (`uhold`).
        by_user: bool,
    },
    /// Releases held jobs, so that they may start.
    Release {
        /// The jobs to release.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Requeues jobs: ends them, then lets them wait again.
    Requeue {
        /// The jobs to requeue.
        jobs: Vec<JobRef<JobId>>,
        /// True if the jobs are held afterwards.
        hold: bool,
    },
    /// Suspends jobs; other jobs may use their CPUs.
    Suspend {
        /// The jobs to suspend.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Resumes suspended jobs as soon as their CPUs are free.
    Resume {
        /// The jobs to resume.
        jobs: Vec<JobRef<JobId>>,
    },
    /// End a running job and keep other nodes for its next attempt: a move of a
    /// [plan](crate::sched::defrag::Defragmentation).
    Move(Box<Start>),
    /// Put jobs that wait before all others of the same user, partition, account and QOS.
    Top {
        /// The jobs to move; the first goes first.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Changes the request of a job.
    UpdateJob {
        /// The job to change.
        job: JobRef<JobId>,
        /// The changes, made in this order.
        changes: Vec<JobChange>,
    },
    /// Creates a step in a job.
    CreateStep {
        /// The job in which the step runs.
        job: JobId,
        /// Request for the step.
        step: Box<StepSpec>,
    },
    /// Reports that a step's client could not launch the step on some nodes.
    AbandonStep {
        /// Job of the step.
        job: JobId,
        /// Step that could not be launched.
        step: StepId,
        /// Nodes on which the step was never launched.
        nodes: Vec<Arc<str>>,
        /// The exit code that its tasks get there.
        exit: ExitCode,
    },
    /// Ends an allocation whose command has ended.
    EndAllocation {
        /// The job that holds the allocation.
        job: JobId,
        /// The exit code of the command.
        exit: ExitCode,
    },
    /// Changes the state or the properties of nodes.
    UpdateNodes {
        /// The nodes to change.
        nodes: Vec<Arc<str>>,
        /// Change of all these nodes.
        change: NodeChange,
    },
    /// Creates nodes that the configuration does not name, all with the same settings.
    CreateNodes {
        /// The names of the nodes.
        nodes: Vec<Arc<str>>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Deletes nodes that the configuration does not name.
    DeleteNodes {
        /// The nodes to delete.
        nodes: Vec<Arc<str>>,
    },
    /// Creates a partition that the configuration does not name.
    CreatePartition {
        /// The name of the partition.
        name: Arc<str>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Changes a partition, all keys at once.
    UpdatePartition {
        /// The name of the partition.
        name: Arc<str>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Deletes a partition that no job uses.
    DeletePartition {
        /// The name of the partition.
        name: Arc<str>,
    },
    /// Creates a reservation of nodes.
    CreateReservation(Box<ReservationAsk>),
    /// Changes a reservation of nodes.
    UpdateReservation(Box<ReservationAsk>),
    /// Deletes a reservation of nodes.
    DeleteReservation {
        /// The name of the reservation.
        name: Arc<str>,
    },
    /// Replaces the policy by that of a new configuration.
    Reconfigure(Arc<Policy>),
    /// Raises the cluster's feature level.
    RaiseFeatureLevel {
        /// The new level.
        level: FeatureLevel,
        /// The levels that the other daemons know.
        daemons: KnownLevels,
    },
}

/// The highest feature level that each daemon knows, as far as the shell could ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownLevels {
    /// The connected nodes.
    pub nodes: BTreeMap<NodeId, FeatureLevel>,
    /// The standby controllers by address; `None` for a standby that does not answer.
    pub standbys: BTreeMap<String, Option<FeatureLevel>>,
}

/// A run of a job that gets new comments or a new derived exit code.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// The job and the run.
    pub run: Attempt,
    /// The owner of the job.
    pub uid: u32,
    /// The line that `sacctmgr` prints about the job.
    pub line: String,
}

/// A job as it was submitted, before defaults are filled in.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The request. Its partitions may be empty; its `time_limit` and `requeue` are set from the fields
    /// below.
    pub spec: JobSpec,
    /// The time limit of `--time`, if given.
    pub time_limit: Option<TimeLimit>,
    /// True for `--requeue`, false for `--no-requeue`; `None` if neither was given.
    pub requeue: Option<bool>,
    /// The further components, if this is the first component of a het job. Their own `rest` is empty.
    pub rest: Vec<Submission>,
}

impl Submission {
    /// The requests of all components.
    pub fn specs_mut(&mut self) -> impl Iterator<Item = &mut JobSpec> {
        std::iter::once(&mut self.spec).chain(self.rest.iter_mut().map(|component| &mut component.spec))
    }

    /// Removes hold and begin time from all components, for a request that only asks when the job would
    /// start. Returns the latest begin time that was removed; `None` if no component had one.
    pub fn released(&mut self) -> Option<Time> {
        let begins = self.specs_mut().filter_map(|spec| {
            spec.hold = false;
            spec.begin.take()
        });
        begins.max()
    }
}

/// An operator's change of nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeChange {
    /// The state to go to.
    pub state: Option<NodeStateChange>,
    /// The reason of the change of state.
    pub reason: Option<Arc<str>>,
    /// New weight of the nodes; `None` for no change.
    pub weight: Option<u32>,
    /// New features of the nodes; `None` for no change.
    pub features: Option<Vec<Arc<str>>>,
    /// New devices of the nodes; `None` for no change.
    pub gres: Option<Vec<NodeGres>>,
    /// New comment on the nodes; `None` for no change.
    pub comment: Option<Arc<str>>,
    /// The new text for other programs (`Extra=`).
    pub extra: Option<Arc<str>>,
    /// True to end processes that attempts of an earlier history have left on the nodes.
    pub end_foreign: bool,
    /// The new places in the topologies.
    pub places: Option<NewPlaces>,
}

/// The new places of nodes in the topologies (`Topology=`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPlaces {
    /// Places that the operator names; they replace all earlier ones.
    Named(Places),
    /// The places that each node reports, in the topologies about which it reports something.
    Reported,
}

impl std::str::FromStr for NewPlaces {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.eq_ignore_ascii_case("reported") {
            true => Ok(NewPlaces::Reported),
            false => text.parse().map(NewPlaces::Named),
        }
    }
}

/// States that `scontrol update NodeName=… State=` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStateChange {
    /// Sets the node down at once; its jobs end.
    Down,
    /// Drains the node: no new work.
    Drain,
    /// Puts the node back in service.
    Resume,
    /// Ends the drain of the node and changes nothing else.
    Undrain,
    /// Reboots the node once it has no jobs.
    Reboot {
        /// True if the node is drained until then.
        asap: bool,
        /// The state of the node after the reboot, if one was given.
        next: Option<NextState>,
    },
    /// Cancels a reboot that was requested.
    CancelReboot,
    /// Powers the node down.
    PowerDown(Haste),
    /// Powers the node up.
    PowerUp,
}

/// A report of a node that has not been acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Unacknowledged {
    /// The number to acknowledge.
    pub id: u64,
    /// The attempt that the report is about.
    pub attempt: Attempt,
    /// Unacknowledged report.
    pub report: Report,
}

/// An attempt in a node's spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Attempt in the spool.
    pub attempt: Attempt,
    /// True if the attempt has processes on the node, or may still launch some.
    pub live: bool,
}

/// A reply to a client or a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// A job was accepted.
    Submitted {
        /// The number of the job.
        job: JobId,
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// The journal is an old copy, so the node is not accepted.
    Doubted {
        /// The evidence, in words for administrators.
        why: Arc<str>,
    },
    /// A reservation was created.
    Reserved {
        /// The name of the reservation.
        name: Arc<str>,
    },
    /// The command was carried out for the jobs that are not listed.
    Jobs {
        /// Jobs that were left as they are, with the reasons.
        problems: Vec<(JobRef<JobId>, Reject)>,
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// A step was created.
    Step {
        /// The attempt of the job.
        attempt: Attempt,
        /// The step that was created.
        step: Arc<Step>,
    },
    /// Accounts, users, associations or QOS were changed.
    AccountsChanged {
        /// The changes, in the words of `sacctmgr`.
        lines: Vec<String>,
    },
    /// Ended runs were added to accounting.
    HistoryImported {
        /// Numbers that jobs of this cluster have used; runs with these numbers were left out.
        own: Vec<JobId>,
    },
    /// The policy is in force.
    Reconfigured {
        /// The changes for the administrator, one sentence each.
        changes: Vec<String>,
    },
}
