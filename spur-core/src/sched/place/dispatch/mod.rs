//! Dispatches questions: picks the solver for each, and handles searches that exceed their budget.

mod outline;
mod relax;

use crate::model::fabric::Layer;

use super::answer::{Missed, Placement};
use super::ask::{Ask, Strategy, lower};
use super::budget::SharedBudget;
use super::problem::{Cost, Meter, NARROW, Narrow, Problem, Ranked};
use super::slots::View;
use super::special::Equal;
use super::{flat, pareto, special};

/// Places a job: returns the best of all allowed placements, by the order in `docs/topology.md`.
///
/// # Errors
/// [`Missed`] if no placement is allowed at the moment, or none was found.
pub fn place(view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    if view.budget.is_some_and(SharedBudget::is_spent) {
        return Err(Missed::UNKNOWN);
    }
    if let (true, Some((fewest, most))) = (ask.is_limited, ask.nodes) {
        let of_size = |nodes| place(view, &Ask { nodes, is_limited: false, ..ask.clone() });
        let number = |placement: &Placement| placement.shares.len();
        let bounded = match of_size(None) {
            // A job without a placement on any number of nodes has none on these.
            Err(missed) if missed.exact => return Err(missed),
            Ok(placement) if number(&placement) < fewest as usize => of_size(Some((fewest, fewest))),
            chosen => chosen,
        };
        if let Ok(placement) = bounded
            && number(&placement) <= most as usize
        {
            return Ok(placement);
        }
    }
    let found = search(view, ask);
    if is_exact(&found) { found } else { relax::better(view, ask, found) }
}

/// Places a job by one search, which the budget may cut.
fn search(view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    match Equal::of(view, ask) {
        Some(equal) => {
            let view = View { slots: &equal.whole, ..*view };
            place_sizes(&view, &equal.ask).map(|placement| equal.slots(placement))
        }
        None => place_sizes(view, ask),
    }
}

/// Places a job on the largest number of nodes for which a placement is found.
fn place_sizes(view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    let meter = Meter::of(view, ask);
    let (mut exact, mut sizes, mut step) = (true, sizes(view, ask), 0);
    let mut without_steps = 0;
    while let Some(nodes) = sizes.nth(step) {
        match place_size(view, ask, nodes, &meter) {
            Ok(placement) => return Ok(Placement { exact: exact && placement.exact, ..placement }),
            Err(missed) => exact &= missed.exact,
        }
        without_steps += u32::from(meter.is_spent());
        exact &= without_steps < SIZES_WITHOUT_STEPS;
        // Once a search is cut, only some of the smaller numbers are tried, in growing steps.
        if !exact {
            step = (2 * step + 1).min(sizes.len().saturating_sub(1));
        }
    }
    Err(Missed { exact })
}

/// The largest number of sizes that are tried after the steps are used up. Solvers that take no steps still
/// answer exactly then, but each size costs some milliseconds on 100,000 nodes.
const SIZES_WITHOUT_STEPS: u32 = 16;

/// True if a search was exhaustive.
pub(super) fn is_exact(found: &Result<Placement, Missed>) -> bool {
    found.as_ref().map_or_else(|missed| missed.exact, |placement| placement.exact)
}

/// The numbers of nodes to try, the largest first.
fn sizes(
    view: &View<'_>,
    ask: &Ask,
) -> impl DoubleEndedIterator<Item = Option<u32>> + ExactSizeIterator + use<> {
    let of = |sizes: Option<(u32, u32)>| {
        let (least, most) = sizes.unwrap_or((0, 0));
        let count = if most < least { 0 } else { (most - least) as usize + 1 };
        (0..count).map(move |less| sizes.map(|_| most - u32::try_from(less).unwrap_or(most)))
    };
    let Some((least, largest)) = ask.nodes else { return of(None) };
    if least == largest && ask.tasks.is_none_or(|tasks| largest <= tasks) {
        return of(Some((least.max(1), least.max(1))));
    }
    let open = u32::try_from(view.slots.nodes()).unwrap_or(u32::MAX);
    let most = match ask.must {
        Some(layer) if layer > Layer::NODE && ask.strategy != Strategy::Flat => {
            let holders = view.fabric.domains().filter(|(_, domain)| domain.layer() <= layer);
            holders.map(|(id, _)| view.slots.nodes_of(id)).max().unwrap_or(0)
        }
        _ => open,
    };
    let most = most.min(largest).min(ask.tasks.unwrap_or(u32::MAX));
    of(Some((least.max(1), most)))
}

