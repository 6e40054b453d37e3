//! Properties of plans for random clusters with all features at once.
//!
//! The clusters have partitions with topologies of their own, node weights, features, licenses, reservations,
//! QOS that preempt, arrays and het jobs. Jobs request all of it with the options of a user.

use std::sync::Arc;

use proptest::prelude::*;
use spur_core::cluster::event::Event;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{
    Backfill, NodeConfig, PartitionConfig, Policy, PreemptBy, PreemptMode, PreemptPolicy, QosConfig,
    SchedulerPolicy,
};
use spur_core::model::fabric::{Fabric, Pos};
use spur_core::model::job::{Job, JobSpec};
use spur_core::model::node::{NodeGres, NodeShape};
use spur_core::model::phase::{EndState, Outcome};
use spur_core::model::reason::Reason;
use spur_core::model::reservation::{Flag, Reservation};
use spur_core::model::topology::TopologyConfig;
use spur_core::sched::plan::{Plan, Start};
use spur_core::sched::{self, Planner, Progress, Reservations};
use spur_core::text::exit::ExitCode;
use spur_core::text::time::Time;

use crate::script;
use crate::world::{self, World};

const NODES: u32 = 12;

#[derive(Clone, Debug)]
struct Case {
    /// Sizes of the leaves; the flag selects the speed of their links.
    leaves: Vec<(u32, bool)>,
    /// Two features of each node and its weight.
    nodes: Vec<(bool, bool, u32)>,
    backfill: Backfill,
    preempt: PreemptBy,
    /// First node, number of nodes, start, seconds, flags and licenses of each reservation.
    reservations: Vec<(u32, u32, i64, u64, Vec<Flag>, u32)>,
    jobs: Vec<Vec<String>>,
}

/// One of the words, or none.
fn one(weight: f64, words: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(weight, prop::sample::select(words).prop_map(str::to_owned))
}

const SIZES: [&str; 14] = [
    "-N 1",
    "-N 2",
    "-N 3",
    "-N 4",
    "-N 2-4",
    "-N 1-6",
    "-n 3",
    "-n 6",
    "-N 2 -n 5",
    "-N 4 --exclusive",
    "-N 2 --exclusive=topo",
    "-n 4 -c 2",
    "-N 2 --gpus-per-task=1",
    "-n 3 --mem-per-cpu=1",
];
const NODES_WANTED: [&str; 11] = [
    "-C a",
    "-C a|b",
    "-C [a|b]",
    "-C [a|b]&[b|a]",
    "-C a*1&b*1",
    "-C [a*1&b*2]",
    "-x n[0-3]",
    "-w n4",
    "-w n[1,7]",
    "--contiguous",
    "-C a -x n2 -w n5",
];
const FABRIC: [&str; 13] = [
    "--gather=must:leaf",
    "--gather=prefer:leaf",
    "--gather=leaf*2",
    "--switches=1",
    "--switches=1@5",
    "--topology=block",
    "--topology=none",
    "--segment=2",
    "--network=bw=200G",
    "--network=latency",
    "--placement=balanced",
    "--placement=distributed",
    "--prefer=s1",
];
const PLACE: [&str; 6] = ["-p blocks", "-p bare", "-p main,bare", "-p blocks,main", "-q high", "-q low"];
const WHEN: [&str; 8] = [
    "--begin=3",
    "--begin=9",
    "--deadline=12",
    "--deadline=30",
    "--dependency=afterany:2",
    "--dependency=afterok:1",
    "--time-min=1",
    "--hold",
];
const MORE: [&str; 4] = ["--array=0-3", "--array=0-5%2", "--reservation=r0", "--nice=5"];
const LICENSES: [&str; 2] = ["-L x:1", "-L x:2"];

