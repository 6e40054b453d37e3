//! The standing half of what a pass looks at: nodes, partitions and fabrics, owned, so that a pass outlives the
//! moment it was begun and the cluster may change meanwhile. A cluster keeps its scene until it changes
//! ([`Cluster::standing`]), so two passes look at the same one if and only if nothing that stands has changed.

pub(super) mod lens;
pub(super) mod room;

use std::sync::{Arc, OnceLock};

use fixedbitset::FixedBitSet;

use crate::cluster::{Cluster, Partition};
use crate::id::NodeId;
use crate::model::config::Policy;
use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::model::job::{JobSpec, Sharing};
use crate::model::node::NodeShape;
use crate::model::reservation::Reservation;
use crate::model::topology::TopologyConfig;
use crate::sched::feasible::{Accepted, FitUp};
use crate::sched::queue::priority::Scale;
use crate::sched::request::wish::Wisher;
use crate::text::time::Time;

use super::request::{BadRequest, Request};
use room::{ClassId, Rooms};

/// A node as far as plans care.
#[derive(Clone, Debug)]
pub(super) struct SceneNode {
    pub(super) name: Arc<str>,
    pub(super) shape: Arc<NodeShape>,
    pub(super) class: ClassId,
    pub(super) weight: u32,
    /// The share of what ran there that was not lost with it, in millionths.
    pub(super) performance: u32,
    pub(super) configured: bool,
    pub(super) available: bool,
}

/// A partition with its fabric.
#[derive(Clone, Debug)]
pub(super) struct ScenePartition {
    pub(super) partition: Partition,
    pub(super) fabric: Arc<Fabric>,
    /// Partitions that share nodes have the same number: a job that waits in one may keep jobs of the other waiting.
    pub(super) component: usize,
    /// The classes of its nodes, each once, and how many nodes there are of each.
    classes: Vec<(ClassId, u32)>,
}

impl ScenePartition {
    /// The classes of its nodes, each once, and how many nodes there are of each.
    pub(super) fn classes(&self) -> &[(ClassId, u32)] {
        &self.classes
    }
}

/// Nodes, partitions and fabrics.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) policy: Arc<Policy>,
    /// The entry since which nodes are what and where they are.
    pub(super) ground: u64,
    pub(super) nodes: Vec<SceneNode>,
    /// Those that are out of service.
    pub(super) out: Vec<NodeId>,
    pub(super) partitions: Vec<ScenePartition>,
    /// Every topology by name.
    pub(super) fabrics: Vec<(Arc<str>, Arc<Fabric>)>,
    /// For each of these, once it is asked for: the GPUs of its nodes, by position.
    gpus: Vec<OnceLock<Arc<[u32]>>>,
    /// Reservations of nodes and time, by name.
    pub(super) reservations: Arc<[Arc<Reservation>]>,
    /// The classes of the nodes.
    pub(super) rooms: Rooms,
    /// What priorities are measured against.
    pub(super) scale: Scale,
    /// Requests that it is known to hold.
    pub(super) accepted: Accepted,
    /// Jobs that no node out of service keeps waiting.
    pub(super) fit_up: FitUp,
    no_topology: TopologyConfig,
}

impl Scene {
    /// Copies what stands.
    pub(super) fn new(cluster: &Cluster) -> Self {
        let mut rooms = Rooms::default();
        let nodes = cluster.nodes().iter().map(|node| SceneNode {
            name: Arc::clone(node.name()),
            shape: Arc::clone(&node.shape),
            class: rooms.class(&node.shape),
            weight: node.config.weight,
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
            classes: classes(partition, &nodes),
        });
        let partitions = partitions.collect();
        let fabrics = cluster.topologies().iter();
        let fabrics: Vec<(Arc<str>, Arc<Fabric>)> =
            fabrics.map(|topology| (Arc::clone(&topology.name), Arc::clone(&topology.fabric))).collect();
        Self {
            scale: scale(cluster),
            policy: Arc::clone(cluster.policy()),
            ground: cluster.ground(),
            nodes,
            out,
            partitions,
            gpus: vec![OnceLock::new(); fabrics.len()],
            fabrics,
            reservations: cluster.reservations().cloned().collect(),
            rooms,
            accepted: Accepted::default(),
            fit_up: FitUp::default(),
            no_topology: TopologyConfig::default(),
        }
    }

