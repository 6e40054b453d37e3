//! Comparison of replacements for lost nodes with brute force: the nearest of all suitable nodes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::Policy;
use spur_core::model::fabric::{Fabric, Layer, Pos};
use spur_core::model::node::NodeShape;
use spur_core::model::phase::Phase;

use crate::script;
use crate::world::{self, World};

#[derive(Clone, Debug)]
struct Case {
    /// Sizes of the leaves of each spine.
    spines: Vec<Vec<u32>>,
    /// True for each node that another job holds.
    busy: Vec<bool>,
    /// First node of the job, distance of its nodes, and their number.
    first: u32,
    stride: u32,
    count: u32,
    /// Constraint on the job's nodes: none, one domain of a layer, a number of leaves, consecutive leaves, or
    /// leaves without other jobs.
    must: u8,
    /// Number of failing nodes, the last ones first.
    lost: u32,
}

fn case() -> impl Strategy<Value = Case> {
    let spines = prop::collection::vec(prop::collection::vec(1_u32..4, 1..4), 1..4);
    let busy = prop::collection::vec(prop::bool::weighted(0.5), 36);
    (spines, busy, 0_u32..36, 1_u32..4, 2_u32..6, 0_u8..6, 1_u32..3).prop_map(
        |(spines, busy, first, stride, count, must, lost)| Case {
            spines,
            busy,
            first,
            stride,
            count,
            must,
            lost,
        },
    )
}

impl Case {
    fn nodes(&self) -> u32 {
        self.spines.iter().flatten().sum()
    }

    fn world(&self) -> World {
        let shape = NodeShape { cpus: 2, threads_per_core: 1, ..NodeShape::default() };
        let names: Vec<String> = (0..self.nodes()).map(|node| format!("n{node}")).collect();
        let mut text = "plugin = \"tree\"\nlayers = [\"leaf\", \"spine\", \"top\"]\n".to_owned();
        let (mut node, mut leaf) = (0, 0);
        for (spine, leaves) in self.spines.iter().enumerate() {
            let first = leaf;
            for size in leaves {
                let last = node + size - 1;
                text += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{node}-{last}]\"\n");
                (node, leaf) = (node + size, leaf + 1);
            }
            let last = leaf - 1;
            text += &format!("[[switches]]\nname = \"s{spine}\"\nswitches = \"l[{first}-{last}]\"\n");
        }
        text += &format!("[[switches]]\nname = \"t\"\nswitches = \"s[0-{}]\"\n", self.spines.len() - 1);
        let all = names.iter().map(|name| name.as_str().into()).collect();
        World::new(Policy {
            nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
            partitions: vec![world::partition("main", all)],
            topologies: vec![world::topology(&text)],
            ..Policy::default()
        })
    }

    fn words(&self) -> Vec<String> {
        let words = match self.must {
            1 => "--gather=must:leaf",
            2 => "--gather=must:spine",
            3 => "--switches=2",
            4 => "--contiguous",
            _ => "",
        };
        let alone = if self.must == 5 { "--exclusive=topo" } else { "--exclusive" };
        let size = format!("-N {} {alone} {words}", self.count);
        size.split_whitespace().map(str::to_owned).collect()
    }

    /// True if the constraint allows the job exactly these positions.
    fn allows(&self, fabric: &Fabric, nodes: &BTreeSet<Pos>) -> bool {
        let domains = |layer| {
            let of = |pos: &Pos| fabric.domain_at(*pos, layer).expect("all leaves are equally deep");
            nodes.iter().map(of).collect::<BTreeSet<_>>().len()
        };
        match self.must {
            1 => domains(Layer::LEAF) == 1,
            2 => domains(Layer(2)) == 1,
            3 => domains(Layer::LEAF) <= 2,
            4 => {
                nodes.last().expect("there are some").0 + 1 - nodes.first().expect("there are some").0
                    == u32::try_from(nodes.len()).expect("few")
            }
            5 => {
                let leaf = |pos: &Pos| fabric.leaf_of(*pos);
                let own: BTreeSet<_> = nodes.iter().map(leaf).collect();
                let others = self.others().filter_map(|node| fabric.pos(NodeId(node)));
                others.into_iter().all(|pos| !own.contains(&leaf(&pos)))
            }
            _ => true,
        }
    }

    /// Nodes on which the job is placed.
    fn chosen(&self) -> BTreeSet<u32> {
        (0..self.count).map(|at| (self.first + at * self.stride) % self.nodes()).collect()
    }

    /// Nodes that other jobs hold.
    fn others(&self) -> impl Iterator<Item = u32> {
        let chosen = self.chosen();
        (0..self.nodes()).filter(move |node| self.busy[*node as usize] && !chosen.contains(node))
    }
}

/// Lowest layer of which one domain contains both positions.
fn distance(fabric: &Fabric, one: Pos, other: Pos) -> u8 {
    let together =
        |layer: &u8| fabric.domain_at(one, Layer(*layer)) == fabric.domain_at(other, Layer(*layer));
    (1..=3).find(together).expect("there is one root")
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let mut world = case.world();
    let total = case.nodes();
    let chosen = case.chosen();
    let fabric = world.cluster.topologies()[0].fabric.clone();
    let positions = |nodes: &BTreeSet<u32>| -> BTreeSet<Pos> {
        nodes.iter().filter_map(|node| fabric.pos(NodeId(*node))).collect()
    };
    prop_assume!(chosen.len() == case.count as usize && case.allows(&fabric, &positions(&chosen)));
    let words = case.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    world.submit(JobId(1), script::spec(&words));
    world.put(JobId(1), &chosen.iter().map(|node| NodeId(*node)).collect::<Vec<_>>(), 0);
    for node in case.others() {
        let job = world.cluster.next_job();
        world.submit(job, script::spec(&["-N", "1", "--exclusive"]));
        world.put(job, &[NodeId(node)], 0);
    }
    let mut has = chosen.clone();
    for _ in 0..case.lost.min(case.count - 1) {
        let lost = world.lose(JobId(1)).0;
        has.remove(&lost);
        let free = |node: &u32| {
            world.cluster.node(NodeId(*node)).is_some_and(|node| node.available() && node.idle())
        };
        let with = |node: u32| positions(&has.iter().copied().chain([node]).collect());
        let lost_pos = fabric.pos(NodeId(lost)).expect("it is wired");
        let reach = |node: u32| distance(&fabric, lost_pos, fabric.pos(NodeId(node)).expect("it is wired"));
        let will_do = (0..total).filter(free).filter(|node| case.allows(&fabric, &with(*node)));
        let nearest = will_do.map(reach).min();
        world.replace();
        let Phase::Running { alloc, .. } = &world.cluster.job(JobId(1)).expect("it runs").phase else {
            panic!("it runs");
        };
        let now: BTreeSet<u32> = alloc.nodes.iter().map(|part| part.node.0).collect();
        prop_assert!(has.is_subset(&now), "{has:?} of {now:?}: nobody moves");
        let come: Vec<u32> = now.difference(&has).copied().collect();
        prop_assert_eq!(
            come.iter().map(|node| reach(*node)).collect::<Vec<_>>(),
            nearest.into_iter().collect::<Vec<_>>(),
            "{:?} for {} beside {:?}",
            come,
            lost,
            has
        );
        prop_assert!(case.allows(&fabric, &positions(&now)), "{now:?}");
        if come.is_empty() {
            break;
        }
        has = now;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]
    #[test]
    fn the_nearest_node_that_will_do_takes_the_place(case in case()) {
        check(&case)?;
    }
}
