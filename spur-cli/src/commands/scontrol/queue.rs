//! The commands of `scontrol` for jobs in the queue: hold, release, requeue, suspend, resume, top, notify and
//! wait_job.

use std::time::Duration;

use anyhow::Context;
use spur_proto::client::{CallError, Controller, JOBS_AT_ONCE};
use spur_proto::v1::{
    HoldJobsRequest, JobFilter, JobsChangedResponse, NotifyJobRequest, ReleaseJobsRequest,
    RequeueJobsRequest, SuspendJobsRequest, TopJobsRequest,
};
use tokio::signal::unix::{SignalKind, signal};

use super::{bare, update};
use crate::commands::query;
use crate::error::{FAILURE, Failure};
use crate::session::Session;

/// Returns the jobs that words select: by number, or by name (`jobname=test`), which needs a query.
async fn named(session: &mut Session, words: &[String]) -> anyhow::Result<Vec<String>> {
    let mut job_ids = Vec::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        match key.to_ascii_lowercase().as_str() {
            "" | "jobid" | "job" => job_ids.extend(update::job_ids(value)?),
            "jobname" | "name" => {
                let filter = JobFilter { names: vec![value.to_owned()], ..JobFilter::default() };
                let found = query::jobs(session.connection()?, filter).await?;
                if found.is_empty() {
                    return Err(bare(format!("Job name {value} not found")).into());
                }
                job_ids.extend(found.iter().map(|job| job.id.to_string()));
            }
            _ => return Err(Failure::new(format!("{word}: name jobs by number, or with jobname=")).into()),
        }
    }
    Ok(job_ids)
}

/// Holds, releases, requeues, suspends or resumes jobs, or moves them to the top.
pub(super) async fn queue(session: &mut Session, keyword: &str, words: &[String]) -> anyhow::Result<u8> {
    let mut words = words;
    if keyword.starts_with("requeue")
        && let Some((word, rest)) = words.split_first()
    {
        match word.to_ascii_lowercase().as_str() {
            // This is the default: ended jobs are reported as problems.
            "incomplete" => words = rest,
            special if special.starts_with("state=") => {
                return Err(Failure::new(format!("{word}: not supported by Spur")).into());
            }
            _ => {}
        }
    }
    let job_ids = named(session, words).await?;
    if job_ids.is_empty() {
        return Err(bare(format!("too few arguments for keyword:{keyword}")).into());
    }
    // A process inside the job that it requeues gets TERM at once, but must still report the result.
    let stays = keyword.starts_with("requeue").then(|| signal(SignalKind::terminate()));
    let _stay = stays.transpose().context("cannot listen for signals")?;
    let mut code = 0;
    for some in job_ids.chunks(JOBS_AT_ONCE) {
        let answer = queue_some(session, keyword, some.to_vec()).await?;
        code = code.max(report(session, answer));
    }
    Ok(code)
}

async fn queue_some(
    session: &mut Session,
    keyword: &str,
    job_ids: Vec<String>,
) -> anyhow::Result<JobsChangedResponse> {
    let connection = session.connection()?;
    Ok(match keyword {
        "release" => {
            let request = ReleaseJobsRequest { job_ids, ..ReleaseJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.release_jobs(request).await;
            connection.change(request, call).await?
        }
        "requeue" | "requeuehold" => {
            let hold = keyword == "requeuehold";
            let request = RequeueJobsRequest { job_ids, hold, ..RequeueJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.requeue_jobs(request).await;
            connection.change(request, call).await?
        }
        "suspend" | "resume" => {
            let resume = keyword == "resume";
            let request = SuspendJobsRequest { job_ids, resume, ..SuspendJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.suspend_jobs(request).await;
            connection.change(request, call).await?
        }
        "top" => {
            let request = TopJobsRequest { job_ids, ..TopJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.top_jobs(request).await;
            connection.change(request, call).await?
        }
        _ => {
            let by_user = keyword != "hold";
            let request = HoldJobsRequest { job_ids, by_user, ..HoldJobsRequest::default() };
            let call = async |mut controller: Controller, request| controller.hold_jobs(request).await;
            connection.change(request, call).await?
        }
    })
}

/// Prints the results for jobs and returns the exit code.
pub(super) fn report(session: &mut Session, answer: JobsChangedResponse) -> u8 {
    for warning in &answer.warnings {
        session.warn(warning);
    }
    for problem in &answer.problems {
        let message = problem.error.as_ref().map_or("Unspecified error", |error| error.message.as_str());
        session.say(&format!("{message} for job {}", problem.job_id));
    }
    if answer.problems.is_empty() { 0 } else { FAILURE }
}

/// Runs `notify JOB MESSAGE`; the message may be several words. The request is not repeated, since the
/// message might appear twice.
pub(super) async fn notify(session: &mut Session, job: &str, words: &[String]) -> anyhow::Result<u8> {
    let ids = update::job_ids(job).ok().filter(|ids| ids.len() == 1);
    let job_id =
        ids.and_then(|ids| ids.into_iter().next()).ok_or_else(|| bare(format!("Invalid job_id {job}")))?;
    let request = NotifyJobRequest { job_id, message: words.join(" ") };
    let mut connection = session.connection()?.clone().with_patience(Duration::ZERO);
    let call = async |mut controller: Controller, request| controller.notify_job(request).await;
    connection.read(request, call).await.context(bare("job notify failure"))?;
    Ok(0)
}

/// Runs `wait_job JOB`, which reports if the nodes of a running job are ready. As with Slurm, it does not
/// wait for the job's start.
pub(super) async fn wait_job(session: &mut Session, written: &str) -> anyhow::Result<u8> {
    let ids = update::job_ids(written)?;
    let [job_id] = &ids[..] else { return Err(bare(format!("{written}: name one job")).into()) };
    let filter =
        JobFilter { job_ids: vec![job_id.clone()], states: vec!["all".into()], ..JobFilter::default() };
    let found = match query::jobs(session.connection()?, filter).await {
        Err(error) if error.code() == Some("ESLURM_INVALID_JOB_ID") => Vec::new(),
        Err(error @ CallError::Refused { .. }) => return Err(error.into()),
        answer => answer?,
    };
    match found.first().map(|job| job.state.as_str()) {
        None => said(session, &format!("Problem running job {job_id}")),
        Some("RUNNING" | "SUSPENDED") => {
            session.inform(&format!("Nodes are ready for job {job_id}"));
            Ok(0)
        }
        Some(_) => said(session, &format!("Job {job_id} no longer running")),
    }
}

fn said(session: &mut Session, text: &str) -> anyhow::Result<u8> {
    session.inform(text);
    Ok(FAILURE)
}
