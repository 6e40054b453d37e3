//! The fabric of one topology: its nodes and the forest of domains over them, numbered so that every domain
//! is a contiguous range of positions.
//!
//! Promises: positions follow fabric order (depth first, domains in file order, nodes in the order of their
//! hostlist). Nodes in no domain come last and are only used where the fabric is ignored. Domains are
//! numbered layer by layer, from the bottom up, each layer in fabric order. If a branch lacks a layer, the
//! next domain below counts for that layer. A domain *covers* every layer from its own up to the one below
//! its parent's. Positions and domain numbers are rebuilt with the fabric and never leave the process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::id::NodeId;
use crate::model::topology::{Plugin, TopologyConfig};

mod build;
mod fault;
mod names;
mod shape;
mod show;
mod table;
mod tree;

#[cfg(test)]
mod tests;

pub use fault::{FabricError, Fault};
pub use names::{FunctionError, FunctionNodes, LookupError, PlaceError};
pub use show::{DomainFacts, DomainKind};

/// A position in fabric order, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos(pub u32);

impl Pos {
    /// The position as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The position with this index.
    ///
    /// # Panics
    /// If the index exceeds `u32`, in which positions are counted.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("positions are u32"))
    }
}

/// A layer of the forest: 0 for the nodes, 1 for the leaves or base blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layer(pub u8);

impl Layer {
    /// The layer of the nodes themselves, below all domains.
    pub const NODE: Layer = Layer(0);
    /// The lowest domains: leaf switches or base blocks.
    pub const LEAF: Layer = Layer(1);

    /// The layer as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of a domain in its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

impl DomainId {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A domain: a switch, a base block or an aggregate of blocks.
#[derive(Debug, Clone)]
pub struct Domain {
    full: String,
    shown: Arc<str>,
    layer: Layer,
    cover: Layer,
    range: Range<u32>,
    parent: Option<DomainId>,
    children: Vec<DomainId>,
    /// True if the children have consecutive numbers.
    in_row: bool,
    ordinal: u32,
    link: Link,
}

impl Domain {
    /// The configured name, with the whole path if one was written.
    #[must_use]
    pub fn full_name(&self) -> &str {
        &self.full
    }

    /// The displayed name: the last part of the path if this is unambiguous.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shown
    }

    /// The displayed name, shared.
    #[must_use]
    pub fn shared_name(&self) -> &Arc<str> {
        &self.shown
    }

    /// The domain's own layer.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The highest layer that the domain covers: above its own only if the branch lacks layers.
    #[must_use]
    pub fn cover(&self) -> Layer {
        self.cover
    }

    /// The positions of the domain's nodes.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.start as usize..self.range.end as usize
    }

    /// Number of nodes in the domain, whatever their state.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// The domain that this one is part of; `None` for a root.
    #[must_use]
    pub fn parent(&self) -> Option<DomainId> {
        self.parent
    }

    /// The domains directly below, in fabric order; empty for a leaf or a base block.
    #[must_use]
    pub fn children(&self) -> &[DomainId] {
        &self.children
    }

    /// The numbers of the children if these are consecutive; `None` otherwise, and without children.
    #[must_use]
    pub fn row(&self) -> Option<Range<usize>> {
        let first = self.children.first()?.index();
        self.in_row.then_some(first..first + self.children.len())
    }

    /// Number of the domain within its own layer, empty domains counted.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The configured properties of the domain's links.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }
}

/// Configured properties of the links inside a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Bandwidth in bits per second.
    pub speed: Option<u64>,
    /// Latency between two members in nanoseconds.
    pub latency: Option<u64>,
}

/// The nodes of one topology and the forest of domains over them.
#[derive(Debug, Clone)]
pub struct Fabric {
    name: String,
    plugin: Plugin,
    nodes: Vec<NodeId>,
    names: Vec<String>,
    positions: BTreeMap<NodeId, Pos>,
    by_name: BTreeMap<String, Pos>,
    wired: u32,
    leaf_of: Vec<DomainId>,
    layers: Vec<String>,
    hidden_top: bool,
    domains: Vec<Domain>,
    /// The parent of each domain, apart from the other data because parents are walked often.
    parents: Vec<Option<DomainId>>,
    starts: Vec<u32>,
    roots: Vec<DomainId>,
    base_size: u32,
    multiples: Vec<u32>,
    labels: BTreeMap<String, Vec<DomainId>>,
}

