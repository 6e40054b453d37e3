//! The rules for preemption: which jobs may preempt which, and how a victim makes way. The planner and the
//! controller both ask here.

use crate::cluster::Cluster;
use crate::id::NodeId;
use crate::model::alloc::Alloc;
use crate::model::config::{PartitionConfig, Policy, PreemptBy, PreemptMode};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Phase, Suspended, Then};
use crate::text::time::{Seconds, Time, TimeLimit};

/// The rank of a job where its nodes, or nodes kept for it, are disputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The priority tier of the job's partition. Where QOS preempt, the priority of its QOS, 0 without one.
    /// It also measures the cost of preempting the job.
    pub level: u32,
    /// The index of the job's QOS in the policy; `None` where QOS do not decide or the job has none.
    qos: Option<usize>,
}

impl Rank {
    /// The rank of a job in one of its partitions.
    #[must_use]
    pub fn of(policy: &Policy, spec: &JobSpec, partition: &PartitionConfig) -> Self {
        match policy.preempt.by {
            PreemptBy::None | PreemptBy::Partition => Self { level: partition.priority_tier, qos: None },
            PreemptBy::Qos => {
                let qos = spec.qos.as_deref().and_then(|name| policy.qos_index(name));
                Self { level: qos.map_or(0, |qos| policy.qos[qos].priority), qos }
            }
        }
    }

    /// True if a job of this rank may preempt one of rank `victim`.
    #[must_use]
    pub fn preempts(self, victim: Rank, policy: &Policy) -> bool {
        match policy.preempt.by {
            PreemptBy::None => false,
            PreemptBy::Partition => victim.level < self.level,
            PreemptBy::Qos => victim.qos.is_some_and(|victim| {
                let name = &policy.qos[victim].name;
                self.qos.is_some_and(|mine| policy.qos[mine].preempt.contains(name))
            }),
        }
    }

    /// True if a job of this rank may preempt every job that one of rank `other` may preempt. Then it may
    /// also take over nodes that were cleared for that one. No job covers one that may preempt it.
    #[must_use]
    pub fn covers(self, other: Rank, policy: &Policy) -> bool {
        match policy.preempt.by {
            PreemptBy::None | PreemptBy::Partition => self.level >= other.level,
            PreemptBy::Qos => {
                let reach = |rank: Rank| rank.qos.map_or(&[][..], |qos| &policy.qos[qos].preempt);
                reach(other).iter().all(|name| reach(self).contains(name))
            }
        }
    }
}

/// The manner in which a job makes way when it is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The end of the job, or a new wait in the queue; `None` if it is suspended.
    pub then: Option<Then>,
    /// Seconds that the victim has from the notice (CONT and TERM) to the order to end; 0 for a suspended
    /// job.
    pub grace: Seconds,
    /// The rank of the victim: only jobs whose rank [preempts](Rank::preempts) it may preempt the job.
    pub rank: Rank,
}

/// The manner in which a running job would make way at `now`. `None` if it may not be preempted, is being
/// preempted already, or may have ended on a node that has not yet reported to a new controller.
///
/// A het job is preempted whole. It may be preempted if all its components may. It has the highest of their
/// ranks and the longest of their grace times. All of them have one QOS.
#[must_use]
pub fn manner(cluster: &Cluster, job: &Job, now: Time) -> Option<Manner> {
    if cluster.awaits_report(job.id) {
        return None;
    }
    let Some(het) = &job.spec.het else {
        return own_manner(cluster, job, now).filter(|manner| manner.then.is_some() || has_cpus(job));
    };
    let mut whole: Option<Manner> = None;
    for component in het.jobs() {
        let own = own_manner(cluster, cluster.job(component)?, now)?;
        whole = Some(whole.map_or(own, |whole| Manner {
            grace: Seconds(whole.grace.0.max(own.grace.0)),
            rank: whole.rank.max(own.rank),
            ..whole
        }));
    }
    let any_has = || het.jobs().filter_map(|id| cluster.job(id)).any(has_cpus);
    whole.filter(|manner| manner.then.is_some() || any_has())
}

/// True if a job holds CPUs that it can release.
fn has_cpus(job: &Job) -> bool {
    match &job.phase {
        Phase::Suspended(suspended) => !suspended.back.is_empty(),
        Phase::Running { .. } => true,
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => false,
    }
}

fn own_manner(cluster: &Cluster, job: &Job, now: Time) -> Option<Manner> {
    let policy = cluster.policy();
    let (Phase::Running { alloc, preempted: None, .. } | Phase::Suspended(Suspended { alloc, .. })) =
        &job.phase
    else {
        return None;
    };
    let told = job.phase.preempted().and_then(|told| told.then);
    if told.is_some() || exempt_until(cluster, job)? > now {
        return None;
    }
    let config = &cluster.partition(&alloc.partition)?.config;
    let then = match mode(policy, &job.spec, config) {
        PreemptMode::Off => return None,
        PreemptMode::Suspend if !may_wait(cluster, job, alloc, now) => return None,
        PreemptMode::Suspend => None,
        PreemptMode::Cancel => Some(Then::End),
        PreemptMode::Requeue if job.spec.requeue && job.spec.batch.is_some() => {
            Some(Then::Requeue { hold: None })
        }
        PreemptMode::Requeue => Some(Then::End),
    };
    let qos = policy.qos_of(job.spec.qos.as_deref());
    let grace = qos.and_then(|qos| qos.grace_time).or(config.grace_time);
    let grace = match &job.phase {
        // A suspended job receives no signal, so it needs no time.
        Phase::Suspended(_) => Seconds(0),
        _ => grace.unwrap_or(policy.preempt.grace_time),
    };
    Some(Manner { then, grace, rank: Rank::of(policy, &job.spec, config) })
}

