//! Comparison of preemption with brute force: every set of victims is ended, and the planner then decides
//! whether the job starts.

use std::sync::Arc;

use proptest::prelude::*;
use spur_core::cluster::event::Event;
use spur_core::id::{JobId, NodeId};
use spur_core::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use spur_core::model::config::{
    PartitionConfig, Policy, PreemptBy, PreemptCost, PreemptMode, PreemptPolicy, QosConfig,
};
use spur_core::model::job::{Extra, FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{Drain, NodeGres, NodeShape};
use spur_core::model::phase::Phase;
use spur_core::sched;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Start;
use spur_core::text::gres::GresSpec;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::Seconds;

use crate::world::{self, World};

/// A running job: tier and QOS, first node, number of nodes, distance of nodes, CPUs (0 for whole nodes), and
/// time of its start.
type Running = (u32, u32, u32, u32, u32, u64);

/// A pending job: nodes, tasks, CPUs per task, memory, GPUs per task, whole nodes, and constraint on the
/// fabric.
type Wish = (Option<u32>, Option<u32>, u32, Option<u64>, u64, bool, u8);

#[derive(Clone, Debug)]
struct Case {
    /// Sizes of the leaves of each spine.
    spines: Vec<Vec<u32>>,
    cost: PreemptCost,
    /// Priority of each QOS of running jobs, and a flag that is true if the pending job's QOS lists it.
    /// `None` lets tiers decide.
    qos: Option<[(u32, bool); 3]>,
    /// Treatment of victims, and where partition and QOS override it.
    mode: PreemptMode,
    modes: [Option<PreemptMode>; 3],
    /// Jobs that have run less than this are exempt, in seconds.
    exempt: u64,
    /// True for each running job that forbids preemption.
    firm: [bool; 8],
    running: Vec<Running>,
    wish: Wish,
    /// Other components of a het job, empty for other jobs. The flag is true for a component in the
    /// middle partition instead of the high one.
    rest: Vec<(Wish, bool)>,
    gather: Option<&'static str>,
}

fn case() -> impl Strategy<Value = Case> {
    let spines = prop::collection::vec(prop::collection::vec(1_u32..4, 1..3), 1..4);
    let cost = prop_oneof![Just(PreemptCost::Priority), Just(PreemptCost::Jobs), Just(PreemptCost::Work)];
    let qos = prop::array::uniform3((0_u32..4, prop::bool::weighted(0.7)));
    let qos = prop::option::weighted(0.5, qos);
    let mode = prop_oneof![
        2 => Just(PreemptMode::Cancel),
        2 => Just(PreemptMode::Requeue),
        2 => Just(PreemptMode::Suspend),
    ];
    let other = prop_oneof![mode.clone(), Just(PreemptMode::Off)];
    let modes = prop::array::uniform3(prop::option::weighted(0.2, other));
    let exempt = prop_oneof![3 => Just(0), 1 => 1_u64..30];
    let firm = prop::array::uniform8(prop::bool::weighted(0.1));
    let running = prop::collection::vec((1_u32..4, 0_u32..16, 1_u32..4, 1_u32..4, 0_u32..5, 0_u64..30), 1..9);
    let wish = wish(6);
    (spines, cost, qos, (mode, modes, exempt, firm), running, wish).prop_map(
        |(spines, cost, qos, (mode, modes, exempt, firm), running, wish)| Case {
            rest: Vec::new(),
            gather: None,
            spines,
            cost,
            qos,
            mode,
            modes,
            exempt,
            firm,
            running,
            wish,
        },
    )
}

/// A pending job with fewer nodes than the limit.
fn wish(nodes: u32) -> impl Strategy<Value = Wish> {
    let tasks = prop::option::weighted(0.4, 1..nodes + 3);
    let nodes = prop::option::weighted(0.7, 1..nodes);
    let memory = prop::option::weighted(0.2, 1_u64..9);
    (nodes, tasks, 1_u32..4, memory, 0_u64..2, prop::bool::weighted(0.6), 0_u8..6)
}

/// A het job of two or three small components.
fn het() -> impl Strategy<Value = Case> {
    let gather =
        prop::sample::select(vec![None, None, Some("must:spine"), Some("prefer:leaf"), Some("must:leaf")]);
    let rest = prop::collection::vec((wish(3), prop::bool::weighted(0.2)), 1..3);
    (case(), wish(3), rest, gather).prop_map(|(case, wish, rest, gather)| Case { wish, rest, gather, ..case })
}

fn spec(wish: &Wish) -> JobSpec {
    let (nodes, tasks, cpus, memory, gpus, whole, ask) = *wish;
    let nodes = nodes.map(|nodes| tasks.map_or(nodes, |tasks| nodes.min(tasks)));
    let shape = Shape {
        nodes: nodes.map(NodeCount::exactly).or(tasks.is_none().then(|| NodeCount::exactly(1))),
        tasks,
        cpus_per_task: Some(cpus),
        memory: memory.map(MemoryNeed::PerNode),
        gpus_per_task: if gpus > 0 { vec![GresSpec::new("gpu", None, gpus)] } else { Vec::new() },
        sharing: match (whole, ask) {
            (true, 4) => Sharing::Topo,
            (true, _) => Sharing::Exclusive,
            (false, _) => Sharing::Shared,
        },
        ..Shape::default()
    };
    let gather = match ask {
        0 => Some("must:leaf"),
        1 => Some("must:spine"),
        2 => Some("leaf*2"),
        _ => None,
    };
    let fabric = FabricAsk {
        gather: gather.map(|gather| gather.parse().unwrap()),
        contiguous: ask == 3,
        ..FabricAsk::default()
    };
    JobSpec {
        fabric: Some(Box::new(fabric)),
        partitions: ["high".into()].into(),
        qos: Some("mine".into()),
        ..world::spec(shape, 60)
    }
}

impl Case {
    fn world(&self) -> World {
        let count: u32 = self.spines.iter().flatten().sum();
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 2 }];
        let shape = NodeShape { cpus: 4, memory_mb: 8, threads_per_core: 1, gres, ..NodeShape::default() };
        let nodes: Vec<_> =
            (0..count).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let tier = |name: &str, tier, preempt_mode| PartitionConfig {
            priority_tier: tier,
            preempt_mode,
            ..world::partition(name, names.clone())
        };
        let own = if self.qos.is_some() { [None; 3] } else { self.modes };
        let partitions = vec![
            tier("low", 1, own[0]),
            tier("middle", 2, own[1]),
            tier("equal", 3, own[2]),
            tier("high", 3, None),
        ];
        let by = if self.qos.is_some() { PreemptBy::Qos } else { PreemptBy::Partition };
        let exempt_time = Seconds(self.exempt);
        let preempt =
            PreemptPolicy { by, mode: self.mode, exempt_time, cost: self.cost, ..PreemptPolicy::default() };
        let topologies = vec![world::topology(&self.topology())];
        let mut world = World::new(Policy {
            nodes,
            partitions,
            topologies,
            preempt,
            qos: self.qualities(),
            ..Policy::default()
        });
        let mut running = self.running.clone();
        running.sort_by_key(|(.., since)| *since);
        for ((tier, first, nodes, apart, cpus, since), firm) in running.into_iter().zip(self.firm) {
            world.now.0 = i64::try_from(since).unwrap();
            let nodes = (0..nodes).map(|index| NodeId((first + index * apart) % count));
            put(&mut world, tier, nodes, cpus, firm);
        }
        world.now.0 = 30;
        let job = world.cluster.next_job();
        if self.rest.is_empty() {
            world.submit(job, spec(&self.wish));
            return world;
        }
        let mut first = spec(&self.wish);
        if let Some(fabric) = &mut first.fabric {
            fabric.het_gather = self.gather.map(|gather| gather.parse().unwrap());
        }
        let rest = self.rest.iter().map(|(wish, middle)| JobSpec {
            partitions: [if *middle { "middle" } else { "high" }.into()].into(),
            ..spec(wish)
        });
        world.submit_het(job, std::iter::once(first).chain(rest).collect());
        world
    }

    fn qualities(&self) -> Vec<QosConfig> {
        let mut mine = QosConfig { name: "mine".into(), ..QosConfig::default() };
        let mut all = Vec::new();
        for ((name, preempt_mode), (priority, listed)) in
            QOS.into_iter().zip(self.modes).zip(self.qos.iter().flatten())
        {
            let (name, priority) = (name.into(), *priority);
            all.push(QosConfig { name, priority, preempt_mode, ..QosConfig::default() });
            mine.preempt.extend(listed.then(|| all.last().unwrap().name.clone()));
        }
        all.push(mine);
        all
    }

    fn topology(&self) -> String {
        let mut toml = String::from("plugin = \"tree\"\nlayers = [\"leaf\", \"spine\"]\n");
        let (mut node, mut leaf) = (0, 0);
        for (spine, leaves) in self.spines.iter().enumerate() {
            let first = leaf;
            for size in leaves {
                let last = node + size - 1;
                toml += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{node}-{last}]\"\n");
                (node, leaf) = (node + size, leaf + 1);
            }
            let last = leaf - 1;
            toml += &format!("[[switches]]\nname = \"s{spine}\"\nswitches = \"l[{first}-{last}]\"\n");
        }
        toml
    }
}

