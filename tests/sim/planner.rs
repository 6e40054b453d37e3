//! The planner of a run: the real one, or a very simple one (first come, first served, on the first free
//! nodes). The controller must cope with any plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::id::ArrayTaskId;
use spur_core::model::alloc::Why;
use spur_core::sched;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::{Preemption, Start, StartPart};
use spur_core::text::time::Time;

/// Starts for the jobs that fit now, and, by the real planner, the preemptions.
pub(crate) fn plan(cluster: &Cluster, now: Time, real: bool) -> (Vec<Start>, Vec<Preemption>) {
    if !real {
        return (simple(cluster, now), Vec::new());
    }
    let plan = sched::plan(cluster, now, &Limits);
    (plan.starts, plan.preemptions)
}

fn simple(cluster: &Cluster, now: Time) -> Vec<Start> {
    let mut free: Vec<(spur_core::id::NodeId, u32)> = cluster
        .nodes()
        .iter()
        .filter(|node| node.available())
        .map(|node| (node.id, node.free_cpus().len()))
        .collect();
    let mut starts = Vec::new();
    let mut throttled = BTreeSet::new();
    for job in cluster.jobs().pending().filter(|job| job.eligible_at(now)) {
        // From an array with a limit, one task at a time.
        let more = cluster.more_tasks(job);
        if more == Some(0) || (more.is_some() && !throttled.insert(job.array_id())) {
            continue;
        }
        let want = job.spec.shape.nodes.as_ref().map_or(1, |nodes| nodes.min) as usize;
        let cpus = job.spec.shape.cpus_per_task.unwrap_or(1);
        let fit: Vec<usize> = (0..free.len()).filter(|at| free[*at].1 >= cpus).take(want).collect();
        if fit.len() < want {
            continue;
        }
        for at in &fit {
            free[*at].1 -= cpus;
        }
        let part =
            |at: &usize| StartPart { node: free[*at].0, tasks: 1, cpus, memory_mb: 0, gres: Vec::new() };
        starts.push(Start {
            attempt: job.attempt(),
            task: job.array.as_ref().and_then(|part| part.tasks.first()).map(ArrayTaskId),
            spec: Arc::clone(&job.spec),
            ground: cluster.ground(),
            partition: Arc::clone(&job.spec.partitions[0]),
            reservation: None,
            time_limit: None,
            parts: fit.iter().map(part).collect(),
            exclusive: false,
            why: Why::default(),
            rest: Vec::new(),
        });
    }
    starts
}
