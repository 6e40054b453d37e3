//! Where a job stands. Each state carries its own data; there are no flags beside it.

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

/// The life of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits.
    Pending(Pending),
    /// Runs.
    Running {
        /// What it holds.
        alloc: Arc<Alloc>,
        /// Since when.
        started: Time,
        /// Whether the signal of `--signal` has been sent.
        #[serde(default)]
        warned: bool,
        /// The percentage of its time limit that its user was last told of.
        #[serde(default, skip_serializing_if = "is_none")]
        told: u8,
        /// What was decided if it has to make way; it still runs while its grace time lasts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preempted: Option<Preempted>,
        /// When the reservation that it runs in ends, if it has to be over by then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends_by: Option<Time>,
        /// When it was suspended before.
        #[serde(default, skip_serializing_if = "Pauses::is_none")]
        pauses: Pauses,
        /// The last checkpoint that its user has reported; `None` if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<Checkpoint>,
    },
    /// Started, and stopped since: it keeps memory and devices, and others may have its CPUs.
    Suspended(Suspended),
    /// Has ended or is being ended, and some node still has something of it.
    Completing(Completing),
    /// Over.
    Ended(Ended),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_none(percent: &u8) -> bool {
    *percent == 0
}

/// A running job that has been told to make way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted {
    /// For which job.
    pub by: JobId,
    /// Since when.
    pub at: Time,
    /// When its grace time is over and it is ended or suspended.
    pub end_at: Time,
    /// Whether it is over then or waits again; `None`: it is suspended.
    #[serde(default)]
    pub then: Option<Then>,
}

/// A checkpoint of a job, from which its next attempt can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When the user reported the checkpoint.
    pub at: Time,
    /// Seconds that the attempt had run by then.
    pub ran: u64,
}

/// A job whose processes are stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {
    /// What it was given; of the CPUs it has only those in `back`.
    pub alloc: Arc<Alloc>,
    /// When it started.
    pub started: Time,
    /// Since when it is suspended, and how long it was before.
    pub pauses: Pauses,
    /// Since when it wants its CPUs back; `None` until an operator says so.
    pub wanted: Option<Time>,
    /// CPUs that it has got back so far. It goes on when it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub back: Vec<(NodeId, IdSet)>,
    /// Whether the signal of `--signal` has been sent.
    #[serde(default)]
    pub warned: bool,
    /// The percentage of its time limit that its user was last told of.
    #[serde(default, skip_serializing_if = "is_none")]
    pub told: u8,
    /// What was decided if it has to make way for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
    /// When the reservation that it runs in ends, if it has to be over by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_by: Option<Time>,
    /// The last checkpoint that its user has reported; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// The times at which an attempt did not run between its start and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    /// Seconds it was suspended, without those of a suspension that lasts.
    pub seconds: u64,
    /// When it was last suspended, or last went on.
    pub last: Option<Time>,
}

impl Pauses {
    /// Whether it was never suspended.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Seconds it had run when it was last suspended; 0 if it never was.
    #[must_use]
    pub fn ran_before(&self, started: Time) -> u64 {
        self.last.map_or(0, |last| self.ran(started, last))
    }

    /// Seconds it has run until a time since which it was not suspended.
    #[must_use]
    pub fn ran(&self, started: Time, until: Time) -> u64 {
        until.since(started).saturating_sub(self.seconds)
    }

    /// The same times when a suspension is over.
    #[must_use]
    pub fn over(self, at: Time) -> Self {
        let lasted = self.last.map_or(0, |since| at.since(since));
        Self { seconds: self.seconds + lasted, last: Some(at) }
    }
}

impl Suspended {
    /// The CPUs of a node that it has got back.
    #[must_use]
    pub fn back_on(&self, node: NodeId) -> &IdSet {
        let found = self.back.iter().find(|(known, _)| *known == node);
        found.map_or(&IdSet::EMPTY, |(_, cpus)| cpus)
    }

    /// Whether it has got all its CPUs back.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.alloc.nodes.iter().all(|part| *self.back_on(part.node) == part.cpus)
    }
}

