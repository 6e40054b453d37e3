//! Import of another batch system's history: runs of jobs for accounting, in slices. Each slice is taken as a
//! whole. A row replaces the one with its key, so a repeated import adds nothing twice.

use std::collections::BTreeSet;

use super::super::{Ctx, Reject, Reply};
use crate::cluster::{Cluster, Event, FeatureLevel};
use crate::id::JobId;
use crate::model::accounting::{JobRow, StepRow};
use crate::model::caller::Caller;

/// The largest number of rows in one slice.
pub const MOST_ROWS: usize = 1000;
/// The largest job number that an import may have: Slurm's largest `MaxJobId`.
const LARGEST_JOB: JobId = JobId(0x03ff_ffff);

pub(super) struct Decision {
    last_job: JobId,
    jobs: Vec<JobRow>,
    steps: Vec<StepRow>,
    own: BTreeSet<JobId>,
}

/// Checks a slice. Rows of job numbers that jobs of this cluster have used are left out.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    last_job: JobId,
    (mut jobs, mut steps): (Vec<JobRow>, Vec<StepRow>),
) -> Result<Decision, Reject> {
    if !caller.is_administrator() {
        return Err(Reject::AccessDenied);
    }
    cluster.has_level(FeatureLevel(2), "spur import slurm --history")?;
    if jobs.len() + steps.len() > MOST_ROWS {
        let rows = jobs.len() + steps.len();
        return Err(Reject::Invalid(format!("{rows} rows in one request, where {MOST_ROWS} is the most")));
    }
    if last_job > LARGEST_JOB {
        let text =
            format!("job number {last_job} is too large: {LARGEST_JOB} is the largest that is imported");
        return Err(Reject::Invalid(text));
    }
    for row in &jobs {
        let id = JobId(row.job_id);
        if row.ended.is_none() {
            return Err(Reject::Invalid(format!("job {id} has not ended: only ended runs are imported")));
        }
        if id > last_job || id == JobId(0) {
            let text = format!("job number {id} is not between 1 and {last_job}, the largest of the import");
            return Err(Reject::Invalid(text));
        }
    }
    let runs: BTreeSet<(u32, u32)> = jobs.iter().map(|row| (row.job_id, row.restarts)).collect();
    if let Some(step) = steps.iter().find(|step| !runs.contains(&(step.job_id, step.restarts))) {
        let (job, run) = (step.job_id, step.restarts);
        return Err(Reject::Invalid(format!("a step of run {run} of job {job} comes without that run")));
    }
    let is_own = |id: JobId| id <= cluster.last_job() && !cluster.is_imported(id);
    let own: BTreeSet<JobId> = jobs.iter().map(|row| JobId(row.job_id)).filter(|id| is_own(*id)).collect();
    jobs.retain(|row| !own.contains(&JobId(row.job_id)));
    steps.retain(|row| !own.contains(&JobId(row.job_id)));
    Ok(Decision { last_job, jobs, steps, own })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { last_job, jobs, steps, own } = decision;
    if last_job > ctx.cluster().last_job() || !jobs.is_empty() {
        ctx.emit(Event::HistoryImported { last_job, jobs, steps });
    }
    Reply::HistoryImported { own: own.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::snapshot;
    use crate::controller::{Command, Input, handle};
    use crate::model::caller::Owner;
    use crate::text::time::Time;

    fn run(job_id: u32, ended: Option<i64>) -> JobRow {
        JobRow { job_id, ended, ..JobRow::default() }
    }

    fn import(
        cluster: &mut Cluster,
        user: &str,
        last_job: u32,
        jobs: Vec<JobRow>,
    ) -> Result<Vec<u32>, String> {
        let uid = if user == "root" { 0 } else { 1000 };
        let owner = Owner { uid, gid: uid, user: user.into(), group: user.into() };
        let caller = Caller::new(Arc::new(owner), Arc::default(), uid == 0);
        let command = Command::ImportHistory { last_job: JobId(last_job), jobs, steps: Vec::new() };
        match handle(cluster, 1, Time(0), Input::Command { caller, request: None, command }).answer {
            Ok(Reply::HistoryImported { own }) => Ok(own.into_iter().map(|job| job.0).collect()),
            other => Err(other.unwrap_err().to_string()),
        }
    }

    /// Imported jobs keep the numbers of their import, however often and in whatever order slices come.
    #[test]
    fn numbers_of_own_jobs_are_never_taken() {
        let mut cluster = Cluster::of_newest_level();
        let ended = |job| run(job, Some(1));
        assert_eq!(import(&mut cluster, "root", 50, vec![ended(7), ended(50)]), Ok(vec![]));
        assert_eq!(cluster.next_job(), JobId(51));
        // Jobs of this cluster take the numbers up to 60.
        let history = crate::id::HistoryId([1; 16]);
        let event = Event::HistoryBegun { history, parents: Vec::new(), last_job: JobId(60) };
        let record = crate::cluster::Record::default();
        let seq = cluster.seq() + 1;
        cluster.apply(&crate::cluster::Entry { seq, epoch: 1, at: Time(0), request: None, event, record });
        for _ in 0..2 {
            let jobs = vec![ended(7), ended(51), ended(60), ended(61), ended(70)];
            assert_eq!(import(&mut cluster, "root", 70, jobs), Ok(vec![51, 60]));
            assert_eq!(cluster.next_job(), JobId(71));
        }
        let mut restore = snapshot::Restore::default();
        snapshot::records(&cluster).for_each(|record| restore.push(record));
        let mut cluster = restore.finish();
        assert_eq!(import(&mut cluster, "root", 70, vec![ended(55), ended(65)]), Ok(vec![55]));
    }

    #[test]
    fn what_is_no_ended_run_is_refused() {
        let mut cluster = Cluster::of_newest_level();
        let too_many = vec![run(1, Some(1)); MOST_ROWS + 1];
        for (user, last, jobs, wanted) in [
            ("alice", 9, vec![], "Access/permission denied"),
            ("root", 9, vec![run(1, None)], "job 1 has not ended: only ended runs are imported"),
            (
                "root",
                9,
                vec![run(10, Some(1))],
                "job number 10 is not between 1 and 9, the largest of the import",
            ),
            (
                "root",
                0x0400_0000,
                vec![],
                "job number 67108864 is too large: 67108863 is the largest that is imported",
            ),
            ("root", 9, too_many, "1001 rows in one request, where 1000 is the most"),
        ] {
            assert_eq!(import(&mut cluster, user, last, jobs), Err(wanted.to_owned()));
        }
        assert_eq!((cluster.seq(), cluster.next_job()), (0, JobId(1)));
    }
}
