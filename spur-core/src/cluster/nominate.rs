//! Nominations: nodes learn which pending jobs have resources of theirs reserved, and nominations that cannot
//! be kept are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::Phase;

/// The resources reserved on one node, for all jobs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// True if anything is reserved.
    pub any: bool,
    /// True if the whole node is reserved.
    pub exclusive: bool,
    /// Number of reserved CPUs.
    pub cpus: u32,
    /// Amount of reserved memory in MiB.
    pub memory_mb: u64,
    /// Number of devices, by index into the node's `gres`.
    pub gres: BTreeMap<u16, u32>,
}

impl Cluster {
    /// Number of further tasks of a job's array that may start; `None` without a limit. Tasks with nodes
    /// reserved count as started, so the limit does not stop these: for their record the result is `None`,
    /// too.
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

    /// The resources of a node that are reserved for jobs other than `except`.
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

    /// Keeps nodes for a job that waits or will wait again, or keeps none any more, neither for it nor for
    /// the other components of a het job.
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

    /// Drops the nominations that include a node, with all their nodes.
    pub(super) fn renounce(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id.index()) else { return };
        for job in node.nominees.clone() {
            self.nominate(job, None);
        }
    }

    /// Drops the nominations for which `which` returns true.
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
