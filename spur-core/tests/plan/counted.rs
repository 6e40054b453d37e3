//! Tests of requests that once took seconds. Each must stay within a number of steps.

use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{PartitionConfig, Policy, PreemptBy, PreemptPolicy};
use spur_core::model::job::{FabricAsk, HetPart, JobSpec, Shape, Sharing};
use spur_core::model::node::NodeShape;
use spur_core::sched;
use spur_core::sched::feasible::{self, Answer, BRIEF, Feasibility, Question};
use spur_core::sched::forecast::Limits;
use spur_core::text::nodes::NodeCount;

use crate::world::{self, World};

/// Number of steps by which a search may exceed its budget, for the work in progress when the budget is used
/// up.
const UNDER_WAY: u64 = 20_000;

/// A cluster of 128 nodes in leaves of 16, below one spine, or below two spines and a top switch.
fn world(cpus: u32, spines: u32, preempt: PreemptPolicy) -> World {
    let shape = NodeShape { cpus, threads_per_core: 1, ..NodeShape::default() };
    let nodes: Vec<_> =
        (1..=128).map(|index| world::node(&format!("n{index:03}"), shape.clone(), 1)).collect();
    let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
    let mut toml = String::from("plugin = \"tree\"\n");
    for leaf in 0..8 {
        let (first, last) = (leaf * 16 + 1, leaf * 16 + 16);
        toml += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first:03}-{last:03}]\"\n");
    }
    for spine in 0..spines {
        let (first, last) = (spine * 8 / spines, (spine + 1) * 8 / spines - 1);
        toml += &format!("[[switches]]\nname = \"s{spine}\"\nswitches = \"l[{first}-{last}]\"\n");
    }
    if spines > 1 {
        toml += "[[switches]]\nname = \"top\"\nswitches = \"s[0-1]\"\n";
    }
    let tier =
        |name, priority_tier| PartitionConfig { priority_tier, ..world::partition(name, names.clone()) };
    World::new(Policy {
        partitions: vec![tier("main", 1), tier("high", 2)],
        topologies: vec![world::topology(&toml)],
        nodes,
        preempt,
        ..Policy::default()
    })
}

fn spec(tasks: u32, nodes: Option<u32>, fabric: FabricAsk) -> JobSpec {
    let nodes = nodes.map(NodeCount::exactly);
    let shape = Shape { tasks: Some(tasks), nodes, ..Shape::default() };
    JobSpec { fabric: Some(Box::new(fabric)), partitions: ["main".into()].into(), ..world::spec(shape, 60) }
}

/// Answers the questions of a waiting thread, as another thread would, until none is open.
fn decide(cluster: &Cluster, ask: impl Fn(&Feasibility) -> Option<Answer>) -> (Answer, usize) {
    let mut known = Vec::new();
    for round in 0.. {
        let feasibility = Feasibility::brief(known.clone(), false);
        let answer = ask(&feasibility);
        let most = BRIEF + UNDER_WAY;
        assert!(feasibility.steps() <= most, "{} steps in round {round}", feasibility.steps());
        assert_eq!(answer.is_none(), feasibility.is_open());
        if let Some(answer) = answer {
            return (answer, round);
        }
        assert!(round < 9, "the verdicts on {} decide", cluster.seq());
        known.extend(feasibility.into_open().into_iter().map(Question::answer));
    }
    unreachable!("rounds have no end")
}

/// A request whose refusal needs about fifteen hundred similar requests, each tried with its own budget.
fn hard() -> JobSpec {
    let fabric = FabricAsk {
        gather: Some("spine*6,prefer:spine".parse().unwrap()),
        placement: Some("distributed".parse().unwrap()),
        switches: Some("1".parse().unwrap()),
        ..FabricAsk::default()
    };
    spec(6375, Some(18), fabric)
}

#[test]
fn a_refusal_takes_few_steps_where_others_wait() {
    let world = world(64, 1, PreemptPolicy::default());
    let (answer, rounds) = decide(&world.cluster, |feasibility| feasibility.check(&world.cluster, &hard()));
    let refusal = answer.expect_err("a leaf of 16 nodes does not hold it");
    assert!(rounds > 0, "it takes long to find out what would work");
    assert!(!refusal.works.is_empty(), "{}", refusal.message);
    assert_eq!(Err(refusal), feasible::check(&world.cluster, &hard()));
}

