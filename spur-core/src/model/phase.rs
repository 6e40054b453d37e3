//! The phases of a job's life. Each carries its own data; there are no flags besides.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::{Alloc, NodeAlloc};
use super::idset::IdSet;
use super::nomination::Nomination;
use super::reason::Reason;
use crate::id::{JobId, NodeId};
use crate::text::exit::ExitCode;
use crate::text::time::Time;

/// The phase of a job's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The job is pending.
    Pending(Pending),
    /// The job runs on its nodes.
    Running {
        /// The resources that the job holds.
        alloc: Arc<Alloc>,
        /// Time of its start.
        started: Time,
        /// True if the signal of `--signal` has been sent.
        #[serde(default)]
        warned: bool,
        /// The percentage of its time limit of the last mail; 0 for none.
        #[serde(default, skip_serializing_if = "is_none")]
        told: u8,
        /// Preemption of the job, which still runs during its grace time; `None` if it is not preempted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        /// Time by which the job must have ended because its reservation ends; `None` for no such time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_by: Option<Time>,
        /// Suspensions of the job before the present one.
        #[serde(default, skip_serializing_if = "Pauses::is_none")]
        pauses: Pauses,
        /// The last checkpoint that its user has reported; `None` if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<Checkpoint>,
    },
    /// The job is suspended: it keeps memory and devices, and other jobs may use its CPUs.
    Suspended(Suspended),
    /// The job has ended or is being ended, and some node still has something of it.
    Completing(Completing),
    /// The job is finished.
    Ended(Ended),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_none(percent: &u8) -> bool {
    *percent == 0
}

/// The preemption of a started job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted {
    /// Job that preempts the started one.
    pub by: JobId,
    /// Time of the decision.
    pub at: Time,
    /// Time at which its grace time is over and it is ended or suspended.
    pub end_at: Time,
    /// The job ends or is requeued; `None` if it is suspended.
    #[serde(default)]
    pub then: Option<Then>,
}

/// A checkpoint of a job, from which its next attempt can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Time at which the user reported the checkpoint.
    pub at: Time,
    /// Seconds that the attempt had run by then.
    pub ran: u64,
}

/// A job whose processes are stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {
    /// The allocation of the job. Of its CPUs the job holds only those in `back`.
    pub alloc: Arc<Alloc>,
    /// Time of its start.
    pub started: Time,
    /// The current suspension and earlier ones.
    pub pauses: Pauses,
    /// Time since which it waits for its CPUs; `None` until an operator resumes it.
    pub wanted: Option<Time>,
    /// CPUs that it has got back so far; it resumes when it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub back: Vec<(NodeId, IdSet)>,
    /// True if the signal of `--signal` has been sent.
    #[serde(default)]
    pub warned: bool,
    /// The percentage of its time limit of the last mail; 0 for none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub told: u8,
    /// The preemption that ends the job, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
    /// Time by which the job must have ended because its reservation ends; `None` for no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_by: Option<Time>,
    /// The last checkpoint that its user has reported; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// The suspensions of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    /// Seconds that the attempt was suspended, without a suspension that lasts.
    pub seconds: u64,
    /// Time at which it was last suspended, or last resumed.
    pub last: Option<Time>,
}

impl Pauses {
    /// True if it was never suspended.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Seconds that it had run when it was last suspended; 0 if it never was.
    #[must_use]
    pub fn ran_before(&self, started: Time) -> u64 {
        self.last.map_or(0, |last| self.ran(started, last))
    }

    /// Seconds that it has run until a time since which it was not suspended.
    #[must_use]
    pub fn ran(&self, started: Time, until: Time) -> u64 {
        until.since(started).saturating_sub(self.seconds)
    }

    /// The suspensions once the current one ends at `at`.
    #[must_use]
    pub fn over(self, at: Time) -> Self {
        let lasted = self.last.map_or(0, |since| at.since(since));
        Self { seconds: self.seconds + lasted, last: Some(at) }
    }
}

impl Suspended {
    /// The CPUs of a node that the job has got back.
    #[must_use]
    pub fn back_on(&self, node: NodeId) -> &IdSet {
        let found = self.back.iter().find(|(known, _)| *known == node);
        found.map_or(&IdSet::EMPTY, |(_, cpus)| cpus)
    }

    /// True if the job has got all its CPUs back.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.alloc.nodes.iter().all(|part| *self.back_on(part.node) == part.cpus)
    }
}

