//! The block rule: a guarantee by configured size, whatever is free or down now.

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::sched::place::slots::{Slots, View};

use super::{Ask, Strategy};

/// What every domain could hold, over the nodes that are admitted.
///
/// A job that the largest base block could hold gets one base block; otherwise one domain of the lowest layer whose
/// largest domain could hold it (none could: the whole topology), touching no more domains of the next lower layer than
/// the fewest that could hold it: of equal ones of `s` nodes, `ceil(N / s)`.
#[derive(Debug, Clone)]
pub struct BlockRule<'f> {
    fabric: &'f Fabric,
    /// The nodes and slots of every domain.
    sizes: Vec<(u32, u64)>,
    /// By layer, `node` included: the most nodes and the most slots of one domain that counts for it.
    largest: Vec<(u32, u64)>,
}

/// What the rule of the topology adds to an ask for one number of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame {
    /// One domain that counts for this layer, or a lower one, holds the job; None: any root, or the whole topology.
    pub within: Option<Layer>,
    /// At most that many domains of the layer: where the block rule says so, of the one below.
    pub touch: Option<(Layer, u32)>,
    /// Domains of the layer hold multiples of so many nodes: the segments.
    pub(crate) unit: Option<(Layer, u32)>,
    /// At most so many nodes of one leaf.
    pub(crate) leaf_nodes: Option<u32>,
}

impl Frame {
    /// The lowest layer that has to hold the job, and the limit that the block rule sets on the layer below.
    pub(crate) fn of(view: &View<'_>, ask: &Ask, nodes: Option<u32>) -> Self {
        if ask.strategy != Strategy::Block {
            return Self { within: ask.must, ..Self::default() };
        }
        let slots = if nodes.is_some() { 0 } else { u64::from(ask.tasks.unwrap_or(0)) };
        let rule = BlockRule::new(view.fabric, view.idle).containment(nodes.unwrap_or(0), slots);
        Self { within: lower(rule.within, ask.must), ..rule }
    }
}

/// The lower of two layers that have to hold a job.
pub(crate) fn lower(a: Option<Layer>, b: Option<Layer>) -> Option<Layer> {
    a.into_iter().chain(b).min()
}

impl<'f> BlockRule<'f> {
    /// Measures a fabric over what an idle cluster would offer the job.
    #[must_use]
    pub fn new(fabric: &'f Fabric, idle: &Slots) -> Self {
        Self::from_sizes(fabric, |id| (idle.nodes_of(id), idle.of(id)))
    }

    /// The rule over sizes of the caller's: nodes and slots of each domain.
    pub(crate) fn from_sizes(fabric: &'f Fabric, size: impl Fn(DomainId) -> (u32, u64)) -> Self {
        let mut largest = vec![(0, 0); usize::from(fabric.top().0) + 1];
        let mut sizes = Vec::with_capacity(fabric.domain_count());
        for (id, domain) in fabric.domains() {
            let (nodes, slots) = size(id);
            sizes.push((nodes, slots));
            for slot in &mut largest[domain.layer().index()..=domain.cover().index()] {
                slot.0 = slot.0.max(nodes);
                slot.1 = slot.1.max(slots);
            }
        }
        Self { fabric, sizes, largest }
    }

    /// Where a job of so many nodes and slots belongs; either may be 0 where the job does not say.
    #[must_use]
    pub fn containment(&self, nodes: u32, slots: u64) -> Frame {
        let top = self.largest.len();
        let holds = |&(most_nodes, most_slots): &(u32, u64)| nodes <= most_nodes && slots <= most_slots;
        let within = (1..top).find(|&layer| holds(&self.largest[layer])).map(layer);
        let below = within.map_or(top, Layer::index) - 1;
        let touch = (below > 0).then(|| (layer(below), self.fewest(within, layer(below), (nodes, slots))));
        Frame { within, touch, ..Frame::default() }
    }

    /// The fewest domains of a layer, below one domain of another (any root), that could hold so many nodes and slots.
    fn fewest(&self, within: Option<Layer>, below: Layer, (nodes, slots): (u32, u64)) -> u32 {
        let fewest = |wanted: u64, size: fn(&(u32, u64)) -> u64| {
            let most = self.largest[below.index()];
            let never_fewer = wanted.div_ceil(size(&most).max(1)).max(1);
            let mut best = u64::MAX;
            for (id, domain) in self.fabric.domains() {
                let is_holder = match within {
                    Some(layer) => (domain.layer()..=domain.cover()).contains(&layer),
                    None => domain.parent().is_none(),
                };
                // Where no domain holds the job, all of one do not, either, and there is nothing to limit.
                if !is_holder || within.is_some() && size(&self.sizes[id.index()]) < wanted {
                    continue;
                }
                best = best.min(self.fewest_below(id, below, wanted, size));
                if best <= never_fewer {
                    break;
                }
            }
            u32::try_from(best).unwrap_or(u32::MAX)
        };
        let by_nodes = fewest(nodes.into(), |(nodes, _)| u64::from(*nodes));
        if slots == 0 { by_nodes } else { by_nodes.max(fewest(slots, |(_, slots)| *slots)) }
    }

    /// The same below one domain; all of them where they do not hold as much.
    fn fewest_below(&self, holder: DomainId, below: Layer, wanted: u64, size: fn(&(u32, u64)) -> u64) -> u64 {
        let (mut units, mut open) = (Vec::new(), vec![holder]);
        while let Some(id) = open.pop() {
            let domain = self.fabric.domain(id);
            if domain.layer() <= below || domain.children().is_empty() {
                units.push(size(&self.sizes[id.index()]));
            } else {
                open.extend(domain.children());
            }
        }
        units.sort_unstable_by(|one, other| other.cmp(one));
        let mut sum = 0;
        let reached = units.iter().position(|unit| {
            sum += unit;
            sum >= wanted
        });
        reached.map_or(units.len(), |last| last + 1).max(1) as u64
    }

    /// The most nodes of one domain that counts for a layer.
    #[must_use]
    pub fn largest(&self, layer: Layer) -> u32 {
        self.largest[layer.index()].0
    }
}

fn layer(index: usize) -> Layer {
    Layer(u8::try_from(index).expect("a fabric has fewer than 255 layers"))
}