const PARTITIONS: [&str; 3] = ["low", "middle", "equal"];
const QOS: [&str; 3] = ["one", "two", "three"];

/// Starts a job on those of the nodes that have enough free resources.
fn put(world: &mut World, tier: u32, nodes: impl Iterator<Item = NodeId>, cpus: u32, firm: bool) {
    let fits = |node: &NodeId| {
        let free = world.cluster.node(*node).unwrap().free_cpus().len();
        if cpus == 0 { free == 4 } else { free >= cpus }
    };
    let mut nodes: Vec<NodeId> = nodes.filter(fits).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return;
    }
    let job = world.cluster.next_job();
    let [partition, qos] = [PARTITIONS, QOS].map(|names| names[tier as usize - 1]);
    let spec = JobSpec {
        partitions: [partition.into()].into(),
        qos: Some(qos.into()),
        extra: firm.then(|| Box::new(Extra { no_preempt: true, ..Extra::default() })),
        ..world::spec(Shape::default(), 600)
    };
    world.submit(job, spec);
    // Resources beyond CPUs stay allocated while the job is suspended.
    let (memory_mb, gpus) = (u64::from(cpus + tier) % 3 * 2, (job.0 + tier) % 3);
    let part = |node: &NodeId| {
        let known = world.cluster.node(*node).unwrap();
        let cpus = if cpus == 0 { known.free_cpus() } else { known.free_cpus().lowest(cpus) };
        let ids = known.free_gres(0).lowest(gpus);
        let gres = if ids.is_empty() {
            Box::default()
        } else {
            Box::from([GresAlloc { entry: 0, ids, shards: false }])
        };
        let memory_mb = memory_mb.min(known.free_memory_mb());
        NodeAlloc { node: *node, tasks: 1, cpus, memory_mb, gres }
    };
    let parts = nodes.iter().map(part).collect();
    let partition = Arc::clone(&world.cluster.job(job).unwrap().spec.partitions[0]);
    let alloc = Alloc { partition, nodes: parts, exclusive: cpus == 0, ..Alloc::default() };
    world.apply(Event::JobStarted {
        job,
        alloc: Arc::new(alloc),
        split: None,
        configuring: Default::default(),
    });
}

