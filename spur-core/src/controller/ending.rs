//! The end of attempts, whatever its cause.
//!
//! `begin` decides the end and has every node clean up; `release` counts the nodes that have. After the last
//! node the job is finished or is requeued. A silent node counts as cleaned up where the site accepts that
//! (`[recovery] overlap`); otherwise the job waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::effect::Effect;
use super::handle::reservation;
use super::{Ctx, mail, reported, tasks};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::job::Job;
use crate::model::phase::{EndState, Hold, Outcome, Phase, Suspended, Then};
use crate::model::reason::Reason;
use crate::model::step::{Step, StepNodeEnd};
use crate::text::exit::ExitCode;
use crate::text::signal::Signal;
use crate::text::time::Time;

/// Number of jobs that one command or report ends because their dependency can no longer be satisfied. The
/// next wakeup ends more.
const HOPELESS_AT_ONCE: usize = 500;

/// Longest requeue delay, in seconds, that results from lost attempts alone.
const LONGEST_DELAY: u64 = 300;

/// An outcome without an exit code of its own.
pub(super) fn outcome(state: EndState, reason: Reason) -> Outcome {
    Outcome { state, exit: ExitCode::default(), reason, by: None, detail: None }
}

/// The outcome of a job whose batch script, or whose allocation's command, exited with `exit`.
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

/// Begins the end of a job's attempt: SIGTERM at once, SIGKILL after KillWait. A suspended job has no CPUs to
/// end on and is killed at once. A job that has not started is left alone. All components of a het job end
/// together.
pub(super) fn begin(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome, then: Then) {
    begin_seen(ctx, id, outcome, then, None);
}

/// Begins the end of a job and all components of its het job. `seen` is the time at which the node of the
/// batch script saw the script end, if known.
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
    // Nothing can have been launched on nodes that have not come up.
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

/// Ends or suspends a job whose grace time for preemption is over.
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

/// The outcome of a pending job. Without a reason of its own, it gets the reason for which the job waited, as
/// Slurm shows it.
fn with_reason(ctx: &Ctx<'_>, id: JobId, outcome: &Outcome) -> Outcome {
    let waited = ctx.cluster().job(id).and_then(|job| job.waits_because(ctx.now()));
    let reason = if outcome.reason == Reason::None { waited.unwrap_or(Reason::None) } else { outcome.reason };
    Outcome { reason, ..outcome.clone() }
}

/// Ends a pending job; of a het job all components, some of which may still be ending an earlier attempt.
pub(super) fn end_pending(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome) {
    let waiting = end_pending_one(ctx, id, &outcome);
    end_hopeless(ctx, waiting, None);
}

/// Ends a pending job; returns the jobs that waited for it.
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

/// Records that a node has nothing of an ending job left; the last node finishes the attempt.
pub(super) fn release(ctx: &mut Ctx<'_>, id: JobId, node: NodeId, lost: bool) {
    let Some(Phase::Completing(completing)) = ctx.cluster().job(id).map(|job| &job.phase) else { return };
    if !completing.waiting.contains(&node) {
        return;
    }
    ctx.emit(Event::NodeReleased { job: id, node, lost });
    finish(ctx, id);
    reported::settle_free(ctx, node);
}

/// Finishes an attempt that has nothing left on any node and whose epilog has ended.
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

/// Handles the loss of a node: its jobs fail, are requeued, or continue without it.
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

/// True if a job continues when one of its nodes fails: it has `--no-kill`, other nodes, and no batch script
/// there.
pub(super) fn goes_on_without(cluster: &Cluster, job: JobId, node: NodeId) -> bool {
    let Some(job) = cluster.job(job) else { return false };
    let (Phase::Running { alloc, .. } | Phase::Suspended(Suspended { alloc, .. })) = &job.phase else {
        return false;
    };
    let asked = job.spec.extra.as_ref().is_some_and(|extra| extra.no_kill);
    let has_script = job.spec.batch.is_some() && alloc.batch_node() == Some(node);
    // A job that still waits for the node to power up has not begun.
    let has_begun = !job.configuring.nodes.contains(&node);
    asked && has_begun && !has_script && alloc.nodes.len() > 1 && alloc.on(node).is_some()
}

/// Takes a failed node from a job that continues without it; processes may be left there if `lingers`. Steps
/// with tasks there are killed on their other nodes, too, unless they have `--no-kill`.
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

/// Ends an attempt that is lost without the job's fault: its node is gone, could not launch it, or has no
/// record of its end. The job is requeued if it has a batch script and allows that, and then held if it has
/// already been requeued `max_batch_requeue` times.
pub(super) fn lose_attempt(ctx: &mut Ctx<'_>, id: JobId, outcome: Outcome) {
    let then = after_failure(ctx.cluster(), id);
    begin(ctx, id, outcome, then);
}

pub(super) fn after_failure(cluster: &Cluster, id: JobId) -> Then {
    // In a het job the leader has the script, so its options decide.
    let leader = cluster.jobs().components(id).first().copied().unwrap_or(id);
    let Some(job) = cluster.job(leader) else { return Then::End };
    let most = cluster.policy().jobs.max_batch_requeue;
    match job.spec.requeue && job.spec.batch.is_some() {
        true => Then::Requeue { hold: (job.restarts >= most).then_some(Hold::Requeues) },
        false => Then::End,
    }
}

/// Seconds that a job waits after an attempt: `requeue_delay`. After a lost attempt it is doubled for each
/// earlier restart, so that a fault of the whole cluster does not use up all restarts at once.
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

/// True if a node is silent and the site treats silence as death.
fn assumed_gone(ctx: &Ctx<'_>, node: NodeId) -> bool {
    ctx.cluster().node(node).is_some_and(Node::is_silent) && ctx.cluster().policy().recovery.overlap
}

/// Requeues a job that has nothing left on any node.
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

/// Ends a job, and the jobs whose dependency can no longer be satisfied and that asked to be ended then. They
/// are ended in a loop, since such a chain may be as long as the queue.
fn end(ctx: &mut Ctx<'_>, id: JobId, how: Outcome) {
    let waiting = end_one(ctx, id, how);
    end_hopeless(ctx, waiting, None);
}

/// Handles jobs whose dependency has just become unsatisfiable: mails their users, and ends the jobs that
/// requested it. Jobs that depend on these are handled in turn. The user of `told` already has mail. Jobs
/// beyond [`HOPELESS_AT_ONCE`] are left to [`end_more_hopeless`].
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

/// Ends one job. Returns the jobs that waited for it, with those that are split off because of this end.
fn end_one(ctx: &mut Ctx<'_>, id: JobId, how: Outcome) -> Vec<JobId> {
    let mut waiting = ctx.cluster().jobs().waiting_for(id);
    // Users of jobs that could never start before have been informed already.
    waiting.retain(|other| ctx.cluster().job(*other).is_some_and(|other| !other.never));
    let array = ctx.cluster().job(id).map(Job::array_id);
    ctx.emit(Event::JobEnded { job: id, outcome: how });
    let parted: Vec<JobId> = waiting.iter().flat_map(|other| tasks::part_ways(ctx, *other, array)).collect();
    waiting.extend(parted);
    waiting
}
