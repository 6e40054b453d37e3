//! Start of a job that the planner proposes, if the premises of the plan still hold; chooses the exact CPUs
//! and devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, devices, reboot, usage};
use crate::cluster::limits::Starter;
use crate::cluster::tres::Amounts;
use crate::cluster::{Cluster, CpusLeft, Event, Kept, Node, Partition, Split};
use crate::id::{ArrayTaskId, JobId, NodeId};
use crate::model::accounts::usage::Rate;
use crate::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use crate::model::idset::IdSet;
use crate::model::job::{Configuring, Job, JobSpec};
use crate::model::node::Drain;
use crate::sched::licensed;
use crate::sched::plan::{Start, StartPart};
use crate::text::time::Time;

/// The allocations of the job, or of all components of a het job.
pub(super) struct Decision(Vec<Grant>);

/// The allocation of one job.
struct Grant {
    job: JobId,
    alloc: Arc<Alloc>,
    /// The task that gets a record of its own; `None` if the record starts whole.
    split: Option<ArrayTaskId>,
}

/// Checks a proposed start. The plan may be older than the cluster's state: the job may have been cancelled
/// or changed, a node may have gone. Such a proposal is refused, and the next pass plans again.
pub(super) fn check(cluster: &Cluster, now: Time, start: &Start) -> Result<Decision, Reject> {
    let mut taken = BTreeMap::new();
    let mut started = Vec::with_capacity(start.rest.len() + 1);
    let alone = start.rest.is_empty();
    let jobs: Vec<JobId> = start.all().map(|start| start.attempt.job).collect();
    for start in start.all() {
        let alloc = alloc(cluster, now, start, (&jobs, &taken))?;
        let job = start.attempt.job;
        for part in alloc.nodes.iter().filter(|_| !alone) {
            let node = taken.entry(part.node).or_insert_with(|| cluster.node(part.node).cloned());
            node.iter_mut().for_each(|node| node.take(job, part, alloc.exclusive));
        }
        let several = cluster.job(job).is_some_and(|job| job.task_count() > 1);
        started.push(Grant { job, alloc: Arc::new(alloc), split: start.task.filter(|_| several) });
    }
    if !alone && !have_cpus_together(cluster, &started, &jobs) {
        return Err(Reject::Stale(format!("job {}: its components have too many CPUs", start.attempt.job)));
    }
    if cluster.jobs().components(start.attempt.job) != jobs {
        return Err(Reject::Stale(format!("job {}: a component is missing", start.attempt.job)));
    }
    has_licenses(cluster, now, start)?;
    let held = start.all().zip(&started);
    let held: Vec<_> =
        held.map(|(start, grant)| (start, cluster.amounts_held(&start.spec, &grant.alloc))).collect();
    // Resources of a nominated job have counted since its preemption, so no limit may stop its start.
    let is_kept = |job: &JobId| cluster.job(*job).is_some_and(|job| job.nomination().is_some());
    if !jobs.iter().all(is_kept) {
        within_limits(cluster, now, held, &[])?;
    }
    Ok(Decision(started))
}

/// True if the limits of partitions on CPUs admit all components of a het job together, each of which they
/// admit alone.
fn have_cpus_together(cluster: &Cluster, grants: &[Grant], jobs: &[JobId]) -> bool {
    let mut taken: BTreeMap<(NodeId, &str), IdSet> = BTreeMap::new();
    for grant in grants {
        for part in &grant.alloc.nodes {
            taken.entry((part.node, &*grant.alloc.partition)).or_default().insert_all(&part.cpus);
        }
    }
    taken.iter().all(|((node, partition), cpus)| {
        let (node, partition) = (cluster.node(*node), cluster.partition(partition));
        let left = node.zip(partition).and_then(|(node, of)| cluster.cpus_left(node, &of.config, jobs));
        left.is_none_or(|left| left.admits(cpus))
    })
}

/// Refuses a proposal, of one job or of all components of a het job, unless its licenses are free for all of
/// its time.
pub(super) fn has_licenses(cluster: &Cluster, now: Time, start: &Start) -> Result<(), Reject> {
    let limit = |start: &Start| start.time_limit.unwrap_or(start.spec.time_limit);
    let all: Vec<licensed::Starter<'_>> =
        start.all().map(|start| (&*start.spec, limit(start), start.reservation.as_deref())).collect();
    match licensed::lets_start(cluster, now, &all) {
        true => Ok(()),
        false => Err(Reject::Stale(format!("job {}: its licenses are not free", start.attempt.job))),
    }
}

