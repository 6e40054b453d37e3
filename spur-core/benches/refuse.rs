//! The time to refuse a request and to find the nearest request that works.
//!
//! `cargo bench -p spur-core --bench refuse` runs the bench. The cluster has 10,000 nodes of 64 CPUs in a
//! tree of three layers: leaves of 20 nodes, spines of 25 leaves, and one root.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::sync::Arc;

use spur_core::model::config::Policy;
use spur_core::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape};
use spur_core::model::node::NodeShape;
use spur_core::sched::feasible;
use spur_core::text::nodes::NodeCount;
use world::World;

const NODES: u32 = 10_000;
const LEAF: u32 = 20;
const SPINE: u32 = 25;

fn main() {
    divan::main();
}

/// A request that is refused: its name, nodes, tasks, CPUs per task, MiB of memory per node (0: none), and
/// `--gather`.
type Wish = (&'static str, Option<u32>, Option<u32>, u32, u64, Option<&'static str>);

const WISHES: [Wish; 10] = [
    ("too many nodes", Some(10_001), None, 1, 0, None),
    ("too many for a leaf", Some(21), None, 1, 0, Some("must:leaf")),
    ("no multiple", Some(1_002), None, 1, 0, Some("leaf*7")),
    ("no multiple and a must", Some(9_001), None, 1, 0, Some("must:spine,leaf*7")),
    ("tasks and a multiple", Some(100), Some(9_001), 1, 0, Some("must:spine,leaf*7")),
    ("too many tasks on few nodes", Some(100), Some(9_001), 1, 0, None),
    ("too many tasks", None, Some(700_000), 1, 0, None),
    ("too many CPUs", Some(100), None, 65, 0, None),
    ("too much memory for the tasks", Some(2), Some(100), 2, 300_000, None),
    ("too much of everything", Some(20_000), None, 65, 300_000, Some("must:leaf,leaf*7")),
];

fn world() -> World {
    let shape = NodeShape { cpus: 64, memory_mb: 256_000, threads_per_core: 1, ..NodeShape::default() };
    let nodes: Vec<_> = (0..NODES).map(|node| world::node(&format!("n{node}"), shape.clone(), 1)).collect();
    let leaf = |leaf: u32| {
        format!(
            "[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{}-{}]\"\n",
            leaf * LEAF,
            leaf * LEAF + LEAF - 1
        )
    };
    let spine = |spine: u32| {
        format!(
            "[[switches]]\nname = \"s{spine}\"\nswitches = \"l[{}-{}]\"\n",
            spine * SPINE,
            spine * SPINE + SPINE - 1
        )
    };
    let (leaves, spines) = (NODES / LEAF, NODES / LEAF / SPINE);
    let mut toml = "plugin = \"tree\"\n".to_owned();
    toml.extend((0..leaves).map(leaf).chain((0..spines).map(spine)));
    toml += &format!("[[switches]]\nname = \"top\"\nswitches = \"s[0-{}]\"\n", spines - 1);
    let names = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
    World::new(Policy {
        nodes,
        partitions: vec![world::partition("main", names)],
        topologies: vec![world::topology(&toml)],
        ..Policy::default()
    })
}

fn spec((_, nodes, tasks, cpus, memory, gather): &Wish) -> JobSpec {
    let shape = Shape {
        nodes: nodes.map(NodeCount::exactly),
        tasks: *tasks,
        cpus_per_task: Some(*cpus),
        memory: (*memory > 0).then_some(MemoryNeed::PerNode(*memory)),
        ..Shape::default()
    };
    let ask = |gather: &str| FabricAsk { gather: Some(gather.parse().unwrap()), ..FabricAsk::default() };
    JobSpec { fabric: gather.map(|gather| Box::new(ask(gather))), ..world::spec(shape, 3600) }
}

#[divan::bench(args = 0..WISHES.len(), sample_count = 5)]
fn refuse(bencher: divan::Bencher<'_, '_>, wish: usize) {
    let world = world();
    let spec = spec(&WISHES[wish]);
    let refusal = feasible::check(&world.cluster, &spec).unwrap_err();
    println!("{}: {}", WISHES[wish].0, refusal.message);
    bencher.bench_local(|| feasible::check(&world.cluster, &spec));
}
