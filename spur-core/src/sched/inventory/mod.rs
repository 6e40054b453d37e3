//! The fixed data that a pass reads: nodes, partitions and fabrics. The inventory owns them, so a pass
//! outlives the moment it began, and the cluster may change meanwhile. A cluster keeps its inventory until
//! this data changes ([`Cluster::standing`]). So two passes use the same inventory if and only if none of it
//! has changed.

mod alike;
pub(super) mod amounts;
mod cpu_limits;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use fixedbitset::FixedBitSet;

use crate::cluster::tres::of_node;
use crate::cluster::{Cluster, Partition};
use crate::id::NodeId;
use crate::model::accounts::LimitKind;
use crate::model::config::Policy;
use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::model::job::JobSpec;
use crate::model::node::NodeShape;
use crate::model::reservation::Reservation;
use crate::model::topology::TopologyConfig;
use crate::text::tres::Tres;

use alike::{Accepted, FitUp};
use amounts::{ClassId, Rooms};
use cpu_limits::CpuLimits;

pub(super) use cpu_limits::LimitEntries;

/// The fields of a node that plans use.
#[derive(Clone, Debug)]
pub(super) struct SceneNode {
    pub(super) name: Arc<str>,
    pub(super) shape: Arc<NodeShape>,
    pub(super) class: ClassId,
    /// Number of CPUs of each socket, for CPU numbers.
    pub(super) cpus_per_socket: u32,
    pub(super) weight: u32,
    /// The performance of the node: the share of run time there that was not lost to its failures, in
    /// millionths.
    pub(super) performance: u32,
    pub(super) configured: bool,
    pub(super) available: bool,
}

/// A partition with its fabric.
#[derive(Clone, Debug)]
pub(super) struct ScenePartition {
    pub(super) partition: Partition,
    pub(super) fabric: Arc<Fabric>,
    /// The number of the partition's component, equal for partitions that share nodes: a job that waits in
    /// one may keep jobs of the other waiting.
    pub(super) component: usize,
    /// The classes of its nodes, each once, with the number of nodes of each.
    pub(super) classes: Vec<(ClassId, u32)>,
}

/// The scale of priorities.
#[derive(Clone, Copy, Debug)]
pub struct PriorityScale {
    /// Number of nodes of the cluster.
    pub nodes: u32,
    /// Number of CPUs of the cluster.
    pub cpus: u64,
    /// The largest `priority_job_factor` of any partition.
    pub partition_factor: u32,
    /// The largest `priority` of any QOS.
    pub qos_priority: u32,
    /// The largest `Priority` of any association; 0 if `priority_weight_assoc` is 0.
    pub assoc_priority: u64,
}

/// The addition to the weight of a node whose host is off.
const OFF: u32 = 1 << 31;

/// Nodes, partitions and fabrics.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) policy: Arc<Policy>,
    /// The journal entry since which nodes and their positions are unchanged.
    pub(super) ground: u64,
    pub(super) nodes: Vec<SceneNode>,
    /// The nodes that are out of service.
    pub(super) out: Vec<NodeId>,
    pub(super) partitions: Vec<ScenePartition>,
    /// The fabric of every topology, under the topology's name.
    pub(super) fabrics: Vec<Arc<Fabric>>,
    /// The GPUs of the nodes by position, for each of `fabrics`, computed on first use.
    gpus: Vec<OnceLock<Arc<[u32]>>>,
    /// Reservations of nodes and time, by name.
    pub(super) reservations: Arc<[Arc<Reservation>]>,
    /// The classes of the nodes.
    pub(super) rooms: Rooms,
    /// The limits of partitions on CPUs.
    cpu_limits: CpuLimits,
    /// The scale of priorities.
    pub(super) scale: PriorityScale,
    /// The resources of each partition, computed when a priority first needs them.
    tres: Vec<OnceLock<Tres>>,
    /// Requests that the cluster is known to hold.
    pub(super) accepted: Accepted,
    /// Jobs that no node out of service keeps waiting.
    pub(super) fit_up: FitUp,
    no_topology: TopologyConfig,
}

