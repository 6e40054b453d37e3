//! Nodes that a new controller has not heard yet. A job may have ended there while no controller ran, so until such a node
//! reports or counts as down, nothing but a person's command ends the job.

use super::{Cluster, Node};
use crate::id::{JobId, NodeId};
use crate::model::node::Health;
use crate::model::phase::Phase;

impl Cluster {
    /// Whether some node has yet to tell the current controller how its jobs fare.
    #[must_use]
    pub fn awaits_reports(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// Whether a job has started and some of its nodes has yet to tell the current controller how the job fares. Of a het
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

    /// A controller has opened the journal: it has heard no node yet. Nothing runs on nodes that are down or switched off.
    pub(super) fn await_nodes(&mut self) {
        let in_service = |node: &Node| node.health == Health::Up && !node.is_off();
        for node in &mut self.nodes {
            node.unheard = in_service(node);
        }
        self.unheard = self.nodes.iter().filter(|node| node.unheard).map(|node| node.id).collect();
    }

    /// A node has reported or is down.
    pub(super) fn await_no_more(&mut self, id: NodeId) {
        if self.unheard.remove(&id)
            && let Some(node) = self.nodes.get_mut(id.index())
        {
            node.unheard = false;
        }
    }
}
