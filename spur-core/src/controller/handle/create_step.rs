//! Lay out a step over its job's nodes: which tasks where, on which CPUs and devices.
//!
//! A step that names none of `-c`, `--exact` and `--exclusive` has all CPUs of its nodes in the job, and waits until no other
//! step uses any of them, unless it says `--overlap`; one that names them has the share of its tasks, beside others. The
//! job's own `-c` counts as named, unless the step says `--overlap` alone or would not fit with it. Memory and devices count
//! between steps that ask for them.

use std::sync::Arc;

use super::super::devices::choose;
use super::super::{Ctx, Reject, Reply};
use super::owned;
use crate::cluster::{Cluster, Event};
use crate::id::Attempt;
use crate::id::JobId;
use crate::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use crate::model::caller::Caller;
use crate::model::idset::IdSet;
use crate::model::job::{Job, MemoryNeed};
use crate::model::layout::{self, Distribution, Room};
use crate::model::node::{NodeGres, NodeShape, SHARD};
use crate::model::phase::Phase;
use crate::model::step::{Step, StepNode, StepSpec};
use crate::text::gres::GresSpec;
use crate::text::time::Time;

pub(super) struct Decision {
    attempt: Attempt,
    step: Arc<Step>,
}

/// A node the step may use.
struct Candidate<'a> {
    part: &'a NodeAlloc,
    name: Arc<str>,
    shape: Option<&'a NodeShape>,
    /// CPUs of the job here that tasks may use.
    usable: IdSet,
    /// Those of them that no other step holds.
    free: IdSet,
}

/// How a step takes CPUs.
struct Share {
    /// CPUs of each task, if somebody has named them.
    named: Option<u32>,
    /// All CPUs of the nodes.
    whole: bool,
    /// The most tasks of a node.
    most: Option<u32>,
}

impl Share {
    /// `inherited` are the CPUs of each task that the job has named, `most` the tasks of each node.
    fn of((inherited, most): (Option<u32>, Option<u32>), wish: &StepSpec) -> Share {
        let inherited = inherited.filter(|_| wish.exact || !wish.overlap);
        let named = wish.cpus_per_task.or(inherited).map(|cpus| cpus.max(1));
        let exact = named.is_some() || wish.exact;
        Share { named, whole: wish.whole || wish.external || !exact, most }
    }

    fn each(&self) -> u32 {
        self.named.unwrap_or(1)
    }

    /// How many tasks find room on a node; `now`: beside the steps there are.
    fn room(&self, candidate: &Candidate<'_>, wish: &StepSpec, now: bool) -> Room {
        let Candidate { part, usable, free, .. } = candidate;
        let usable = match (now, self.whole) {
            (false, _) => usable.len(),
            (true, true) if free == usable => usable.len(),
            (true, true) => 0,
            (true, false) => free.len(),
        };
        let most = (usable / self.each()).min(self.most.unwrap_or(u32::MAX));
        // With --overcommit one CPU is room enough.
        let most = if wish.overcommit && usable > 0 { most.max(1) } else { most };
        Room { own: part.tasks, most }
    }

