//! What the planner proposes: starts for now, and for every job it looked at, when and why not yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::{ArrayTaskId, Attempt, JobId, NodeId};
pub use crate::model::alloc::StartPart;
use crate::model::alloc::Why;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::time::{Time, TimeLimit};

/// How sentences begin of jobs that only a reservation of nodes keeps from starting: one for maintenance, or another.
pub const RESERVED: [&str; 2] = ["Reserved for maintenance", "May be reserved for other job"];

/// What stands, in Slurm's words, before the nodes that are out of service and that a job would need.
pub const UNAVAILABLE: &str = "UnavailableNodes:";

/// The outcome of one pass over the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Jobs to start now, in this order.
    pub starts: Vec<Start>,
    /// Jobs to make way, and for whom, in this order.
    pub preemptions: Vec<Preemption>,
    /// Jobs that were looked at and do not start now, in queue order.
    pub waiting: Vec<Waiting>,
    /// The job that a start was promised to for the first time in this pass, and when.
    pub promise: Option<(JobId, Time)>,
    /// The first second at which a limit leaves enough for a job that it has stopped, if nothing else happens until then.
    pub again: Option<Time>,
    /// What the pass did, in counts.
    pub report: Report,
}

/// A start that is proposed; `controller/handle/start` checks it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The job and which attempt.
    pub attempt: Attempt,
    /// Which of the tasks that it stands for, if it belongs to an array.
    pub task: Option<ArrayTaskId>,
    /// The request it was planned for; a job that was changed since is planned again.
    pub spec: Arc<JobSpec>,
    /// The [ground](crate::cluster::Cluster::ground) it was planned on; on another one its job is planned again.
    pub ground: u64,
    /// The partition it runs in.
    pub partition: Arc<str>,
    /// The reservation it runs in.
    pub reservation: Option<Arc<str>>,
    /// The time limit it has to do with, if that is lower than what it asks for (`--time-min`).
    pub time_limit: Option<TimeLimit>,
    /// Nodes in rank order.
    pub parts: Vec<StartPart>,
    /// Whether it gets its nodes for itself.
    pub exclusive: bool,
    /// Why these.
    pub why: Why,
    /// The starts of the other components, where this is the first one of a het job: all of them or none.
    pub rest: Vec<Start>,
}

impl Start {
    /// Starts of all components of one job, as one; `None` of none.
    pub(crate) fn as_one(starts: impl IntoIterator<Item = Start>) -> Option<Self> {
        let mut starts = starts.into_iter();
        let first = starts.next()?;
        Some(Self { rest: starts.collect(), ..first })
    }

    /// This start and those that go with it.
    pub fn all(&self) -> impl Iterator<Item = &Start> {
        std::iter::once(self).chain(&self.rest)
    }
}

/// Room to be made for a job, which is proposed; `controller/handle/preempt` checks it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// The start it is for, once the victims have ended.
    pub start: Start,
    /// Why the job cannot start yet, for people.
    pub detail: String,
    /// The domain that will hold all of this start, and of each that goes with it, if one does.
    pub places: Vec<Option<Arc<str>>>,
    /// Running jobs that have to leave.
    pub victims: Vec<Attempt>,
    /// Jobs behind it in the queue whose nominations it takes over.
    pub displaces: Vec<JobId>,
}

/// A job that does not start now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Which.
    pub job: JobId,
    /// Its priority in this pass, as `squeue %Q` prints it.
    pub priority: u32,
    /// Slurm's word for why.
    pub reason: Reason,
    /// The sentence behind it, without the planned start; empty where the word says all. [`Waiting::sentence`] has
    /// both.
    pub detail: String,
    /// When it is planned to start, if that is known.
    pub start: Option<Time>,
    /// Where, if that is known; in rank order.
    pub nodes: Vec<NodeId>,
    /// The domain it is planned in, where one holds all of it.
    pub place: Option<Arc<str>>,
    /// The job whose end makes the planned start possible, if one does.
    pub after: Option<JobId>,
}

impl Waiting {
    /// A job of which nothing more is known.
    #[must_use]
    pub fn of(job: JobId) -> Self {
        Self { job, ..Self::default() }
    }

    /// The whole sentence: what is missing, and when and where the job is planned to start. `render` writes a time as
    /// its reader knows it: a date, or seconds from the start of a simulation.
    #[must_use]
    pub fn sentence(&self, render: impl Fn(Time) -> String) -> String {
        let Some(start) = self.start else { return self.detail.clone() };
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" in {place}"));
        let after = self.after.map_or_else(String::new, |job| format!(" when job {job} ends"));
        let gap = if self.detail.is_empty() { "" } else { "; " };
        format!("{}{gap}earliest {}{place}{after}", self.detail, render(start))
    }
}

/// Nodes in the order in which they come, each once: components of a het job may share some.
pub fn each_once(nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut seen = BTreeSet::new();
    nodes.into_iter().filter(|node| seen.insert(*node)).collect()
}

/// What a pass did. Counts, never times: those belong to the shell that has a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Pending jobs looked at.
    pub considered: u32,
    /// Reservations made.
    pub reserved: u32,
    /// Whether jobs were left out because a depth was reached.
    pub truncated: bool,
    /// Whether somebody who might have made others leave was not looked at for that, because the searches were used up.
    pub gave_up: bool,
    /// Steps that the searches for those who make way have taken.
    pub victim_steps: u64,
    /// Whether only what has changed was looked at, and nothing is said of jobs that wait.
    pub partial: bool,
}