/// Places a job on a given number of nodes (`None`: as many as its tasks need). The search without a fabric
/// and the one for segments get the full budget for every number of nodes.
fn place_size(view: &View<'_>, ask: &Ask, nodes: Option<u32>, meter: &Meter) -> Result<Placement, Missed> {
    if ask.strategy == Strategy::Flat || view.fabric.roots().is_empty() {
        return meter.apart(|meter| flat::place_flat(view, ask, nodes, meter));
    }
    if let (Some(segment), Some(nodes)) = (ask.segment, nodes) {
        return meter.apart(|meter| outline::place_segments(view, ask, nodes, segment, meter));
    }
    let plain = without_needless(ask, nodes);
    let ask = plain.as_ref().unwrap_or(ask);
    solve(&Problem::framed(view, ask, nodes, meter).ok_or(Missed::NONE)?)
}

/// The ask without constraints that other constraints make empty: consecutive positions of one node, one
/// adjacent leaf, caps that the whole job cannot exceed. `None` if there are none.
fn without_needless(ask: &Ask, nodes: Option<u32>) -> Option<Ask> {
    let is_single = nodes == Some(1) || ask.tasks == Some(1);
    let slots = ask.tasks.or(nodes);
    let is_wide = |cap: Option<u32>, all: Option<u32>| cap.zip(all).is_some_and(|(cap, all)| cap >= all);
    let is_one_leaf = ask.adjacent == Some(1);
    let follows_itself = ask.contiguous && is_single;
    let caps_no_nodes = is_wide(ask.max_nodes_per_leaf, nodes.or(ask.tasks));
    let caps_no_slots = is_wide(ask.max_slots_per_leaf, slots);
    (is_one_leaf || follows_itself || caps_no_nodes || caps_no_slots).then(|| Ask {
        adjacent: ask.adjacent.filter(|_| !is_one_leaf),
        must: if is_one_leaf { lower(ask.must, Some(Layer::LEAF)) } else { ask.must },
        contiguous: ask.contiguous && !follows_itself,
        max_nodes_per_leaf: ask.max_nodes_per_leaf.filter(|_| !caps_no_nodes),
        max_slots_per_leaf: ask.max_slots_per_leaf.filter(|_| !caps_no_slots),
        ..ask.clone()
    })
}

/// Solves one problem, with costs on the stack or on the heap by their width.
pub(super) fn solve(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if problem.layout.width() <= NARROW {
        solve_with::<Narrow>(problem)
    } else {
        solve_with::<Vec<i64>>(problem)
    }
}

/// Solves one problem by the general search, without special solvers.
pub(super) fn solve_ranked(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    if problem.layout.width() <= NARROW { ranked::<Narrow>(problem) } else { ranked::<Vec<i64>>(problem) }
}

fn ranked<C: Cost>(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    if problem.ask.contiguous {
        return outline::contiguous::<C>(problem);
    }
    if let Some(leaves) = problem.ask.adjacent {
        return outline::adjacent::<C>(problem, leaves);
    }
    let (winner, exact) = pareto::choose::<C>(problem);
    if winner.is_none() && exact {
        return Err(Missed::NONE);
    }
    let found =
        winner.and_then(|winner| Some((winner.rank.clone(), pareto::realise(problem, winner, exact)?)));
    match found {
        Some(found) if found.1.exact => Ok(found),
        // The part of the search that was cut may hold better placements than a greedy one.
        found => {
            let all = [found, pareto::greedy_placement::<C>(problem)].into_iter().flatten();
            best(problem, all.map(|(_, placement)| placement)).ok_or(Missed::UNKNOWN)
        }
    }
}

/// The best of several placements that the search has not proved to be best.
fn best(problem: &Problem<'_>, placements: impl Iterator<Item = Placement>) -> Option<Ranked> {
    let judged = placements.filter_map(|placement| Some((problem.judge(&placement.shares)?, placement)));
    judged.min_by(|(one, _), (other, _)| one.cmp(other))
}

fn solve_with<C: Cost>(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if problem.ask.contiguous || problem.ask.adjacent.is_some() {
        return ranked::<C>(problem).map(|(_, placement)| placement);
    }
    let counted = special::place(problem);
    if is_exact(&counted) {
        return counted;
    }
    let found = ranked::<C>(problem);
    if let Err(Missed { exact: true }) | Ok((_, Placement { exact: true, .. })) = found {
        return found.map(|(_, placement)| placement);
    }
    let loosely = special::place_loosely(problem);
    if is_exact(&loosely) {
        return loosely;
    }
    let found = found.ok().map(|(_, placement)| placement);
    let all = [counted.ok(), loosely.ok(), special::largest_first(problem), found];
    let best = best(problem, all.into_iter().flatten());
    best.map(|(_, placement)| Placement { exact: false, ..placement }).ok_or(Missed::UNKNOWN)
}
