//! The amount of each node that a started job counts for in plans, and until when.
//!
//! A suspended job counts for what it keeps. CPUs that it wants back and that others have count for the
//! suspended job, so that they are not planned as free when the others end. If several jobs will have a CPU
//! one after another, it counts for the last. So at every moment the counted amounts are the held ones, and
//! no CPU that a suspended job returns to is promised to another. The time of its return is known if the
//! limits of the jobs that have its CPUs are; otherwise the suspended job is planned like a job without a
//! limit.
//!
//! A job that an operator has suspended returns at an unknown time: it keeps its amounts.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::smallvec;

use crate::cluster::{Cluster, Node};
use crate::id::{JobId, NodeId};
use crate::model::alloc::{Alloc, NodeAlloc};
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::{Phase, Suspended};
use crate::sched::forecast::{ENDLESS, Forecast, Limits};
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{Amount, CLEAR, CPUS, GRES, MEMORY, take};
use crate::text::time::Time;

/// The end of a job that may end at any moment.
const ANY_MOMENT: Time = Time(i64::MIN);

/// The allocation of a job and its planned end, which may have passed; `None` if the job holds nothing.
pub(crate) fn until<'a>(
    cluster: &Cluster,
    job: &'a Job,
    forecast: &dyn Forecast,
    now: Time,
) -> Option<(&'a Arc<Alloc>, Time)> {
    match &job.phase {
        Phase::Running { alloc, .. } => Some((alloc, running_until(job, forecast, now))),
        Phase::Suspended(suspended) => Some((&suspended.alloc, back_until(cluster, job, suspended))),
        Phase::Completing(completing) => Some((&completing.alloc, completing.kill_at.unwrap_or(ANY_MOMENT))),
        Phase::Pending(_) | Phase::Ended(_) => None,
    }
}

/// The planned end of a running job. Time for which it was suspended counts as if it had started later.
fn running_until(job: &Job, forecast: &dyn Forecast, now: Time) -> Time {
    let Phase::Running { started, preempted, ends_by, pauses, .. } = &job.phase else { return now };
    let end = forecast.end(job, *started + pauses.seconds, now).min(ends_by.unwrap_or(Time::MAX));
    // A job that is to be suspended goes on later, so only other victims end early.
    let told = preempted.filter(|preempted| preempted.then.is_some());
    told.map_or(end, |told| told.end_at.min(end))
}

/// The latest end of a suspended job if it gets its CPUs back as the jobs that have them end.
fn back_until(cluster: &Cluster, job: &Job, suspended: &Suspended) -> Time {
    let by = suspended.ends_by.unwrap_or(Time::MAX);
    let since = suspended.pauses.last.unwrap_or(suspended.started);
    let unknown = (since + ENDLESS).min(by);
    let mine = cluster.claim_order(job);
    let mut back = ANY_MOMENT;
    for part in suspended.alloc.nodes.iter().filter(|_| suspended.wanted.is_some()) {
        let Some(node) = cluster.node(part.node) else { return unknown };
        let lacking = part.cpus.difference(suspended.back_on(part.node));
        if !lacking.is_subset(&node.used.cpus) {
            // The CPU is kept for a job that has not started yet.
            return unknown;
        }
        for other in node.jobs.iter().filter(|id| **id != job.id).filter_map(|id| cluster.job(*id)) {
            let Some(theirs) = other.phase.alloc().and_then(|alloc| alloc.on(part.node)) else { continue };
            let end = match &other.phase {
                Phase::Running { .. } if !theirs.cpus.is_disjoint(&lacking) => {
                    running_until(other, &Limits, Time::ZERO)
                }
                Phase::Suspended(held) if held.wanted.is_some() && cluster.claim_order(other) < mine => {
                    match theirs.cpus.is_disjoint(&part.cpus) {
                        true => continue,
                        false => back_until(cluster, other, held),
                    }
                }
                Phase::Completing(ending) if !ending.suspended && !theirs.cpus.is_disjoint(&lacking) => {
                    ending.kill_at.unwrap_or(ending.ended)
                }
                _ => continue,
            };
            back = back.max(end);
        }
    }
    if back == ANY_MOMENT || suspended.wanted.is_none() {
        return unknown;
    }
    (back + job.remaining(back).seconds().unwrap_or(ENDLESS)).min(by)
}

/// The amount that counts for a job on one of its nodes.
fn amount_on(cluster: &Cluster, inventory: &Inventory, job: &Job, alloc: &Alloc, part: &NodeAlloc) -> Amount {
    let claims = cluster.jobs().claims().next().is_some();
    let here = cluster.node(part.node).filter(|_| claims);
    let cpus_of = |job, part| match here {
        Some(node) => Cow::Owned(counted(cluster, job, part, node)),
        None => Cow::Borrowed(own_cpus(job, part)),
    };
    let held = StartedPart { inventory, partition: &alloc.partition, part };
    let cpus = cpus_of(job, part);
    if !has_cpus(&job.phase) {
        return held.kept(&cpus);
    }
    if !alloc.exclusive {
        return held.with(&cpus);
    }
    // An exclusive job leaves nothing of the node except to suspended jobs.
    let mut rest = Amount::from_slice(inventory.full(part.node));
    let others = cluster.node(part.node).into_iter().flat_map(|node| &node.jobs);
    for other in others.filter(|other| **other != job.id) {
        let Some(other) = cluster.job(*other).filter(|other| !has_cpus(&other.phase)) else { continue };
        let Some(alloc) = other.phase.alloc() else { continue };
        let Some(theirs) = alloc.on(part.node) else { continue };
        let cpus = here.map_or(IdSet::EMPTY, |node| counted(cluster, other, theirs, node));
        take(&mut rest, &StartedPart { inventory, partition: &alloc.partition, part: theirs }.kept(&cpus));
    }
    rest
}