/// Cost of a set of victims, computed from the definition in the documentation.
fn price(world: &World, victims: &[JobId], by: PreemptCost) -> [u64; 3] {
    let (mut level, mut work) = (0, 0);
    for job in victims.iter().map(|id| world.cluster.job(*id).unwrap()) {
        let Phase::Running { alloc, started, .. } = &job.phase else { panic!("a victim runs") };
        let policy = world.cluster.policy();
        let own = match policy.preempt.by {
            PreemptBy::Qos => policy.qos_of(job.spec.qos.as_deref()).unwrap().priority,
            _ => world.cluster.partition(&alloc.partition).unwrap().config.priority_tier,
        };
        level = level.max(u64::from(own));
        work += alloc.nodes.len() as u64 * world.now.since(*started);
    }
    let jobs = victims.len() as u64;
    match by {
        PreemptCost::Priority => [level, work, jobs],
        PreemptCost::Jobs => [jobs, level, work],
        PreemptCost::Work => [work, level, jobs],
    }
}

/// True if the job would start after these jobs were ended or suspended.
fn would_start(world: &World, victims: &[JobId]) -> bool {
    let mut world = world.clone();
    victims.iter().for_each(|job| make_way(&mut world, *job));
    !sched::plan(&world.cluster, world.now, &Limits).starts.is_empty()
}

