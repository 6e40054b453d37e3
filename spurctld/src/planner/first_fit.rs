//! In order of submission, every job on the first nodes that fit.

use spur_core::cluster::{Cluster, Node, Partition};
use spur_core::model::alloc::Why;
use spur_core::model::job::{Job, MemoryNeed, Sharing};
use spur_core::model::reason::Reason;
use spur_core::sched::plan::{Plan, Start, StartPart, Waiting};
use spur_core::text::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One pass.
pub(super) fn plan(cluster: &Cluster, now: Time) -> Plan {
    let mut plan = Plan::default();
    let mut taken: BTreeMap<u32, (u32, u64, bool)> = BTreeMap::new();
    for job in cluster.jobs().pending().filter(|job| job.eligible_at(now)) {
        let partitions = job.spec.partitions.iter().filter_map(|name| cluster.partition(name));
        let start = partitions.filter(|partition| partition.starts()).find_map(|partition| place(cluster, partition, job, &mut taken));
        match start {
            Some(start) => plan.starts.push(start),
            None => plan.waiting.push(Waiting {
                job: job.id,
                priority: 1,
                reason: Reason::Resources,
                detail: String::new(),
                start: None,
                nodes: Vec::new(),
            }),
        }
    }
    plan
}

fn place(
    cluster: &Cluster,
    partition: &Partition,
    job: &Job,
    taken: &mut BTreeMap<u32, (u32, u64, bool)>,
) -> Option<Start> {
    let shape = &job.spec.shape;
    let exclusive = shape.sharing == Sharing::Exclusive;
    let cpus_per_task = shape.cpus_per_task.unwrap_or(1);
    let nodes = spur_proto::convert::job::least_nodes(shape);
    let tasks = spur_proto::convert::job::least_tasks(shape);
    let mut parts: Vec<StartPart> = Vec::new();
    let mut left = tasks;
    for node in partition.nodes.iter().filter_map(|id| cluster.node(*id)).filter(|node| node.available()) {
        if parts.len() as u32 == nodes || left == 0 {
            break;
        }
        let (cpus, memory, whole) = taken.get(&node.id.0).copied().unwrap_or_default();
        let idle = node.idle() && cpus == 0;
        if whole || (exclusive && !idle) {
            continue;
        }
        let free = node.free_cpus().len().saturating_sub(cpus);
        let room = (free / cpus_per_task).min(shape.tasks_per_node.unwrap_or(u32::MAX));
        let still = nodes - parts.len() as u32 - 1;
        let here = room.min(left.saturating_sub(still));
        let memory_mb = need(node, shape.memory, here * cpus_per_task);
        if here == 0 || memory_mb + memory > node.free_memory_mb() {
            continue;
        }
        left -= here;
        parts.push(StartPart { node: node.id, tasks: here, cpus: here * cpus_per_task, memory_mb, gres: Vec::new() });
    }
    if left > 0 || (parts.len() as u32) < nodes {
        return None;
    }
    for part in &parts {
        let entry = taken.entry(part.node.0).or_default();
        *entry = (entry.0 + part.cpus, entry.1 + part.memory_mb, exclusive);
    }
    let why = Why { sentence: "first nodes that fit".to_owned(), ..Why::default() };
    Some(Start {
        attempt: job.attempt(),
        spec: Arc::clone(&job.spec),
        partition: Arc::clone(partition.name()),
        parts,
        exclusive,
        why,
    })
}

fn need(node: &Node, memory: Option<MemoryNeed>, cpus: u32) -> u64 {
    match memory {
        None => 0,
        Some(MemoryNeed::PerNode(0)) => node.shape.memory_mb,
        Some(MemoryNeed::PerNode(mb)) => mb,
        Some(MemoryNeed::PerCpu(mb)) => mb * u64::from(cpus),
    }
}
