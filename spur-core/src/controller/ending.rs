//! How attempts end: the one way through, whatever the cause.
//!
//! `begin` decides the end and has every node clear up; `release` counts the nodes that have; when the last one has,
//! the job is over or waits again. A node that is silent counts as cleared up where the site accepts that
//! (`[recovery] overlap`); otherwise the job waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::effect::Effect;
use super::handle::reservation;
use super::{Ctx, mail, tasks};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::job::Job;
use crate::model::phase::{EndState, Hold, Outcome, Phase, Suspended, Then};
use crate::model::reason::Reason;
use crate::model::step::{Step, StepNodeEnd};
use crate::text::exit::ExitCode;
use crate::text::signal::Signal;
use crate::text::time::Time;

/// How many jobs one command or report ends because their dependency can no longer be satisfied; the next wakeup ends more.
const HOPELESS_AT_ONCE: usize = 500;

/// The longest that lost attempts alone keep a job waiting, in seconds.
const LONGEST_DELAY: u64 = 300;

/// An outcome without an exit code of its own.
pub(super) fn outcome(state: EndState, reason: Reason) -> Outcome {
    Outcome { state, exit: ExitCode::default(), reason, by: None, detail: None }
}

/// How the exit of a batch script, or of the command of an allocation, reads as the end of its job.
pub(super) fn ended_with(exit: ExitCode, out_of_memory: bool) -> Outcome {
    let (state, reason) = if out_of_memory {
        (EndState::OutOfMemory, Reason::OutOfMemory)
    } else if exit.signal > 0 {
        (EndState::Failed, Reason::RaisedSignal)
    } else if exit.code > 0 {
        (EndState::Failed, Reason::NonZeroExitCode)
    } else {
        (EndState::Completed, Reason::None)
    };
    Outcome { exit, ..outcome(state, reason) }
}

/// Ends a running job's attempt: TERM now, KILL after KillWait; a suspended one has no CPUs to end on, and is killed. A
/// job that has not started is left alone. The components of a het job end together, whichever of them it begins with.
pub(super) fn begin(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome, then: Then) {
    begin_seen(ctx, id, outcome, then, None);
}

/// Begins the end of a job and of the components of its het job. `seen` is the time at which the node of the batch script
/// saw the script end, if that is known.
pub(super) fn begin_seen(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome, then: Then, seen: Option<Time>) {
    let seen = seen.filter(|seen| *seen < ctx.now());
    for component in ctx.cluster().jobs().components(id) {
        begin_one(ctx, component, outcome.clone(), then, seen);
    }
}

fn begin_one(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome, then: Then, seen: Option<Time>) {
    let Some(job) = ctx.cluster().job(id) else { return };
    let (alloc, has_cpus) = match &job.phase {
        Phase::Running { alloc, .. } => (alloc.clone(), true),
        Phase::Suspended(suspended) => (suspended.alloc.clone(), false),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => return,
    };
    let kill_at = ctx.now() + ctx.cluster().policy().jobs.kill_wait.0;
    let epilog = ctx.cluster().policy().jobs.epilog_slurmctld.is_some();
    // Nothing can have been launched there.
    let awaited = job.configuring.nodes.clone();
    ctx.emit(Event::JobEnding { job: id, outcome, then, kill_at: has_cpus.then_some(kill_at), epilog, seen });
    for part in &alloc.nodes {
        if awaited.contains(&part.node) {
            release(ctx, id, part.node, false);
        } else if assumed_gone(ctx, part.node) {
            release(ctx, id, part.node, true);
        }
    }
}

/// Ends or suspends a job whose grace time is over, or that has none.
pub(super) fn preempt(ctx: &mut Ctx<'_>, id: JobId) {
    let Some(preempted) = ctx.cluster().job(id).and_then(|job| job.phase.preempted()) else { return };
    match preempted.then {
        Some(then) => begin(ctx, id, outcome(EndState::Preempted, Reason::None), then),
        None => {
            for job in ctx.cluster().jobs().components(id) {
                let phase = ctx.cluster().job(job).map(|job| &job.phase);
                if matches!(phase, Some(Phase::Running { .. })) {
                    ctx.emit(Event::JobSuspended { job, wanted: true });
                }
            }
        }
    }
}

/// The end of a pending job with the reason for which it waited, as Slurm shows it, if the end has no reason of its own.
fn with_reason(ctx: &Ctx<'_>, id: JobId, outcome: &Outcome) -> Outcome {
    let waited = ctx.cluster().job(id).and_then(|job| job.waits_because(ctx.now()));
    let reason = if outcome.reason == Reason::None { waited.unwrap_or(Reason::None) } else { outcome.reason };
    Outcome { reason, ..outcome.clone() }
}

/// Ends a pending job; a het job with all its components, of which some may still be ending an earlier attempt.
pub(super) fn end_pending(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome) {
    let waiting = end_pending_one(ctx, id, &outcome);
    end_hopeless(ctx, waiting, None);
}

