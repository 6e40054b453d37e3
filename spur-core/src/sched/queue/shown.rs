//! What makes up the priority of a job that waits, for those who ask.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::sched::inventory::Inventory;
use crate::sched::request::least;
use crate::text::time::Time;

use super::priority::{Factors, Facts, multifactor};
use super::{facts, obstacle};

/// The priority of a job in one of its partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct PartPriority {
    /// The partition.
    pub partition: Arc<str>,
    /// The multifactor priority.
    pub priority: u32,
    /// What makes it up; None where it was asked for or set by an operator.
    pub factors: Option<Factors>,
}

/// The priorities of a job in its partitions, of which the largest counts; none of one that something else than room keeps
/// waiting. The components of a het job stand where the first one would if it had the size of the whole.
#[must_use]
pub fn priorities(cluster: &Cluster, job: &Job, now: Time) -> Vec<PartPriority> {
    let inventory = cluster.standing(Inventory::new);
    let leader = job.spec.het.as_deref().and_then(|het| cluster.job(het.leader)).unwrap_or(job);
    let Phase::Pending(pending) = &leader.phase else { return Vec::new() };
    if obstacle(cluster, leader, pending, now).is_some() {
        return Vec::new();
    }
    let mut whole = facts(&inventory, leader, pending.eligible.unwrap_or(leader.submitted), 0);
    for (nodes, cpus) in cluster.jobs().followers(leader).map(|job| least(&job.spec.shape)) {
        whole.nodes = whole.nodes.saturating_add(nodes);
        whole.cpus = whole.cpus.saturating_add(cpus);
    }
    let (policy, scale) = (&inventory.policy.scheduler, &inventory.scale);
    let partitions = inventory.partitions_of(&job.spec);
    partitions
        .map(|(_, partition)| {
            let facts = Facts { partition_factor: partition.config.priority_job_factor, ..whole };
            PartPriority {
                partition: Arc::clone(partition.name()),
                priority: multifactor(policy, scale, &facts, now),
                factors: facts.explicit.is_none().then(|| Factors::new(policy, scale, &facts, now)),
            }
        })
        .collect()
}
