//! Import of another batch system's history: rows of the wire become rows of accounting.

use spur_core::controller::{Command, Reject};
use spur_core::id::JobId;
use spur_core::model::accounting::{JobRow, StepRow};
use spur_core::model::caller::Caller;
use spur_proto::convert::{reject, usage};
use spur_proto::v1;
use tonic::Status;

use super::{Desk, Name, odd};
use crate::answer::Answer;
use crate::archive::step_number;

impl Desk {
    /// Adds a slice of runs and steps to accounting.
    pub(super) async fn import(
        &self,
        caller: Caller,
        request: v1::ImportHistoryRequest,
    ) -> Result<v1::ImportHistoryResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let (mut jobs, mut steps) = (Vec::new(), Vec::new());
        for row in request.rows {
            if row.step_id.is_empty() {
                jobs.push(run_of(row));
            } else {
                steps.push(step_of(row).map_err(|text| reject::status(&Reject::Invalid(text)))?);
            }
        }
        let command = Command::ImportHistory { last_job: JobId(request.last_job), jobs, steps };
        match self.command(caller, name, command).await? {
            Answer::HistoryImported { own } => {
                Ok(v1::ImportHistoryResponse { own_jobs: own.into_iter().map(|job| job.0).collect() })
            }
            other => Err(odd(&other)),
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the row of a run.
fn run_of(row: v1::AccountingRow) -> JobRow {
    let allocated = row.start_time.is_some();
    JobRow {
        job_id: row.job_id,
        restarts: row.restarts,
        array_job_id: row.array_job_id,
        array_task_id: row.array_task_id,
        array_tasks: Some(row.array_tasks).filter(|tasks| !tasks.is_empty()),
        het_job_id: row.het_job_id,
        het_job_offset: row.het_job_offset,
        name: row.name,
        user: row.user,
        uid: row.uid,
        group: row.group,
        gid: row.gid,
        account: row.account,
        wckey: row.wckey,
        partition: row.partition,
        qos: row.qos,
        reservation: row.reservation,
        state: row.state,
        cancelled_by: row.cancelled_by.parse().ok(),
        reason: row.reason,
        exit_code: row.exit_code,
        exit_signal: row.exit_signal,
        derived_exit_code: row.derived_exit_code,
        derived_exit_signal: row.derived_exit_signal,
        submitted: row.submit_time,
        eligible: row.eligible_time,
        started: row.start_time,
        ended: row.end_time,
        suspended_secs: signed(row.suspended_secs),
        time_limit_secs: row.time_limit.map(signed),
        priority: row.priority,
        req_nodes: row.nodes,
        req_cpus: row.req_cpus,
        req_memory_mb: signed(row.req_memory_mb),
        req_memory_per_cpu: row.req_memory_per_cpu,
        req_tres: row.req_tres,
        alloc_nodes: if allocated { row.nodes } else { 0 },
        alloc_cpus: row.alloc_cpus,
        alloc_tres: row.alloc_tres,
        node_list: row.nodelist,
        constraints: row.constraints,
        licenses: row.licenses,
        work_dir: row.work_dir,
        submit_line: row.submit_line,
        comment: row.comment,
        admin_comment: row.admin_comment,
        system_comment: row.system_comment,
        std_in: row.stdin,
        std_out: row.stdout,
        std_err: row.stderr,
    }
}

/// Returns the row of a step.
///
/// # Errors
/// The label is not that of a step: the message names it with its job.
fn step_of(row: v1::AccountingRow) -> Result<StepRow, String> {
    let step_id = step_number(&row.step_id).ok_or_else(|| {
        let v1::AccountingRow { job_id, step_id, .. } = &row;
        format!("`{step_id}` is not a step of job {job_id}: write a number, batch, extern or interactive")
    })?;
    let used = row.usage.map(usage::usage);
    Ok(StepRow {
        job_id: row.job_id,
        restarts: row.restarts,
        step_id,
        name: row.name,
        state: row.state,
        cancelled_by: row.cancelled_by.parse().ok(),
        exit_code: row.exit_code,
        exit_signal: row.exit_signal,
        started: row.start_time,
        ended: row.end_time,
        suspended_secs: signed(row.suspended_secs),
        alloc_nodes: row.nodes,
        alloc_cpus: row.alloc_cpus,
        alloc_tres: row.alloc_tres,
        tasks: row.tasks,
        node_list: row.nodelist,
        layout: row.layout,
        user_cpu_us: signed(row.user_cpu_us),
        system_cpu_us: signed(row.system_cpu_us),
        max_rss_bytes: signed(row.max_rss_bytes),
        max_vmsize_bytes: signed(row.max_vmsize_bytes),
        submit_line: row.submit_line,
        usage: used
            .map(|used| serde_json::to_string(&used).expect("usage is numbers and names"))
            .unwrap_or_default(),
    })
}
