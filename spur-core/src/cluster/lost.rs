//! Nodes that fail under a job which continues without them (`--no-kill`), and their replacements.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Cluster, Derived};
use crate::id::{JobId, NodeId};
use crate::model::alloc::{Alloc, Replacement, Why};
use crate::model::phase::Phase;
use crate::text::time::Time;

impl Cluster {
    /// Takes a failed node from a job's allocation; the allocation remembers what the job held there.
    pub(super) fn lose_node(&mut self, id: JobId, lost: NodeId, lingers: bool, at: Time) {
        let Some(job) = self.jobs.get(id) else { return };
        let (attempt, part) = (job.attempt(), job.phase.holds_on(lost).map(Cow::into_owned));
        let left = match &job.phase {
            Phase::Running { alloc, .. } => alloc.without(lost),
            Phase::Suspended(suspended) => suspended.alloc.without(lost),
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
        };
        let (Some(left), Some(part), Some(node)) = (left, part, self.nodes.get_mut(lost.index())) else {
            return;
        };
        node.give_back(id, &part, at);
        node.past.add(true);
        if lingers {
            node.stale.push(attempt);
            self.derived = Derived::default();
            self.renounce(lost);
        }
        self.judge_anew(lost);
        self.jobs.change(id, |job| match &mut job.phase {
            Phase::Running { alloc, .. } => *alloc = Arc::new(left),
            Phase::Suspended(suspended) => {
                suspended.back.retain(|(node, _)| *node != lost);
                suspended.alloc = Arc::new(left);
            }
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => {}
        });
    }

    /// Drops derived data if scores use the past performance of nodes and attempts were lost with this node.
    pub(super) fn judge_anew(&mut self, node: NodeId) {
        let has_lost = self.node(node).is_some_and(|node| node.past.lost > 0);
        if has_lost && self.policy.topologies.iter().any(|config| config.weights.past_performance.0 > 0) {
            self.derived = Derived::default();
        }
    }

    /// Adds replacement nodes to a job. No plan took this into account, so all promised starts are dropped.
    pub(super) fn replace_nodes(&mut self, id: JobId, replaced: &[Replacement], why: &Why) {
        let Some(Phase::Running { alloc, .. }) = self.jobs.get(id).map(|job| &job.phase) else { return };
        let exclusive = alloc.exclusive;
        let whole =
            replaced.iter().try_fold(Alloc::clone(alloc), |alloc, replacement| alloc.with(replacement));
        let Some(whole) = whole else { return };
        for Replacement { part, .. } in replaced {
            if let Some(node) = self.nodes.get_mut(part.node.index()) {
                node.take(id, part, exclusive);
            }
        }
        self.jobs.change(id, |job| {
            if let Phase::Running { alloc, .. } = &mut job.phase {
                *alloc = Arc::new(Alloc { why: why.clone(), ..whole });
            }
        });
        self.drop_promises();
    }
}
