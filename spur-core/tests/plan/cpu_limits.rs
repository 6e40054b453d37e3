//! Plans of random clusters whose partitions limit the CPUs of their jobs on each node and socket.
//!
//! The sums are made here, from the CPUs of running jobs and the numbers that plans give.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{
    Backfill, PartitionConfig, Policy, PreemptBy, PreemptMode, PreemptPolicy, SchedulerPolicy,
};
use spur_core::model::node::NodeShape;
use spur_core::sched::plan::{Plan, Start};
use spur_core::sched::{self, Planner, Progress, Reservations};
use spur_core::text::time::Time;

use crate::daemon::tell;
use crate::script;
use crate::world::{self, World};

#[derive(Clone, Debug)]
struct Case {
    sockets: u32,
    cores: u32,
    threads: u32,
    /// The limits of each partition on nodes and on sockets, in cores; 0 for none.
    limits: [(u32, u32); 3],
    backfill: Backfill,
    preempts: bool,
    jobs: Vec<Vec<String>>,
}

const NODES: u32 = 3;
const PARTITIONS: [&str; 3] = ["a", "b", "main"];

fn case() -> impl Strategy<Value = Case> {
    let size = prop::sample::select(vec![
        "-n 1",
        "-n 2",
        "-n 3 -c 2",
        "-n 5",
        "-N 1 -n 4",
        "-N 2",
        "-N 2 -n 6",
        "-N 2 --ntasks-per-node=2",
        "-N 1 --exclusive",
        "-N 2-3 -c 2",
    ]);
    let job = (size, prop::sample::select(vec!["a", "b", "main", "a,b"]), 1_u64..9).prop_map(
        |(size, partition, seconds)| {
            let words = format!("{size} -p {partition} -t {seconds}");
            words.split(' ').map(str::to_owned).collect()
        },
    );
    let limit = || (0_u32..5, 0_u32..3);
    let backfill = prop_oneof![Just(Backfill::Easy), Just(Backfill::Conservative), Just(Backfill::None)];
    let shape = (1_u32..3, 2_u32..4, 1_u32..3);
    let limits = (limit(), limit(), limit());
    (shape, limits, backfill, any::<bool>(), prop::collection::vec(job, 1..14)).prop_map(
        |((sockets, cores, threads), (one, two, three), backfill, preempts, jobs)| Case {
            sockets,
            cores,
            threads,
            limits: [one, two, three],
            backfill,
            preempts,
            jobs,
        },
    )
}

impl Case {
    fn world(&self) -> World {
        let shape = NodeShape {
            sockets: self.sockets,
            cores_per_socket: self.cores,
            threads_per_core: self.threads,
            cpus: self.sockets * self.cores * self.threads,
            ..NodeShape::default()
        };
        let nodes: Vec<_> =
            (0..NODES).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let cpus = |cores: u32| (cores > 0).then_some(cores * self.threads);
        let partitions = (1..).zip(PARTITIONS).zip(self.limits);
        let partitions = partitions.map(|((tier, name), (on_node, on_socket))| PartitionConfig {
            priority_tier: if self.preempts { tier } else { 1 },
            max_cpus_per_node: cpus(on_node),
            max_cpus_per_socket: cpus(on_socket),
            ..world::partition(name, names.clone())
        });
        let by = if self.preempts { PreemptBy::Partition } else { PreemptBy::None };
        World::new(Policy {
            nodes,
            partitions: partitions.collect(),
            preempt: PreemptPolicy { by, mode: PreemptMode::Requeue, ..PreemptPolicy::default() },
            scheduler: SchedulerPolicy { backfill: self.backfill, depth: 0, ..SchedulerPolicy::default() },
            ..Policy::default()
        })
    }
}

/// The planned and running uses of one node by the jobs of one partition: begin, end and CPUs.
type Uses = BTreeMap<(NodeId, Arc<str>), Vec<(Time, Time, u32)>>;

