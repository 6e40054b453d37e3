//! Jobs and their steps in the shape of `sacct --json`.

use nix::unistd::{Uid, User};
use serde_json::{Value, json};
use spur_proto::v1::{AccountingRow, Spread, Usage};

use super::value::{exit, merged, minutes, number, time, tres, unlimited};
use crate::format::Show;
use crate::format::fields::accounting::{elapsed, planned};

/// Returns the jobs of these rows, each with the steps that follow its row.
pub fn jobs<'a>(rows: &'a [AccountingRow], show: &'a Show) -> impl Iterator<Item = Value> + 'a {
    let jobs = rows.chunk_by(|a, b| (a.job_id, a.restarts) == (b.job_id, b.restarts));
    jobs.map(|rows| {
        let mut whole = job(&rows[0], show);
        let steps = rows.iter().filter(|row| !row.step_id.is_empty());
        whole["steps"] = steps.map(|row| step(row, show)).collect();
        whole
    })
}

fn job(row: &AccountingRow, show: &Show) -> Value {
    merged([identity(row, show), course(row, show), needs(row)])
}

fn identity(row: &AccountingRow, show: &Show) -> Value {
    json!({
        "account": row.account,
        "comment": { "administrator": row.admin_comment, "job": row.comment, "system": row.system_comment },
        "array": {
            "job_id": row.array_job_id.unwrap_or(0),
            "limits": { "max": { "running": { "tasks": throttle(&row.array_tasks) } } },
            "task_id": number(row.array_task_id),
            "task": row.array_tasks,
        },
        "association": {
            "account": row.account, "cluster": show.cluster, "partition": "", "user": row.user, "id": 0,
        },
        "block": "",
        "cluster": show.cluster,
        "container": "",
        "extra": "",
        "flags": [],
        "group": row.group,
        "het": { "job_id": row.het_job_id.unwrap_or(0), "job_offset": number(row.het_job_offset) },
        "job_id": row.job_id,
        "name": row.name,
        "partition": row.partition,
        "qos": row.qos,
        "qosreq": row.qos,
        "mcs": { "label": "" },
        "user": row.user,
        "wckey": wckey(&row.wckey),
        "working_directory": row.work_dir,
        "submit_line": row.submit_line,
        "script": "",
        "stdin": row.stdin, "stdout": row.stdout, "stderr": row.stderr,
        "stdin_expanded": row.stdin, "stdout_expanded": row.stdout, "stderr_expanded": row.stderr,
        "steps": [],
    })
}

/// Returns the wckey of a job. A `*` before it marks the default of the job's user.
fn wckey(written: &str) -> Value {
    let default = written.strip_prefix('*');
    let flags: &[&str] = if default.is_some() { &["ASSIGNED_DEFAULT"] } else { &[] };
    json!({ "wckey": default.unwrap_or(written), "flags": flags })
}

fn throttle(tasks: &str) -> u32 {
    tasks.split_once('%').and_then(|(_, limit)| limit.parse().ok()).unwrap_or(0)
}

fn ended(row: &AccountingRow) -> bool {
    !matches!(row.state.as_str(), "PENDING" | "RUNNING" | "SUSPENDED")
}

fn course(row: &AccountingRow, show: &Show) -> Value {
    json!({
        "derived_exit_code": exit(row.derived_exit_code, row.derived_exit_signal, true),
        "exit_code": exit(row.exit_code, row.exit_signal, ended(row)),
        "failed_node": "",
        "hold": row.state == "PENDING" && row.reason.starts_with("JobHeld"),
        "kill_request_user": user(&row.cancelled_by),
        "priority": number(Some(row.priority)),
        "restart_cnt": row.restarts,
        "state": { "current": [row.state], "reason": row.reason },
        "time": {
            "elapsed": elapsed(row, show),
            "eligible": row.eligible_time.unwrap_or(0),
            "end": row.end_time.unwrap_or(0),
            "start": row.start_time.unwrap_or(0),
            "submission": row.submit_time,
            "suspended": row.suspended_secs,
            "planned": number(Some(planned(row, show))),
            "limit": unlimited(row.time_limit.map(minutes)),
            "system": span(row.system_cpu_us),
            "user": span(row.user_cpu_us),
            "total": span(row.system_cpu_us + row.user_cpu_us),
        },
    })
}

/// Returns the name of the user with this uid, or the uid if no user has it.
fn user(uid: &str) -> String {
    let known = uid.parse().ok().and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok()?);
    known.map_or_else(|| uid.to_owned(), |user| user.name)
}