impl Fabric {
    /// Checks a topology against the node table and builds its fabric.
    ///
    /// `nodes` is the node table in its order. `moved` lists nodes that an administrator moved, with the name
    /// of a leaf or block, or `None` for no place.
    ///
    /// # Errors
    /// Every mistake, each with its line and its fix; nothing is silently ignored.
    pub fn build(
        config: &TopologyConfig,
        nodes: &[(NodeId, &str)],
        moved: &[(NodeId, Option<&str>)],
    ) -> Result<Self, Vec<FabricError>> {
        build::build(config, nodes, moved)
    }

    /// A fabric without domains: `--topology=none`, or a cluster without a topology.
    #[must_use]
    pub fn flat(name: &str, nodes: &[(NodeId, &str)]) -> Self {
        build::flat(name, nodes)
    }

    /// The name that partitions and `--topology=` use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin that defines the domains.
    #[must_use]
    pub fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// Number of positions; every node of the table has one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if the fabric has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of positions that are in a domain; these come first.
    #[must_use]
    pub fn wired(&self) -> usize {
        self.wired as usize
    }

    /// The node at a position.
    #[must_use]
    pub fn node(&self, pos: Pos) -> NodeId {
        self.nodes[pos.index()]
    }

    /// The name of the node at a position.
    #[must_use]
    pub fn node_name(&self, pos: Pos) -> &str {
        &self.names[pos.index()]
    }

    /// The position of a node; `None` if the table does not have it.
    #[must_use]
    pub fn pos(&self, node: NodeId) -> Option<Pos> {
        self.positions.get(&node).copied()
    }

    /// The position of the node with this name; `None` if the fabric does not have it.
    #[must_use]
    pub fn pos_named(&self, name: &str) -> Option<Pos> {
        self.by_name.get(name).copied()
    }

    /// The highest layer, including a hidden one; 0 without domains.
    #[must_use]
    pub fn top(&self) -> Layer {
        Layer(u8::try_from(self.layers.len() - 1).expect("a fabric has fewer than 255 layers"))
    }

    /// The names of the layers that users may name, from `node` upwards.
    #[must_use]
    pub fn layer_names(&self) -> &[String] {
        &self.layers[..self.layers.len() - usize::from(self.hidden_top)]
    }

    /// The name of a layer.
    #[must_use]
    pub fn layer_name(&self, layer: Layer) -> &str {
        &self.layers[layer.index()]
    }

