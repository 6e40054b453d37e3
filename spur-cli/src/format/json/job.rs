//! Jobs in the shape of `squeue --json` and `scontrol show job --json`.

use serde_json::{Value, json};
use spur_core::model::idset::IdSet;
use spur_core::text::hostlist::HostList;
use spur_core::text::mail;
use spur_proto::v1::{AllocatedNodes, Job};

use super::value::{exit, list, merged, minutes, number, time, unlimited};
use crate::format::Show;
use crate::format::fields::job::{allocated_licenses, asked_cores, devices};

/// Returns a job as an object with Slurm's keys.
pub fn job(job: &Job, show: &Show) -> Value {
    merged([
        identity(job, show),
        state(job),
        times(job),
        counts(job),
        needs(job),
        resources(job),
        files(job),
        without_counterpart(),
    ])
}

fn identity(job: &Job, show: &Show) -> Value {
    json!({
        "account": job.account,
        "allocating_node": job.submit_host,
        "array_job_id": number(Some(job.array_job_id.unwrap_or(0))),
        "array_task_id": number(job.array_task_id),
        "array_max_tasks": number(Some(job.array_throttle.unwrap_or(0))),
        "array_task_string": job.array_tasks.split('%').next().unwrap_or_default(),
        "association_id": 0,
        "batch_flag": job.batch,
        "batch_host": job.batch_host,
        "cluster": show.cluster,
        "admin_comment": job.admin_comment,
        "comment": job.comment,
        "extra": job.extra,
        "group_id": job.gid,
        "group_name": job.group,
        "het_job_id": number(Some(job.het_job_id.unwrap_or(0))),
        "het_job_id_set": job.het_job_id_set,
        "het_job_offset": number(Some(job.het_job_offset.unwrap_or(0))),
        "job_id": job.id,
        "name": job.name,
        "partition": job.partition,
        "qos": job.qos,
        "resv_name": job.reservation,
        "step_id": {
            "sluid": "", "job_id": number(Some(job.id)),
            "step_het_component": number(None::<u32>), "step_id": "",
        },
        "user_id": job.uid,
        "user_name": job.user,
        "wckey": job.wckey,
        "submit_line": job.submit_line,
    })
}

fn state(job: &Job) -> Value {
    let base = if job.ending_as.is_empty() { &job.state } else { &job.ending_as };
    let ended = !matches!(base.as_str(), "PENDING" | "CONFIGURING" | "RUNNING" | "SUSPENDED");
    let mut states = vec![base.as_str()];
    states.extend(Some(job.state.as_str()).filter(|state| *state != base));
    json!({
        "job_state": states,
        "state_reason": spur_proto::convert::job::word(&job.reason),
        "state_description": job.reason_detail,
        "exit_code": exit(job.exit_code, job.exit_signal, ended),
        "derived_exit_code": exit(job.derived_exit_code, job.derived_exit_signal, true),
        "dependency": job.dependency,
        "hold": job.priority == 0 && job.state == "PENDING",
        "nice": job.nice,
        "priority": number(Some(job.priority)),
        "priority_by_partition": [],
        "requeue": job.requeue,
        "restart_cnt": job.restarts,
        "reboot": job.reboot,
        "flags": flags(job),
        "mail_type": mail(&job.mail_type),
        "mail_user": job.mail_user,
        "power": { "flags": [] },
        "profile": ["NOT_SET"],
    })
}

fn flags(job: &Job) -> Vec<&'static str> {
    let set = [
        (job.kill_on_invalid_dep == Some(true), "KILL_INVALID_DEPENDENCY"),
        (job.kill_on_invalid_dep == Some(false), "NO_KILL_INVALID_DEPENDENCY"),
        (job.gres_anywhere, "GRES_BINDING_DISABLED"),
        (job.het_job_id.is_some(), "HETEROGENEOUS_JOB"),
        (job.wckey.starts_with('*'), "USING_DEFAULT_WCKEY"),
        (!job.dependency.is_empty(), "DEPENDENT"),
        (job.backfilled, "BACKFILL_ATTEMPTED"),
        (job.last_sched_eval.is_some(), "SCHEDULING_ATTEMPTED"),
        (job.spread_segments, "SPREAD_SEGMENTS"),
        (job.consolidate_segments, "CONSOLIDATE_SEGMENTS"),
    ];
    set.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect()
}

