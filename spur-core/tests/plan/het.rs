//! Comparison of het jobs with brute force: every way to place all components of small jobs on
//! small trees.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::Policy;
use spur_core::model::job::{FabricAsk, JobSpec, Shape, Sharing};
use spur_core::model::node::NodeShape;
use spur_core::sched::feasible;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Plan;
use spur_core::sched::{self, Planner};
use spur_core::text::nodes::NodeCount;

use crate::checker;
use crate::world::{self, World};

const CPUS: u32 = 2;

/// A component: nodes or tasks, whole nodes, a `must` at the leaf, and excluded nodes.
#[derive(Clone, Debug)]
struct Component {
    nodes: Option<u32>,
    tasks: u32,
    whole: bool,
    in_leaf: bool,
    excluded: Option<u32>,
}

#[derive(Clone, Debug)]
struct Case {
    /// Number of nodes, by spine and leaf.
    spines: Vec<Vec<u32>>,
    /// Node and CPUs of each running job.
    running: Vec<(u32, u32)>,
    components: Vec<Component>,
    gather: Option<&'static str>,
}

fn component() -> impl Strategy<Value = Component> {
    let nodes = prop::option::weighted(0.6, 1_u32..4);
    let flags =
        (prop::bool::weighted(0.6), prop::bool::weighted(0.25), prop::option::weighted(0.3, 0_u32..7));
    (nodes, 1_u32..4, flags).prop_map(|(nodes, tasks, (whole, in_leaf, excluded))| Component {
        nodes,
        tasks,
        whole: whole && nodes.is_some(),
        in_leaf,
        excluded,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let spines = prop::collection::vec(prop::collection::vec(1_u32..4, 1..3), 1..3);
    let running = prop::collection::vec((0_u32..7, 1_u32..=CPUS), 0..4);
    let components = prop::collection::vec(component(), 2..4);
    let gather = prop::sample::select(vec![
        None,
        None,
        Some("must:leaf"),
        Some("spine"),
        Some("prefer:leaf"),
        Some("prefer:leaf,prefer:spine"),
        Some("prefer:spine,prefer:leaf"),
        Some("must:spine,prefer:leaf"),
    ]);
    let small = |case: &Case| case.count() <= 7;
    let all = (spines, running, components, gather);
    let all =
        all.prop_map(|(spines, running, components, gather)| Case { spines, running, components, gather });
    all.prop_filter("few enough nodes to try everything", small)
}

/// Leaf and spine, by node.
type Places = Vec<(usize, usize)>;
/// Number of tasks, by node; 1 for a whole node.
type Shares = Vec<u32>;
/// Key by which ways to place all components are compared.
type Rank = (Vec<usize>, Vec<(u8, Vec<usize>)>);

impl Component {
    fn spec(&self, gather: Option<&str>) -> JobSpec {
        let shape = Shape {
            nodes: self.nodes.map(NodeCount::exactly),
            tasks: self.nodes.is_none().then_some(self.tasks),
            exclude: self.excluded.map(|node| Box::new(format!("n{node}").parse().unwrap())),
            sharing: if self.whole { Sharing::Exclusive } else { Sharing::Shared },
            ..Shape::default()
        };
        let fabric = FabricAsk {
            gather: self.in_leaf.then(|| "must:leaf".parse().unwrap()),
            het_gather: gather.map(|text| text.parse().unwrap()),
            ..FabricAsk::default()
        };
        JobSpec { fabric: Some(Box::new(fabric)), ..world::spec(shape, 60) }
    }

    /// Every way to place the component on the free CPUs.
    fn ways(&self, free: &[u32], places: &Places) -> Vec<Shares> {
        let mut ways = vec![Vec::new()];
        for (node, free) in free.iter().enumerate() {
            let barred = self.excluded == u32::try_from(node).ok() || (self.whole && *free < CPUS);
            let most = match (barred, self.nodes) {
                (true, _) => 0,
                (false, Some(_)) => 1.min(*free),
                (false, None) => *free,
            };
            ways = ways
                .into_iter()
                .flat_map(|way: Shares| {
                    (0..=most).map(move |share| way.iter().copied().chain([share]).collect())
                })
                .collect();
        }
        let total = self.nodes.unwrap_or(self.tasks);
        let fits = |way: &Shares| {
            let leaves: BTreeSet<usize> = used(way).map(|node| places[node].0).collect();
            way.iter().sum::<u32>() == total && (!self.in_leaf || leaves.len() == 1)
        };
        ways.into_iter().filter(fits).collect()
    }

    fn takes(&self, share: u32) -> u32 {
        if self.whole { share * CPUS } else { share }
    }
}

fn used(way: &Shares) -> impl Iterator<Item = usize> + '_ {
    way.iter().enumerate().filter(|(_, share)| **share > 0).map(|(node, _)| node)
}

fn spans(nodes: &BTreeSet<usize>, places: &Places) -> [usize; 3] {
    let leaves: BTreeSet<usize> = nodes.iter().map(|node| places[*node].0).collect();
    let spines: BTreeSet<usize> = nodes.iter().map(|node| places[*node].1).collect();
    [nodes.len(), leaves.len(), spines.len()]
}

impl Case {
    fn count(&self) -> u32 {
        self.spines.iter().flatten().sum()
    }

    fn places(&self) -> Places {
        let (mut places, mut leaf) = (Vec::new(), 0);
        for (spine, leaves) in self.spines.iter().enumerate() {
            for size in leaves {
                places.extend((0..*size).map(|_| (leaf, spine)));
                leaf += 1;
            }
        }
        places
    }

    fn world(&self) -> World {
        let count = self.count();
        let shape = NodeShape { cpus: CPUS, memory_mb: 8, threads_per_core: 1, ..NodeShape::default() };
        let nodes: Vec<_> =
            (0..7.max(count)).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let names = (0..count).map(|index| Arc::from(format!("n{index}"))).collect();
        let mut toml = String::from("plugin = \"tree\"\nlayers = [\"leaf\", \"spine\", \"core\"]\n");
        let (mut first, mut leaf) = (0, 0);
        for (spine, leaves) in self.spines.iter().enumerate() {
            let from = leaf;
            for size in leaves {
                let last = first + size - 1;
                toml += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first}-{last}]\"\n");
                first += size;
                leaf += 1;
            }
            toml += &format!("[[switches]]\nname = \"s{spine}\"\nswitches = \"l[{from}-{}]\"\n", leaf - 1);
        }
        let last = self.spines.len() - 1;
        toml += &format!("[[switches]]\nname = \"core\"\nswitches = \"s[0-{last}]\"\n");
        let mut world = World::new(Policy {
            nodes,
            partitions: vec![world::partition("main", names)],
            topologies: vec![world::topology(&toml)],
            ..Policy::default()
        });
        for (node, cpus) in self.running.iter().filter(|(node, _)| *node < count) {
            let (job, node) = (world.cluster.next_job(), NodeId(*node));
            if world.cluster.node(node).unwrap().free_cpus().len() >= *cpus {
                world.submit(job, world::spec(Shape::default(), 100));
                world.put(job, &[node], *cpus);
            }
        }
        world
    }

    fn submit(&self, world: &mut World) -> JobId {
        let gather = |offset: usize| self.gather.filter(|_| offset == 0);
        let specs =
            self.components.iter().enumerate().map(|(offset, component)| component.spec(gather(offset)));
        let leader = world.cluster.next_job();
        world.submit_het(leader, specs.collect());
        leader
    }

    /// Rank of a way to place all components; `None` if the way is not allowed.
    fn rank(&self, ways: &[Shares], places: &Places) -> Option<Rank> {
        let all: BTreeSet<usize> = ways.iter().flat_map(used).collect();
        let [_, leaves, spines] = spans(&all, places);
        let of = |layer: &str| if layer == "leaf" { leaves } else { spines };
        let mut near = Vec::new();
        for clause in self.gather.iter().flat_map(|gather| gather.split(',')) {
            match clause.strip_prefix("prefer:") {
                Some(layer) => near.push(of(layer)),
                None if of(clause.trim_start_matches("must:")) > 1 => return None,
                None => {}
            }
        }
        let local = |way: &Shares| {
            let nodes: BTreeSet<usize> = used(way).collect();
            let [count, leaves, spines] = spans(&nodes, places);
            let height = match (count, leaves, spines) {
                (1, ..) => 0,
                (_, 1, _) => 1,
                (_, _, 1) => 2,
                _ => 3,
            };
            (height, vec![spines, leaves, count])
        };
        Some((near, ways.iter().map(local).collect()))
    }

    /// Best rank of all ways; `None` if there is no way.
    fn best(&self, free: &[u32], places: &Places) -> Option<Rank> {
        let mut best = None;
        self.try_all(free.to_vec(), &mut Vec::new(), places, &mut best);
        best
    }

    fn try_all(&self, free: Vec<u32>, chosen: &mut Vec<Shares>, places: &Places, best: &mut Option<Rank>) {
        let Some(component) = self.components.get(chosen.len()) else {
            let rank = self.rank(chosen, places);
            if let Some(rank) = rank
                && best.as_ref().is_none_or(|best| rank < *best)
            {
                *best = Some(rank);
            }
            return;
        };
        for way in component.ways(&free, places) {
            let left = free.iter().zip(&way).map(|(free, share)| free - component.takes(*share)).collect();
            chosen.push(way);
            self.try_all(left, chosen, places, best);
            chosen.pop();
        }
    }
}

