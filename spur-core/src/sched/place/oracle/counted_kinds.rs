//! Whole nodes of counted kinds, on up to some sixty nodes in four layers: with few steps they have to be what a search with
//! any number of steps finds, with the same reasons why other domains lost.

use fixedbitset::FixedBitSet;

use crate::model::fabric::{Layer, Pos};
use crate::sched::place::{Ask, Weights};

use super::case::{Case, Random};

/// Steps that are enough for a walk over the leaves of such a fabric, and not for a search.
const FEW_STEPS: u64 = 10_000;

fn question(random: &mut Random) -> Case {
    let fabric = random.small_four_layers();
    let slots = random.whole(&fabric);
    let nodes = fabric.len();
    let mut case = Case::new(random, fabric, slots, Ask::nodes(1));
    let kinds = random.between(1, 3);
    // Whole leaves of one kind, or nodes of any; some of none.
    let are_of_leaves = random.one_in(2);
    let mut of_leaf: Vec<u32> = Vec::new();
    let mut kind_of = |random: &mut Random, pos: usize| {
        let leaf = case.fabric.leaves_by_position()[pos].index();
        while of_leaf.len() <= leaf {
            of_leaf.push(random.between(0, kinds));
        }
        if are_of_leaves { of_leaf[leaf] } else { random.between(0, kinds) }
    };
    let all: Vec<u32> = (0..nodes).map(|pos| kind_of(random, pos)).collect();
    for kind in 1..=kinds {
        let set: FixedBitSet = (0..nodes).filter(|&pos| all[pos] == kind).collect();
        case.ask.counts.push((set, random.pick(&[1, 1, 2, 4])));
    }
    let least: u32 = case.ask.counts.iter().map(|(_, count)| count).sum();
    let more = random.pick(&[1, 6, 20]);
    let wanted = least + random.between(0, more);
    case.ask.nodes = Some((wanted, wanted));
    if random.one_in(2) {
        // One weight for each kind, or one for two of them.
        let weights: Vec<u32> = (0..=kinds).map(|_| random.between(1, 20)).collect();
        let of = |kind: &u32| if random.one_in(200) { 3 } else { weights[*kind as usize] };
        case.weights = Some(Weights::new(all.iter().map(of).collect()));
    }
    if random.one_in(4) {
        case.ask.must = Some(Layer(random.between(1, case.fabric.top().0.into()) as u8));
    }
    case.ask.whole_leaves = random.one_in(6);
    case
}

/// Whether nodes of each weight are of one kind.
fn is_plain(case: &Case) -> bool {
    let Some(weights) = &case.weights else { return true };
    let kind = |pos: usize| case.ask.counts.iter().position(|(set, _)| set.contains(pos));
    let mut known = std::collections::BTreeMap::new();
    let leaf = |pos: usize| case.fabric.domain(case.fabric.leaves_by_position()[pos]);
    let is_free = |pos: &usize| {
        !case.ask.whole_leaves || !leaf(*pos).range().any(|index| case.occupied.contains(index))
    };
    let open = case.slots.open().ones().filter(is_free);
    open.into_iter().all(|pos| {
        let weight = weights.at(Pos(pos as u32));
        *known.entry(weight).or_insert_with(|| kind(pos)) == kind(pos)
    })
}

#[test]
fn counted_kinds_with_few_steps() {
    super::each_seed("counted kinds, with few steps", 100, |random| {
        let case = question(random);
        let budget = if is_plain(&case) { FEW_STEPS } else { 1 << 40 };
        // A limit that never binds keeps an ask from being one of counts alone.
        let mut long = Ask { budget: 1 << 40, ..case.ask.clone() };
        long.max_spans.push((case.fabric.top(), 1));
        super::same_answers(&case, &Ask { budget, ..case.ask.clone() }, &long, 3)
    });
}