/// Returns the events of mail in the words of the data parser.
fn mail(written: &str) -> Vec<String> {
    let events = mail::shown(written);
    let word = |event: &str| match (event, event.strip_prefix("TIME_LIMIT_")) {
        ("INVALID_DEPEND", _) => "INVALID_DEPENDENCY".to_owned(),
        ("TIME_LIMIT", _) => "TIME=100%".to_owned(),
        (_, Some(share)) => format!("TIME={share}%"),
        (event, None) => event.to_owned(),
    };
    events.split(',').filter(|event| !event.is_empty()).map(word).collect()
}

fn times(job: &Job) -> Value {
    json!({
        "accrue_time": time(job.accrue_time),
        "deadline": time(job.deadline),
        "eligible_time": time(job.eligible_time),
        "end_time": time(job.end_time),
        "last_sched_evaluation": time(job.last_sched_eval),
        "preempt_time": time(job.preempt_time),
        "preemptable_time": time(job.preempt_eligible_time),
        "resize_time": time(None),
        "start_time": time(job.start_time),
        "submit_time": time(Some(job.submit_time)),
        "suspend_time": time(job.suspend_time),
        "pre_sus_time": number(Some(job.pre_suspend_time)),
        "time_limit": unlimited(job.time_limit.map(minutes)),
        "time_minimum": number(Some(job.time_min.map_or(0, minutes))),
        "delay_boot": number(Some(0)),
    })
}

fn counts(job: &Job) -> Value {
    json!({
        "billable_tres": number(billing(&job.alloc_tres)),
        "cpus": number(Some(job.num_cpus)),
        "cpus_per_task": number(Some(job.cpus_per_task.max(1))),
        "max_cpus": number(Some(0)),
        "max_nodes": number(Some(job.max_nodes)),
        "node_count": number(Some(job.num_nodes)),
        "tasks": number(Some(job.num_tasks)),
        "tasks_per_node": number(Some(job.tasks_per_node.unwrap_or(0))),
        "tasks_per_core": unlimited(asked_cores(job).tasks_per_core),
        "tasks_per_socket": unlimited(asked_cores(job).tasks_per_socket),
        "tasks_per_board": number(Some(0)),
        "tasks_per_tres": number(None::<u32>),
        "memory_per_cpu": number(job.min_memory_cpu),
        "memory_per_node": match job.min_memory_cpu {
            Some(_) => number(None::<u64>),
            None => number(Some(job.min_memory_node.unwrap_or(0))),
        },
        "minimum_cpus_per_node": number(Some(job.min_cpus_node)),
        "minimum_tmp_disk_per_node": number(Some(job.tmp_disk_mb)),
        "minimum_switches": switches(job).0,
        "required_switches": switches(job).0,
        "maximum_switch_wait_time": switches(job).1,
        "segment_size": job.segment.unwrap_or(0),
        "cores_per_socket": number(asked_cores(job).cores_per_socket),
        "sockets_per_node": number(asked_cores(job).sockets_per_node),
        "sockets_per_board": 0,
        "threads_per_core": number(asked_cores(job).threads_per_core),
        "core_spec": 32_766,
        "thread_spec": 32_766,
    })
}

fn billing(tres: &str) -> Option<f64> {
    tres.split(',').find_map(|item| item.strip_prefix("billing=")?.parse().ok())
}

/// Returns the requested number of switches and the seconds to wait for them.
fn switches(job: &Job) -> (u64, u64) {
    let (count, wait) = job.switches.split_once('@').unwrap_or((&job.switches, ""));
    let limit = wait.parse::<spur_core::text::time::TimeLimit>().ok();
    (count.parse().unwrap_or(0), limit.and_then(|limit| limit.seconds()).unwrap_or(0))
}

fn needs(job: &Job) -> Value {
    let shared: &[&str] = match job.oversubscribe.as_str() {
        "NO" => &["none"],
        "YES" => &["oversubscribe"],
        "USER" => &["user"],
        "TOPO" => &["topo"],
        _ => &[],
    };
    json!({
        "contiguous": job.contiguous,
        "excluded_nodes": job.excluded_nodes,
        "required_nodes": job.required_nodes,
        "scheduled_nodes": job.planned_nodes,
        "features": job.features,
        "prefer": job.prefer,
        "licenses": job.licenses,
        "licenses_allocated": allocated_licenses(job),
        "network": job.network,
        "shared": shared,
        "exclusive": shared,
        "oversubscribe": job.oversubscribe != "NO",
        "tres_per_job": devices(&job.gpus),
        "tres_per_node": devices(&job.gres),
        "tres_per_task": devices(&job.gpus_per_task),
        "tres_req_str": job.req_tres,
        "tres_alloc_str": job.alloc_tres,
    })
}

