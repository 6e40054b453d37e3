//! Growth of the time of a deep pass with the number of jobs, nodes and layers of the fabric. The rows
//! named `aim` have the sizes for which a target time is set.
//!
//! `cargo bench -p spur-core --bench growth [-- WORD…]` prints the rows whose names contain one of the
//! words, or all rows. A row gives the processor time of this thread for one pass, the least of several, so
//! that other load of the machine hardly matters. One planner makes all passes of a row, as in a
//! controller, and keeps the queue sorted from pass to pass. The first pass, which sorts the queue, is not
//! measured. With `--passes N` each row makes that first pass and N more, and prints nothing:
//! `benches/passes.py` measures this time from outside.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/busy.rs"]
mod busy;
#[path = "shared/processor.rs"]
mod processor;
#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::hint::black_box;
use std::time::Duration;

use busy::{Busy, Kind};
use processor::processor;
use spur_core::model::config::Backfill;
use spur_core::sched::Planner;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Plan;

/// The allocator of `spurctld` and of the commands.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let silent = words.iter().position(|word| word == "--passes").map(|at| {
        words.remove(at);
        words.remove(at).parse::<u32>().unwrap()
    });
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let rows = rows().into_iter().filter(|(name, _)| wanted(name));
    if let Some(passes) = silent {
        for world in rows.map(|(_, busy)| busy.world()) {
            let mut planner = Planner::new(&world.cluster);
            (0..=passes).for_each(|_| drop(black_box(planner.plan(&world.cluster, world.now, &Limits))));
        }
        return;
    }
    println!(
        "{:<24} {:>7} {:>7} {:>6} {:>12} {:>7} {:>9} {:>17}",
        "pass", "nodes", "jobs", "layers", "processor", "starts", "reserved", "plan"
    );
    rows.for_each(|(name, busy)| row(name, busy));
}

fn rows() -> Vec<(&'static str, Busy)> {
    let mut rows = Vec::new();
    let easy =
        |kind| Busy { backfill: Backfill::Easy, depth: 1_000, ..Busy::conservative(10_000, 10_000, kind) };
    rows.push(("aim: whole", Busy::conservative(10_000, 10_000, Kind::Whole)));
    rows.push(("aim: shared", Busy::conservative(10_000, 10_000, Kind::Shared)));
    rows.push(("aim: easy-1000 whole", easy(Kind::Whole)));
    rows.push(("aim: easy-1000 shared", easy(Kind::Shared)));
    rows.push(("aim: small whole", Busy::conservative(1_000, 1_000, Kind::Whole)));
    rows.push(("aim: small shared", Busy::conservative(1_000, 1_000, Kind::Shared)));
    rows.push(("aim: long whole", Busy::conservative(10_000, 100_000, Kind::Whole)));
    for (name, kind) in [("whole", Kind::Whole), ("shared", Kind::Shared), ("tasks", Kind::Tasks)] {
        let named = |by: &str| -> &'static str { format!("{by}: {name}").leak() };
        for jobs in [1_000, 2_000, 5_000, 10_000, 20_000] {
            rows.push((named("jobs"), Busy::conservative(10_000, jobs, kind)));
        }
        for nodes in [1_000, 2_000, 5_000, 10_000, 20_000, 50_000] {
            rows.push((named("nodes"), Busy::conservative(nodes, 5_000, kind)));
        }
        for layers in 1..=5 {
            rows.push((named("layers"), Busy { layers, ..Busy::conservative(10_000, 5_000, kind) }));
        }
    }
    rows
}

fn row(name: &str, busy: Busy) {
    let world = busy.world();
    let mut planner = Planner::new(&world.cluster);
    drop(planner.plan(&world.cluster, world.now, &Limits));
    let mut least = Duration::MAX;
    let mut spent = Duration::ZERO;
    let mut shown = String::new();
    for round in 0..9 {
        let before = processor();
        let plan = black_box(planner.plan(&world.cluster, world.now, &Limits));
        let took = processor() - before;
        shown = format!("{:>7} {:>9}  {:016x}", plan.starts.len(), plan.report.reserved, fingerprint(&plan));
        least = least.min(took);
        spent += took;
        if round >= 1 && spent > Duration::from_secs(3) {
            break;
        }
    }
    let Busy { nodes, jobs, layers, .. } = busy;
    let millis = least.as_secs_f64() * 1e3;
    println!("{name:<24} {nodes:>7} {jobs:>7} {layers:>6} {millis:>9.2} ms {shown}");
}

/// A hash of a plan's starts, and of its waiting jobs with their planned times and nodes.
fn fingerprint(plan: &Plan) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |number: u64| sum = (sum ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    for start in &plan.starts {
        add(u64::from(start.attempt.job.0));
        start.parts.iter().for_each(|part| add(u64::from(part.node.0) << 32 | u64::from(part.cpus)));
    }
    for waiting in &plan.waiting {
        add(u64::from(waiting.job.0));
        add(waiting.start.map_or(0, |start| start.0.unsigned_abs()));
        waiting.nodes.iter().for_each(|node| add(u64::from(node.0)));
    }
    sum
}
