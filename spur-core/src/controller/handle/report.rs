//! What a node reports of an attempt. Every report is answered, also one that changes nothing: it was said before, or
//! it is about something that is over. The answer is an acknowledgement, or that the attempt may be forgotten, which
//! says the same and more.

use std::sync::Arc;

use super::super::command::Report;
use super::super::{Ctx, Effect, Reply, ending};
use crate::cluster::{Cluster, Event};
use crate::id::{Attempt, NodeId, StepId};
use crate::model::node::Drain;
use crate::model::phase::{EndState, Outcome, Phase, Then};
use crate::model::reason::Reason;
use crate::model::step::StepNodeEnd;
use crate::text::time::Time;

/// What a report comes to.
pub(super) enum Decision {
    /// The attempt runs, and its batch script has ended so; perhaps nothing of it is left here.
    End { outcome: Outcome, then: Then, end: Option<StepNodeEnd>, done: bool },
    /// The attempt runs, and the node could not launch it: the node is drained.
    NodeFault(String),
    /// Nobody knows how the batch script ended: what ran it is gone without a record.
    Lost { done: bool },
    /// A step's tasks here have ended.
    Step(StepId, StepNodeEnd),
    /// The batch script of an attempt that is ending anyway has ended; perhaps nothing of it is left here.
    Batch { end: StepNodeEnd, done: bool },
    /// Nothing of the attempt is left here.
    Done { epilog_error: Option<String> },
    /// The batch script of a foreign attempt has ended: what is left of that, on these nodes, may end.
    Foreign(Vec<NodeId>),
    /// Nothing is left here of an attempt nobody wanted.
    Cleaned,
    /// Known already, or of no interest any more.
    Nothing,
}

