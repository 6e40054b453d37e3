//! The policy in force and the edits that commands made to partitions and nodes, which [`merge`] combines
//! when the policy changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::event::Event;
use super::{Cluster, Derived, Node, Partition};
use crate::id::NodeId;
use crate::model::config::merge::{self, Merged};
use crate::model::config::{NodeConfig, PartitionConfig, PartitionState, Policy};
use crate::text::hostlist::HostList;

impl Cluster {
    /// Puts a policy in force. With `keeps_edits`, edits of commands stay where the file is unchanged;
    /// otherwise the file replaces all of them.
    pub(super) fn set_policy(&mut self, policy: &Arc<Policy>, keeps_edits: bool) {
        self.derived = Derived::default();
        self.mark.ground = self.mark.seq;
        self.forget_moves(policy);
        let partitions = match keeps_edits {
            true => self.merged_partitions(policy).all,
            false => policy.partitions.clone(),
        };
        self.partitions = partitions.into_iter().map(Partition::of).collect();
        let before = std::mem::replace(&mut self.policy, Arc::clone(policy));
        self.usage.shares = OnceLock::new();
        self.take_qos_of_tree();
        let was: BTreeMap<&str, &NodeConfig> = by_name(&before);
        for node in &mut self.nodes {
            node.configured &= !was.contains_key(&*node.config.name);
        }
        for config in &policy.nodes {
            let known = self.names.get(&config.name).filter(|_| keeps_edits);
            let known = known.map(|id| &self.nodes[id.index()].config);
            let merged = known.zip(was.get(&*config.name)).map(|(is, was)| merge::node(was, is, config).0);
            self.put_node(merged.unwrap_or_else(|| config.clone()));
        }
        self.drop_nominations(|_, _| true);
        self.derive();
        self.count_all();
    }

    fn merged_partitions(&self, policy: &Policy) -> Merged<PartitionConfig> {
        let now = self.partitions.iter().map(|partition| &partition.config);
        merge::partitions(&self.policy.partitions, now, &policy.partitions)
    }

    /// The edits of partitions and nodes that another policy undoes, one sentence each.
    #[must_use]
    pub fn edits_undone_by(&self, policy: &Policy) -> Vec<String> {
        let mut undone = self.merged_partitions(policy).undone;
        let was = by_name(&self.policy);
        let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for config in &policy.nodes {
            let is = self.node_named(&config.name).filter(|node| node.configured).map(|node| &node.config);
            let Some((was, is)) = was.get(&*config.name).zip(is) else { continue };
            for key in merge::node(was, is, config).1 {
                nodes.entry(key).or_default().push(&config.name);
            }
        }
        undone.extend(nodes.into_iter().map(|(key, names)| {
            let names = HostList::from_names(names);
            format!("nodes {names}: {key} is what the file says; scontrol had changed it")
        }));
        undone
    }

    /// True if an operator has created the node and the configuration does not name it.
    #[must_use]
    pub fn is_created(&self, node: &Node) -> bool {
        node.configured && !self.policy.nodes.iter().any(|config| config.name == *node.name())
    }

    /// Applies the creation, change or deletion of nodes and partitions by an operator.
    pub(super) fn apply_edit(&mut self, event: &Event) {
        match event {
            Event::NodesCreated { nodes } => self.create_nodes(nodes),
            Event::NodesDeleted { nodes } => self.delete_nodes(nodes),
            Event::PartitionSet { partition, state } => self.set_partition(partition, *state),
            Event::PartitionEdited { partition } => self.edit_partition(partition),
            Event::PartitionDeleted { name } => self.delete_partition(name),
            _ => {}
        }
    }

    fn create_nodes(&mut self, nodes: &[NodeConfig]) {
        self.change_nodes(|cluster| nodes.iter().for_each(|config| cluster.put_node(config.clone())));
    }

    fn delete_nodes(&mut self, nodes: &[NodeId]) {
        let gone: BTreeSet<NodeId> = nodes.iter().copied().collect();
        self.change_nodes(|cluster| {
            for id in &gone {
                if let Some(node) = cluster.nodes.get_mut(id.index()) {
                    node.configured = false;
                }
            }
            for partition in &mut cluster.partitions {
                let stays = |name: &Arc<str>| cluster.names.get(name).is_none_or(|id| !gone.contains(id));
                partition.config.nodes.retain(stays);
            }
        });
    }

