//! Expected start of a job that is not submitted.

use std::sync::Arc;

use super::event::{Spans, What};
use super::record::hostlist;
use crate::cluster::Cluster;
use crate::controller::Reject;
use crate::id::{JobId, NodeId};
use crate::model::reason::Reason;
use crate::sched::plan::{Plan, each_once};
use crate::text::time::Time;

/// Expected start and nodes of a job, or the reason for which they are unknown. A het job has one
/// forecast for all components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foresight {
    /// Expected start; `None` if unknown.
    pub start: Option<Time>,
    /// Expected nodes, as a hostlist; empty if unknown.
    pub nodes: String,
    /// Number of domains the job would use, by layer.
    pub spans: Spans,
    /// Reason for which the job would wait, or could never start.
    pub reason: Reason,
    /// Sentence that explains the reason.
    pub detail: String,
    /// Explanation of the choice of nodes; empty if the job would not start immediately.
    pub why: String,
    /// Warnings for the job's user.
    pub warnings: Vec<String>,
}

impl Foresight {
    /// Builds the forecast of a job that could never start.
    pub(super) fn refused(reject: &Reject) -> Self {
        Self { reason: Reason::BadConstraints, detail: reject.to_string(), ..Self::default() }
    }

    /// Reads the forecast of a job from a plan made at `now`.
    pub(super) fn of(cluster: &Cluster, plan: &Plan, now: Time, job: JobId) -> Self {
        let spans = |nodes: &[NodeId]| {
            Spans(cluster.job(job).map(|job| cluster.spans(job, nodes)).unwrap_or_default())
        };
        if let Some(start) = plan.starts.iter().find(|start| start.attempt.job == job) {
            let nodes = each_once(start.all().flat_map(|start| &start.parts).map(|part| part.node));
            let alone = start.rest.is_empty();
            return Self {
                start: Some(now),
                nodes: hostlist(cluster, nodes.iter().copied()),
                spans: if alone { Spans(start.why.spans.clone()) } else { spans(&nodes) },
                why: start.why.sentence.clone(),
                ..Self::default()
            };
        }
        let Some(waiting) = plan.waiting.iter().find(|waiting| waiting.job == job) else {
            return Self::default();
        };
        let placed = waiting.start.is_some();
        let components = cluster.jobs().components(job);
        let of_components = plan.waiting.iter().filter(|waiting| components.contains(&waiting.job));
        let nodes = each_once(of_components.flat_map(|waiting| waiting.nodes.iter().copied()));
        Self {
            start: waiting.start,
            nodes: hostlist(cluster, nodes.iter().copied()),
            spans: if placed { spans(&nodes) } else { Spans::default() },
            reason: waiting.reason,
            detail: waiting.sentence(|time| time.0.to_string()),
            ..Self::default()
        }
    }

    /// Converts the forecast to an event about the job of that name.
    pub(super) fn test(self, job: Arc<str>) -> What {
        let known = self.start.is_some();
        What::Test {
            job,
            start: self.start.map(|time| time.0),
            nodes: known.then_some(self.nodes),
            spans: known.then_some(self.spans),
            reason: (!known).then(|| self.reason.name()),
            detail: (!known).then_some(self.detail),
        }
    }
}
