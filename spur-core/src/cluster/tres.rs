//! The trackable resources (TRES) of allocations and what is charged for them: one count, for usage and for
//! limits.

use smallvec::SmallVec;

use super::{Cluster, Node, Partition};
use crate::id::NodeId;
use crate::model::accounts::usage::Rate;
use crate::model::alloc::{Alloc, NodeAlloc, StartPart};
use crate::model::config::{Billing, PartitionConfig, PriorityFlag, SchedulerPolicy};
use crate::model::job::JobSpec;
use crate::model::node::{NodeShape, SHARD};
use crate::text::tres::{Tres, TresKind};
use crate::text::weights::TresWeights;

/// Amounts of resources, with what each second of them is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Counts by kind of resource, without billing.
    pub tres: Tres,
    /// The charge of each second.
    pub billing: Rate,
}

impl Held {
    /// The amount of one kind of resource, billing among them.
    #[must_use]
    pub fn rate(&self, kind: &TresKind) -> Rate {
        match kind {
            TresKind::Billing => self.billing,
            _ => Rate::whole(self.tres.get(kind)),
        }
    }

    /// The number that a limit counts for these amounts: 1 for a limit of jobs, or the amount of a resource
    /// in units of 2^-32.
    #[must_use]
    pub fn counted(&self, resource: Option<&TresKind>) -> u128 {
        resource.map_or(1, |kind| self.rate(kind).0)
    }

    /// Adds other amounts.
    pub fn add(&mut self, more: &Held) {
        self.tres.add(&more.tres);
        self.billing = Rate(self.billing.0.saturating_add(more.billing.0));
    }

    /// Subtracts amounts that were added before. Kinds of which nothing is left are removed.
    pub fn take(&mut self, less: &Held) {
        self.billing = Rate(self.billing.0.saturating_sub(less.billing.0));
        for (kind, amount) in &less.tres.0 {
            let Some(all) = self.tres.0.get_mut(kind) else { continue };
            *all = all.saturating_sub(*amount);
            if *all == 0 {
                self.tres.0.remove(kind);
            }
        }
    }
}

/// The trackable resources of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// The resources of all nodes together, and the licences.
    pub all: Held,
    /// The largest amount of each resource on one node.
    pub on_node: Held,
}

/// The rules by which a partition charges for resources.
#[derive(Clone, Copy, Debug)]
pub struct Tariff<'a> {
    weights: &'a TresWeights,
    /// True if only the largest of the weighted resources of nodes is charged (`MAX_TRES`, `MAX_TRES_GRES`).
    takes_largest: bool,
    /// True if the sum of weighted GRES is charged besides the largest other resource (`MAX_TRES_GRES`).
    adds_gres: bool,
    billing: Billing,
}

impl<'a> Tariff<'a> {
    /// The tariff of a partition.
    #[must_use]
    pub fn new(scheduler: &SchedulerPolicy, partition: &'a PartitionConfig) -> Self {
        let adds_gres = scheduler.has_flag(PriorityFlag::MaxTresGres);
        Self {
            weights: &partition.tres_billing_weights,
            takes_largest: adds_gres || scheduler.has_flag(PriorityFlag::MaxTres),
            adds_gres,
            billing: scheduler.billing,
        }
    }

    /// True if the charge follows from the requested amounts of resources, whichever nodes they are on, and
    /// is no less if the job gets more. With a negative weight, more of a resource costs less.
    #[must_use]
    pub fn is_by_amounts(self) -> bool {
        match self.weights.is_empty() {
            true => self.billing == Billing::Cpu,
            false => !self.weights.has_negative(),
        }
    }

    /// The charge for each second of these resources. With weights, the charge is the weighted sum of the
    /// resources; with `MAX_TRES`, the largest weighted resource of nodes plus the weighted licences; with
    /// `MAX_TRES_GRES`, GRES are added like licences. A sum below 0 charges nothing. Without weights, the
    /// charge is the CPUs, or the `shares` of nodes, rounded up.
    fn charge(self, tres: &Tres, shares: Rate) -> Rate {
        if self.weights.is_empty() {
            return match self.billing {
                Billing::Cpu => Rate::whole(tres.get(&TresKind::Cpu)),
                Billing::Share => shares.rounded_up(),
            };
        }
        let (mut largest, mut sum) = (0, 0_i128);
        for (kind, weighted) in self.weights.of(tres) {
            match kind {
                TresKind::License(_) => sum = sum.saturating_add(weighted),
                TresKind::Gres { .. } if self.adds_gres => sum = sum.saturating_add(weighted),
                _ if self.takes_largest => largest = weighted.max(largest),
                _ => sum = sum.saturating_add(weighted),
            }
        }
        Rate(u128::try_from(sum.saturating_add(largest)).unwrap_or(0))
    }

