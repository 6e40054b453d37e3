//! Tests of the alternatives that a refusal names: each must be accepted, and none may be further from the
//! request than necessary.

use std::sync::Arc;

use proptest::prelude::*;
use spur_core::model::config::Policy;
use spur_core::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{NodeGres, NodeShape};
use spur_core::sched::feasible::{self, RefusalKind};
use spur_core::text::gres::GresSpec;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::TimeLimit;

use crate::world::{self, World};

/// A random site: nodes of each leaf, kind of each node, fewest and most nodes and longest time of a job.
#[derive(Clone, Debug)]
struct Site {
    leaves: Vec<u32>,
    kinds: Vec<usize>,
    min_nodes: u32,
    max_nodes: Option<u32>,
    max_time: Option<u64>,
}

/// CPUs, memory, GPUs and temporary disk of each kind of node.
const KINDS: [(u32, u64, u32, u64); 3] = [(4, 8, 2, 5), (8, 8, 0, 0), (2, 16, 1, 5)];

/// Number of licenses `x`.
const LICENSES: u32 = 2;

impl Site {
    fn world(&self) -> World {
        let count: u32 = self.leaves.iter().sum();
        let shape = |kind: usize| {
            let (cpus, memory_mb, gpus, tmp_disk_mb) = KINDS[kind];
            let gpu = NodeGres { name: "gpu".into(), kind: "".into(), count: gpus };
            let gres = if gpus > 0 { vec![gpu] } else { Vec::new() };
            NodeShape { cpus, memory_mb, tmp_disk_mb, threads_per_core: 1, gres, ..NodeShape::default() }
        };
        let node = |index: u32| world::node(&format!("n{index}"), shape(self.kinds[index as usize]), 1);
        let nodes: Vec<_> = (0..count).map(node).collect();
        let mut toml = String::from("plugin = \"tree\"\n");
        let mut first = 0;
        for (index, size) in self.leaves.iter().enumerate() {
            let last = first + size - 1;
            toml += &format!("[[switches]]\nname = \"s{index}\"\nnodes = \"n[{first}-{last}]\"\n");
            first += size;
        }
        toml += &format!("[[switches]]\nname = \"top\"\nswitches = \"s[0-{}]\"\n", self.leaves.len() - 1);
        let mut main = world::partition("main", nodes.iter().map(|node| Arc::clone(&node.name)).collect());
        (main.min_nodes, main.max_nodes) = (self.min_nodes.min(count), self.max_nodes);
        main.max_time = self.max_time.map_or(TimeLimit::Unlimited, TimeLimit::Seconds);
        World::new(Policy {
            nodes,
            partitions: vec![main],
            licenses: vec![("x".into(), LICENSES)],
            topologies: vec![world::topology(&toml)],
            ..Policy::default()
        })
    }
}

fn site() -> impl Strategy<Value = Site> {
    let leaves = prop::collection::vec(1_u32..4, 1..4);
    let kinds = prop::collection::vec(0_usize..KINDS.len(), 12);
    let limits = (1_u32..3, prop::option::weighted(0.2, 2_u32..8), prop::option::weighted(0.2, 100_u64..200));
    (leaves, kinds, limits).prop_map(|(leaves, kinds, (min_nodes, max_nodes, max_time))| Site {
        leaves,
        kinds,
        min_nodes,
        max_nodes,
        max_time,
    })
}

fn gpus(count: Option<u64>) -> Vec<GresSpec> {
    count.map(|count| GresSpec::new("gpu", None, count)).into_iter().collect()
}

fn spec() -> impl Strategy<Value = JobSpec> {
    let nodes = prop::option::weighted(0.6, (1_u32..14).prop_map(NodeCount::exactly));
    let tasks = prop::option::weighted(0.5, 1_u32..50);
    let counts = (nodes, tasks, prop::option::weighted(0.2, 1_u32..6));
    let memory = prop_oneof![
        3 => Just(None),
        2 => (0_u64..20).prop_map(|memory| Some(MemoryNeed::PerNode(memory))),
        1 => (1_u64..10).prop_map(|memory| Some(MemoryNeed::PerCpu(memory))),
    ];
    let of_node =
        (prop::option::weighted(0.5, 1_u32..10), memory, prop_oneof![4 => Just(0_u64), 1 => 1_u64..8]);
    let devices = prop_oneof![
        4 => Just((None, None, None)),
        1 => (1_u64..5).prop_map(|count| (Some(count), None, None)),
        1 => (1_u64..5).prop_map(|count| (None, Some(count), None)),
        1 => (1_u64..20).prop_map(|count| (None, None, Some(count))),
    ];
    let gather = prop_oneof![
        6 => Just(None),
        2 => Just(Some("must:leaf".to_owned())),
        1 => Just(Some("must:node".to_owned())),
        2 => (2_u32..6).prop_map(|by| Some(format!("leaf*{by}"))),
        1 => (2_u32..4).prop_map(|by| Some(format!("must:leaf,node*{by}"))),
    ];
    let fabric = (gather, prop::option::weighted(0.2, 1_u32..3), prop::option::weighted(0.1, 2_u32..5));
    let rest = (
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        1_u64..300,
        prop_oneof![4 => Just(0_u32), 1 => 1_u32..5],
    );
    (counts, of_node, devices, fabric, rest).prop_map(build)
}