/// Refuses a proposal that limits of associations or QOS stop. Jobs of `displaced` are about to lose their
/// nominations and do not count.
pub(super) fn within_limits(
    cluster: &Cluster,
    now: Time,
    proposed: Vec<(&Start, Amounts)>,
    displaced: &[JobId],
) -> Result<(), Reject> {
    let starter = |(start, amounts): (&Start, Amounts)| Starter {
        job: start.attempt.job,
        spec: Arc::clone(&start.spec),
        partition: Arc::clone(&start.partition),
        amounts,
        limit: start.time_limit.unwrap_or(start.spec.time_limit),
    };
    let starters: Vec<Starter> = proposed.into_iter().map(starter).collect();
    match cluster.stops(now, &starters, displaced) {
        None => Ok(()),
        Some(stop) => {
            let job = starters.first().map(|starter| starter.job).unwrap_or_default();
            Err(Reject::Stale(format!("job {job}: {}: {stop}", stop.reason())))
        }
    }
}

/// The allocation of one job. `together` are the jobs that start with it; `taken` are the nodes after the
/// earlier ones' starts.
fn alloc(
    cluster: &Cluster,
    now: Time,
    start: &Start,
    (together, taken): (&[JobId], &BTreeMap<NodeId, Option<Node>>),
) -> Result<Alloc, Reject> {
    let stale = |what: &str| Err(Reject::Stale(format!("job {}: {what}", start.attempt.job)));
    let (job, partition) = proposed(cluster, now, start)?;
    if job.nomination().is_some_and(|nomination| *nomination.parts != *start.parts) {
        return stale("other nodes are kept for it");
    }
    let mut nodes = Vec::with_capacity(start.parts.len());
    for part in &start.parts {
        let kept = cluster.kept(part.node, together);
        let node = taken.get(&part.node).map_or_else(|| cluster.node(part.node), Option::as_ref);
        let node = node.filter(|node| node.available());
        let held = node.and_then(|node| {
            let left = cluster.cpus_left(node, &partition.config, together);
            take(node, (&kept, left.as_ref()), part, start.exclusive, &start.spec)
        });
        let Some(held) = held else {
            return stale("a node is not free");
        };
        nodes.push(held);
    }
    let cpus = Rate::whole(nodes.iter().map(|part| u64::from(part.cpus.len())).sum());
    let billing = cluster.amounts_given(&start.spec, partition, &nodes).all.billing;
    Ok(Alloc {
        partition: Arc::clone(partition.name()),
        reservation: start.reservation.clone(),
        time_limit: start.time_limit,
        charged: cluster.charged(&start.spec, partition),
        billing: Some(billing).filter(|rate| *rate != cpus),
        nodes: nodes.into(),
        exclusive: start.exclusive,
        why: start.why.clone(),
        lost: Box::default(),
    })
}

/// The job and the partition of a proposal that is still valid, on available nodes.
pub(super) fn proposed<'a>(
    cluster: &'a Cluster,
    now: Time,
    start: &Start,
) -> Result<(&'a Job, &'a Partition), Reject> {
    let stale = |what: &str| Err(Reject::Stale(format!("job {}: {what}", start.attempt.job)));
    let Some(job) = cluster.job(start.attempt.job).filter(|job| job.attempt() == start.attempt) else {
        return stale("there is no such attempt");
    };
    if !job.eligible_at(now) {
        return stale("it is not waiting for resources");
    }
    match (&job.array, start.task) {
        (None, None) => {}
        (Some(part), Some(task)) if part.tasks.contains(task.0) => {}
        _ => return stale("it does not stand for that task any more"),
    }
    if cluster.more_tasks(job) == Some(0) {
        return stale("no more tasks of its array may run now");
    }
    Ok((job, may_run(cluster, now, job, start)?))
}

