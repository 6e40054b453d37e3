//! Trackable resources (TRES) of a request, before nodes are chosen.

use super::job::{MemoryNeed, Shape};
use crate::text::gres::GresSpec;
use crate::text::tres::{Tres, TresKind};

/// The smallest number of nodes that the request can get.
#[must_use]
pub fn least_nodes(shape: &Shape) -> u32 {
    let stated = shape.nodes.as_ref().map(|nodes| nodes.min);
    let spread = || Some(shape.tasks?.div_ceil(shape.tasks_per_node?));
    stated.or_else(spread).unwrap_or(1)
}

/// The smallest number of tasks that follows from the request.
#[must_use]
pub fn least_tasks(shape: &Shape) -> u32 {
    let each = shape.tasks_per_node.unwrap_or(1);
    shape.tasks.unwrap_or_else(|| least_nodes(shape).saturating_mul(each))
}

/// The smallest number of CPUs that follows from the request.
#[must_use]
pub fn least_cpus(shape: &Shape) -> u32 {
    least_tasks(shape).saturating_mul(shape.cpus_per_task.unwrap_or(1)).max(shape.min_cpus)
}

/// The trackable resources of a request, as far as they are known before its start.
#[must_use]
pub fn requested_tres(shape: &Shape) -> Tres {
    let (nodes, cpus) = (u64::from(least_nodes(shape)), u64::from(least_cpus(shape)));
    let mut tres = Tres::default();
    tres.set(TresKind::Cpu, cpus);
    match shape.memory {
        Some(MemoryNeed::PerNode(mb)) if mb > 0 => tres.set(TresKind::Mem, mb.saturating_mul(nodes)),
        Some(MemoryNeed::PerCpu(mb)) if mb > 0 => tres.set(TresKind::Mem, mb.saturating_mul(cpus)),
        Some(_) | None => {}
    }
    tres.set(TresKind::Node, nodes);
    tres.set(TresKind::Billing, cpus);
    let tasks = u64::from(least_tasks(shape));
    // Devices per task are part of those requested for nodes or for the job.
    let is_told = |each: &GresSpec| shape.gres.iter().chain(&shape.gpus).any(|gres| gres.may_be(each));
    let of_tasks: Vec<GresSpec> = shape.gpus_per_task.iter().filter(|each| !is_told(each)).cloned().collect();
    for (list, times) in [(&shape.gres, nodes), (&shape.gpus, 1), (&of_tasks, tasks)] {
        for gres in list {
            let typed = gres.kind.clone().map(Some);
            for kind in [None].into_iter().chain(typed) {
                let kind = TresKind::Gres { name: gres.name.clone(), kind };
                let sum = tres.get(&kind).saturating_add(gres.count.saturating_mul(times));
                tres.set(kind, sum);
            }
        }
    }
    tres
}
