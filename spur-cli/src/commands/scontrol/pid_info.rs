//! The command `scontrol pidinfo`: finds the job of a process on this host.

use std::io::Write as _;

use spur_core::text::jobid::JobRef;
use spur_proto::v1::{Job, JobFilter};

use super::{bare, show_host};
use crate::commands::{query, sstat};
use crate::format::Show;
use crate::format::value::date_line;
use crate::session::Session;

/// Seconds until the end of a job without a time limit, which Slurm assumes to be in a year.
const YEAR: i64 = 365 * 24 * 60 * 60;

/// Prints the job of a process, and the end of the job.
pub(super) async fn run(session: &mut Session, word: &str) -> anyhow::Result<u8> {
    let mut found = None;
    if let Ok(pid) = word.parse() {
        found = job_of(session, pid).await?;
    }
    let Some(job) = found else { return Err(bare("Failed to locate job for requested pid").into()) };
    let show = query::show(&|name| session.env(name))?;
    write!(session.out, "{}", text(&job, &show))?;
    Ok(0)
}

/// Returns the job of a process, among the jobs whose processes the caller can see.
async fn job_of(session: &mut Session, pid: u32) -> anyhow::Result<Option<Job>> {
    let nodes = show_host::nodes_here(session).await?;
    if nodes.is_empty() {
        return Ok(None);
    }
    let me = rustix::process::getuid();
    let users = if me.is_root() { Vec::new() } else { vec![me.as_raw().to_string()] };
    let (states, nodelist) = (vec!["RUNNING".to_owned()], nodes.join(","));
    let filter = JobFilter { users, states, nodelist, ..JobFilter::default() };
    for job in query::jobs(session.connection()?, filter).await? {
        let named: JobRef = job.id.to_string().parse()?;
        let steps = sstat::live_steps(session, &named, true).await?;
        let mut here = steps.iter().flat_map(|step| &step.processes).filter(|on| nodes.contains(&on.node));
        if here.any(|on| on.pids.contains(&pid)) {
            return Ok(Some(job));
        }
    }
    Ok(None)
}

fn text(job: &Job, show: &Show) -> String {
    let end = job.end_time.unwrap_or(show.now + YEAR);
    let at = date_line(&Show { now: end, ..show.clone() });
    format!(
        "Slurm JobId={} ends at {at}\nJob remaining time is {} seconds\n",
        job.id,
        (end - show.now).max(0)
    )
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn the_end_of_a_job_is_told_in_slurms_words() {
        let show = Show::new(TimeZone::UTC, 1_795_708_678);
        let job = Job { id: 39, end_time: Some(1_795_709_278), ..Job::default() };
        let told = "Slurm JobId=39 ends at Thu Nov 26 16:07:58 2026\nJob remaining time is 600 seconds\n";
        assert_eq!(text(&job, &show), told);
        let endless = Job { end_time: None, ..job };
        assert!(text(&endless, &show).ends_with("remaining time is 31536000 seconds\n"));
    }
}
