//! The trackable resources (TRES) of a job, which its limits count.

use super::Cluster;
use crate::id::NodeId;
use crate::model::alloc::{Alloc, GresAlloc, NodeAlloc, StartPart};
use crate::model::idset::IdSet;
use crate::model::job::JobSpec;
use crate::model::node::NodeShape;
use crate::text::tres::{Tres, TresKind};

/// The trackable resources of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Of all its nodes together, with its licences and what is billed.
    pub all: Tres,
    /// The largest amount of each resource on one node.
    pub on_node: Tres,
}

impl Amounts {
    /// Adds what a job holds of one node.
    pub fn add_node(
        &mut self,
        shape: &NodeShape,
        cpus: u64,
        memory_mb: u64,
        gres: impl IntoIterator<Item = GresAlloc>,
    ) {
        let mut held = Tres::default();
        held.set(TresKind::Cpu, cpus);
        held.set(TresKind::Node, 1);
        held.set(TresKind::Billing, cpus);
        if memory_mb > 0 {
            held.set(TresKind::Mem, memory_mb);
        }
        for device in gres {
            let Some(called) = shape.called(&device) else { continue };
            held.add(&gres_of(called.name, Some(called.kind), u64::from(called.count)));
        }
        self.all.add(&held);
        for (kind, amount) in held.0 {
            let most = self.on_node.0.entry(kind).or_default();
            *most = amount.max(*most);
        }
    }

    /// Adds the licences that a job asks for.
    pub fn add_licenses(&mut self, spec: &JobSpec) {
        for (name, count) in spec.extra.iter().flat_map(|extra| &extra.licenses) {
            self.all.set(TresKind::License(name.to_string()), u64::from(*count));
        }
    }
}

/// Devices of one name, counted by their name and, where they have one, by their type.
#[must_use]
pub fn gres_of(name: &str, kind: Option<&str>, count: u64) -> Tres {
    let kinds = std::iter::once(None).chain(kind.filter(|kind| !kind.is_empty()).map(Some));
    let named = |kind: Option<&str>| TresKind::Gres { name: name.to_owned(), kind: kind.map(str::to_owned) };
    kinds.map(|kind| (named(kind), count)).collect()
}

impl Cluster {
    /// The resources of an allocation. Nodes that a job has lost count until it ends.
    #[must_use]
    pub fn amounts_held(&self, spec: &JobSpec, alloc: &Alloc) -> Amounts {
        let mut amounts = Amounts::default();
        let lost = alloc.lost.iter().map(|lost| &lost.part);
        for NodeAlloc { node, cpus, memory_mb, gres, .. } in alloc.nodes.iter().chain(lost) {
            let Some(node) = self.node(*node) else { continue };
            amounts.add_node(&node.shape, u64::from(cpus.len()), *memory_mb, gres.iter().cloned());
        }
        amounts.add_licenses(spec);
        amounts
    }

    /// The resources of a start that is proposed, or for which nodes are kept.
    #[must_use]
    pub fn amounts_proposed(&self, spec: &JobSpec, parts: &[StartPart], exclusive: bool) -> Amounts {
        proposed(spec, parts, exclusive, |node| self.node(node).map(|node| &*node.shape))
    }
}

/// The resources of a start that is proposed, on nodes of these shapes.
pub fn proposed<'a>(
    spec: &JobSpec,
    parts: &[StartPart],
    exclusive: bool,
    shape: impl Fn(NodeId) -> Option<&'a NodeShape>,
) -> Amounts {
    let mut amounts = Amounts::default();
    for part in parts {
        let Some(shape) = shape(part.node) else { continue };
        let gres = part.gres.iter().map(|(entry, count)| GresAlloc {
            entry: *entry,
            ids: IdSet::first(*count),
            shards: !exclusive && spec.shape.gets_shards() && shape.is_shared(usize::from(*entry)),
        });
        amounts.add_node(shape, u64::from(part.cpus), part.memory_mb, gres);
    }
    amounts.add_licenses(spec);
    amounts
}