type Counts = (Option<NodeCount>, Option<u32>, Option<u32>);
type OfNode = (Option<u32>, Option<MemoryNeed>, u64);
type Devices = (Option<u64>, Option<u64>, Option<u64>);
type Fabric = (Option<String>, Option<u32>, Option<u32>);

fn build(
    (
        (nodes, tasks, on_each),
        (cpus, memory, tmp_disk_mb),
        devices,
        fabric,
        (whole, contiguous, time, licenses),
    ): (Counts, OfNode, Devices, Fabric, (bool, bool, u64, u32)),
) -> JobSpec {
    let (of_node, of_task, of_job) = devices;
    let shape = Shape {
        nodes: nodes.or(tasks.is_none().then(|| NodeCount::exactly(1))),
        tasks,
        tasks_per_node: on_each,
        cpus_per_task: cpus,
        memory,
        tmp_disk_mb,
        gres: gpus(of_node),
        gpus_per_task: gpus(of_task),
        gpus: gpus(of_job),
        sharing: if whole { Sharing::Exclusive } else { Sharing::Shared },
        ..Shape::default()
    };
    let (gather, switches, segment) = fabric;
    let ask = FabricAsk {
        gather: gather.map(|gather| gather.parse().unwrap()),
        switches: switches.map(|switches| switches.to_string().parse().unwrap()),
        segment: segment.filter(|_| shape.nodes.is_some()),
        contiguous,
        ..FabricAsk::default()
    };
    let mut spec = world::spec(shape, time);
    spec.fabric = (ask != FabricAsk::default()).then(|| Box::new(ask));
    if licenses > 0 {
        spec.extra.get_or_insert_default().licenses.push(("x".into(), licenses));
    }
    spec
}

/// A number of a request, as its getter and its setter. The nearest lower value is offered.
type Number = (fn(&JobSpec) -> Option<u64>, fn(&mut JobSpec, u64));

const NUMBERS: [Number; 8] = [
    (|spec| spec.shape.tasks.map(u64::from), |spec, count| spec.shape.tasks = u32::try_from(count).ok()),
    (
        |spec| spec.shape.nodes.as_ref().map(|nodes| nodes.min.into()),
        |spec, count| spec.shape.nodes = Some(NodeCount::exactly(u32::try_from(count).unwrap())),
    ),
    (
        |spec| spec.shape.cpus_per_task.map(u64::from),
        |spec, count| spec.shape.cpus_per_task = u32::try_from(count).ok(),
    ),
    (
        |spec| match spec.shape.memory {
            Some(MemoryNeed::PerNode(0)) | None => None,
            Some(MemoryNeed::PerNode(memory) | MemoryNeed::PerCpu(memory)) => Some(memory),
        },
        |spec, count| {
            spec.shape.memory = spec.shape.memory.map(|memory| match memory {
                MemoryNeed::PerNode(_) => MemoryNeed::PerNode(count),
                MemoryNeed::PerCpu(_) => MemoryNeed::PerCpu(count),
            });
        },
    ),
    (|spec| Some(spec.shape.tmp_disk_mb), |spec, count| spec.shape.tmp_disk_mb = count),
    (
        |spec| Some(spec.shape.gres.first().map_or(0, |gres| gres.count)),
        |spec, count| spec.shape.gres = gpus(Some(count).filter(|count| *count > 0)),
    ),
    (
        |spec| Some(spec.shape.gpus_per_task.first().map_or(0, |gres| gres.count)),
        |spec, count| spec.shape.gpus_per_task = gpus(Some(count).filter(|count| *count > 0)),
    ),
    (|spec| spec.time_limit.seconds(), |spec, count| spec.time_limit = TimeLimit::Seconds(count)),
];

/// A number between the requested and the offered one that is also accepted, if no other part of the request
/// differs; `None` if there is none.
fn nearer(world: &World, asked: &JobSpec, offered: &JobSpec) -> Option<JobSpec> {
    let (of, set) = NUMBERS.into_iter().find(|(of, _)| of(asked) != of(offered))?;
    let (from, to) = (of(asked)?, of(offered)?);
    let same = |spec: &JobSpec| {
        let mut spec = spec.clone();
        set(&mut spec, from);
        spec
    };
    if to > from || same(offered) != same(asked) {
        return None;
    }
    let between = (to + 1..from).rev().map(|count| {
        let mut spec = asked.clone();
        set(&mut spec, count);
        spec
    });
    between.into_iter().find(|spec| feasible::check(&world.cluster, spec).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// A refusal names a similar request, which is accepted and is the nearest of its kind.
    #[test]
    fn offers_work(site in site(), spec in spec()) {
        let world = site.world();
        let Err(refusal) = feasible::check(&world.cluster, &spec) else { return Ok(()) };
        // A request for devices that no node has gets no offer.
        prop_assert!(!refusal.works.is_empty() || refusal.kind == RefusalKind::Gres, "{}", refusal.message);
        for offered in &refusal.works {
            let answer = feasible::check(&world.cluster, offered);
            prop_assert!(answer.is_ok(), "{}: {offered:?}: {answer:?}", refusal.message);
            let nearer = nearer(&world, &spec, offered);
            prop_assert!(nearer.is_none(), "{}: {:?}", refusal.message, nearer);
        }
    }
}
