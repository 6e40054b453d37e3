//! Properties of plans for random small clusters and queues.

use std::sync::Arc;

use proptest::prelude::*;
use spur_core::cluster::event::Event;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{Backfill, Order, Policy, Predict, SchedulerPolicy};
use spur_core::model::fabric::Fabric;
use spur_core::model::job::{Extra, FabricAsk, Job, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{Drain, NodeGres, NodeShape};
use spur_core::model::reason::Reason;
use spur_core::model::reservation::{Flag, Reservation};
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Plan;
use spur_core::sched::{self, Planner, Progress};
use spur_core::text::gres::GresSpec;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::{Seconds, Time, TimeLimit};

use crate::world::{self, World};
use crate::{checker, oracle};

/// A random job. The fields are nodes, tasks or tasks per node, CPUs per task, memory, and GPUs per task and
/// per node. Further fields are whole nodes, `must` for a leaf, seconds, fewest acceptable seconds, the
/// reservation named, and the number of licenses.
type Wish =
    (Option<u32>, Tasks, u32, Option<u64>, (u64, u64), bool, bool, (u64, Option<u64>), (Option<usize>, u32));

/// Number of licenses `x`.
const LICENSES: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Tasks {
    Unsaid,
    InAll(u32),
    OnEach(u32),
}

/// A random reservation: first node, number of nodes, licenses, start, seconds, flags.
type Kept = (u32, u32, u32, i64, u64, Vec<Flag>);

#[derive(Clone, Debug)]
struct Case {
    /// Sizes of the leaves under each spine.
    spines: Vec<Vec<u32>>,
    /// Number of adjacent leaves that a rule gives to jobs without constraints of their own; `None` for no
    /// rule.
    adjacent: Option<u32>,
    backfill: Backfill,
    drained: Vec<bool>,
    /// Node, CPUs (0 for all) and seconds of each running job.
    running: Vec<(u32, u32, u64)>,
    queue: Vec<Wish>,
    reservations: Vec<Kept>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let nodes = prop::option::weighted(0.6, 1_u32..5);
    let tasks = prop_oneof![
        2 => Just(Tasks::Unsaid),
        3 => (1_u32..9).prop_map(Tasks::InAll),
        1 => (1_u32..4).prop_map(Tasks::OnEach),
    ];
    let gpus = prop_oneof![2 => Just((0, 0)), 1 => Just((1, 0)), 1 => Just((0, 1))];
    let memory = prop::option::weighted(0.3, 1_u64..9);
    let licenses = prop_oneof![Just(0), 1..=LICENSES];
    let reservation = (prop::option::weighted(0.4, 0_usize..3), licenses);
    let flags = (prop::bool::ANY, prop::bool::weighted(0.3));
    let time = (1_u64..12, prop::option::weighted(0.3, 1_u64..6));
    (nodes, tasks, 1_u32..3, memory, gpus, flags, time, reservation).prop_map(
        |(nodes, tasks, cpus, memory, gpus, (whole, must), seconds, reservation)| {
            (nodes, tasks, cpus, memory, gpus, whole, must, seconds, reservation)
        },
    )
}

fn kept() -> impl Strategy<Value = Kept> {
    let flags = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![Flag::Maint]),
        1 => Just(vec![Flag::Overlap]),
        1 => Just(vec![Flag::Flex]),
        1 => Just(vec![Flag::Magnetic]),
        1 => Just(vec![Flag::TimeFloat]),
        2 => Just(vec![Flag::AnyNodes]),
        1 => Just(vec![Flag::Overlap, Flag::AnyNodes]),
        1 => Just(vec![Flag::AnyNodes, Flag::Magnetic]),
    ];
    let licenses = prop_oneof![1 => Just(0), 3 => 1..=LICENSES];
    (0_u32..16, 0_u32..4, licenses, 0_i64..12, 1_u64..12, flags)
}

fn queue() -> impl Strategy<Value = Vec<Wish>> {
    prop::collection::vec(wish(), 1..12)
}

fn case() -> impl Strategy<Value = Case> {
    let leaves = prop::collection::vec(1_u32..4, 1..4);
    let spines = prop::collection::vec(leaves, 0..3);
    let adjacent = prop::option::weighted(0.4, 1_u32..4);
    let backfill = prop_oneof![Just(Backfill::Easy), Just(Backfill::Conservative), Just(Backfill::None)];
    let drained = prop::collection::vec(prop::bool::weighted(0.1), 16);
    let running = prop::collection::vec((0_u32..16, 0_u32..4, 1_u64..15), 0..10);
    let reservations = prop_oneof![Just(Vec::new()), prop::collection::vec(kept(), 1..4)];
    (spines, adjacent, backfill, drained, running, queue(), reservations).prop_map(
        |(spines, adjacent, backfill, drained, running, queue, reservations)| Case {
            spines,
            adjacent,
            backfill,
            drained,
            running,
            queue,
            reservations,
        },
    )
}

