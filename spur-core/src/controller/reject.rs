//! Refusals. A refused request has changed nothing; the message names the reason and what would work.

use std::sync::Arc;

use crate::cluster::level::{FeatureLevel, TooNew};
use crate::id::{HistoryId, JobId, StepId};
use crate::model::job::HetPart;
use crate::model::reason::Reason;

/// A refusal. Texts are Slurm's where Slurm has one; programs match [`Reject::code`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// There is no job of this number.
    #[error("Invalid job id specified")]
    InvalidJobId,
    /// There is no partition of this name.
    #[error("Invalid partition name specified: '{name}'{}", partitions_here(.known))]
    InvalidPartition {
        /// Name of the requested partition.
        name: String,
        /// The existing partitions, for the message; empty where these are private.
        known: String,
    },
    /// The request names no partition, and none is the default.
    #[error("No partition specified or system default partition")]
    NoDefaultPartition,
    /// The partition accepts no jobs in its present state.
    #[error("Required partition not available (inactive or drain): {0}")]
    PartitionUnavailable(Arc<str>),
    /// The caller may not use the partition.
    #[error("User's group not permitted to use this partition: {0}")]
    PartitionForbidden(Arc<str>),
    /// A job, reservation or other partition still uses the partition.
    #[error("Partition is in use: {0}")]
    PartitionInUse(String),
    /// There is no such QOS, or the job may not have it.
    #[error("Invalid qos specification: {0}")]
    InvalidQos(String),
    /// The job names no account and has no default, its user has no association with the account, or no
    /// partition admits the account.
    #[error("Invalid account or account/partition combination specified: {0}")]
    InvalidAccount(String),
    /// Wckeys are enforced, and the job's wckey is none of its user's, or the job names none and its user has
    /// no default.
    #[error("Invalid wckey specification: {0}")]
    InvalidWckey(String),
    /// The number of nodes exceeds a limit or the size of the partition.
    #[error("Node count specification invalid: {0}")]
    InvalidNodeCount(String),
    /// The time limit exceeds that of the partition, or a time option contradicts another.
    #[error("Requested time limit is invalid (missing or exceeds some limit): {0}")]
    InvalidTimeLimit(String),
    /// A least time that is more than the time limit.
    #[error("Invalid time-min specification (exceeds job's time or other limits): {0}")]
    InvalidTimeMin(String),
    /// No node could ever hold the job.
    #[error("Requested node configuration is not available: {0}")]
    NodeConfigUnavailable(String),
    /// No node has a requested feature.
    #[error("Invalid feature specification: {0}")]
    InvalidFeature(String),
    /// No node has a preferred feature.
    #[error("Invalid preferred feature specification: {0}")]
    InvalidPrefer(String),
    /// No node has requested devices.
    #[error("Invalid generic resource (gres) specification: {0}")]
    InvalidGres(String),
    /// A requested license does not exist, or not in this number.
    #[error("Invalid license specification: {0}")]
    InvalidLicense(String),
    /// The topology can never hold the request.
    #[error("Requested topology configuration is not available: {0}")]
    TopologyUnavailable(String),
    /// A node name is unknown.
    #[error("Invalid node name specified: {0}")]
    InvalidNodeName(String),
    /// The node is not in a state in which the request is possible.
    #[error("Invalid node state specified: {0}")]
    InvalidNodeState(String),
    /// A time in the request is impossible.
    #[error("Invalid time specified: {0}")]
    InvalidTime(String),
    /// There is no such reservation, or its request is invalid.
    #[error("Requested reservation is invalid: {0}")]
    InvalidReservation(String),
    /// The caller may not use the reservation.
    #[error("Access denied to requested reservation: {0}")]
    ReservationForbidden(Arc<str>),
    /// Jobs run in the reservation.
    #[error("Requested reservation is in use: {0}")]
    ReservationBusy(String),
    /// The reservation has begun, so its start cannot be changed.
    #[error("Reservation already started")]
    ReservationBegun,
    /// Another reservation has one of the nodes at that time.
    #[error("Requested reservation overlaps with another reservation: {0}")]
    ReservationOverlap(String),
    /// Jobs use or may use one of the nodes at that time.
    #[error("Requested nodes are busy: {0}")]
    NodesBusy(String),
    /// The job would wait for itself.
    #[error("Circular job dependency")]
    CircularDependency,
    /// The dependency names no job, or too many.
    #[error("Job dependency problem: {0}")]
    Dependency(String),
    /// The array, or the request about an array, is invalid.
    #[error("Invalid job array specification: {0}")]
    InvalidArray(String),
    /// The request contradicts itself or a limit of the system.
    #[error("{0}")]
    Invalid(String),
    /// The caller is neither the owner nor an operator.
    #[error("Access/permission denied")]
    AccessDenied,
    /// The job is ending or has ended.
    #[error("Job/step already completing or completed")]
    AlreadyDone,
    /// Only whole het jobs can be changed in this way.
    #[error(
        "Operation not supported on a single component of a heterogeneous job: this is component {} of job {}; name that",
        .0.offset, .0.leader
    )]
    NotWholeHetJob(HetPart),
    /// Only pending jobs can be changed in this way.
    #[error("Job is no longer pending execution")]
    NotPending,
    /// Only started jobs can be changed in this way.
    #[error("Job is pending execution")]
    Pending,
    /// Only running jobs have an end time that can be changed.
    #[error("Job is not running")]
    NotRunning,
    /// The job is held, so its priority cannot be changed.
    #[error("Job is in held state, pending scheduler release")]
    Held,
    /// A job that is ending cannot be suspended.
    #[error("Requested operation is presently disabled: the job is ending")]
    Ending,
    /// Only suspended jobs can resume.
    #[error("Job is not suspended")]
    NotSuspended,
    /// The job is suspended: it starts no steps and gets no signals.
    #[error("Job/step is suspended; scontrol resume lets it go on")]
    Suspended,
    /// The job may not be requeued.
    #[error("Requested operation is presently disabled: the job was submitted with --no-requeue")]
    NotRequeueable,
    /// There is no such step.
    #[error("Invalid job step specified: {job}.{}", step.label())]
    InvalidStep {
        /// The job of the step.
        job: JobId,
        /// The number of the step.
        step: StepId,
    },
    /// Other steps use the CPUs or devices; a later request may succeed.
    #[error("Requested nodes are busy")]
    StepBusy,
    /// The step can never run in this job.
    #[error("Requested node configuration is not available: {0}")]
    StepTooLarge(String),
    /// The job has too few CPUs for the step's tasks.
    #[error("More processors requested than permitted: {0}")]
    StepTooManyCpus(String),
    /// The job has too little memory for the step.
    #[error("Memory required by task is not available: {0}")]
    StepTooMuchMemory(String),
    /// The controller would hold more than this number of jobs.
    #[error(
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits): with this the controller would hold more than {0} jobs, its max_job_count"
    )]
    TooManyJobs(u32),
    /// The job exceeds a limit of an association or a QOS.
    #[error(
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits): {reason}: {limit}"
    )]
    OverLimit {
        /// Slurm's word for the limit.
        reason: Reason,
        /// The limit in a sentence.
        limit: String,
    },
    /// The configuration does not name the node.
    #[error("node '{0}' is not in the configuration; add it to [[nodes]] and run scontrol reconfigure")]
    UnknownNode(String),
    /// A proposal or input no longer fits the state of the cluster.
    #[error("the cluster has changed since this was planned: {0}")]
    Stale(String),
    /// The search for a possible placement takes long, and another thread carries it out.
    #[error("whether the cluster can ever hold this is still being searched for")]
    Undecided,
    /// A report refers to an attempt that does not exist.
    #[error("nothing is known of that")]
    Unknown,
    /// The journal is an old copy; the value is the evidence.
    #[error(
        "this controller has an old copy of its journal, or one whose end is missing ({0}); it starts and changes nothing. \
         Restore the latest copy. Where that is lost for good, stop spurctld and run spurctld --new-history, which lets it \
         go on from here, without the jobs that are in no copy"
    )]
    OldCopy(Arc<str>),
    /// A daemon registers from another host than the one on which jobs of its node may still run.
    #[error(
        "node {node} is one daemon, and it is the one on host {host}, where job {job} may still run; another host gets the name \
         when that is over, or when scontrol update NodeName={node} State=DOWN Reason=... has said that the first one is dead"
    )]
    KeptByHost {
        /// The node of that name.
        node: Arc<str>,
        /// The host that has the name.
        host: String,
        /// A job that was started on that host.
        job: JobId,
    },
    /// The node belongs to another history than the controller's journal.
    #[error(
        "node {node} belongs to history {theirs}, this controller's journal is of {ours}: is its state directory the \
         right one, and mounted? If history {theirs} is lost for good, stop spurctld and run spurctld --new-history \
         --adopt {theirs}"
    )]
    ForeignNode {
        /// The name of the node.
        node: Arc<str>,
        /// History that the node belongs to.
        theirs: HistoryId,
        /// History that the journal belongs to.
        ours: HistoryId,
    },
    /// A change of accounts, users, associations or QOS is impossible. The text is `sacctmgr`'s.
    #[error("{0}")]
    Accounts(String),
    /// The caller may not make this change of accounts. The text is `sacctmgr`'s.
    #[error("{0}")]
    AccountsDenied(String),
    /// A change of accounts would change nothing. The text is `sacctmgr`'s.
    #[error("{0}")]
    NothingToDo(String),
    /// The request needs a higher feature level than the cluster has.
    #[error(
        "{} needs FeatureLevel={}; this cluster has FeatureLevel={}. Once all controllers and nodes run a release that \
         knows it, scontrol update FeatureLevel={} raises it", .0.words, .0.needs, .0.has, .0.needs
    )]
    NeedsFeatureLevel(TooNew),
    /// The feature level cannot be raised to the requested one.
    #[error("FeatureLevel={asked}: {problem}")]
    InvalidFeatureLevel {
        /// The requested level.
        asked: FeatureLevel,
        /// The reason, with the level that would work or the daemons that are too old.
        problem: String,
    },
    /// The daemon of a node does not know the cluster's feature level.
    #[error(
        "the spurd of node {node} knows FeatureLevel={knows} at most, and the cluster has FeatureLevel={has}: install the \
         release that the controller runs on the node"
    )]
    NodeTooOld {
        /// The name of the node.
        node: Arc<str>,
        /// The highest level that the daemon knows.
        knows: FeatureLevel,
        /// The level of the cluster.
        has: FeatureLevel,
    },
    /// The policy cannot be put in force.
    #[error("{0}")]
    InvalidPolicy(String),
}

