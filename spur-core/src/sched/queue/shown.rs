//! What makes up the priority of a job that waits, for those who ask.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::sched::request::least;
use crate::sched::scene::Scene;
use crate::text::time::Time;

use super::obstacle;
use super::priority::{Factors, Facts, multifactor};

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
pub(in crate::sched) fn priorities(
    cluster: &Cluster,
    scene: &Scene,
    job: &Job,
    now: Time,
) -> Vec<PartPriority> {
    let leader = job.spec.het.as_deref().and_then(|het| cluster.job(het.leader)).unwrap_or(job);
    let Phase::Pending(pending) = &leader.phase else { return Vec::new() };
    if obstacle(cluster, leader, pending, now).is_some() {
        return Vec::new();
    }
    let components = std::iter::once(leader).chain(cluster.jobs().followers(leader));
    let (nodes, cpus) = components
        .map(|job| least(&job.spec.shape))
        .fold((0_u32, 0_u64), |sum, own| (sum.0.saturating_add(own.0), sum.1.saturating_add(own.1)));
    let facts = Facts {
        submitted: leader.submitted,
        eligible: pending.eligible.unwrap_or(leader.submitted),
        nodes,
        cpus,
        run_time: 1,
        weighed_time: 1,
        partition_factor: 0,
        qos_priority: scene.policy.qos_of(leader.spec.qos.as_deref()).map_or(0, |qos| qos.priority),
        explicit: leader.spec.priority,
        nice: leader.spec.nice,
    };
    let (policy, scale) = (&scene.policy.scheduler, &scene.scale);
    let partitions = job.spec.partitions.iter().filter_map(|name| scene.partition(name));
    partitions
        .map(|index| {
            let partition = &scene.partitions[index].partition;
            let facts = Facts { partition_factor: partition.config.priority_job_factor, ..facts };
            PartPriority {
                partition: Arc::clone(partition.name()),
                priority: multifactor(policy, scale, &facts, now),
                factors: facts.explicit.is_none().then(|| Factors::new(policy, scale, &facts, now)),
            }
        })
        .collect()
}