fn spec(wish: &Wish, layered: bool, reservations: usize) -> JobSpec {
    let (nodes, tasks, cpus, memory, (of_task, of_node), whole, must, (seconds, least), other) = *wish;
    let (reservation, licenses) = other;
    let (tasks, on_each) = match tasks {
        Tasks::Unsaid => (None, None),
        Tasks::InAll(tasks) => (Some(tasks), None),
        Tasks::OnEach(tasks) => (None, Some(tasks)),
    };
    let nodes = nodes.map(|nodes| tasks.map_or(nodes, |tasks| nodes.min(tasks)));
    let gpus = |count| if count > 0 { vec![GresSpec::new("gpu", None, count)] } else { Vec::new() };
    let shape = Shape {
        nodes: nodes.map(NodeCount::exactly).or(tasks.is_none().then(|| NodeCount::exactly(1))),
        tasks,
        tasks_per_node: on_each,
        cpus_per_task: Some(cpus),
        memory: memory.map(MemoryNeed::PerNode),
        gpus_per_task: gpus(of_task),
        gres: gpus(of_node),
        sharing: if whole { Sharing::Exclusive } else { Sharing::Shared },
        ..Shape::default()
    };
    let ask = FabricAsk { gather: Some("must:leaf".parse().unwrap()), ..FabricAsk::default() };
    let fabric = (must && layered).then(|| Box::new(ask));
    let reservation =
        reservation.filter(|index| *index < reservations).map(|index| format!("r{index}").into());
    let licenses = licensed(licenses);
    let extra = Some(Box::new(Extra { reservation, licenses, ..Extra::default() }));
    let time_min = least.map(|least| TimeLimit::Seconds(least.min(seconds)));
    JobSpec { fabric, extra, time_min, ..world::spec(shape, seconds) }
}

fn licensed(count: u32) -> Vec<(Box<str>, u32)> {
    (count > 0).then(|| ("x".into(), count)).into_iter().collect()
}

impl Case {
    /// Builds the cluster. Without leaves there is no topology; otherwise leaves of the given sizes are under
    /// spines, and these under one top switch.
    fn world(&self) -> World {
        self.world_by(SchedulerPolicy { order: Order::Fcfs, ..SchedulerPolicy::default() })
    }