/// Ends or suspends a victim.
fn make_way(world: &mut World, job: JobId) {
    match world.preempt_mode(job) {
        PreemptMode::Suspend => world.apply(Event::JobSuspended { job, wanted: false }),
        _ => world.end(job),
    }
}

/// Nodes of every leaf and every spine.
fn domains(spines: &[Vec<u32>]) -> Vec<std::ops::Range<u32>> {
    let mut domains = Vec::new();
    let mut node = 0;
    for leaves in spines {
        let first = node;
        for size in leaves {
            domains.push(node..node + size);
            node += size;
        }
        domains.push(first..node);
    }
    domains
}

/// Returns the same cluster with only the nodes of one domain in service.
fn confined(world: &World, domain: &std::ops::Range<u32>) -> World {
    let mut world = world.clone();
    let others: Vec<NodeId> =
        world.cluster.nodes().iter().map(|node| node.id).filter(|id| !domain.contains(&id.0)).collect();
    for node in others {
        let drain = Drain { reason: "test".into(), by: "root".into(), at: world.now, until_mended: false };
        world.apply(Event::NodeDrained { node, drain });
    }
    world
}

/// Number of empty nodes in a domain after all possible victims have left.
fn most_empty(world: &World, domain: &std::ops::Range<u32>, may_leave: &[JobId]) -> usize {
    let stays = |id: &JobId| !may_leave.contains(id);
    let empty = |node: &u32| !world.cluster.node(NodeId(*node)).unwrap().jobs.iter().any(stays);
    domain.clone().filter(empty).count()
}

/// Every set of jobs of lower tiers, or of listed QOS.
fn sets(world: &World) -> Vec<Vec<JobId>> {
    let policy = world.cluster.policy();
    let low = |id: &JobId| {
        let job = world.cluster.job(*id).unwrap();
        let firm = job.spec.extra.as_ref().is_some_and(|extra| extra.no_preempt);
        let ran = world.now.since(job.phase.started().expect("it runs"));
        if firm || ran < policy.preempt.exempt_time.0 || world.preempt_mode(*id) == PreemptMode::Off {
            return false;
        }
        match policy.preempt.by {
            PreemptBy::Qos => {
                policy.qos.last().unwrap().preempt.iter().any(|name| Some(name) == job.spec.qos.as_ref())
            }
            _ => job.phase.alloc().is_some_and(|alloc| {
                let tier = |name: &str| world.cluster.partition(name).unwrap().config.priority_tier;
                let pending = world.cluster.jobs().pending().map(|job| tier(&job.spec.partitions[0]));
                tier(&alloc.partition) < pending.min().unwrap()
            }),
        }
    };
    let jobs: Vec<JobId> = world.cluster.jobs().active().map(|job| job.id).filter(low).collect();
    (0..1_u32 << jobs.len())
        .map(|bits| (0..jobs.len()).filter(|at| bits >> at & 1 == 1).map(|at| jobs[at]).collect())
        .collect()
}