#[test]
fn plain_requests_are_decided_at_once() {
    let world = world(64, 1, PreemptPolicy::default());
    let plain = || FabricAsk::default();
    let must = FabricAsk { gather: Some("must:leaf".parse().unwrap()), ..plain() };
    for spec in [
        spec(1, None, plain()),
        spec(640, Some(10), plain()),
        spec(8192, None, plain()),
        spec(8193, None, plain()),
        spec(16, Some(16), must.clone()),
        spec(17, Some(17), must),
    ] {
        let (answer, rounds) = decide(&world.cluster, |feasibility| feasibility.check(&world.cluster, &spec));
        assert_eq!(rounds, 0, "{:?}: {answer:?}", spec.shape);
        assert_eq!(answer, feasible::check(&world.cluster, &spec));
    }
}

#[test]
fn components_of_a_het_job_share_one_budget() {
    let world = world(64, 1, PreemptPolicy::default());
    let component = |offset| {
        let fabric = FabricAsk { het_gather: None, ..*hard().fabric.unwrap() };
        let het = HetPart { leader: JobId(1), offset, size: 12 };
        Arc::new(JobSpec { het: Some(Box::new(het)), ..spec(700 + offset, Some(11), fabric) })
    };
    let specs: Vec<_> = (0..12).map(component).collect();
    let feasibility = Feasibility::brief(Vec::new(), false);
    for spec in &specs {
        let _ = feasibility.check(&world.cluster, spec);
    }
    let _ = feasibility.check_together(&world.cluster, &specs);
    assert!(feasibility.steps() <= BRIEF + UNDER_WAY, "{} steps", feasibility.steps());
}

#[test]
fn a_verdict_counts_as_long_as_the_configuration_is_the_same() {
    let mut world = world(64, 1, PreemptPolicy::default());
    let feasibility = Feasibility::brief(Vec::new(), false);
    assert_eq!(feasibility.check(&world.cluster, &hard()), None);
    let known: Vec<_> = feasibility.into_open().into_iter().map(Question::answer).collect();
    let knows = |cluster: &Cluster, keeps_old| {
        Feasibility::brief(known.clone(), keeps_old).check(cluster, &hard()).is_some()
    };
    assert!(knows(&world.cluster, false));
    let down = |node| spur_core::cluster::event::Event::NodeDowned {
        node,
        reason: "test".into(),
        silent: true,
        by: None,
    };
    world.apply(down(NodeId(3)));
    assert!(knows(&world.cluster, false), "what can ever run does not depend on what is down");
    let policy = Policy::clone(world.cluster.policy());
    let policy = Arc::new(policy);
    world.apply(spur_core::cluster::event::Event::PolicyChanged { policy, keeps_edits: true });
    assert!(!knows(&world.cluster, false));
    assert!(knows(&world.cluster, true));
}

#[test]
fn a_search_for_victims_has_one_budget() {
    let preempt = PreemptPolicy { by: PreemptBy::Partition, ..PreemptPolicy::default() };
    let mut world = world(16, 2, preempt);
    let sizes = [15, 3, 3, 2, 1, 10, 1, 2, 1, 2, 1, 3, 15, 8, 1, 1, 2, 1, 6, 8, 4, 1, 3, 5, 5, 2];
    let mut next = 0;
    for (at, size) in (0..).zip(sizes) {
        world.now.0 = at;
        let job = world.cluster.next_job();
        let shape =
            Shape { nodes: Some(NodeCount::exactly(size)), sharing: Sharing::Exclusive, ..Shape::default() };
        world.submit(job, JobSpec { partitions: ["main".into()].into(), ..world::spec(shape, 36_000) });
        let nodes: Vec<NodeId> = (next..next + size).map(NodeId).collect();
        next += size;
        world.put(job, &nodes, 0);
    }
    world.now.0 = 500;
    let fabric = FabricAsk {
        switches: Some("3".parse().unwrap()),
        placement: Some("balanced".parse().unwrap()),
        ..FabricAsk::default()
    };
    let job = world.cluster.next_job();
    let spec = JobSpec { partitions: ["high".into()].into(), ..spec(400, None, fabric) };
    world.submit(job, spec);
    let plan = sched::plan(&world.cluster, world.now, &Limits);
    let most = 4 * spur_core::model::topology::DEFAULT_SEARCH_BUDGET + UNDER_WAY;
    assert!(plan.report.victim_steps <= most, "{} steps", plan.report.victim_steps);
    assert_eq!(plan.preemptions.len(), 1, "who leaves for it: {plan:?}");
}
