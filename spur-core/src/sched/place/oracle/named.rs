//! Questions that were answered wrongly once and that the random search has found.

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::{Fabric, Layer, Pos};
use crate::model::topology::TopologyConfig;

use super::case::{Case, Random};
use super::{Ask, Mode, Segment, Slots, Strategy, check};

/// A tree of switches, each given as name, link speed and members.
fn tree(switches: &[(&str, &str, &str)], nodes: u32) -> Fabric {
    let mut toml = String::from("plugin = \"tree\"\n");
    for (name, speed, members) in switches {
        let key = if members.starts_with('n') { "nodes" } else { "switches" };
        toml += &format!("[[switches]]\nname = \"{name}\"\n{key} = \"{members}\"\n");
        if !speed.is_empty() {
            toml += &format!("link_speed = \"{speed}\"\n");
        }
    }
    let config: TopologyConfig = toml::from_str(&toml).unwrap();
    Fabric::build(&config, &table(nodes), &[]).unwrap()
}

fn table(nodes: u32) -> Vec<(NodeId, &'static str)> {
    const NAMES: [&str; 12] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11"];
    (0..nodes).map(NodeId).zip(NAMES).collect()
}

/// A question about idle nodes with the given tasks, or about whole nodes if `tasks` is empty.
fn question(fabric: &Fabric, tasks: &[u32], wanted: Ask) -> Case {
    let slots = match tasks {
        [] => Slots::whole(fabric, (0..fabric.len()).collect()),
        tasks => Slots::tasks(fabric, tasks.to_vec()),
    };
    let case = Case::new(&mut Random::new(0), fabric.clone(), slots.clone(), wanted);
    Case { idle: slots, occupied: FixedBitSet::with_capacity(fabric.len()), ..case }
}

/// The nodes of the answer, which brute force confirms; empty if the question is refused.
fn nodes(case: &Case) -> Vec<u32> {
    let answer = case.answer(&case.ask);
    check(case, &answer).unwrap_or_else(|wrong| panic!("{wrong}"));
    answer.map_or_else(|_| Vec::new(), |found| found.shares.iter().map(|(pos, _)| pos.0).collect())
}

#[test]
fn counts_that_overlap_without_a_topology() {
    let fabric = Fabric::flat("none", &table(4));
    let mut wanted = Ask::nodes(2);
    wanted.strategy = Strategy::Flat;
    // A greedy choice would use node 0 for the first count, and leave nothing for the second.
    wanted.counts = vec![([0, 1].into_iter().collect(), 2), ([1, 2].into_iter().collect(), 1)];
    assert_eq!(nodes(&question(&fabric, &[], wanted.clone())), [0, 1]);
    wanted.counts[0].1 = 1;
    wanted.counts.push(([3].into_iter().collect(), 1));
    assert_eq!(nodes(&question(&fabric, &[], wanted)), [1, 3]);
}

#[test]
fn spread_below_a_link_that_is_too_slow() {
    let fabric = tree(&[("a", "400G", "n0,n1"), ("b", "400G", "n2"), ("top", "100G", "a,b")], 3);
    let wanted = Ask { mode: Mode::Distributed, min_speed: Some(200_000_000_000), ..Ask::nodes(2) };
    assert_eq!(nodes(&question(&fabric, &[], wanted)), [0, 1]);
}

#[test]
fn spread_below_a_slow_link_within_a_faster_domain() {
    let switches = [
        ("a", "100G", "n0"),
        ("b", "400G", "n1"),
        ("slow", "100G", "a,b"),
        ("c", "400G", "n2"),
        ("top", "400G", "slow,c"),
    ];
    let fabric = tree(&switches, 3);
    let wanted = Ask { mode: Mode::Distributed, min_speed: Some(200_000_000_000), ..Ask::nodes(1) };
    // The top domain begins before `b` does, but no node before `b` may be used.
    assert_eq!(nodes(&question(&fabric, &[2, 2, 2], wanted)), [1]);
}

