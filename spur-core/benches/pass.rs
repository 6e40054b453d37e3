//! How long a pass takes: busy clusters with a long queue.
//!
//! `cargo bench -p spur-core --bench pass`. Nodes stand in a tree of leaves of 20, pods of 25 leaves and one top. As
//! many jobs run as there are nodes, all with different ends.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::sync::Arc;

use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{Backfill, Order, PartitionConfig, Policy, PreemptBy, SchedulerPolicy};
use spur_core::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{NodeGres, NodeShape};
use spur_core::sched::forecast::Limits;
use spur_core::sched::{self, Planner};
use spur_core::text::gres::GresSpec;
use spur_core::text::nodes::NodeCount;
use world::World;

fn main() {
    divan::main();
}

/// A fixed sequence of numbers that look random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn policy(nodes: u32, backfill: Backfill, depth: u32) -> Policy {
    let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 8 }];
    let shape = NodeShape { cpus: 64, memory_mb: 512_000, threads_per_core: 1, gres, ..NodeShape::default() };
    let names: Vec<Arc<str>> = (0..nodes).map(|index| Arc::from(format!("n{index:05}"))).collect();
    let (leaves, mut toml) =
        (nodes.div_ceil(20), String::from("plugin = \"tree\"\nlayers = [\"leaf\", \"pod\", \"top\"]\n"));
    for leaf in 0..leaves {
        let (first, last) = (leaf * 20, (leaf * 20 + 19).min(nodes - 1));
        toml += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first:05}-{last:05}]\"\n");
    }
    let pods = leaves.div_ceil(25);
    for pod in 0..pods {
        let (first, last) = (pod * 25, (pod * 25 + 24).min(leaves - 1));
        toml += &format!("[[switches]]\nname = \"p{pod}\"\nswitches = \"l[{first}-{last}]\"\n");
    }
    toml += &format!("[[switches]]\nname = \"top\"\nswitches = \"p[0-{}]\"\n", pods - 1);
    Policy {
        nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
        partitions: vec![world::partition("main", names)],
        topologies: vec![world::topology(&toml)],
        scheduler: SchedulerPolicy { backfill, depth, order: Order::Fcfs, ..SchedulerPolicy::default() },
        ..Policy::default()
    }
}

/// A cluster on which every node runs a job, and a queue.
fn busy(nodes: u32, jobs: u32, shared: bool, backfill: Backfill, depth: u32) -> World {
    let mut world = World::new(policy(nodes, backfill, depth));
    let mut chance = Chance(1);
    let mut next = 1;
    for node in 0..nodes {
        world.submit(JobId(next), world::spec(Shape::default(), 600 + chance.below(86_400)));
        let cpus = if shared { 33 + u32::try_from(chance.below(24)).unwrap() } else { 0 };
        world.put(JobId(next), &[NodeId(node)], cpus);
        next += 1;
    }
    for _ in 0..jobs {
        world.submit(JobId(next), pending(&mut chance, shared));
        next += 1;
    }
    world
}

fn pending(chance: &mut Chance, shared: bool) -> JobSpec {
    let nodes = u32::try_from(1 + chance.below(16)).unwrap();
    let seconds = 600 * (1 + chance.below(100));
    let shape = if shared {
        Shape {
            nodes: Some(NodeCount::exactly(nodes)),
            tasks_per_node: Some([2, 4, 8][usize::try_from(chance.below(3)).unwrap()]),
            cpus_per_task: Some([2, 4][usize::try_from(chance.below(2)).unwrap()]),
            memory: Some(MemoryNeed::PerNode(16_000 << chance.below(4))),
            gres: match chance.below(3) {
                0 => Vec::new(),
                count => vec![GresSpec::new("gpu", None, count * 2)],
            },
            ..Shape::default()
        }
    } else {
        let nodes = Some(NodeCount::exactly(nodes));
        Shape { nodes, sharing: Sharing::Exclusive, ..Shape::default() }
    };
    let wish = FabricAsk { gather: Some("must:leaf".parse().unwrap()), ..FabricAsk::default() };
    let fabric = (chance.below(2) == 0).then(|| Box::new(wish));
    JobSpec { fabric, ..world::spec(shape, seconds) }
}

#[divan::bench(args = [(1_000, 1_000), (10_000, 10_000)], sample_count = 3)]
fn conservative_whole_nodes(bencher: divan::Bencher<'_, '_>, (nodes, jobs): (u32, u32)) {
    let world = busy(nodes, jobs, false, Backfill::Conservative, 0);
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [(1_000, 1_000), (10_000, 10_000)], sample_count = 3)]
fn conservative_shared_nodes(bencher: divan::Bencher<'_, '_>, (nodes, jobs): (u32, u32)) {
    let world = busy(nodes, jobs, true, Backfill::Conservative, 0);
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn easy_1000_of_10000_on_10000(bencher: divan::Bencher<'_, '_>, shared: bool) {
    let world = busy(10_000, 10_000, shared, Backfill::Easy, 1_000);
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn start_now_of_10000_on_10000(bencher: divan::Bencher<'_, '_>, shared: bool) {
    let world = busy(10_000, 10_000, shared, Backfill::Easy, 1_000);
    let mut planner = Planner::new(&world.cluster);
    let pass = planner.begin(&world.cluster, world.now);
    planner.finish(pass);
    bencher.bench_local(|| planner.start_now(&world.cluster, world.now));
}

/// A pass in which jobs of a higher tier find a cluster full of others: each makes somebody leave.
#[divan::bench(args = [(1_000, 1, false), (10_000, 1, false), (10_000, 1, true), (10_000, 64, false), (10_000, 64, true)], sample_count = 3)]
fn preempting(bencher: divan::Bencher<'_, '_>, (nodes, jobs, shared): (u32, u32, bool)) {
    let mut policy = policy(nodes, Backfill::Easy, 1_000);
    let main = policy.partitions[0].clone();
    policy.partitions.push(PartitionConfig { name: "high".into(), priority_tier: 2, ..main });
    policy.preempt.by = PreemptBy::Partition;
    let mut world = World::new(policy);
    let mut chance = Chance(1);
    for node in 0..nodes {
        world.now = world.now + chance.below(2);
        world.submit(JobId(node + 1), world::spec(Shape::default(), 600 + chance.below(86_400)));
        let cpus = if shared { 33 + u32::try_from(chance.below(24)).unwrap() } else { 0 };
        world.put(JobId(node + 1), &[NodeId(node)], cpus);
    }
    for job in 0..jobs {
        let spec = JobSpec { partitions: Box::from(["high".into()]), ..pending(&mut chance, shared) };
        world.submit(JobId(nodes + job + 1), spec);
    }
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}