/// State of a pending job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The hold that keeps the job from starting, if any.
    pub hold: Option<Hold>,
    /// The earliest start time: `--begin`, or the delay after a requeue; `None` for no bound.
    pub not_before: Option<Time>,
    /// Time from which only resources keep the job waiting; `None` before that.
    pub eligible: Option<Time>,
    /// Time from which the job gains priority by age, if limits of accounts or QOS count such jobs; `None` if
    /// it gains none yet, or if no limit counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accrued: Option<Time>,
    /// The priority below which the job does not fall with `INCR_ONLY`; `None` if it has not fallen yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_priority: Option<u32>,
    /// Nodes that are reserved for the job while its victims end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<Arc<Nomination>>,
}

impl Pending {
    /// Ends the time for which only resources kept the job waiting, and its gain of age.
    pub fn defer(&mut self) {
        (self.eligible, self.accrued) = (None, None);
    }
}

/// The kind of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// A hold by the job's user: `--hold`, `scontrol uhold`.
    User,
    /// A hold by an operator: `scontrol hold`.
    Admin,
    /// A hold after a failed attempt of a job that has been requeued `max_batch_requeue` times.
    Requeues,
    /// A hold because the requested reservation is gone.
    Reservation,
    /// A hold because planning the job failed, by a fault of Spur.
    Fault,
}

impl Hold {
    /// True if only an operator may release the job.
    #[must_use]
    pub fn is_operators(self) -> bool {
        matches!(self, Hold::Admin | Hold::Fault)
    }

    /// The reason that is shown for the hold.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Hold::User => Reason::JobHeldUser,
            Hold::Admin => Reason::JobHeldAdmin,
            Hold::Requeues => Reason::JobHoldMaxRequeue,
            Hold::Reservation => Reason::ReservationDeleted,
            Hold::Fault => Reason::SystemFailure,
        }
    }
}

/// A job whose end is decided but not yet carried out everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completing {
    /// The resources that the job holds, or held.
    pub alloc: Arc<Alloc>,
    /// Time of its start.
    pub started: Time,
    /// Time at which its end was decided.
    pub ended: Time,
    /// Nodes that have not reported the end of its processes.
    pub waiting: BTreeSet<NodeId>,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// The next phase: the job is finished or requeued.
    pub then: Then,
    /// Time at which remaining processes are killed (KillWait); `None` once that was ordered.
    pub kill_at: Option<Time>,
    /// Suspensions of the job while it ran.
    #[serde(default, skip_serializing_if = "Pauses::is_none")]
    pub pauses: Pauses,
    /// True if it was suspended when its end was decided: it holds no CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// Nodes that are kept for its next attempt, if it waits again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<Arc<Nomination>>,
}

/// The next phase of a job whose attempt is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// The job is finished.
    End,
    /// The job is requeued.
    Requeue {
        /// The hold of the requeued job, if any.
        hold: Option<Hold>,
    },
}

/// State of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The resources that the job held; `None` if it never ran.
    pub alloc: Option<Arc<Alloc>>,
    /// Time of its start; `None` if it never ran.
    pub started: Option<Time>,
    /// Time of its end.
    pub ended: Time,
    /// The outcome of the job.
    pub outcome: Outcome,
    /// Suspensions of the job while it ran.
    #[serde(default, skip_serializing_if = "Pauses::is_none")]
    pub pauses: Pauses,
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Final state of the attempt.
    pub state: EndState,
    /// Exit code and signal of the batch script.
    pub exit: ExitCode,
    /// The reason that is shown.
    pub reason: Reason,
    /// The uid of the user who ended the job; `None` if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// A sentence that explains the reason, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// A final state, with Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EndState {
    /// The job ended with exit code 0.
    Completed,
    /// The job was cancelled by its user or an operator.
    Cancelled,
    /// The job ended with another exit code, or could not be launched.
    Failed,
    /// The job reached its time limit.
    Timeout,
    /// The job lost a node.
    NodeFail,
    /// The job was preempted.
    Preempted,
    /// The job ran out of memory.
    OutOfMemory,
    /// The job reached its deadline.
    Deadline,
}

impl EndState {
    /// All final states, in the order of declaration.
    pub const ALL: [Self; 8] = [
        EndState::Completed,
        EndState::Cancelled,
        EndState::Failed,
        EndState::Timeout,
        EndState::NodeFail,
        EndState::Preempted,
        EndState::OutOfMemory,
        EndState::Deadline,
    ];