fn resources(job: &Job) -> Value {
    let gres: Vec<&str> = job.allocated.iter().flat_map(of_each_node).collect();
    let mut value = json!({ "nodes": job.nodes, "gres_detail": gres, "job_size_str": [] });
    if !job.nodes.is_empty() {
        value["job_resources"] = job_resources(job);
    }
    value
}

/// Repeats the devices of a share for each of its nodes.
fn of_each_node(share: &AllocatedNodes) -> impl Iterator<Item = &str> {
    let nodes = share.nodes.parse::<HostList>().map_or(0, |nodes| nodes.len());
    std::iter::repeat_n(share.gres.as_str(), if share.gres.is_empty() { 0 } else { nodes })
}

fn job_resources(job: &Job) -> Value {
    let mut allocation = Vec::new();
    for share in &job.allocated {
        let Ok(nodes) = share.nodes.parse::<HostList>() else { continue };
        let cpus = share.cpu_ids.parse::<IdSet>().unwrap_or_default();
        for name in nodes.iter() {
            allocation.push(json!({
                "index": allocation.len(),
                "name": name,
                "cpus": { "count": cpus.len(), "used": cpus.len() },
                "memory": { "used": share.memory_mb, "allocated": share.memory_mb },
                "sockets": sockets(share, &cpus),
            }));
        }
    }
    let threads = job.allocated.iter().map(|share| share.threads_per_core).max();
    json!({
        "select_type": ["CPU", "MEMORY"],
        "cpus": job.num_cpus,
        "threads_per_core": number(threads),
        "nodes": {
            "count": job.num_nodes,
            "select_type": if job.oversubscribe == "NO" { ["ONE_ROW"] } else { ["AVAILABLE"] },
            "list": job.nodes,
            "whole": job.oversubscribe == "NO",
            "allocation": allocation,
        },
    })
}

/// Returns every core of a node, marked as allocated to the job or not.
fn sockets(share: &AllocatedNodes, cpus: &IdSet) -> Vec<Value> {
    let (cores, threads) = (share.cores_per_socket, share.threads_per_core.max(1));
    let core = |socket: u32, core: u32| {
        let first = (socket * cores + core) * threads;
        let held = (first..first + threads).any(|cpu| cpus.contains(cpu));
        json!({ "index": core, "status": [if held { "ALLOCATED" } else { "UNALLOCATED" }] })
    };
    let socket = |socket: u32| {
        let cores: Vec<Value> = (0..cores).map(|at| core(socket, at)).collect();
        json!({ "index": socket, "cores": cores })
    };
    (0..share.sockets).map(socket).collect()
}

fn files(job: &Job) -> Value {
    json!({
        "command": job.command,
        "current_working_directory": job.work_dir,
        "standard_input": job.stdin,
        "standard_output": job.stdout,
        "standard_error": job.stderr,
        "stdin_expanded": job.stdin,
        "stdout_expanded": job.stdout,
        "stderr_expanded": job.stderr,
    })
}

/// Returns keys of features that Spur does not have.
fn without_counterpart() -> Value {
    let mut value = json!({
        "cpu_frequency_minimum": number(None::<u32>),
        "cpu_frequency_maximum": number(None::<u32>),
        "cpu_frequency_governor": number(None::<u32>),
        "show_flags": list("ALL,DETAIL,LOCAL"),
    });
    for key in [
        "batch_features",
        "burst_buffer",
        "burst_buffer_state",
        "cluster_features",
        "container",
        "container_id",
        "cpus_per_tres",
        "cron",
        "failed_node",
        "federation_origin",
        "federation_siblings_active",
        "federation_siblings_viable",
        "mcs_label",
        "memory_per_tres",
        "selinux_context",
        "system_comment",
        "tres_bind",
        "tres_freq",
        "tres_per_socket",
    ] {
        value[key] = json!("");
    }
    value
}