    /// Builds the cluster with the order and predictor of a scheduler policy.
    fn world_by(&self, scheduler: SchedulerPolicy) -> World {
        let flat = self.spines.is_empty();
        let count: u32 = if flat { 5 } else { self.spines.iter().flatten().sum() };
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 2 }];
        let shape = NodeShape { cpus: 4, memory_mb: 8, threads_per_core: 1, gres, ..NodeShape::default() };
        let nodes: Vec<_> =
            (0..count).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let names = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let topologies = if flat { Vec::new() } else { vec![world::topology(&self.tree())] };
        let policy = Policy {
            nodes,
            partitions: vec![world::partition("main", names)],
            licenses: vec![("x".into(), LICENSES)],
            topologies,
            scheduler: SchedulerPolicy { backfill: self.backfill, depth: 0, ..scheduler },
            ..Policy::default()
        };
        let mut world = World::new(policy);
        self.fill(&mut world, count);
        world
    }

    fn tree(&self) -> String {
        let mut toml = String::from("plugin = \"tree\"\nlayers = [\"leaf\", \"spine\", \"core\"]\n");
        let (mut first, mut leaf) = (0, 0);
        for (spine, sizes) in self.spines.iter().enumerate() {
            let first_leaf = leaf;
            for size in sizes {
                let last = first + size - 1;
                toml += &format!("[[switches]]\nname = \"s{leaf}\"\nnodes = \"n[{first}-{last}]\"\n");
                (first, leaf) = (last + 1, leaf + 1);
            }
            let last_leaf = leaf - 1;
            toml +=
                &format!("[[switches]]\nname = \"t{spine}\"\nswitches = \"s[{first_leaf}-{last_leaf}]\"\n");
        }
        let last = self.spines.len() - 1;
        toml += &format!("[[switches]]\nname = \"top\"\nswitches = \"t[0-{last}]\"\n");
        if let Some(leaves) = self.adjacent {
            toml += &format!("[[rule]]\nadjacent = {leaves}\n");
        }
        toml
    }

    /// Submits the next job, if there is one.
    fn submit(&self, world: &mut World, wish: Option<&Wish>) {
        if let Some(wish) = wish {
            let next = world.cluster.next_job();
            let reservations = world.cluster.reservations().count();
            world.submit(next, spec(wish, !self.spines.is_empty(), reservations));
        }
    }

    fn fill(&self, world: &mut World, count: u32) {
        let mut next = 1;
        for (node, cpus, seconds) in &self.running {
            let node = NodeId(node % count);
            let free = world.cluster.node(node).unwrap().free_cpus().len();
            if free == 0 || *cpus > free || (*cpus == 0 && free < 4) {
                continue;
            }
            // Every second job holds a license, as long as one is free.
            let holds = u32::from(next % 2 == 1 && next / 2 < LICENSES);
            let extra = Some(Box::new(Extra { licenses: licensed(holds), ..Extra::default() }));
            world.submit(JobId(next), JobSpec { extra, ..world::spec(Shape::default(), *seconds) });
            world.put(JobId(next), &[node], *cpus);
            next += 1;
        }
        for (index, _) in self.drained.iter().take(count as usize).enumerate().filter(|(_, out)| **out) {
            let drain =
                Drain { reason: "test".into(), by: "root".into(), at: Time::ZERO, until_mended: false };
            world.apply(Event::NodeDrained { node: NodeId(u32::try_from(index).unwrap()), drain });
        }
        for (index, (first, nodes, licenses, start, seconds, flags)) in self.reservations.iter().enumerate() {
            let first = first % count;
            let nodes = (first..(first + nodes).min(count)).map(NodeId).collect();
            let name = format!("r{index}");
            let start = Time(*start);
            let made = world::reservation(&name, nodes, start, start + *seconds, flags);
            let made = Reservation { licenses: licensed(*licenses), ..made };
            let reservation = if made.has(Flag::TimeFloat) { made.floating(world.now) } else { made };
            world.apply(Event::ReservationCreated { reservation: Arc::new(reservation) });
        }
        for wish in &self.queue {
            let reservations = self.reservations.len();
            world.submit(JobId(next), spec(wish, !self.spines.is_empty(), reservations));
            next += 1;
        }
    }
}

fn fabric(world: &World) -> Arc<Fabric> {
    let nodes: Vec<_> = world.cluster.nodes().iter().map(|node| (node.id, &**node.name())).collect();
    let none = || Arc::new(Fabric::flat("none", &nodes));
    world.cluster.fabric_of(&world.cluster.partitions()[0]).cloned().unwrap_or_else(none)
}

fn starts(world: &World, plan: &Plan) -> oracle::Starts {
    let now = plan.starts.iter().map(|start| {
        (start.attempt.job, (world.now, start.parts.iter().map(|part| part.node).collect::<Vec<_>>()))
    });
    let later = plan
        .waiting
        .iter()
        .filter_map(|waiting| Some((waiting.job, (waiting.start?, waiting.nodes.clone()))));
    now.chain(later).collect()
}

