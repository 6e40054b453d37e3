//! Cancels a step, changes its time limit, or records that the step was never launched on some of its nodes.

use std::sync::Arc;

use super::super::{Ctx, Effect, Reject, Reply};
use super::owned;
use crate::cluster::{Cluster, Event};
use crate::id::{JobId, NodeId, StepId};
use crate::model::caller::Caller;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::step::Step;
use crate::text::exit::ExitCode;
use crate::text::signal::Signal;
use crate::text::time::TimeLimit;

pub(super) struct Decision {
    job: JobId,
    step: StepId,
    orders: Vec<Effect>,
}

/// Cancels a step by killing its tasks; nodes report their ends as usual.
pub(super) fn check(cluster: &Cluster, caller: &Caller, id: JobId, step: StepId) -> Result<Decision, Reject> {
    let job = owned(cluster, caller, id)?;
    let found = find(job, step)?;
    // Steps of a job that is ending have been signalled already and get KillWait.
    if matches!(job.phase, Phase::Completing(_)) {
        return Err(Reject::AlreadyDone);
    }
    let order = |node| Effect::Signal {
        node,
        attempt: job.attempt(),
        step: Some(step),
        signal: Signal::KILL,
        batch: false,
        steps: true,
    };
    let open = found.nodes.iter().filter(|part| part.exit.is_none());
    Ok(Decision { job: id, step, orders: open.map(|part| order(part.node)).collect() })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, by: u32, decision: Decision) -> Reply {
    let Decision { job, step, orders } = decision;
    ctx.emit(Event::StepCancelled { job, step, by });
    for order in orders {
        ctx.effect(order);
    }
    Reply::Done
}

pub(super) struct Limited {
    job: JobId,
    step: StepId,
    limit: Option<u64>,
}

/// Checks a change of a step's time limit. Once its nodes have been told to end the step, the change is
/// refused with [`Reject::AlreadyDone`].
pub(super) fn check_limit(
    cluster: &Cluster,
    caller: &Caller,
    id: JobId,
    step: StepId,
    limit: TimeLimit,
) -> Result<Limited, Reject> {
    let job = owned(cluster, caller, id)?;
    cluster.allows(&Event::StepLimitChanged { job: id, step, limit: limit.seconds() })?;
    match find(job, step)? {
        found if found.timed_out.is_some() => Err(Reject::AlreadyDone),
        _ => Ok(Limited { job: id, step, limit: limit.seconds() }),
    }
}

pub(super) fn enact_limit(ctx: &mut Ctx<'_>, decision: Limited) -> Reply {
    let Limited { job, step, limit } = decision;
    ctx.emit(Event::StepLimitChanged { job, step, limit });
    Reply::Done
}

pub(super) struct Abandoned {
    job: JobId,
    step: StepId,
    nodes: Vec<NodeId>,
    exit: ExitCode,
}

pub(super) fn check_abandoned(
    cluster: &Cluster,
    caller: &Caller,
    id: JobId,
    step: StepId,
    names: &[Arc<str>],
    exit: ExitCode,
) -> Result<Abandoned, Reject> {
    let job = owned(cluster, caller, id)?;
    let found = find(job, step)?;
    let named = |node: NodeId| cluster.node(node).is_some_and(|node| names.contains(node.name()));
    let open = found.nodes.iter().filter(|part| part.exit.is_none() && named(part.node));
    Ok(Abandoned { job: id, step, nodes: open.map(|part| part.node).collect(), exit })
}

pub(super) fn enact_abandoned(ctx: &mut Ctx<'_>, decision: Abandoned) -> Reply {
    let Abandoned { job, step, nodes, exit } = decision;
    for node in nodes {
        ctx.emit(Event::StepNodeEnded { job, step, node, end: exit.into() });
    }
    Reply::Done
}

fn find(job: &Job, step: StepId) -> Result<&Arc<Step>, Reject> {
    let found = job.steps.iter().find(|running| running.id == step);
    found.ok_or(Reject::InvalidStep { job: job.id, step })
}