#[test]
fn spread_segments_over_blocks_keep_required_nodes() {
    let leaves =
        [("a", "", "n0,n1,n2"), ("b", "", "n3,n4,n5"), ("c", "", "n6,n7,n8"), ("d", "", "n9,n10,n11")];
    let fabric = tree(&[&leaves[..], &[("x", "", "a,b"), ("y", "", "c,d")]].concat(), 12);
    let mut wanted = Ask::nodes(8);
    wanted.strategy = Strategy::Block;
    wanted.segment = Some(Segment { size: 4, spread: true, consolidate: false });
    wanted.required = [1, 4, 5].map(Pos).to_vec();
    let got = nodes(&question(&fabric, &[], wanted));
    assert!(got.is_empty(), "two trees hold one segment each, and no job is in two: {got:?}");
}

#[test]
fn as_many_members_with_fewer_leaves() {
    let switches = [
        ("a", "", "n0"),
        ("b", "", "n1,n2"),
        ("x", "", "a"),
        ("y", "", "b"),
        ("wide", "", "x,y"),
        ("c", "", "n3"),
        ("d", "", "n4"),
        ("e", "", "n5"),
        ("u", "", "c,d"),
        ("v", "", "e"),
        ("full", "", "u,v"),
    ];
    let fabric = tree(&switches, 6);
    // The second tree wastes less, but the job needs three leaves there.
    let wanted = Ask { nodes: Some((3, 3)), ..Ask::tasks(4) };
    assert_eq!(nodes(&question(&fabric, &[2, 2, 1, 1, 2, 1], wanted)), [0, 1, 2]);
}

#[test]
fn one_multiple_said_twice() {
    let leaves = [("a", "", "n0"), ("b", "", "n1"), ("c", "", "n2,n3")];
    let fabric = tree(&[&leaves[..], &[("x", "", "a"), ("y", "", "b,c"), ("top", "", "x,y")]].concat(), 4);
    let mut wanted = Ask { max_tasks_per_node: Some(2), ..Ask::tasks(2) };
    wanted.multiples = vec![(Layer::NODE, 2), (Layer::NODE, 2)];
    assert_eq!(nodes(&question(&fabric, &[3, 3, 5, 2], wanted)), [0]);
}

#[test]
fn one_spread_node_by_its_own_leaf() {
    let fabric = tree(&[("a", "", "n0"), ("b", "", "n1,n2"), ("top", "", "a,b")], 3);
    let mut wanted = Ask { mode: Mode::Distributed, ..Ask::nodes(1) };
    wanted.score.weights.domain_utilisation.0 = 1_000_000;
    let mut case = question(&fabric, &[], wanted);
    case.occupied.insert(2);
    assert_eq!(nodes(&case), [1]);
}

#[test]
fn tasks_below_a_link_that_is_too_slow() {
    let leaves = [("a", "400G", "n0"), ("b", "400G", "n1"), ("c", "400G", "n2")];
    let above = [("x", "400G", "a"), ("slow", "100G", "b"), ("y", "400G", "c"), ("top", "400G", "x,slow,y")];
    let fabric = tree(&[&leaves[..], &above].concat(), 3);
    let wanted = Ask { min_speed: Some(200_000_000_000), ..Ask::tasks(2) };
    assert_eq!(nodes(&question(&fabric, &[1, 1, 2], wanted.clone())), [2]);
    assert_eq!(nodes(&question(&fabric, &[1, 2, 2], Ask { tasks: Some(3), ..wanted })), [0, 2]);
}

#[test]
fn as_many_tasks_on_a_node_with_and_without_a_fabric() {
    for fabric in [Fabric::flat("none", &table(4)), tree(&[("a", "", "n[0-3]")], 4)] {
        for (most, held) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1]), (3, &[0, 1]), (4, &[0])] {
            let wanted = Ask { max_tasks_per_node: Some(most), ..Ask::tasks(4) };
            assert_eq!(nodes(&question(&fabric, &[5; 4], wanted)), held, "at most {most} on a node");
        }
        let wanted = Ask { max_tasks_per_node: Some(1), ..Ask::tasks(5) };
        assert!(nodes(&question(&fabric, &[5; 4], wanted)).is_empty());
    }
}
