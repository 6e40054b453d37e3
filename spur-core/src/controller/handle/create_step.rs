//! Creation of a step: its tasks on the job's nodes, with their CPUs and devices.
//!
//! A step without `-c`, `--exact` and `--exclusive` gets all CPUs of its nodes in the job. Unless it has
//! `--overlap`, it waits until no other step uses any of them. A step with one of these options gets the CPUs
//! of its tasks, beside other steps. The job's own `-c` counts as the step's, unless the step has `--overlap`
//! without `--exact` or would not fit with it. Memory and devices are only counted between steps that request
//! them.

mod devices;

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::owned;
use crate::cluster::{Cluster, Event, FeatureLevel};
use crate::id::Attempt;
use crate::id::JobId;
use crate::model::alloc::{Alloc, NodeAlloc};
use crate::model::caller::Caller;
use crate::model::distribution::Distribution;
use crate::model::idset::IdSet;
use crate::model::job::{Job, MemoryNeed};
use crate::model::layout::{self, Room};
use crate::model::node::NodeShape;
use crate::model::phase::Phase;
use crate::model::step::{Step, StepNode, StepSpec};
use crate::text::time::Time;

pub(super) struct Decision {
    attempt: Attempt,
    step: Arc<Step>,
}

/// A node that the step may use.
struct Candidate<'a> {
    part: &'a NodeAlloc,
    name: Arc<str>,
    shape: Option<&'a NodeShape>,
    /// CPUs of the job on this node that tasks may use.
    usable: IdSet,
    /// Usable CPUs that no other step holds.
    free: IdSet,
}

/// The CPUs that a step takes.
struct Share {
    /// CPUs of each task, if step or job specify them.
    named: Option<u32>,
    /// True if the step takes all CPUs of its nodes.
    whole: bool,
    /// The largest number of tasks on a node; `None` for no limit.
    most: Option<u32>,
}

impl Share {
    /// The share of a step. `inherited` are the CPUs per task of the job, `most` the tasks per node.
    fn of((inherited, most): (Option<u32>, Option<u32>), wish: &StepSpec) -> Share {
        let inherited = inherited.filter(|_| wish.exact || !wish.overlap);
        let named = wish.cpus_per_task.or(inherited).map(|cpus| cpus.max(1));
        let exact = named.is_some() || wish.exact;
        Share { named, whole: wish.whole || wish.external || !exact, most }
    }

    fn each(&self) -> u32 {
        self.named.unwrap_or(1)
    }

    /// The number of tasks that fit on a node: with `now` beside the running steps, otherwise on the job's
    /// CPUs altogether.
    fn room(&self, candidate: &Candidate<'_>, wish: &StepSpec, now: bool) -> Room {
        let Candidate { part, usable, free, .. } = candidate;
        let usable = match (now, self.whole) {
            (false, _) => usable.len(),
            (true, true) if free == usable => usable.len(),
            (true, true) => 0,
            (true, false) => free.len(),
        };
        let most = (usable / self.each()).min(self.most.unwrap_or(u32::MAX));
        // With --overcommit one CPU suffices for all tasks.
        let most = if wish.overcommit && usable > 0 { most.max(1) } else { most };
        Room { own: part.tasks, most }
    }

    fn cpus(&self, candidate: &Candidate<'_>, tasks: u32) -> IdSet {
        if self.whole {
            return candidate.usable.clone();
        }
        candidate.free.lowest(tasks.saturating_mul(self.each()).min(candidate.free.len()))
    }

