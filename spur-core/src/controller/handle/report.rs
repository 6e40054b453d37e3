//! Reports of nodes about attempts. Every report is answered, also one that is repeated or about an attempt
//! that is over. The answer is an acknowledgement, or the order to forget the attempt, which implies one.

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

/// The effect of a report.
pub(super) enum Decision {
    /// The batch script of a running attempt has ended; with `done` the node has nothing left of the attempt.
    End { outcome: Outcome, then: Then, end: Option<StepNodeEnd>, done: bool },
    /// The node could not launch a running attempt, and is drained.
    NodeFault(String),
    /// The exit of the batch script is unknown: its processes are gone without a record.
    Lost { done: bool },
    /// A step's tasks on the node have ended.
    Step(StepId, StepNodeEnd),
    /// The batch script of an ending attempt has ended; with `done` the node has nothing left of the attempt.
    Batch { end: StepNodeEnd, done: bool },
    /// The node has nothing left of the attempt.
    Done { epilog_error: Option<String> },
    /// The batch script of a foreign attempt has ended; its rest on these nodes is ended.
    Foreign(Vec<NodeId>),
    /// The node has nothing left of a stale or foreign attempt.
    Cleaned,
    /// The report leaves everything as it is.
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
    // A report of a suspended job counts as well: it may have been made before the job was stopped.
    let running = matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_));
    match report {
        Report::BatchEnded { lost: true, done, .. } if running => Decision::Lost { done },
        Report::BatchEnded { end, done, .. } if running => {
            let (exit, out_of_memory) = (end.exit, end.out_of_memory);
            match job.phase.preempted().and_then(|preempted| preempted.then) {
                // A job that obeys its preemption has not failed; one that completes meanwhile has completed.
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
        // The job's end was decided before, but the exit of its script and the end of its processes still
        // count.
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
            // Without usage, the outcome holds everything about the end.
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
            // A node that is done with a job that has not ended has lost the job without a record of its end.
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

/// Answers a report with `Forget` if nothing of the attempt is left, else with `Acknowledge`.
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
        // `Forget` makes orders to end the attempt unnecessary.
        ctx.effects.retain(|effect| {
            !matches!(effect, Effect::Terminate { node: to, attempt: of, .. } if (*to, *of) == (node, attempt))
        });
    } else {
        ctx.effect(Effect::Acknowledge { node, report: id });
    }
}

/// Drains a node until an operator resumes it; a drained node keeps its first reason.
pub(super) fn drain(ctx: &mut Ctx<'_>, node: NodeId, reason: String) {
    if ctx.cluster().node(node).is_some_and(|node| node.drain.is_none()) {
        let drain =
            Drain { reason: reason.into(), by: Arc::from("spur"), at: ctx.now(), until_mended: false };
        ctx.emit(Event::NodeDrained { node, drain });
    }
}
