//! Refusals: nothing was changed, and the caller is told why and what would work.

use std::sync::Arc;

use crate::id::{HistoryId, JobId, StepId};
use crate::model::job::HetPart;
use crate::model::reason::Reason;

/// Why something was not done. Texts are Slurm's where Slurm has one; programs match [`Reject::code`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// No such job.
    #[error("Invalid job id specified")]
    InvalidJobId,
    /// No such partition.
    #[error("Invalid partition name specified: '{name}'{}", partitions_here(.known))]
    InvalidPartition {
        /// What was asked for.
        name: String,
        /// What there is, for people; empty where that is private.
        known: String,
    },
    /// None was named and there is no default.
    #[error("No partition specified or system default partition")]
    NoDefaultPartition,
    /// The partition takes nothing now.
    #[error("Required partition not available (inactive or drain): {0}")]
    PartitionUnavailable(Arc<str>),
    /// The caller may not use it.
    #[error("User's group not permitted to use this partition: {0}")]
    PartitionForbidden(Arc<str>),
    /// Something still needs the partition.
    #[error("Partition is in use: {0}")]
    PartitionInUse(String),
    /// No such QOS, or one that the job cannot have.
    #[error("Invalid qos specification: {0}")]
    InvalidQos(String),
    /// An account that the partition does not take.
    #[error("Invalid account or account/partition combination specified: {0}")]
    InvalidAccount(String),
    /// More or fewer nodes than the partition allows, or than there are.
    #[error("Node count specification invalid: {0}")]
    InvalidNodeCount(String),
    /// More time than the partition allows.
    #[error("Requested time limit is invalid (missing or exceeds some limit): {0}")]
    InvalidTimeLimit(String),
    /// A least time that is more than the time limit.
    #[error("Invalid time-min specification (exceeds job's time or other limits): {0}")]
    InvalidTimeMin(String),
    /// No node could ever hold it.
    #[error("Requested node configuration is not available: {0}")]
    NodeConfigUnavailable(String),
    /// A feature that no node has.
    #[error("Invalid feature specification: {0}")]
    InvalidFeature(String),
    /// A feature to be preferred that no node has.
    #[error("Invalid preferred feature specification: {0}")]
    InvalidPrefer(String),
    /// Devices of a kind that no node has.
    #[error("Invalid generic resource (gres) specification: {0}")]
    InvalidGres(String),
    /// A license that there is not, or not so often.
    #[error("Invalid license specification: {0}")]
    InvalidLicense(String),
    /// The topology can never hold it.
    #[error("Requested topology configuration is not available: {0}")]
    TopologyUnavailable(String),
    /// Unknown node names.
    #[error("Invalid node name specified: {0}")]
    InvalidNodeName(String),
    /// A state that the node is not in, or cannot go to.
    #[error("Invalid node state specified: {0}")]
    InvalidNodeState(String),
    /// A time that cannot be.
    #[error("Invalid time specified: {0}")]
    InvalidTime(String),
    /// No such reservation, or one that cannot be.
    #[error("Requested reservation is invalid: {0}")]
    InvalidReservation(String),
    /// A reservation that the caller may not use.
    #[error("Access denied to requested reservation: {0}")]
    ReservationForbidden(Arc<str>),
    /// Jobs run in it.
    #[error("Requested reservation is in use: {0}")]
    ReservationBusy(String),
    /// Its start cannot be changed any more.
    #[error("Reservation already started")]
    ReservationBegun,
    /// Another one has its nodes at that time.
    #[error("Requested reservation overlaps with another reservation: {0}")]
    ReservationOverlap(String),
    /// Jobs have them at that time.
    #[error("Requested nodes are busy: {0}")]
    NodesBusy(String),
    /// A dependency by which a job waits for itself.
    #[error("Circular job dependency")]
    CircularDependency,
    /// A dependency that names no job.
    #[error("Job dependency problem: {0}")]
    Dependency(String),
    /// An array that there cannot be, or something that is asked of one.
    #[error("Invalid job array specification: {0}")]
    InvalidArray(String),
    /// Something in the request contradicts itself.
    #[error("{0}")]
    Invalid(String),
    /// Neither owner nor operator.
    #[error("Access/permission denied")]
    AccessDenied,
    /// The job is over.
    #[error("Job/step already completing or completed")]
    AlreadyDone,
    /// It is done to whole het jobs only.
    #[error(
        "Operation not supported on a single component of a heterogeneous job: this is component {} of job {}; name that",
        .0.offset, .0.leader
    )]
    NotWholeHetJob(HetPart),
    /// Only pending jobs can be changed so.
    #[error("Job is no longer pending execution")]
    NotPending,
    /// Only running jobs can be changed so.
    #[error("Job is pending execution")]
    Pending,
    /// Only running jobs have an end that can be changed.
    #[error("Job is not running")]
    NotRunning,
    /// Somebody holds it.
    #[error("Job is in held state, pending scheduler release")]
    Held,
    /// Only running jobs can be suspended.
    #[error("Requested operation is presently disabled: the job is ending")]
    Ending,
    /// Only suspended jobs can go on.
    #[error("Job is not suspended")]
    NotSuspended,
    /// It is stopped, and starts and hears nothing.
    #[error("Job/step is suspended; scontrol resume lets it go on")]
    Suspended,
    /// It may not be requeued.
    #[error("Requested operation is presently disabled: the job was submitted with --no-requeue")]
    NotRequeueable,
    /// No such step.
    #[error("Invalid job step specified: {job}.{}", step.label())]
    InvalidStep {
        /// The job.
        job: JobId,
        /// The step.
        step: StepId,
    },
    /// The step's CPUs are taken by other steps; asking again after one ends may work.
    #[error("Requested nodes are busy")]
    StepBusy,
    /// The step can never run in this job.
    #[error("Requested node configuration is not available: {0}")]
    StepTooLarge(String),
    /// The job has not the CPUs for the step's tasks.
    #[error("More processors requested than permitted: {0}")]
    StepTooManyCpus(String),
    /// The job has not the memory that the step asks for.
    #[error("Memory required by task is not available: {0}")]
    StepTooMuchMemory(String),
    /// Too many jobs.
    #[error(
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits): with this the controller would hold more than {0} jobs, its max_job_count"
    )]
    TooManyJobs(u32),
    /// A limit of an association or a QOS.
    #[error(
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits): {reason}: {limit}"
    )]
    OverLimit {
        /// Slurm's word for the limit.
        reason: Reason,
        /// The limit in a sentence.
        limit: String,
    },
    /// A node that the configuration does not name.
    #[error("node '{0}' is not in the configuration; add it to [[nodes]] and run scontrol reconfigure")]
    UnknownNode(String),
    /// A proposal that no longer fits.
    #[error("the cluster has changed since this was planned: {0}")]
    Stale(String),
    /// Whether the cluster can ever hold what is asked for takes long to find out, and is found out elsewhere.
    #[error("whether the cluster can ever hold this is still being searched for")]
    Undecided,
    /// A report from a node about an attempt that is not there.
    #[error("nothing is known of that")]
    Unknown,
    /// The journal is an old copy, for this reason.
    #[error(
        "this controller has an old copy of its journal, or one whose end is missing ({0}); it starts and changes nothing. \
         Restore the latest copy. Where that is lost for good, stop spurctld and run spurctld --new-history, which lets it \
         go on from here, without the jobs that are in no copy"
    )]
    OldCopy(Arc<str>),
    /// A daemon on another host than the one on which the node's jobs were started.
    #[error(
        "node {node} is one daemon, and it is the one on host {host}, where job {job} may still run; another host gets the name \
         when that is over, or when scontrol update NodeName={node} State=DOWN Reason=... has said that the first one is dead"
    )]
    KeptByHost {
        /// The node.
        node: Arc<str>,
        /// The host that has the name.
        host: String,
        /// A job that was started there.
        job: JobId,
    },
    /// A node that belongs to another history than the controller's journal.
    #[error(
        "node {node} belongs to history {theirs}, this controller's journal is of {ours}: is its state directory the \
         right one, and mounted? If history {theirs} is lost for good, stop spurctld and run spurctld --new-history \
         --adopt {theirs}"
    )]
    ForeignNode {
        /// Which node.
        node: Arc<str>,
        /// Its history.
        theirs: HistoryId,
        /// The journal's.
        ours: HistoryId,
    },
    /// A change of accounts, users, associations or QOS that cannot be made. The text is `sacctmgr`'s.
    #[error("{0}")]
    Accounts(String),
    /// Such a change that the caller has no right to make. The text is `sacctmgr`'s.
    #[error("{0}")]
    AccountsDenied(String),
    /// Such a change after which everything would be as it is. The text is `sacctmgr`'s.
    #[error("{0}")]
    NothingToDo(String),
    /// A policy that cannot be put in force.
    #[error("{0}")]
    InvalidPolicy(String),
}