fn job() -> impl Strategy<Value = Vec<String>> {
    let time = (1_u64..20).prop_map(|seconds| Some(format!("-t {seconds}")));
    let (nodes, fabric) = (one(0.4, &NODES_WANTED), one(0.4, &FABRIC));
    let (place, when, more) = (one(0.5, &PLACE), one(0.3, &WHEN), one(0.4, &MORE));
    let licenses = one(0.3, &LICENSES);
    (one(0.99, &SIZES), time, nodes, fabric, place, when, more, licenses).prop_map(|parts| {
        let (size, time, nodes, fabric, place, when, more, licenses) = parts;
        let all = [size, time, nodes, fabric, place, when, more, licenses].into_iter().flatten();
        all.flat_map(|part| part.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect()
    })
}

fn case() -> impl Strategy<Value = Case> {
    let leaves = prop::collection::vec((1_u32..5, prop::bool::ANY), 2..5);
    let nodes = prop::collection::vec((prop::bool::ANY, prop::bool::ANY, 1_u32..4), NODES as usize);
    let backfill = prop_oneof![Just(Backfill::Easy), Just(Backfill::Conservative), Just(Backfill::None)];
    let preempt = prop_oneof![Just(PreemptBy::None), Just(PreemptBy::Partition), Just(PreemptBy::Qos)];
    let flags = prop::sample::select(vec![
        vec![],
        vec![Flag::Maint],
        vec![Flag::Overlap],
        vec![Flag::Flex],
        vec![Flag::Magnetic],
        vec![Flag::TimeFloat],
        vec![Flag::AnyNodes],
    ]);
    let kept = (0..NODES, 0_u32..4, 0_i64..12, 1_u64..12, flags, 0_u32..2);
    let reservations = prop_oneof![Just(Vec::new()), prop::collection::vec(kept, 1..3)];
    let jobs = prop::collection::vec(job(), 1..14);
    (leaves, nodes, backfill, preempt, reservations, jobs).prop_map(
        |(leaves, nodes, backfill, preempt, reservations, jobs)| Case {
            leaves,
            nodes,
            backfill,
            preempt,
            reservations,
            jobs,
        },
    )
}

impl Case {
    fn world(&self) -> World {
        let gres = || vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 2 }];
        let shape = |(a, b): (bool, bool)| {
            let features = [(a, "a"), (b, "b")].into_iter().filter(|(has, _)| *has);
            let features = features.map(|(_, name)| Arc::from(name)).collect();
            NodeShape {
                cpus: 4,
                memory_mb: 8,
                threads_per_core: 1,
                gres: gres(),
                features,
                ..NodeShape::default()
            }
        };
        let nodes: Vec<NodeConfig> = (self.nodes.iter().enumerate())
            .map(|(index, (a, b, weight))| world::node(&format!("n{index}"), shape((*a, *b)), *weight))
            .collect();
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let partition = |name: &str, tier, topology: Option<&str>| PartitionConfig {
            priority_tier: tier,
            topology: topology.map(Arc::from),
            ..world::partition(name, names.clone())
        };
        let partitions = vec![
            partition("main", 1, None),
            partition("blocks", 2, Some("blocks")),
            partition("bare", 1, Some("bare")),
        ];
        let qos = |name: &str, priority, preempt: &[&str]| QosConfig {
            name: name.into(),
            priority,
            preempt: preempt.iter().map(|name| Arc::from(*name)).collect(),
            ..QosConfig::default()
        };
        let qos = vec![qos("low", 0, &[]), qos("normal", 1, &[]), qos("high", 2, &["low"])];
        let named = |name: &str, toml: &str| TopologyConfig { name: name.into(), ..world::topology(toml) };
        let blocks = format!("plugin = \"block\"\nblock_size = {}\n", 1 + self.leaves.len());
        let topologies = vec![
            world::topology(&self.tree()),
            named("blocks", &blocks),
            named("bare", "plugin = \"none\"\n"),
        ];
        let (by, mode) = (self.preempt, PreemptMode::Cancel);
        let mut world = World::new(Policy {
            nodes,
            partitions,
            qos,
            topologies,
            licenses: vec![("x".into(), 2)],
            preempt: PreemptPolicy { by, mode, ..PreemptPolicy::default() },
            scheduler: SchedulerPolicy {
                backfill: self.backfill,
                depth: 0,
                default_qos: Some("normal".into()),
                ..SchedulerPolicy::default()
            },
            ..Policy::default()
        });
        for (index, (first, nodes, start, seconds, flags, licenses)) in self.reservations.iter().enumerate() {
            let nodes = (*first..(first + nodes).min(NODES)).map(NodeId).collect();
            let start = Time(*start);
            let made = world::reservation(&format!("r{index}"), nodes, start, start + *seconds, flags);
            let licenses = (*licenses > 0).then(|| ("x".into(), *licenses)).into_iter().collect();
            let made = Reservation { licenses, ..made };
            let made = if made.has(Flag::TimeFloat) { made.floating(world.now) } else { made };
            world.apply(Event::ReservationCreated { reservation: Arc::new(made) });
        }
        world
    }

    /// Topology of leaves of the given sizes under one top switch. The remaining nodes are in no domain.
    fn tree(&self) -> String {
        let mut toml = String::from("plugin = \"tree\"\n");
        let (mut first, mut leaves) = (0, Vec::new());
        for (index, (size, fast)) in self.leaves.iter().enumerate() {
            let last = (first + size).min(NODES) - 1;
            if first > last {
                break;
            }
            let speed = if *fast { "400G" } else { "100G" };
            toml += &format!("[[switches]]\nname = \"s{index}\"\nnodes = \"n[{first}-{last}]\"\n");
            toml += &format!("link_speed = \"{speed}\"\nlatency = \"{}us\"\n", 1 + index % 2);
            leaves.push(format!("s{index}"));
            first = last + 1;
        }
        let leaves = leaves.join(",");
        toml + &format!("[[switches]]\nname = \"top\"\nswitches = \"{leaves}\"\nlink_speed = \"200G\"\n")
    }
}