/// Checks that the job of a proposal may run in its partition now, on nodes that can be used. Returns the
/// partition.
pub(super) fn may_run<'a>(
    cluster: &'a Cluster,
    now: Time,
    job: &Job,
    start: &Start,
) -> Result<&'a Partition, Reject> {
    let stale = |what: &str| Err(Reject::Stale(format!("job {}: {what}", start.attempt.job)));
    if !Arc::ptr_eq(&job.spec, &start.spec) && job.spec != start.spec {
        return stale("its request was changed");
    }
    if start.ground != cluster.ground() {
        return stale("nodes are elsewhere, or not what they were");
    }
    let Some(partition) = cluster.partition(&start.partition).filter(|partition| partition.starts()) else {
        return stale("its partition starts nothing");
    };
    if !cluster.policy().knows_qos(job.spec.qos.as_deref()) {
        return stale("its QOS is gone");
    }
    if !cluster.has_association(&job.spec, partition.name()) {
        return stale("its association is gone");
    }
    if let Some(below) = cluster.below_threshold(&job.spec, partition) {
        return stale(&below.to_string());
    }
    if let Some(limit) = partition.config.limit(&job.spec, cluster.policy().qos_of(job.spec.qos.as_deref())) {
        return stale(&limit.sentence(&partition.config, &job.spec));
    }
    if start.parts.is_empty() {
        return stale("no nodes were proposed");
    }
    for part in &start.parts {
        let node = cluster.node(part.node).filter(|node| node.available());
        if !node.is_some_and(|node| partition.members.contains(node.id.index())) {
            return stale("a node is not available");
        }
    }
    let nodes: Vec<_> = start.parts.iter().map(|part| part.node).collect();
    let least = job.spec.least_time();
    if start.time_limit.is_some_and(|limit| limit < least || limit > job.spec.time_limit) {
        return stale("its time limit was changed");
    }
    let limit = start.time_limit.unwrap_or(job.spec.time_limit);
    if !cluster.lets_start(job, limit, start.reservation.as_deref(), &nodes, now) {
        return stale("a reservation keeps it from its nodes");
    }
    Ok(partition)
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    usage::catch_up(ctx);
    // The batch script belongs to the first component, so the others start before it is launched.
    for Grant { job: from, alloc, split } in decision.0.into_iter().rev() {
        let split = split.map(|task| Split { from, task });
        let job = if split.is_some() { ctx.cluster().next_job() } else { from };
        let prolog = ctx.cluster().policy().jobs.prolog_slurmctld.is_some();
        let boots = reboot::wanted(ctx.cluster(), from, &alloc);
        let is_off = |node: &NodeId| ctx.cluster().node(*node).is_some_and(Node::is_off);
        let off = alloc.nodes.iter().map(|part| part.node).filter(is_off);
        let nodes = off.chain(boots.iter().copied()).collect();
        let by = ctx.cluster().job(from).map(|job| Arc::clone(&job.spec.owner.user)).unwrap_or_default();
        let drain = Drain { reason: "".into(), by, at: ctx.now(), until_mended: false };
        ctx.emit(Event::JobStarted { job, alloc, split, configuring: Configuring { prolog, nodes } });
        for node in boots {
            reboot::wish(ctx, node, &drain, false, None);
        }
    }
    Reply::Done
}

/// Takes a job's part of a node: the lowest free CPUs, which keeps free ones together, and devices near them.
/// `None` if the node lacks resources beside those reserved for other jobs, or if the partition's limit
/// leaves fewer CPUs.
pub(in crate::controller) fn take(
    node: &Node,
    (kept, left): (&Kept, Option<&CpusLeft>),
    part: &StartPart,
    exclusive: bool,
    spec: &JobSpec,
) -> Option<NodeAlloc> {
    if kept.exclusive || (exclusive && (kept.any || !node.is_vacant())) {
        return None;
    }
    if kept.any && !leaves(node, kept, part) {
        return None;
    }
    let near = !spec.takes_any_devices();
    let cpus = match left {
        _ if exclusive => node.free_cpus(),
        None => shared_cpus(node, part, near)?,
        Some(left) => chosen_cpus(node, part, near, &left.among(&node.free_cpus()))?,
    };
    if left.is_some_and(|left| !left.admits(&cpus)) {
        return None;
    }
    let memory_mb = if part.memory_mb <= node.free_memory_mb() { part.memory_mb } else { return None };
    let mut gres = Vec::with_capacity(part.gres.len());
    for (entry, count) in &part.gres {
        let free = node.free_gres(usize::from(*entry));
        let ids = devices::choose(&node.shape, *entry, &free, *count, near.then_some(&cpus));
        if ids.len() < *count {
            return None;
        }
        let shards = !exclusive && spec.shape.gets_shards() && node.shape.is_shared(usize::from(*entry));
        gres.push(GresAlloc { entry: *entry, ids, shards });
    }
    if cpus.len() < part.cpus || cpus.is_empty() {
        return None;
    }
    Some(NodeAlloc { node: node.id, tasks: part.tasks, cpus, memory_mb, gres: gres.into_boxed_slice() })
}