proptest! {


    /// The planner starts and plans every job at the time and on the nodes that the simple planner chooses.
    #[test]
    fn same_as_the_obvious_planner(case in case()) {
        let world = case.world();
        let fabric = fabric(&world);
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        prop_assert_eq!(starts(&world, &plan), oracle::plan(&world, &fabric));
    }

    /// No resource is booked twice, every `must` is satisfied, every job has a start or a reason, and a
    /// second run gives the same plan.
    ///
    /// The same holds if the pass is made in slices, and if quick passes follow as jobs come and end.
    #[test]
    fn plans_are_sound(case in case(), ends in prop::collection::vec(0_usize..64, 0..20)) {
        let mut world = case.world();
        let fabric = fabric(&world);
        let mut planner = Planner::new(&world.cluster);
        let mut pass = planner.begin(&world.cluster, world.now);
        while pass.advance(1) == Progress::More {}
        let handed = pass.take_starts();
        let plan = planner.finish(pass);
        prop_assert_eq!(&handed, &plan.starts);
        prop_assert_eq!(&plan, &sched::plan(&world.cluster, world.now, &Limits));
        let wrong = checker::violations(&world, &fabric, &plan, planner.reservations());
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
        plan.starts.iter().for_each(|start| world.start(start));
        for end in ends {
            world.now = world.now + 1;
            world.expire();
            let running: Vec<JobId> = world.cluster.jobs().active().map(|job| job.id).collect();
            if let Some(job) = running.get(end) {
                world.end(*job);
            }
            let quick = planner.start_now(&world.cluster, world.now);
            let wrong = checker::violations(&world, &fabric, &quick, planner.reservations());
            prop_assert!(wrong.is_empty(), "{:?}", wrong);
            quick.starts.iter().for_each(|start| world.start(start));
        }
        prop_assert_eq!(spur_core::cluster::invariant::violations(&world.cluster), Vec::<String>::new());
    }

    /// The first job of the queue starts no later than promised, with any early ends and any new jobs.
    #[test]
    fn promises_are_kept(case in case(), ends in prop::collection::vec(0_usize..6, 60), arrivals in queue()) {
        let mut world = case.world();
        let mut planner = Planner::new(&world.cluster);
        let mut arrivals = arrivals.iter();
        for end in ends {
            go_on(&mut world, end);
            case.submit(&mut world, arrivals.next());
            let quick = planner.start_now(&world.cluster, world.now);
            carry_out(&mut world, &quick)?;
            let pass = planner.begin(&world.cluster, world.now);
            let deep = planner.finish(pass);
            carry_out(&mut world, &deep)?;
            world.now = world.now + 1;
        }
    }

    /// A job that has waited for `max_wait` is promised a start, and the promise is kept. The order and
    /// predictors of the test promise nothing to other jobs.
    #[test]
    fn who_waited_too_long_is_kept_a_promise(
        case in case(),
        ends in prop::collection::vec(0_usize..6, 60),
        arrivals in queue(),
        predict in prop_oneof![Just(Predict::Recent2), Just(Predict::Similar)],
        max_wait in 1_u64..20,
    ) {
        let scheduler = SchedulerPolicy {
            order: Order::Wfp3,
            predict,
            max_wait: Seconds(max_wait),
            ..SchedulerPolicy::default()
        };
        let mut world = case.world_by(scheduler);
        let mut arrivals = arrivals.iter();
        for end in ends {
            go_on(&mut world, end);
            case.submit(&mut world, arrivals.next());
            // This planner knows only what a restarted daemon knows.
            let mut planner = Planner::new(&world.cluster);
            let pass = planner.begin(&world.cluster, world.now);
            let plan = planner.finish(pass);
            carry_out(&mut world, &plan)?;
            let waits = |job: &Job| {
                let says = plan.waiting.iter().find(|waiting| waiting.job == job.id)?;
                (says.reason == Reason::Resources).then_some(says.start)
            };
            let first = world.cluster.jobs().pending().min_by_key(|job| (job.submitted, job.id));
            // A job that runs in a reservation has its nodes and gets no promise.
            let reserved = |job: &&Job| {
                let mut made = planner.reservations().iter();
                job.spec.reservations().next().is_some()
                    || made.any(|made| made.job == job.id && made.within.is_some())
            };
            let first = first.filter(|job| !reserved(job));
            let overdue = first.filter(|job| world.now.since(job.submitted) >= max_wait);
            if let Some((job, start)) = overdue.and_then(|job| Some((job, waits(job)?))) {
                prop_assert!(job.promised.is_some(), "job {} waits without a promise, planned {start:?}", job.id);
            }
            world.now = world.now + 1;
        }
    }
}

/// Ends the jobs that have reached their limit, and one job before it.
fn go_on(world: &mut World, end: usize) {
    let running = world.cluster.jobs().active();
    let running: Vec<(JobId, Time)> =
        running.map(|job| (job.id, job.ends_at(job.phase.started().expect("it runs")))).collect();
    for (index, (job, limit)) in running.into_iter().enumerate() {
        if limit <= world.now || index == end {
            world.end(job);
        }
    }
    world.expire();
}

/// Starts the jobs that a plan starts, and records its promises.
fn carry_out(world: &mut World, plan: &Plan) -> Result<(), TestCaseError> {
    for start in &plan.starts {
        let job = start.attempt.job;
        let promised = world.cluster.job(job).unwrap().promised;
        prop_assert!(promised.is_none_or(|by| world.now <= by), "job {} starts at {:?}", job, world.now);
        world.start(start);
    }
    for waiting in &plan.waiting {
        let promised = world.cluster.job(waiting.job).unwrap().promised;
        let broken =
            promised.is_some_and(|by| by < world.now || waiting.start.is_none_or(|start| start > by));
        prop_assert!(!broken, "job {} was promised {:?} and waits: {:?}", waiting.job, promised, waiting);
    }
    if let Some((job, start)) = plan.promise {
        world.apply(Event::StartPromised { job, start });
    }
    Ok(())
}