    /// Changes the set of nodes, and recomputes everything that depends on it.
    fn change_nodes(&mut self, change: impl FnOnce(&mut Self)) {
        self.derived = Derived::default();
        self.mark.ground = self.mark.seq;
        change(self);
        self.drop_nominations(|_, _| true);
        self.derive();
    }

    /// Sets the configuration of a node; a new name gets the next number.
    fn put_node(&mut self, config: NodeConfig) {
        match self.names.get(&config.name) {
            Some(id) => {
                let node = &mut self.nodes[id.index()];
                node.config = config;
                node.configured = true;
                node.reshape();
            }
            None => {
                let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
                self.names.insert(Arc::clone(&config.name), id);
                self.nodes.push(Node::new(id, config));
            }
        }
    }

    fn set_partition(&mut self, name: &str, state: PartitionState) {
        let Some(found) = self.partitions.iter_mut().find(|found| **found.name() == *name) else { return };
        self.derived = Derived::default();
        found.config.state = state;
        if !found.starts() {
            self.drop_nominations(|_, nomination| *nomination.partition == *name);
        }
    }

    /// Creates a partition, or replaces its configuration.
    fn edit_partition(&mut self, config: &PartitionConfig) {
        self.derived = Derived::default();
        self.mark.ground = self.mark.seq;
        if config.default {
            self.partitions.iter_mut().for_each(|other| other.config.default = false);
        }
        let edited = self.resolved(config.clone());
        match self.partitions.iter_mut().find(|found| *found.name() == config.name) {
            Some(found) => *found = edited,
            None => self.partitions.push(edited),
        }
        self.drop_nominations(|_, _| true);
        self.derive_reservations();
        self.count_all();
    }

    fn delete_partition(&mut self, name: &str) {
        self.derived = Derived::default();
        self.mark.ground = self.mark.seq;
        self.partitions.retain(|partition| **partition.name() != *name);
        self.drop_nominations(|_, _| true);
        self.derive_reservations();
        self.count_all();
    }

    /// Rebuilds topologies, partitions and reservations from the policy and the nodes.
    pub(super) fn derive(&mut self) {
        self.derive_topologies();
        let partitions = std::mem::take(&mut self.partitions);
        self.partitions = partitions.into_iter().map(|partition| self.resolved(partition.config)).collect();
        self.derive_reservations();
    }

    /// A partition with its names resolved to numbers.
    fn resolved(&self, mut config: PartitionConfig) -> Partition {
        if config.all_nodes {
            let has: BTreeSet<Arc<str>> = config.nodes.iter().cloned().collect();
            let created = self.nodes.iter().filter(|node| node.configured && !has.contains(node.name()));
            config.nodes.extend(created.map(|node| Arc::clone(node.name())));
        }
        let mut partition = Partition::of(config);
        let ids = partition.config.nodes.iter().filter_map(|name| self.names.get(name).copied());
        partition.nodes = ids.filter(|id| self.nodes[id.index()].configured).collect();
        partition.members = fixedbitset::FixedBitSet::with_capacity(self.nodes.len());
        partition.members.extend(partition.nodes.iter().map(|id| id.index()));
        let wanted = partition.config.topology.as_deref().unwrap_or("default");
        partition.topology = self.topologies.iter().position(|topology| &*topology.name == wanted);
        partition
    }
}

fn by_name(policy: &Policy) -> BTreeMap<&str, &NodeConfig> {
    policy.nodes.iter().map(|config| (&*config.name, config)).collect()
}

impl Node {
    /// Applies a change of the node's properties by an operator.
    pub(super) fn update(&mut self, event: &Event) {
        let Event::NodeUpdated { weight, features, gres, comment, extra, .. } = event else { return };
        if let Some(weight) = weight {
            self.config.weight = *weight;
        }
        if let Some(features) = features {
            self.config.shape.features.clone_from(features);
        }
        if let Some(gres) = gres {
            self.config.shape.gres.clone_from(gres);
        }
        if let Some(comment) = comment {
            self.comment = Arc::clone(comment);
        }
        if let Some(extra) = extra {
            self.extra = Arc::clone(extra);
        }
        self.reshape();
    }
}
