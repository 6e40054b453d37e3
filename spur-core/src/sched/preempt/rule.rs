//! Who may be preempted by whom, and how it goes: asked by the planner, and again by the controller.

use crate::cluster::Cluster;
use crate::model::config::{PartitionConfig, PreemptBy, PreemptMode, PreemptPolicy};
use crate::model::job::Job;
use crate::model::phase::{Phase, Then};
use crate::text::time::{Seconds, Time};

/// How a job makes way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Whether it waits again afterwards.
    pub then: Then,
    /// Seconds from TERM to the end.
    pub grace: Seconds,
    /// The tier it runs in: only jobs of a higher one may preempt it.
    pub tier: u32,
}

/// How a running job would make way at `now`; `None` if it may not be asked to, or has been already. A het job goes whole:
/// it may be asked if all its components may, counts for the highest of their tiers and has the longest of their grace
/// times.
#[must_use]
pub fn manner(cluster: &Cluster, job: &Job, now: Time) -> Option<Manner> {
    let Some(het) = &job.spec.het else { return own_manner(cluster, job, now) };
    let mut whole: Option<Manner> = None;
    for component in het.jobs() {
        let own = own_manner(cluster, cluster.job(component)?, now)?;
        whole = Some(whole.map_or(own, |whole| Manner {
            grace: Seconds(whole.grace.0.max(own.grace.0)),
            tier: whole.tier.max(own.tier),
            ..whole
        }));
    }
    whole
}

fn own_manner(cluster: &Cluster, job: &Job, now: Time) -> Option<Manner> {
    let policy = &cluster.policy().preempt;
    let Phase::Running { alloc, preempted: None, .. } = &job.phase else { return None };
    if exempt_until(cluster, job)? > now {
        return None;
    }
    let config = &cluster.partition(&alloc.partition)?.config;
    let then = match mode(policy, config) {
        PreemptMode::Off | PreemptMode::Suspend => return None,
        PreemptMode::Cancel => Then::End,
        PreemptMode::Requeue if job.spec.requeue && job.spec.batch.is_some() => Then::Requeue { hold: None },
        PreemptMode::Requeue => Then::End,
    };
    let grace = config.grace_time.unwrap_or(policy.grace_time);
    Some(Manner { then, grace, tier: config.priority_tier })
}

/// From when on a running job may be preempted; `None` if never: it forbids it, its partition does, or nobody preempts
/// anybody.
#[must_use]
pub fn exempt_until(cluster: &Cluster, job: &Job) -> Option<Time> {
    let policy = &cluster.policy().preempt;
    let Phase::Running { alloc, started, .. } = &job.phase else { return None };
    let forbidden = job.spec.extra.as_ref().is_some_and(|extra| extra.no_preempt);
    let config = &cluster.partition(&alloc.partition)?.config;
    // Suspending is refused by the configuration; a policy of an earlier release that has it never had an effect.
    let spared = matches!(mode(policy, config), PreemptMode::Off | PreemptMode::Suspend);
    let may = policy.by == PreemptBy::Partition && !forbidden && !spared;
    may.then(|| *started + policy.exempt_time.0)
}

fn mode(policy: &PreemptPolicy, partition: &PartitionConfig) -> PreemptMode {
    partition.preempt_mode.unwrap_or(policy.mode)
}

/// Whether any job of a cluster could ever make another leave: preemption is on, and partitions have different tiers.
pub(in crate::sched) fn may_preempt(cluster: &Cluster) -> bool {
    let mut tiers = cluster.partitions().iter().map(|partition| partition.config.priority_tier);
    let first = tiers.next();
    cluster.policy().preempt.by == PreemptBy::Partition && tiers.any(|tier| Some(tier) != first)
}

/// The next moment after `now` at which a job has run long enough to be preempted by one that waits.
pub(in crate::sched) fn next_exempt_end(cluster: &Cluster, now: Time) -> Option<Time> {
    let policy = &cluster.policy().preempt;
    if policy.by != PreemptBy::Partition || policy.exempt_time.0 == 0 {
        return None;
    }
    let tier = |name: &str| cluster.partition(name).map(|partition| partition.config.priority_tier);
    let waiting = cluster.jobs().pending().filter(|job| job.eligible_at(now));
    let highest = waiting.flat_map(|job| job.spec.partitions.iter()).filter_map(|name| tier(name)).max()?;
    let ends = cluster.jobs().active().filter_map(|job| match &job.phase {
        Phase::Running { alloc, preempted: None, .. } if tier(&alloc.partition)? < highest => {
            exempt_until(cluster, job)
        }
        _ => None,
    });
    ends.filter(|end| *end > now).min()
}
