//! Jobs that are spread, on up to some sixty nodes in four layers: with a budget of one step they have to be what a search
//! with any number of steps finds, with the same reasons why other domains lost.

use crate::model::fabric::{Layer, Pos};
use crate::sched::place::{Ask, Mode, Slots};

use super::case::{Case, Random};

fn question(random: &mut Random) -> Case {
    let fabric = random.small_four_layers();
    let slots = match random.between(0, 3) {
        0 | 1 => random.whole(&fabric),
        2 => random.shares(&fabric),
        _ => {
            let most = random.pick(&[1, 2, 5, 9]);
            Slots::tasks(&fabric, (0..fabric.len()).map(|_| random.between(0, most)).collect())
        }
    };
    let by_tasks = !slots.are_whole() && random.one_in(2);
    let all = if by_tasks { slots.total() } else { slots.nodes() as u64 };
    let amount = random.between(1, u32::try_from(all).expect("some hundred").max(1));
    let mut ask = if by_tasks { Ask::tasks(amount) } else { Ask::nodes(amount) };
    ask.mode = Mode::Distributed;
    let mut case = Case::new(random, fabric, slots, ask);
    for _ in 0..random.between(0, 2) {
        constrain(&mut case, random, amount);
    }
    // Next to these counts do not decide.
    if case.weights.is_some() {
        (case.ask.max_nodes_per_leaf, case.ask.max_slots_per_leaf) = (None, None);
    }
    if case.weights.is_some() || !case.ask.required.is_empty() {
        case.ask.multiples.clear();
    }
    case
}

/// Asks for something more, next to which counts still decide.
fn constrain(case: &mut Case, random: &mut Random, amount: u32) {
    let by_tasks = case.ask.tasks.is_some();
    let layer = |random: &mut Random| Layer(random.between(1, case.fabric.top().0.into()) as u8);
    match random.between(0, 6) {
        0 => case.ask.must = Some(layer(random)),
        1 => case.ask.whole_leaves = true,
        2 if by_tasks => case.ask.max_slots_per_leaf = Some(random.between(1, 9)),
        2 => case.ask.max_nodes_per_leaf = Some(random.between(1, 4)),
        3 if by_tasks => case.ask.max_tasks_per_node = Some(random.between(1, 3)),
        3 => case.weights = Some(random.weights(&case.fabric, 3)),
        4 => case.prefer_a_domain(random),
        5 if !by_tasks => {
            let open: Vec<usize> = case.slots.open().ones().filter(|_| random.one_in(9)).take(4).collect();
            case.ask.required = open.into_iter().map(|index| Pos(index as u32)).collect();
        }
        _ => {
            let by = random.between(2, 3);
            let wanted = amount.next_multiple_of(by);
            case.ask.multiples = vec![(if by_tasks { Layer::NODE } else { Layer::LEAF }, by)];
            if by_tasks { case.ask.tasks = Some(wanted) } else { case.ask.nodes = Some((wanted, wanted)) }
        }
    }
}

#[test]
fn spread_whatever_the_budget() {
    super::each_seed("spread, whatever the budget", 300, |random| {
        let case = question(random);
        // A count that any placement meets keeps an ask from being one of counts alone.
        let mut long = Ask { budget: 1 << 40, ..case.ask.clone() };
        long.counts.push((case.slots.open().clone(), 1));
        super::same_answers(&case, &Ask { budget: 1, ..case.ask.clone() }, &long, 4)
    });
}
