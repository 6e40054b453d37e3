//! Lay out a step over its job's nodes: which tasks where, on which CPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::owned;
use crate::cluster::{Cluster, Event};
use crate::id::Attempt;
use crate::id::JobId;
use crate::model::alloc::{Alloc, NodeAlloc};
use crate::model::caller::Caller;
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::step::{Step, StepNode, StepSpec};
use crate::text::time::Time;

pub(super) struct Decision {
    attempt: Attempt,
    step: Arc<Step>,
}

/// A node the step may use.
struct Candidate<'a> {
    part: &'a NodeAlloc,
    /// CPUs of the job here that no other step holds.
    free: IdSet,
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
        Phase::Running { alloc, .. } => alloc,
        Phase::Suspended(_) => return Err(Reject::Suspended),
        Phase::Pending(_) => return Err(Reject::Pending),
        Phase::Completing(_) | Phase::Ended(_) => return Err(Reject::AlreadyDone),
    };
    let cpus_per_task = wish.cpus_per_task.or(job.spec.shape.cpus_per_task).unwrap_or(1).max(1);
    let candidates = candidates(cluster, job, alloc, wish)?;
    let tasks = count(alloc, &candidates, wish);
    let nodes = match wish.nodes {
        Some(nodes) => nodes.min(tasks),
        None => u32::try_from(candidates.len()).unwrap_or(u32::MAX).min(tasks),
    };
    if nodes as usize > candidates.len() {
        return Err(Reject::StepTooLarge(format!(
            "{nodes} nodes asked for, {} of the job's can be used",
            candidates.len()
        )));
    }
    let most = |free: bool| {
        let room = candidates.iter().map(|candidate| {
            let cpus = if free { candidate.free.len() } else { cluster.task_cpus(job, candidate.part).len() };
            (cpus / cpus_per_task).min(wish.tasks_per_node.unwrap_or(u32::MAX))
        });
        room.collect::<Vec<u32>>()
    };
    let spread = match spread(&most(true), &candidates, nodes, tasks) {
        Some(spread) => spread,
        None if spread(&most(false), &candidates, nodes, tasks).is_some() => return Err(Reject::StepBusy),
        None => {
            return Err(Reject::StepTooLarge(format!(
                "{tasks} tasks of {cpus_per_task} CPUs on {nodes} nodes do not fit the job's CPUs ({})",
                alloc.cpus()
            )));
        }
    };
    let layout =
        candidates.iter().zip(spread).filter(|(_, tasks)| *tasks > 0).map(|(candidate, tasks)| StepNode {
            node: candidate.part.node,
            tasks,
            ranks: IdSet::EMPTY,
            cpus: candidate.free.lowest(tasks * cpus_per_task),
            exit: None,
        });
    let step = Step {
        id: job.next_step,
        name: Arc::clone(&wish.name),
        started: now,
        nodes: layout.collect(),
        cpus_per_task,
        overlap: wish.overlap,
        no_kill: wish.no_kill,
        paused: job.phase.pauses().seconds,
    };
    Ok(Decision { attempt: job.attempt(), step: Arc::new(step) })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { attempt, step } = decision;
    ctx.emit(Event::StepStarted { job: attempt.job, step: Arc::clone(&step) });
    Reply::Step { attempt, step }
}

/// The job's nodes that `-w`, `-x` and `-r` leave, in rank order.
fn candidates<'a>(
    cluster: &Cluster,
    job: &Job,
    alloc: &'a Alloc,
    wish: &StepSpec,
) -> Result<Vec<Candidate<'a>>, Reject> {
    let name = |part: &NodeAlloc| cluster.node(part.node).map(|node| Arc::clone(node.name()));
    let own: BTreeSet<Arc<str>> = alloc.nodes.iter().filter_map(name).collect();
    let (named, excluded): (BTreeSet<_>, BTreeSet<_>) =
        (wish.nodelist.iter().collect(), wish.exclude.iter().collect());
    for wanted in wish.nodelist.iter().chain(&wish.exclude) {
        if !own.contains(wanted) {
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
    let usable = |part: &&NodeAlloc| {
        let name = name(part).unwrap_or_default();
        (named.is_empty() || named.contains(&name)) && !excluded.contains(&name)
    };
    let free = |part: &NodeAlloc| {
        let usable = cluster.task_cpus(job, part);
        if wish.overlap {
            return usable;
        }
        let parts = job.steps.iter().filter(|step| !step.overlap).flat_map(|step| step.nodes.iter());
        let held = parts.filter(|held| held.node == part.node && held.exit.is_none());
        held.fold(usable, |free, held| free.difference(&held.cpus))
    };
    let nodes = alloc.nodes[first..].iter().filter(usable);
    Ok(nodes.map(|part| Candidate { part, free: free(part) }).collect())
}

/// `-n`, or one task for each that the job has on the nodes used, and at least one on each.
fn count(alloc: &Alloc, candidates: &[Candidate<'_>], wish: &StepSpec) -> u32 {
    if let Some(tasks) = wish.tasks {
        return tasks.max(1);
    }
    let nodes = wish.nodes.map_or(candidates.len(), |nodes| nodes as usize);
    if let Some(each) = wish.tasks_per_node {
        return each.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).max(1);
    }
    let used = candidates.iter().take(nodes);
    let tasks: u32 = used.map(|candidate| candidate.part.tasks.max(1)).sum();
    tasks.min(u32::try_from(alloc.cpus()).unwrap_or(u32::MAX)).max(1)
}

/// Tasks for each candidate: one on each of `nodes` nodes, then up to as many as the job has there, then wherever
/// there is room, always in rank order. `None` if they do not fit.
fn spread(room: &[u32], candidates: &[Candidate<'_>], nodes: u32, tasks: u32) -> Option<Vec<u32>> {
    let mut chosen: Vec<usize> = (0..room.len()).filter(|at| room[*at] > 0).take(nodes as usize).collect();
    let total = |chosen: &[usize]| chosen.iter().map(|at| u64::from(room[*at])).sum::<u64>();
    if chosen.len() < nodes as usize {
        return None;
    }
    if total(&chosen) < u64::from(tasks) {
        // The first nodes do not hold them: take those with most room instead, in rank order.
        let mut by_room: Vec<usize> = (0..room.len()).filter(|at| room[*at] > 0).collect();
        by_room.sort_by_key(|at| (std::cmp::Reverse(room[*at]), *at));
        chosen = by_room.into_iter().take(nodes as usize).collect();
        chosen.sort_unstable();
        if total(&chosen) < u64::from(tasks) {
            return None;
        }
    }
    let mut given = vec![0; room.len()];
    let mut left = tasks;
    let mut fill = |upto: &dyn Fn(usize) -> u32| {
        for at in &chosen {
            let more = upto(*at).min(room[*at]).saturating_sub(given[*at]).min(left);
            given[*at] += more;
            left -= more;
        }
    };
    fill(&|_| 1);
    fill(&|at| candidates[at].part.tasks);
    fill(&|at| room[at]);
    Some(given)
}
