//! The trackable resources of allocations, and what is charged for them.

use super::{Cluster, Node, Partition};
use crate::model::accounts::usage::Rate;
use crate::model::alloc::NodeAlloc;
use crate::model::config::{Billing, PriorityFlag};
use crate::model::job::JobSpec;
use crate::model::node::SHARD;
use crate::text::tres::{Tres, TresKind};

impl Cluster {
    /// The trackable resources that an allocation holds, or a part of it.
    #[must_use]
    pub fn held_tres(&self, parts: &[NodeAlloc]) -> Tres {
        let mut tres = Tres::default();
        let cpus = parts.iter().map(|part| u64::from(part.cpus.len())).sum();
        tres.set(TresKind::Cpu, cpus);
        let memory: u64 = parts.iter().map(|part| part.memory_mb).sum();
        if memory > 0 {
            tres.set(TresKind::Mem, memory);
        }
        tres.set(TresKind::Node, parts.len() as u64);
        for part in parts {
            let Some(node) = self.node(part.node) else { continue };
            for held in &part.gres {
                let Some(held) = node.shape.called(held) else { continue };
                let typed = (!held.kind.is_empty()).then(|| held.kind.to_owned());
                let mut add = |kind| {
                    let kind = TresKind::Gres { name: held.name.to_owned(), kind };
                    tres.set(kind.clone(), tres.get(&kind) + u64::from(held.count));
                };
                add(None);
                if typed.is_some() {
                    add(typed);
                }
            }
        }
        tres
    }

    /// What each second of an allocation in a partition is charged.
    ///
    /// With weights of the partition it is the weighted sum of the resources; with `MAX_TRES` the largest weighted resource
    /// of nodes, and the sum of those of licences. Without weights it is the CPUs, or for each node its CPUs times the
    /// largest share of CPUs, memory and GPUs that the job holds of the node, summed and rounded up.
    #[must_use]
    pub fn billing(&self, partition: &Partition, spec: &JobSpec, parts: &[NodeAlloc]) -> Rate {
        let weights = &partition.config.tres_billing_weights;
        if !weights.is_empty() {
            let mut tres = self.held_tres(parts);
            add_licenses(&mut tres, spec);
            let takes_largest = self.policy.scheduler.has_flag(PriorityFlag::MaxTres);
            let (mut largest, mut sum) = (0, 0_u128);
            for (kind, weighted) in weights.of(&tres) {
                match kind {
                    TresKind::License(_) => sum = sum.saturating_add(weighted),
                    _ if takes_largest => largest = weighted.max(largest),
                    _ => sum = sum.saturating_add(weighted),
                }
            }
            return Rate(sum.saturating_add(largest));
        }
        match self.policy.scheduler.billing {
            Billing::Cpu => Rate::whole(parts.iter().map(|part| u64::from(part.cpus.len())).sum()),
            Billing::Share => {
                let shares = parts.iter().filter_map(|part| Some(share(self.node(part.node)?, part)));
                Rate(shares.map(|share| share.0).sum()).rounded_up()
            }
        }
    }
}

/// Adds the licences that a job asks for.
pub(super) fn add_licenses(tres: &mut Tres, spec: &JobSpec) {
    for (name, count) in spec.extra.iter().flat_map(|extra| &extra.licenses) {
        tres.set(TresKind::License(name.to_string()), u64::from(*count));
    }
}

/// The CPUs of a node times the largest share of CPUs, memory or GPUs that a part of it holds; rounded down to 2^-32.
fn share(node: &Node, part: &NodeAlloc) -> Rate {
    let cpus = u128::from(node.shape.cpus);
    let of = |held: u64, all: u64| match all {
        0 => 0,
        all => ((cpus * u128::from(held.min(all))) << 32) / u128::from(all),
    };
    let by_cpus = Rate::whole(u64::from(part.cpus.len())).0;
    let by_memory = of(part.memory_mb, node.shape.memory_mb);
    let listed = node.shape.listed();
    let held = |name: &str| -> u64 {
        let called = part.gres.iter().filter_map(|held| node.shape.called(held));
        called.filter(|held| held.name == name).map(|held| u64::from(held.count)).sum()
    };
    let all = |name: &str| -> u64 {
        listed.iter().filter(|gres| *gres.name == *name).map(|gres| u64::from(gres.count)).sum()
    };
    let by_devices = ["gpu", SHARD].into_iter().map(|name| of(held(name), all(name)));
    Rate(by_devices.chain([by_cpus, by_memory]).max().unwrap_or_default())
}
