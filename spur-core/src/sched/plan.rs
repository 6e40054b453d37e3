//! The planner's proposal: starts for now and, for every job it considered, when it starts and why not yet.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::cluster::limits::Stop;
use crate::id::{ArrayTaskId, Attempt, JobId, NodeId};
pub use crate::model::alloc::StartPart;
use crate::model::alloc::Why;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::time::{Time, TimeLimit};

/// The beginning of the sentence for a job that only a reservation of nodes keeps from starting: one for
/// maintenance, or another.
pub const RESERVED: [&str; 2] = ["Reserved for maintenance", "May be reserved for other job"];

/// Slurm's words before the nodes out of service that a job would need.
pub const UNAVAILABLE: &str = "UnavailableNodes:";

/// The result of one pass over the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Jobs to start now, in this order.
    pub starts: Vec<Start>,
    /// Jobs to preempt, and the jobs for which they make way, in this order.
    pub preemptions: Vec<Preemption>,
    /// Jobs that were considered and do not start now, in queue order.
    pub waiting: Vec<Waiting>,
    /// The job to which this pass promised a start for the first time, and that start.
    pub promise: Option<(JobId, Time)>,
    /// The first second at which a limit leaves enough for a job that it has stopped, if nothing else happens
    /// until then.
    pub again: Option<Time>,
    /// Counts of the work that the pass did.
    pub report: Report,
}

/// A proposed start; `controller/handle/start` checks it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The job and its attempt.
    pub attempt: Attempt,
    /// The task of the array that starts; `None` if the job is not an array.
    pub task: Option<ArrayTaskId>,
    /// The request for which the start was planned; a job that has changed since is planned again.
    pub spec: Arc<JobSpec>,
    /// The [ground](crate::cluster::Cluster::ground) on which the start was planned; on another one the job
    /// is planned again.
    pub ground: u64,
    /// The partition in which the job runs.
    pub partition: Arc<str>,
    /// The reservation in which the job runs; `None` outside all reservations.
    pub reservation: Option<Arc<str>>,
    /// The lowered time limit (`--time-min`); `None` if it is the requested one.
    pub time_limit: Option<TimeLimit>,
    /// Nodes in rank order.
    pub parts: Vec<StartPart>,
    /// True if the job gets its nodes for itself.
    pub exclusive: bool,
    /// The explanation of the placement.
    pub why: Why,
    /// The starts of the other components if this is the first one of a het job: all of them start or none.
    pub rest: Vec<Start>,
}

impl Start {
    /// The starts of all components of one job as one start; `None` if there are none.
    pub(crate) fn as_one(starts: impl IntoIterator<Item = Start>) -> Option<Self> {
        let mut starts = starts.into_iter();
        let first = starts.next()?;
        Some(Self { rest: starts.collect(), ..first })
    }

    /// This start and those of the other components.
    pub fn all(&self) -> impl Iterator<Item = &Start> {
        std::iter::once(self).chain(&self.rest)
    }
}

/// Proposed preemptions for a job; `controller/handle/preempt` checks them again.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// The start that follows after the victims have ended.
    pub start: Start,
    /// The reason the job cannot start yet, as a sentence for users.
    pub detail: String,
    /// The domain that will hold all of this start, and of each of the other components; `None` where no
    /// domain does.
    pub places: Vec<Option<Arc<str>>>,
    /// Running jobs to preempt.
    pub victims: Vec<Attempt>,
    /// Jobs further back in the queue whose nominations the job takes over.
    pub displaces: Vec<JobId>,
}

/// A job that does not start now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// The job's priority in this pass, as `squeue %Q` prints it.
    pub priority: u32,
    /// Slurm's word for the reason.
    pub reason: Reason,
    /// The sentence for the reason, without the planned start; empty where the word is enough.
    /// [`Waiting::sentence`] contains both.
    pub detail: Detail,
    /// The planned start; `None` if it is not known.
    pub start: Option<Time>,
    /// The planned nodes in rank order; empty if they are not known.
    pub nodes: Vec<NodeId>,
    /// The domain that holds all planned nodes; `None` if no domain does.
    pub place: Option<Arc<str>>,
    /// The job whose end makes the planned start possible, if there is one.
    pub after: Option<JobId>,
}

/// The sentence for the reason why a job waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A sentence; empty where the reason's word is enough.
    Text(String),
    /// The limit that stops the job. A pass may stop thousands of jobs and few of their sentences are read,
    /// so each sentence is written only when it is read.
    Limit(Stop),
}

impl Default for Detail {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<String> for Detail {
    fn from(sentence: String) -> Self {
        Self::Text(sentence)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(sentence) => f.write_str(sentence),
            Self::Limit(stop) => stop.fmt(f),
        }
    }
}

impl Waiting {
    /// A waiting job without any details.
    #[must_use]
    pub fn of(job: JobId) -> Self {
        Self { job, ..Self::default() }
    }

    /// The whole sentence: what is missing, and when and where the job is planned to start. `render` writes a
    /// time in the reader's form: a date, or seconds from the start of a simulation.
    #[must_use]
    pub fn sentence(&self, render: impl Fn(Time) -> String) -> String {
        let detail = self.detail.to_string();
        let Some(start) = self.start else { return detail };
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" in {place}"));
        let after = self.after.map_or_else(String::new, |job| format!(" when job {job} ends"));
        let gap = if detail.is_empty() { "" } else { "; " };
        format!("{detail}{gap}earliest {}{place}{after}", render(start))
    }
}

/// The nodes in their order, each once: components of a het job may share some.
pub fn each_once(nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut seen = BTreeSet::new();
    nodes.into_iter().filter(|node| seen.insert(*node)).collect()
}

/// The work of a pass, in counts and never in times: those belong to the callers that have a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of pending jobs considered.
    pub considered: u32,
    /// Number of reservations made.
    pub reserved: u32,
    /// True if jobs were left out because a depth was reached.
    pub truncated: bool,
    /// True if a job that might have preempted others was not checked for that, because the searches were
    /// used up.
    pub gave_up: bool,
    /// Number of steps that the searches for victims have taken.
    pub victim_steps: u64,
    /// True if the pass read only what has changed, and reports nothing about waiting jobs.
    pub partial: bool,
}
