//! Fragmentation per layer: the share of the free nodes that no request for whole domains of that layer can use.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Layer};

/// How fragmented a fabric is, kept up to date node by node.
#[derive(Clone, Debug)]
pub struct Fragmentation {
    fabric: Arc<Fabric>,
    /// By position: whether the node is idle and can be given work.
    free: Vec<bool>,
    free_nodes: u64,
    /// By domain: nodes that are not free.
    taken: Vec<u32>,
    /// By layer, from the leaves up: nodes in domains that are free as a whole.
    whole: Vec<u64>,
}

impl Fragmentation {
    /// Looks at every node of a fabric.
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

    /// Looks again at a node that may have become free or been taken.
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

    /// The names of the layers, from the leaves up.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.fabric.layer_names().iter().skip(1).map(String::as_str)
    }

    /// For each layer the share of free nodes that no request for whole domains can use, 0 to 1; 0 where none is free.
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let free = self.free_nodes;
        let share = move |whole: &u64| (free - whole) as f64 / free as f64;
        self.whole.iter().map(move |whole| if free == 0 { 0.0 } else { share(whole) })
    }
}

/// The fewest domains of a layer that a job of so many nodes needs, were all of them free: the largest first.
#[derive(Clone, Debug)]
pub(super) struct Fewest {
    /// By layer, from the leaves up: nodes in the largest domains together; the first, the first two, …
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

    /// For a layer counted from the leaves; `None` where the fabric cannot hold so many.
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