/// The moments at which the jobs of a partition have more CPUs of a node than it allows.
fn exceeded(world: &World, plan: &Plan, later: &Reservations) -> Vec<String> {
    let mut uses = Uses::new();
    let mut add = |node: NodeId, partition: &Arc<str>, used: (Time, Time, u32)| {
        uses.entry((node, Arc::clone(partition))).or_default().push(used);
    };
    for job in world.cluster.jobs().active() {
        let (Some(alloc), Some(started)) = (job.phase.alloc(), job.phase.started()) else { continue };
        for part in &alloc.nodes {
            add(part.node, &alloc.partition, (world.now, job.ends_at(started), part.cpus.len()));
        }
    }
    for start in plan.starts.iter().flat_map(Start::all) {
        let end = start.time_limit.unwrap_or(start.spec.time_limit).end(world.now);
        for part in &start.parts {
            add(part.node, &start.partition, (world.now, end, part.cpus));
        }
    }
    for made in later.iter() {
        for (node, amount) in made.amounts() {
            add(node, &made.partition, (made.start, made.end, u32::try_from(amount[0]).unwrap()));
        }
    }
    let mut found = Vec::new();
    for ((node, partition), uses) in &uses {
        let config = &world.cluster.partition(partition).unwrap().config;
        let sockets = world.cluster.node(*node).unwrap().shape.sockets;
        let on_sockets = config.max_cpus_per_socket.map(|most| most * sockets);
        let Some(most) = config.max_cpus_per_node.into_iter().chain(on_sockets).min() else { continue };
        for (at, ..) in uses {
            let at_once = uses.iter().filter(|(from, to, _)| from <= at && at < to);
            let sum: u32 = at_once.map(|(.., cpus)| cpus).sum();
            if sum > most {
                found.push(format!("{partition} has {sum} CPUs of {node:?} at {}: {most} are allowed", at.0));
            }
        }
    }
    found
}

/// The sockets on which the running jobs of a partition have more CPUs than it allows.
fn crowded(world: &World) -> Vec<String> {
    let mut sums: BTreeMap<(NodeId, u32, Arc<str>), u32> = BTreeMap::new();
    for alloc in world.cluster.jobs().active().filter_map(|job| job.phase.alloc()) {
        for part in &alloc.nodes {
            let shape = &world.cluster.node(part.node).unwrap().shape;
            let each = shape.cores_per_socket * shape.threads_per_core;
            for cpu in part.cpus.iter() {
                *sums.entry((part.node, cpu / each, Arc::clone(&alloc.partition))).or_default() += 1;
            }
        }
    }
    let allowed = |partition: &str| world.cluster.partition(partition).unwrap().config.max_cpus_per_socket;
    let over = sums.into_iter().filter(|((.., name), sum)| allowed(name).is_some_and(|most| *sum > most));
    over.map(|((node, socket, name), sum)| format!("{name}: {sum} CPUs of socket {socket} of {node:?}"))
        .collect()
}

fn submit(world: &mut World, words: &[String]) {
    let spec = script::spec(&words.iter().map(String::as_str).collect::<Vec<_>>());
    if sched::feasible::check(&world.cluster, &spec).is_ok() {
        let next = world.cluster.next_job();
        world.submit(next, spec);
    }
}

fn carry_out(world: &mut World, plan: &Plan) -> Result<(), TestCaseError> {
    plan.starts.iter().for_each(|start| world.start(start));
    for preemption in &plan.preemptions {
        world.preempt(preemption, 0);
        for victim in &preemption.victims {
            if world.cluster.job(victim.job).is_some_and(|job| job.phase.alloc().is_some()) {
                world.end(victim.job);
            }
        }
    }
    let found = crowded(world);
    prop_assert!(found.is_empty(), "{:?}", found);
    Ok(())
}

proptest! {
    /// No start and no plan exceeds a limit, quick passes decide as passes over everything, the CPUs of every
    /// start can be chosen within the limits, and every job runs in the end.
    #[test]
    fn partitions_keep_their_limits(case in case()) {
        let mut world = case.world();
        let mut planner = Planner::new(&world.cluster);
        tell(&mut world, &mut planner);
        let mut jobs = case.jobs.iter();
        for _ in 0..20 * case.jobs.len() {
            jobs.by_ref().take(3).for_each(|words| submit(&mut world, words));
            tell(&mut world, &mut planner);
            let mut pass = planner.begin(&world.cluster, world.now);
            while pass.advance(1) == Progress::More {}
            let plan = planner.finish(pass);
            let found = exceeded(&world, &plan, planner.reservations());
            prop_assert!(found.is_empty(), "{:?}", found);
            let found = crate::checker::booked_twice(&world, &plan, planner.reservations());
            prop_assert!(found.is_empty(), "{:?}", found);
            carry_out(&mut world, &plan)?;
            tell(&mut world, &mut planner);
            world.now = world.now + 1;
            let running = world.cluster.jobs().active();
            let over: Vec<JobId> = running
                .filter(|job| job.ends_at(job.phase.started().unwrap()) <= world.now)
                .map(|job| job.id)
                .collect();
            over.into_iter().for_each(|job| world.end(job));
            tell(&mut world, &mut planner);
            let (whole, _) = planner.start_now_slowly(&world.cluster, world.now);
            let quick = planner.start_now(&world.cluster, world.now);
            prop_assert_eq!(&quick.starts, &whole.starts);
            let found = exceeded(&world, &quick, planner.reservations());
            prop_assert!(found.is_empty(), "quick: {:?}", found);
            carry_out(&mut world, &quick)?;
            tell(&mut world, &mut planner);
        }
        prop_assert_eq!(world.cluster.jobs().pending().count(), 0);
    }
}
