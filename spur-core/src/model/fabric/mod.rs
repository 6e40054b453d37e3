//! The nodes of one topology and the forest of domains over them, numbered so that every domain is a contiguous
//! range of positions.
//!
//! Promises: positions run in fabric order (depth first, domains in file order, nodes in the order their hostlist
//! expands to); nodes in no domain come last and are usable only where the fabric is ignored; domains are numbered
//! layer by layer, from the bottom up, each layer in fabric order. Where a branch lacks a layer, the domain next
//! below counts for it: a domain *covers* every layer from its own up to the one below its parent's. Positions and
//! domain numbers are rebuilt with the fabric and never leave the process.

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

/// A place in fabric order, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos(pub u32);

impl Pos {
    /// The position as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The position of an index.
    ///
    /// # Panics
    ///
    /// Where no fabric is that long: positions are counted in u32.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("positions are u32"))
    }
}

/// A level of the forest: 0 is the nodes, 1 the leaves or base blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layer(pub u8);

impl Layer {
    /// The nodes themselves.
    pub const NODE: Layer = Layer(0);
    /// The lowest domains: leaf switches or base blocks.
    pub const LEAF: Layer = Layer(1);

    /// The layer as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A domain of one fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

impl DomainId {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One unit of a layer: a switch, a base block or an aggregate of blocks.
#[derive(Debug, Clone)]
pub struct Domain {
    full: String,
    shown: Arc<str>,
    layer: Layer,
    cover: Layer,
    range: Range<u32>,
    parent: Option<DomainId>,
    children: Vec<DomainId>,
    /// Whether the children are numbered one after another.
    in_row: bool,
    ordinal: u32,
    link: Link,
}

impl Domain {
    /// The name as configured: the whole path where one was written.
    #[must_use]
    pub fn full_name(&self) -> &str {
        &self.full
    }

    /// The name to show: the last part of the path where that is unambiguous.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shown
    }

    /// The same, for those who keep it.
    #[must_use]
    pub fn shared_name(&self) -> &Arc<str> {
        &self.shown
    }

    /// The domain's own layer.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The highest layer it stands for: higher than its own only where the branch lacks layers.
    #[must_use]
    pub fn cover(&self) -> Layer {
        self.cover
    }

    /// Its positions.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.start as usize..self.range.end as usize
    }

    /// How many nodes it has, whatever their state.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// The domain it is part of.
    #[must_use]
    pub fn parent(&self) -> Option<DomainId> {
        self.parent
    }

    /// The domains it consists of, in fabric order; none for a leaf or a base block.
    #[must_use]
    pub fn children(&self) -> &[DomainId] {
        &self.children
    }

    /// The numbers of these where they follow one another; none if there are none.
    #[must_use]
    pub fn row(&self) -> Option<Range<usize>> {
        let first = self.children.first()?.index();
        self.in_row.then_some(first..first + self.children.len())
    }

    /// Its number among the domains of its own layer, empty ones counted.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// What is known of its links.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }
}

/// What is known of the links inside a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Bits per second.
    pub speed: Option<u64>,
    /// Nanoseconds between two members.
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
    /// By domain, apart from the rest because they are walked often.
    parents: Vec<Option<DomainId>>,
    starts: Vec<u32>,
    roots: Vec<DomainId>,
    base_size: u32,
    multiples: Vec<u32>,
    labels: BTreeMap<String, Vec<DomainId>>,
}

impl Fabric {
    /// Checks a topology against the node table and numbers it.
    ///
    /// `nodes` is the node table in its order; `moved` lists nodes that an administrator put somewhere else than the
    /// configuration says (the name of a leaf or block, or nothing for no place at all).
    ///
    /// # Errors
    /// Every mistake there is, each with its line and its fix; nothing is silently ignored.
    pub fn build(
        config: &TopologyConfig,
        nodes: &[(NodeId, &str)],
        moved: &[(NodeId, Option<&str>)],
    ) -> Result<Self, Vec<FabricError>> {
        build::build(config, nodes, moved)
    }

    /// A fabric without any structure: `--topology=none`, or a cluster that has no topology.
    #[must_use]
    pub fn flat(name: &str, nodes: &[(NodeId, &str)]) -> Self {
        build::flat(name, nodes)
    }

    /// What partitions and `--topology=` call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its nodes hang together.
    #[must_use]
    pub fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// How many positions there are: every node of the table has one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many positions are in some domain; these come first.
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

    /// Where a node is.
    #[must_use]
    pub fn pos(&self, node: NodeId) -> Option<Pos> {
        self.positions.get(&node).copied()
    }

    /// Where the node of that name is.
    #[must_use]
    pub fn pos_named(&self, name: &str) -> Option<Pos> {
        self.by_name.get(name).copied()
    }

    /// The highest layer, hidden ones included; 0 when there is no structure.
    #[must_use]
    pub fn top(&self) -> Layer {
        Layer(u8::try_from(self.layers.len() - 1).expect("a fabric has fewer than 255 layers"))
    }

    /// The names of the layers a user may name, from `node` upwards.
    #[must_use]
    pub fn layer_names(&self) -> &[String] {
        &self.layers[..self.layers.len() - usize::from(self.hidden_top)]
    }

    /// The name of a layer.
    #[must_use]
    pub fn layer_name(&self, layer: Layer) -> &str {
        &self.layers[layer.index()]
    }