    fn cpus(&self, candidate: &Candidate<'_>, tasks: u32) -> IdSet {
        if self.whole {
            return candidate.usable.clone();
        }
        candidate.free.lowest(tasks.saturating_mul(self.each()).min(candidate.free.len()))
    }
}

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    id: JobId,
    wish: &StepSpec,
) -> Result<Decision, Reject> {
    let job = owned(cluster, caller, id)?;
    let alloc = match &job.phase {
        // It is tried again when nothing has to be waited for.
        Phase::Running { .. } if !job.configuring.is_done() => return Err(Reject::StepBusy),
        Phase::Running { alloc, .. } => alloc,
        Phase::Suspended(_) => return Err(Reject::Suspended),
        Phase::Pending(_) => return Err(Reject::Pending),
        Phase::Completing(_) | Phase::Ended(_) => return Err(Reject::AlreadyDone),
    };
    let candidates = candidates(cluster, job, alloc, wish)?;
    let lay_out = |limits| {
        let share = Share::of(limits, wish);
        lay_out((job, alloc), &candidates, &share, wish).map(|laid_out| (share, laid_out))
    };
    // Where the step would not fit, the job's CPUs of a task do not count, nor, beside `-n`, the step's tasks of a node.
    let (inherited, most) = (job.spec.shape.cpus_per_task, wish.tasks_per_node);
    let mut tried = lay_out((inherited, most));
    for limits in [(None, most), (None, most.filter(|_| wish.tasks.is_none()))] {
        if matches!(tried, Err(Reject::StepTooManyCpus(_))) {
            tried = lay_out(limits);
        }
    }
    let (share, laid_out) = tried?;
    let mut nodes = Vec::with_capacity(laid_out.len());
    let used: Vec<&Candidate<'_>> = laid_out.iter().map(|(at, _)| &candidates[*at]).collect();
    let own_gres = wish.gres.is_some() || !wish.gpus.is_empty() || !wish.gpus_per_task.is_empty();
    let of_job = as_job(job).filter(|_| alloc.exclusive && !own_gres);
    let portions = portions(job, &used, of_job.as_ref().unwrap_or(wish))?;
    for ((candidate, portion), (_, ranks)) in used.into_iter().zip(portions).zip(laid_out) {
        let tasks = ranks.len();
        let cpus = share.cpus(candidate, tasks);
        let gres = match &of_job {
            Some(asked) => seen(job, candidate, asked, (tasks, &cpus), &portion),
            None => devices(job, candidate, wish, (tasks, &cpus), &portion)?,
        };
        nodes.push(StepNode {
            node: candidate.part.node,
            tasks,
            ranks,
            memory_mb: memory(job, candidate, wish, cpus.len())?,
            gres,
            cpus,
            exit: None,
            out_of_memory: false,
            usage: None,
        });
    }
    let step = Step {
        id: job.next_step,
        name: Arc::clone(&wish.name),
        started: now,
        nodes: nodes.into(),
        cpus_per_task: share.named.unwrap_or(0),
        overlap: wish.overlap || wish.external,
        no_kill: wish.no_kill,
        paused: job.phase.pauses().seconds,
        distribution: wish.distribution,
        own_gres,
        gpus_per_task: gpus_per_task(wish),
        submit_line: wish.submit_line.clone(),
    };
    Ok(Decision { attempt: job.attempt(), step: Arc::new(step) })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { attempt, step } = decision;
    ctx.emit(Event::StepStarted { job: attempt.job, step: Arc::clone(&step) });
    Reply::Step { attempt, step }
}

