//! Consecutive nodes and adjacent leaves on fabrics of some sixty nodes and more: every window is judged by
//! the definition. Lower bounds are known before any window is solved, so few steps are enough for all of
//! them.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::{Ask, Placement, place};

use super::case::{Case, Random};
use super::each_seed;
use super::judge::Judge;

/// Enough steps to solve a few windows of such a fabric, but not all of them.
const FEW_STEPS: u64 = 10_000;

fn question(random: &mut Random, is_shared: bool, outline: impl FnOnce(&mut Ask, &mut Random)) -> Case {
    let fabric = random.large_tree();
    let slots = if is_shared { random.shares(&fabric) } else { random.whole(&fabric) };
    let most = if random.one_in(2) { 4 } else { 12 };
    let mut ask = Ask::nodes(random.between(2, most));
    ask.budget = FEW_STEPS;
    outline(&mut ask, random);
    Case::new(random, fabric, slots, ask)
}

fn in_a_row(ask: &mut Ask, random: &mut Random) {
    ask.contiguous = true;
    ask.prefer.extend(random.one_in(4).then_some(Layer::LEAF));
}

/// Checks that an answer is exact, and that `suits` accepts it, given the best placement there is.
fn exactly<T: std::fmt::Debug>(
    case: &Case,
    best: Option<T>,
    suits: impl FnOnce(&Placement, &T) -> bool,
) -> Result<bool, String> {
    match (place(&case.view(), &case.ask), best) {
        (Ok(placement), Some(best)) if placement.exact && suits(&placement, &best) => Ok(true),
        (Err(missed), None) if missed.exact => Ok(false),
        (found, best) => Err(format!("{found:?}, but {best:?}\n{}", case.describe())),
    }
}

/// The rank of one slot on each of these nodes, with the nodes; `None` if the placement is not allowed.
fn ranked(case: &Case, nodes: Vec<usize>) -> Option<(Vec<i64>, Vec<usize>)> {
    let mut amounts = vec![0; case.fabric.len()];
    nodes.iter().for_each(|&index| amounts[index] = 1);
    Some((Judge::new(case).rank(&amounts)?, nodes))
}

fn nodes_of(placement: &Placement) -> Vec<usize> {
    placement.positions().iter().map(|pos| pos.index()).collect()
}

#[test]
fn consecutive_nodes_of_large_fabrics() {
    each_seed(600, |random| {
        let is_shared = random.one_in(3);
        let mut case = question(random, is_shared, in_a_row);
        case.maybe(random, 3, Case::weigh);
        let nodes = case.ask.nodes.map_or(0, |(nodes, _)| nodes as usize);
        let is_open = |index: &usize| case.slots.open().contains(*index);
        let windows = (0..case.fabric.len()).map(|start| (start..start + nodes).collect::<Vec<_>>());
        let open = windows.filter(|nodes| nodes.iter().all(is_open));
        let best = open.filter_map(|nodes| ranked(&case, nodes)).min();
        exactly(&case, best, |placement, (_, nodes)| nodes_of(placement) == *nodes)
    });
}

/// Consecutive tasks, which use every node of a window.
#[test]
fn consecutive_tasks_of_large_fabrics() {
    each_seed(600, |random| {
        let mut case = question(random, true, in_a_row);
        let most = if random.one_in(2) { 9 } else { 60 };
        let wanted = random.between(1, most);
        (case.ask.tasks, case.ask.nodes) = (Some(wanted), None);
        case.maybe(random, 3, Case::weigh);
        if random.one_in(4) {
            let nodes = random.between(1, wanted.min(12));
            case.ask.nodes = Some((nodes, nodes));
        }
        case.ask.max_tasks_per_node = random.one_in(4).then_some(random.between(1, 3));
        let most = case.ask.max_tasks_per_node.unwrap_or(u32::MAX);
        let takes = |index: usize| case.slots.at(Pos(index as u32)).min(most);
        // Every node gets one task, then as many as it takes.
        let fill = |window: std::ops::Range<usize>| {
            let mut left = wanted.checked_sub(window.len() as u32)?;
            let mut amounts = vec![0; case.fabric.len()];
            for index in window.clone() {
                let more = takes(index).checked_sub(1)?.min(left);
                (amounts[index], left) = (1 + more, left - more);
            }
            let rank = Judge::new(&case).rank(&amounts).filter(|_| left == 0)?;
            Some((rank, window.collect::<Vec<usize>>()))
        };
        let windows = (0..case.fabric.len())
            .flat_map(|start| (start + 1..=case.fabric.len().min(start + 60)).map(move |end| start..end));
        let best = windows.filter_map(fill).min();
        exactly(&case, best, |placement, (_, nodes)| nodes_of(placement) == *nodes)
    });
}

#[test]
fn leaves_side_by_side_in_large_fabrics() {
    each_seed(600, |random| {
        let leaves = random.between(2, 3) as usize;
        let case = question(random, false, |ask, _| ask.adjacent = u32::try_from(leaves).ok());
        let nodes = case.ask.nodes.map_or(0, |(nodes, _)| nodes as usize);
        let ids: Vec<DomainId> = case.fabric.domains_of(Layer::LEAF).collect();
        // Each leaf gives one node, then the first others are added. Where nodes are whole, other nodes of
        // these leaves rank equally.
        let fill = |some: &[DomainId]| {
            let open = |id: &DomainId| {
                case.fabric.domain(*id).range().filter(|&index| case.slots.open().contains(index))
            };
            let firsts: Option<Vec<usize>> = some.iter().map(|id| open(id).next()).collect();
            let mut chosen = firsts?;
            let rest: Vec<usize> =
                some.iter().flat_map(open).filter(|index| !chosen.contains(index)).collect();
            chosen.extend(rest.into_iter().take(nodes.saturating_sub(some.len())));
            (chosen.len() == nodes).then_some(chosen)
        };
        let best = ids.windows(leaves).filter_map(fill).filter_map(|nodes| ranked(&case, nodes)).min();
        let is_as_good = |placement: &Placement, (rank, _): &(Vec<i64>, _)| {
            ranked(&case, nodes_of(placement)).is_some_and(|(own, _)| own == *rank)
        };
        exactly(&case, best, is_as_good)
    });
}