/// Submits a job as the controller would, which refuses a job that can never run.
fn submit(world: &mut World, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut spec = script::spec(&words);
    spec.qos = spec.qos.or(Some("normal".into()));
    let after = spec.dependency.iter().flat_map(|after| &after.terms).flat_map(|term| &term.jobs);
    let unknown = after.into_iter().any(|after| world.cluster.job(after.job).is_none());
    let gone = spec.reservations().any(|name| world.cluster.reservation(name).is_none());
    let shortest = spec.time_min.unwrap_or(spec.time_limit);
    let late = spec.deadline.is_some_and(|deadline| shortest.end(world.now) > deadline);
    if !unknown && !gone && !late && sched::feasible::check(&world.cluster, &spec).is_ok() {
        let next = world.cluster.next_job();
        world.submit(next, spec);
    }
}

/// Nodes and times that a job got or was promised.
struct Stay<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    nodes: Vec<NodeId>,
    within: Option<Arc<str>>,
    from: Time,
    to: Time,
}

fn stays<'a>(world: &'a World, plan: &'a Plan, made: &Reservations) -> Vec<Stay<'a>> {
    let job = |id: JobId| world.cluster.job(id).unwrap();
    let starts = plan.starts.iter().flat_map(Start::all).map(|start| {
        let limit = start.time_limit.unwrap_or(start.spec.time_limit);
        let job = job(start.attempt.job);
        let nodes = start.parts.iter().map(|part| part.node).collect();
        let to = limit.end(world.now).min(closes(world, start.reservation.as_deref()));
        Stay { job, spec: &job.spec, nodes, within: start.reservation.clone(), from: world.now, to }
    });
    let later = made.iter().map(|made| {
        let job = job(made.job);
        let nodes = made.amounts().filter(|(_, amount)| amount[0] > 0).map(|(node, _)| node).collect();
        Stay { job, spec: &job.spec, nodes, within: made.within.clone(), from: made.start, to: made.end }
    });
    starts.chain(later).collect()
}

/// Latest end of jobs that run in a reservation; `Time::MAX` for no reservation, and for one with `FLEX`.
fn closes(world: &World, within: Option<&str>) -> Time {
    let own = within.and_then(|name| world.cluster.reservation(name)).filter(|own| !own.has(Flag::Flex));
    own.map_or(Time::MAX, |own| own.end)
}

