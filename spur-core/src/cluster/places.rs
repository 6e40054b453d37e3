//! Places of nodes: topologies, as they follow from the policy and the moves that operators made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Cluster, Derived, PlacesByTopology, Topology};
use crate::id::NodeId;
use crate::model::config::Policy;
use crate::model::fabric::Fabric;
use crate::model::topology::TopologyConfig;

impl Cluster {
    /// Moves nodes in some topologies: to a leaf or base block, or to no place.
    pub(super) fn move_nodes(&mut self, nodes: &[NodeId], places: &PlacesByTopology) {
        self.derived = Derived::default();
        self.mark.ground = self.mark.seq;
        for id in nodes {
            let Some(node) = self.nodes.get_mut(id.index()) else { continue };
            node.places.extend(places.iter().map(|(topology, place)| (Arc::clone(topology), place.clone())));
        }
        self.drop_nominations(|_, _| true);
        self.derive_topologies();
    }

    /// Checks that all topologies can be built after further moves, each a node with its new places.
    ///
    /// # Errors
    /// The first mistake, such as a new leaf that a topology cannot have.
    pub(crate) fn check_moves(&self, moves: &BTreeMap<NodeId, &PlacesByTopology>) -> Result<(), String> {
        let configured = self.nodes.iter().filter(|node| node.configured);
        let nodes: Vec<(NodeId, &str)> = configured.map(|node| (node.id, &**node.name())).collect();
        for config in &self.policy.topologies {
            let built = Fabric::build(config, &nodes, &self.moved_in(&config.name, moves));
            built.map_err(|faults| faults.first().map_or_else(String::new, ToString::to_string))?;
        }
        Ok(())
    }

    /// The moved nodes of a topology with their places; `moves` replaces earlier places.
    fn moved_in<'a>(
        &'a self,
        topology: &str,
        moves: &BTreeMap<NodeId, &'a PlacesByTopology>,
    ) -> Vec<(NodeId, Option<&'a str>)> {
        let place = |node: &'a super::Node| {
            let new = moves.get(&node.id).and_then(|places| places.get(topology));
            Some((node.id, new.or_else(|| node.places.get(topology))?.as_deref()))
        };
        self.nodes.iter().filter(|node| node.configured).filter_map(place).collect()
    }

    /// The moves of operators that another policy undoes, as node and topology. A move is undone if the new
    /// policy describes the topology differently or no longer names the node. A topology that only cuts the
    /// nodes into blocks changes with the list of nodes.
    #[must_use]
    pub fn moves_undone_by(&self, policy: &Policy) -> Vec<(NodeId, Arc<str>)> {
        if self.nodes.iter().all(|node| node.places.is_empty()) {
            return Vec::new();
        }
        let named: BTreeSet<&str> = policy.nodes.iter().map(|config| &*config.name).collect();
        let known: BTreeSet<&str> = self.policy.nodes.iter().map(|config| &*config.name).collect();
        let mut same: BTreeMap<&str, bool> = BTreeMap::new();
        let mut undone = Vec::new();
        for node in &self.nodes {
            for topology in node.places.keys() {
                let says = || says_the_same(&self.policy, policy, topology);
                let name = &**node.name();
                let gone = known.contains(name) && !named.contains(name);
                if gone || !*same.entry(topology).or_insert_with(says) {
                    undone.push((node.id, Arc::clone(topology)));
                }
            }
        }
        undone
    }

    /// Drops the moves of operators that another policy undoes.
    pub(super) fn forget_moves(&mut self, policy: &Policy) {
        for (node, topology) in self.moves_undone_by(policy) {
            self.nodes[node.index()].places.remove(&topology);
        }
    }

    /// Rebuilds the fabrics from the policy and the operators' moves. A fabric that cannot be built is
    /// refused before it becomes an event. Should a later release check more strictly, the moves are ignored,
    /// or else the topology is left out and its partitions are flat.
    pub(super) fn derive_topologies(&mut self) {
        let configured = || self.nodes.iter().filter(|node| node.configured);
        let nodes: Vec<(NodeId, &str)> = configured().map(|node| (node.id, &**node.name())).collect();
        let build = |config: &TopologyConfig| {
            let moved = self.moved_in(&config.name, &BTreeMap::new());
            let fabric =
                Fabric::build(config, &nodes, &moved).or_else(|_| Fabric::build(config, &nodes, &[]));
            Some(Topology { name: config.name.as_str().into(), fabric: Arc::new(fabric.ok()?) })
        };
        self.topologies = self.policy.topologies.iter().filter_map(build).collect();
    }
}

/// True if two policies put all nodes into the same places of a topology.
fn says_the_same(one: &Policy, other: &Policy, topology: &str) -> bool {
    let written = |policy: &Policy| -> Option<TopologyConfig> {
        policy.topologies.iter().find(|config| config.name == topology).cloned()
    };
    let cut = |config: &TopologyConfig| config.switches.is_empty() && config.blocks.is_empty();
    let names = |policy: &Policy| -> Vec<Arc<str>> {
        policy.nodes.iter().map(|node| Arc::clone(&node.name)).collect()
    };
    let (Some(before), Some(after)) = (written(one), written(other)) else { return false };
    before == after && (!cut(&after) || names(one) == names(other))
}
