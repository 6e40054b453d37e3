//! Suspended jobs: what they give up and what they get back.
//!
//! A suspended job keeps its memory and its devices, and may have some of its CPUs again, those in
//! [`Suspended::back`], because nobody else had them. A CPU has one owner at any time, as everywhere.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Cluster, Event};
use crate::id::{JobId, NodeId};
use crate::model::config::PreemptBy;
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::{Pauses, Phase, Suspended};
use crate::text::time::Time;

/// The order in which suspended jobs get their CPUs back: the higher tier first, or the higher priority of a QOS where these
/// preempt; then who wanted them first; the
/// components of a het job follow each other.
pub type ClaimOrder = (Reverse<u32>, Time, JobId, JobId);

impl Cluster {
    /// Where a job stands among those that want CPUs back; `None` for all others.
    #[must_use]
    pub fn claim_order(&self, job: &Job) -> Option<ClaimOrder> {
        let Phase::Suspended(Suspended { wanted: Some(wanted), .. }) = &job.phase else { return None };
        let leader = job.spec.het.as_ref().map_or(job.id, |het| het.leader);
        let first = self.jobs.get(leader).unwrap_or(job);
        let (wanted, alloc) = match &first.phase {
            Phase::Suspended(Suspended { wanted: Some(wanted), alloc, .. }) => (wanted, Some(alloc)),
            _ => (wanted, job.phase.alloc()),
        };
        let level = match self.policy.preempt.by {
            PreemptBy::None | PreemptBy::Partition => {
                let partition = alloc.and_then(|alloc| self.partition(&alloc.partition));
                partition.map_or(0, |partition| partition.config.priority_tier)
            }
            PreemptBy::Qos => self.policy.qos_of(first.spec.qos.as_deref()).map_or(0, |qos| qos.priority),
        };
        Some((Reverse(level), *wanted, leader, job.id))
    }

    /// What an event makes of a suspended job, or of one that is to be.
    pub(super) fn apply_to_suspended(&mut self, event: &Event, at: Time) {
        match event {
            Event::JobSuspended { job, wanted } => self.suspend(*job, wanted.then_some(at), at),
            Event::JobRecalled { job } => self.recall(*job, at),
            Event::CpusReturned { job, node, cpus } => self.return_cpus(*job, *node, cpus),
            Event::JobResumed { job } => self.resume(*job, at),
            _ => {}
        }
    }

    /// Stops a running job, or takes back from a suspended one what CPUs it had got again. One that wanted its CPUs
    /// before keeps its place among those who do.
    fn suspend(&mut self, id: JobId, wanted: Option<Time>, at: Time) {
        match self.jobs.get(id).map(|job| &job.phase) {
            Some(Phase::Running { alloc, .. }) => {
                let alloc = Arc::clone(alloc);
                for part in &alloc.nodes {
                    if let Some(node) = self.nodes.get_mut(part.node.index()) {
                        node.free_cpus_of(id, &part.cpus);
                    }
                }
            }
            Some(Phase::Suspended(_)) => self.give_up_cpus(id),
            Some(Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_)) | None => return,
        }
        self.jobs.change(id, |job| match &mut job.phase {
            Phase::Running { alloc, started, warned, told, preempted, ends_by, pauses, checkpoint } => {
                job.phase = Phase::Suspended(Suspended {
                    alloc: Arc::clone(alloc),
                    started: *started,
                    pauses: Pauses { last: Some(at), ..*pauses },
                    wanted,
                    back: Vec::new(),
                    warned: *warned,
                    told: *told,
                    preempted: preempted.filter(|told| told.then.is_some()),
                    ends_by: *ends_by,
                    checkpoint: *checkpoint,
                });
            }
            Phase::Suspended(suspended) => {
                suspended.wanted = wanted.map(|now| suspended.wanted.unwrap_or(now));
            }
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => {}
        });
    }

    /// A suspended job wants its CPUs back. Plans did not know of that, so no start that was promised holds any more.
    fn recall(&mut self, id: JobId, at: Time) {
        self.jobs.change(id, |job| {
            if let Phase::Suspended(suspended) = &mut job.phase {
                suspended.wanted.get_or_insert(at);
            }
        });
        self.drop_promises();
    }

    /// Gives CPUs back to a suspended job.
    fn return_cpus(&mut self, id: JobId, node: NodeId, cpus: &IdSet) {
        self.jobs.change(id, |job| {
            let Phase::Suspended(suspended) = &mut job.phase else { return };
            match suspended.back.iter_mut().find(|(known, _)| *known == node) {
                Some((_, back)) => back.insert_all(cpus),
                None => suspended.back.push((node, cpus.clone())),
            }
        });
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.return_cpus(cpus);
        }
    }

    /// A suspended job has no CPUs any more.
    pub(super) fn give_up_cpus(&mut self, id: JobId) {
        let Some(Phase::Suspended(suspended)) = self.jobs.get(id).map(|job| &job.phase) else { return };
        for (node, cpus) in &suspended.back {
            if let Some(node) = self.nodes.get_mut(node.index()) {
                node.free_cpus_of(id, cpus);
            }
        }
        self.jobs.change(id, |job| {
            if let Phase::Suspended(suspended) = &mut job.phase {
                suspended.back.clear();
            }
        });
    }

    /// A suspended job that has its CPUs again goes on.
    fn resume(&mut self, id: JobId, at: Time) {
        let Some(Phase::Suspended(suspended)) = self.jobs.get(id).map(|job| &job.phase) else { return };
        let suspended = suspended.clone();
        for part in suspended.alloc.nodes.iter().filter(|_| suspended.alloc.exclusive) {
            if let Some(node) = self.nodes.get_mut(part.node.index()) {
                node.exclusive = Some(id);
            }
        }
        self.jobs.change(id, |job| {
            job.phase = Phase::Running {
                preempted: suspended.preempted,
                pauses: suspended.pauses.over(at),
                alloc: suspended.alloc,
                started: suspended.started,
                warned: suspended.warned,
                told: suspended.told,
                ends_by: suspended.ends_by,
                checkpoint: suspended.checkpoint,
            };
        });
    }
}
