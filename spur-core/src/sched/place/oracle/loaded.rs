//! Limits on what nodes bring: GPUs of a leaf, where nodes that are held whole have unequally many.

use std::sync::Arc;

use crate::model::fabric::{Fabric, Layer};
use crate::sched::place::{LeafLoad, Strategy};

use super::case::{Case, Random};
use super::{Ask, Mode, Segment, search};

/// What every node brings: the same within each leaf, or any number.
fn load(random: &mut Random, fabric: &Fabric) -> LeafLoad {
    let kinds = random.pick(&[&[0, 4, 8][..], &[1, 2], &[0, 3], &[2, 3, 5]]);
    let mut of: Vec<u32> = (0..fabric.len()).map(|_| random.pick(kinds)).collect();
    if random.one_in(3) {
        for leaf in fabric.domains_of(Layer::LEAF) {
            let brings = random.pick(kinds);
            of[fabric.domain(leaf).range()].fill(brings);
        }
    }
    LeafLoad { of: Arc::from(of), most: random.between(2, 14) }
}

/// A question of any kind with such a limit, with and without other constraints.
fn question(random: &mut Random, fabric: Fabric, is_flat: bool) -> Case {
    let whole = random.one_in(2);
    let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
    let amount = random.between(1, 6);
    let mut ask = if whole { Ask::nodes(amount) } else { Ask::tasks(amount) };
    if whole && random.one_in(3) {
        ask.nodes = Some((amount, amount + random.between(1, 3)));
    }
    if !whole && random.one_in(3) {
        let nodes = random.between(1, 4);
        ask.nodes = Some((nodes, nodes + random.between(0, 2)));
    }
    if !whole && random.one_in(6) {
        (ask.tasks, ask.nodes) = (None, Some((amount.min(4), amount.min(4))));
    }
    if is_flat {
        ask.strategy = Strategy::Flat;
    } else if random.one_in(4) {
        ask.mode = random.pick(&[Mode::Balanced, Mode::Distributed]);
    }
    ask.leaf_load = Some(load(random, &fabric));
    let mut case = Case::new(random, fabric, slots, ask);
    match random.between(0, 3) {
        0 if is_flat => case.constrain_flat(random),
        0 | 1 if !is_flat => case.constrain(random),
        2 if !is_flat => case.limit_leaves(random),
        _ => {}
    }
    case
}

#[test]
fn unequal_nodes() {
    search("loads of leaves", 3000, |random| {
        let fabric = random.fabric();
        question(random, fabric, false)
    });
}

#[test]
fn unequal_nodes_without_a_topology() {
    search("loads of leaves, fabric ignored", 3000, |random| {
        let fabric = random.fabric();
        question(random, fabric, true)
    });
}

#[test]
fn segments_of_unequal_nodes() {
    search("loads of leaves, segments", 1000, |random| {
        let fabric = if random.one_in(2) { random.deep_fabric() } else { random.fabric() };
        let slots = random.whole(&fabric);
        let size = random.between(1, 3);
        let nodes = size * random.between(1, 3);
        let segment = Segment { size, spread: random.one_in(3), consolidate: random.one_in(4) };
        let mut ask = Ask { segment: Some(segment), strategy: Strategy::Block, ..Ask::nodes(nodes) };
        ask.leaf_load = Some(load(random, &fabric));
        Case::new(random, fabric, slots, ask)
    });
}