/// The partitions that may be named instead; nothing where none is to be told.
fn partitions_here(known: &str) -> String {
    if known.is_empty() { String::new() } else { format!("; partitions here: {known}") }
}

impl Reject {
    /// The refusal of a het job because of one of its components.
    #[must_use]
    pub fn of_component(self, offset: usize) -> Self {
        let mark = |message: String| format!("component {offset}: {message}");
        match self {
            Reject::InvalidQos(message) => Reject::InvalidQos(mark(message)),
            Reject::InvalidAccount(message) => Reject::InvalidAccount(mark(message)),
            Reject::InvalidNodeCount(message) => Reject::InvalidNodeCount(mark(message)),
            Reject::InvalidTimeLimit(message) => Reject::InvalidTimeLimit(mark(message)),
            Reject::InvalidTimeMin(message) => Reject::InvalidTimeMin(mark(message)),
            Reject::NodeConfigUnavailable(message) => Reject::NodeConfigUnavailable(mark(message)),
            Reject::InvalidFeature(message) => Reject::InvalidFeature(mark(message)),
            Reject::InvalidPrefer(message) => Reject::InvalidPrefer(mark(message)),
            Reject::InvalidGres(message) => Reject::InvalidGres(mark(message)),
            Reject::InvalidLicense(message) => Reject::InvalidLicense(mark(message)),
            Reject::TopologyUnavailable(message) => Reject::TopologyUnavailable(mark(message)),
            Reject::InvalidNodeName(message) => Reject::InvalidNodeName(mark(message)),
            Reject::Dependency(message) => Reject::Dependency(mark(message)),
            Reject::Invalid(message) => Reject::Invalid(mark(message)),
            other => other,
        }
    }

