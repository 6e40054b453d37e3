//! One file for each verb: `check` decides or refuses, `enact` emits.

mod cancel;
mod clock;
mod condition;
mod create_step;
mod end_allocation;
mod end_step;
mod history;
mod hold;
mod move_nodes;
mod node;
mod notify;
mod partition;
mod preempt;
mod program;
mod promise;
mod qos;
mod reconfigure;
mod register;
mod release;
mod report;
mod requeue;
pub(super) mod reservation;
mod signal;
mod silent;
pub(super) mod start;
mod submit;
mod suspend;
mod target;
mod top;
mod unsupported;
mod update_job;
mod update_nodes;

pub use register::kept_by_host;

use std::sync::Arc;

use super::command::{Command, Input, Reply};
use super::reject::Reject;
use super::{Ctx, timers};
use crate::cluster::Cluster;
use crate::id::{JobId, RequestId};
use crate::model::caller::Caller;
use crate::model::job::Job;
use crate::text::exit::ExitCode;
use crate::text::jobid::JobRef;

/// Sends an input to its verb.
///
/// # Errors
/// The verb's refusal; of everything but the first and the last word on an old copy of a journal.
pub(super) fn dispatch(ctx: &mut Ctx<'_>, input: Input) -> Result<Reply, Reject> {
    let spoken_of = matches!(
        input,
        Input::Begin { .. }
            | Input::Clock(_)
            | Input::NewHistory { .. }
            | Input::Registered { .. }
            | Input::Command { command: Command::Reconfigure(_), .. }
    );
    if let Some(doubt) = ctx.cluster().doubt().filter(|_| !spoken_of) {
        return Err(Reject::OldCopy(Arc::clone(&doubt.why)));
    }
    match input {
        Input::Command { caller, request, command } => command_of(ctx, &caller, request, command),
        Input::Start(start) => {
            let decision = start::check(ctx.cluster(), ctx.now(), &start)?;
            Ok(start::enact(ctx, decision))
        }
        Input::Preempt(preemption) => {
            let decision = preempt::check(ctx.cluster(), ctx.now(), &preemption)?;
            Ok(preempt::enact(ctx, decision))
        }
        Input::Promise { job, start } => {
            let decision = promise::check(ctx.cluster(), job, start)?;
            Ok(promise::enact(ctx, &decision))
        }
        Input::PlanFailed { job } => {
            let jobs = hold::check_failed(ctx.cluster(), job)?;
            Ok(hold::enact_failed(ctx, jobs))
        }
        Input::Registered { name, registration, held, seen, connection } => {
            let adopted = match history::examine(ctx.cluster(), &name, &seen)? {
                history::Standing::Own => None,
                history::Standing::Adopted => Some(seen.last_job),
                history::Standing::Later { why, last_job } => return Ok(history::doubt(ctx, why, last_job)),
            };
            let decision = register::check(ctx.cluster(), &name, registration, &held, adopted)?;
            Ok(register::enact(ctx, decision, connection))
        }
        Input::Report { node, id, attempt, report } => {
            let decision = report::check(ctx.cluster(), node, attempt, report);
            Ok(report::enact(ctx, node, id, attempt, decision))
        }
        Input::Silent { nodes } => {
            let silent = silent::check(ctx.cluster(), &nodes)?;
            Ok(silent::enact(ctx, silent))
        }
        Input::Condition { node: id, fault } => {
            let node = ctx.cluster().node(id).ok_or_else(|| Reject::UnknownNode(id.to_string()))?;
            let decision = condition::check(node, fault);
            Ok(condition::enact(ctx, id, decision))
        }
        Input::Begin { history, reign, accounting } => Ok(history::begin(ctx, history, reign, accounting)),
        Input::NewHistory { history, adopted, last_job } => {
            Ok(history::renew(ctx, history, adopted, last_job))
        }
        Input::Inactive { jobs } => {
            let gone = end_allocation::check_inactive(ctx.cluster(), &jobs)?;
            Ok(end_allocation::enact_inactive(ctx, gone))
        }
        Input::ProgramEnded { attempt, program, failed } => {
            program::check(ctx.cluster(), attempt, program)?;
            Ok(program::enact(ctx, attempt.job, program, failed))
        }
        Input::Clock(new) => {
            let decision = clock::check(ctx.cluster(), new);
            Ok(clock::enact(ctx, decision))
        }
        Input::Wakeup { due } => Ok(timers::fire(ctx, due)),
    }
}

