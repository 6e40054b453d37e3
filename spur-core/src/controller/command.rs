//! Everything the controller can be told, in one closed list.

use std::sync::Arc;

use crate::id::{Attempt, HistoryId, JobId, NodeId, RequestId, StepId};
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
use crate::text::exit::ExitCode;
use crate::text::jobid::JobRef;
use crate::text::place::Places;
use crate::text::signal::Signal;
use crate::text::time::{Time, TimeLimit};

use super::{Haste, Program, Reject};

/// What reaches the owner of the cluster.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client asks.
    Command {
        /// Who.
        caller: Caller,
        /// What the client calls this request, if it changes anything.
        request: Option<RequestId>,
        /// What.
        command: Command,
    },
    /// The planner proposes to start a job.
    Start(Box<Start>),
    /// The planner proposes whom to preempt for a job.
    Preempt(Box<Preemption>),
    /// The planner found a job at the head of the queue and when it can start at the latest.
    Promise {
        /// Which.
        job: JobId,
        /// No later than.
        start: Time,
    },
    /// The planner failed while it looked at a job.
    PlanFailed {
        /// Which: it is held until an operator releases it.
        job: JobId,
    },
    /// A node has opened its stream.
    Registered {
        /// The name it goes by.
        name: Arc<str>,
        /// What it said of itself.
        registration: Arc<Registration>,
        /// Attempts in its spool.
        held: Vec<Held>,
        /// Reports that no controller has acknowledged, oldest first: what has ended there meanwhile is known with the
        /// registration.
        reports: Vec<Unacknowledged>,
        /// How far it has been led.
        seen: Seen,
        /// The shell's number of the stream, which comes back in [`Effect::Open`](super::Effect::Open).
        connection: u64,
    },
    /// A node reports.
    Report {
        /// Which.
        node: NodeId,
        /// The number to acknowledge.
        id: u64,
        /// About what.
        attempt: Attempt,
        /// What.
        report: Report,
    },
    /// Nothing was heard of nodes for `[recovery] node_timeout`.
    Silent {
        /// Which; what is lost with them is lost at once.
        nodes: Vec<NodeId>,
    },
    /// A node says whether anything keeps it from taking work.
    Condition {
        /// Which.
        node: NodeId,
        /// What, for people; empty if nothing does.
        fault: Arc<str>,
    },
    /// The controller's prolog or epilog of an attempt has ended.
    ProgramEnded {
        /// Which attempt.
        attempt: Attempt,
        /// Which of the two.
        program: Program,
        /// Why it counts as failed, if it does.
        failed: Option<String>,
    },
    /// The own clock of the cluster as it goes on, and how far the wall's is ahead of it.
    Clock(Clock),
    /// A controller has opened the journal: the first input of each.
    Begin {
        /// A history for a journal that has none.
        history: HistoryId,
        /// What tells this reign from those of copies of the journal.
        reign: u64,
        /// The entry that accounting has got to, and the largest job number in it.
        accounting: (u64, JobId),
    },
    /// The operator lets an old copy of a journal, or another one in the place of one that is lost, go on.
    NewHistory {
        /// The name of what begins.
        history: HistoryId,
        /// A history that is lost, whose nodes are taken over too.
        adopted: Option<HistoryId>,
        /// The largest job number in accounting.
        last_job: JobId,
    },
    /// When usage is set to zero next, by the clock of the cluster, and the time zone whose midnight that is.
    NextReset {
        /// The time; `None` for never.
        at: Option<Time>,
        /// The name of the zone.
        zone: Arc<str>,
    },
    /// The sections `[[qos]]` of the configuration, once its policy is in force at a start. The policy tree begins with
    /// them.
    FileQos(Vec<QosConfig>),
    /// The commands that hold these allocations have not been heard of for `[controller] inactive_limit`.
    Inactive {
        /// Which.
        jobs: Vec<JobId>,
    },
    /// The time that `timers::next_wakeup` named has come.
    Wakeup {
        /// What was due then or before is done.
        due: Time,
    },
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Change accounts, users, associations or QOS.
    ChangeAccounts {
        /// The change.
        ask: Box<Ask>,
        /// What the user has been shown and has agreed to, line by line, if anybody was asked.
        shown: Option<Vec<String>>,
    },
    /// Set comments or derived exit codes of jobs.
    AnnotateJobs {
        /// The runs.
        runs: Vec<Annotated>,
        /// The values.
        note: JobNote,
    },
    /// Accept a job.
    Submit(Box<Submission>),
    /// Cancel jobs.
    Cancel {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Send a signal to jobs or a step.
    Signal {
        /// Which jobs.
        jobs: Vec<JobRef<JobId>>,
        /// Only this step of them.
        step: Option<StepId>,
        /// What to send.
        signal: Signal,
        /// To the batch script.
        batch: bool,
        /// To the steps.
        steps: bool,
    },
    /// Say something to the user of a job.
    Notify {
        /// Which job.
        job: JobId,
        /// What.
        message: String,
    },
    /// Cancel one step.
    CancelStep {
        /// The job.
        job: JobId,
        /// The step.
        step: StepId,
    },
    /// Change how long a step may run.
    LimitStep {
        /// The job.
        job: JobId,
        /// The step.
        step: StepId,
        /// For how long.
        limit: TimeLimit,
    },
    /// Hold pending jobs back.
    Hold {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
        /// Whether the user may release them, even if an operator asks.
        by_user: bool,
    },
    /// Let held jobs go.
    Release {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
    },
    /// End jobs and let them wait again.
    Requeue {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
        /// And hold them.
        hold: bool,
    },
    /// Stop jobs; others may have their CPUs.
    Suspend {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Let suspended jobs go on.
    Resume {
        /// Which.
        jobs: Vec<JobRef<JobId>>,
    },
    /// End a running job and keep other nodes for its next attempt: a move of a [plan](crate::sched::defrag::Defragmentation).
    Move(Box<Start>),
    /// Put jobs that wait before all others of the same user, partition, account and QOS.
    Top {
        /// The first goes first.
        jobs: Vec<JobRef<JobId>>,
    },
    /// Change what a job asks for.
    UpdateJob {
        /// Which.
        job: JobRef<JobId>,
        /// How, in this order.
        changes: Vec<JobChange>,
    },
    /// Lay out a step.
    CreateStep {
        /// In which job.
        job: JobId,
        /// What is asked.
        step: Box<StepSpec>,
    },
    /// A step's client could not launch it on some nodes.
    AbandonStep {
        /// The job.
        job: JobId,
        /// The step.
        step: StepId,
        /// Where it was never launched.
        nodes: Vec<Arc<str>>,
        /// What its tasks count as.
        exit: ExitCode,
    },
    /// End an allocation whose command has ended.
    EndAllocation {
        /// Which.
        job: JobId,
        /// How the command ended.
        exit: ExitCode,
    },
    /// Change nodes.
    UpdateNodes {
        /// Which.
        nodes: Vec<Arc<str>>,
        /// How.
        change: NodeChange,
    },
    /// Create nodes that the configuration does not name, all alike.
    CreateNodes {
        /// Their names.
        nodes: Vec<Arc<str>>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Delete such nodes.
    DeleteNodes {
        /// Which.
        nodes: Vec<Arc<str>>,
    },
    /// Create a partition.
    CreatePartition {
        /// Its name.
        name: Arc<str>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Change a partition, all keys at once.
    UpdatePartition {
        /// Which.
        name: Arc<str>,
        /// Slurm's keys and values, in the order written.
        settings: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Delete a partition that no job is in.
    DeletePartition {
        /// Which.
        name: Arc<str>,
    },
    /// Reserve nodes for some time.
    CreateReservation(Box<ReservationAsk>),
    /// Change such a reservation.
    UpdateReservation(Box<ReservationAsk>),
    /// Delete one.
    DeleteReservation {
        /// Which.
        name: Arc<str>,
    },
    /// Take a new policy.
    Reconfigure(Arc<Policy>),
}

/// A run of a job whose comments are set.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// The run.
    pub run: Attempt,
    /// The owner of the job.
    pub uid: u32,
    /// The line of `sacctmgr` on the job.
    pub line: String,
}

/// A job as it was submitted, before defaults are filled in.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The request; partitions may be empty, and `time_limit` and `requeue` are those below once resolved.
    pub spec: JobSpec,
    /// `--time`.
    pub time_limit: Option<TimeLimit>,
    /// `--requeue`, `--no-requeue`.
    pub requeue: Option<bool>,
    /// The other components, where this is the first one of a het job; theirs are empty.
    pub rest: Vec<Submission>,
}

impl Submission {
    /// The requests of all components.
    pub fn specs_mut(&mut self) -> impl Iterator<Item = &mut JobSpec> {
        std::iter::once(&mut self.spec).chain(self.rest.iter_mut().map(|component| &mut component.spec))
    }

    /// Takes out of all components that the job is held and that it begins later, for one that is only asked about; gives
    /// back when it does.
    pub fn released(&mut self) -> Option<Time> {
        let begins = self.specs_mut().filter_map(|spec| {
            spec.hold = false;
            spec.begin.take()
        });
        begins.max()
    }
}

/// How an operator changes nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeChange {
    /// The state to go to.
    pub state: Option<NodeStateChange>,
    /// Why.
    pub reason: Option<Arc<str>>,
    /// The new weight.
    pub weight: Option<u32>,
    /// The new features.
    pub features: Option<Vec<Arc<str>>>,
    /// The new devices.
    pub gres: Option<Vec<NodeGres>>,
    /// What is said of it.
    pub comment: Option<Arc<str>>,
    /// What is kept there for other programs.
    pub extra: Option<Arc<str>>,
    /// End what runs on it that an earlier history of the journal has left.
    pub end_foreign: bool,
    /// All places that it has in the network from now on.
    pub places: Option<Places>,
}

/// What `scontrol update NodeName=… State=` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStateChange {
    /// Out of service at once; its jobs end.
    Down,
    /// No new work.
    Drain,
    /// Back in service.
    Resume,
    /// No longer drained, otherwise as it is.
    Undrain,
    /// Booted again, once it is free of jobs.
    Reboot {
        /// Whether it is drained for that.
        asap: bool,
        /// What becomes of it then.
        next: Option<NextState>,
    },
    /// Not to be booted again after all.
    CancelReboot,
    /// Switched off.
    PowerDown(Haste),
    /// Switched on.
    PowerUp,
}