/// The part of a message that lists the existing partitions; empty if none may be named.
fn partitions_here(known: &str) -> String {
    if known.is_empty() { String::new() } else { format!("; partitions here: {known}") }
}

impl From<TooNew> for Reject {
    fn from(too_new: TooNew) -> Self {
        Reject::NeedsFeatureLevel(too_new)
    }
}

impl Reject {
    /// The refusal of a het job because of one of its components.
    #[must_use]
    pub fn of_component(self, offset: usize) -> Self {
        let mark = |message: String| format!("component {offset}: {message}");
        match self {
            Reject::InvalidQos(message) => Reject::InvalidQos(mark(message)),
            Reject::InvalidAccount(message) => Reject::InvalidAccount(mark(message)),
            Reject::InvalidWckey(message) => Reject::InvalidWckey(mark(message)),
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

    /// The name of the refusal in Slurm's error codes, for programs.
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
            Reject::InvalidWckey(_) => "ESLURM_INVALID_WCKEY",
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
            Reject::NeedsFeatureLevel(_) | Reject::InvalidFeatureLevel { .. } => "ESLURM_NOT_SUPPORTED",
            Reject::NodeTooOld { .. } => "SLURM_PROTOCOL_VERSION_ERROR",
            Reject::Stale(_) | Reject::Undecided | Reject::Unknown => "ESLURM_STALE",
        }
    }
}