    /// The number of the partition of that name.
    pub(super) fn partition(&self, name: &str) -> Option<usize> {
        self.partitions.iter().position(|scene| &**scene.partition.name() == name)
    }

    /// The fewest nodes of a partition that a job can run on when nothing else does; `None` if it never can.
    pub(super) fn fewest_nodes(&self, index: usize, spec: &JobSpec) -> Option<u32> {
        let partition = &self.partitions[index];
        let request = self.request(index, spec).ok()?;
        let slots =
            |class| request.need.slots(self.rooms.shape(class), self.rooms.amount(self.rooms.full(class)));
        let kinds = partition.classes.iter().map(|(class, count)| (slots(*class), *count)).collect();
        let fewest = fewest_nodes(kinds, request.min_slots())?;
        Some(fewest.max(request.min_nodes()))
    }

    /// What a job needs in a partition. One that has whole leaves to itself by a rule takes nodes whole, too: what it leaves
    /// of them is nobody's.
    ///
    /// # Errors
    /// As [`Request::new`].
    pub(super) fn request(&self, partition: usize, spec: &JobSpec) -> Result<Request, BadRequest> {
        let mut request = Request::new(spec, &self.partitions[partition].partition.config)?;
        request.need.whole |= self.has_whole_rule() && self.has_whole_leaves(partition, spec, &request);
        Ok(request)
    }

    fn has_whole_rule(&self) -> bool {
        self.policy.topologies.iter().any(|config| config.rule.iter().any(|rule| rule.whole))
    }

    /// Whether the job has whole leaves to itself at some time.
    fn has_whole_leaves(&self, partition: usize, spec: &JobSpec, request: &Request) -> bool {
        let Ok(fabric) = fabric_for(self, partition, spec) else { return false };
        let wisher = Wisher { scene: self, partition, fabric, spec, request, gather_with: &[] };
        let stages = wisher.stages(Time::ZERO, Time::ZERO);
        stages.is_ok_and(|stages| stages.iter().any(|stage| stage.ask().whole_leaves))
    }

    /// Whether a job may close to others what it does not use of its leaves.
    pub(super) fn may_close(&self, spec: &JobSpec) -> bool {
        spec.shape.sharing == Sharing::Topo || self.has_whole_rule()
    }

