//! What `sacct` can print of a job or step that is in accounting.

use spur_proto::v1::AccountingRow;

use super::job::cut;
use crate::format::Show;
use crate::format::value::{exit, long_limit, memory, or, time};

/// A field of accounting. Its name is its header.
pub struct AccountingField {
    /// The name, matched without regard to case, also by its beginning.
    pub name: &'static str,
    /// Characters of its column; negative for texts that stand at the left.
    pub width: isize,
    /// The text of one row.
    pub text: fn(&AccountingRow, &Show) -> String,
}

const fn field(
    name: &'static str,
    width: isize,
    text: fn(&AccountingRow, &Show) -> String,
) -> AccountingField {
    AccountingField { name, width, text }
}

/// All fields, in the order in which the beginning of a name finds them.
pub const FIELDS: &[AccountingField] = &[
    field("Account", 10, |r, _| r.account.clone()),
    field("AllocCPUS", 10, |r, _| r.alloc_cpus.to_string()),
    field("AllocNodes", 10, |r, _| r.nodes.to_string()),
    field("AllocTRES", 10, |r, _| r.alloc_tres.clone()),
    field("Comment", 14, |r, _| of_job(r, r.comment.clone())),
    field("CPUTime", 10, |r, show| long_limit(Some(cpu_seconds(r, show)))),
    field("CPUTimeRAW", 10, |r, show| cpu_seconds(r, show).to_string()),
    field("DerivedExitCode", 15, |r, _| of_job(r, exit(r.derived_exit_code, r.derived_exit_signal))),
    field("Elapsed", 10, |r, show| long_limit(Some(elapsed(r, show)))),
    field("ElapsedRaw", 10, |r, show| elapsed(r, show).to_string()),
    field("Eligible", 19, |r, show| of_job(r, time(r.eligible_time, "Unknown", show))),
    field("End", 19, |r, show| time(r.end_time, "Unknown", show)),
    field("ExitCode", 8, |r, _| exit(r.exit_code, r.exit_signal)),
    field("GID", 6, |r, _| of_job(r, r.gid.to_string())),
    field("Group", 9, |r, _| of_job(r, r.group.clone())),
    field("JobID", -12, |r, show| match (r.array_job_id, r.array_task_id) {
        (Some(array), Some(task)) => with_step(r, format!("{array}_{task}")),
        (Some(array), None) if !r.array_tasks.is_empty() => {
            format!("{array}_[{}]", cut(&r.array_tasks, show))
        }
        _ => match (r.het_job_id, r.het_job_offset) {
            (Some(leader), Some(offset)) => with_step(r, format!("{leader}+{offset}")),
            _ => with_step(r, r.job_id.to_string()),
        },
    }),
    field("JobIDRaw", -12, |r, _| with_step(r, r.job_id.to_string())),
    field("JobName", 10, |r, _| r.name.clone()),
    field("NCPUS", 10, |r, _| r.alloc_cpus.to_string()),
    field("NNodes", 8, |r, _| r.nodes.to_string()),
    field("NodeList", 15, |r, _| or(&r.nodelist, "None assigned")),
    field("NTasks", 8, |r, _| if r.step_id.is_empty() { String::new() } else { r.tasks.to_string() }),
    field("Partition", 10, |r, _| of_job(r, r.partition.clone())),
    field("Planned", 10, |r, show| of_job(r, planned(r, show))),
    field("Priority", 10, |r, _| of_job(r, r.priority.to_string())),
    field("QOS", 10, |r, _| of_job(r, r.qos.clone())),
    field("Reason", 22, |r, _| of_job(r, or(&r.reason, "None"))),
    field("ReqCPUS", 8, |r, _| r.req_cpus.to_string()),
    field("ReqMem", 10, |r, show| of_job(r, memory(r.req_memory_mb, show))),
    field("ReqNodes", 8, |r, _| r.nodes.to_string()),
    field("ReqTRES", 10, |r, _| of_job(r, r.req_tres.clone())),
    field("Restarts", 8, |r, _| of_job(r, r.restarts.to_string())),
    field("Start", 19, |r, show| time(r.start_time, "Unknown", show)),
    field("State", 10, state),
    field("Submit", 19, |r, show| time(Some(r.submit_time), "Unknown", show)),
    field("SubmitLine", 20, |r, _| of_job(r, r.submit_line.clone())),
    field("Suspended", 10, |r, _| long_limit(Some(r.suspended_secs))),
    field("Timelimit", 10, |r, _| of_job(r, long_limit(r.time_limit))),
    field("TimelimitRaw", 10, |r, _| {
        of_job(r, r.time_limit.map_or_else(|| "UNLIMITED".to_owned(), |s| s.div_ceil(60).to_string()))
    }),
    field("UID", 6, |r, _| of_job(r, r.uid.to_string())),
    field("User", 9, |r, _| of_job(r, r.user.clone())),
    field("WorkDir", 20, |r, _| of_job(r, r.work_dir.clone())),
];

/// The text for a job; steps leave it to their job.
fn of_job(row: &AccountingRow, text: String) -> String {
    if row.step_id.is_empty() { text } else { String::new() }
}

fn with_step(row: &AccountingRow, job: String) -> String {
    if row.step_id.is_empty() { job } else { format!("{job}.{}", row.step_id) }
}

/// The state, and who it was that cancelled.
fn state(row: &AccountingRow, _: &Show) -> String {
    if row.state == "CANCELLED" && !row.cancelled_by.is_empty() {
        return format!("CANCELLED by {}", row.cancelled_by);
    }
    row.state.clone()
}

fn elapsed(row: &AccountingRow, show: &Show) -> u64 {
    let run = row.start_time.map(|start| row.end_time.unwrap_or(show.now) - start);
    let run = run.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    run.saturating_sub(row.suspended_secs)
}

fn cpu_seconds(row: &AccountingRow, show: &Show) -> u64 {
    elapsed(row, show) * u64::from(row.alloc_cpus)
}

/// From when it was eligible until it started, or now.
fn planned(row: &AccountingRow, show: &Show) -> String {
    let until = row.start_time.or(row.end_time).unwrap_or(show.now);
    let wait = row.eligible_time.map(|eligible| u64::try_from(until - eligible).unwrap_or(0));
    long_limit(Some(wait.unwrap_or(0)))
}
