//! Nodes, partitions and rows of `sinfo` in JSON.

use serde_json::{Value, json};
use spur_core::text::hostlist::HostList;
use spur_proto::v1::{Node, Partition};

use super::value::{list, merged, minutes, number, time, unlimited};
use crate::format::Show;
use crate::format::fields::node::{Row, effective_cpus, host_and_port, job_defaults, state_flags};
use crate::format::value::or;
use crate::version;

/// Returns a node in the shape of `scontrol show node --json`.
pub fn node(node: &Node, show: &Show) -> Value {
    let (host, port) = host_and_port(&node.address);
    merged([
        json!({
            "name": node.name,
            "hostname": node.hostname,
            "address": host,
            "port": port.and_then(|port| port.parse::<u16>().ok()).unwrap_or(0),
            "architecture": node.arch,
            "operating_system": node.os,
            "version": version::of_node(&node.version),
            "spur_version": node.version,
            "cluster_name": show.cluster,
            "state": states(node),
            "next_state_after_reboot": [or(&node.next_state, "INVALID")],
            "reason": node.reason,
            "reason_set_by_user": node.reason_user,
            "reason_changed_at": time(node.reason_time),
            "comment": node.owner_comment,
            "reservation": node.reservation,
            "partitions": node.partitions,
            "features": list(&node.features),
            "active_features": list(&node.features),
            "topology": node.topology,
            "reported_topology": node.reported_topology,
            "boot_time": time(node.boot_time),
            "slurmd_start_time": time(node.started_time),
            "last_busy": time(node.last_busy_time),
            "resume_after": number(None::<i64>),
            "tls_cert_last_renewal": time(None),
            "cert_flags": [],
        }),
        json!({
            "boards": 1,
            "sockets": node.sockets,
            "cores": node.cores_per_socket,
            "threads": node.threads_per_core,
            "cpus": node.cpus,
            "effective_cpus": effective_cpus(node),
            "alloc_cpus": node.cpus_allocated,
            "alloc_idle_cpus": effective_cpus(node).saturating_sub(node.cpus_allocated),
            "cpu_load": node.load_hundredths.unwrap_or(0),
            "cpu_binding": 0,
            "specialized_cores": node.core_spec_count,
            "specialized_cpus": node.cpu_spec_list,
            "specialized_memory": node.mem_spec_limit_mb,
            "res_cores_per_gpu": 0,
            "real_memory": node.memory_mb,
            "alloc_memory": node.memory_allocated_mb,
            "free_mem": number(node.memory_free_mb),
            "temporary_disk": node.tmp_disk_mb,
            "weight": node.weight,
            "gres": node.gres,
            "gres_drained": "N/A",
            "gres_used": node.gres_used,
            "tres": node.configured_tres,
            "tres_used": node.allocated_tres,
            "tres_weighted": node.cpus_allocated,
            "gpu_spec": "",
        }),
        json!({
            "burstbuffer_network_address": "", "extra": node.extra, "instance_id": "", "instance_type": "",
            "mcs_label": "", "owner": "",
            "energy": {
                "average_watts": 0, "base_consumed_energy": 0, "consumed_energy": 0,
                "current_watts": number(None::<u32>), "previous_consumed_energy": 0, "last_collected": 0,
            },
            "external_sensors": {},
            "power": {},
        }),
    ])
}

/// Returns the base state and its flags.
fn states(node: &Node) -> Vec<String> {
    state_flags(node).split('+').map(str::to_owned).collect()
}

/// Returns a partition in the shape of `scontrol show partition --json` and of the rows of `sinfo`.
pub fn partition(partition: &Partition, show: &Show) -> Value {
    let most_jobs = if partition.oversubscribe == "EXCLUSIVE" { 0 } else { 1 };
    merged([
        json!({
            "name": partition.name,
            "cluster": show.cluster,
            "alternate": partition.alternate,
            "node_sets": "",
            "topology": partition.topology,
            "select_type": [],
            "grace_time": partition.grace_time,
            "suspend_time": number(None::<u64>),
            "timeouts": { "resume": number(None::<u32>), "suspend": number(None::<u32>) },
            "nodes": {
                "allowed_allocation": partition.alloc_nodes, "configured": partition.nodes, "total": partition.total_nodes,
            },
            "accounts": { "allowed": all_is_empty(&partition.allow_accounts), "deny": partition.deny_accounts },
            "groups": { "allowed": all_is_empty(&partition.allow_groups) },
            "qos": { "allowed": partition.allow_qos, "deny": partition.deny_qos, "assigned": partition.qos },
            "tres": { "billing_weights": partition.billing_weights, "configured": partition.tres },
            "cpus": { "task_binding": 0, "total": partition.total_cpus },
            "priority": { "job_factor": partition.priority_job_factor, "tier": partition.priority_tier },
            "partition": { "state": [partition.state] },
        }),
        json!({
            "defaults": {
                "memory_per_cpu": per_cpu_word(partition.default_memory_per_cpu_mb),
                "partition_memory_per_cpu": number(partition.default_memory_per_cpu_mb),
                "partition_memory_per_node": number(partition.default_memory_per_node_mb),
                "time": number(partition.default_time.map(minutes)),
                "job": job_defaults(partition),
            },
            "maximums": {
                "cpus_per_node": unlimited(partition.max_cpus_per_node),
                "cpus_per_socket": unlimited(partition.max_cpus_per_socket),
                "memory_per_cpu": per_cpu_word(partition.max_memory_per_cpu_mb),
                "partition_memory_per_cpu": number(partition.max_memory_per_cpu_mb),
                "partition_memory_per_node": number(partition.max_memory_per_node_mb),
                "nodes": unlimited(partition.max_nodes),
                "shares": most_jobs,
                "oversubscribe": { "jobs": most_jobs, "flags": [] },
                "time": unlimited(partition.max_time.map(minutes)),
                "over_time_limit": number(None::<u32>),
            },
            "minimums": { "nodes": partition.min_nodes },
        }),
    ])
}

