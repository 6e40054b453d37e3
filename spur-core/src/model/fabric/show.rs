//! Data for `scontrol show topology`.

use super::{DomainId, Fabric, Layer};
use crate::model::topology::Plugin;

/// The kind of domain in a line of `scontrol show topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainKind {
    /// A switch of a tree.
    Switch,
    /// A base block of a block topology.
    Block,
    /// Several consecutive base blocks.
    AggregatedBlock,
}

/// Data for one line of `scontrol show topology`. The caller compresses the names of nodes and children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainFacts {
    /// The number of the domain.
    pub id: DomainId,
    /// The kind of the domain.
    pub kind: DomainKind,
    /// Name under which the domain is displayed.
    pub name: String,
    /// Slurm's level: 0 for a leaf.
    pub level: u8,
    /// Slurm's link speed: in Gbit/s if configured, else 1.
    pub link_speed: u64,
    /// Names of the nodes, in fabric order.
    pub nodes: Vec<String>,
    /// Names of the switches directly below.
    pub children: Vec<String>,
    /// Slurm's block index: base blocks first, then the aggregates from the smallest up.
    pub index: u32,
    /// The nominal size in nodes; 0 for a switch.
    pub size: u32,
}

impl Fabric {
    /// The domains that Slurm lists, in its order: switches from the leaves up, in fabric order; base blocks,
    /// then aggregates by size. An incomplete last aggregate is listed only if it is larger than the size
    /// below.
    #[must_use]
    pub fn facts(&self) -> Vec<DomainFacts> {
        let mut facts = Vec::new();
        for layer in (1..self.layer_names().len()).map(|layer| Layer(u8::try_from(layer).unwrap_or(u8::MAX)))
        {
            for id in self.domains_of(layer) {
                if layer == Layer::LEAF || self.plugin() == Plugin::Tree || self.is_listed(id) {
                    facts.push(self.fact(id, u32::try_from(facts.len()).unwrap_or(u32::MAX)));
                }
            }
        }
        facts
    }

    /// True if an aggregate is listed: one with a single member covers no more than the layer below.
    fn is_listed(&self, id: DomainId) -> bool {
        self.domain(id).children().len() > 1
    }

    /// Number of base blocks in a full domain of a layer.
    fn nominal_multiple(&self, layer: Layer) -> u32 {
        self.multiples.get(layer.index()).copied().unwrap_or(0)
    }

    fn fact(&self, id: DomainId, index: u32) -> DomainFacts {
        let domain = self.domain(id);
        let block = self.plugin() == Plugin::Block;
        DomainFacts {
            id,
            kind: match (block, domain.layer()) {
                (false, _) => DomainKind::Switch,
                (true, Layer::LEAF) => DomainKind::Block,
                (true, _) => DomainKind::AggregatedBlock,
            },
            name: domain.name().to_owned(),
            level: domain.layer().0 - 1,
            link_speed: domain.link().speed.map_or(1, |bits| (bits / 1_000_000_000).max(1)),
            nodes: self.names[domain.range()].to_vec(),
            children: domain.children().iter().map(|&child| self.domain(child).name().to_owned()).collect(),
            index,
            size: if block { self.base_size() * self.nominal_multiple(domain.layer()) } else { 0 },
        }
    }
}
