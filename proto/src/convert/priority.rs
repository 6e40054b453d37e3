//! The factors of job priorities, for `sprio`.

use spur_core::cluster::Cluster;
use spur_core::model::job::Job;
use spur_core::sched;
use spur_core::text::time::Time;

use crate::v1;

/// Encodes the share of a resource.
fn share(share: &sched::TresShare) -> v1::TresShare {
    v1::TresShare { name: share.kind.to_string(), share: share.share, weight: share.weight }
}

/// Encodes the factors of a pending job's priority at `now`, in each of its partitions.
pub fn render_all(cluster: &Cluster, job: &Job, now: Time) -> Vec<v1::PriorityFactors> {
    let render = |part: sched::PartPriority| {
        let factors = part.factors.unwrap_or_default();
        v1::PriorityFactors {
            job_id: job.id.0,
            user: job.spec.owner.user.to_string(),
            uid: job.spec.owner.uid,
            partition: part.partition.to_string(),
            priority: part.priority,
            is_set: part.factors.is_none(),
            age: factors.age,
            job_size: factors.job_size,
            partition_factor: factors.partition,
            qos: factors.qos,
            assoc: factors.assoc,
            fair_share: factors.fair_share,
            tres: part.tres.iter().map(share).collect(),
            nice: job.spec.nice,
            qos_name: job.spec.qos.as_deref().unwrap_or_default().to_owned(),
            account: job.spec.account.as_deref().unwrap_or_default().to_owned(),
        }
    };
    sched::priorities(cluster, job, now).into_iter().map(render).collect()
}
