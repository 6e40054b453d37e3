//! Returns CPUs to suspended jobs as these become free, and resumes each job that has all of its CPUs.
//!
//! Suspended jobs have the first claim. [`settle`] runs after every input, so no pending job starts on a CPU
//! that a suspended job waits for. Jobs for which nodes are reserved while their victims end are an
//! exception. Among suspended jobs, `order` decides: the first also gets CPUs that were returned to a later
//! one. A job whose nodes are reserved for others before it would end gets none.

use super::Ctx;
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::alloc::NodeAlloc;
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::{Phase, Suspended};
use crate::text::time::Time;

/// Returns free CPUs in the order of the claims, and resumes the jobs that have all of theirs.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    if ctx.cluster().jobs().claims().next().is_none() {
        return;
    }
    let order = order(ctx.cluster());
    for (at, job) in order.iter().enumerate() {
        if !may_go_on(ctx.cluster(), *job, ctx.now()) {
            give_up(ctx, *job);
            continue;
        }
        for other in &order[at + 1..] {
            if stands_in_the_way(ctx.cluster(), *other, *job) {
                give_up(ctx, *other);
            }
        }
        for (node, cpus) in free(ctx.cluster(), *job) {
            ctx.emit(Event::CpusReturned { job: *job, node, cpus });
        }
    }
    for job in order {
        let whole = |id: &JobId| suspended(ctx.cluster(), *id).is_some_and(Suspended::is_whole);
        let components = ctx.cluster().jobs().components(job);
        if components.iter().all(whole) && components.iter().all(|job| has_room_alone(ctx.cluster(), *job)) {
            for job in components {
                ctx.emit(Event::JobResumed { job });
            }
        }
    }
}

/// The reason, for messages, that keeps a suspended job from resuming.
pub(super) fn obstacle(cluster: &Cluster, job: &Job, now: Time) -> String {
    if !may_go_on(cluster, job.id, now) {
        return "a reservation keeps it from its nodes".to_owned();
    }
    let Some(held) = suspended(cluster, job.id) else { return String::new() };
    let lacks = held.alloc.nodes.iter().find(|part| *held.back_on(part.node) != part.cpus);
    let name = |node: NodeId| cluster.node(node).map(|node| node.name().to_string()).unwrap_or_default();
    match lacks {
        Some(part) => {
            let missing = part.cpus.difference(held.back_on(part.node));
            format!("others have CPUs {missing} of {}", name(part.node))
        }
        None => "another component of it waits for its CPUs".to_owned(),
    }
}

/// The jobs that wait for CPUs, in the order of their claims. Components of a het job follow each other.
fn order(cluster: &Cluster) -> Vec<JobId> {
    let claims = cluster.jobs().claims();
    let mut order: Vec<_> = claims.filter_map(|job| cluster.claim_order(job)).collect();
    order.sort_unstable();
    order.into_iter().map(|(.., job)| job).collect()
}

fn suspended(cluster: &Cluster, job: JobId) -> Option<&Suspended> {
    match &cluster.job(job)?.phase {
        Phase::Suspended(suspended) => Some(suspended),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Completing(_) | Phase::Ended(_) => None,
    }
}

/// True if reservations let a job use its nodes for the rest of its time limit.
fn may_go_on(cluster: &Cluster, id: JobId, now: Time) -> bool {
    let Some((job, held)) = cluster.job(id).zip(suspended(cluster, id)) else { return false };
    let nodes: Vec<NodeId> = held.alloc.nodes.iter().map(|part| part.node).collect();
    cluster.lets_run(job, job.remaining(now), held.alloc.reservation.as_deref(), &nodes, now)
}

/// True if CPUs have been returned to `other` that `job` lacks.
fn stands_in_the_way(cluster: &Cluster, other: JobId, job: JobId) -> bool {
    let (Some(other), Some(job)) = (suspended(cluster, other), suspended(cluster, job)) else { return false };
    other.back.iter().any(|(node, cpus)| job.alloc.on(*node).is_some_and(|part| !part.cpus.is_disjoint(cpus)))
}

fn give_up(ctx: &mut Ctx<'_>, job: JobId) {
    if suspended(ctx.cluster(), job).is_some_and(|held| !held.back.is_empty()) {
        ctx.emit(Event::JobSuspended { job, wanted: true });
    }
}

/// The free CPUs that a job lacks, by node, without those reserved for other jobs.
fn free(cluster: &Cluster, id: JobId) -> Vec<(NodeId, IdSet)> {
    let Some(held) = suspended(cluster, id) else { return Vec::new() };
    let lacking = |part: &NodeAlloc| {
        let node = cluster.node(part.node)?;
        let cpus = free_on(cluster, node, &part.cpus.difference(held.back_on(part.node)));
        (!cpus.is_empty()).then_some((part.node, cpus))
    };
    held.alloc.nodes.iter().filter_map(lacking).collect()
}

fn free_on(cluster: &Cluster, node: &Node, wanted: &IdSet) -> IdSet {
    let kept = cluster.kept(node.id, &[]);
    if kept.exclusive || node.exclusive.is_some() {
        return IdSet::EMPTY;
    }
    let free = node.free_cpus();
    let found = wanted.difference(&node.used.cpus);
    match kept.any {
        false => found,
        true => {
            let threads = node.shape.threads_per_core.max(1);
            let most = free.len().saturating_sub(kept.cpus) / threads * threads;
            found.lowest(most)
        }
    }
}

/// True if a job that needs its nodes exclusively would have them so.
fn has_room_alone(cluster: &Cluster, id: JobId) -> bool {
    let Some(held) = suspended(cluster, id) else { return false };
    let alone = |part: &NodeAlloc| cluster.node(part.node).is_some_and(|node| node.used.cpus == part.cpus);
    !held.alloc.exclusive || held.alloc.nodes.iter().all(alone)
}
