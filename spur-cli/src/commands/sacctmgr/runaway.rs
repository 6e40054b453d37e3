//! The command `sacctmgr show runawayjobs`: runs without an end in accounting that neither the controller nor
//! a node knows.

use std::io::Write;
use std::time::Duration;

use spur_proto::client::Controller;
use spur_proto::v1::fix_runaway_jobs_request::Run;
use spur_proto::v1::{AccountingRow, FixRunawayJobsRequest, ListAccountingRequest};

use super::fields::field;
use super::{Conditions, Settings};
use crate::commands::query;
use crate::format::report::Column;
use crate::format::value::time;
use crate::session::Session;

/// A run and its cluster.
struct Runaway {
    row: AccountingRow,
    cluster: String,
}

const RUNAWAY: [Column<Runaway>; 8] = [
    Column { name: "ID", header: "ID", width: -12, text: |run, _| run.row.job_id.to_string() },
    field("Name", 10, |run, _| run.row.name.clone()),
    field("Partition", 10, |run, _| run.row.partition.clone()),
    field("Cluster", 10, |run, _| run.cluster.clone()),
    field("State", 10, |run, _| run.row.state.clone()),
    Column {
        name: "Submit",
        header: "TimeSubmit",
        width: 19,
        text: |run, show| time(Some(run.row.submit_time), "Unknown", show),
    },
    Column {
        name: "Start",
        header: "TimeStart",
        width: 19,
        text: |run, show| time(run.row.start_time, "Unknown", show),
    },
    Column {
        name: "End",
        header: "TimeEnd",
        width: 19,
        text: |run, show| time(run.row.end_time, "Unknown", show),
    },
];
const SHOWN: &str = "id,name,partition,cluster,state,submit,start,end";

const NOTE: &str = "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time in the database";
const QUESTION: &str = "\nWould you like to fix these runaway jobs?\n\
     (This will set the end time for each job to the latest out of the start, eligible, or submit times, and set the state to completed.\n\
     Once corrected, this will trigger the rollup to reroll usage from before the earliest submit time of all the runaway jobs.)\n\n";
/// Maximum time to wait for the answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of runs that one request ends.
const FIXED_AT_ONCE: usize = 1000;

/// Lists runaway runs, and ends them if the user agrees.
///
/// # Errors
/// An unknown field, or a refusal by the controller.
pub(super) async fn run(
    session: &mut Session,
    settings: &Settings,
    conditions: &Conditions,
) -> anyhow::Result<String> {
    let cluster = query::cluster_name(session).await?;
    let runaway = list(session, &cluster).await?;
    if runaway.is_empty() {
        return Ok(format!("Runaway Jobs: No runaway jobs found on cluster {cluster}\n"));
    }
    writeln!(session.out, "{NOTE}")?;
    write!(session.out, "{}", settings.table(&RUNAWAY, SHOWN, conditions, &runaway)?)?;
    if settings.readonly || !agrees(session, settings).await? {
        return Ok(String::new());
    }
    let runs = runaway.iter().map(|run| Run { job_id: run.row.job_id, restarts: run.row.restarts });
    let runs: Vec<Run> = runs.collect();
    for some in runs.chunks(FIXED_AT_ONCE) {
        let request = FixRunawayJobsRequest { runs: some.to_vec() };
        // The request may be repeated, because ended runs stay as they are.
        let call = async |mut controller: Controller, request| controller.fix_runaway_jobs(request).await;
        session.connection()?.read(request, call).await?;
    }
    Ok(String::new())
}

async fn list(session: &mut Session, cluster: &str) -> anyhow::Result<Vec<Runaway>> {
    let request = ListAccountingRequest {
        all_users: true,
        allocations_only: true,
        runaway: true,
        ..ListAccountingRequest::default()
    };
    let rows = query::accounting(session.connection()?, request).await?;
    Ok(rows.into_iter().map(|row| Runaway { row, cluster: cluster.to_owned() }).collect())
}

/// True if the user agrees to end the runs; no answer in time means no.
async fn agrees(session: &mut Session, settings: &Settings) -> anyhow::Result<bool> {
    if settings.immediate {
        return Ok(true);
    }
    write!(session.out, "{QUESTION} (You have {} seconds to decide)\n(N/y): ", PATIENCE.as_secs())?;
    session.out.flush()?;
    // The thread that waits for input ends with the process.
    let (say, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || say.send(std::io::stdin().lines().next()));
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let agrees = matches!(&answer, Ok(Ok(Some(Ok(line)))) if line.trim_start().starts_with(['y', 'Y']));
    if !agrees {
        writeln!(session.out, "Changes Discarded")?;
    }
    Ok(agrees)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::report::Report;

    #[test]
    fn what_is_shown_by_default_is_there() {
        assert!(Report::of(&RUNAWAY, SHOWN).is_ok());
    }
}