    /// The nodes that a job on some nodes closes to others without using them: the rest of its leaves, where it has
    /// whole leaves to itself.
    pub(super) fn closes(
        &self,
        spec: &JobSpec,
        partition: &str,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Vec<NodeId> {
        if !self.may_close(spec) {
            return Vec::new();
        }
        let Some(partition) = self.partition(partition) else { return Vec::new() };
        let Ok(fabric) = fabric_for(self, partition, spec) else { return Vec::new() };
        let Ok(request) = Request::new(spec, &self.partitions[partition].partition.config) else {
            return Vec::new();
        };
        if !self.has_whole_leaves(partition, spec, &request) {
            return Vec::new();
        }
        others_of_leaves(fabric, &nodes.collect::<Vec<_>>())
    }

    /// How a fabric was configured; a flat one has no configuration.
    pub(super) fn topology(&self, fabric: &Fabric) -> &TopologyConfig {
        let known = self.policy.topologies.iter().find(|config| config.name == fabric.name());
        known.unwrap_or(&self.no_topology)
    }

    /// The GPUs of the nodes of a topology, by position; `None` of a fabric that is no topology's.
    pub(super) fn gpus_on(&self, fabric: &Fabric) -> Option<&Arc<[u32]>> {
        let index = self.fabrics.iter().position(|(name, _)| **name == *fabric.name())?;
        let gpus = |index| {
            let pos = Pos(u32::try_from(index).expect("positions are u32"));
            self.nodes[fabric.node(pos).index()].shape.gpus()
        };
        Some(self.gpus[index].get_or_init(|| (0..fabric.len()).map(gpus).collect()))
    }

    /// The names of nodes, in the order given.
    pub(super) fn names<'a>(&'a self, nodes: impl IntoIterator<Item = NodeId> + 'a) -> Vec<&'a str> {
        nodes.into_iter().filter_map(|id| self.nodes.get(id.index())).map(|node| &*node.name).collect()
    }
}

/// The nodes of the leaves of some nodes, without these.
pub(super) fn others_of_leaves(fabric: &Fabric, nodes: &[NodeId]) -> Vec<NodeId> {
    let leaves = nodes.iter().filter_map(|node| fabric.pos(*node)).filter_map(|pos| fabric.leaf_of(pos));
    let mut leaves: Vec<DomainId> = leaves.collect();
    leaves.sort_unstable();
    leaves.dedup();
    let positions = leaves.into_iter().flat_map(|leaf| fabric.domain(leaf).range());
    let ids = positions.map(|index| fabric.node(Pos(u32::try_from(index).expect("positions are u32"))));
    ids.filter(|id| !nodes.contains(id)).collect()
}

/// The fabric that a job is placed on in a partition: the one it names, or the partition's.
pub(super) fn fabric_for<'a>(
    scene: &'a Scene,
    partition: usize,
    spec: &JobSpec,
) -> Result<&'a Arc<Fabric>, String> {
    let own = &scene.partitions[partition].fabric;
    let Some(wanted) = spec.fabric.as_ref().and_then(|wish| wish.topology.as_deref()) else { return Ok(own) };
    if ["tree", "block", "none"].contains(&wanted) {
        return Ok(own);
    }
    let known = scene.fabrics.iter().find(|(name, _)| **name == *wanted);
    known.map(|(_, fabric)| fabric).ok_or_else(|| {
        let names: Vec<&str> = scene.fabrics.iter().map(|(name, _)| &**name).collect();
        format!("there is no topology {wanted}; ask tree, block, none or one of {}", names.join(", "))
    })
}

/// A fabric without structure, for partitions that have no topology.
pub(super) fn flat(cluster: &Cluster) -> Arc<Fabric> {
    let nodes = cluster.nodes().iter().filter(|node| node.configured);
    let nodes: Vec<(NodeId, &str)> = nodes.map(|node| (node.id, &**node.name())).collect();
    Arc::new(Fabric::flat("none", &nodes))
}

fn scale(cluster: &Cluster) -> Scale {
    let configured = || cluster.nodes().iter().filter(|node| node.configured);
    let factors = cluster.partitions().iter().map(|partition| partition.config.priority_job_factor);
    Scale {
        nodes: u32::try_from(configured().count()).unwrap_or(u32::MAX),
        cpus: configured().map(|node| u64::from(node.shape.cpus)).sum(),
        partition_factor: factors.max().unwrap_or(0),
        qos_priority: cluster.policy().qos.iter().map(|qos| qos.priority).max().unwrap_or(0),
    }
}

/// The classes of the nodes of a partition, and how many there are of each.
fn classes(partition: &Partition, nodes: &[SceneNode]) -> Vec<(ClassId, u32)> {
    let configured = partition.nodes.iter().map(|id| &nodes[id.index()]).filter(|node| node.configured);
    count_classes(configured.map(|node| node.class))
}

/// Each class once, and how often it comes.
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

/// The fewest nodes that hold so many slots when nothing runs, the largest first; `None` if all are not enough. Of each kind of
/// nodes: how many slots one has, and how many there are.
pub(super) fn fewest_nodes(mut kinds: Vec<(u32, u32)>, slots: u64) -> Option<u32> {
    kinds.retain(|(has, _)| *has > 0);
    kinds.sort_by_key(|(has, _)| std::cmp::Reverse(*has));
    let (mut left, mut fewest) = (slots, 0_u64);
    for (has, count) in kinds {
        let (has, count) = (u64::from(has), u64::from(count));
        let some = left.div_ceil(has).min(count);
        (left, fewest) = (left.saturating_sub(some * has), fewest + some);
    }
    if left == 0 { u32::try_from(fewest).ok() } else { None }
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
