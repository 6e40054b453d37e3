//! Benchmark of the cost of limits of accounts and QOS in a pass, as ratios within one run.
//!
//! `cargo bench -p spur-core --bench limits [-- NODES JOBS]`. Each row times passes of two worlds in turns,
//! by the processor time of this thread, and prints the ratio of the least of each. The allowed maximum of
//! each ratio stands beside it.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/busy.rs"]
#[expect(dead_code, reason = "not every kind of job has a row here")]
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
use spur_core::cluster::event::Event;
use spur_core::id::JobId;
use spur_core::model::accounts::usage::Ratio;
use spur_core::model::config::{AccountingEnforce, Backfill, Policy};
use spur_core::model::job::{Job, JobSpec};
use spur_core::model::phase::Phase;
use spur_core::sched::Planner;
use spur_core::text::time::TimeLimit;
use world::World;

/// The allocator of `spurctld` and of the commands.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Passes of each world, of which the fastest counts.
const ROUNDS: usize = 7;

/// Users of the worlds, each with a limit.
const USERS: usize = 50;

fn main() {
    let words: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (nodes, jobs) = (words.first().copied().unwrap_or(1_000), words.get(1).copied().unwrap_or(10_000));
    let passes: [(&str, Run); 2] = [("deep pass", deep), ("quick pass", quick)];
    for (name, backfill, kind) in [
        ("conservative, whole nodes", Backfill::Conservative, Kind::Whole),
        ("conservative, shared nodes", Backfill::Conservative, Kind::Shared),
        ("easy, whole nodes", Backfill::Easy, Kind::Whole),
        ("easy, shared nodes", Backfill::Easy, Kind::Shared),
    ] {
        let busy = Busy { backfill, ..Busy::conservative(nodes, jobs, kind) }.world();
        let six = |enforced| copy(&busy, enforced, &six_limits(nodes), |_, job| Some(of_user("u", job)));
        let ratio = compare([six(true), six(false)], deep);
        println!("{name:<28} deep pass, six limits that could bind, to none: {ratio:.2} (1.2)");
        let half = |all: bool| {
            copy(&busy, true, &half_limits(), move |waits, job| match job % 2 {
                0 if waits && !all => None,
                0 => Some(of_user("s", job / 2)),
                _ => Some(of_user("u", job)),
            })
        };
        for (pass, run) in passes {
            let ratio = compare([half(true), half(false)], run);
            println!(
                "{name:<28} {pass}, half of the jobs stopped, to the other half alone: {ratio:.2} (1.2)"
            );
        }
    }
}

/// Limits of three levels and two QOS, GPUs among them, each as large as the cluster. So the limits are
/// checked, but stop no job.
fn six_limits(nodes: u32) -> Vec<String> {
    let (cpus, gpus, jobs) = (nodes * 64, nodes * 8, nodes * 4);
    let mut lines = vec![
        format!("account root GrpTRES=cpu={cpus}"),
        format!("account x GrpTRES=gres/gpu={gpus} GrpJobs={jobs}"),
        format!("qos part GrpTRES=cpu={cpus} MaxTRESPA=gres/gpu={gpus}"),
        format!("qos own MaxTRESPU=cpu={cpus}"),
    ];
    lines.extend((0..USERS).map(|user| format!("user u{user} GrpTRES=cpu={cpus}")));
    lines
}

/// Limits of users, half of which run as many jobs as they may.
fn half_limits() -> Vec<String> {
    let full = (0..USERS).map(|user| format!("user s{user} MaxJobs=1"));
    full.chain((0..USERS).map(|user| format!("user u{user} GrpJobs=1000000"))).collect()
}

fn of_user(prefix: &str, job: usize) -> String {
    format!("{prefix}{}", job % USERS)
}

/// The same cluster with accounts, whose limits may be enforced. `user` gives the owner of a job, from
/// whether the job waits and from its number; `None` leaves the job out.
fn copy(
    busy: &World,
    enforced: bool,
    lines: &[String],
    user: impl Fn(bool, usize) -> Option<String>,
) -> World {
    let mut policy = Policy::clone(busy.cluster.policy());
    policy.jobs.accounting_enforce = if enforced { vec![AccountingEnforce::Limits] } else { Vec::new() };
    policy.partitions[0].qos = Some("part".into());
    let mut world = World::new(policy);
    lines.iter().for_each(|line| limits::set(&mut world, line));
    // One job of each user runs. All other running jobs belong to a user who has no limit of his own.
    let mut running = 0..2 * USERS;
    for (number, job) in busy.cluster.jobs().iter().enumerate() {
        let waits = matches!(job.phase, Phase::Pending(_));
        let owner = match waits {
            true => user(true, number),
            false => {
                Some(running.next().and_then(|number| user(false, number)).unwrap_or_else(|| "user".into()))
            }
        };
        owner.into_iter().for_each(|owner| add(&mut world, job, &owner));
    }
    world
}

fn add(world: &mut World, job: &Job, owner: &str) {
    let mut spec = JobSpec::clone(&job.spec);
    Arc::make_mut(&mut spec.owner).user = owner.into();
    spec.qos = Some("own".into());
    if owner.starts_with('s') && !matches!(job.phase, Phase::Pending(_)) {
        // The limits of these users stay used up.
        spec.time_limit = TimeLimit::Seconds(100_000_000);
    }
    let id = JobId(job.id.0);
    world.submit(id, spec);
    if let Phase::Running { alloc, .. } = &job.phase {
        let mut alloc = (**alloc).clone();
        alloc.charged = world.cluster.charged_in(&world.cluster.job(id).unwrap().spec, &alloc.partition);
        let alloc = Arc::new(alloc);
        world.apply(Event::JobStarted { job: id, alloc, split: None, configuring: Default::default() });
    }
}

/// One pass of a planner that is kept.
type Run = fn(&mut Planner, &mut World);

/// The ratio of the fastest passes of two worlds, in turns. The first two of each are not counted.
fn compare(mut worlds: [World; 2], pass: Run) -> f64 {
    let mut planners = worlds.each_mut().map(|world| {
        let mut planner = Planner::new(&world.cluster);
        world.take_log();
        deep(&mut planner, world);
        pass(&mut planner, world);
        planner
    });
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for ((planner, world), least) in planners.iter_mut().zip(&mut worlds).zip(&mut least) {
            let before = processor();
            pass(planner, world);
            *least = (*least).min(processor() - before);
        }
    }
    least[0].as_secs_f64() / least[1].as_secs_f64()
}

fn deep(planner: &mut Planner, world: &mut World) {
    let pass = planner.begin(&world.cluster, world.now);
    drop(black_box(planner.finish(pass)));
}

/// A quick pass after an event that may let every job start.
fn quick(planner: &mut Planner, world: &mut World) {
    let until = world.now;
    world.apply(Event::UsageRolled { until, periods: 0, ratio: Ratio::default(), reset: false });
    world.take_log().iter().for_each(|event| planner.note(&world.cluster, event));
    drop(black_box(planner.start_now(&world.cluster, world.now)));
}