    /// A lower bound of the charge for resources whose nodes are not known yet: the number of CPUs stands for
    /// the shares of nodes. The bound is 0 with a negative weight.
    #[must_use]
    pub fn least(self, tres: &Tres) -> Rate {
        if self.weights.has_negative() {
            return Rate::default();
        }
        self.charge(tres, Rate::whole(tres.get(&TresKind::Cpu)))
    }
}

/// Devices of a job on one node, by entry of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    pub(crate) entry: usize,
    pub(crate) count: u64,
    /// True if the job has shards of a GPU instead of the whole GPU.
    pub(crate) shards: bool,
}

/// Counts of devices of one name and type: on all nodes, on the current node, and the most on one node.
#[derive(Debug)]
struct Counted<'a> {
    name: &'a str,
    kind: &'a str,
    all: u64,
    here: u64,
    most: u64,
}

/// Counts the trackable resources of a job, node by node.
#[derive(Debug, Default)]
pub(crate) struct Count<'a> {
    nodes: u64,
    cpus: u64,
    most_cpus: u64,
    memory_mb: u64,
    most_memory_mb: u64,
    devices: SmallVec<[Counted<'a>; 2]>,
    /// The sum over all nodes of the node's CPUs times the largest share that the job holds of the node.
    shares: Rate,
    largest_share: Rate,
}

impl<'a> Count<'a> {
    /// Adds a part of a node. Devices of a deleted node (`shape` is `None`) have no names, and are not
    /// counted.
    fn add_node(
        &mut self,
        shape: Option<&'a NodeShape>,
        cpus: u64,
        memory_mb: u64,
        devices: impl IntoIterator<Item = Devices>,
    ) {
        self.add_nodes((1, shape), cpus, memory_mb, devices);
    }