/// The nodes that are used, by their places among the candidates, and the ranks of each.
fn lay_out(
    (job, alloc): (&Job, &Alloc),
    candidates: &[Candidate<'_>],
    share: &Share,
    wish: &StepSpec,
) -> Result<Vec<(usize, IdSet)>, Reject> {
    let (now, ever) = (true, false);
    let rooms = |when: bool| -> Vec<Room> {
        candidates.iter().map(|candidate| share.room(candidate, wish, when)).collect()
    };
    if !wish.hosts.is_empty() {
        let order = named_hosts(candidates, wish)?;
        return fit(&rooms(now), &order, wish.overcommit).ok_or_else(|| {
            match fit(&rooms(ever), &order, wish.overcommit) {
                Some(_) => Reject::StepBusy,
                None => too_large(alloc, share, order.len()),
            }
        });
    }
    let (most_nodes, tasks) = count(job, alloc, candidates, wish)?;
    let fewest = wish.nodes.unwrap_or(most_nodes).min(most_nodes);
    let how = wish.distribution.unwrap_or_default();
    let packs = how == Distribution::Pack && wish.nodes.is_none();
    let spread = |rooms: &[Room]| {
        let on = |nodes| spread(rooms, nodes, tasks, how, wish.overcommit);
        let sizes = fewest.max(1)..=most_nodes;
        // Where nobody has said how many nodes there are, packed tasks have the fewest.
        if packs { (1..=most_nodes).find_map(on) } else { sizes.rev().find_map(on) }
    };
    spread(&rooms(now)).ok_or_else(|| match spread(&rooms(ever)) {
        Some(_) => Reject::StepBusy,
        None => too_large(alloc, share, tasks as usize),
    })
}

fn too_large(alloc: &Alloc, share: &Share, tasks: usize) -> Reject {
    Reject::StepTooManyCpus(format!(
        "{tasks} tasks of {} CPUs do not fit the job's CPUs ({}) on the nodes asked for; ask for fewer tasks, or say \
         --overcommit",
        share.each(),
        alloc.cpus()
    ))
}

/// The place of each rank's node among the candidates.
fn named_hosts(candidates: &[Candidate<'_>], wish: &StepSpec) -> Result<Vec<usize>, Reject> {
    if let Some(tasks) = wish.tasks.filter(|tasks| *tasks as usize != wish.hosts.len()) {
        return Err(Reject::StepTooLarge(format!(
            "the list of hosts names {} tasks, --ntasks {tasks}",
            wish.hosts.len()
        )));
    }
    let place = |host: &Arc<str>| {
        let at = candidates.iter().position(|candidate| candidate.name == *host);
        at.ok_or_else(|| Reject::InvalidNodeName(format!("{host} is not among the job's nodes")))
    };
    wish.hosts.iter().map(place).collect()
}

/// The ranks by node of a layout that a user has made, if there is room for it.
fn fit(rooms: &[Room], order: &[usize], overcommit: bool) -> Option<Vec<(usize, IdSet)>> {
    let ranks = layout::by_node(rooms.len(), order);
    let fits = |(ranks, room): (&IdSet, &Room)| ranks.len() <= room.most || (overcommit && room.most > 0);
    let all = ranks.iter().zip(rooms).all(fits);
    all.then(|| ranks.into_iter().enumerate().filter(|(_, ranks)| !ranks.is_empty()).collect())
}

/// The job's nodes that `-w`, `-x`, `-C` and `-r` leave, in rank order.
fn candidates<'a>(
    cluster: &'a Cluster,
    job: &Job,
    alloc: &'a Alloc,
    wish: &StepSpec,
) -> Result<Vec<Candidate<'a>>, Reject> {
    let name = |part: &NodeAlloc| cluster.node(part.node).map(|node| Arc::clone(node.name()));
    for wanted in wish.nodelist.iter().chain(&wish.exclude) {
        if !alloc.nodes.iter().any(|part| name(part).as_ref() == Some(wanted)) {
            return Err(Reject::InvalidNodeName(format!("{wanted} is not among the job's nodes")));
        }
    }
    let first = wish.relative.unwrap_or(0) as usize;
    if first >= alloc.nodes.len() {
        return Err(Reject::StepTooLarge(format!(
            "--relative={first}: the job has {} nodes",
            alloc.nodes.len()
        )));
    }
    let free = |part: &NodeAlloc| {
        let usable = cluster.task_cpus(job, part);
        if wish.overlap || wish.external {
            return usable;
        }
        let parts = job.steps.iter().filter(|step| !step.overlap).flat_map(|step| step.nodes.iter());
        let held = parts.filter(|held| held.node == part.node && held.exit.is_none());
        held.fold(usable, |free, held| free.difference(&held.cpus))
    };
    let admits = |part: &NodeAlloc| {
        let Some(features) = &wish.features else { return true };
        let has = |name: &str| {
            cluster.node(part.node).is_some_and(|node| node.shape.features.iter().any(|own| **own == *name))
        };
        features.admits(&has)
    };
    let mut usable = Vec::new();
    for part in alloc.nodes[first..].iter().filter(|part| admits(part)) {
        let name = name(part).unwrap_or_default();
        if (wish.nodelist.is_empty() || wish.nodelist.contains(&name)) && !wish.exclude.contains(&name) {
            let shape = cluster.node(part.node).map(|node| &*node.shape);
            usable.push(Candidate {
                part,
                name,
                shape,
                usable: cluster.task_cpus(job, part),
                free: free(part),
            });
        }
    }
    if let Some(features) = wish.features.as_ref().filter(|_| usable.is_empty()) {
        return Err(Reject::InvalidFeature(format!("none of the job's nodes has {features}")));
    }
    Ok(usable)
}

