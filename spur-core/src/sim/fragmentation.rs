//! Fragmentation per layer: the share of the free nodes that no request for whole domains of that layer can
//! use.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Layer};

/// Fragmentation of a fabric, updated node by node.
#[derive(Clone, Debug)]
pub struct Fragmentation {
    fabric: Arc<Fabric>,
    /// True for each node, by position, that is idle and can be given work.
    free: Vec<bool>,
    free_nodes: u64,
    /// Number of nodes, by domain, that are not free.
    taken: Vec<u32>,
    /// Number of nodes in domains that are completely free, by layer, from the leaves up.
    whole: Vec<u64>,
}

impl Fragmentation {
    /// Computes the fragmentation from every node of the fabric.
    #[must_use]
    pub fn new(fabric: Arc<Fabric>, cluster: &Cluster) -> Self {
        let domains = fabric.domains().count();
        let mut taken = vec![0; domains];
        for (id, domain) in fabric.domains() {
            taken[id.index()] = domain.size();
        }
        let layers = fabric.layer_names().len() - 1;
        let mut all =
            Self { free: vec![false; fabric.len()], free_nodes: 0, taken, whole: vec![0; layers], fabric };
        for node in cluster.nodes() {
            all.look(cluster, node.id);
        }
        all
    }

    /// Updates a node that may have become free or allocated.
    pub fn look(&mut self, cluster: &Cluster, node: NodeId) {
        let Some(pos) = self.fabric.pos(node).filter(|pos| pos.index() < self.fabric.wired()) else { return };
        let free = cluster.node(node).is_some_and(|node| node.idle() && node.available());
        if self.free[pos.index()] == free {
            return;
        }
        self.free[pos.index()] = free;
        self.free_nodes = if free { self.free_nodes + 1 } else { self.free_nodes - 1 };
        let path: Vec<DomainId> = self.fabric.path_up(pos).collect();
        for id in path {
            let taken = &mut self.taken[id.index()];
            let was_whole = *taken == 0;
            *taken = if free { *taken - 1 } else { *taken + 1 };
            let is_whole = *taken == 0;
            if was_whole != is_whole {
                self.count_whole(id, is_whole);
            }
        }
    }

    fn count_whole(&mut self, id: DomainId, is_whole: bool) {
        let domain = self.fabric.domain(id);
        let size = u64::from(domain.size());
        for layer in domain.layer().index()..=domain.cover().index() {
            if let Some(whole) = self.whole.get_mut(layer - 1) {
                *whole = if is_whole { *whole + size } else { *whole - size };
            }
        }
    }

    /// Names of the layers, from the leaves up.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.fabric.layer_names().iter().skip(1).map(String::as_str)
    }

    /// Share of the free nodes that no request for whole domains can use, for each layer, 0 to 1; 0 if no
    /// node is free.
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let free = self.free_nodes;
        let share = move |whole: &u64| (free - whole) as f64 / free as f64;
        self.whole.iter().map(move |whole| if free == 0 { 0.0 } else { share(whole) })
    }
}

/// Fewest domains of each layer that a job needs if all are free, taking the largest domains first.
#[derive(Clone, Debug)]
pub(super) struct Fewest {
    /// Number of nodes in the largest domain, in the two largest together, and so on; by layer, from the
    /// leaves up.
    reach: Vec<Vec<u64>>,
}

impl Fewest {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let layers = fabric.layer_names().len();
        let reach = (1..layers).map(|layer| {
            let layer = Layer(u8::try_from(layer).expect("a fabric has fewer than 255 layers"));
            let domains = fabric.domains_covering(layer);
            let mut sizes: Vec<u64> = domains.iter().map(|id| u64::from(fabric.domain(*id).size())).collect();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            let mut sum = 0;
            sizes
                .iter()
                .map(|size| {
                    sum += size;
                    sum
                })
                .collect()
        });
        Self { reach: reach.collect() }
    }

    /// Fewest domains for a number of nodes in a layer, counted from the leaves; `None` if the fabric has
    /// fewer nodes.
    pub(super) fn of(&self, layer: usize, nodes: u64) -> Option<u64> {
        let reach = self.reach.get(layer)?;
        let short = reach.partition_point(|sum| *sum < nodes);
        (short < reach.len()).then_some(short as u64 + 1)
    }
}

#[cfg(test)]
impl Fewest {
    pub(super) fn from_sizes(layers: &[&[u64]]) -> Self {
        let sum = |sizes: &&[u64]| {
            sizes
                .iter()
                .scan(0, |sum, size| {
                    *sum += size;
                    Some(*sum)
                })
                .collect()
        };
        Self { reach: layers.iter().map(sum).collect() }
    }
}