pub(super) fn check(cluster: &Cluster, node: NodeId, attempt: Attempt, report: Report) -> Decision {
    let stale = cluster.node(node).is_some_and(|node| node.stale.contains(&attempt));
    if stale {
        return if report.is_last() { Decision::Cleaned } else { Decision::Nothing };
    }
    if cluster.node(node).is_some_and(|node| node.foreign.contains(&attempt)) {
        return match report {
            report if report.is_last() => Decision::Cleaned,
            Report::BatchEnded { .. } | Report::LaunchFailed { .. } => {
                let nodes = cluster.nodes().iter().filter(|node| node.foreign.contains(&attempt));
                Decision::Foreign(nodes.map(|node| node.id).collect())
            }
            Report::StepEnded { .. } | Report::NodeDone { .. } => Decision::Nothing,
        };
    }
    let Some(job) = cluster.job(attempt.job).filter(|job| job.attempt() == attempt) else {
        return Decision::Nothing;
    };
    // What a suspended job had to say when it was stopped counts as well.
    let running = matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_));
    match report {
        Report::BatchEnded { lost: true, done, .. } if running => Decision::Lost { done },
        Report::BatchEnded { end, done, .. } if running => {
            let (exit, out_of_memory) = (end.exit, end.out_of_memory);
            match job.phase.preempted().and_then(|preempted| preempted.then) {
                // Whoever is asked to leave and does has not failed; whoever finishes meanwhile has finished.
                Some(then) if !exit.is_success() && !out_of_memory => {
                    let outcome = Outcome { exit, ..ending::outcome(EndState::Preempted, Reason::None) };
                    Decision::End { outcome, then, end: Some(end), done }
                }
                _ => {
                    let outcome = ending::ended_with(exit, out_of_memory);
                    Decision::End { outcome, then: Then::End, end: Some(end), done }
                }
            }
        }
        // The end of the job was decided before; how its script ended, and that nothing is left, is news all the same.
        Report::BatchEnded { end, lost, done } => match &job.phase {
            Phase::Completing(_) if !lost && job.batch_end.is_none() => Decision::Batch { end, done },
            _ if done => Decision::Done { epilog_error: None },
            _ => Decision::Nothing,
        },
        Report::LaunchFailed { message, node_fault: true, .. } if running => Decision::NodeFault(message),
        Report::LaunchFailed { message, exit, .. } if running => {
            let detail = Some(message.into()).filter(|message: &Arc<str>| !message.is_empty());
            let outcome =
                Outcome { exit, detail, ..ending::outcome(EndState::Failed, Reason::JobLaunchFailure) };
            Decision::End { outcome, then: Then::End, end: None, done: false }
        }
        Report::StepEnded { step, end } => {
            let open =
                job.steps.iter().filter(|running| running.id == step).flat_map(|step| step.nodes.iter());
            match open.into_iter().any(|part| part.node == node && part.exit.is_none()) {
                true => Decision::Step(step, end),
                false => Decision::Nothing,
            }
        }
        Report::NodeDone { epilog_error } => Decision::Done { epilog_error },
        Report::LaunchFailed { .. } => Decision::Nothing,
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, node: NodeId, id: u64, attempt: Attempt, decision: Decision) -> Reply {
    let job = attempt.job;
    match decision {
        Decision::End { outcome, then, end, done } => {
            let ended_ms = end.as_ref().and_then(|end| end.ended_ms);
            let seen = ended_ms.map(|ms| ctx.cluster().clock().own(Time(ms.div_euclid(1_000))));
            // Of how it ended the outcome says the rest.
            if let Some(end) = end.filter(|end| end.usage.is_some()) {
                ctx.emit(Event::BatchEnded { job, end });
            }
            ending::begin_seen(ctx, job, outcome, then, seen);
            if done {
                ending::release(ctx, job, node, false);
            }
        }
        Decision::NodeFault(message) => {
            drain(ctx, node, format!("launch failed: {message}"));
            ending::lose_attempt(ctx, job, ending::outcome(EndState::NodeFail, Reason::JobLaunchFailure));
        }
        Decision::Lost { done } => {
            ending::lose_attempt(ctx, job, ending::outcome(EndState::NodeFail, Reason::NodeDown));
            if done {
                ending::release(ctx, job, node, false);
            }
        }
        Decision::Step(step, end) => ctx.emit(Event::StepNodeEnded { job, step, node, end }),
        Decision::Batch { end, done } => {
            ctx.emit(Event::BatchEnded { job, end });
            if done {
                ending::release(ctx, job, node, false);
            }
        }
        Decision::Done { epilog_error } => {
            if let Some(error) = epilog_error {
                drain(ctx, node, format!("Epilog error: {error}"));
            }
            // A node that is done with a job that has not ended lost it before it could say how it ended.
            if ending::goes_on_without(ctx.cluster(), job, node) {
                ending::go_on_without(ctx, job, node, false);
            } else {
                ending::lose_attempt(ctx, job, ending::outcome(EndState::NodeFail, Reason::NodeDown));
                ending::release(ctx, job, node, false);
            }
        }
        Decision::Foreign(nodes) => {
            for node in nodes {
                ctx.effect(Effect::Terminate { node, attempt, kill: false });
            }
        }
        Decision::Cleaned => ctx.emit(Event::NodeCleaned { node, attempt }),
        Decision::Nothing => {}
    }
    answer(ctx, node, id, attempt);
    Reply::Done
}

/// Answers the report.
fn answer(ctx: &mut Ctx<'_>, node: NodeId, id: u64, attempt: Attempt) {
    let left = ctx
        .cluster()
        .node(node)
        .is_some_and(|node| [&node.stale, &node.foreign].iter().any(|of| of.contains(&attempt)));
    if ctx.cluster().job(attempt.job).is_none() && !left {
        ctx.effect(Effect::Forget { node, attempt });
    }
    let forgotten = Effect::Forget { node, attempt };
    if ctx.effects.contains(&forgotten) {
        // Nothing else need be said to the node of what is over.
        ctx.effects.retain(|effect| {
            !matches!(effect, Effect::Terminate { node: to, attempt: of, .. } if (*to, *of) == (node, attempt))
        });
    } else {
        ctx.effect(Effect::Acknowledge { node, report: id });
    }
}

/// Takes a node out of service until an operator puts it back; one that is drained already keeps the first reason.
pub(super) fn drain(ctx: &mut Ctx<'_>, node: NodeId, reason: String) {
    if ctx.cluster().node(node).is_some_and(|node| node.drain.is_none()) {
        let drain =
            Drain { reason: reason.into(), by: Arc::from("spur"), at: ctx.now(), until_mended: false };
        ctx.emit(Event::NodeDrained { node, drain });
    }
}
