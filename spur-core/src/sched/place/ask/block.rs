//! The block rule: a guarantee by configured size, whatever is free or down now.

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::sched::place::slots::Slots;

/// The largest domain of every layer, over the nodes that are admitted.
///
/// A job that the largest base block could hold gets one base block; otherwise one domain of the lowest layer whose
/// largest domain could hold it (none could: the whole topology), touching at most `ceil(N / s)` domains of the next
/// lower layer, whose largest domain is `s`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRule {
    /// By layer, `node` included: most admitted nodes and most slots of one domain that counts for it.
    largest: Vec<(u32, u64)>,
}

/// Where the block rule wants a job of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Containment {
    /// One domain that counts for this layer holds it; None: the whole topology.
    pub within: Option<Layer>,
    /// It touches at most that many domains of the layer below.
    pub touch: Option<(Layer, u32)>,
}

impl BlockRule {
    /// Measures a fabric over what an idle cluster would offer the job.
    #[must_use]
    pub fn new(fabric: &Fabric, idle: &Slots) -> Self {
        Self::from_sizes(fabric, |id| (idle.nodes_of(id), idle.of(id)))
    }

    /// The rule over sizes of the caller's: nodes and slots of each domain.
    pub(in crate::sched::place) fn from_sizes(
        fabric: &Fabric,
        size: impl Fn(DomainId) -> (u32, u64),
    ) -> Self {
        let mut largest = vec![(0, 0); usize::from(fabric.top().0) + 1];
        for (id, domain) in fabric.domains() {
            let (nodes, slots) = size(id);
            for slot in &mut largest[domain.layer().index()..=domain.cover().index()] {
                slot.0 = slot.0.max(nodes);
                slot.1 = slot.1.max(slots);
            }
        }
        Self { largest }
    }

    /// Where a job of so many nodes and slots belongs; either may be 0 where the job does not say.
    #[must_use]
    pub fn containment(&self, nodes: u32, slots: u64) -> Containment {
        let top = self.largest.len();
        let holds = |&(most_nodes, most_slots): &(u32, u64)| nodes <= most_nodes && slots <= most_slots;
        let within = (1..top).find(|&layer| holds(&self.largest[layer]));
        let layer = |index: usize| Layer(u8::try_from(index).expect("a fabric has fewer than 255 layers"));
        let below = within.unwrap_or(top) - 1;
        let touch = (below > 0).then(|| {
            let (most_nodes, most_slots) = self.largest[below];
            let by_nodes = nodes.div_ceil(most_nodes.max(1));
            let by_slots = u32::try_from(slots.div_ceil(most_slots.max(1))).unwrap_or(u32::MAX);
            (layer(below), by_nodes.max(by_slots).max(1))
        });
        Containment { within: within.map(layer), touch }
    }

    /// The most nodes of one domain that counts for a layer.
    #[must_use]
    pub fn largest(&self, layer: Layer) -> u32 {
        self.largest[layer.index()].0
    }
}