/// True if a job runs, or ran when its end was decided.
pub(crate) fn has_cpus(phase: &Phase) -> bool {
    match phase {
        Phase::Running { .. } => true,
        Phase::Completing(completing) => !completing.suspended,
        Phase::Pending(_) | Phase::Suspended(_) | Phase::Ended(_) => false,
    }
}

/// The CPUs that a job has at the moment.
fn own_cpus<'a>(job: &'a Job, part: &'a NodeAlloc) -> &'a IdSet {
    match &job.phase {
        Phase::Suspended(suspended) => suspended.back_on(part.node),
        Phase::Completing(completing) if completing.suspended => &IdSet::EMPTY,
        _ => &part.cpus,
    }
}

/// The CPUs of a node that count for a job where suspended jobs want some back.
fn counted(cluster: &Cluster, job: &Job, part: &NodeAlloc, node: &Node) -> IdSet {
    let mine = cluster.claim_order(job);
    let mut counted = own_cpus(job, part).clone();
    if mine.is_some() {
        // CPUs that the job lacks and others have.
        let lacking = part.cpus.difference(&counted);
        counted.insert_all(&lacking.difference(&lacking.difference(&node.used.cpus)));
    }
    for other in node.jobs.iter().filter(|id| **id != job.id).filter_map(|id| cluster.job(*id)) {
        let Some(order) = cluster.claim_order(other) else { continue };
        let Some(theirs) = other.phase.alloc().and_then(|alloc| alloc.on(node.id)) else { continue };
        let later = theirs.cpus.difference(own_cpus(other, theirs));
        // A job that is earlier in the order of claims still counts CPUs that it has already.
        let after = if Some(order) < mine { own_cpus(job, part) } else { &part.cpus };
        counted.remove_all(&later.difference(&later.difference(after)));
    }
    counted
}

/// The amounts of a started job on each node that has not released it yet, then the amounts that it closes to
/// others.
pub(crate) fn parts<'a>(
    cluster: &'a Cluster,
    inventory: &'a Inventory,
    job: &'a Job,
    alloc: &'a Alloc,
) -> impl Iterator<Item = (NodeId, Amount)> + 'a {
    let still = |part: &&NodeAlloc| match &job.phase {
        Phase::Completing(completing) => completing.waiting.contains(&part.node),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => true,
    };
    let held = alloc.nodes.iter().filter(still);
    let held = held.map(move |part| (part.node, amount_on(cluster, inventory, job, alloc, part)));
    let closed = inventory.closes(&job.spec, &alloc.partition, alloc.nodes.iter().map(|part| part.node));
    held.chain(closed.into_iter().map(move |node| (node, Amount::from_slice(inventory.full(node)))))
}

/// A job's part of a node, in the partition in which the job has started.
#[derive(Clone, Copy)]
pub(crate) struct StartedPart<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) partition: &'a str,
    pub(crate) part: &'a NodeAlloc,
}

impl StartedPart<'_> {
    /// The amount that a suspended job holds while it has these CPUs; the job still occupies the leaf.
    pub(crate) fn kept(self, cpus: &IdSet) -> Amount {
        let mut amount = self.with(cpus);
        amount[CLEAR] = 1;
        amount
    }

    /// The amount that the job holds while it has these CPUs.
    pub(crate) fn with(self, cpus: &IdSet) -> Amount {
        let Self { inventory, partition, part } = self;
        let node = &inventory.nodes[part.node.index()];
        let mut amount: Amount = smallvec![0; inventory.full(part.node).len()];
        amount[CPUS] = u64::from(cpus.len());
        amount[MEMORY] = part.memory_mb;
        let (devices, further) = amount[GRES..].split_at_mut(node.shape.gres.len());
        for gres in &part.gres {
            if let Some(entry) = devices.get_mut(usize::from(gres.entry)) {
                *entry += u64::from(gres.ids.len());
            }
        }
        inventory.limit_entries_named(partition).hold(cpus, node.cpus_per_socket, further);
        amount
    }
}

/// The nodes of suspended jobs that want CPUs back, where the amount of one job depends on the others.
pub(crate) fn entangled(cluster: &Cluster) -> impl Iterator<Item = (JobId, NodeId)> + '_ {
    let parts = |job: &Job| job.phase.alloc().cloned().map(|alloc| (job.id, alloc));
    cluster.jobs().claims().filter_map(parts).flat_map(|(job, alloc)| {
        let nodes: Vec<NodeId> = alloc.nodes.iter().map(|part| part.node).collect();
        nodes.into_iter().map(move |node| (job, node))
    })
}