/// Slurm's text is empty where all names are allowed.
fn all_is_empty(names: &str) -> &str {
    if names == "ALL" { "" } else { names }
}

/// Returns Slurm's encoding of an amount of memory per CPU, with the highest bit set.
fn per_cpu_word(megabytes: Option<u64>) -> u64 {
    megabytes.map_or(0, |megabytes| megabytes | 1 << 63)
}

/// Returns a row of `sinfo`: equal nodes of a partition.
pub fn row(row: &Row, show: &Show) -> Value {
    let nodes = &row.nodes;
    let first = nodes.first();
    let names = |name: &dyn Fn(&Node) -> String| {
        let list = HostList::from_names(nodes.iter().map(|node| name(node))).unique();
        if list.is_empty() { Vec::new() } else { vec![list.to_string()] }
    };
    let text = |text: &dyn Fn(&Node) -> String| first.map(|node| text(node)).unwrap_or_default();
    let [allocated, idle, other, total] = row.node_counts();
    let [cpus_allocated, cpus_idle, cpus_other, cpus_total] = row.cpu_counts();
    let load = range(row, |node| node.load_hundredths.map(u64::from));
    let free = nodes.iter().filter_map(|node| node.memory_free_mb);
    let cpus = range(row, |node| Some(node.cpus.into()));
    let memory = range(row, |node| Some(node.memory_mb));
    json!({
        "port": first.map_or(0, |node| {
            host_and_port(&node.address).1.and_then(|port| port.parse().ok()).unwrap_or(0u16)
        }),
        "node": { "state": first.map(|node| states(node)).unwrap_or_default() },
        "nodes": {
            "allocated": allocated, "idle": idle, "other": other, "total": total,
            "hostnames": names(&|node| node.hostname.clone()),
            "addresses": names(&|node| host_and_port(&node.address).0.to_owned()),
            "nodes": names(&|node| node.name.clone()),
        },
        "cpus": {
            "allocated": cpus_allocated, "idle": cpus_idle, "other": cpus_other, "total": cpus_total,
            "minimum": cpus["minimum"], "maximum": cpus["maximum"], "load": load,
            "per_node": { "max": unlimited(None::<u32>) },
        },
        "sockets": range(row, |node| Some(node.sockets.into())),
        "cores": range(row, |node| Some(node.cores_per_socket.into())),
        "threads": range(row, |node| Some(node.threads_per_core.into())),
        "disk": range(row, |node| Some(node.tmp_disk_mb)),
        "weight": range(row, |node| Some(node.weight.into())),
        "memory": {
            "minimum": memory["minimum"], "maximum": memory["maximum"],
            "allocated": nodes.iter().map(|node| node.memory_allocated_mb).sum::<u64>(),
            "free": { "minimum": number(free.clone().min()), "maximum": number(free.max()) },
        },
        "features": { "total": text(&|node| node.features.clone()), "active": text(&|node| node.features.clone()) },
        "gres": { "total": text(&|node| node.gres.clone()), "used": text(&|node| node.gres_used.clone()) },
        "cluster": show.cluster,
        "comment": text(&|node| node.owner_comment.clone()),
        "extra": text(&|node| node.extra.clone()),
        "reason": {
            "description": text(&|node| node.reason.clone()),
            "time": first.and_then(|node| node.reason_time).unwrap_or(0),
            "user": text(&|node| node.reason_user.clone()),
        },
        "reservation": text(&|node| node.reservation.clone()),
        "resource_spec": {
            "cpus": text(&|node| node.cpu_spec_list.clone()),
            "memory": first.map_or(0, |node| node.mem_spec_limit_mb),
        },
        "partition": partition(&row.partition, show),
    })
}

/// Returns the minimum and maximum of the known values.
fn range(row: &Row, value: impl Fn(&Node) -> Option<u64>) -> Value {
    let values = row.nodes.iter().filter_map(|node| value(node));
    json!({ "minimum": values.clone().min().unwrap_or(0), "maximum": values.max().unwrap_or(0) })
}