/// The most nodes that the step may use, and its tasks: `-n`, or one for each that the job has on these nodes, and at least
/// one on each. Where neither names tasks and the step names CPUs for each, as many as find these.
fn count(
    job: &Job,
    alloc: &Alloc,
    candidates: &[Candidate<'_>],
    wish: &StepSpec,
) -> Result<(u32, u32), Reject> {
    let there = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
    if let Some(nodes) = wish.nodes.filter(|nodes| *nodes > there) {
        return Err(Reject::StepTooLarge(format!("Only allocated {there} nodes asked for {nodes}")));
    }
    let nodes = match (wish.nodes, wish.max_nodes) {
        (_, Some(most)) => most.min(there),
        (Some(nodes), None) => nodes,
        (None, None) => there,
    };
    let tasks = match (wish.tasks, wish.tasks_per_node) {
        (Some(tasks), _) => tasks.max(1),
        (None, Some(each)) => each.saturating_mul(nodes).max(1),
        (None, None) => {
            let named = job.spec.shape.names_tasks();
            let tasks = |candidate: &Candidate<'_>| match wish.cpus_per_task.filter(|_| !named) {
                Some(each) => candidate.usable.len() / each.max(1),
                None => candidate.part.tasks.max(1),
            };
            let tasks: u32 = candidates.iter().take(nodes as usize).map(tasks).sum();
            let most = if wish.overcommit { u64::MAX } else { alloc.cpus() };
            tasks.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1)
        }
    };
    Ok((nodes.min(tasks), tasks))
}

/// The ranks on `nodes` of the nodes: the first of them, or, where these do not hold all tasks, those with most room, in
/// rank order. `None` if they do not fit.
fn spread(
    rooms: &[Room],
    nodes: u32,
    tasks: u32,
    how: Distribution,
    overcommit: bool,
) -> Option<Vec<(usize, IdSet)>> {
    let mut chosen: Vec<usize> = (0..rooms.len()).filter(|at| rooms[*at].most > 0).collect();
    if chosen.len() < nodes as usize {
        return None;
    }
    let first = &chosen[..nodes as usize];
    if !overcommit && first.iter().map(|at| u64::from(rooms[*at].most)).sum::<u64>() < u64::from(tasks) {
        chosen.sort_by_key(|at| (std::cmp::Reverse(rooms[*at].most), *at));
    }
    chosen.truncate(nodes as usize);
    chosen.sort_unstable();
    let own: Vec<Room> = chosen.iter().map(|at| rooms[*at]).collect();
    let ranks = layout::ranks(&own, tasks, how, overcommit)?;
    Some(chosen.into_iter().zip(ranks).filter(|(_, ranks)| !ranks.is_empty()).collect())
}

/// What a step that says nothing of devices sees of nodes that its job has whole: GPUs as the job asked for them.
fn as_job(job: &Job) -> Option<StepSpec> {
    let shape = &job.spec.shape;
    let gres: Vec<GresSpec> = shape.gres.iter().filter(|spec| &*spec.name == "gpu").cloned().collect();
    let (gpus, gpus_per_task) = (shape.gpus.clone(), shape.gpus_per_task.clone());
    let asks = !(gres.is_empty() && gpus.is_empty() && gpus_per_task.is_empty());
    asks.then(|| StepSpec { gres: Some(gres), gpus, gpus_per_task, overlap: true, ..StepSpec::default() })
}