/// Tasks of each component by node; `None` if the het job does not start.
fn given(plan: &Plan, leader: JobId, count: u32) -> Option<Vec<Shares>> {
    let start = plan.starts.iter().find(|start| start.attempt.job == leader)?;
    let shares = start.all().map(|start| {
        let mut shares = vec![0; count as usize];
        start.parts.iter().for_each(|part| shares[part.node.index()] = part.tasks);
        shares
    });
    Some(shares.collect())
}

proptest! {
    /// A het job whose components each fit alone is refused if and only if the idle cluster cannot hold it.
    #[test]
    fn what_can_never_be_is_refused_and_nothing_else(case in case()) {
        let world = case.world();
        let gather = |offset: usize| case.gather.filter(|_| offset == 0);
        let specs = case.components.iter().enumerate();
        let specs: Vec<_> = specs.map(|(at, component)| Arc::new(component.spec(gather(at)))).collect();
        prop_assume!(specs.iter().all(|spec| feasible::check(&world.cluster, spec).is_ok()));
        let idle = vec![CPUS; case.count() as usize];
        let possible = case.best(&idle, &case.places()).is_some();
        prop_assert_eq!(feasible::check_together(&world.cluster, &specs).is_ok(), possible);
    }

    /// The components start if and only if there is a way, and no other way is nearer or more local.
    #[test]
    fn no_better_way_and_no_feasible_job_refused(case in case()) {
        let mut world = case.world();
        let leader = case.submit(&mut world);
        let places = case.places();
        let nodes = world.cluster.nodes().iter().take(case.count() as usize);
        let free: Vec<u32> = nodes.map(|node| node.free_cpus().len()).collect();
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        let found = given(&plan, leader, case.count()).map(|ways| case.rank(&ways, &places));
        prop_assert_eq!(found, case.best(&free, &places).map(Some));
        let exact = plan.starts.iter().flat_map(|start| start.all()).all(|start| start.why.exact);
        prop_assert!(exact, "small cases are searched to the end");
    }

    /// Components that wait are planned together, at the latest when all running jobs have ended. Quick
    /// passes respect that plan and give the same result.
    #[test]
    fn components_are_planned_together(case in case()) {
        let mut world = case.world();
        let leader = case.submit(&mut world);
        let places = case.places();
        let fabric = world.cluster.fabric_of(&world.cluster.partitions()[0]).unwrap().clone();
        let mut planner = Planner::new(&world.cluster);
        let pass = planner.begin(&world.cluster, world.now);
        let plan = planner.finish(pass);
        let wrong = checker::violations(&world, &fabric, &plan, planner.reservations());
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
        let idle = vec![CPUS; case.count() as usize];
        let starts = given(&plan, leader, case.count()).is_some();
        let planned = plan.waiting.iter().filter(|waiting| waiting.start.is_some()).count();
        let possible = case.best(&idle, &places).is_some();
        prop_assert_eq!(starts || planned == case.components.len(), possible);
        let quick = planner.start_now(&world.cluster, world.now);
        prop_assert_eq!(quick.starts.len(), usize::from(starts));
    }
}
