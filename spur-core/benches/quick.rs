//! How long a quick pass takes: one thing has happened, and so many jobs wait.
//!
//! `cargo bench -p spur-core --bench quick`. A thousand nodes in a tree of leaves of 20, a job on every one of them,
//! EASY backfill, and a queue of jobs that want from 1 to 16 whole nodes, the first of them 900.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::cell::RefCell;
use std::sync::Arc;

use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{Order, Policy, SchedulerPolicy};
use spur_core::model::job::{JobSpec, Shape, Sharing};
use spur_core::model::node::NodeShape;
use spur_core::sched::Planner;
use spur_core::text::nodes::NodeCount;
use world::World;

const NODES: u32 = 1_000;
const QUEUES: [u32; 3] = [1_000, 10_000, 100_000];

fn main() {
    divan::main();
}

/// A busy cluster, and a planner that knows it.
struct Site {
    world: World,
    planner: Planner,
    /// Running jobs, the next to end last.
    running: Vec<JobId>,
}

fn whole(nodes: u32, seconds: u64) -> JobSpec {
    let nodes = Some(NodeCount::exactly(nodes));
    world::spec(Shape { nodes, sharing: Sharing::Exclusive, ..Shape::default() }, seconds)
}

impl Site {
    fn new(order: Order, jobs: u32) -> Self {
        let shape = NodeShape { cpus: 64, threads_per_core: 1, ..NodeShape::default() };
        let names: Vec<Arc<str>> = (0..NODES).map(|index| Arc::from(format!("n{index:03}"))).collect();
        let leaves = (0..NODES / 20).map(|leaf| {
            let (first, last) = (leaf * 20, leaf * 20 + 19);
            format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first:03}-{last:03}]\"\n")
        });
        let toml: String = leaves.collect();
        let toml = format!(
            "plugin = \"tree\"\n{toml}[[switches]]\nname = \"top\"\nswitches = \"l[0-{}]\"\n",
            NODES / 20 - 1
        );
        let mut world = World::new(Policy {
            nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
            partitions: vec![world::partition("main", names)],
            topologies: vec![world::topology(&toml)],
            scheduler: SchedulerPolicy { order, depth: 0, ..SchedulerPolicy::default() },
            ..Policy::default()
        });
        let mut running = Vec::new();
        for node in 0..NODES {
            let job = world.cluster.next_job();
            world.submit(job, whole(1, 3_600 + u64::from(node % 700) * 60));
            world.put(job, &[NodeId(node)], 0);
            running.push(job);
        }
        for index in 0..jobs {
            let job = world.cluster.next_job();
            let nodes = if index == 0 { 900 } else { 1 + index * 7 % 16 };
            world.submit(job, whole(nodes, 600 + u64::from(index % 97) * 600));
        }
        let mut planner = Planner::new(&world.cluster);
        world.take_log();
        assert!(planner.start_now(&world.cluster, world.now).starts.is_empty(), "no node is free");
        Self { world, planner, running }
    }

    fn tell(&mut self) {
        for event in self.world.take_log() {
            self.planner.note(&self.world.cluster, &event);
        }
    }

    /// A job comes that is larger than what is free.
    fn arrive(&mut self) {
        let job = self.world.cluster.next_job();
        self.world.submit(job, whole(4, 900));
        self.tell();
    }

    /// A job ends, and its node is free.
    fn end(&mut self) {
        let job = self.running.pop().expect("there are fewer samples than jobs");
        self.world.end(job);
        self.tell();
    }

    fn pass(&mut self) {
        let plan = self.planner.start_now(&self.world.cluster, self.world.now);
        plan.starts.iter().for_each(|start| self.world.start(start));
    }
}

fn measure(bencher: divan::Bencher<'_, '_>, site: Site, happens: fn(&mut Site)) {
    let site = RefCell::new(site);
    bencher.with_inputs(|| happens(&mut site.borrow_mut())).bench_local_values(|()| site.borrow_mut().pass());
}

#[divan::bench(args = QUEUES, sample_count = 200, sample_size = 1)]
fn a_job_arrives(bencher: divan::Bencher<'_, '_>, jobs: u32) {
    measure(bencher, Site::new(Order::Fcfs, jobs), Site::arrive);
}

#[divan::bench(args = QUEUES, sample_count = 200, sample_size = 1)]
fn a_job_arrives_multifactor(bencher: divan::Bencher<'_, '_>, jobs: u32) {
    measure(bencher, Site::new(Order::Multifactor, jobs), Site::arrive);
}

#[divan::bench(args = QUEUES, sample_count = 200, sample_size = 1)]
fn a_job_ends(bencher: divan::Bencher<'_, '_>, jobs: u32) {
    measure(bencher, Site::new(Order::Fcfs, jobs), Site::end);
}
