//! The time of a pass on busy clusters with a long queue.
//!
//! `cargo bench -p spur-core --bench pass` runs the bench. The fabric is a tree of three layers: leaves of
//! 20 nodes, rows of 25 leaves, and one root. There are as many running jobs as nodes, and all of
//! them end at different times. `growth` has more sizes.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/busy.rs"]
#[expect(dead_code, reason = "not every kind of job has a bench here")]
mod busy;
#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::sync::Arc;

use busy::{Busy, Chance, Kind};
use spur_core::cluster::event::Event;
use spur_core::id::JobId;
use spur_core::model::config::{Backfill, PartitionConfig, Policy, PreemptBy};
use spur_core::model::job::JobSpec;
use spur_core::sched::forecast::Limits;
use spur_core::sched::{self, Planner};
use world::World;

fn main() {
    divan::main();
}

fn easy(shared: bool) -> World {
    let kind = if shared { Kind::Shared } else { Kind::Whole };
    Busy { backfill: Backfill::Easy, depth: 1_000, ..Busy::conservative(10_000, 10_000, kind) }.world()
}

#[divan::bench(args = [(1_000, 1_000), (10_000, 10_000)], sample_count = 3)]
fn conservative_whole_nodes(bencher: divan::Bencher<'_, '_>, (nodes, jobs): (u32, u32)) {
    let world = Busy::conservative(nodes, jobs, Kind::Whole).world();
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [(1_000, 1_000), (10_000, 10_000)], sample_count = 3)]
fn conservative_shared_nodes(bencher: divan::Bencher<'_, '_>, (nodes, jobs): (u32, u32)) {
    let world = Busy::conservative(nodes, jobs, Kind::Shared).world();
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn easy_1000_of_10000_on_10000(bencher: divan::Bencher<'_, '_>, shared: bool) {
    let world = easy(shared);
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn start_now_of_10000_on_10000(bencher: divan::Bencher<'_, '_>, shared: bool) {
    let world = easy(shared);
    let mut planner = Planner::new(&world.cluster);
    let pass = planner.begin(&world.cluster, world.now);
    planner.finish(pass);
    bencher.bench_local(|| planner.start_now(&world.cluster, world.now));
}

/// A pass on a cluster full of running jobs, in which each waiting job of a higher tier preempts some of
/// them.
#[divan::bench(args = [(1_000, 1, false), (10_000, 1, false), (10_000, 1, true), (10_000, 64, false), (10_000, 64, true)], sample_count = 3)]
fn preempting(bencher: divan::Bencher<'_, '_>, (nodes, jobs, shared): (u32, u32, bool)) {
    let kind = if shared { Kind::Shared } else { Kind::Whole };
    let busy = Busy { backfill: Backfill::Easy, depth: 1_000, ..Busy::conservative(nodes, 0, kind) };
    let mut world = busy.world();
    let mut policy = Policy::clone(world.cluster.policy());
    let main = policy.partitions[0].clone();
    policy.partitions.push(PartitionConfig { name: "high".into(), priority_tier: 2, ..main });
    policy.preempt.by = PreemptBy::Partition;
    world.apply(Event::PolicyChanged { policy: Arc::new(policy), keeps_edits: true });
    let mut chance = Chance(1);
    for job in 0..jobs {
        let spec = JobSpec { partitions: Box::from(["high".into()]), ..busy.pending(&mut chance) };
        world.submit(JobId(nodes + job + 1), spec);
    }
    bencher.bench(|| sched::plan(&world.cluster, world.now, &Limits));
}
