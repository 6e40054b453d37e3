//! Mail about jobs, with Slurm's occasions and subject lines.

use std::fmt::Display;

use super::effect::Effect;
use super::environment::{self, Variables};
use crate::cluster::{Array, Cluster, Event};
use crate::id::JobId;
use crate::model::job::Job;
use crate::model::phase::{EndState, Phase};
use crate::model::program;
use crate::text::exit::ExitCode;
use crate::text::mail::{OF_TIME, has, tells_of};

const REQUEUED: &str = "Requeued";
const RUN_TIME: &str = "SLURM_JOB_RUN_TIME";

/// Adds the mail that follows from `event`, which has been applied.
pub(super) fn tell(cluster: &Cluster, event: &Event, effects: &mut Vec<Effect>) {
    let mail = match event {
        Event::JobStarted { job, .. } => begun(cluster, *job),
        Event::JobEnded { job, .. } => ended(cluster, *job),
        Event::TimeUsed { job, percent } => time_used(cluster, *job, *percent),
        _ => None,
    };
    effects.extend(mail);
}

/// The job, if its user wants mail on this occasion and the record may send it: of a het job only the first
/// component.
fn wanted<'a>(cluster: &'a Cluster, job: JobId, what: &str) -> Option<&'a Job> {
    let job = cluster.job(job)?;
    let (types, _) = job.spec.extra.as_ref()?.mail.as_ref()?;
    (tells_of(types, what) && !job.spec.is_follower()).then_some(job)
}

/// True if the job is no array, or its tasks get mail one by one (`ARRAY_TASKS`).
fn alone(job: &Job) -> bool {
    let types = job.spec.extra.as_ref().and_then(|extra| extra.mail.as_ref());
    let by_task = types.is_some_and(|(types, _)| has(types, "ARRAY_TASKS"));
    job.array.is_none() || by_task
}

fn begun(cluster: &Cluster, job: JobId) -> Option<Effect> {
    let job = wanted(cluster, job, "BEGIN")?;
    let Phase::Running { started, .. } = &job.phase else { return None };
    if !alone(job) {
        let array = cluster.jobs().array(job.array_id())?;
        if array.active() != 1 || !array.ended().is_empty() {
            return None;
        }
    }
    let mut more = More::default();
    if alone(job) {
        more.time("Queued time", "SLURM_JOB_QUEUED_TIME", started.since(job.submitted));
    }
    Some(mail(cluster, job, "Began", more))
}

fn time_used(cluster: &Cluster, job: JobId, percent: u8) -> Option<Effect> {
    let (kind, _) = OF_TIME.into_iter().find(|(_, known)| *known == percent)?;
    let part = if percent < 100 { format!("{percent}% of ") } else { String::new() };
    ran(cluster, wanted(cluster, job, kind)?, &format!("Reached {part}time limit"))
}

/// The mail for an attempt that is over and whose job is about to be requeued. `None` if the user wants
/// none, and for the later components of a het job.
pub(super) fn requeued(cluster: &Cluster, job: JobId) -> Option<Effect> {
    ran(cluster, wanted(cluster, job, "REQUEUE")?, REQUEUED)
}

fn ran(cluster: &Cluster, job: &Job, kind: &str) -> Option<Effect> {
    let mut more = More::default();
    more.time("Run time", RUN_TIME, job.phase.run_time(cluster.at()));
    Some(mail(cluster, job, kind, more))
}

/// The mail for a job whose dependency can no longer be satisfied. `None` if the user wants none, and for
/// the later components of a het job.
pub(super) fn hopeless(cluster: &Cluster, job: JobId) -> Option<Effect> {
    wanted(cluster, job, "INVALID_DEPEND")
        .map(|job| mail(cluster, job, "Invalid dependency", More::default()))
}

