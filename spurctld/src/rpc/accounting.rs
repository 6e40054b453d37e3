//! Lists of finished and running jobs from accounting, page by page, and the closing of runaway jobs.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::cluster::sight::Sight;
use spur_core::cluster::{Accounts as PolicyTree, Cluster, Node};
use spur_core::controller::Reject;
use spur_core::id::{Attempt, JobId};
use spur_core::model::caller::Caller;
use spur_core::model::phase::{EndState, Pending, Phase};
use spur_core::sched;
use spur_core::text::hostlist::HostList;
use spur_proto::convert::usage::wire_usage;
use spur_proto::convert::{BadField, reject};
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::filter::numbered;
use super::lists::parts;
use super::{Desk, Listing};
use crate::archive::step_label;
use crate::store::StoreError;
use crate::store::accounting::{Closing, JobRow, Page, Query, StepRow};

/// The state of jobs whose time does not run.
const SUSPENDED: &str = "SUSPENDED";
/// The state of jobs whose priority changes.
const PENDING: &str = "PENDING";
/// Largest number of names and job numbers in one statement, where a job number counts three times.
const MOST_NAMES: usize = 30_000;
/// Number of runs whose steps are read at once.
const RUNS_AT_ONCE: usize = 64;
/// Number of runs whose nodes are compared with the requested ones at once.
const LISTS_AT_ONCE: usize = 8;
/// Pages made ahead of a slow reader.
const AHEAD: usize = 2;

/// The selection among the rows that the query returns.
struct Shown {
    /// True if steps are included.
    steps: bool,
    /// Only runs on one of these hosts.
    hosts: Option<BTreeSet<String>>,
    /// True for runaway runs only.
    runaway: bool,
    /// The records that the caller may see.
    sight: Sight,
    /// True if the request lists runs to add up their usage, so that the caller must be allowed to see the
    /// usage.
    usage: bool,
}

impl Shown {
    fn sees(&self, tree: &PolicyTree, run: &JobRow) -> bool {
        match self.usage {
            true => self.sight.use_of_run(tree, run.uid, &run.account),
            false => self.sight.run(run.uid, Some(&run.account)),
        }
    }
}

