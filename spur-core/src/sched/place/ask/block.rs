//! The block rule: a guarantee by configured size, whatever is free or down at the moment.

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::sched::place::slots::{Slots, View};

use super::{Ask, Strategy};

/// The sizes of all domains over the admitted nodes, from which the block rule follows.
///
/// A job that the largest base block could hold gets one base block. Otherwise it gets one domain of the
/// lowest layer whose largest domain could hold it, or the whole topology if none could. In that domain it
/// uses no more domains of the next lower layer than the fewest that could hold it; for equal domains of `s`
/// nodes that is `ceil(N / s)`.
#[derive(Debug, Clone)]
pub struct BlockRule<'f> {
    fabric: &'f Fabric,
    /// The number of nodes and of slots of every domain.
    sizes: Vec<(u32, u64)>,
    /// For each layer, `node` included: the most nodes and the most slots of one domain that counts for the
    /// layer.
    largest: Vec<(u32, u64)>,
}

/// The constraints that the rule of the topology adds to an ask for one number of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame {
    /// One domain that counts for this layer, or for a lower one, holds the job; `None`: any root, or the
    /// whole topology.
    pub within: Option<Layer>,
    /// The job uses at most this number of domains of the layer; the block rule sets a limit for the layer
    /// below `within`.
    pub touch: Option<(Layer, u32)>,
    /// Each used domain of the layer gives a multiple of this number of nodes, the size of a segment.
    pub(crate) unit: Option<(Layer, u32)>,
    /// The largest number of nodes in one leaf.
    pub(crate) leaf_nodes: Option<u32>,
}

impl Frame {
    /// The frame of an ask for `nodes` nodes, or for its tasks if `None`: the `must` of the ask and, under
    /// [`Strategy::Block`], the block rule.
    pub(crate) fn of(view: &View<'_>, ask: &Ask, nodes: Option<u32>) -> Self {
        if ask.strategy != Strategy::Block {
            return Self { within: ask.must, ..Self::default() };
        }
        let slots = if nodes.is_some() { 0 } else { u64::from(ask.tasks.unwrap_or(0)) };
        let rule = BlockRule::new(view.fabric, view.idle).containment(nodes.unwrap_or(0), slots);
        Self { within: lower(rule.within, ask.must), ..rule }
    }
}

/// The lower of two layers at which one domain has to hold a job.
pub(crate) fn lower(a: Option<Layer>, b: Option<Layer>) -> Option<Layer> {
    a.into_iter().chain(b).min()
}

impl<'f> BlockRule<'f> {
    /// Measures a fabric by the slots that an idle cluster would offer the job.
    #[must_use]
    pub fn new(fabric: &'f Fabric, idle: &Slots) -> Self {
        Self::from_sizes(fabric, |id| (idle.nodes_of(id), idle.of(id)))
    }

    /// The rule over given sizes: the number of nodes and of slots of each domain.
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

    /// The frame for a job of `nodes` nodes and `slots` slots; either number may be 0 if the job does not
    /// give it.
    #[must_use]
    pub fn containment(&self, nodes: u32, slots: u64) -> Frame {
        let top = self.largest.len();
        let holds = |&(most_nodes, most_slots): &(u32, u64)| nodes <= most_nodes && slots <= most_slots;
        let within = (1..top).find(|&layer| holds(&self.largest[layer])).map(layer);
        let below = within.map_or(top, Layer::index) - 1;
        let touch = (below > 0).then(|| (layer(below), self.fewest(within, layer(below), (nodes, slots))));
        Frame { within, touch, ..Frame::default() }
    }

    /// The fewest domains of layer `below` that could hold the nodes and slots, within one domain of layer
    /// `within` (`None`: within any root).
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
                // A domain that is too small cannot be the holder. Only where no domain of any layer holds
                // the job are all roots tried.
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

    /// The fewest domains of layer `below` within `holder` whose sizes add up to `wanted`; all of them if
    /// their sum is less.
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