/// CPUs for a part of a shared node: the lowest ones, unless other CPUs have more of the part's devices near
/// them and `near` is set. `None` if too few whole cores are free. On a node with one thread per core there
/// may be fewer CPUs than requested, which the caller checks.
fn shared_cpus(node: &Node, part: &StartPart, near: bool) -> Option<IdSet> {
    let threads = node.shape.threads_per_core.max(1);
    let looks = near && !node.shape.places.is_empty();
    if threads == 1 && (!looks || part.gres.is_empty()) {
        return Some(node.lowest_free_cpus(part.cpus));
    }
    chosen_cpus(node, part, near, &node.free_cpus())
}

/// The CPUs that [`shared_cpus`] chooses among free ones.
fn chosen_cpus(node: &Node, part: &StartPart, near: bool, free: &IdSet) -> Option<IdSet> {
    let threads = node.shape.threads_per_core.max(1);
    let lowest = cores(free, part.cpus, threads, &IdSet::default())?;
    if !near || node.shape.places.is_empty() {
        return Some(lowest);
    }
    let far = |cpus: &IdSet| -> usize {
        let chosen = part.gres.iter().map(|(entry, count)| {
            let ids = devices::choose(
                &node.shape,
                *entry,
                &node.free_gres(usize::from(*entry)),
                *count,
                Some(cpus),
            );
            devices::far(&node.shape, *entry, &ids, cpus)
        });
        chosen.sum()
    };
    let regions = part
        .gres
        .iter()
        .flat_map(|(entry, _)| devices::regions(&node.shape, *entry, &node.free_gres(usize::from(*entry))));
    let near = regions.filter_map(|region| cores(free, part.cpus, threads, &region));
    std::iter::once(lowest).chain(near).min_by_key(far)
}

/// True if a part leaves enough for the jobs that have resources reserved.
fn leaves(node: &Node, kept: &Kept, part: &StartPart) -> bool {
    let memory = part.memory_mb == 0 || part.memory_mb + kept.memory_mb <= node.free_memory_mb();
    let gres = |(entry, count): &(u16, u32)| {
        let kept = kept.gres.get(entry).copied().unwrap_or(0);
        kept + count <= node.free_gres(usize::from(*entry)).len()
    };
    part.cpus + kept.cpus <= node.free_cpus().len() && memory && part.gres.iter().all(gres)
}

/// CPUs of cores that are wholly free, at least `count` of them: a core's threads are never split between
/// jobs. Cores of `region` come first. `None` if there are not enough.
fn cores(free: &IdSet, count: u32, threads: u32, region: &IdSet) -> Option<IdSet> {
    if threads == 1 && region.is_empty() {
        return Some(free.lowest(count)).filter(|cpus| cpus.len() == count);
    }
    let whole = |first: &u32| (*first..first + threads).all(|cpu| free.contains(cpu));
    let firsts = free.iter().filter(|cpu| cpu % threads == 0).filter(whole);
    let (within, outside): (Vec<u32>, Vec<u32>) = firsts.partition(|first| region.contains(first / threads));
    let firsts = within.into_iter().chain(outside);
    let cpus: IdSet =
        firsts.take(count.div_ceil(threads) as usize).flat_map(|first| first..first + threads).collect();
    (cpus.len() >= count).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_never_split() {
        let free: IdSet = "0,2-3,6-7".parse().expect("a list");
        assert_eq!(
            cores(&free, 3, 2, &IdSet::default()).map(|cpus| cpus.to_string()).as_deref(),
            Some("2-3,6-7")
        );
        assert_eq!(cores(&free, 5, 2, &IdSet::default()), None);
        assert_eq!(
            cores(&free, 3, 1, &IdSet::default()).map(|cpus| cpus.to_string()).as_deref(),
            Some("0,2-3")
        );
        assert_eq!(cores(&free, 6, 1, &IdSet::default()), None);
        let (free, region) = (IdSet::first(8), "3".parse().expect("a list"));
        assert_eq!(cores(&free, 4, 2, &region).map(|cpus| cpus.to_string()).as_deref(), Some("0-1,6-7"));
    }
}