/// Violations in the nodes and times of a plan, checked against the jobs' own options.
fn wrong(world: &World, plan: &Plan, made: &Reservations) -> Vec<String> {
    let mut found = Vec::new();
    let stays = stays(world, plan, made);
    for stay in &stays {
        let (id, spec, shape) = (stay.job.id, stay.spec, &stay.spec.shape);
        let mut say = |what: &str| found.push(format!("job {id} at {}: {what}", stay.from.0));
        let count = u32::try_from(stay.nodes.len()).unwrap();
        let tasks = shape.tasks.unwrap_or(u32::MAX);
        if let Some(wanted) = &shape.nodes
            && spec.shape.sharing != spur_core::model::job::Sharing::Topo
            && (count < wanted.min.min(tasks) || wanted.max.is_some_and(|most| count > most))
        {
            say(&format!("{count} nodes"));
        }
        let name = |node: &NodeId| world.cluster.node(*node).unwrap().name().to_string();
        let names: Vec<String> = stay.nodes.iter().map(name).collect();
        let listed = |list: &Option<Box<spur_core::text::hostlist::HostExpr>>| -> Vec<String> {
            let mut none = |_: &_| Ok(Vec::new());
            list.iter().flat_map(|list| list.expand(&mut none).unwrap().iter().collect::<Vec<_>>()).collect()
        };
        if listed(&shape.nodelist).iter().any(|node| !names.contains(node)) {
            say("without a node of -w");
        }
        if listed(&shape.exclude).iter().any(|node| names.contains(node)) {
            say("on a node of -x");
        }
        if spec.begin.is_some_and(|begin| stay.from < begin) {
            say("before it may begin");
        }
        if spec.deadline.is_some_and(|deadline| stay.to > deadline) {
            say("beyond its deadline");
        }
        if stay.from == world.now && plan.starts.iter().any(|start| start.attempt.job == id) {
            if stay.job.waits_for.is_some() {
                say("before what it depends on");
            }
            if spec.hold {
                say("although it is held");
            }
        }
        let partitions = spec.partitions.iter().filter_map(|name| world.cluster.partition(name));
        let fabrics: Vec<_> =
            partitions.map(|partition| world.cluster.fabric_of(partition).cloned()).collect();
        if !fabrics.iter().any(|fabric| suits(world, fabric.as_deref(), spec, &stay.nodes)) {
            say("nodes that do not suit");
        }
    }
    found.extend(too_many_licenses(world, &stays));
    found
}

/// True if the nodes have the features of the request and satisfy its topological constraints.
fn suits(world: &World, fabric: Option<&Fabric>, spec: &JobSpec, nodes: &[NodeId]) -> bool {
    let has = |node: &NodeId, name: &str| {
        let shape = &world.cluster.node(*node).unwrap().shape;
        let pos = fabric.and_then(|fabric| fabric.pos(*node));
        shape.features.iter().any(|own| **own == *name)
            || fabric.zip(pos).is_some_and(|(fabric, pos)| fabric.features(pos).contains(name))
    };
    let meets = |wanted: &spur_core::text::features::FeatureExpr, node: &NodeId| {
        wanted.admits(&|name: &str| has(node, name))
    };
    if let Some(wanted) = &spec.shape.features {
        let each = nodes.iter().all(|node| meets(wanted, node));
        let shared = wanted.shared();
        let alike = shared.iter().any(|way| nodes.iter().all(|node| way.iter().all(|one| meets(one, node))));
        let counts = wanted.counts();
        let counted = |(one, count): &(&_, u32)| {
            nodes.iter().filter(|node| meets(one, node)).count() >= *count as usize
        };
        if !(each && alike && counts.iter().all(counted)) {
            return false;
        }
    }
    let (Some(fabric), Some(ask)) = (fabric, &spec.fabric) else { return true };
    let flat = ask.topology.as_deref() == Some("none");
    let mut positions: Vec<Pos> = nodes.iter().filter_map(|node| fabric.pos(*node)).collect();
    positions.sort_unstable();
    let in_a_row = positions.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
    let fast = ask.network.and_then(|network| network.bandwidth).is_none_or(|need| {
        let leaf = |pos: &Pos| fabric.leaf_of(*pos).and_then(|leaf| fabric.domain(leaf).link().speed);
        flat || positions.iter().all(|pos| leaf(pos).is_some_and(|speed| speed >= need.0))
    });
    (in_a_row || !ask.contiguous) && fast
}

