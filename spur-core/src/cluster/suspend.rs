//! Suspended jobs: the CPUs that they release and get back.
//!
//! A suspended job keeps its memory and devices. It may have got some of its CPUs back ([`Suspended::back`])
//! because no other job held them. A CPU has one owner at any time.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Cluster, Event};
use crate::id::{JobId, NodeId};
use crate::model::config::PreemptBy;
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::{Pauses, Phase, Suspended};
use crate::text::time::Time;

/// The order in which suspended jobs get their CPUs back. A higher partition tier comes first, or a higher
/// QOS priority where QOS preempt; then the earlier request. The components of a het job follow each other.
pub type ClaimOrder = (Reverse<u32>, Time, JobId, JobId);

impl Cluster {
    /// The rank of a job among those that are to get CPUs back; `None` for all other jobs.
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

    /// Applies an event about a job that is suspended or becomes so.
    pub(super) fn apply_to_suspended(&mut self, event: &Event, at: Time) {
        match event {
            Event::JobSuspended { job, wanted } => self.suspend(*job, wanted.then_some(at), at),
            Event::JobRecalled { job } => self.recall(*job, at),
            Event::CpusReturned { job, node, cpus } => self.return_cpus(*job, *node, cpus),
            Event::JobResumed { job } => self.resume(*job, at),
            _ => {}
        }
    }

    /// Suspends a running job, or takes back the CPUs that a suspended one had got again. A job that waited
    /// for its CPUs before keeps its rank.
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

    /// Marks a suspended job as waiting for its CPUs. No plan took this into account, so all promised starts
    /// are dropped.
    fn recall(&mut self, id: JobId, at: Time) {
        self.jobs.change(id, |job| {
            if let Phase::Suspended(suspended) = &mut job.phase {
                suspended.wanted.get_or_insert(at);
            }
        });
        self.drop_promises();
    }

    /// Returns CPUs to a suspended job.
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

    /// Releases all CPUs that a suspended job has got back.
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

    /// Resumes a suspended job that has all its CPUs again.
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
