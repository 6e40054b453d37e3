//! Kinds of questions in which several options meet.

use super::case::{Case, Random};
use super::{Ask, Mode, Segment, Strategy, search};

/// A random number of whole nodes or tasks on a fabric, with a range or a number of nodes at times.
fn any_size(random: &mut Random, fabric: crate::model::fabric::Fabric) -> Case {
    let whole = random.one_in(2);
    let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
    let amount = random.between(1, if whole { 6 } else { 8 });
    let mut ask = if whole { Ask::nodes(amount) } else { Ask::tasks(amount) };
    if whole && random.one_in(4) {
        ask.nodes = Some((amount, amount + random.between(1, 3)));
    } else if !whole && random.one_in(3) {
        let nodes = random.between(1, 4);
        ask.nodes = Some((nodes, nodes + random.between(0, 1)));
    } else if !whole && random.one_in(5) {
        let each = random.between(1, 2);
        ask.tasks_per_node = Some(each);
        ask.tasks = Some(each * random.between(1, 4));
    }
    Case::new(random, fabric, slots, ask)
}

fn any_mode(random: &mut Random) -> Mode {
    match random.between(0, 5) {
        0 => Mode::Balanced,
        1 => Mode::Distributed,
        _ => Mode::Consolidated,
    }
}

#[test]
fn networks() {
    search("speed and latency of links", 3000, |random| {
        let fabric = random.linked_fabric();
        let mut case = any_size(random, fabric);
        case.network(random);
        case.ask.mode = any_mode(random);
        if random.one_in(3) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn bare() {
    search("no topology", 3000, |random| {
        let fabric = random.bare_fabric();
        let mut case = any_size(random, fabric);
        case.ask.strategy = if random.one_in(2) { Strategy::Tree } else { Strategy::Flat };
        case.constrain_flat(random);
        case
    });
}

#[test]
fn kinds_of_nodes() {
    search("counted features", 3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        case.count_kinds(random);
        case.ask.mode = any_mode(random);
        if random.one_in(2) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn consecutive_and_more() {
    search("contiguous with counts and weights", 3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        case.ask.contiguous = true;
        case.ask.mode = any_mode(random);
        if random.one_in(2) {
            case.count_kinds(random);
        }
        if random.one_in(2) {
            case.weigh(random);
        }
        if random.one_in(3) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn limits_of_leaves() {
    search("whole, adjacent and capped leaves with multiples", 3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        case.limit_leaves(random);
        if random.one_in(3) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn preferred_domains() {
    search("a preferred domain with all else", 3000, |random| {
        let fabric = random.fabric();
        let mut case = any_size(random, fabric);
        case.prefer_a_domain(random);
        case.ask.mode = any_mode(random);
        case.ask.contiguous = random.one_in(6);
        if random.one_in(4) {
            case.limit_leaves(random);
        }
        if random.one_in(2) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn deep_segments() {
    search("segments over several blocks", 3000, |random| {
        let fabric = random.deep_fabric();
        let size = random.between(2, 5);
        let nodes = size * random.between(1, 3);
        let whole = fabric.len() > 8 || random.one_in(2);
        let slots = if whole { random.whole(&fabric) } else { random.tasks(&fabric) };
        let mut ask = Ask::nodes(nodes);
        ask.tasks = (!whole).then(|| nodes + random.between(0, 3));
        ask.strategy = Strategy::Block;
        ask.segment = Some(Segment { size, spread: random.one_in(3), consolidate: random.one_in(3) });
        let mut case = Case::new(random, fabric, slots, ask);
        if random.one_in(3) {
            case.require(random);
        }
        if random.one_in(4) {
            case.constrain(random);
        }
        case
    });
}

#[test]
fn anything() {
    search("everything at once", 3000, |random| {
        let fabric = random.linked_fabric();
        let mut case = any_size(random, fabric);
        case.ask.mode = any_mode(random);
        if random.one_in(3) {
            case.network(random);
        }
        if random.one_in(3) {
            case.limit_leaves(random);
        }
        if random.one_in(3) {
            case.count_kinds(random);
        }
        if random.one_in(3) {
            case.weigh(random);
        }
        case.ask.contiguous = random.one_in(5);
        if random.one_in(4) {
            case.score(random);
        }
        case.constrain(random);
        case
    });
}