/// The same on one node, with its other devices; none where it has not so many GPUs, and all are seen.
fn seen(
    job: &Job,
    candidate: &Candidate<'_>,
    asked: &StepSpec,
    of_step: (u32, &IdSet),
    portion: &[GresSpec],
) -> Box<[GresAlloc]> {
    let Ok(gpus) = devices(job, candidate, asked, of_step, portion) else { return Box::default() };
    let entry = |own: &GresAlloc| candidate.shape.and_then(|shape| shape.gres.get(usize::from(own.entry)));
    let others = candidate.part.gres.iter().filter(|own| !entry(own).is_some_and(NodeGres::is_gpu));
    gpus.iter().chain(others).cloned().collect()
}

/// Memory that the step asks for on a node, of what steps that ask have left.
fn memory(job: &Job, candidate: &Candidate<'_>, wish: &StepSpec, cpus: u32) -> Result<u64, Reject> {
    let part = candidate.part;
    let wanted = match wish.memory {
        Some(MemoryNeed::PerNode(mb)) => mb,
        Some(MemoryNeed::PerCpu(mb)) => mb.saturating_mul(u64::from(cpus)),
        None => 0,
    };
    if wanted == 0 || part.memory_mb == 0 || wish.overlap {
        return Ok(wanted);
    }
    if wanted > part.memory_mb {
        return Err(Reject::StepTooMuchMemory(format!(
            "{wanted} MB of memory on {}, where the job has {} MB",
            candidate.name, part.memory_mb
        )));
    }
    let held: u64 = others(job, part).map(|(_, other)| other.memory_mb).sum();
    if held + wanted > part.memory_mb { Err(Reject::StepBusy) } else { Ok(wanted) }
}

/// Devices that the step asks for on a node, of those that steps that ask have left.
fn devices(
    job: &Job,
    candidate: &Candidate<'_>,
    wish: &StepSpec,
    (tasks, cpus): (u32, &IdSet),
    portion: &[GresSpec],
) -> Result<Box<[GresAlloc]>, Reject> {
    let Candidate { part, shape, .. } = *candidate;
    let mut free = free_devices(job, part, wish);
    let mut taken: Vec<GresAlloc> = Vec::new();
    let near = (!job.spec.takes_any_devices()).then_some(cpus);
    let per_node = wish.gres.iter().flatten().chain(portion);
    // Those of tasks are among those of the node.
    let per_task = wish.gpus_per_task.iter().map(|spec| {
        let of_node: u64 = per_node.clone().filter(|other| other.may_be(spec)).map(|other| other.count).sum();
        (spec, spec.count.saturating_mul(tasks.into()).saturating_sub(of_node))
    });
    for (spec, count) in per_node.clone().map(|spec| (spec, spec.count)).chain(per_task) {
        let mut left = u32::try_from(count).unwrap_or(u32::MAX);
        let asked = amount(spec, &taken, shape);
        let each = |own: &GresAlloc| per_device(shape, own);
        let matches = |own: &GresAlloc| is_meant(spec, own, shape);
        for own in free.iter_mut().filter(|own| matches(own)) {
            let count = left.min(own.ids.len() / each(own));
            let ids = match shape {
                Some(shape) => choose(shape, own.entry, &own.ids, count * each(own), near),
                None => own.ids.lowest(count),
            };
            left -= ids.len() / each(own);
            own.ids = own.ids.difference(&ids);
            if !ids.is_empty() {
                taken.push(GresAlloc { ids, ..*own });
            }
        }
        if left > 0 {
            let (all, wanted) = (amount(spec, &part.gres, shape), asked + count);
            return Err(if all >= wanted {
                Reject::StepBusy
            } else {
                Reject::StepTooLarge(format!(
                    "{wanted} {} on {}, where the job has {all}",
                    spec.name, candidate.name
                ))
            });
        }
    }
    Ok(taken.into())
}