proptest! {
    /// No job is preempted for a job that would start anyway, or that would still not start. Victims are of
    /// lower tiers or listed QOS, and no other set costs less.
    #[test]
    fn no_cheaper_set_of_victims_exists(case in case()) {
        is_cheapest(&case)?;
    }

    /// No set of victims for a het job costs less than the chosen one.
    #[test]
    fn no_cheaper_set_exists_for_a_het_job(case in het()) {
        is_cheapest(&case)?;
    }

    /// Among domains whose cheapest sets cost the same, the one with the least waste is chosen for a job of
    /// whole nodes.
    #[test]
    fn of_equal_cost_the_fullest_domain_is_taken(case in case(), nodes in 1_u32..5, must in prop::bool::ANY) {
        let wish = (Some(nodes), None, 1, None, 0, true, if must { 1 } else { 5 });
        // A suspended job stays on its nodes, so that none of them is ever empty.
        let case = Case { wish, mode: PreemptMode::Requeue, modes: [None; 3], ..case };
        let world = case.world();
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        let Some(preemption) = plan.preemptions.first() else { return Ok(()) };
        let sets = sets(&world);
        let may_leave = sets.last().unwrap();
        let ranked = domains(&case.spines).into_iter().filter_map(|domain| {
            let world = confined(&world, &domain);
            let starts = sets.iter().filter(|set| would_start(&world, set));
            let least = starts.map(|set| price(&world, set, case.cost)).min()?;
            Some((least, most_empty(&world, &domain, may_leave), domain))
        });
        let ranked: Vec<_> = ranked.collect();
        let best = ranked.iter().map(|(price, empty, _)| (*price, *empty)).min().unwrap();
        let is_best = |domain: &std::ops::Range<u32>| {
            let inside = preemption.start.parts.iter().all(|part| domain.contains(&part.node.0));
            inside && ranked.iter().any(|(price, empty, of)| of == domain && (*price, *empty) == best)
        };
        prop_assert!(ranked.iter().any(|(_, _, domain)| is_best(domain)), "{:?} of {:?}", preemption, ranked);
    }

    /// No other job starts on the reserved nodes while the victims end. The job then starts on exactly those
    /// nodes.
    #[test]
    fn the_job_starts_where_room_was_made(case in prop_oneof![case(), het()], others in prop::collection::vec(1_u32..4, 0..4)) {
        let mut world = case.world();
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        let Some(preemption) = plan.preemptions.first().cloned() else { return Ok(()) };
        world.preempt(&preemption, 0);
        for nodes in others {
            let job = world.cluster.next_job();
            let shape = Shape { nodes: Some(NodeCount::exactly(nodes)), ..Shape::default() };
            let spec = JobSpec { partitions: ["low".into()].into(), ..world::spec(shape, 60) };
            world.submit(job, spec);
        }
        let job = preemption.start.attempt.job;
        for victim in &preemption.victims {
            let plan = sched::plan(&world.cluster, world.now, &Limits);
            prop_assert!(plan.preemptions.is_empty(), "nobody else has to go");
            prop_assert!(plan.starts.iter().all(|start| start.attempt.job != job), "it waits for {}", victim);
            plan.starts.iter().for_each(|start| world.start(start));
            prop_assert_eq!(spur_core::cluster::invariant::violations(&world.cluster), Vec::<String>::new());
            make_way(&mut world, victim.job);
        }
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        let start = plan.starts.iter().find(|start| start.attempt.job == job);
        let parts = |start: &Start| start.all().map(|start| start.parts.clone()).collect::<Vec<_>>();
        prop_assert_eq!(start.map(parts), Some(parts(&preemption.start)));
    }
}

fn is_cheapest(case: &Case) -> Result<(), TestCaseError> {
    let world = case.world();
    let plan = sched::plan(&world.cluster, world.now, &Limits);
    let sets = sets(&world);
    let cheapest =
        sets.iter().filter(|set| would_start(&world, set)).map(|set| price(&world, set, case.cost)).min();
    if would_start(&world, &[]) || cheapest.is_none() {
        prop_assert_eq!(plan.preemptions.len(), 0);
        return Ok(());
    }
    prop_assert_eq!(plan.preemptions.len(), 1, "a set of {:?} would do", cheapest);
    let preemption = &plan.preemptions[0];
    let victims: Vec<JobId> = preemption.victims.iter().map(|victim| victim.job).collect();
    prop_assert!(sets.contains(&victims), "{:?} may be preempted", victims);
    prop_assert!(would_start(&world, &victims));
    prop_assert_eq!(Some(price(&world, &victims, case.cost)), cheapest, "{:?}", victims);
    prop_assert!(preemption.start.all().all(|start| start.why.exact));
    Ok(())
}