impl Desk {
    /// Lists the rows that a request selects: the caller's own, unless the request asks for those of others.
    pub(super) fn account(
        &self,
        caller: &Caller,
        request: v1::ListAccountingRequest,
    ) -> Result<Listing<v1::ListAccountingResponse>, Status> {
        let hosts = match request.nodelist.as_str() {
            "" => None,
            list => Some(super::filter::expand(&self.replica.read(), list)?.iter().collect::<BTreeSet<_>>()),
        };
        if request.runaway && !caller.is_operator() {
            return Err(reject::status(&Reject::AccessDenied));
        }
        let (steps, runaway) = (!request.allocations_only, request.runaway);
        let shown = Shown { steps, hosts, runaway, sight: Sight::default(), usage: false };
        let now = {
            let cluster = self.replica.read();
            cluster.clock().wall(crate::clock::now(&cluster)).0
        };
        let usage = request.usage;
        let mut query = query(caller, now, request)?;
        let sight = Sight::of(&self.replica.read(), caller);
        query.only = sight.only_own(usage);
        let hidden = usage && sight.hides_usage();
        let shown = Shown { sight, usage, ..shown };
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let (desk, caller) = (self.clone(), caller.clone());
        let seen = self.replica.read().seq();
        tokio::spawn(async move {
            desk.accounts.reach(seen).await;
            let complete_from = desk.purged(&query).await;
            let told = v1::ListAccountingResponse { only_own: hidden, complete_from, rows: Vec::new() };
            if (hidden || complete_from.is_some()) && pages.send(Ok(told)).await.is_err() {
                return;
            }
            loop {
                match desk.page(&caller, &query, &shown, &pages).await {
                    Ok(Some(last)) => query.after = Some(last),
                    Ok(None) => return,
                    Err(error) => {
                        // A reader that is gone needs no answer.
                        let _ = pages.send(Err(Status::internal(error.to_string()))).await;
                        return;
                    }
                }
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    /// Returns the time before whose ends runs have been purged, if the query asks for runs that ended
    /// earlier.
    async fn purged(&self, query: &Query) -> Option<i64> {
        let purged = self.accounting.complete_from().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the time of the last purge cannot be read");
            None
        });
        purged.filter(|from| query.not_before.is_none_or(|start| start < *from))
    }

    /// Sends a page of rows; returns the key of its last row unless it is the last page.
    async fn page(
        &self,
        caller: &Caller,
        query: &Query,
        shown: &Shown,
        pages: &mpsc::Sender<Result<v1::ListAccountingResponse, Status>>,
    ) -> Result<Option<(u32, u32)>, StoreError> {
        let Page { rows: jobs, more } = self.accounting.jobs(query).await?;
        let last = jobs.last().map(|job| (job.job_id, job.restarts)).filter(|_| more);
        let mut jobs = if shown.runaway { self.runaway(jobs).await? } else { jobs };
        {
            let cluster = self.replica.read();
            jobs.retain(|run| shown.sees(cluster.accounts(), run));
        }
        let mut fitting = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            // A run may have thousands of nodes, each of whose names is looked up.
            let turn = self.turns.take(caller).await;
            fitting.extend(jobs.by_ref().take(LISTS_AT_ONCE).filter(|job| ran_on(job, shown.hosts.as_ref())));
            turn.end(LISTS_AT_ONCE);
        }
        let mut jobs = fitting.into_iter().peekable();
        while jobs.peek().is_some() {
            // A job may have many steps, each of which repeats the columns of the job.
            let some = jobs.by_ref().take(RUNS_AT_ONCE).collect();
            let rows = self.rows(caller, some, shown.steps).await?;
            for rows in parts(rows) {
                if pages.send(Ok(v1::ListAccountingResponse { rows, ..Default::default() })).await.is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(last)
    }

    /// Returns those runs without an end that neither the controller nor a node knows.
    async fn runaway(&self, mut runs: Vec<JobRow>) -> Result<Vec<JobRow>, StoreError> {
        let seq = {
            let cluster = self.replica.read();
            let of = |node: &Node| [node.foreign.clone(), node.stale.clone()].concat();
            let on_nodes: BTreeSet<Attempt> = cluster.nodes().iter().flat_map(of).collect();
            runs.retain(|run| !is_known(&cluster, attempt_of(run)) && !on_nodes.contains(&attempt_of(run)));
            cluster.seq()
        };
        if runs.is_empty() {
            return Ok(runs);
        }
        // A run that has ended since it was read may have been forgotten as well.
        self.accounts.reach(seq).await;
        let unknown: BTreeSet<Attempt> = runs.iter().map(attempt_of).collect();
        let job_ids = unknown.iter().map(|run| run.job.0).collect::<BTreeSet<_>>().into_iter().collect();
        let query = Query { job_ids, open: true, ..Query::default() };
        let (mut still, mut after) = (Vec::new(), None);
        loop {
            let Page { rows, more } = self.accounting.jobs(&Query { after, ..query.clone() }).await?;
            after = rows.last().map(|run| (run.job_id, run.restarts));
            still.extend(rows.into_iter().filter(|run| unknown.contains(&attempt_of(run))));
            if !more {
                return Ok(still);
            }
        }
    }

    /// Closes runaway runs; other runs stay as they are.
    pub(super) async fn fix_runaway(
        &self,
        caller: &Caller,
        request: v1::FixRunawayJobsRequest,
    ) -> Result<v1::FixRunawayJobsResponse, Status> {
        if !caller.is_operator() {
            return Err(reject::status(&Reject::AccessDenied));
        }
        let named = request.runs.into_iter().map(|run| JobRow {
            job_id: run.job_id,
            restarts: run.restarts,
            ..JobRow::default()
        });
        let failed = |error: StoreError| Status::internal(error.to_string());
        let runs = self.runaway(named.collect()).await.map_err(failed)?;
        // As with Slurm, a run ends with the last event that is known of it.
        let closing = |run: &JobRow| Closing {
            job_id: run.job_id,
            restarts: run.restarts,
            state: EndState::Completed.name(),
            ended: run.submitted,
        };
        let closings: Vec<Closing> = runs.iter().map(closing).collect();
        let fixed = self.accounting.close_runs(&closings).await.map_err(failed)?;
        tracing::info!(fixed, "runaway jobs were given an end");
        Ok(v1::FixRunawayJobsResponse { fixed: u32::try_from(fixed).unwrap_or(u32::MAX) })
    }

    /// Makes the rows of some runs and of their steps.
    async fn rows(
        &self,
        caller: &Caller,
        jobs: Vec<JobRow>,
        steps: bool,
    ) -> Result<Vec<v1::AccountingRow>, StoreError> {
        let mut by_run: BTreeMap<(u32, u32), Vec<StepRow>> = BTreeMap::new();
        let runs: Vec<(u32, u32)> = jobs.iter().map(|job| (job.job_id, job.restarts)).collect();
        for step in self.accounting.steps(&runs).await? {
            by_run.entry((step.job_id, step.restarts)).or_default().push(step);
        }
        let turn = self.turns.take(caller).await;
        let mut rows = Vec::new();
        for job in jobs {
            let run = by_run.remove(&(job.job_id, job.restarts)).unwrap_or_default();
            let mut row = job_row(job);
            // The usage of a job is that of its steps.
            row.user_cpu_us = run.iter().map(|step| u64::try_from(step.user_cpu_us).unwrap_or(0)).sum();
            row.system_cpu_us = run.iter().map(|step| u64::try_from(step.system_cpu_us).unwrap_or(0)).sum();
            let of_steps = run.into_iter().filter(|_| steps).map(|step| step_row(&row, step));
            let mut all: Vec<v1::AccountingRow> = std::iter::once(row.clone()).chain(of_steps).collect();
            match row.state.as_str() {
                SUSPENDED => self.stand_still(&mut all),
                PENDING => self.prioritise(&mut all),
                _ => {}
            }
            rows.extend(all);
        }
        turn.end(rows.len());
        Ok(rows)
    }
}

impl Desk {
    /// Adds the present suspension to the rows of a suspended job, which contain earlier suspensions only.
    fn stand_still(&self, rows: &mut [v1::AccountingRow]) {
        let Some(id) = rows.first().map(|job| JobId(job.job_id)) else { return };
        let (now, pauses) = {
            let cluster = self.replica.read();
            (crate::clock::now(&cluster), cluster.job(id).map(|job| job.phase.pauses()))
        };
        let lasts = pauses.and_then(|pauses| pauses.last).map_or(0, |since| now.since(since));
        for row in rows.iter_mut().filter(|row| row.end_time.is_none()) {
            row.state = SUSPENDED.to_owned();
            row.suspended_secs += lasts;
        }
    }

    /// Computes the present priority of pending jobs, whose rows contain the requested one only.
    fn prioritise(&self, rows: &mut [v1::AccountingRow]) {
        let cluster = self.replica.read();
        for row in rows.iter_mut().filter(|row| row.priority == 0) {
            let job = cluster.job(JobId(row.job_id)).filter(|job| job.restarts == row.restarts);
            if let Some(job) = job
                && let Phase::Pending(Pending { hold: None, .. }) = &job.phase
            {
                row.priority = sched::present_priority(&cluster, job, crate::clock::now(&cluster));
            }
        }
    }
}

fn attempt_of(run: &JobRow) -> Attempt {
    Attempt { job: JobId(run.job_id), restart: run.restarts }
}

fn is_known(cluster: &Cluster, run: Attempt) -> bool {
    cluster.job(run.job).is_some_and(|job| job.attempt() == run)
}

fn ran_on(job: &JobRow, hosts: Option<&BTreeSet<String>>) -> bool {
    let Some(hosts) = hosts else { return true };
    job.node_list.parse::<HostList>().is_ok_and(|list| list.iter().any(|name| hosts.contains(&name)))
}

/// Returns the query for a request that comes at `now`, in seconds.
fn query(caller: &Caller, now: i64, request: v1::ListAccountingRequest) -> Result<Query, Status> {
    let ids = request.job_ids.iter().map(|written| {
        let problem = |_| BadField::new("--jobs", format!("`{written}` is not the number of a job"));
        numbered(written).map_err(problem)
    });
    let names = [
        &request.users,
        &request.accounts,
        &request.partitions,
        &request.qos,
        &request.names,
        &request.states,
    ];
    let named = names.into_iter().map(Vec::len).sum::<usize>() + 3 * request.job_ids.len();
    if named > MOST_NAMES {
        let problem = format!("too much is named in one request: {named}, where {MOST_NAMES} is the most");
        return Err(reject::bad_field(&BadField::new("sacct", problem)));
    }
    let job_ids: Vec<u32> = ids.collect::<Result<_, _>>().map_err(|bad| reject::bad_field(&bad))?;
    let (uids, users) = request.users.into_iter().partition::<Vec<_>, _>(|user| user.parse::<u32>().is_ok());
    let mut uids: Vec<u32> = uids.iter().filter_map(|uid| uid.parse().ok()).collect();
    if uids.is_empty() && users.is_empty() && job_ids.is_empty() && !request.all_users {
        uids.push(caller.owner.uid);
    }
    Ok(Query {
        job_ids,
        uids,
        users,
        accounts: request.accounts.iter().map(|name| name.to_lowercase()).collect(),
        partitions: request.partitions,
        qos: request.qos,
        names: request.names,
        states: request.states.iter().map(|state| state.to_ascii_uppercase()).collect(),
        not_before: request.start,
        // As with Slurm, a job that is not eligible yet matches no period.
        before: request.end.or(request.start.map(|_| now + 1)),
        open: request.runaway,
        ..Query::default()
    })
}

fn job_row(job: JobRow) -> v1::AccountingRow {
    v1::AccountingRow {
        job_id: job.job_id,
        step_id: String::new(),
        name: job.name,
        uid: job.uid,
        gid: job.gid,
        user: job.user,
        group: job.group,
        account: job.account,
        qos: job.qos,
        partition: job.partition,
        state: job.state,
        exit_code: job.exit_code,
        exit_signal: job.exit_signal,
        derived_exit_code: job.derived_exit_code,
        derived_exit_signal: job.derived_exit_signal,
        submit_time: job.submitted,
        // A job that has started without a recorded wait was eligible at once.
        eligible_time: job.eligible.or(job.started.map(|_| job.submitted)),
        start_time: job.started,
        end_time: job.ended,
        alloc_cpus: job.alloc_cpus,
        req_cpus: job.req_cpus,
        nodes: if job.alloc_nodes > 0 { job.alloc_nodes } else { job.req_nodes },
        nodelist: job.node_list,
        tasks: 0,
        time_limit: job.time_limit_secs.and_then(|seconds| u64::try_from(seconds).ok()),
        restarts: job.restarts,
        alloc_tres: job.alloc_tres,
        req_tres: job.req_tres,
        work_dir: job.work_dir,
        comment: job.comment,
        priority: job.priority,
        array_job_id: job.array_job_id,
        array_task_id: job.array_task_id,
        array_tasks: job.array_tasks.unwrap_or_default(),
        cancelled_by: job.cancelled_by.map(|uid| uid.to_string()).unwrap_or_default(),
        req_memory_mb: u64::try_from(job.req_memory_mb).unwrap_or(0),
        req_memory_per_cpu: job.req_memory_per_cpu,
        reason: job.reason,
        layout_tasks: 0,
        submit_line: job.submit_line,
        het_job_id: job.het_job_id,
        het_job_offset: job.het_job_offset,
        suspended_secs: u64::try_from(job.suspended_secs).unwrap_or(0),
        reservation: job.reservation,
        licenses: job.licenses,
        constraints: job.constraints,
        wckey: job.wckey,
        stdin: job.std_in,
        stdout: job.std_out,
        stderr: job.std_err,
        admin_comment: job.admin_comment,
        system_comment: job.system_comment,
        ..v1::AccountingRow::default()
    }
}

fn step_row(job: &v1::AccountingRow, step: StepRow) -> v1::AccountingRow {
    v1::AccountingRow {
        step_id: step_label(step.step_id),
        name: step.name,
        state: step.state,
        exit_code: step.exit_code,
        exit_signal: step.exit_signal,
        derived_exit_code: 0,
        start_time: step.started,
        end_time: step.ended,
        alloc_cpus: step.alloc_cpus,
        req_cpus: step.alloc_cpus,
        nodes: step.alloc_nodes,
        nodelist: step.node_list,
        tasks: step.tasks,
        layout_tasks: step.tasks,
        alloc_tres: step.alloc_tres,
        submit_line: step.submit_line,
        layout: step.layout,
        user_cpu_us: u64::try_from(step.user_cpu_us).unwrap_or(0),
        system_cpu_us: u64::try_from(step.system_cpu_us).unwrap_or(0),
        max_rss_bytes: u64::try_from(step.max_rss_bytes).unwrap_or(0),
        max_vmsize_bytes: u64::try_from(step.max_vmsize_bytes).unwrap_or(0),
        suspended_secs: u64::try_from(step.suspended_secs).unwrap_or(0),
        usage: serde_json::from_str(&step.usage).ok().map(|used| wire_usage(&used)),
        time_limit: None,
        cancelled_by: step.cancelled_by.map(|uid| uid.to_string()).unwrap_or_default(),
        ..job.clone()
    }
}