/// The same; says who waited for it.
fn end_pending_one(ctx: &mut Ctx<'_>, id: JobId, outcome: &Outcome) -> Vec<JobId> {
    let mut waiting = Vec::new();
    for component in ctx.cluster().jobs().components(id) {
        match ctx.cluster().job(component).map(|job| &job.phase) {
            Some(Phase::Pending(_)) => {
                let outcome = with_reason(ctx, component, outcome);
                waiting.extend(end_one(ctx, component, outcome));
            }
            Some(Phase::Completing(completing)) if matches!(completing.then, Then::Requeue { .. }) => {
                let (outcome, kill_at) = (outcome.clone(), completing.kill_at);
                ctx.emit(Event::JobEnding {
                    job: component,
                    outcome,
                    then: Then::End,
                    kill_at,
                    epilog: false,
                    seen: None,
                });
            }
            _ => {}
        }
    }
    waiting
}

/// Counts a node as having nothing of an ending job any more; the last one finishes the attempt.
pub(super) fn release(ctx: &mut Ctx<'_>, id: JobId, node: NodeId, lost: bool) {
    let Some(Phase::Completing(completing)) = ctx.cluster().job(id).map(|job| &job.phase) else { return };
    if !completing.waiting.contains(&node) {
        return;
    }
    ctx.emit(Event::NodeReleased { job: id, node, lost });
    finish(ctx, id);
}

/// Finishes an attempt of which no node has anything any more, and whose epilog has ended.
pub(super) fn finish(ctx: &mut Ctx<'_>, id: JobId) {
    let Some(job) = ctx.cluster().job(id) else { return };
    let Phase::Completing(completing) = &job.phase else { return };
    if !completing.waiting.is_empty() || job.epilog {
        return;
    }
    match completing.then {
        Then::End => {
            let outcome = completing.outcome.clone();
            end(ctx, id, outcome);
        }
        Then::Requeue { hold } => requeue(ctx, id, hold),
    }
}

/// Ends whatever a node runs because the node is gone: its jobs fail, wait again or go on without it.
pub(super) fn lose_node(ctx: &mut Ctx<'_>, node: NodeId) {
    let jobs = ctx.cluster().node(node).map_or_else(Vec::new, |node| node.jobs.clone());
    for job in jobs {
        if goes_on_without(ctx.cluster(), job, node) {
            let lingers = !ctx.cluster().node(node).is_some_and(Node::is_silent);
            go_on_without(ctx, job, node, lingers);
            continue;
        }
        lose_attempt(ctx, job, outcome(EndState::NodeFail, Reason::NodeDown));
        if assumed_gone(ctx, node) {
            release(ctx, job, node, true);
        }
    }
}

/// Whether a job goes on when a node of it fails: it asks for that, has others, and its batch script is not there.
pub(super) fn goes_on_without(cluster: &Cluster, job: JobId, node: NodeId) -> bool {
    let Some(job) = cluster.job(job) else { return false };
    let (Phase::Running { alloc, .. } | Phase::Suspended(Suspended { alloc, .. })) = &job.phase else {
        return false;
    };
    let asked = job.spec.extra.as_ref().is_some_and(|extra| extra.no_kill);
    let has_script = job.spec.batch.is_some() && alloc.batch_node() == Some(node);
    // What waits for a node to come up has not begun.
    let has_begun = !job.configuring.nodes.contains(&node);
    asked && has_begun && !has_script && alloc.nodes.len() > 1 && alloc.on(node).is_some()
}

/// A job goes on without one of its nodes, which may still have something of it. Steps that have tasks there end on their
/// other nodes, too, unless they shall not.
pub(super) fn go_on_without(ctx: &mut Ctx<'_>, id: JobId, node: NodeId, lingers: bool) {
    let Some(job) = ctx.cluster().job(id) else { return };
    let attempt = job.attempt();
    let open =
        |step: &Step, node: NodeId| step.nodes.iter().any(|part| part.node == node && part.exit.is_none());
    let hit: Vec<Arc<Step>> = job.steps.iter().filter(|step| open(step, node)).cloned().collect();
    for step in hit {
        let end = StepNodeEnd::from(ExitCode { code: 0, signal: Signal::KILL.number() });
        ctx.emit(Event::StepNodeEnded { job: id, step: step.id, node, end });
        if step.no_kill {
            continue;
        }
        let others = step.nodes.iter().filter(|part| part.node != node && part.exit.is_none());
        for part in others {
            let (batch, steps) = (false, true);
            let (node, step, signal) = (part.node, Some(step.id), Signal::KILL);
            ctx.effect(Effect::Signal { node, attempt, step, signal, batch, steps });
        }
    }
    ctx.emit(Event::JobNodeLost { job: id, node, lingers });
}

/// Ends an attempt that is lost through no fault of the job's: its node is gone, could not launch it, or has no record of
/// its end. Whatever the cause, the job waits again if it may be requeued, and is held if that has happened too often.
pub(super) fn lose_attempt(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome) {
    let then = after_failure(ctx.cluster(), id);
    begin(ctx, id, outcome, then);
}

