//! Nodes from which a new controller has no report yet. A job may have ended there while no controller ran.
//! Until such a node reports or is set down, only a person's command ends its jobs.

use super::{Cluster, Node};
use crate::id::{JobId, NodeId};
use crate::model::node::Health;
use crate::model::phase::Phase;

impl Cluster {
    /// True if some node has yet to report its jobs to the current controller.
    #[must_use]
    pub fn awaits_reports(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// True if a job has started and one of its nodes has yet to report to the current controller. For a het
    /// job the nodes of all components count.
    #[must_use]
    pub fn awaits_report(&self, id: JobId) -> bool {
        self.awaits_reports() && self.jobs.components(id).into_iter().any(|job| self.is_on_unheard(job))
    }

    fn is_on_unheard(&self, id: JobId) -> bool {
        let phase = self.job(id).map(|job| &job.phase);
        let Some(phase @ (Phase::Running { .. } | Phase::Suspended(_))) = phase else { return false };
        phase.alloc().is_some_and(|alloc| alloc.nodes.iter().any(|part| self.unheard.contains(&part.node)))
    }

    /// Marks the nodes from which a new controller awaits reports: all that are up. Nothing runs on nodes
    /// that are down or off.
    pub(super) fn await_nodes(&mut self) {
        let in_service = |node: &Node| node.health == Health::Up && !node.is_off();
        for node in &mut self.nodes {
            node.unheard = in_service(node);
        }
        self.unheard = self.nodes.iter().filter(|node| node.unheard).map(|node| node.id).collect();
    }

    /// Records that a node has reported or is down.
    pub(super) fn await_no_more(&mut self, id: NodeId) {
        if self.unheard.remove(&id)
            && let Some(node) = self.nodes.get_mut(id.index())
        {
            node.unheard = false;
        }
    }
}
