//! Kinds of questions on fabrics of up to a dozen nodes, each checked by brute force.

use std::sync::Arc;

use crate::model::fabric::{Fabric, Layer};

use super::case::{Case, Random};
use super::{Ask, LeafLoad, Mode, Segment, Strategy, check, each_seed};

/// A function that makes a question about a fabric which asks only for a size.
type Size = fn(&mut Random, Fabric) -> Case;

/// A function that adds a constraint or preference to a question.
type Wish = fn(&mut Case, &mut Random);

/// Generates random requests of one kind and reports the seed of the first wrong answer. Each extra demand of
/// `wishes` is added with a probability of one in its number.
fn mix(fabric: fn(&mut Random) -> Fabric, size: Size, wishes: &[(u32, Wish)]) {
    let mut inexact = 0_u64;
    each_seed(3000, |random| {
        let fabric = fabric(random);
        let mut case = size(random, fabric);
        for (times, wish) in wishes {
            case.maybe(random, *times, wish);
        }
        let answer = case.answer(&case.ask);
        inexact += u64::from(answer.as_ref().is_ok_and(|placement| !placement.exact));
        check(&case, &answer)
    });
    println!("{inexact} of these inexact");
}

/// A number of whole nodes, or a range.
fn whole(random: &mut Random, fabric: Fabric) -> Case {
    let slots = random.whole(&fabric);
    let ask = nodes(random);
    Case::new(random, fabric, slots, ask)
}

/// A number of shared nodes, or a range.
fn shared(random: &mut Random, fabric: Fabric) -> Case {
    let slots = random.shares(&fabric);
    let ask = nodes(random);
    Case::new(random, fabric, slots, ask)
}

fn nodes(random: &mut Random) -> Ask {
    let amount = random.between(1, 6);
    let more = if random.one_in(3) { random.between(1, 3) } else { 0 };
    Ask { nodes: Some((amount, amount + more)), ..Ask::nodes(amount) }
}

/// Tasks; at times with a number of nodes, or a limit of tasks per node.
fn tasks(random: &mut Random, fabric: Fabric) -> Case {
    let slots = random.tasks(&fabric);
    let mut ask = Ask::tasks(random.between(1, 9));
    match random.between(0, 5) {
        0 | 1 => {
            let nodes = random.between(1, 4);
            ask.nodes = Some((nodes, nodes + random.between(0, 1)));
        }
        2 => {
            let most = random.between(1, 2);
            ask.max_tasks_per_node = Some(most);
            ask.tasks = Some(most * random.between(1, 4));
        }
        _ => {}
    }
    Case::new(random, fabric, slots, ask)
}

fn any_size(random: &mut Random, fabric: Fabric) -> Case {
    match random.between(0, 7) {
        0..=3 => whole(random, fabric),
        4 => shared(random, fabric),
        _ => tasks(random, fabric),
    }
}

/// Segments of whole nodes, of shared nodes, or with tasks.
fn segments(random: &mut Random, fabric: Fabric) -> Case {
    let (size, count) = (random.between(1, 5), random.between(1, 3));
    let nodes = size * count;
    let mut ask = Ask::nodes(nodes);
    let slots = match random.between(0, 5) {
        0 | 1 => random.shares(&fabric),
        2 if fabric.len() <= 8 => {
            ask.tasks = Some(nodes + random.between(0, 3));
            random.tasks(&fabric)
        }
        _ => random.whole(&fabric),
    };
    ask.strategy = Strategy::Block;
    ask.segment = Some(Segment { size, spread: random.one_in(3), consolidate: random.one_in(3) });
    Case::new(random, fabric, slots, ask)
}

fn any_mode(case: &mut Case, random: &mut Random) {
    case.ask.mode = random.pick(&[Mode::Balanced, Mode::Distributed, Mode::Consolidated]);
}

fn contiguous(case: &mut Case, _: &mut Random) {
    case.ask.contiguous = true;
}

/// Consecutive nodes, adjacent leaves, or both.
fn outline(case: &mut Case, random: &mut Random) {
    let which = random.between(0, 2);
    case.ask.contiguous = which != 1;
    case.ask.adjacent = (which != 0).then(|| random.between(1, 3));
}

fn flat(case: &mut Case, _: &mut Random) {
    case.ask.strategy = Strategy::Flat;
}

fn tree_or_flat(case: &mut Case, random: &mut Random) {
    case.ask.strategy = if random.one_in(2) { Strategy::Tree } else { Strategy::Flat };
}

/// A random number of GPUs for every node, at times equal within each leaf, and a cap per leaf.
fn load(case: &mut Case, random: &mut Random) {
    let kinds = random.pick(&[&[0, 4, 8][..], &[1, 2], &[0, 3], &[2, 3, 5]]);
    let mut of: Vec<u32> = (0..case.fabric.len()).map(|_| random.pick(kinds)).collect();
    if random.one_in(3) {
        for leaf in case.fabric.domains_of(Layer::LEAF) {
            let brings = random.pick(kinds);
            of[case.fabric.domain(leaf).range()].fill(brings);
        }
    }
    case.ask.leaf_load = Some(LeafLoad { of: Arc::from(of), most: random.between(2, 14) });
}