/// A waiting job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Who holds it back, if anyone.
    pub hold: Option<Hold>,
    /// Not to be started before: `--begin`, or the delay after a requeue.
    pub not_before: Option<Time>,
    /// When nothing but resources kept it waiting any more; `None` before that.
    pub eligible: Option<Time>,
    /// Nodes that are kept for it while others make way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<Arc<Nomination>>,
}

/// Who holds a job back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Its user: `--hold`, `scontrol uhold`.
    User,
    /// An operator: `scontrol hold`.
    Admin,
    /// Too many failed attempts in a row.
    Requeues,
    /// The reservation it asked for is gone.
    Reservation,
    /// Planning it failed, by a fault of Spur's own.
    Fault,
}

impl Hold {
    /// Whether only an operator may release it.
    #[must_use]
    pub fn is_operators(self) -> bool {
        matches!(self, Hold::Admin | Hold::Fault)
    }

    /// The reason shown for it.
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

/// A job whose end is decided and not yet done everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completing {
    /// What it holds, or held.
    pub alloc: Arc<Alloc>,
    /// When it started.
    pub started: Time,
    /// When its end was decided.
    pub ended: Time,
    /// Nodes that have not reported it gone.
    pub waiting: BTreeSet<NodeId>,
    /// How it ended.
    pub outcome: Outcome,
    /// What comes next.
    pub then: Then,
    /// When what is left of it is killed (KillWait); `None` once that was ordered.
    pub kill_at: Option<Time>,
    /// When it was suspended while it ran.
    #[serde(default, skip_serializing_if = "Pauses::is_none")]
    pub pauses: Pauses,
    /// Whether it was suspended when its end was decided: its CPUs are not its own any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// Nodes that are kept for its next attempt, if it waits again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominated: Option<Arc<Nomination>>,
}

/// What happens to a job whose attempt is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// It is over.
    End,
    /// It waits again.
    Requeue {
        /// Held back by, if anyone.
        hold: Option<Hold>,
    },
}

/// A finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What it held; `None` if it never ran.
    pub alloc: Option<Arc<Alloc>>,
    /// When it started; `None` if it never ran.
    pub started: Option<Time>,
    /// When it ended.
    pub ended: Time,
    /// How.
    pub outcome: Outcome,
    /// When it was suspended while it ran.
    #[serde(default, skip_serializing_if = "Pauses::is_none")]
    pub pauses: Pauses,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The final state.
    pub state: EndState,
    /// Exit code and signal of the batch script.
    pub exit: ExitCode,
    /// What the reason column shows.
    pub reason: Reason,
    /// The user who ended it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// The sentence behind the reason, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
}

/// A final state, with Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EndState {
    /// Exit code 0.
    Completed,
    /// By its user or an operator.
    Cancelled,
    /// Exit code other than 0, or it could not be launched.
    Failed,
    /// At its time limit.
    Timeout,
    /// A node of it went down.
    NodeFail,
    /// To make room.
    Preempted,
    /// Out of memory.
    OutOfMemory,
    /// At its deadline.
    Deadline,
}

impl EndState {
    /// All of them.
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

    /// What the job holds or held, if it ever started.
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

    /// When this attempt started, if it has.
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

    /// What was decided if it has to make way.
    #[must_use]
    pub fn preempted(&self) -> Option<Preempted> {
        match self {
            Phase::Running { preempted, .. } => *preempted,
            Phase::Suspended(suspended) => suspended.preempted,
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
        }
    }

    /// When this attempt was suspended.
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

    /// Seconds that this attempt has run, without those that it was suspended.
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

    /// Seconds that this attempt has run since its last checkpoint, or since its start: what is lost if the attempt ends now.
    #[must_use]
    pub fn unsaved_time(&self, now: Time) -> u64 {
        self.run_time(now).saturating_sub(self.checkpoint().map_or(0, |checkpoint| checkpoint.ran))
    }

    /// What it holds of a node at this moment.
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
