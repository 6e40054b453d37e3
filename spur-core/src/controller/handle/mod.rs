//! The verbs, one file each: `check` decides or refuses, `enact` emits events and effects.

mod account;
pub(super) mod accounts;
mod annotate;
mod cancel;
mod clock;
mod condition;
mod create_step;
mod end_allocation;
mod end_step;
mod feature_level;
mod history;
mod hold;
mod import;
mod limits;
mod move_job;
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
mod update_job;
mod update_nodes;
mod wckey;

pub use accounts::{MOST_AT_ONCE, preview};
pub use annotate::check as may_annotate;
pub use import::MOST_ROWS;
pub use register::kept_by_host;

use std::sync::Arc;

use super::command::{Command, Input, Reply};
use super::reject::Reject;
use super::{Ctx, timers, usage};
use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::job::Job;
use crate::sched::feasible::Feasibility;

/// Passes an input to its verb.
///
/// # Errors
/// The refusal of the verb. On an old copy of a journal, nearly every input is refused with
/// [`Reject::OldCopy`].
pub(super) fn dispatch(ctx: &mut Ctx<'_>, input: Input) -> Result<Reply, Reject> {
    let spoken_of = matches!(
        input,
        Input::Begin { .. }
            | Input::Clock(_)
            | Input::NewHistory { .. }
            | Input::FileQos(_)
            | Input::Registered { .. }
            | Input::Command { command: Command::Reconfigure(_), .. }
    );
    if let Some(doubt) = ctx.cluster().doubt().filter(|_| !spoken_of) {
        return Err(Reject::OldCopy(Arc::clone(&doubt.why)));
    }
    let now = ctx.now();
    match input {
        Input::Command { caller, command: wanted, .. } => {
            let caller = ctx.cluster().recognize(caller);
            command(ctx, &caller, wanted)
        }
        Input::Start(start) => run(ctx, |all| start::check(all, now, &start), start::enact),
        Input::Preempt(preemption) => run(ctx, |all| preempt::check(all, now, &preemption), preempt::enact),
        Input::Promise { job, start } => {
            let decision = promise::check(ctx.cluster(), job, start)?;
            Ok(promise::enact(ctx, &decision))
        }
        Input::PlanFailed { job } => {
            let jobs = hold::check_failed(ctx.cluster(), job)?;
            Ok(hold::enact_failed(ctx, jobs))
        }
        Input::Registered { name, registration, held, reports, seen, connection } => {
            let adopted = match history::examine(ctx.cluster(), &name, &seen)? {
                history::Standing::Own => None,
                history::Standing::Adopted => Some(seen.last_job),
                history::Standing::Later { why, last_job } => return Ok(history::doubt(ctx, why, last_job)),
            };
            let decision = register::check(ctx.cluster(), &name, registration, &held, adopted)?;
            Ok(register::enact(ctx, decision, connection, reports))
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
        Input::FileQos(file) => Ok(accounts::begin(ctx, &file)),
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
        Input::NextReset { at, zone } => Ok(usage::plan_reset(ctx, at, zone)),
        Input::Clock(new) => {
            let decision = clock::check(ctx.cluster(), new);
            Ok(clock::enact(ctx, decision))
        }
        Input::Wakeup { due } => Ok(timers::fire(ctx, due)),
    }
}

/// Carries out a client's command.
#[expect(clippy::too_many_lines, reason = "one verb after another, each a line or two")]
fn command(ctx: &mut Ctx<'_>, caller: &Caller, mut command: Command) -> Result<Reply, Reject> {
    clock::read(ctx.cluster().clock(), &mut command);
    let (by, now) = (caller.owner.uid, ctx.now());
    match command {
        Command::Submit(new) => {
            let check = |all: &_, feasibility: &_| submit::check(all, now, caller, feasibility, *new);
            judge(ctx, check, submit::enact)
        }
        Command::ChangeAccounts { ask, shown } => {
            let user = Arc::clone(&caller.owner.user);
            let enact = |ctx: &mut Ctx<'_>, decision| accounts::enact(ctx, user, decision);
            run(ctx, |all| accounts::check(all, caller, &ask, shown.as_deref()), enact)
        }
        Command::AnnotateJobs { runs, note } => {
            annotate::check(ctx.cluster(), caller, &runs, &note)?;
            Ok(annotate::enact(ctx, runs, note))
        }
        Command::ImportHistory { last_job, jobs, steps } => {
            run(ctx, |all| import::check(all, caller, last_job, (jobs, steps)), import::enact)
        }
        Command::Cancel { jobs } => {
            let enact = |ctx: &mut Ctx<'_>, decision| cancel::enact(ctx, by, decision);
            run(ctx, |all| Ok(cancel::check(all, caller, &jobs)), enact)
        }
        Command::Signal { jobs, step, signal, batch, steps } => {
            let wish = signal::Wish { step, signal, batch, steps };
            run(ctx, |all| Ok(signal::check(all, caller, &jobs, wish)), signal::enact)
        }
        Command::Notify { job, message } => {
            run(ctx, |all| notify::check(all, caller, job, &message), notify::enact)
        }
        Command::CancelStep { job, step } => {
            let enact = |ctx: &mut Ctx<'_>, decision| end_step::enact(ctx, by, decision);
            run(ctx, |all| end_step::check(all, caller, job, step), enact)
        }
        Command::LimitStep { job, step, limit } => {
            run(ctx, |all| end_step::check_limit(all, caller, job, step, limit), end_step::enact_limit)
        }
        Command::Hold { jobs, by_user } => {
            run(ctx, |all| Ok(hold::check(all, caller, &jobs, by_user)), hold::enact)
        }
        Command::Release { jobs } => run(ctx, |all| Ok(release::check(all, caller, &jobs)), release::enact),
        Command::Requeue { jobs, hold } => {
            run(ctx, |all| Ok(requeue::check(all, caller, &jobs, hold)), requeue::enact)
        }
        Command::Suspend { jobs } => run(ctx, |all| suspend::check(all, caller, &jobs), suspend::enact),
        Command::Resume { jobs } => {
            run(ctx, |all| suspend::check_resume(all, caller, &jobs), suspend::enact_resume)
        }
        Command::Move(start) => run(ctx, |all| move_job::check(all, now, caller, &start), move_job::enact),
        Command::Top { jobs } => run(ctx, |all| top::check(all, now, caller, &jobs), top::enact),
        Command::UpdateJob { job, changes } => {
            let check =
                |all: &_, feasibility: &_| update_job::check(all, now, caller, feasibility, &job, &changes);
            judge(ctx, check, update_job::enact)
        }
        Command::CreateStep { job, step } => {
            run(ctx, |all| create_step::check(all, now, caller, job, &step), create_step::enact)
        }
        Command::AbandonStep { job, step, nodes, exit } => {
            let check = |all: &Cluster| end_step::check_abandoned(all, caller, job, step, &nodes, exit);
            run(ctx, check, end_step::enact_abandoned)
        }
        Command::EndAllocation { job, exit } => {
            run(ctx, |all| end_allocation::check(all, caller, job, exit), end_allocation::enact)
        }
        Command::UpdateNodes { nodes, change } => {
            run(ctx, |all| update_nodes::check(all, now, caller, &nodes, change), update_nodes::enact)
        }
        Command::CreatePartition { name, settings } => {
            run(ctx, |all| partition::check_new(all, caller, &name, &settings), partition::enact)
        }
        Command::UpdatePartition { name, settings } => {
            run(ctx, |all| partition::check(all, caller, &name, &settings), partition::enact)
        }
        Command::DeletePartition { name } => {
            run(ctx, |all| partition::check_gone(all, caller, &name), partition::enact)
        }
        Command::CreateNodes { nodes, settings } => {
            run(ctx, |all| node::check_new(all, caller, &nodes, &settings), node::enact_new)
        }
        Command::DeleteNodes { nodes } => {
            run(ctx, |all| node::check_gone(all, caller, &nodes), node::enact_gone)
        }
        Command::CreateReservation(ask) => {
            run(ctx, |all| reservation::check_new(all, now, caller, &ask), reservation::enact_new)
        }
        Command::UpdateReservation(ask) => {
            run(ctx, |all| reservation::check_changed(all, now, caller, &ask), reservation::enact_changed)
        }
        Command::DeleteReservation { name } => {
            run(ctx, |all| reservation::check_gone(all, caller, &name), reservation::enact_gone)
        }
        Command::RaiseFeatureLevel { level, daemons } => {
            run(ctx, |all| feature_level::check(all, caller, level, &daemons), feature_level::enact)
        }
        Command::Reconfigure(policy) => {
            run(ctx, |all| reconfigure::check(all, now, caller, policy), reconfigure::enact)
        }
    }
}

/// Carries out one verb: `check` decides on the state as it is, `enact` carries the decision out.
fn run<D>(
    ctx: &mut Ctx<'_>,
    check: impl FnOnce(&Cluster) -> Result<D, Reject>,
    enact: impl FnOnce(&mut Ctx<'_>, D) -> Reply,
) -> Result<Reply, Reject> {
    let decision = check(ctx.cluster())?;
    Ok(enact(ctx, decision))
}

/// Carries out a verb whose request may take long to judge. `check` judges as far as verdicts are known;
/// while a question is open the request is refused as undecided.
fn judge<D>(
    ctx: &mut Ctx<'_>,
    check: impl FnOnce(&Cluster, &Feasibility) -> Result<D, Reject>,
    enact: impl FnOnce(&mut Ctx<'_>, D) -> Reply,
) -> Result<Reply, Reject> {
    let decision = check(ctx.cluster(), ctx.feasibility())?;
    if ctx.feasibility().is_open() {
        return Err(Reject::Undecided);
    }
    Ok(enact(ctx, decision))
}

/// A job that the caller may change.
fn owned<'a>(cluster: &'a Cluster, caller: &Caller, id: JobId) -> Result<&'a Job, Reject> {
    let job = cluster.job(id).ok_or(Reject::InvalidJobId)?;
    if cluster.may_change(caller, &job.spec) { Ok(job) } else { Err(Reject::AccessDenied) }
}