    /// The long name, such as `COMPLETED`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// The short name, such as `CD`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            EndState::Completed => ("COMPLETED", "CD"),
            EndState::Cancelled => ("CANCELLED", "CA"),
            EndState::Failed => ("FAILED", "F"),
            EndState::Timeout => ("TIMEOUT", "TO"),
            EndState::NodeFail => ("NODE_FAIL", "NF"),
            EndState::Preempted => ("PREEMPTED", "PR"),
            EndState::OutOfMemory => ("OUT_OF_MEMORY", "OOM"),
            EndState::Deadline => ("DEADLINE", "DL"),
        }
    }
}

impl Phase {
    /// Slurm's long and short state names.
    #[must_use]
    pub fn names(&self) -> (&'static str, &'static str) {
        match self {
            Phase::Pending(_) => ("PENDING", "PD"),
            Phase::Running { .. } => ("RUNNING", "R"),
            Phase::Suspended(_) => ("SUSPENDED", "S"),
            Phase::Completing(_) => ("COMPLETING", "CG"),
            Phase::Ended(ended) => ended.outcome.state.names(),
        }
    }

    /// The resources that the job holds or held; `None` if it never started.
    #[must_use]
    pub fn alloc(&self) -> Option<&Arc<Alloc>> {
        match self {
            Phase::Pending(_) => None,
            Phase::Running { alloc, .. } => Some(alloc),
            Phase::Suspended(suspended) => Some(&suspended.alloc),
            Phase::Completing(completing) => Some(&completing.alloc),
            Phase::Ended(ended) => ended.alloc.as_ref(),
        }
    }

    /// Time at which the attempt started; `None` if it has not.
    #[must_use]
    pub fn started(&self) -> Option<Time> {
        match self {
            Phase::Pending(_) => None,
            Phase::Running { started, .. } => Some(*started),
            Phase::Suspended(suspended) => Some(suspended.started),
            Phase::Completing(completing) => Some(completing.started),
            Phase::Ended(ended) => ended.started,
        }
    }

    /// Preemption of a started job; `None` if the job is not preempted.
    #[must_use]
    pub fn preempted(&self) -> Option<Preempted> {
        match self {
            Phase::Running { preempted, .. } => *preempted,
            Phase::Suspended(suspended) => suspended.preempted,
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
        }
    }

    /// The suspensions of the attempt.
    #[must_use]
    pub fn pauses(&self) -> Pauses {
        match self {
            Phase::Pending(_) => Pauses::default(),
            Phase::Running { pauses, .. } => *pauses,
            Phase::Suspended(suspended) => suspended.pauses,
            Phase::Completing(completing) => completing.pauses,
            Phase::Ended(ended) => ended.pauses,
        }
    }

    /// Seconds that the attempt has run, without its suspensions.
    #[must_use]
    pub fn run_time(&self, now: Time) -> u64 {
        let Some(started) = self.started() else { return 0 };
        match self {
            Phase::Pending(_) => 0,
            Phase::Running { pauses, .. } => pauses.ran(started, now),
            Phase::Suspended(suspended) => suspended.pauses.ran_before(started),
            Phase::Completing(completing) => completing.pauses.ran(started, completing.ended),
            Phase::Ended(ended) => ended.pauses.ran(started, ended.ended),
        }
    }

    /// The last checkpoint of this attempt that its user has reported.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        match self {
            Phase::Running { checkpoint, .. } => *checkpoint,
            Phase::Suspended(suspended) => suspended.checkpoint,
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
        }
    }

    /// Seconds that this attempt has run since its last checkpoint, or since its start: what is lost if the
    /// attempt ends now.
    #[must_use]
    pub fn unsaved_time(&self, now: Time) -> u64 {
        self.run_time(now).saturating_sub(self.checkpoint().map_or(0, |checkpoint| checkpoint.ran))
    }

    /// The part of a node that the job holds at this moment; `None` if the job holds nothing there.
    #[must_use]
    pub fn holds_on(&self, node: NodeId) -> Option<Cow<'_, NodeAlloc>> {
        let with = |part: &NodeAlloc, cpus: &IdSet| NodeAlloc { cpus: cpus.clone(), ..part.clone() };
        match self {
            Phase::Pending(_) | Phase::Ended(_) => None,
            Phase::Running { alloc, .. } => alloc.on(node).map(Cow::Borrowed),
            Phase::Suspended(suspended) => {
                suspended.alloc.on(node).map(|part| Cow::Owned(with(part, suspended.back_on(node))))
            }
            Phase::Completing(completing) => {
                let part = completing.alloc.on(node).filter(|_| completing.waiting.contains(&node))?;
                Some(match completing.suspended {
                    true => Cow::Owned(with(part, &IdSet::EMPTY)),
                    false => Cow::Borrowed(part),
                })
            }
        }
    }
}