/// The mail for a job's end: FAIL if the user asked for it and the job failed (a cancelled job has not
/// failed), else END. `None` if the job has not ended, or the user asked for neither. Also `None` for a task
/// that gets no mail of its own, until the whole array has ended.
fn ended(cluster: &Cluster, job: JobId) -> Option<Effect> {
    let job = cluster.job(job)?;
    let Phase::Ended(ended) = &job.phase else { return None };
    let (state, exit) = (ended.outcome.state, ended.outcome.exit);
    let mut failed = !matches!(state, EndState::Completed | EndState::Cancelled);
    let mut more = More { subject: String::new(), variables: program::of_end(exit, job.derived_exit) };
    let run_time = job.phase.run_time(cluster.at());
    if alone(job) {
        more.time("Run time", RUN_TIME, run_time);
        more.subject += &format!(", {}", state.name());
        if exit.signal == 0 {
            more.subject += &format!(", ExitCode {}", exit.code);
        }
        more.set("SLURM_JOB_EXIT_CODE_MAX", exit.code);
    } else {
        let array = cluster.jobs().array(job.array_id()).filter(|array| array.is_over())?;
        failed |= array.ended().failed.len() > cancelled(cluster, array);
        more.set(RUN_TIME, clock(run_time));
        summary(cluster, array, state, &mut more);
    }
    let (kind, what) = match failed && wanted(cluster, job.id, "FAIL").is_some() {
        true => ("Failed", "FAIL"),
        false => ("Ended", "END"),
    };
    wanted(cluster, job.id, what).map(|job| mail(cluster, job, kind, more))
}

/// Number of an array's tasks with a record in memory that were cancelled.
fn cancelled(cluster: &Cluster, array: &Array) -> usize {
    let tasks = array.records().filter_map(|id| {
        let job = cluster.job(id)?;
        let Phase::Ended(ended) = &job.phase else { return None };
        (ended.outcome.state == EndState::Cancelled).then(|| job.task_count())
    });
    tasks.sum()
}

/// Adds a summary of how an array's tasks ended, as far as their records are in memory.
fn summary(cluster: &Cluster, array: &Array, last: EndState, more: &mut More) {
    let exits = array.records().filter_map(|id| match &cluster.job(id)?.phase {
        Phase::Ended(ended) => Some(ended.outcome.exit),
        _ => None,
    });
    let exits: Vec<ExitCode> = exits.collect();
    let signal = exits.iter().map(|exit| exit.signal).max().unwrap_or(0);
    let codes = || exits.iter().map(|exit| exit.code);
    let (least, most) = (codes().min().unwrap_or(0), codes().max().unwrap_or(0));
    let state = if least == 0 && most > 0 { "Mixed" } else { last.name() };
    more.subject = match (signal, most) {
        (0, _) => format!(", {state}, ExitCode [{least}-{most}]"),
        (_, 0) => format!(", Mixed, MaxSignal [{signal}]"),
        _ => format!(", Mixed, MaxExitCode [{most}]"),
    };
    if signal == 0 {
        more.set("SLURM_JOB_EXIT_CODE_MIN", least);
    }
    match signal > 0 && most == 0 {
        true => more.set("SLURM_JOB_TERM_SIGNAL_MAX", signal),
        false => more.set("SLURM_JOB_EXIT_CODE_MAX", most),
    }
}

/// Additions to a mail: to its subject, and to the variables of the mail program.
#[derive(Default)]
struct More {
    subject: String,
    variables: Variables,
}

impl More {
    fn time(&mut self, what: &str, name: &str, seconds: u64) {
        self.subject += &format!(", {what} {}", clock(seconds));
        self.set(name, clock(seconds));
    }

    fn set(&mut self, name: &str, value: impl Display) {
        self.variables.push((name.to_owned(), value.to_string()));
    }
}

/// A mail; `kind` is the occasion in Slurm's words.
fn mail(cluster: &Cluster, job: &Job, kind: &str, mut more: More) -> Effect {
    let extra = job.spec.extra.as_ref().and_then(|extra| extra.mail.as_ref());
    let to = extra.map(|(_, user)| &**user).filter(|user| !user.is_empty());
    let who = match (&job.array, job.task().filter(|_| alone(job))) {
        (Some(part), Some(task)) => format!("Slurm Array Task Job_id={}_{task} ({})", part.id, job.id),
        (Some(part), None) => format!("Slurm Array Summary Job_id={}_* ({})", part.id, part.id),
        (None, _) => format!("Slurm Job_id={}", job.id),
    };
    more.set("SLURM_JOB_STATE", if kind == REQUEUED { "PENDING" } else { job.phase.names().0 });
    more.set("SLURM_JOB_MAIL_TYPE", kind);
    more.variables.extend(environment::of_any_program(cluster, job));
    Effect::Mail {
        to: to.map_or_else(|| job.spec.owner.user.to_string(), str::to_owned),
        subject: format!("{who} Name={} {kind}{}", job.spec.name, more.subject),
        variables: more.variables,
    }
}

/// A duration as `[D-]HH:MM:SS`, Slurm's format in mail.
fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}-{time}") } else { time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_slurms() {
        assert_eq!([clock(59), clock(3661), clock(90_000)], ["00:00:59", "01:01:01", "1-01:00:00"]);
    }
}