    /// Adds equal parts of some nodes of one shape.
    pub(crate) fn add_nodes(
        &mut self,
        (nodes, shape): (u64, Option<&'a NodeShape>),
        cpus: u64,
        memory_mb: u64,
        devices: impl IntoIterator<Item = Devices>,
    ) {
        self.nodes += nodes;
        self.cpus += nodes * cpus;
        self.most_cpus = self.most_cpus.max(cpus);
        self.memory_mb += nodes * memory_mb;
        self.most_memory_mb = self.most_memory_mb.max(memory_mb);
        let Some(shape) = shape else { return };
        let (mut gpus, mut shards) = (0, 0);
        self.devices.iter_mut().for_each(|counted| counted.here = 0);
        for Devices { entry, count, shards: has_shards } in devices {
            let Some(gres) = shape.gres.get(entry) else { continue };
            let (name, kind, count): (&str, &str, u64) = match (shape.is_shared(entry), has_shards) {
                (false, _) => (&gres.name, &gres.kind, count),
                (true, true) => (SHARD, "", count),
                (true, false) => (&gres.name, &gres.kind, 1),
            };
            match name {
                "gpu" => gpus += count,
                SHARD => shards += count,
                _ => {}
            }
            let known = self.devices.iter().position(|counted| (counted.name, counted.kind) == (name, kind));
            let at = known.unwrap_or_else(|| {
                self.devices.push(Counted { name, kind, all: 0, here: 0, most: 0 });
                self.devices.len() - 1
            });
            let counted = &mut self.devices[at];
            counted.all += nodes * count;
            counted.here += count;
        }
        self.devices.iter_mut().for_each(|counted| counted.most = counted.most.max(counted.here));
        let share = share(shape, cpus, memory_mb, (gpus, shards));
        let all = share.0.saturating_mul(u128::from(nodes));
        self.shares = Rate(self.shares.0.saturating_add(all));
        self.largest_share = self.largest_share.max(share);
    }

    /// The resources of all nodes together, or with `on_node` the largest amount of each resource on one
    /// node.
    fn tres(&self, on_node: bool) -> Tres {
        let (nodes, cpus, memory_mb) = match on_node {
            true => (self.nodes.min(1), self.most_cpus, self.most_memory_mb),
            false => (self.nodes, self.cpus, self.memory_mb),
        };
        let mut tres = Tres::default();
        tres.set(TresKind::Cpu, cpus);
        if memory_mb > 0 {
            tres.set(TresKind::Mem, memory_mb);
        }
        tres.set(TresKind::Node, nodes);
        for Counted { name, kind, all, most, .. } in &self.devices {
            tres.add(&gres_of(name, Some(kind), if on_node { *most } else { *all }));
        }
        tres
    }

    /// The amounts, with the licences of the job, and the charge of the tariff.
    pub(crate) fn finish(&self, spec: &JobSpec, tariff: Option<Tariff<'_>>) -> Amounts {
        let tres = self.tres(true);
        let billing = tariff.map_or(Rate::default(), |tariff| tariff.charge(&tres, self.largest_share));
        Amounts { all: self.all(spec, tariff), on_node: Held { tres, billing } }
    }

    /// The resources of all nodes together and the licences of the job, and the charge of the tariff.
    pub(crate) fn all(&self, spec: &JobSpec, tariff: Option<Tariff<'_>>) -> Held {
        let mut tres = self.tres(false);
        add_licenses(&mut tres, spec);
        let billing = tariff.map_or(Rate::default(), |tariff| tariff.charge(&tres, self.shares));
        Held { tres, billing }
    }
}

/// Adds the licences that a job asks for.
pub fn add_licenses(tres: &mut Tres, spec: &JobSpec) {
    for (name, count) in spec.extra.iter().flat_map(|extra| &extra.licenses) {
        tres.set(TresKind::License(name.to_string()), u64::from(*count));
    }
}

/// Devices of one name, counted by name and, if they have a type, also by name and type.
#[must_use]
pub fn gres_of(name: &str, kind: Option<&str>, count: u64) -> Tres {
    let kinds = std::iter::once(None).chain(kind.filter(|kind| !kind.is_empty()).map(Some));
    let named = |kind: Option<&str>| TresKind::Gres { name: name.to_owned(), kind: kind.map(str::to_owned) };
    kinds.map(|kind| (named(kind), count)).collect()
}

/// The CPUs of a node times the largest share of its CPUs, memory or GPUs that a part of the node holds;
/// rounded down to 2^-32. Shared GPUs count as single GPUs, and also by their shards.
fn share(shape: &NodeShape, cpus: u64, memory_mb: u64, (gpus, shards): (u64, u64)) -> Rate {
    let all_cpus = u128::from(shape.cpus);
    let of = |held: u64, all: u64| match all {
        0 => 0,
        all => ((all_cpus * u128::from(held.min(all))) << 32) / u128::from(all),
    };
    let mut largest = Rate::whole(cpus).0.max(of(memory_mb, shape.memory_mb));
    if gpus > 0 || shards > 0 {
        let (mut all_gpus, mut all_shards) = (0, 0);
        for (entry, gres) in shape.gres.iter().enumerate() {
            let (is_gpu, is_shared) = (*gres.name == *"gpu", shape.is_shared(entry));
            all_gpus += if is_gpu { if is_shared { 1 } else { u64::from(gres.count) } } else { 0 };
            all_shards += if is_shared { u64::from(gres.count) } else { 0 };
        }
        largest = largest.max(of(gpus, all_gpus)).max(of(shards, all_shards));
    }
    Rate(largest)
}

/// The resources of a node. Devices count under each type, and under the name for all types.
#[must_use]
pub fn of_node(shape: &NodeShape) -> Tres {
    let mut tres = Tres::default();
    tres.set(TresKind::Cpu, u64::from(shape.cpus));
    tres.set(TresKind::Mem, shape.memory_mb);
    tres.set(TresKind::Node, 1);
    for gres in shape.listed() {
        let typed = Some(gres.kind.to_string()).filter(|kind| !kind.is_empty()).map(Some);
        for kind in [None].into_iter().chain(typed) {
            let kind = TresKind::Gres { name: gres.name.to_string(), kind };
            tres.set(kind.clone(), tres.get(&kind) + u64::from(gres.count));
        }
    }
    tres
}

/// The resources of a proposed start, on nodes of these shapes, with the charge of a tariff.
pub fn proposed<'a>(
    spec: &JobSpec,
    tariff: Tariff<'_>,
    parts: &[StartPart],
    exclusive: bool,
    shape: impl Fn(NodeId) -> Option<&'a NodeShape>,
) -> Amounts {
    let mut count = Count::default();
    for part in parts {
        let Some(shape) = shape(part.node) else { continue };
        let devices = part.gres.iter().map(|(entry, count)| {
            let entry = usize::from(*entry);
            Devices { entry, count: u64::from(*count), shards: has_shards(spec, exclusive, shape, entry) }
        });
        count.add_node(Some(shape), u64::from(part.cpus), part.memory_mb, devices);
    }
    count.finish(spec, Some(tariff))
}

