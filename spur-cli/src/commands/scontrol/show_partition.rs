//! The command `scontrol show partition`.

use spur_proto::v1::Partition;

use super::Settings;
use super::record::{Record, yes};
use crate::format::fields::node::{job_defaults, or_unlimited};
use crate::format::value::{long_limit, or, or_null};

/// Returns the records of all partitions.
pub fn text(partitions: &[Partition], settings: Settings) -> String {
    partitions.iter().map(|partition| record(partition, settings).text(settings.oneline)).collect()
}

fn record(partition: &Partition, settings: Settings) -> Record {
    let no = || "NO".to_owned();
    let mut r = Record::default();
    r.line([("PartitionName", partition.name.clone())]);
    r.line([
        ("AllowGroups", or(&partition.allow_groups, "ALL")),
        match partition.deny_accounts.as_str() {
            "" => ("AllowAccounts", or(&partition.allow_accounts, "ALL")),
            denied => ("DenyAccounts", denied.to_owned()),
        },
        match partition.deny_qos.as_str() {
            "" => ("AllowQos", or(&partition.allow_qos, "ALL")),
            denied => ("DenyQos", denied.to_owned()),
        },
    ]);
    r.line([("AllocNodes", or(&partition.alloc_nodes, "ALL"))]);
    if !partition.alternate.is_empty() {
        r.more("Alternate", &partition.alternate);
    }
    r.more("Default", &yes(partition.is_default));
    r.more("QoS", &or(&partition.qos, "N/A"));
    r.line([
        (
            "DefaultTime",
            partition.default_time.map_or_else(|| "NONE".into(), |limit| long_limit(Some(limit))),
        ),
        ("DisableRootJobs", yes(partition.disable_root_jobs)),
        ("ExclusiveUser", no()),
        ("GraceTime", partition.grace_time.to_string()),
        ("Hidden", yes(partition.hidden)),
    ]);
    r.line([
        ("MaxNodes", or_unlimited(partition.max_nodes)),
        ("MaxTime", long_limit(partition.max_time)),
        ("MinNodes", partition.min_nodes.to_string()),
        ("LLN", no()),
        ("MaxCPUsPerNode", or_unlimited(partition.max_cpus_per_node)),
        ("MaxCPUsPerSocket", or_unlimited(partition.max_cpus_per_socket)),
    ]);
    r.line([("Nodes", or_null(&partition.nodes))]);
    r.line([
        ("PriorityJobFactor", partition.priority_job_factor.to_string()),
        ("PriorityTier", partition.priority_tier.to_string()),
        ("RootOnly", yes(partition.root_only)),
        ("ReqResv", yes(partition.req_resv)),
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
    r.line([("JobDefaults", or_null(&job_defaults(partition)))]);
    let (def, max) = (partition.default_memory_per_node_mb, partition.max_memory_per_node_mb);
    r.line([
        memory(partition.default_memory_per_cpu_mb, def, "DefMemPerCPU", "DefMemPerNode"),
        memory(partition.max_memory_per_cpu_mb, max, "MaxMemPerCPU", "MaxMemPerNode"),
    ]);
    r.line([("TRES", or_null(&partition.tres))]);
    r.line_if("TRESBillingWeights", &partition.billing_weights);
    r.line_if("Topology", &partition.topology);
    if settings.own && !partition.topology.is_empty() && !partition.placement.is_empty() {
        r.more("Placement", &partition.placement);
    }
    r
}

/// Returns the key and value of a limit on memory, per CPU or per node.
fn memory(
    by_cpu: Option<u64>,
    by_node: Option<u64>,
    cpu: &'static str,
    node: &'static str,
) -> (&'static str, String) {
    let by_node = || by_node.map_or_else(|| "UNLIMITED".to_owned(), |megabytes| megabytes.to_string());
    by_cpu.map_or_else(|| (node, by_node()), |megabytes| (cpu, megabytes.to_string()))
}