fn span(us: u64) -> Value {
    json!({ "seconds": us / 1_000_000, "microseconds": us % 1_000_000 })
}

fn needs(row: &AccountingRow) -> Value {
    let memory = |of_cpu: bool| number(Some(row.req_memory_mb).filter(|_| row.req_memory_per_cpu == of_cpu));
    json!({
        "allocation_nodes": row.nodes,
        "constraints": row.constraints,
        "licenses": row.licenses,
        "nodes": if row.nodelist.is_empty() { "None assigned" } else { &row.nodelist },
        "required": {
            "CPUs": row.req_cpus,
            "memory_per_cpu": memory(true),
            "memory_per_node": memory(false),
        },
        "reservation": { "id": 0, "name": row.reservation, "requested": row.reservation },
        "segment_size": 0,
        "tres": { "allocated": tres(&row.alloc_tres), "requested": tres(&row.req_tres) },
        "used_gres": "",
    })
}

fn step(row: &AccountingRow, show: &Show) -> Value {
    let names = row.nodelist.parse::<spur_core::text::hostlist::HostList>();
    json!({
        "time": {
            "elapsed": elapsed(row, show),
            "start": time(row.start_time),
            "end": time(row.end_time),
            "suspended": row.suspended_secs,
            "limit": unlimited(None::<u64>),
            "system": span(row.system_cpu_us),
            "user": span(row.user_cpu_us),
            "total": span(row.system_cpu_us + row.user_cpu_us),
        },
        "exit_code": exit(row.exit_code, row.exit_signal, ended(row)),
        "nodes": {
            "count": row.nodes, "range": row.nodelist,
            "list": names.map(|names| names.iter().collect::<Vec<_>>()).unwrap_or_default(),
        },
        "tasks": { "count": row.tasks },
        "pid": "",
        "CPU": {
            "requested_frequency": { "min": number(Some(0)), "max": number(Some(0)) },
            "governor": "0",
        },
        "kill_request_user": user(&row.cancelled_by),
        "state": [row.state],
        "statistics": {
            "CPU": { "actual_frequency": 0 },
            "energy": { "consumed": number(Some(0)) },
        },
        "step": {
            "id": format!("{}.{}", row.job_id, row.step_id), "name": row.name,
            "stdin": "", "stdout": "", "stderr": "",
            "stdin_expanded": "", "stdout_expanded": "", "stderr_expanded": "",
        },
        "task": { "distribution": row.layout },
        "tres": {
            "allocated": tres(&row.alloc_tres),
            "requested": used(row, |used| vec![
                ("cpu", 1, &used.cpu), ("mem", 2, &used.memory), ("fs", 6, &used.read),
                ("vmem", 7, &used.virtual_memory), ("pages", 8, &used.pages),
            ]),
            "consumed": used(row, |used| vec![("fs", 6, &used.written)]),
        },
    })
}

/// A trackable resource with its name and number in accounting, and its distribution over the tasks.
type Used<'a> = (&'static str, u32, &'a Option<Spread>);

/// Returns the known usage of the tasks: milliseconds of CPU time, bytes, page faults. The largest and
/// smallest values have their task and its node.
fn used(row: &AccountingRow, of: impl Fn(&Usage) -> Vec<Used<'_>>) -> Value {
    let known = row.usage.clone().unwrap_or_default();
    let tasks = u64::from(known.tasks.max(1));
    let of = of(&known);
    let entry = |kind: &str, id: u32, count: u64| {
        let (kind, name) = if kind == "fs" { ("fs", "disk") } else { (kind, "") };
        json!({ "type": kind, "name": name, "id": id, "count": count })
    };
    let list = |part: &dyn Fn(&str, u32, &Spread) -> Value| -> Vec<Value> {
        of.iter().filter_map(|(kind, id, spread)| Some(part(kind, *id, spread.as_ref()?))).collect()
    };
    let placed = |entry: Value, task: u32, node: &str| merged([entry, json!({ "task": task, "node": node })]);
    json!({
        "max": list(&|kind, id, of| placed(entry(kind, id, of.max), of.max_task, &of.max_node)),
        "min": list(&|kind, id, of| placed(entry(kind, id, of.min), of.min_task, &of.min_node)),
        "average": list(&|kind, id, of| entry(kind, id, of.total / tasks)),
        "total": list(&|kind, id, of| entry(kind, id, of.total)),
    })
}