impl Inventory {
    /// Copies the fixed data of a cluster.
    pub(super) fn new(cluster: &Cluster) -> Self {
        let mut rooms = Rooms::default();
        let cpu_limits = CpuLimits::of(cluster.partitions());
        let nodes = cluster.nodes().iter().map(|node| SceneNode {
            name: Arc::clone(node.name()),
            shape: Arc::clone(&node.shape),
            class: rooms.class(&node.shape, &cpu_limits.capacity(node)),
            cpus_per_socket: node.cpus_per_socket(),
            // Nodes whose hosts are on come first, as with Slurm.
            weight: if node.is_off() { node.config.weight.saturating_add(OFF) } else { node.config.weight },
            performance: node.past.performance(),
            configured: node.configured,
            available: node.available(),
        });
        let nodes: Vec<SceneNode> = nodes.collect();
        let out =
            (0..).map(NodeId).zip(&nodes).filter(|(_, node)| !node.available).map(|(id, _)| id).collect();
        let components = components(cluster.partitions());
        let mut none = None;
        let partitions = cluster.partitions().iter().zip(components);
        let partitions = partitions.map(|(partition, component)| ScenePartition {
            fabric: Arc::clone(
                cluster.fabric_of(partition).unwrap_or_else(|| none.get_or_insert_with(|| flat(cluster))),
            ),
            partition: partition.clone(),
            component,
            classes: {
                let nodes = partition.nodes.iter().map(|id| &nodes[id.index()]);
                count_classes(nodes.filter(|node| node.configured).map(|node| node.class))
            },
        });
        let partitions = partitions.collect();
        let topologies = cluster.topologies().iter();
        let fabrics: Vec<Arc<Fabric>> = topologies.map(|topology| Arc::clone(&topology.fabric)).collect();
        Self {
            scale: scale(cluster),
            policy: Arc::clone(cluster.policy()),
            ground: cluster.ground(),
            nodes,
            out,
            partitions,
            tres: vec![OnceLock::new(); cluster.partitions().len()],
            gpus: vec![OnceLock::new(); fabrics.len()],
            fabrics,
            reservations: cluster.reservations().cloned().collect(),
            rooms,
            cpu_limits,
            accepted: Accepted::default(),
            fit_up: FitUp::default(),
            no_topology: TopologyConfig::default(),
        }
    }

    /// True if two inventories have the same configuration, topologies and reservations. Nodes may be in
    /// service in one and not in the other.
    pub(super) fn is_configured_like(&self, other: &Self) -> bool {
        let are_same = |(one, other): (&Arc<Reservation>, &Arc<Reservation>)| Arc::ptr_eq(one, other);
        self.ground == other.ground
            && Arc::ptr_eq(&self.policy, &other.policy)
            && self.reservations.len() == other.reservations.len()
            && self.reservations.iter().zip(&*other.reservations).all(are_same)
    }

    /// The index of the partition with a name.
    pub(super) fn partition(&self, name: &str) -> Option<usize> {
        self.partitions.iter().position(|inventory| &**inventory.partition.name() == name)
    }

    /// The partitions that a job names, with their indexes; unknown names are left out.
    pub(super) fn partitions_of<'a>(
        &'a self,
        spec: &'a JobSpec,
    ) -> impl Iterator<Item = (usize, &'a Partition)> + Clone {
        let known = spec.partitions.iter().filter_map(|name| self.partition(name));
        known.map(|index| (index, &self.partitions[index].partition))
    }

    /// Everything that a node has, as an amount.
    pub(super) fn full(&self, node: NodeId) -> &[u64] {
        self.rooms.amount(self.rooms.full(self.nodes[node.index()].class))
    }

    /// The entries of amounts that limit the CPUs of a partition's jobs.
    pub(super) fn limit_entries(&self, partition: usize) -> LimitEntries {
        self.cpu_limits.entries(Some(partition))
    }

    /// The entries of amounts that limit the CPUs of the jobs of the partition with a name, which may have
    /// been deleted.
    pub(super) fn limit_entries_named(&self, partition: &str) -> LimitEntries {
        let index = if self.cpu_limits.are_none() { None } else { self.partition(partition) };
        self.cpu_limits.entries(index)
    }

    /// The configuration of a fabric; an empty one for a flat fabric.
    pub(super) fn topology(&self, fabric: &Fabric) -> &TopologyConfig {
        let known = self.policy.topologies.iter().find(|config| config.name == fabric.name());
        known.unwrap_or(&self.no_topology)
    }

    /// The GPUs of the nodes of a topology, by position; `None` for a fabric that belongs to no topology.
    pub(super) fn gpus_on(&self, fabric: &Fabric) -> Option<&Arc<[u32]>> {
        let index = self.fabrics.iter().position(|known| known.name() == fabric.name())?;
        let gpus = |index| self.nodes[fabric.node(Pos::at(index)).index()].shape.gpus();
        Some(self.gpus[index].get_or_init(|| (0..fabric.len()).map(gpus).collect()))
    }

    /// The resources of a partition.
    pub(super) fn tres(&self, partition: usize) -> &Tres {
        self.tres[partition].get_or_init(|| {
            let mut all = Tres::default();
            let nodes = &self.partitions[partition].partition.nodes;
            for node in nodes.iter().map(|id| &self.nodes[id.index()]).filter(|node| node.configured) {
                all.add(&of_node(&node.shape));
            }
            all
        })
    }

    /// The names of nodes, in the order given.
    pub(super) fn names<'a>(&'a self, nodes: impl IntoIterator<Item = NodeId> + 'a) -> Vec<&'a str> {
        nodes.into_iter().filter_map(|id| self.nodes.get(id.index())).map(|node| &*node.name).collect()
    }
}

