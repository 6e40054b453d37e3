//! What a simulation tells: one event of a job's life, with a time in seconds from the start.
//!
//! Field names and kinds are what programs read; fields are added, never renamed.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::text::tres::Tres;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// When: seconds from the start of the simulation.
    pub t: i64,
    /// Which component of a het job it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<u32>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened, and to whom. Jobs go by the workload's own names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum What {
    /// A job was accepted.
    Submit {
        /// Its name.
        job: Arc<str>,
        /// The number the controller gave it.
        jobid: u32,
        /// What its user should know.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// A job was refused: it could never run as it was asked for.
    Reject {
        /// Its name.
        job: Arc<str>,
        /// Why, and what would work.
        error: String,
    },
    /// The answer to `--test-only`.
    Test {
        /// The name in the workload.
        job: Arc<str>,
        /// When it would start; `None` if that is not known.
        start: Option<i64>,
        /// Where it would.
        #[serde(skip_serializing_if = "Option::is_none")]
        nodes: Option<String>,
        /// Domains it would touch.
        #[serde(skip_serializing_if = "Option::is_none")]
        spans: Option<Spans>,
        /// Why its start is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        /// The sentence behind the reason.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A command of the workload was run.
    Command {
        /// Its words.
        argv: Vec<String>,
        /// Its exit code.
        status: u8,
        /// What it wrote.
        stdout: String,
        /// What it complained of.
        stderr: String,
    },
    /// A job has to make way; its end follows, after its grace time.
    Preempt {
        /// Which.
        job: Arc<str>,
        /// For which job.
        by: Arc<str>,
        /// `requeue` if it waits again then, `suspend` if it is stopped, otherwise `cancel`.
        mode: &'static str,
    },
    /// A job is stopped.
    Suspend {
        /// Which.
        job: Arc<str>,
    },
    /// A stopped job goes on.
    Resume {
        /// Which.
        job: Arc<str>,
    },
    /// An attempt is over, or a job that never ran is.
    End {
        /// Which.
        job: Arc<str>,
        /// Slurm's name of the final state.
        state: &'static str,
    },
    /// Another node has taken the place of one that failed while its job went on.
    Replace {
        /// Which job.
        job: Arc<str>,
        /// The node that failed.
        lost: String,
        /// All nodes that the job has now, as a hostlist.
        nodes: String,
        /// The node of each task in rank order; of a job that asked for nodes only, each node.
        ranks: Vec<Arc<str>>,
        /// Domains touched.
        spans: Spans,
        /// Why this node.
        why: String,
    },
    /// A job started.
    Start {
        /// Which.
        job: Arc<str>,
        /// Its nodes, as a hostlist.
        nodes: String,
        /// The node of each task in rank order; of a job that asked for nodes only, each node.
        ranks: Vec<Arc<str>>,
        /// Domains touched.
        spans: Spans,
        /// Whether it started ahead of a job of higher priority.
        backfilled: bool,
        /// What was waived after waiting long enough.
        relaxed: Vec<String>,
        /// The account; empty where the job names none.
        account: Arc<str>,
        /// The QOS; empty where the job has none.
        qos: Arc<str>,
        /// The resources of the job, with its licences and what each second is charged.
        tres: Resources,
        /// Why these nodes.
        why: String,
    },
    /// Something about a waiting job changed.
    Pending {
        /// Which.
        job: Arc<str>,
        /// Slurm's word.
        reason: &'static str,
        /// The sentence behind it.
        detail: String,
        /// When it is planned to start.
        start: Option<i64>,
        /// Where.
        planned: Option<String>,
    },
}

/// The rank of a job being stopped.
pub(super) const SUSPEND: u8 = 3;
/// The rank of a job going on.
pub(super) const RESUME: u8 = 5;

impl What {
    /// Where this kind stands among the events of one pass.
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

/// Domains touched, by the name of their layer, from `node` upwards.
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
