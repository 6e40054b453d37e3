//! Keeps the nodes informed of the jobs that something of them is kept for, and drops what can no longer be kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::Phase;

/// What is kept of one node, altogether.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whether anything is.
    pub any: bool,
    /// Whether all of it is.
    pub exclusive: bool,
    /// CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mb: u64,
    /// Devices, as index into the node's `gres`, and how many.
    pub gres: BTreeMap<u16, u32>,
}

impl Cluster {
    /// How many more tasks of a job's array may start now; `None` where nothing limits them. Tasks that nodes are kept
    /// for count as if they had started.
    #[must_use]
    pub fn more_tasks(&self, job: &Job) -> Option<usize> {
        let limit = job.spec.array.as_ref()?.limit?;
        if job.nomination().is_some() {
            return None;
        }
        let id = job.array_id();
        let kept = self.jobs.nominated().filter(|(other, _)| other.array_id() == id).count();
        let active = self.jobs.array(id).map_or(0, |array| array.active());
        Some((limit as usize).saturating_sub(active + kept))
    }

    /// What is kept of a node for jobs other than `except`.
    #[must_use]
    pub fn kept(&self, node: NodeId, except: &[JobId]) -> Kept {
        let mut kept = Kept::default();
        let nominees = self.node(node).map_or(&[][..], |node| &node.nominees);
        for job in nominees.iter().filter(|job| !except.contains(job)) {
            let Some(nomination) = self.job(*job).and_then(Job::nomination) else { continue };
            let Some(part) = nomination.on(node) else { continue };
            kept.any = true;
            kept.exclusive |= nomination.exclusive;
            kept.cpus += part.cpus;
            kept.memory_mb += part.memory_mb;
            for (entry, count) in &part.gres {
                *kept.gres.entry(*entry).or_default() += count;
            }
        }
        kept
    }

    /// Keeps nodes for a job that waits or will wait again, or keeps none any more, neither for it nor for the other components of a het job.
    pub(super) fn nominate(&mut self, id: JobId, nomination: Option<&Arc<Nomination>>) {
        match nomination {
            Some(_) => self.keep(id, nomination),
            None => self.jobs.components(id).into_iter().for_each(|job| self.keep(job, None)),
        }
    }

    fn keep(&mut self, id: JobId, nomination: Option<&Arc<Nomination>>) {
        let before = self.jobs.get(id).and_then(|job| job.nomination()).cloned();
        if before.is_none() && nomination.is_none() {
            return;
        }
        self.jobs.change(id, |job| match &mut job.phase {
            Phase::Pending(pending) => pending.nominated = nomination.cloned(),
            Phase::Completing(completing) => completing.nominated = nomination.cloned(),
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => {}
        });
        self.tell_nodes(id, before.as_deref(), false);
        let after = self.jobs.get(id).and_then(|job| job.nomination()).cloned();
        self.tell_nodes(id, after.as_deref(), true);
    }

    /// Nothing is kept of a node any more, nor of the other nodes of the jobs it was kept for.
    pub(super) fn renounce(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id.index()) else { return };
        for job in node.nominees.clone() {
            self.nominate(job, None);
        }
    }

    /// Drops the nominations of which something is true.
    pub(super) fn drop_nominations(&mut self, which: impl Fn(&Job, &Nomination) -> bool) {
        let dropped = self.jobs.nominated().filter(|(job, nomination)| which(job, nomination));
        for job in dropped.map(|(job, _)| job.id).collect::<Vec<_>>() {
            self.nominate(job, None);
        }
    }

    pub(super) fn tell_nodes(&mut self, job: JobId, nomination: Option<&Nomination>, kept: bool) {
        for node in nomination.into_iter().flat_map(Nomination::nodes) {
            let Some(node) = self.nodes.get_mut(node.index()) else { continue };
            match (node.nominees.binary_search(&job), kept) {
                (Err(at), true) => node.nominees.insert(at, job),
                (Ok(at), false) => {
                    node.nominees.remove(at);
                }
                (Ok(_), true) | (Err(_), false) => {}
            }
        }
    }
}