pub(super) fn after_failure(cluster: &Cluster, id: JobId) -> Then {
    // Of a het job the leader has the script, and the say.
    let leader = cluster.jobs().components(id).first().copied().unwrap_or(id);
    let Some(job) = cluster.job(leader) else { return Then::End };
    let most = cluster.policy().jobs.max_batch_requeue;
    match job.spec.requeue && job.spec.batch.is_some() {
        true => Then::Requeue { hold: (job.restarts >= most).then_some(Hold::Requeues) },
        false => Then::End,
    }
}

/// How long a job waits after an attempt: `requeue_delay`; after one that was lost twice as long for each restart before,
/// so that a fault that strikes everywhere does not use up its restarts at once.
fn requeue_delay(cluster: &Cluster, job: &Job) -> u64 {
    let delay = cluster.policy().recovery.requeue_delay.0;
    let failed = match &job.phase {
        Phase::Completing(completing) => completing.outcome.state == EndState::NodeFail,
        Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => false,
    };
    if !failed {
        return delay;
    }
    let doubled = delay.saturating_mul(1 << job.restarts.min(16));
    doubled.min(LONGEST_DELAY.max(delay))
}

/// Whether a node is silent and the site takes silence for death.
fn assumed_gone(ctx: &Ctx<'_>, node: NodeId) -> bool {
    ctx.cluster().node(node).is_some_and(Node::is_silent) && ctx.cluster().policy().recovery.overlap
}

/// Lets a job wait again of which nothing is left on any node.
pub(super) fn requeue(ctx: &mut Ctx<'_>, id: JobId, hold: Option<Hold>) {
    let Some(job) = ctx.cluster().job(id) else { return };
    let (attempt, delay) = (job.attempt(), requeue_delay(ctx.cluster(), job));
    let alloc = job.phase.alloc().cloned();
    for part in alloc.iter().flat_map(|alloc| alloc.nodes.iter()) {
        ctx.effect(Effect::Forget { node: part.node, attempt });
    }
    let not_before: Option<Time> = (delay > 0).then(|| ctx.now() + delay);
    if let Some(mail) = mail::requeued(ctx.cluster(), id) {
        ctx.effect(mail);
    }
    ctx.emit(Event::JobRequeued { job: id, not_before, hold });
    reservation::requeued(ctx, id);
}

/// Ends a job, and with it those that waited for something it will now never do and asked to be ended then: one after
/// another, since a chain of them may be as long as the queue.
fn end(ctx: &mut Ctx<'_>, id: JobId, how: Outcome) {
    let waiting = end_one(ctx, id, how);
    end_hopeless(ctx, waiting, None);
}

/// Tells the users of those of some jobs that wait, since just now, for what can no longer happen, ends those that asked to
/// be ended then, and so on. The user of `told` knows already. Of a long chain some are left to [`end_more_hopeless`].
pub(super) fn end_hopeless(ctx: &mut Ctx<'_>, jobs: Vec<JobId>, told: Option<JobId>) {
    let (mut jobs, mut told) = (VecDeque::from(jobs), BTreeSet::from_iter(told));
    let mut ended = 0;
    while let Some(id) = jobs.pop_front() {
        let Some(job) = ctx.cluster().job(id).filter(|job| job.never) else { continue };
        let wish = job.spec.extra.as_ref().and_then(|extra| extra.kill_on_invalid_dep);
        if wish == Some(true) && ended >= HOPELESS_AT_ONCE {
            continue;
        }
        if told.insert(id)
            && let Some(mail) = mail::hopeless(ctx.cluster(), id)
        {
            ctx.effect(mail);
        }
        if wish == Some(true) {
            let how = outcome(EndState::Cancelled, Reason::DependencyNeverSatisfied);
            jobs.extend(end_pending_one(ctx, id, &how));
            ended += 1;
        }
    }
}

/// Ends more of the jobs that [`end_hopeless`] has left.
pub(super) fn end_more_hopeless(ctx: &mut Ctx<'_>) {
    let left: Vec<JobId> = ctx.cluster().jobs().hopeless().take(HOPELESS_AT_ONCE).collect();
    if !left.is_empty() {
        end_hopeless(ctx, left, None);
    }
}

/// Ends one job; says who waited for it, of whom some may have parted ways since.
fn end_one(ctx: &mut Ctx<'_>, id: JobId, how: Outcome) -> Vec<JobId> {
    let mut waiting = ctx.cluster().jobs().waiting_for(id);
    // Of what could not come true before is told already.
    waiting.retain(|other| ctx.cluster().job(*other).is_some_and(|other| !other.never));
    let array = ctx.cluster().job(id).map(Job::array_id);
    ctx.emit(Event::JobEnded { job: id, outcome: how });
    let parted: Vec<JobId> = waiting.iter().flat_map(|other| tasks::part_ways(ctx, *other, array)).collect();
    waiting.extend(parted);
    waiting
}
