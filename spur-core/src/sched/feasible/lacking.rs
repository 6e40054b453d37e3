//! What no node has, or too few.

use crate::cluster::Partition;
use crate::model::job::Shape;
use crate::sched::place;
use crate::sched::request::Need;
use crate::sched::scene::Scene;
use crate::sched::scene::lens::Lens;

use super::{Refusal, RefusalKind, refuse};

/// Whether there are devices of all kinds that are asked for.
pub(super) fn has_devices(scene: &Scene, shape: &Shape) -> bool {
    let mut asked = shape.gres.iter().chain(&shape.gpus).chain(&shape.gpus_per_task);
    let there = |name: &str| {
        let mut all = scene.nodes.iter().flat_map(|node| &node.shape.gres);
        all.any(|gres| *gres.name == *name)
    };
    asked.all(|gres| there(&gres.name))
}

/// Refuses a count that is larger than the number of nodes that could serve it.
pub(super) fn counted(
    partition: &Partition,
    lens: &Lens,
    ask: &place::Ask,
    shape: &Shape,
) -> Result<(), Refusal> {
    let counts = shape.features.as_ref().map(|features| features.counts()).unwrap_or_default();
    for ((wanted, count), (set, _)) in counts.into_iter().zip(&ask.counts) {
        let have = lens.idle.open().intersection(set).count();
        if have < count as usize {
            let name = partition.name();
            let most = if have == 0 { String::new() } else { format!("; ask ≤ {have}") };
            let message = format!(
                "--constraint: {count} nodes with {wanted}: {have} of partition {name} could serve{most}"
            );
            return refuse(RefusalKind::NodeConfig, message);
        }
    }
    Ok(())
}

/// Why no node will do: what is asked of one node, and the most that one has.
pub(super) fn too_large(scene: &Scene, partition: &Partition, lens: &Lens, need: &Need) -> String {
    let name = partition.name();
    let admitted = || lens.admitted.ones().map(|index| &scene.nodes[index].shape);
    if admitted().next().is_none() {
        return format!("no node of partition {name} meets the constraint");
    }
    let (cpus, memory) = (
        admitted().map(|shape| shape.cpus).max().unwrap_or(0),
        admitted().map(|shape| shape.memory_mb).max().unwrap_or(0),
    );
    let asked = need.tasks(1).saturating_mul(need.cpus_per_task).max(need.min_cpus);
    if asked > cpus {
        return format!("{asked} CPUs on one node: the largest of partition {name} has {cpus}; ask ≤ {cpus}");
    }
    let per_cpu = need.memory_per_cpu.saturating_mul(u64::from(asked));
    let wanted = if need.memory_per_node == u64::MAX { 0 } else { need.memory_per_node.max(per_cpu) };
    if wanted > memory {
        return format!(
            "{wanted} MiB on one node: the largest of partition {name} has {memory}; ask ≤ {memory}"
        );
    }
    for spec in need.gres_per_node.iter().chain(&need.gres_per_task) {
        let has = |shape: &crate::model::node::NodeShape| -> u64 {
            let kind = |kind: &str| spec.kind.as_deref().is_none_or(|wanted| wanted == kind);
            let matching = shape.gres.iter().filter(|gres| *gres.name == *spec.name && kind(&gres.kind));
            matching.map(|gres| u64::from(gres.count)).sum()
        };
        let most = admitted().map(|shape| has(shape)).max().unwrap_or(0);
        if spec.count > most {
            return format!("{spec} on one node: the most that a node of partition {name} has is {most}");
        }
    }
    format!("no node of partition {name} has all that is asked for together")
}