/// A report that a node has yet to see acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Unacknowledged {
    /// The number to acknowledge.
    pub id: u64,
    /// The attempt that the report is about.
    pub attempt: Attempt,
    /// The report.
    pub report: Report,
}

/// An attempt in a node's spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub attempt: Attempt,
    /// Whether something of it lives, or may still be launched.
    pub live: bool,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// A job was accepted.
    Submitted {
        /// Its number.
        job: JobId,
        /// What its user should know.
        warnings: Vec<String>,
    },
    /// The journal is an old copy, for this reason: the node is not let in.
    Doubted {
        /// For people.
        why: Arc<str>,
    },
    /// Nodes were reserved.
    Reserved {
        /// Under which name.
        name: Arc<str>,
    },
    /// What was asked was done to some jobs and not to others.
    Jobs {
        /// To these it was not done, and why.
        problems: Vec<(JobRef<JobId>, Reject)>,
        /// What the caller should know.
        warnings: Vec<String>,
    },
    /// A step was laid out.
    Step {
        /// The job's attempt.
        attempt: Attempt,
        /// The step.
        step: Arc<Step>,
    },
    /// Accounts, users, associations or QOS were changed.
    AccountsChanged {
        /// What was done, in the words of `sacctmgr`.
        lines: Vec<String>,
    },
    /// The policy is in force; what has changed, for people.
    Reconfigured {
        /// One sentence each.
        changes: Vec<String>,
    },
}
