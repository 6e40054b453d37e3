//! Output events of a simulation. Each describes one step in the life of a job, with a time in seconds from
//! the start.
//!
//! Programs read the names of fields and kinds. Fields may be added, and none is renamed.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::text::tres::Tres;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Time of the event, in seconds from the start of the simulation.
    pub t: i64,
    /// Component of a het job that the event is about; `None` for other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<u32>,
    /// Kind of the event, with its data.
    #[serde(flatten)]
    pub what: What,
}

/// Kind of an event and the objects concerned. Jobs are named as in the workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum What {
    /// The controller accepted a job.
    Submit {
        /// Name of the job.
        job: Arc<str>,
        /// Number that the controller assigned to the job.
        jobid: u32,
        /// Warnings for the job's user.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The controller refused a job, because it could never run as requested.
    Reject {
        /// Name of the job.
        job: Arc<str>,
        /// Reason for the refusal, and a request that would be accepted.
        error: String,
    },
    /// Answer to a request with `--test-only`.
    Test {
        /// Name of the job in the workload.
        job: Arc<str>,
        /// Expected start in seconds from the start of the simulation; `None` if unknown.
        start: Option<i64>,
        /// Nodes of the expected start, as a hostlist; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        nodes: Option<String>,
        /// Number of domains the job would use, by layer; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        spans: Option<Spans>,
        /// Name of the reason for which the start is unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        /// Sentence that explains the reason.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A command of the workload was run.
    Command {
        /// Words of the command.
        argv: Vec<String>,
        /// Exit code of the command.
        status: u8,
        /// Text that the command wrote to standard output.
        stdout: String,
        /// Text that the command wrote to standard error.
        stderr: String,
    },
    /// A job is preempted. The end of the job follows, after its grace time.
    Preempt {
        /// Name of the preempted job.
        job: Arc<str>,
        /// Name of the job that preempts it.
        by: Arc<str>,
        /// `requeue` if the job then becomes pending, `suspend` if it is stopped, otherwise `cancel`.
        mode: &'static str,
    },
    /// A job is suspended.
    Suspend {
        /// Name of the job.
        job: Arc<str>,
    },
    /// A suspended job continues.
    Resume {
        /// Name of the job.
        job: Arc<str>,
    },
    /// An attempt has ended, or a job that never ran has ended.
    End {
        /// Name of the job.
        job: Arc<str>,
        /// Slurm's name of the final state.
        state: &'static str,
    },
    /// A node replaced a failed node of a job that continued.
    Replace {
        /// Name of the job.
        job: Arc<str>,
        /// Node that failed.
        lost: String,
        /// All nodes of the job after the replacement, as a hostlist.
        nodes: String,
        /// Node of each task in rank order; each node once for a job that requested only nodes.
        ranks: Vec<Arc<str>>,
        /// Number of domains used, by layer.
        spans: Spans,
        /// Explanation of the choice of the node.
        why: String,
    },
    /// A job started.
    Start {
        /// Name of the job.
        job: Arc<str>,
        /// Nodes of the job, as a hostlist.
        nodes: String,
        /// Node of each task in rank order; each node once for a job that requested only nodes.
        ranks: Vec<Arc<str>>,
        /// Number of domains used, by layer.
        spans: Spans,
        /// True if the job started ahead of a job of higher priority.
        backfilled: bool,
        /// Requirements that were dropped after their waiting time.
        relaxed: Vec<String>,
        /// The account; empty where the job names none.
        account: Arc<str>,
        /// The QOS; empty where the job has none.
        qos: Arc<str>,
        /// The resources of the job, with its licences and the charge for each second.
        tres: Resources,
        /// Explanation of the choice of nodes.
        why: String,
    },
    /// The reason, the planned start or the planned nodes of a pending job changed.
    Pending {
        /// Name of the job.
        job: Arc<str>,
        /// Slurm's name of the reason.
        reason: &'static str,
        /// Sentence that explains the reason.
        detail: String,
        /// Planned start in seconds from the start of the simulation; `None` if unknown.
        start: Option<i64>,
        /// Planned nodes, as a hostlist; `None` if unknown.
        planned: Option<String>,
    },
}

/// Rank of [`What::Suspend`], see [`What::rank`].
pub(super) const SUSPEND: u8 = 3;
/// Rank of [`What::Resume`], see [`What::rank`].
pub(super) const RESUME: u8 = 5;

impl What {
    /// Position of the kind among the events of one pass.
    pub(super) fn rank(&self) -> u8 {
        match self {
            What::Submit { .. } | What::Reject { .. } | What::Test { .. } => 0,
            What::Command { .. } => 1,
            What::Preempt { .. } => 2,
            What::Suspend { .. } => SUSPEND,
            What::End { .. } => 4,
            What::Resume { .. } => RESUME,
            What::Replace { .. } => 6,
            What::Start { .. } => 7,
            What::Pending { .. } => 8,
        }
    }
}

/// Number of domains used in each layer, by the layer's name, from `node` upwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(pub Vec<(Arc<str>, u32)>);

/// Amounts of resources, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(pub Tres);

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.0.iter().map(|(kind, amount)| (kind.to_string(), amount)))
    }
}

impl Serialize for Spans {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (layer, count) in &self.0 {
            map.serialize_entry(&**layer, count)?;
        }
        map.end()
    }
}
