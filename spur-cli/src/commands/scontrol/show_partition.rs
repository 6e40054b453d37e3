//! `scontrol show partition`.

use spur_proto::v1::Partition;

use super::Settings;
use super::record::{Record, yes};
use crate::format::value::{long_limit, or, or_null};

/// The records of all partitions.
pub fn text(partitions: &[Partition], settings: Settings) -> String {
    partitions.iter().map(|partition| record(partition, settings).text(settings.oneline)).collect()
}

fn record(partition: &Partition, settings: Settings) -> Record {
    let no = || "NO".to_owned();
    let mut r = Record::default();
    r.line([("PartitionName", partition.name.clone())]);
    r.line([
        ("AllowGroups", or(&partition.allow_groups, "ALL")),
        ("AllowAccounts", or(&partition.allow_accounts, "ALL")),
        match partition.deny_qos.as_str() {
            "" => ("AllowQos", or(&partition.allow_qos, "ALL")),
            denied => ("DenyQos", denied.to_owned()),
        },
    ]);
    r.line([("AllocNodes", "ALL".into()), ("Default", yes(partition.is_default)), ("QoS", "N/A".into())]);
    r.line([
        (
            "DefaultTime",
            partition.default_time.map_or_else(|| "NONE".into(), |limit| long_limit(Some(limit))),
        ),
        ("DisableRootJobs", no()),
        ("ExclusiveUser", no()),
        ("GraceTime", partition.grace_time.to_string()),
        ("Hidden", no()),
    ]);
    r.line([
        ("MaxNodes", partition.max_nodes.map_or_else(|| "UNLIMITED".into(), |most| most.to_string())),
        ("MaxTime", long_limit(partition.max_time)),
        ("MinNodes", partition.min_nodes.to_string()),
        ("LLN", no()),
        ("MaxCPUsPerNode", "UNLIMITED".into()),
    ]);
    r.line([("Nodes", or_null(&partition.nodes))]);
    r.line([
        ("PriorityJobFactor", partition.priority_job_factor.to_string()),
        ("PriorityTier", partition.priority_tier.to_string()),
        ("RootOnly", no()),
        ("ReqResv", no()),
        ("OverSubscribe", or(&partition.oversubscribe, "NO")),
    ]);
    r.line([
        ("OverTimeLimit", "NONE".into()),
        ("PreemptMode", or(&partition.preempt_mode, "OFF").to_uppercase()),
    ]);
    r.line([
        ("State", partition.state.clone()),
        ("TotalCPUs", partition.total_cpus.to_string()),
        ("TotalNodes", partition.total_nodes.to_string()),
        ("SelectTypeParameters", "NONE".into()),
    ]);
    r.line([("JobDefaults", "(null)".into())]);
    let per_cpu = |limit: Option<u64>, cpu: &'static str, node: &'static str| match limit {
        Some(megabytes) => (cpu, megabytes.to_string()),
        None => (node, "UNLIMITED".to_owned()),
    };
    r.line([
        per_cpu(partition.default_memory_per_cpu_mb, "DefMemPerCPU", "DefMemPerNode"),
        per_cpu(partition.max_memory_per_cpu_mb, "MaxMemPerCPU", "MaxMemPerNode"),
    ]);
    r.line([("TRES", or_null(&partition.tres))]);
    r.line_if("Topology", &partition.topology);
    if settings.own && !partition.topology.is_empty() && !partition.placement.is_empty() {
        r.more("Placement", &partition.placement);
    }
    r
}
