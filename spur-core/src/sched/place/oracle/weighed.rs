//! Tasks on so many nodes of several weights, on up to some sixty nodes in four layers: with few steps they have to be what a
//! search with any number of steps finds, with the same reasons why other domains lost.

use crate::model::fabric::{Fabric, Layer};
use crate::sched::place::{Ask, Slots, View, Weights, place};

use super::case::{Case, Random};

/// Steps that are enough for walks over the nodes of such a fabric, and mostly not for a search.
const FEW_STEPS: u64 = 1_000;

fn question(random: &mut Random) -> Case {
    let fabric = random.small_four_layers();
    let nodes = fabric.len();
    // What a node of each weight has, some of which is taken.
    let classes = random.between(2, 3);
    let sizes: Vec<u32> = (0..classes).map(|_| random.pick(&[1, 2, 4, 5, 8])).collect();
    let (are_of_leaves, taken) = (random.one_in(2), random.between(0, 3));
    let mut of_leaf: Vec<u32> = Vec::new();
    let mut all: Vec<(u32, u32)> = Vec::new();
    for pos in 0..nodes {
        let leaf = fabric.leaves_by_position()[pos].index();
        while of_leaf.len() <= leaf {
            of_leaf.push(random.between(0, classes - 1));
        }
        let class = if are_of_leaves { of_leaf[leaf] } else { random.between(0, classes - 1) };
        let size = sizes[class as usize];
        let less = if random.between(0, 5) < taken { random.between(1, size) } else { 0 };
        all.push((class, size - less));
    }
    let slots = Slots::tasks(&fabric, all.iter().map(|(_, slots)| *slots).collect());
    let weights = Weights::new(all.iter().map(|(class, _)| 1 + class).collect());
    let open = u32::try_from(slots.nodes()).expect("a few");
    let most = random.pick(&[3, 6, 10]);
    let wanted = random.between(1, open.clamp(1, most));
    // From one for each node to more than there is.
    let each = sizes.iter().max().copied().unwrap_or(1);
    let tasks = random.between(wanted, wanted * each + 1);
    let ask = Ask { nodes: Some((wanted, wanted)), ..Ask::tasks(tasks) };
    let mut case = Case::new(random, fabric, slots, ask);
    case.weights = Some(weights);
    let layer = |random: &mut Random| Layer(random.between(1, case.fabric.top().0.into()) as u8);
    if random.one_in(4) {
        case.ask.must = Some(layer(random));
    }
    if random.one_in(6) {
        case.ask.prefer = vec![layer(random)];
    }
    if random.one_in(6) {
        case.ask.max_tasks_per_node = Some(random.between(1, 4));
    }
    case.ask.whole_leaves = random.one_in(6);
    case
}

#[test]
fn so_many_nodes_of_several_weights_with_few_steps() {
    super::each_seed("tasks on so many nodes of several weights, with few steps", 100, |random| {
        let case = question(random);
        // Where lower layers may come after preferred ones nothing is told without a search.
        let budget = if case.ask.prefer.is_empty() { FEW_STEPS } else { 1 << 40 };
        // A count that any placement meets keeps an ask from being one of weights alone.
        let mut long = Ask { budget: 1 << 40, ..case.ask.clone() };
        long.counts.push((case.slots.open().clone(), 1));
        // Of one node, of one task on each, and where all take as many, none but those are looked at that do with as light nodes.
        let nodes = case.ask.nodes.map(|(nodes, _)| nodes);
        let mut takes = case.slots.iter().map(|(_, takes)| takes);
        let first = takes.next();
        let are_equal = takes.all(|takes| Some(takes) == first);
        let most = if are_equal || nodes == Some(1) || nodes == case.ask.tasks { 0 } else { 3 };
        super::same_answers(&case, &Ask { budget, ..case.ask.clone() }, &long, most)
    });
}

/// Ten thousand nodes: light ones that take 8, then heavy ones that take 16.
fn light_and_heavy() -> (Fabric, Slots, Weights) {
    let fabric = Random::blocks_of(20, 10_000);
    let is_light = |pos: usize| pos < 5_000;
    let takes = (0..fabric.len()).map(|pos| if is_light(pos) { 8 } else { 16 }).collect();
    let weights = (0..fabric.len()).map(|pos| if is_light(pos) { 1 } else { 5 }).collect();
    (fabric.clone(), Slots::tasks(&fabric, takes), Weights::new(weights))
}

/// 30 light nodes do not take 333 tasks; 18 of them do with 12 heavy ones, and 19 with 11 do not.
#[test]
fn no_more_heavy_nodes_than_tasks_need() {
    let (fabric, slots, weights) = light_and_heavy();
    let view = View { weights: Some(&weights), ..View::new(&slots, &slots) };
    let ask = Ask { nodes: Some((30, 30)), ..Ask::tasks(333) };
    let placed = place(&fabric, &view, &ask).expect("there is room");
    let light = placed.shares.iter().filter(|(pos, _)| pos.index() < 5_000).count();
    assert_eq!((placed.exact, light, placed.shares.len()), (true, 18, 30));
    // One leaf of each.
    assert_eq!(placed.spans[1], 2);
}

/// Nor where the best choice is not known, next to multiples.
#[test]
fn no_more_heavy_nodes_where_a_search_is_cut() {
    let (fabric, slots, weights) = light_and_heavy();
    let view = View { weights: Some(&weights), ..View::new(&slots, &slots) };
    let mut ask = Ask { nodes: Some((30, 30)), budget: 20_000, ..Ask::tasks(333) };
    ask.multiples = vec![(Layer::LEAF, 3)];
    let placed = place(&fabric, &view, &ask).expect("there is room");
    let light = placed.shares.iter().filter(|(pos, _)| pos.index() < 5_000).count();
    assert_eq!((placed.exact, light, placed.shares.len()), (false, 18, 30));
}
