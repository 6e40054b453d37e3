//! `sacctmgr modify job`: the selected runs are looked up in the replica or, for jobs that have left the
//! replica, in accounting. The owner sets the values.

use std::collections::BTreeSet;

use spur_core::controller::command::Annotated;
use spur_core::controller::{Command, Reject};
use spur_core::id::{Attempt, JobId};
use spur_core::model::accounts::ask::{self, Word};
use spur_core::model::caller::Caller;
use spur_proto::convert::reject;
use spur_proto::v1;
use tonic::Status;

use super::{Desk, Name, odd};
use crate::answer::Answer;

impl Desk {
    /// Sets comments and derived exit codes of jobs. With `preview` only lists the runs that would change.
    pub(super) async fn annotate(
        &self,
        caller: Caller,
        request: v1::ChangeAccountsRequest,
    ) -> Result<v1::ChangeAccountsResponse, Status> {
        let refused = |text| reject::status(&Reject::Accounts(text));
        let words = |texts: &[String]| texts.iter().map(|text| Word::read(text)).collect::<Vec<Word>>();
        let cluster = self.replica.read().policy().cluster_name.to_string();
        let named = words(&[request.names.clone(), request.conditions.clone()].concat());
        let jobs = ask::job::jobs(&cluster, &named).map_err(refused)?.unwrap_or_default();
        let note = ask::job::note(&words(&request.settings)).map_err(refused)?;
        let runs = self.runs_of(jobs.into_iter().collect()).await?;
        if request.preview {
            let lines = runs.iter().map(|run| run.line.clone());
            let lines = std::iter::once(" Modified jobs...".to_owned()).chain(lines).collect();
            spur_core::controller::may_annotate(&self.replica.read(), &caller, &runs, &note)
                .map_err(|refused| reject::status(&refused))?;
            return Ok(v1::ChangeAccountsResponse { lines });
        }
        let name = Name::read(&request.request_id, request.retry)?;
        match self.command(caller, name, Command::AnnotateJobs { runs, note }).await? {
            Answer::AccountsChanged { lines } => Ok(v1::ChangeAccountsResponse { lines }),
            other => Err(odd(&other)),
        }
    }

    /// Returns one run of each job that exists: the current run of a job in the replica, else the last run
    /// that accounting has.
    async fn runs_of(&self, mut jobs: BTreeSet<JobId>) -> Result<Vec<Annotated>, Status> {
        let line = |job: u32, submitted: i64| {
            let submitted = jiff::Timestamp::from_second(submitted).unwrap_or_default();
            format!("  {job} submitted at {submitted}")
        };
        let (mut runs, seen) = {
            let cluster = self.replica.read();
            let known = jobs.iter().filter_map(|id| cluster.job(*id));
            let run = |job: &spur_core::model::job::Job| Annotated {
                run: job.attempt(),
                uid: job.spec.owner.uid,
                line: line(job.id.0, job.submitted.0),
            };
            (known.map(run).collect::<Vec<Annotated>>(), cluster.seq())
        };
        jobs.retain(|id| runs.iter().all(|run| run.run.job != *id));
        if !jobs.is_empty() {
            self.accounts.reach(seen).await;
            let rows = self.rows_of(&jobs).await;
            let rows = rows.map_err(|error| Status::internal(error.to_string()))?;
            let meant = rows.iter().filter(|row| jobs.contains(&JobId(row.job_id)));
            runs.extend(meant.map(|row| Annotated {
                run: Attempt { job: JobId(row.job_id), restart: row.restarts },
                uid: row.uid,
                line: line(row.job_id, row.submitted),
            }));
        }
        runs.sort_by_key(|run| run.run);
        Ok(runs)
    }
}
