//! Mail that jobs ask for: who is told of what, in Slurm's words.

use super::effect::Effect;
use crate::cluster::{Array, Cluster, Event};
use crate::id::JobId;
use crate::model::job::Job;
use crate::model::phase::{EndState, Ended, Phase};
use crate::text::exit::ExitCode;
use crate::text::mail::{OF_TIME, has};

/// Adds the mail that follows from `event`, which is applied already.
pub(super) fn tell(cluster: &Cluster, event: &Event, effects: &mut Vec<Effect>) {
    let mail = match event {
        Event::JobStarted { job, .. } => begun(cluster, *job),
        Event::JobEnded { job, .. } => ended(cluster, *job),
        Event::JobRequeued { job, .. } => {
            wanted(cluster, *job, "REQUEUE").map(|job| mail(job, "Requeued", ""))
        }
        Event::TimeUsed { job, percent } => time_used(cluster, *job, *percent),
        _ => None,
    };
    effects.extend(mail);
}

/// The job, if its user wants to hear of this, and it speaks for itself: the first component of a het job, and of an array
/// with `ARRAY_TASKS` every task.
fn wanted<'a>(cluster: &'a Cluster, job: JobId, what: &str) -> Option<&'a Job> {
    let job = cluster.job(job)?;
    let (types, _) = job.spec.extra.as_ref()?.mail.as_ref()?;
    let all = has(types, "ALL") && !what.starts_with("TIME_LIMIT");
    ((all || has(types, what)) && !job.spec.is_follower()).then_some(job)
}

/// Whether the tasks of its array are told of one by one, or it is none.
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
    let queued = format!(", Queued time {}", clock(started.since(job.submitted)));
    Some(mail(job, "Began", if alone(job) { &queued } else { "" }))
}

fn time_used(cluster: &Cluster, job: JobId, percent: u8) -> Option<Effect> {
    let (kind, _) = OF_TIME.into_iter().find(|(_, known)| *known == percent)?;
    let job = wanted(cluster, job, kind)?;
    let part = if percent < 100 { format!("{percent}% of ") } else { String::new() };
    let ran = clock(job.phase.run_time(cluster.at()));
    Some(mail(job, &format!("Reached {part}time limit"), &format!(", Run time {ran}")))
}

/// What a job waits for can no longer happen.
pub(super) fn hopeless(cluster: &Cluster, job: JobId) -> Option<Effect> {
    wanted(cluster, job, "INVALID_DEPEND").map(|job| mail(job, "Invalid dependency", ""))
}

/// Failed, for whoever wants to hear of failures, which cancelled jobs are none; else ended.
fn ended(cluster: &Cluster, job: JobId) -> Option<Effect> {
    let record = cluster.job(job)?;
    let Phase::Ended(ended) = &record.phase else { return None };
    let state = ended.outcome.state;
    let mut failed = !matches!(state, EndState::Completed | EndState::Cancelled);
    let ran = ended.started.map_or(0, |started| ended.ended.since(started));
    let mut how = format!(", Run time {}, {}{}", clock(ran), state.name(), exit(ended));
    if !alone(record) {
        let array = cluster.jobs().array(record.array_id()).filter(|array| array.is_over())?;
        failed |= array.has_failed();
        how = summary(cluster, array, state);
    }
    let failure = || wanted(cluster, job, "FAIL").filter(|_| failed).map(|job| mail(job, "Failed", &how));
    failure().or_else(|| wanted(cluster, job, "END").map(|job| mail(job, "Ended", &how)))
}

/// How all tasks of an array ended of which the records are still there.
fn summary(cluster: &Cluster, array: &Array, last: EndState) -> String {
    let exits = array.records().filter_map(|id| match &cluster.job(id)?.phase {
        Phase::Ended(ended) => Some(ended.outcome.exit),
        _ => None,
    });
    let exits: Vec<ExitCode> = exits.collect();
    if let Some(signal) = exits.iter().map(|exit| exit.signal).max().filter(|signal| *signal > 0) {
        return format!(", Mixed, MaxSignal [{signal}]");
    }
    let codes = || exits.iter().map(|exit| exit.code);
    let (least, most) = (codes().min().unwrap_or(0), codes().max().unwrap_or(0));
    let state = if least == 0 && most > 0 { "Mixed" } else { last.name() };
    format!(", {state}, ExitCode [{least}-{most}]")
}

fn exit(ended: &Ended) -> String {
    let exit = ended.outcome.exit;
    if exit.signal > 0 {
        format!(", Signal {}", exit.signal)
    } else if ended.started.is_some() {
        format!(", ExitCode {}", exit.code)
    } else {
        String::new()
    }
}

/// `kind` is what has happened in Slurm's words, `more` what is said of it.
fn mail(job: &Job, kind: &str, more: &str) -> Effect {
    let extra = job.spec.extra.as_ref().and_then(|extra| extra.mail.as_ref());
    let to = extra.map(|(_, user)| &**user).filter(|user| !user.is_empty());
    let who = match (&job.array, job.task().filter(|_| alone(job))) {
        (Some(part), Some(task)) => format!("Slurm Array Task Job_id={}_{task} ({})", part.id, job.id),
        (Some(part), None) => format!("Slurm Array Summary Job_id={}_* ({})", part.id, job.id),
        (None, _) => format!("Slurm Job_id={}", job.id),
    };
    let variables = [
        ("SLURM_JOB_ID", job.id.to_string()),
        ("SLURM_JOB_NAME", job.spec.name.to_string()),
        ("SLURM_JOB_USER", job.spec.owner.user.to_string()),
        ("SLURM_JOB_PARTITION", job.spec.partitions.join(",")),
        ("SLURM_JOB_STATE", job.phase.names().0.to_owned()),
        ("SLURM_JOB_MAIL_TYPE", kind.to_owned()),
    ];
    Effect::Mail {
        to: to.map_or_else(|| job.spec.owner.user.to_string(), str::to_owned),
        subject: format!("{who} Name={} {kind}{more}", job.spec.name),
        variables: variables.into(),
    }
}

/// `[D-]HH:MM:SS`, as Slurm has durations in mail.
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
