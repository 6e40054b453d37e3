//! Busy clusters with a long queue: as many running jobs as nodes, each with its own end.
//!
//! Benches and the check of a large plan use them. The same parameters give the same cluster on every
//! machine.

use std::sync::Arc;

use spur_core::id::{JobId, NodeId};
use spur_core::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use spur_core::model::config::{Backfill, Order, Policy, SchedulerPolicy};
use spur_core::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{NodeGres, NodeShape};
use spur_core::text::gres::GresSpec;
use spur_core::text::nodes::NodeCount;

use super::world::{self, World};

/// Number of nodes in a leaf.
const LEAF: u32 = 20;
/// Number of domains below one domain of the next layer.
const FANOUT: u32 = 25;
/// Step that spreads the ends. It is coprime to every number of nodes in use.
const STRIDE: u32 = 7_919;
/// Seconds between two ends.
const APART: u64 = 9;

/// Kind of job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Jobs with `-N`, on whole nodes.
    Whole,
    /// Jobs with `-N`, and with tasks, CPUs, memory and GPUs on each node.
    Shared,
    /// Jobs without `-N`, whose tasks may use any number of nodes.
    Tasks,
}

/// Parameters of a cluster and its queue, and the scheduler's mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    pub(crate) nodes: u32,
    pub(crate) jobs: u32,
    pub(crate) kind: Kind,
    /// Number of layers of domains above the nodes, at least 1. The lowest layer is leaves of 20 nodes. Each
    /// other layer joins 25 domains, or 5 if there are more than three layers, and the highest joins all.
    pub(crate) layers: u32,
    pub(crate) backfill: Backfill,
    /// Number of jobs that a pass examines; 0 for all.
    pub(crate) depth: u32,
}

impl Busy {
    /// Parameters with every job reserved, in a tree of three layers.
    pub(crate) fn conservative(nodes: u32, jobs: u32, kind: Kind) -> Self {
        Self { nodes, jobs, kind, layers: 3, backfill: Backfill::Conservative, depth: 0 }
    }

    /// Builds the cluster.
    pub(crate) fn world(&self) -> World {
        let mut world = World::new(self.policy());
        let mut chance = Chance(1);
        for node in 0..self.nodes {
            let job = JobId(node + 1);
            let end = 600 + u64::from(node * STRIDE % self.nodes) * APART;
            world.submit(job, world::spec(Shape::default(), end));
            let alloc = self.held(&mut chance, NodeId(node));
            world.apply(spur_core::cluster::event::Event::JobStarted {
                job,
                alloc: Arc::new(alloc),
                split: None,
                configuring: Default::default(),
            });
        }
        for job in 0..self.jobs {
            world.submit(JobId(self.nodes + job + 1), self.pending(&mut chance));
        }
        world
    }

    fn policy(&self) -> Policy {
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 8 }];
        let shape =
            NodeShape { cpus: 64, memory_mb: 512_000, threads_per_core: 1, gres, ..NodeShape::default() };
        let names: Vec<Arc<str>> = (0..self.nodes).map(|index| Arc::from(format!("n{index:06}"))).collect();
        let (backfill, depth) = (self.backfill, self.depth);
        Policy {
            nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
            partitions: vec![world::partition("main", names)],
            topologies: vec![world::topology(&self.tree())],
            scheduler: SchedulerPolicy { backfill, depth, order: Order::Fcfs, ..SchedulerPolicy::default() },
            ..Policy::default()
        }
    }

    /// Topology in TOML with the layers `leaf`, `row2`, `row3` and so on.
    fn tree(&self) -> String {
        let names: Vec<String> = (1..=self.layers).map(|layer| format!("{:?}", row(layer))).collect();
        let mut toml = format!("plugin = \"tree\"\nlayers = [{}]\n", names.join(", "));
        let mut below = self.nodes;
        for layer in 1..=self.layers {
            let fanout = match layer {
                _ if layer == self.layers => below,
                1 => LEAF,
                _ if self.layers > 3 => FANOUT / 5,
                _ => FANOUT,
            };
            let count = below.div_ceil(fanout);
            for index in 0..count {
                let (first, last) = (index * fanout, (index * fanout + fanout).min(below) - 1);
                let members = if layer == 1 {
                    format!("nodes = \"n[{first:06}-{last:06}]\"")
                } else {
                    format!("switches = \"{}-[{first}-{last}]\"", row(layer - 1))
                };
                toml += &format!("[[switches]]\nname = \"{}-{index}\"\n{members}\n", row(layer));
            }
            below = count;
        }
        toml
    }

    /// Resources of a node that the node's running job holds.
    fn held(&self, chance: &mut Chance, node: NodeId) -> Alloc {
        let whole = self.kind == Kind::Whole;
        let cpus = if whole { 64 } else { 33 + chance.below(24) };
        let memory_mb = if whole { 0 } else { 100_000 + 16_000 * u64::from(chance.below(16)) };
        let gpus = if whole { 0 } else { 2 * chance.below(4) };
        let gres = (gpus > 0).then(|| GresAlloc { entry: 0, ids: (0..gpus).collect(), shards: false });
        let part = NodeAlloc {
            node,
            tasks: 1,
            cpus: (0..cpus).collect(),
            memory_mb,
            gres: gres.into_iter().collect(),
        };
        Alloc { partition: "main".into(), nodes: vec![part].into(), exclusive: whole, ..Alloc::default() }
    }

    /// A pending job of 2 to 16 nodes. With probability one half it must be in one leaf.
    pub(crate) fn pending(&self, chance: &mut Chance) -> JobSpec {
        let nodes = 2 + chance.below(15);
        let seconds = 600 * (1 + u64::from(chance.below(100)));
        let wish = FabricAsk { gather: Some("must:leaf".parse().unwrap()), ..FabricAsk::default() };
        let fabric = (chance.below(2) == 0).then(|| Box::new(wish));
        let count = Some(NodeCount::exactly(nodes));
        let shape = match self.kind {
            Kind::Whole => Shape { nodes: count, sharing: Sharing::Exclusive, ..Shape::default() },
            Kind::Shared => Shape { nodes: count, ..shared(chance) },
            Kind::Tasks => {
                let mut shape = shared(chance);
                Shape { tasks: shape.tasks_per_node.take().map(|each| each * nodes), ..shape }
            }
        };
        JobSpec { fabric, ..world::spec(shape, seconds) }
    }
}

/// Resources of a job on each node that it shares.
fn shared(chance: &mut Chance) -> Shape {
    Shape {
        tasks_per_node: Some(2 << chance.below(3)),
        cpus_per_task: Some(2 << chance.below(2)),
        memory: Some(MemoryNeed::PerNode(16_000 << chance.below(4))),
        gres: match chance.below(3) {
            0 => Vec::new(),
            count => vec![GresSpec::new("gpu", None, u64::from(count) * 2)],
        },
        ..Shape::default()
    }
}

fn row(layer: u32) -> String {
    if layer == 1 { "leaf".to_owned() } else { format!("row{layer}") }
}

/// A deterministic sequence of pseudo-random numbers.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }
}