    /// The layer with this name; `None` if there is none.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<Layer> {
        let index = self.layer_names().iter().position(|layer| layer == name)?;
        u8::try_from(index).ok().map(Layer)
    }

    /// True if an unnamed domain for the whole block topology is above the named layers.
    #[must_use]
    pub fn has_hidden_top(&self) -> bool {
        self.hidden_top
    }

    /// The domain of this number.
    #[must_use]
    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[id.index()]
    }

    /// Every domain, lowest layer first, each layer in fabric order.
    pub fn domains(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (0..).map(DomainId).zip(self.domains.iter())
    }

    /// The domains whose own layer is `layer`, in fabric order; none for `node` and for layers that do not
    /// exist.
    #[must_use]
    pub fn domains_of(
        &self,
        layer: Layer,
    ) -> impl DoubleEndedIterator<Item = DomainId> + ExactSizeIterator + Clone + use<> {
        self.numbers_of(layer).map(DomainId)
    }

    /// The numbers of a layer's domains; empty if there is no such layer, as in a fabric without nodes.
    fn numbers_of(&self, layer: Layer) -> Range<u32> {
        let starts = layer.index().checked_sub(1).and_then(|below| self.starts.get(below..=layer.index()));
        starts.map_or(0..0, |starts| starts[0]..starts[1])
    }

    /// Calls `see` for the domains of a layer, in fabric order, whose number in `numbers` is at least
    /// `least`. `numbers` is indexed by domain.
    pub fn each_with<T: Copy + PartialOrd>(
        &self,
        layer: Layer,
        numbers: &[T],
        least: T,
        mut see: impl FnMut(DomainId),
    ) {
        const AT_ONCE: usize = 16;
        let all = self.numbers_of(layer);
        let numbers = &numbers[all.start as usize..all.end as usize];
        let firsts = all.step_by(AT_ONCE);
        let (rows, rest) = numbers.as_chunks::<AT_ONCE>();
        for (first, row) in firsts.zip(rows.iter().map(|row| row.as_slice()).chain([rest])) {
            // Mostly none of several neighbours is large enough, which a few instructions determine.
            if row.iter().fold(false, |any, number| any | (*number >= least)) {
                let large = (first..).map(DomainId).zip(row).filter(|(_, number)| **number >= least);
                large.for_each(|(id, _)| see(id));
            }
        }
    }

    /// The domains that cover a layer, in fabric order, including lower ones where a branch lacks the layer.
    #[must_use]
    pub fn domains_covering(&self, layer: Layer) -> Vec<DomainId> {
        let mut found: Vec<DomainId> = (self.domains())
            .filter(|(_, domain)| domain.layer <= layer && layer <= domain.cover)
            .map(|(id, _)| id)
            .collect();
        found.sort_by_key(|&id| (self.domain(id).range.start, self.domain(id).range.end, id));
        found
    }

    /// The domains without a parent, in fabric order: separate fabrics that no job spans.
    #[must_use]
    pub fn roots(&self) -> &[DomainId] {
        &self.roots
    }

    /// The leaf of each position in a domain. Positions beyond the end have none.
    #[must_use]
    pub fn leaves_by_position(&self) -> &[DomainId] {
        &self.leaf_of
    }

    /// The leaf or base block of a position; `None` for a node in no domain.
    #[must_use]
    pub fn leaf_of(&self, pos: Pos) -> Option<DomainId> {
        self.leaf_of.get(pos.index()).copied()
    }

    /// The domain that covers a layer above `node` at a position; `None` for `node`, and for a position in no
    /// such domain.
    #[must_use]
    pub fn domain_at(&self, pos: Pos, layer: Layer) -> Option<DomainId> {
        if layer == Layer::NODE {
            return None;
        }
        self.path_up(pos).find(|&id| self.domain(id).cover >= layer)
    }

    /// The domains that contain a position, from its leaf to its root.
    pub fn path_up(&self, pos: Pos) -> impl Iterator<Item = DomainId> {
        std::iter::successors(self.leaf_of(pos), |&id| self.parents[id.index()])
    }

    /// Number of domains in all layers.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// The domains that have children, lower ones first, each with the numbers of its children if these are
    /// consecutive.
    pub fn inner(&self) -> impl Iterator<Item = (DomainId, &Domain, Option<Range<usize>>)> {
        let first = self.starts.get(1).map_or(self.domains.len(), |first| *first as usize);
        let above = (0..).map(DomainId).zip(&self.domains).skip(first);
        above.filter(|(_, domain)| !domain.children.is_empty()).map(|(id, domain)| (id, domain, domain.row()))
    }

    /// True if `inner` is `outer` or part of it.
    #[must_use]
    pub fn within(&self, inner: DomainId, outer: DomainId) -> bool {
        std::iter::successors(Some(inner), |&id| self.domain(id).parent).any(|id| id == outer)
    }

    /// The ancestor of a domain that covers a layer at or above its own; the domain itself if it covers the
    /// layer.
    #[must_use]
    pub fn covering(&self, id: DomainId, layer: Layer) -> DomainId {
        std::iter::successors(Some(id), |&id| self.domain(id).parent)
            .find(|&id| self.domain(id).cover >= layer)
            .expect("a root covers every layer up to the top")
    }

    /// Number of domains that a set of positions touches in each layer, from `node` to the top. `positions`
    /// is sorted.
    ///
    /// A node in no domain counts as a domain of its own in every layer.
    #[must_use]
    pub fn spans(&self, positions: &[Pos]) -> Vec<u32> {
        let mut spans = vec![0; self.layers.len()];
        // The domain that covers each layer at the previous position.
        let mut last: SmallVec<[Option<DomainId>; 8]> = smallvec![None; self.layers.len()];
        spans[0] = u32::try_from(positions.len()).expect("positions are u32");
        let mut rest = positions;
        while let Some((&first, others)) = rest.split_first() {
            let Some(leaf) = self.leaf_of(first) else {
                spans.iter_mut().skip(1).for_each(|span| *span += 1);
                rest = others;
                continue;
            };
            let end = self.domain(leaf).range().end;
            let beyond = others.iter().position(|pos| pos.index() >= end);
            rest = beyond.map_or(&[], |at| &others[at..]);
            let mut layer = 1;
            for id in self.path_up(first) {
                let cover = self.domain(id).cover.index();
                // Domains above a common domain are equal.
                if last[cover] == Some(id) {
                    break;
                }
                spans[layer..=cover].iter_mut().for_each(|span| *span += 1);
                last[layer..=cover].fill(Some(id));
                layer = cover + 1;
            }
        }
        spans
    }

    /// The lowest domain that contains all positions; `None` if there is none. `positions` is sorted and may
    /// be empty.
    #[must_use]
    pub fn deepest_common(&self, positions: &[Pos]) -> Option<DomainId> {
        let (first, last) = (positions.first()?, positions.last()?);
        self.path_up(*first).find(|&id| self.domain(id).range().contains(&last.index()))
    }

    /// The configured number of nodes in a base block, of which aggregates are multiples; 0 for a tree.
    #[must_use]
    pub fn base_size(&self) -> u32 {
        self.base_size
    }
}