/// True if a job gets shards of a device instead of the whole device.
pub(crate) fn has_shards(spec: &JobSpec, exclusive: bool, shape: &NodeShape, entry: usize) -> bool {
    !exclusive && spec.shape.gets_shards() && shape.is_shared(entry)
}

impl Cluster {
    /// The amount of a resource that the nodes of a partition have; without a partition, the amount that all
    /// nodes and the licences have.
    #[must_use]
    pub fn has_in_all(&self, tres: &TresKind, partition: Option<&Partition>) -> u64 {
        if let (TresKind::License(name), None) = (tres, partition) {
            return self
                .policy
                .licenses
                .iter()
                .filter(|(own, _)| **own == **name)
                .map(|(_, all)| u64::from(*all))
                .sum();
        }
        let is_in = |node: &Node| partition.is_none_or(|one| one.members.contains(node.id.index()));
        let nodes = self.nodes.iter().filter(|node| node.configured && is_in(node));
        nodes.map(|node| of_node(&node.shape).get(tres)).sum()
    }

    /// The trackable resources of the parts of an allocation, without billing.
    #[must_use]
    pub fn held_tres(&self, parts: &[NodeAlloc]) -> Tres {
        self.count_nodes(parts).tres(false)
    }

    /// The resources of the nodes that a job is given in a partition, with the charge of the partition.
    #[must_use]
    pub fn amounts_given(&self, spec: &JobSpec, partition: &Partition, nodes: &[NodeAlloc]) -> Amounts {
        let tariff = Tariff::new(&self.policy.scheduler, &partition.config);
        self.count_nodes(nodes).finish(spec, Some(tariff))
    }

    /// The resources of an allocation, with the charge per second that the allocation records. Nodes that a
    /// job has lost count until the job ends.
    #[must_use]
    pub fn amounts_held(&self, spec: &JobSpec, alloc: &Alloc) -> Amounts {
        let count = self.count_nodes(alloc.nodes.iter().chain(alloc.lost.iter().map(|lost| &lost.part)));
        let mut amounts = count.finish(spec, None);
        amounts.all.billing = alloc.billed();
        amounts
    }

    /// The resources of a start that is proposed in a partition, or for which nodes are kept. Empty if the
    /// partition does not exist.
    #[must_use]
    pub fn amounts_proposed(
        &self,
        spec: &JobSpec,
        partition: &str,
        parts: &[StartPart],
        exclusive: bool,
    ) -> Amounts {
        let Some(partition) = self.partition(partition) else { return Amounts::default() };
        let tariff = Tariff::new(&self.policy.scheduler, &partition.config);
        proposed(spec, tariff, parts, exclusive, |node| self.node(node).map(|node| &*node.shape))
    }

    fn count_nodes<'a>(&self, parts: impl IntoIterator<Item = &'a NodeAlloc>) -> Count<'_> {
        let mut count = Count::default();
        for NodeAlloc { node, cpus, memory_mb, gres, .. } in parts {
            let shape = self.node(*node).map(|node| &*node.shape);
            let devices = gres.iter().map(|gres| Devices {
                entry: usize::from(gres.entry),
                count: u64::from(gres.ids.len()),
                shards: gres.shards,
            });
            count.add_node(shape, u64::from(cpus.len()), *memory_mb, devices);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The charge of four CPUs, 8 GiB of memory and a licence, and the lower bound of the charge.
    fn charged(weights: &str, flags: &[PriorityFlag]) -> (u64, u64) {
        let scheduler = SchedulerPolicy { priority_flags: flags.to_vec(), ..SchedulerPolicy::default() };
        let tres_billing_weights = weights.parse().unwrap();
        let partition = PartitionConfig { tres_billing_weights, ..PartitionConfig::default() };
        let tariff = Tariff::new(&scheduler, &partition);
        let tres = "cpu=4,mem=8G,license/a=1".parse().unwrap();
        (tariff.charge(&tres, Rate::default()).count(), tariff.least(&tres).count())
    }

    #[test]
    fn a_negative_weight_is_a_discount() {
        for (weights, flags, wanted) in [
            ("CPU=2,Mem=0.5G,License/a=3", &[][..], (15, 15)),
            ("CPU=2,Mem=-0.5G", &[], (4, 0)),
            ("CPU=2,Mem=-5G", &[], (0, 0)),
            ("CPU=2,Mem=-5G,License/a=3", &[PriorityFlag::MaxTres], (11, 0)),
            ("CPU=2,License/a=-3", &[PriorityFlag::MaxTres], (5, 0)),
        ] {
            assert_eq!(charged(weights, flags), wanted, "{weights} {flags:?}");
        }
    }
}