/// Devices of the job on a node that no other step has asked for.
fn free_devices(job: &Job, part: &NodeAlloc, wish: &StepSpec) -> Vec<GresAlloc> {
    let mut free = part.gres.to_vec();
    let held = others(job, part).filter(|(step, _)| step.own_gres && !wish.overlap);
    for held in held.flat_map(|(_, other)| other.gres.iter()) {
        for own in free.iter_mut().filter(|own| own.entry == held.entry) {
            own.ids = own.ids.difference(&held.ids);
        }
    }
    free
}

/// How many of these devices are what somebody asks for.
fn amount(spec: &GresSpec, devices: &[GresAlloc], shape: Option<&NodeShape>) -> u64 {
    let own = devices.iter().filter(|own| is_meant(spec, own, shape));
    own.map(|own| u64::from(own.ids.len() / per_device(shape, own))).sum()
}

/// What each node gets of devices that are asked for on all nodes together: as evenly as they are there, and one at least.
fn portions(job: &Job, nodes: &[&Candidate<'_>], wish: &StepSpec) -> Result<Vec<Vec<GresSpec>>, Reject> {
    let mut portions = vec![Vec::new(); nodes.len()];
    let all: u64 = wish.gpus.iter().map(|spec| spec.count).sum();
    for spec in wish.gpus.iter().filter(|spec| spec.count > 0) {
        let free = |node: &&Candidate<'_>| amount(spec, &free_devices(job, node.part, wish), node.shape);
        let mut rooms: Vec<u64> = nodes.iter().map(free).collect();
        if rooms.contains(&0) || rooms.iter().sum::<u64>() < spec.count {
            rooms = nodes.iter().map(|node| amount(spec, &node.part.gres, node.shape)).collect();
        }
        let mut left = spec.count;
        for (number, portion) in portions.iter_mut().enumerate() {
            let even = left.div_ceil((nodes.len() - number) as u64).min(rooms[number]);
            let count = even.max(left.saturating_sub(rooms[number + 1..].iter().sum()));
            left -= count;
            portion.extend((count > 0).then(|| GresSpec { count, ..spec.clone() }));
        }
    }
    match portions.iter().position(Vec::is_empty).filter(|_| all > 0) {
        Some(without) => Err(Reject::InvalidGres(format!(
            "--gpus={all} on {} nodes leaves none for {}; ask for one on each node at least, or for fewer nodes by -N",
            nodes.len(),
            nodes[without].name
        ))),
        None => Ok(portions),
    }
}

/// Whether devices that the job has are what somebody asks for.
fn is_meant(spec: &GresSpec, own: &GresAlloc, shape: Option<&NodeShape>) -> bool {
    shape.and_then(|shape| shape.gres.get(usize::from(own.entry))).is_some_and(|entry| {
        let name = if own.shards { SHARD } else { &entry.name };
        *name == *spec.name && spec.kind.as_ref().is_none_or(|kind| **kind == *entry.kind)
    })
}

/// How many numbers of an entry one device has: all of them where it is a GPU that may be shared, and is not.
fn per_device(shape: Option<&NodeShape>, own: &GresAlloc) -> u32 {
    let at = usize::from(own.entry);
    let shared = shape.filter(|shape| shape.is_shared(at) && !own.shards);
    shared.map_or(1, |shape| shape.gres[at].count.max(1))
}

/// What other steps that have not ended use on a node.
fn others<'a>(job: &'a Job, part: &'a NodeAlloc) -> impl Iterator<Item = (&'a Step, &'a StepNode)> {
    let steps = job.steps.iter().filter(|step| !step.overlap);
    let parts = steps.flat_map(|step| step.nodes.iter().map(|part| (&**step, part)));
    parts.filter(|(_, other)| other.node == part.node && other.exit.is_none())
}

fn gpus_per_task(wish: &StepSpec) -> u32 {
    let gpus = wish.gpus_per_task.iter().filter(|spec| &*spec.name == "gpu");
    gpus.map(|spec| u32::try_from(spec.count).unwrap_or(u32::MAX)).sum()
}