/// The other nodes of the leaves that contain some nodes.
pub(super) fn others_of_leaves(fabric: &Fabric, nodes: &[NodeId]) -> Vec<NodeId> {
    let leaves = nodes.iter().filter_map(|node| fabric.pos(*node)).filter_map(|pos| fabric.leaf_of(pos));
    let leaves: BTreeSet<DomainId> = leaves.collect();
    let positions = leaves.into_iter().flat_map(|leaf| fabric.domain(leaf).range());
    let ids = positions.map(|index| fabric.node(Pos::at(index)));
    ids.filter(|id| !nodes.contains(id)).collect()
}

/// The fabric on which a job is placed in a partition: the one it names, or the partition's.
pub(super) fn fabric_for<'a>(
    inventory: &'a Inventory,
    partition: usize,
    spec: &JobSpec,
) -> Result<&'a Arc<Fabric>, String> {
    let own = &inventory.partitions[partition].fabric;
    let Some(wanted) = spec.fabric.as_ref().and_then(|wish| wish.topology.as_deref()) else { return Ok(own) };
    if ["tree", "block", "none"].contains(&wanted) {
        return Ok(own);
    }
    inventory.fabrics.iter().find(|fabric| fabric.name() == wanted).ok_or_else(|| {
        let names: Vec<&str> = inventory.fabrics.iter().map(|fabric| fabric.name()).collect();
        format!("there is no topology {wanted}; ask tree, block, none or one of {}", names.join(", "))
    })
}

/// A fabric without structure, for partitions that have no topology.
pub(super) fn flat(cluster: &Cluster) -> Arc<Fabric> {
    let nodes = cluster.nodes().iter().filter(|node| node.configured);
    let nodes: Vec<(NodeId, &str)> = nodes.map(|node| (node.id, &**node.name())).collect();
    Arc::new(Fabric::flat("none", &nodes))
}

fn scale(cluster: &Cluster) -> PriorityScale {
    let configured = || cluster.nodes().iter().filter(|node| node.configured);
    let factors = cluster.partitions().iter().map(|partition| partition.config.priority_job_factor);
    let weighs_associations = cluster.policy().scheduler.priority_weight_assoc > 0;
    let associations = cluster.accounts().associations().filter(|_| weighs_associations);
    PriorityScale {
        nodes: u32::try_from(configured().count()).unwrap_or(u32::MAX),
        cpus: configured().map(|node| u64::from(node.shape.cpus)).sum(),
        partition_factor: factors.max().unwrap_or(0),
        qos_priority: cluster.policy().qos.iter().map(|qos| qos.priority).max().unwrap_or(0),
        assoc_priority: associations
            .filter_map(|one| one.limits.number(LimitKind::Priority))
            .max()
            .unwrap_or(0),
    }
}

/// Each class once, with the number of its occurrences.
pub(super) fn count_classes(all: impl Iterator<Item = ClassId>) -> Vec<(ClassId, u32)> {
    let mut classes: Vec<(ClassId, u32)> = Vec::new();
    for class in all {
        match classes.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => classes.push((class, 1)),
        }
    }
    classes
}

/// A number for each partition, the same for those that share nodes, directly or through others.
fn components(partitions: &[Partition]) -> Vec<usize> {
    let mut numbers: Vec<usize> = Vec::with_capacity(partitions.len());
    let mut covered: Vec<FixedBitSet> = Vec::with_capacity(partitions.len());
    for (index, partition) in partitions.iter().enumerate() {
        numbers.push(index);
        covered.push(partition.members.clone());
        for other in 0..index {
            if numbers[other] == other && !covered[other].is_disjoint(&covered[index]) {
                let theirs = std::mem::take(&mut covered[other]);
                covered[index].union_with(&theirs);
                numbers.iter_mut().filter(|number| **number == other).for_each(|number| *number = index);
            }
        }
    }
    numbers
}