    /// The layer of that name.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<Layer> {
        let index = self.layer_names().iter().position(|layer| layer == name)?;
        u8::try_from(index).ok().map(Layer)
    }

    /// Whether the whole of a block topology stands above its named layers as one unnamed domain.
    #[must_use]
    pub fn has_hidden_top(&self) -> bool {
        self.hidden_top
    }

    /// One domain.
    #[must_use]
    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[id.index()]
    }

    /// Every domain, lowest layer first, each layer in fabric order.
    pub fn domains(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (0..).map(DomainId).zip(self.domains.iter())
    }

    /// The domains whose own layer this is, in fabric order; none for `node`, nor for a layer that there is not.
    #[must_use]
    pub fn domains_of(
        &self,
        layer: Layer,
    ) -> impl DoubleEndedIterator<Item = DomainId> + ExactSizeIterator + Clone + use<> {
        self.numbers_of(layer).map(DomainId)
    }

    /// The numbers of these; none where there is no such layer, as in a fabric of no nodes.
    fn numbers_of(&self, layer: Layer) -> Range<u32> {
        let starts = layer.index().checked_sub(1).and_then(|below| self.starts.get(below..=layer.index()));
        starts.map_or(0..0, |starts| starts[0]..starts[1])
    }

    /// Shows the domains of a layer, in fabric order, of which a number is no less than another; `numbers` are those of all
    /// domains, by their own.
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
            // Mostly none of several neighbours has as much, which is told in a few steps.
            if row.iter().fold(false, |any, number| any | (*number >= least)) {
                let large = (first..).map(DomainId).zip(row).filter(|(_, number)| **number >= least);
                large.for_each(|(id, _)| see(id));
            }
        }
    }

    /// The domains that count for a layer, those next below included where a branch lacks it, in fabric order.
    #[must_use]
    pub fn domains_covering(&self, layer: Layer) -> Vec<DomainId> {
        let mut found: Vec<DomainId> = (self.domains())
            .filter(|(_, domain)| domain.layer <= layer && layer <= domain.cover)
            .map(|(id, _)| id)
            .collect();
        found.sort_by_key(|&id| (self.domain(id).range.start, self.domain(id).range.end, id));
        found
    }

    /// The domains without a parent, in fabric order: disjoint fabrics that no job spans.
    #[must_use]
    pub fn roots(&self) -> &[DomainId] {
        &self.roots
    }

    /// The leaf of every position that has one; those that have none come last.
    #[must_use]
    pub fn leaves_by_position(&self) -> &[DomainId] {
        &self.leaf_of
    }

    /// The leaf or base block of a position; none for a node that is in no domain.
    #[must_use]
    pub fn leaf_of(&self, pos: Pos) -> Option<DomainId> {
        self.leaf_of.get(pos.index()).copied()
    }

    /// The domain that counts for a layer above `node` at a position.
    #[must_use]
    pub fn domain_at(&self, pos: Pos, layer: Layer) -> Option<DomainId> {
        if layer == Layer::NODE {
            return None;
        }
        self.path_up(pos).find(|&id| self.domain(id).cover >= layer)
    }

    /// The domains above a position, from its leaf to its root.
    pub fn path_up(&self, pos: Pos) -> impl Iterator<Item = DomainId> {
        std::iter::successors(self.leaf_of(pos), |&id| self.parents[id.index()])
    }

    /// How many domains there are.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// The domains that consist of others, those below before those above, each with the numbers of its children where
    /// these follow one another.
    pub fn inner(&self) -> impl Iterator<Item = (DomainId, &Domain, Option<Range<usize>>)> {
        let first = self.starts.get(1).map_or(self.domains.len(), |first| *first as usize);
        let above = (0..).map(DomainId).zip(&self.domains).skip(first);
        above.filter(|(_, domain)| !domain.children.is_empty()).map(|(id, domain)| (id, domain, domain.row()))
    }

    /// Whether `inner` is `outer` or lies in it.
    #[must_use]
    pub fn within(&self, inner: DomainId, outer: DomainId) -> bool {
        std::iter::successors(Some(inner), |&id| self.domain(id).parent).any(|id| id == outer)
    }

    /// The ancestor of a domain that counts for a layer at or above its own (itself where it covers the layer).
    #[must_use]
    pub fn covering(&self, id: DomainId, layer: Layer) -> DomainId {
        std::iter::successors(Some(id), |&id| self.domain(id).parent)
            .find(|&id| self.domain(id).cover >= layer)
            .expect("a root covers every layer up to the top")
    }

    /// How many domains of each layer a set of positions touches, from `node` to the top; `positions` is sorted.
    ///
    /// A node that is in no domain counts as a domain of its own in every layer.
    #[must_use]
    pub fn spans(&self, positions: &[Pos]) -> Vec<u32> {
        let mut spans = vec![0; self.layers.len()];
        // What counts for each layer at the position before.
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
                // What is above the same domain is the same.
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

    /// The lowest domain that holds all of some positions; `positions` is sorted and may be empty.
    #[must_use]
    pub fn deepest_common(&self, positions: &[Pos]) -> Option<DomainId> {
        let (first, last) = (positions.first()?, positions.last()?);
        self.path_up(*first).find(|&id| self.domain(id).range().contains(&last.index()))
    }

    /// The number of nodes in a base block as configured, of which aggregates are multiples; 0 for a tree.
    #[must_use]
    pub fn base_size(&self) -> u32 {
        self.base_size
    }
}
