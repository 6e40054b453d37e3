//! The cost of limits for submissions, and of licenses for submissions, passes and starts, as ratios within
//! one run.
//!
//! `cargo bench -p spur-core --bench owner [-- JOBS]`. Each row does the same work in two worlds in turns, by
//! the processor time of this thread, and prints the least of each and their ratio. The allowed maximum of
//! each ratio stands beside it where there is one.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/busy.rs"]
#[expect(dead_code, reason = "one kind of job has a row here")]
mod busy;
#[path = "../tests/plan/limits.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod limits;
#[path = "shared/processor.rs"]
mod processor;
#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use busy::{Busy, Kind};
use processor::processor;
use spur_core::controller::command::Submission;
use spur_core::controller::{Command, Input, handle};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::{AccountingEnforce, Backfill, Policy, SchedulerPolicy};
use spur_core::model::job::{JobSpec, MemoryNeed, Shape};
use spur_core::model::node::NodeShape;
use spur_core::model::phase::Phase;
use spur_core::sched::Planner;
use world::World;

/// The allocator of `spurctld` and of the commands.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Rounds of each world, of which the fastest counts.
const ROUNDS: usize = 7;
/// CPUs of each node. A job takes one CPU, so this many jobs run on a node.
const CPUS: u32 = 4;

fn main() {
    let jobs: u32 = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(4_000);
    let limits = [true, false].map(|enforced| of_limits(jobs, enforced));
    compare("submissions of a user with six limits, to none", None, limits, |world| {
        submit(world, jobs, None);
    });
    let licenses = [1, 0].map(|each| (of_licenses(jobs), each));
    let run = |(world, each): &mut (World, u32)| {
        submit(world, jobs, (*each > 0).then_some(*each));
        start(world, jobs);
    };
    compare("submissions, a pass and starts with a license each, to none", Some(2.0), licenses, run);
    for backfill in [Backfill::Easy, Backfill::Conservative] {
        let worlds = [1, 0].map(|each| waiting(jobs, backfill, each));
        let name = format!("{backfill:?}: a pass over waiting jobs with a license each, to none");
        compare(&name, Some(2.0), worlds, |world| {
            let mut planner = Planner::new(&world.cluster);
            let pass = planner.begin(&world.cluster, world.now);
            drop(black_box(planner.finish(pass)));
        });
    }
}

/// An idle cluster that holds as many jobs.
fn idle(jobs: u32, policy: Policy) -> World {
    let shape = NodeShape { cpus: CPUS, memory_mb: 16_000, threads_per_core: 1, ..NodeShape::default() };
    let names: Vec<Arc<str>> =
        (0..jobs.div_ceil(CPUS)).map(|node| Arc::from(format!("n{node:06}"))).collect();
    World::new(Policy {
        nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
        partitions: vec![world::partition("main", names)],
        scheduler: SchedulerPolicy { depth: 0, ..SchedulerPolicy::default() },
        ..policy
    })
}

/// A cluster with six limits on three levels and in a QOS, which leave enough for all jobs.
fn of_limits(jobs: u32, enforced: bool) -> World {
    let mut policy = Policy::default();
    policy.jobs.accounting_enforce = if enforced { vec![AccountingEnforce::Limits] } else { Vec::new() };
    let mut world = idle(jobs, policy);
    let most = jobs * 2;
    for line in [
        format!("account root GrpTRES=cpu={most}"),
        format!("account x GrpTRES=node={most} GrpSubmitJobs={most}"),
        format!("user user MaxSubmitJobs={most} GrpTRES=cpu={most}"),
        format!("qos own MaxTRESPU=cpu={most}"),
    ] {
        limits::set(&mut world, &line);
    }
    world
}

fn of_licenses(jobs: u32) -> World {
    idle(jobs, Policy { licenses: vec![("x".into(), jobs)], ..Policy::default() })
}

/// A busy cluster in which jobs wait. There are enough licenses for all jobs that fit at one time.
fn waiting(jobs: u32, backfill: Backfill, each: u32) -> World {
    let busy = Busy { backfill, ..Busy::conservative(1_000, jobs, Kind::Whole) }.world();
    let mut policy = Policy::clone(busy.cluster.policy());
    policy.licenses = vec![("x".into(), 1_000)];
    let mut world = World::new(policy);
    for job in busy.cluster.jobs().iter() {
        let mut spec = JobSpec::clone(&job.spec);
        if each > 0 {
            spec.extra.get_or_insert_default().licenses.push(("x".into(), each));
        }
        world.submit(job.id, spec);
        if let Phase::Running { alloc, .. } = &job.phase {
            let (job, alloc) = (job.id, Arc::clone(alloc));
            world.apply(spur_core::cluster::event::Event::JobStarted {
                job,
                alloc,
                split: None,
                configuring: Default::default(),
            });
        }
    }
    world
}

/// Submits jobs of one CPU, each with this many licenses.
fn submit(world: &mut World, jobs: u32, licenses: Option<u32>) {
    let owner = Arc::new(Owner { uid: 1000, gid: 1000, user: "user".into(), group: "user".into() });
    for _ in 0..jobs {
        let memory = Some(MemoryNeed::PerNode(1_000));
        let shape = Shape { tasks: Some(1), memory, ..Shape::default() };
        let mut spec = JobSpec::plain("job".into(), Arc::clone(&owner), shape);
        if let Some(count) = licenses {
            spec.extra.get_or_insert_default().licenses.push(("x".into(), count));
        }
        spec.partitions = Box::from(["main".into()]);
        spec.qos = world.cluster.accounts().qos_named("own").map(|own| Arc::clone(&own.name));
        let submission = Submission { spec, time_limit: None, requeue: None, rest: Vec::new() };
        let caller = Caller::new(Arc::clone(&owner), Arc::default(), false);
        let command = Command::Submit(Box::new(submission));
        let input = Input::Command { caller, request: None, command };
        drop(black_box(handle(&mut world.cluster, 1, world.now, input).answer.unwrap()));
    }
}

/// Plans all jobs, and starts them as the owner does.
fn start(world: &mut World, jobs: u32) {
    let mut planner = Planner::new(&world.cluster);
    let pass = planner.begin(&world.cluster, world.now);
    let plan = planner.finish(pass);
    assert_eq!(plan.starts.len(), jobs as usize, "every job starts");
    for start in plan.starts {
        let input = Input::Start(Box::new(start));
        drop(black_box(handle(&mut world.cluster, 1, world.now, input).answer.unwrap()));
    }
}

/// Prints the least times of the same work in copies of two worlds, and their ratio.
fn compare<W: Clone>(name: &str, aim: Option<f64>, worlds: [W; 2], run: impl Fn(&mut W)) {
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (world, least) in worlds.iter().zip(&mut least) {
            let mut world = world.clone();
            let before = processor();
            run(&mut world);
            *least = (*least).min(processor() - before);
        }
    }
    let [with, without] = least.map(|time| time.as_secs_f64() * 1e3);
    let aim = aim.map_or_else(String::new, |aim| format!(" ({aim})"));
    println!("{name}: {with:.1} ms, {without:.1} ms, {:.2}{aim}", with / without);
}