    /// Slurm's name for it, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Reject::InvalidJobId => "ESLURM_INVALID_JOB_ID",
            Reject::InvalidPartition { .. } => "ESLURM_INVALID_PARTITION_NAME",
            Reject::NoDefaultPartition => "ESLURM_DEFAULT_PARTITION_NOT_SET",
            Reject::PartitionUnavailable(_) => "ESLURM_PARTITION_NOT_AVAIL",
            Reject::PartitionForbidden(_) => "ESLURM_USER_GROUP_ID_MISSING",
            Reject::PartitionInUse(_) => "ESLURM_PARTITION_IN_USE",
            Reject::InvalidQos(_) => "ESLURM_INVALID_QOS",
            Reject::InvalidAccount(_) => "ESLURM_INVALID_ACCOUNT",
            Reject::InvalidNodeCount(_) => "ESLURM_INVALID_NODE_COUNT",
            Reject::InvalidTimeLimit(_) => "ESLURM_INVALID_TIME_LIMIT",
            Reject::InvalidTimeMin(_) => "ESLURM_INVALID_TIME_MIN_LIMIT",
            Reject::NodeConfigUnavailable(_) | Reject::StepTooLarge(_) => {
                "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
            }
            Reject::StepTooManyCpus(_) => "ESLURM_TOO_MANY_REQUESTED_CPUS",
            Reject::StepTooMuchMemory(_) => "ESLURM_INVALID_TASK_MEMORY",
            Reject::InvalidFeature(_) => "ESLURM_INVALID_FEATURE",
            Reject::InvalidPrefer(_) => "ESLURM_INVALID_PREFER",
            Reject::InvalidGres(_) => "ESLURM_INVALID_GRES",
            Reject::InvalidLicense(_) => "ESLURM_INVALID_LICENSES",
            Reject::TopologyUnavailable(_) => "ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE",
            Reject::InvalidNodeName(_) | Reject::UnknownNode(_) => "ESLURM_INVALID_NODE_NAME",
            Reject::InvalidNodeState(_) => "ESLURM_INVALID_NODE_STATE",
            Reject::InvalidTime(_) => "ESLURM_INVALID_TIME_VALUE",
            Reject::InvalidReservation(_) => "ESLURM_RESERVATION_INVALID",
            Reject::ReservationForbidden(_) => "ESLURM_RESERVATION_ACCESS",
            Reject::ReservationBusy(_) => "ESLURM_RESERVATION_BUSY",
            Reject::ReservationBegun => "ESLURM_RSV_ALREADY_STARTED",
            Reject::ReservationOverlap(_) => "ESLURM_RESERVATION_OVERLAP",
            Reject::Dependency(_) => "ESLURM_DEPENDENCY",
            Reject::CircularDependency => "ESLURM_CIRCULAR_DEPENDENCY",
            Reject::InvalidArray(_) => "ESLURM_INVALID_ARRAY",
            Reject::Invalid(_) | Reject::InvalidPolicy(_) => "ESLURM_INVALID_REQUEST",
            Reject::AccessDenied | Reject::AccountsDenied(_) => "ESLURM_ACCESS_DENIED",
            Reject::Accounts(_) => "ESLURM_INVALID_ACCOUNT_CHANGE",
            Reject::NothingToDo(_) => "SLURM_NO_CHANGE_IN_DATA",
            Reject::AlreadyDone => "ESLURM_ALREADY_DONE",
            Reject::NotWholeHetJob(_) => "ESLURM_NOT_WHOLE_HET_JOB",
            Reject::NotPending => "ESLURM_JOB_NOT_PENDING",
            Reject::Pending => "ESLURM_JOB_PENDING",
            Reject::Held => "ESLURM_JOB_HELD",
            Reject::NotRunning => "ESLURM_JOB_NOT_RUNNING",
            Reject::NotRequeueable | Reject::Ending | Reject::NotSuspended => "ESLURM_DISABLED",
            Reject::Suspended => "ESLURM_TRANSITION_STATE_NO_UPDATE",
            Reject::InvalidStep { .. } => "ESLURM_INVALID_JOB_STEP",
            Reject::StepBusy | Reject::NodesBusy(_) => "ESLURM_NODES_BUSY",
            Reject::TooManyJobs(_) | Reject::OverLimit { .. } => "ESLURM_ACCOUNTING_POLICY",
            Reject::OldCopy(_) => "ESLURM_OLD_COPY",
            Reject::ForeignNode { .. } => "ESLURM_FOREIGN_HISTORY",
            Reject::KeptByHost { .. } => "ESLURM_NODE_ALREADY_REGISTERED",
            Reject::Stale(_) | Reject::Undecided | Reject::Unknown => "ESLURM_STALE",
        }
    }
}