    /// Number of CPUs that `--mem-per-cpu` counts on a node: the CPUs that the tasks ask for, at most the
    /// step's `cpus` there. A step that has all CPUs of its nodes does not pay for CPUs that no task asks
    /// for.
    fn cpus_of_tasks(&self, tasks: u32, cpus: &IdSet) -> u32 {
        tasks.saturating_mul(self.each()).min(cpus.len())
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
        // The step request is retried once nothing has to be awaited.
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
    // A step that does not fit ignores the job's CPUs per task; with `-n` also its own tasks per node.
    let (inherited, most) = (job.spec.shape.cpus_per_task, wish.tasks_per_node);
    let mut tried = lay_out((inherited, most));
    for limits in [(None, most), (None, most.filter(|_| wish.tasks.is_none()))] {
        if matches!(tried, Err(Reject::StepTooManyCpus(_))) {
            tried = lay_out(limits);
        }
    }
    let (share, laid_out) = tried?;
    let mut nodes = Vec::with_capacity(laid_out.len());
    let on_node = |(at, ranks): &(usize, IdSet)| {
        let candidate = &candidates[*at];
        devices::OnNode { candidate, tasks: ranks.len(), cpus: share.cpus(candidate, ranks.len()) }
    };
    let used: Vec<devices::OnNode<'_>> = laid_out.iter().map(on_node).collect();
    let gres = devices::of_step((job, alloc), &used, wish)?;
    for ((on_node, gres), (_, ranks)) in used.into_iter().zip(gres).zip(laid_out) {
        let devices::OnNode { candidate, tasks, cpus } = on_node;
        nodes.push(StepNode {
            node: candidate.part.node,
            tasks,
            ranks,
            memory_mb: memory(job, candidate, wish, share.cpus_of_tasks(tasks, &cpus))?,
            gres,
            cpus,
            exit: None,
            out_of_memory: false,
            usage: None,
        });
    }
    let tasks = nodes.iter().map(|part| u64::from(part.tasks)).sum();
    let may_have = wish.max_nodes.or(wish.nodes).map_or(candidates.len(), |most| most as usize);
    let step = Step {
        id: job.next_step,
        name: Arc::clone(&wish.name),
        started: now,
        layout: wish.distribution.name(tasks, may_have).into(),
        nodes: nodes.into(),
        cpus_per_task: share.named.unwrap_or(0),
        overlap: wish.overlap || wish.external,
        no_kill: wish.no_kill,
        paused: job.phase.pauses().seconds,
        distribution: wish.distribution.over_nodes(),
        own_gres: devices::are_asked_for(wish),
        gpus_per_task: devices::gpus_per_task(wish),
        submit_line: wish.submit_line.clone(),
        cancelled_by: None,
        // At a lower level the nodes of the step enforce its time limit.
        time_limit: wish.time_limit.filter(|_| cluster.feature_level() >= FeatureLevel(2)),
        timed_out: None,
    };
    Ok(Decision { attempt: job.attempt(), step: Arc::new(step) })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { attempt, step } = decision;
    ctx.emit(Event::StepStarted { job: attempt.job, step: Arc::clone(&step) });
    Reply::Step { attempt, step }
}

/// The nodes that are used, by index into the candidates, with the ranks of each.
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
        let fits = |when, overcommit| fit(&rooms(when), &order, overcommit);
        // As in Slurm, a list of hosts may put more tasks on one host than it has CPUs, if its hosts have
        // enough together.
        let hosts = (0..).zip(candidates).filter(|(at, _)| order.contains(at));
        let cpus: u64 = hosts.map(|(_, host)| u64::from(host.usable.len())).sum();
        let suffices = order.len() as u64 * u64::from(share.each()) <= cpus;
        let overcommit = wish.overcommit || (suffices && fits(ever, false).is_none());
        return fits(now, overcommit).ok_or_else(|| match fits(ever, overcommit) {
            Some(_) => Reject::StepBusy,
            None => too_large(alloc, share, order.len()),
        });
    }
    let (most_nodes, tasks) = count(job, alloc, candidates, wish)?;
    let fewest = wish.nodes.unwrap_or(most_nodes).min(most_nodes);
    let how = wish.distribution.over_nodes().unwrap_or_default();
    let packs = how == Distribution::Pack && wish.nodes.is_none();
    let spread = |rooms: &[Room]| {
        let on = |nodes| spread(rooms, nodes, tasks, how, wish.overcommit);
        let sizes = fewest.max(1)..=most_nodes;
        // Without a number of nodes, packed tasks use as few as possible.
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

/// For each rank, the index of its node among the candidates.
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

/// The ranks by node of a layout that the user gave; `None` if a node has too few CPUs for its tasks.
fn fit(rooms: &[Room], order: &[usize], overcommit: bool) -> Option<Vec<(usize, IdSet)>> {
    let ranks = layout::by_node(rooms.len(), order);
    let fits = |(ranks, room): (&IdSet, &Room)| ranks.len() <= room.most || (overcommit && room.most > 0);
    let all = ranks.iter().zip(rooms).all(fits);
    all.then(|| ranks.into_iter().enumerate().filter(|(_, ranks)| !ranks.is_empty()).collect())
}

/// The job's nodes that `-w`, `-x`, `-C` and `-r` allow, in rank order.
fn candidates<'a>(
    cluster: &'a Cluster,
    job: &Job,
    alloc: &'a Alloc,
    wish: &StepSpec,
) -> Result<Vec<Candidate<'a>>, Reject> {
    let name = |part: &NodeAlloc| cluster.node(part.node).map(|node| Arc::clone(node.name()));
    for wanted in &wish.nodelist {
        if !alloc.nodes.iter().any(|part| name(part).as_ref() == Some(wanted)) {
            return Err(Reject::InvalidNodeName(format!("{wanted} is not among the job's nodes")));
        }
    }
    // Nodes outside the job are excluded anyway.
    if let Some(unknown) = wish.exclude.iter().find(|name| cluster.node_named(name).is_none()) {
        return Err(Reject::InvalidNodeName(unknown.to_string()));
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

/// The largest number of nodes that the step may use, and its number of tasks. Tasks are those of `-n`;
/// without it, those that the job has on these nodes, at least one on each. If neither job nor step give
/// tasks but the step gives CPUs per task, as many tasks as have CPUs.
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

/// The ranks on `nodes` of the nodes, in rank order; `None` if they do not fit. The first nodes are used if
/// they hold all tasks, else the nodes that hold most.
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

/// Memory in MiB that the step requests on a node, if steps with such requests have left enough.
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

/// The parts on a node of other steps that have not ended.
fn others<'a>(job: &'a Job, part: &'a NodeAlloc) -> impl Iterator<Item = (&'a Step, &'a StepNode)> {
    let steps = job.steps.iter().filter(|step| !step.overlap);
    let parts = steps.flat_map(|step| step.nodes.iter().map(|part| (&**step, part)));
    parts.filter(|(_, other)| other.node == part.node && other.exit.is_none())
}
