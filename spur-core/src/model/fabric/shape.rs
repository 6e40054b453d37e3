//! Numbering of a checked forest: positions, layers and domains in fabric order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Domain, DomainId, Fabric, Layer, Link, Pos};
use crate::id::NodeId;
use crate::model::topology::Plugin;

/// A domain before it is numbered. Children are indices into the [`Forest`], nodes into the node table.
#[derive(Debug, Default)]
pub(super) struct Seed {
    pub(super) name: String,
    pub(super) level: u8,
    pub(super) children: Vec<usize>,
    pub(super) nodes: Vec<usize>,
    pub(super) link: Link,
}

/// A forest without mistakes: every seed is below exactly one root.
pub(super) struct Forest<'a> {
    pub(super) name: &'a str,
    pub(super) plugin: Plugin,
    pub(super) seeds: Vec<Seed>,
    pub(super) roots: Vec<usize>,
    /// Names of layers, from `node` up to the highest level of any seed.
    pub(super) layers: Vec<String>,
    pub(super) hidden_top: bool,
    pub(super) base_size: u32,
    /// Number of base blocks in a full domain of each layer, `node` included; empty for a tree.
    pub(super) multiples: Vec<u32>,
}

/// Numbers the forest over the node table.
pub(super) fn number(forest: Forest<'_>, table: &[(NodeId, &str)]) -> Fabric {
    let visit = visit_order(&forest);
    let top = u8::try_from(forest.layers.len() - 1).expect("layer names were counted");
    let mut ids = vec![DomainId(0); forest.seeds.len()];
    let mut starts = vec![0; usize::from(top) + 1];
    let mut next = 0;
    for level in 1..=top {
        for &seed in visit.iter().filter(|&&seed| forest.seeds[seed].level == level) {
            ids[seed] = DomainId(next);
            next += 1;
        }
        starts[usize::from(level)] = next;
    }
    let mut order: Vec<usize> = Vec::with_capacity(table.len());
    let mut domains: Vec<Option<Domain>> = forest.seeds.iter().map(|_| None).collect();
    let mut leaf_of = Vec::new();
    for &seed in &visit {
        let id = ids[seed];
        let start = len_u32(order.len());
        order.extend(&forest.seeds[seed].nodes);
        leaf_of.resize(order.len(), id);
        let level = forest.seeds[seed].level;
        let children: Vec<DomainId> = forest.seeds[seed].children.iter().map(|&child| ids[child]).collect();
        domains[id.index()] = Some(Domain {
            full: forest.seeds[seed].name.clone(),
            shown: Arc::default(),
            layer: Layer(level),
            cover: Layer(top),
            range: start..len_u32(order.len()),
            parent: None,
            in_row: children.windows(2).all(|next| next[0].0 + 1 == next[1].0),
            children,
            ordinal: id.0 - starts[usize::from(level) - 1],
            link: forest.seeds[seed].link,
        });
    }
    let mut domains: Vec<Domain> =
        domains.into_iter().map(|domain| domain.expect("every seed is below a root")).collect();
    adopt(&mut domains);
    let labels = label(&mut domains, forest.hidden_top);
    let wired = len_u32(order.len());
    let mut placed = vec![false; table.len()];
    order.iter().for_each(|&index| placed[index] = true);
    order.extend((0..table.len()).filter(|&index| !placed[index]));
    Fabric {
        name: forest.name.to_owned(),
        plugin: forest.plugin,
        nodes: order.iter().map(|&index| table[index].0).collect(),
        names: order.iter().map(|&index| table[index].1.to_owned()).collect(),
        positions: (0..).map(Pos).zip(&order).map(|(pos, &index)| (table[index].0, pos)).collect(),
        by_name: (0..).map(Pos).zip(&order).map(|(pos, &index)| (table[index].1.to_owned(), pos)).collect(),
        wired,
        leaf_of,
        layers: forest.layers,
        hidden_top: forest.hidden_top,
        parents: domains.iter().map(|domain| domain.parent).collect(),
        domains,
        starts,
        roots: forest.roots.iter().map(|&root| ids[root]).collect(),
        base_size: forest.base_size,
        multiples: forest.multiples,
        labels,
    }
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a cluster has fewer than 2^32 nodes")
}

/// Every seed, parents before children, in fabric order.
fn visit_order(forest: &Forest<'_>) -> Vec<usize> {
    let mut order = Vec::with_capacity(forest.seeds.len());
    let mut stack: Vec<usize> = forest.roots.iter().rev().copied().collect();
    while let Some(seed) = stack.pop() {
        order.push(seed);
        stack.extend(forest.seeds[seed].children.iter().rev());
    }
    order
}

/// Sets the parent and the covered layers of children, and the range of parents.
fn adopt(domains: &mut [Domain]) {
    for index in 0..domains.len() {
        let id = DomainId(len_u32(index));
        let layer = domains[index].layer;
        let children = domains[index].children.clone();
        for child in &children {
            domains[child.index()].parent = Some(id);
            domains[child.index()].cover = Layer(layer.0 - 1);
        }
        if let (Some(first), Some(last)) = (children.first(), children.last()) {
            domains[index].range = domains[first.index()].range.start..domains[last.index()].range.end;
        }
    }
}

/// Chooses the displayed names, and indexes domains by every name that denotes them. With a hidden top, the
/// last domain gets no index.
fn label(domains: &mut [Domain], hidden_top: bool) -> BTreeMap<String, Vec<DomainId>> {
    let mut labels: BTreeMap<String, Vec<DomainId>> = BTreeMap::new();
    let named = domains.len() - usize::from(hidden_top);
    for (index, domain) in domains[..named].iter().enumerate() {
        let id = DomainId(len_u32(index));
        labels.entry(domain.full.clone()).or_default().push(id);
        let last = last_part(&domain.full);
        if last != domain.full {
            labels.entry(last.to_owned()).or_default().push(id);
        }
    }
    for domain in domains {
        let last = last_part(&domain.full);
        let alone = labels.get(last).is_some_and(|ids| ids.len() == 1);
        domain.shown = if alone { last.into() } else { domain.full.as_str().into() };
    }
    labels
}

/// The part of a path after its last `/`.
pub(super) fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
