//! Actions at a time: warnings, time limits, ends of grace times, kills, deadlines, ends of reservations,
//! overdue reboots, postponed ends, and forgetting of finished jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::handle::reservation;
use super::{Ctx, Effect, Reply, ending, power, reboot, usage};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::phase::{EndState, Phase, Then};
use crate::model::reason::Reason;
use crate::model::step::Step;
use crate::text::time::{Seconds, Time};

/// Number of finished jobs that one entry makes the controller forget, so that entries stay small.
const FORGET_AT_ONCE: usize = 1000;

/// Number of jobs handled at once. The others stay due, and other inputs are handled in between.
const DUE_AT_ONCE: usize = 1000;

/// Time of the next action; `None` if none is to come, and on an old copy of the journal. The shell keeps
/// one timer and sends [`Wakeup`] at that time.
///
/// [`Wakeup`]: super::Input::Wakeup
#[must_use]
pub fn next_wakeup(cluster: &Cluster) -> Option<Time> {
    if cluster.doubt().is_some() {
        return None;
    }
    let age = cluster.policy().jobs.min_job_age.0;
    let forget = cluster.jobs().ended().next().map(|(ended, _)| ended + age);
    next_due(cluster).into_iter().chain(forget).min()
}

/// Time of the next action other than forgetting finished jobs, which nothing waits for; `None` if none is
/// to come.
///
/// A job on a node without a report to a new controller may have ended. The limits of such a job wait until
/// the node reports or is down.
#[must_use]
pub fn next_due(cluster: &Cluster) -> Option<Time> {
    let due = cluster.jobs().due().find(|(_, job)| !cluster.awaits_report(*job)).map(|(at, _)| at);
    let hopeless = cluster.jobs().hopeless().next().map(|_| cluster.at());
    due.into_iter()
        .chain(hopeless)
        .chain(reservation::next_end(cluster))
        .chain(reboot::next_deadline(cluster))
        .chain(power::next_deadline(cluster))
        .chain(usage::next_roll(cluster))
        .min()
}

/// Carries out what is due at `now`, for a limited number of jobs. Times are whole seconds; a caller that
/// must not cut any duration short lets the second pass first.
pub(super) fn fire(ctx: &mut Ctx<'_>, now: Time) -> Reply {
    let due = ctx.cluster().jobs().due().take_while(|(at, _)| *at <= now).map(|(_, job)| job);
    let due = due.filter(|job| !ctx.cluster().awaits_report(*job));
    let due: Vec<JobId> = due.take(DUE_AT_ONCE).collect();
    for job in due {
        fire_job(ctx, now, job);
    }
    ending::end_more_hopeless(ctx);
    reservation::expire(ctx, now);
    reboot::expire(ctx, now);
    power::expire(ctx, now);
    usage::roll(ctx, now);
    forget(ctx, now);
    Reply::Done
}

/// Emits the percentages of the time limit that a job has reached, for its mail.
fn tell_time(ctx: &mut Ctx<'_>, now: Time, id: JobId) {
    let next = |ctx: &Ctx<'_>| ctx.cluster().job(id)?.tells_at().filter(|(at, _)| *at <= now);
    while let Some((_, percent)) = next(ctx) {
        ctx.emit(Event::TimeUsed { job: id, percent });
    }
}

fn fire_job(ctx: &mut Ctx<'_>, now: Time, id: JobId) {
    tell_time(ctx, now, id);
    let Some(job) = ctx.cluster().job(id) else { return };
    match &job.phase {
        Phase::Pending(_) => {
            ending::end_pending(ctx, id, ending::outcome(EndState::Deadline, Reason::DeadLine));
        }
        Phase::Running { started, warned, preempted, .. } => {
            let must_go = preempted.is_some_and(|preempted| preempted.end_at <= now);
            let (warn, over) = (job.warn_at(*started), job.ends_at(*started) <= now);
            if !warned && warn.is_some_and(|warn| warn <= now) {
                ctx.emit(Event::JobWarned { job: id });
            }
            if !over && !must_go {
                end_steps(ctx, now, id);
            }
            if must_go {
                ending::preempt(ctx, id);
            }
            if over {
                ending::begin(ctx, id, ending::outcome(EndState::Timeout, Reason::TimeLimit), Then::End);
            }
        }
        Phase::Suspended(suspended) => {
            let over = suspended.ends_by.is_some_and(|end| end <= now);
            match over {
                true => {
                    ending::begin(ctx, id, ending::outcome(EndState::Timeout, Reason::TimeLimit), Then::End);
                }
                false => ending::preempt(ctx, id),
            }
        }
        Phase::Completing(_) => ctx.emit(Event::JobKilled { job: id }),
        Phase::Ended(_) => {}
    }
}

/// Tells the nodes of each step whose time is over to end the step.
fn end_steps(ctx: &mut Ctx<'_>, now: Time, id: JobId) {
    let Some(job) = ctx.cluster().job(id) else { return };
    let (attempt, paused) = (job.attempt(), job.phase.pauses().seconds);
    let is_over = |step: &&Arc<Step>| step.ends_at(paused).is_some_and(|end| end <= now);
    let over: Vec<Arc<Step>> = job.steps.iter().filter(is_over).cloned().collect();
    // Nodes that were ordered before to end the step have already waited between SIGTERM and SIGKILL.
    let kill_wait = |step: &Step| match step.timed_out {
        None => ctx.cluster().policy().jobs.kill_wait,
        Some(_) => Seconds(0),
    };
    let orders: Vec<Effect> = over
        .iter()
        .flat_map(|step| {
            let open = step.nodes.iter().filter(|part| part.exit.is_none());
            let kill_wait = kill_wait(step);
            open.map(move |part| Effect::EndStep { node: part.node, attempt, step: step.id, kill_wait })
        })
        .collect();
    for step in over {
        ctx.emit(Event::StepTimedOut { job: id, step: step.id });
    }
    orders.into_iter().for_each(|order| ctx.effect(order));
}

/// Drops finished jobs that are old enough; accounting has them.
fn forget(ctx: &mut Ctx<'_>, now: Time) {
    let age = ctx.cluster().policy().jobs.min_job_age.0;
    let old: Vec<JobId> = ctx
        .cluster()
        .jobs()
        .ended()
        .take_while(|(ended, _)| *ended + age <= now)
        .map(|(_, job)| job)
        .take(FORGET_AT_ONCE)
        .collect();
    if !old.is_empty() {
        let arrays = emptied(ctx.cluster(), &old);
        ctx.emit(Event::JobsForgotten { jobs: old, arrays });
    }
}

/// The arrays that have no record left once these jobs are gone.
fn emptied(cluster: &Cluster, jobs: &[JobId]) -> Vec<JobId> {
    let mut going: BTreeMap<JobId, usize> = BTreeMap::new();
    let parts = jobs.iter().filter_map(|job| cluster.job(*job)?.array.as_deref());
    parts.for_each(|part| *going.entry(part.id).or_default() += 1);
    let left = |id: &JobId| cluster.jobs().array(*id).map_or(0, |array| array.records().count());
    going.into_iter().filter(|(id, count)| left(id) == *count).map(|(id, _)| id).collect()
}