/// Violations in the use of licenses: more in use than exist, or more than reservations in force leave to
/// other jobs.
fn too_many_licenses(world: &World, stays: &[Stay<'_>]) -> Vec<String> {
    let held = |spec: &JobSpec| -> u32 {
        spec.extra.iter().flat_map(|extra| &extra.licenses).map(|(_, count)| *count).sum()
    };
    let running = world.cluster.jobs().active().filter_map(|job| {
        let started = job.phase.started()?;
        let within = job.phase.alloc().and_then(|alloc| alloc.reservation.clone());
        let to = job.ends_at(started).min(closes(world, within.as_deref()));
        Some((job.id, held(&job.spec), within, world.now, to))
    });
    let planned =
        stays.iter().map(|stay| (stay.job.id, held(stay.spec), stay.within.clone(), stay.from, stay.to));
    let uses: Vec<_> = running.chain(planned).collect();
    let at_once = |at: Time| uses.iter().filter(move |(.., from, to)| *from <= at && at < *to);
    let kept = |at: Time| -> u32 {
        let active = world.cluster.reservations().filter(|made| made.is_active(at));
        let unused = |made: &Arc<Reservation>| {
            let within = at_once(at).filter(|(_, _, within, ..)| within.as_ref() == Some(&made.name));
            made.license("x").saturating_sub(within.map(|(_, count, ..)| count).sum())
        };
        active.map(unused).sum()
    };
    let windows = world.cluster.reservations().map(|made| made.start).filter(|start| *start > world.now);
    let begins = uses.iter().map(|(.., from, _)| *from).chain(windows);
    let too_many = |at: &Time| {
        let used: u32 = at_once(*at).map(|(_, count, ..)| count).sum();
        used + kept(*at) > 2
    };
    let say =
        |at: Time| format!("licenses at {}, {} kept: {:?}", at.0, kept(at), at_once(at).collect::<Vec<_>>());
    begins.filter(too_many).map(say).collect()
}

/// Ends the jobs that can no longer end before their deadline.
fn end_the_late(world: &mut World) {
    let late = |job: &&Job| job.latest_start().is_some_and(|last| last < world.now);
    let late: Vec<JobId> = world.cluster.jobs().pending().filter(late).map(|job| job.id).collect();
    for job in late {
        let (state, exit) = (EndState::Deadline, ExitCode::default());
        let outcome = Outcome { state, exit, reason: Reason::DeadLine, by: None, detail: None };
        world.apply(Event::JobEnded { job, outcome });
    }
}

fn carry_out(world: &mut World, plan: &Plan) {
    plan.starts.iter().for_each(|start| world.start(start));
    for preemption in &plan.preemptions {
        world.preempt(preemption, 0);
        for victim in &preemption.victims {
            if world.cluster.job(victim.job).is_some_and(|job| job.phase.alloc().is_some()) {
                world.end(victim.job);
            }
        }
    }
}

proptest! {
    /// Every plan satisfies the options of every job and books nothing twice, as time passes and jobs come
    /// and end.
    #[test]
    fn everything_at_once(case in case(), ends in prop::collection::vec(0_usize..12, 8)) {
        let mut world = case.world();
        let mut planner = Planner::new(&world.cluster);
        let mut jobs = case.jobs.iter();
        for end in ends {
            jobs.by_ref().take(3).for_each(|words| submit(&mut world, words));
            let mut pass = planner.begin(&world.cluster, world.now);
            while pass.advance(1) == Progress::More {}
            let plan = planner.finish(pass);
            let found = wrong(&world, &plan, planner.reservations());
            prop_assert!(found.is_empty(), "{:?}", found);
            let found = crate::checker::booked_twice(&world, &plan, planner.reservations());
            prop_assert!(found.is_empty(), "{:?}", found);
            carry_out(&mut world, &plan);
            prop_assert_eq!(spur_core::cluster::invariant::violations(&world.cluster), Vec::<String>::new());
            world.now = world.now + 1;
            world.expire();
            end_the_late(&mut world);
            let running: Vec<(JobId, Time)> = (world.cluster.jobs().active())
                .map(|job| (job.id, job.ends_at(job.phase.started().unwrap())))
                .collect();
            for (index, (job, limit)) in running.into_iter().enumerate() {
                if limit <= world.now || index == end {
                    world.end(job);
                }
            }
            let quick = planner.start_now(&world.cluster, world.now);
            let found = wrong(&world, &quick, planner.reservations());
            prop_assert!(found.is_empty(), "quick: {:?}", found);
            carry_out(&mut world, &quick);
        }
    }
}