#[expect(clippy::too_many_lines, reason = "one verb after another, each a few lines")]
fn command_of(
    ctx: &mut Ctx<'_>,
    caller: &Caller,
    _request: Option<RequestId>,
    mut command: Command,
) -> Result<Reply, Reject> {
    clock::read(ctx.cluster().clock(), &mut command);
    match command {
        Command::Submit(submission) => {
            let decision = submit::check(ctx.cluster(), ctx.now(), caller, ctx.feasibility(), *submission)?;
            decided(ctx)?;
            Ok(submit::enact(ctx, decision))
        }
        Command::Cancel { jobs } => {
            let decision = cancel::check(ctx.cluster(), caller, &jobs);
            Ok(cancel::enact(ctx, caller.owner.uid, decision))
        }
        Command::Signal { jobs, step, signal, batch, steps } => {
            let wish = signal::Wish { step, signal, batch, steps };
            let decision = signal::check(ctx.cluster(), caller, &jobs, wish);
            Ok(signal::enact(ctx, decision))
        }
        Command::Notify { job, message } => {
            let effect = notify::check(ctx.cluster(), caller, job, &message)?;
            Ok(notify::enact(ctx, effect))
        }
        Command::CancelStep { job, step } => {
            let decision = end_step::check(ctx.cluster(), caller, job, step)?;
            Ok(end_step::enact(ctx, caller.owner.uid, decision))
        }
        Command::Hold { jobs, by_user } => {
            let decision = hold::check(ctx.cluster(), caller, &jobs, by_user);
            Ok(hold::enact(ctx, decision))
        }
        Command::Release { jobs } => {
            let decision = release::check(ctx.cluster(), caller, &jobs);
            Ok(release::enact(ctx, decision))
        }
        Command::Requeue { jobs, hold } => {
            let decision = requeue::check(ctx.cluster(), caller, &jobs, hold);
            Ok(requeue::enact(ctx, decision))
        }
        Command::Suspend { jobs } => stop(ctx, caller, &jobs),
        Command::Resume { jobs } => go_on(ctx, caller, &jobs),
        Command::Top { jobs } => {
            let decision = top::check(ctx.cluster(), ctx.now(), caller, &jobs)?;
            Ok(top::enact(ctx, decision))
        }
        Command::UpdateJob { job, changes } => {
            let decision =
                update_job::check(ctx.cluster(), ctx.now(), caller, ctx.feasibility(), &job, &changes)?;
            decided(ctx)?;
            Ok(update_job::enact(ctx, decision))
        }
        Command::CreateStep { job, step } => {
            let decision = create_step::check(ctx.cluster(), ctx.now(), caller, job, &step)?;
            Ok(create_step::enact(ctx, decision))
        }
        Command::AbandonStep { job, step, nodes, exit } => {
            let decision = end_step::check_abandoned(ctx.cluster(), caller, job, step, &nodes, exit)?;
            Ok(end_step::enact_abandoned(ctx, decision))
        }
        Command::EndAllocation { job, exit } => end_allocation(ctx, caller, job, exit),
        Command::UpdateNodes { nodes, change } => {
            let decision = update_nodes::check(ctx.cluster(), ctx.now(), caller, &nodes, change)?;
            Ok(update_nodes::enact(ctx, decision))
        }
        Command::CreatePartition { name, settings } => {
            let decision = partition::check_new(ctx.cluster(), caller, &name, &settings)?;
            Ok(partition::enact(ctx, decision))
        }
        Command::UpdatePartition { name, settings } => {
            let decision = partition::check(ctx.cluster(), caller, &name, &settings)?;
            Ok(partition::enact(ctx, decision))
        }
        Command::DeletePartition { name } => {
            let decision = partition::check_gone(ctx.cluster(), caller, &name)?;
            Ok(partition::enact(ctx, decision))
        }
        Command::CreateNodes { nodes, settings } => {
            let decision = node::check_new(ctx.cluster(), caller, &nodes, &settings)?;
            Ok(node::enact_new(ctx, decision))
        }
        Command::DeleteNodes { nodes } => {
            let decision = node::check_gone(ctx.cluster(), caller, &nodes)?;
            Ok(node::enact_gone(ctx, decision))
        }
        Command::CreateReservation(ask) => {
            let decision = reservation::check_new(ctx.cluster(), ctx.now(), caller, &ask)?;
            Ok(reservation::enact_new(ctx, decision))
        }
        Command::UpdateReservation(ask) => {
            let decision = reservation::check_changed(ctx.cluster(), ctx.now(), caller, &ask)?;
            Ok(reservation::enact_changed(ctx, decision))
        }
        Command::DeleteReservation { name } => {
            let decision = reservation::check_gone(ctx.cluster(), caller, &name)?;
            Ok(reservation::enact_gone(ctx, decision))
        }
        Command::Reconfigure(policy) => {
            let decision = reconfigure::check(ctx.cluster(), ctx.now(), caller, policy)?;
            Ok(reconfigure::enact(ctx, decision))
        }
    }
}

/// Refuses what was judged as far as it could be, while some question is open.
fn decided(ctx: &Ctx<'_>) -> Result<(), Reject> {
    if ctx.feasibility().is_open() { Err(Reject::Undecided) } else { Ok(()) }
}

fn end_allocation(ctx: &mut Ctx<'_>, caller: &Caller, job: JobId, exit: ExitCode) -> Result<Reply, Reject> {
    let decision = end_allocation::check(ctx.cluster(), caller, job, exit)?;
    Ok(end_allocation::enact(ctx, decision))
}

fn stop(ctx: &mut Ctx<'_>, caller: &Caller, jobs: &[JobRef<JobId>]) -> Result<Reply, Reject> {
    let decision = suspend::check(ctx.cluster(), caller, jobs)?;
    Ok(suspend::enact(ctx, decision))
}

fn go_on(ctx: &mut Ctx<'_>, caller: &Caller, jobs: &[JobRef<JobId>]) -> Result<Reply, Reject> {
    let decision = suspend::check_resume(ctx.cluster(), caller, jobs)?;
    Ok(suspend::enact_resume(ctx, decision))
}

/// A job that the caller may change.
fn owned<'a>(cluster: &'a Cluster, caller: &Caller, id: JobId) -> Result<&'a Job, Reject> {
    let job = cluster.job(id).ok_or(Reject::InvalidJobId)?;
    if caller.may_change(&job.spec.owner) { Ok(job) } else { Err(Reject::AccessDenied) }
}