/// The time from which a running job may be preempted. `None` if never: the job is neither running nor
/// suspended, preemption is off or forbidden by the job, its QOS or its partition, or no QOS may preempt its
/// QOS.
#[must_use]
pub fn exempt_until(cluster: &Cluster, job: &Job) -> Option<Time> {
    let policy = cluster.policy();
    let (Phase::Running { alloc, started, .. } | Phase::Suspended(Suspended { alloc, started, .. })) =
        &job.phase
    else {
        return None;
    };
    let forbidden = job.spec.extra.as_ref().is_some_and(|extra| extra.no_preempt);
    let config = &cluster.partition(&alloc.partition)?.config;
    let spared = mode(policy, &job.spec, config) == PreemptMode::Off;
    let qos = policy.qos_of(job.spec.qos.as_deref());
    let may = match policy.preempt.by {
        PreemptBy::None => false,
        PreemptBy::Partition => true,
        PreemptBy::Qos => qos.is_some_and(|own| policy.qos.iter().any(|qos| qos.preempt.contains(&own.name))),
    };
    let exempt = qos.and_then(|qos| qos.exempt_time).unwrap_or(policy.preempt.exempt_time);
    (may && !forbidden && !spared).then(|| *started + exempt.0)
}

/// True if a job may end later than its limit now says: none of its nodes are reserved for others at any
/// later time. Otherwise the job must not be suspended, because it could overrun a reservation after its
/// return.
fn may_wait(cluster: &Cluster, job: &Job, alloc: &Alloc, now: Time) -> bool {
    let nodes: Vec<NodeId> = alloc.nodes.iter().map(|part| part.node).collect();
    cluster.lets_run(job, TimeLimit::Unlimited, alloc.reservation.as_deref(), &nodes, now)
}

/// The preemption mode of a victim: that of its QOS, or else of its partition, or else of the cluster.
fn mode(policy: &Policy, spec: &JobSpec, partition: &PartitionConfig) -> PreemptMode {
    let qos = policy.qos_of(spec.qos.as_deref()).and_then(|qos| qos.preempt_mode);
    qos.or(partition.preempt_mode).unwrap_or(policy.preempt.mode)
}

/// True if any job of a cluster could ever preempt another: preemption is on, and partitions have different
/// tiers or some QOS preempts another.
pub(crate) fn may_preempt(cluster: &Cluster) -> bool {
    let policy = cluster.policy();
    match policy.preempt.by {
        PreemptBy::None => false,
        PreemptBy::Partition => {
            let mut tiers = cluster.partitions().iter().map(|partition| partition.config.priority_tier);
            let first = tiers.next();
            tiers.any(|tier| Some(tier) != first)
        }
        PreemptBy::Qos => policy.qos.iter().any(|qos| !qos.preempt.is_empty()),
    }
}

/// True if the protected time of some running job ended after `before` and by `now`.
pub(crate) fn exempt_ended(cluster: &Cluster, before: Time, now: Time) -> bool {
    let policy = cluster.policy();
    let some = policy.preempt.exempt_time.0 > 0 || policy.qos.iter().any(|qos| qos.exempt_time.is_some());
    let ends = || cluster.jobs().active().filter_map(|job| exempt_until(cluster, job));
    some && before < now && ends().any(|end| before < end && end <= now)
}

/// The reach of a job: a job can preempt running jobs only of levels below its reach, and none if its reach
/// is 0. The reach is the highest tier of `partitions`, or 0 if that is the lowest tier of `all` partitions.
/// Where QOS preempt, the levels of victims count as 0: the reach is 1 if the job's QOS may preempt another,
/// else 0. The reach is 0 if preemption is off.
pub(crate) fn reach<'a>(
    policy: &Policy,
    all: impl IntoIterator<Item = u32>,
    qos: Option<&str>,
    partitions: impl IntoIterator<Item = &'a PartitionConfig>,
) -> u32 {
    match policy.preempt.by {
        PreemptBy::None => 0,
        PreemptBy::Partition => {
            let lowest = all.into_iter().min().unwrap_or(0);
            let tiers = partitions.into_iter().map(|partition| partition.priority_tier);
            tiers.max().filter(|tier| *tier > lowest).unwrap_or(0)
        }
        PreemptBy::Qos => {
            let own = policy.qos_of(qos);
            u32::from(own.is_some_and(|own| !own.preempt.is_empty()))
        }
    }
}

/// The next moment after `now` at which a running job loses its protection from a waiting one; `None` if
/// there is none.
pub(crate) fn next_exempt_end(cluster: &Cluster, now: Time) -> Option<Time> {
    let policy = cluster.policy();
    let of_qos = || policy.qos.iter().any(|qos| qos.exempt_time.is_some_and(|time| time.0 > 0));
    if !may_preempt(cluster) || (policy.preempt.exempt_time.0 == 0 && !of_qos()) {
        return None;
    }
    let rank =
        |job: &Job, partition: &str| Some(Rank::of(policy, &job.spec, &cluster.partition(partition)?.config));
    let mut waiting: Vec<Rank> = Vec::new();
    for job in cluster.jobs().pending().filter(|job| job.eligible_at(now)) {
        for rank in job.spec.partitions.iter().filter_map(|name| rank(job, name)) {
            if !waiting.contains(&rank) {
                waiting.push(rank);
            }
        }
    }
    let ends = cluster.jobs().active().filter_map(|job| match &job.phase {
        Phase::Running { alloc, preempted: None, .. } => {
            let victim = rank(job, &alloc.partition)?;
            waiting.iter().any(|rank| rank.preempts(victim, policy)).then_some(())?;
            exempt_until(cluster, job)
        }
        _ => None,
    });
    ends.filter(|end| *end > now).min()
}