#[test]
fn whole_nodes_plain() {
    mix(Random::fabric, whole, &[]);
}

#[test]
fn whole_nodes_constrained() {
    mix(Random::fabric, whole, &[(1, Case::constrain)]);
}

#[test]
fn shared_nodes() {
    mix(Random::fabric, shared, &[(2, Case::constrain), (2, any_mode)]);
}

#[test]
fn tasks_plain() {
    mix(Random::fabric, tasks, &[]);
}

#[test]
fn tasks_constrained() {
    mix(Random::fabric, tasks, &[(1, Case::constrain)]);
}

#[test]
fn every_mode() {
    mix(Random::fabric, any_size, &[(1, any_mode), (2, Case::constrain)]);
}

#[test]
fn outlines() {
    mix(Random::fabric, any_size, &[(1, outline), (2, any_mode), (2, Case::constrain)]);
}

#[test]
fn consecutive_and_more() {
    let wishes: [(u32, Wish); 5] =
        [(1, contiguous), (1, any_mode), (2, Case::count_kinds), (2, Case::weigh), (3, Case::constrain)];
    mix(Random::fabric, any_size, &wishes);
}

#[test]
fn segments_plain() {
    mix(Random::fabric, segments, &[(4, Case::constrain)]);
}

#[test]
fn segments_over_several_blocks() {
    mix(Random::deep_fabric, segments, &[(3, Case::require), (4, Case::constrain)]);
}

#[test]
fn scores() {
    mix(Random::fabric, any_size, &[(1, Case::score), (2, any_mode), (2, Case::constrain)]);
}

#[test]
fn networks() {
    mix(Random::linked_fabric, any_size, &[(1, Case::network), (1, any_mode), (3, Case::constrain)]);
}

#[test]
fn kinds_of_nodes() {
    mix(Random::fabric, any_size, &[(1, Case::count_kinds), (1, any_mode), (2, Case::constrain)]);
}

#[test]
fn limits_of_leaves() {
    mix(Random::fabric, any_size, &[(1, Case::limit_leaves), (3, Case::constrain)]);
}

#[test]
fn loads_of_leaves() {
    mix(Random::fabric, any_size, &[(1, load), (4, any_mode), (2, Case::constrain), (4, Case::limit_leaves)]);
}

#[test]
fn loads_of_leaves_without_a_topology() {
    mix(Random::fabric, any_size, &[(1, load), (1, flat), (4, Case::constrain_flat)]);
}

#[test]
fn loads_of_leaves_in_segments() {
    mix(Random::deep_fabric, segments, &[(1, load)]);
}

#[test]
fn preferred_domains() {
    let wishes: [(u32, Wish); 5] = [
        (1, Case::prefer_a_domain),
        (1, any_mode),
        (6, contiguous),
        (4, Case::limit_leaves),
        (2, Case::constrain),
    ];
    mix(Random::fabric, any_size, &wishes);
}

#[test]
fn fabric_ignored() {
    mix(Random::fabric, any_size, &[(1, flat), (1, Case::constrain_flat)]);
}

#[test]
fn no_topology() {
    mix(Random::bare_fabric, any_size, &[(1, tree_or_flat), (1, Case::constrain_flat)]);
}

#[test]
fn anything() {
    let wishes: [(u32, Wish); 9] = [
        (1, any_mode),
        (3, Case::network),
        (3, Case::limit_leaves),
        (3, Case::count_kinds),
        (3, Case::weigh),
        (5, contiguous),
        (4, Case::score),
        (6, load),
        (1, Case::constrain),
    ];
    mix(Random::linked_fabric, any_size, &wishes);
}

/// With a budget of one step nothing is searched; answers that are marked exact, also refusals, must be exact
/// all the same. The best choice without limits mostly keeps limits, and tasks beside a number of nodes.
#[test]
fn limits_with_one_step() {
    let (mut exact, mut rough) = (0, 0);
    each_seed(3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        case.maybe(random, 2, Case::count_kinds);
        case.maybe(random, 2, Case::limit_leaves);
        case.ask.adjacent = None;
        case.maybe(random, 3, Case::constrain);
        case.ask.budget = 1;
        let answer = case.answer(&case.ask);
        let is_exact = answer.as_ref().map_or_else(|misfit| misfit.exact, |placement| placement.exact);
        exact += u64::from(is_exact);
        rough += u64::from(!is_exact);
        if answer.is_err() && !is_exact {
            return Ok(false);
        }
        check(&case, &answer)
    });
    println!("{exact} exact, {rough} not");
    assert!(exact > 2 * rough, "{exact} exact, {rough} not");
}
