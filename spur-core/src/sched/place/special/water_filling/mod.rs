//! Spread jobs (`distributed`), where counts decide: whole nodes, shared nodes, and tasks alone.
//!
//! At every layer as many domains are used as there are, or as the job has units, and no layer contradicts
//! another. Take the lowest layer at which all domains are used. A domain above it gives at least as many
//! units as it has domains of that layer, and at most as many as it has domains of the next lower layer.
//! Shares use the most domains if and only if they keep these bounds ([`share_bounds`]).
//!
//! The least sum of squares within bounds is one level for all members of a domain, cut at the bounds. Some
//! members at the level get one unit more (the Karush-Kuhn-Tucker conditions). Those members get it that add
//! least to the squares below, and of equal ones the first ([`levels`]). A domain with one unit more keeps
//! its nodes and adds one, so giving remaining units to the first members also gives the first list of nodes.
//!
//! Nodes in every choice, because they are required or lighter than the heaviest needed, are the initial
//! share of each domain.

mod levels;
mod share_bounds;

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::{Lost, Missed, Placement};
use crate::sched::place::problem::{self, Holder, Item, Problem, Rank, rank};

use super::comparison::{Found, holders, is_over};
use share_bounds::ShareBounds;

/// Places a spread job if counts decide; [`Missed::UNKNOWN`] otherwise.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if !problem.spreads_by_counts() {
        return Err(Missed::UNKNOWN);
    }
    let mut share_bounds = ShareBounds::new(problem);
    let mut best: Option<Found<Vec<(Pos, u32)>>> = None;
    for holder in holders(problem) {
        let Some((rank, shares)) = choose(&mut share_bounds, holder) else { continue };
        let order = best.as_ref().map_or(Ordering::Less, |(least, ..)| rank.cmp(least));
        if order.is_gt() {
            continue;
        }
        let nodes = share_bounds.nodes(&shares);
        // Two holders have no common node that may be used in both.
        if order.is_lt() || best.as_ref().is_none_or(|(.., first)| nodes[0].0 < first[0].0) {
            best = Some((rank, holder, nodes));
        }
    }
    match best {
        None => Err(Missed::NONE),
        // The best placement without limits on spans is the best under them only if it keeps them.
        Some((rank, ..)) if is_over(problem, &rank) => Err(Missed::UNKNOWN),
        Some((_, holder, nodes)) => Ok(Placement::new(problem, nodes, Some(holder), true)),
    }
}

/// The best `most` domains that could have held a spread job, each with the step at which it lost. `None` if
/// counts do not decide.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if !problem.spreads_by_counts() || !problem.span_caps.is_empty() {
        return None;
    }
    let mut share_bounds = ShareBounds::new(problem);
    let holders = holders(problem);
    let of_layer = |layer: Layer, _, _: &dyn Fn(DomainId) -> bool| {
        let here = holders.iter().filter(|id| problem.fabric.domain(**id).layer() == layer);
        let ranked = here.filter_map(|id| Some((choose(&mut share_bounds, *id)?.0, Holder::Domain(*id))));
        Some(ranked.collect())
    };
    problem::losers(problem, false, most, of_layer)
}

/// The best way to spread the job over one holder: its rank, and the units of each used leaf. `None` if the
/// domain does not hold the job.
fn choose(share_bounds: &mut ShareBounds<'_, '_>, holder: DomainId) -> Option<(Rank, Vec<(DomainId, u32)>)> {
    let problem = share_bounds.problem;
    let weights = share_bounds.settle(holder)?;
    let tally = share_bounds.tally(holder);
    let layout = &problem.layout;
    let mut item = Item::<Vec<i64>>::nothing(layout.width());
    item.cost[..layout.weights].copy_from_slice(&weights);
    let unit = i64::from(share_bounds.unit);
    for (layer, (&span, &squares)) in tally.spans.iter().zip(&tally.squares).enumerate() {
        if layer > Layer::NODE.index() || !problem.view.slots.are_whole() {
            item.cost[layout.span(layer)] = -i64::from(span);
            item.cost[layout.tail(layer)] =
                i64::try_from(squares).unwrap_or(i64::MAX).saturating_mul(unit * unit);
        }
    }
    Some((rank(problem, holder, &item), tally.shares))
}
