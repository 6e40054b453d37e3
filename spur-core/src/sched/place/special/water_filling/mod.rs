//! Jobs that are spread, where counts decide: whole nodes, shares of nodes, and tasks alone.
//!
//! No layer has to give way to another: of every layer as many domains are used as there are, or as the job has units. For
//! the lowest layer of which all are used, every domain above has at least as many units as it has domains of that layer, and
//! at most as many as it has of the next layer below; any shares within these bounds use as many domains as can be, and no
//! others do ([`share_bounds`]). The most even shares within bounds are one level for all members of a domain, cut off at the
//! bounds, and one unit more for some of those that lie at the level. It is the same for the layers below each of them, of
//! which those get more first that add least to the squares there; and of these the first ([`levels`]). As a domain that gets
//! one unit more has the nodes that it had before and one besides, the first list of nodes is the one that gives what is over
//! to what comes first.
//!
//! Nodes that are used in any case, because they are required or lighter than the heaviest that the job needs, are a part of
//! the share from which every domain starts.

mod levels;
mod share_bounds;

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::{Lost, Missed, Placement};
use crate::sched::place::problem::{self, Holder, Item, Problem, Rank, rank};

use super::comparison::{Found, holders, is_over};
use share_bounds::ShareBounds;

/// Places a job that is spread, if counts tell how.
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
        // Two domains have no node in common that may be used in both.
        if order.is_lt() || best.as_ref().is_none_or(|(.., first)| nodes[0].0 < first[0].0) {
            best = Some((rank, holder, nodes));
        }
    }
    match best {
        None => Err(Missed::NONE),
        // What is best without a limit is best with it only if it keeps it.
        Some((rank, ..)) if is_over(problem, &rank) => Err(Missed::UNKNOWN),
        Some((_, holder, nodes)) => Ok(Placement::new(problem, nodes, Some(holder), true)),
    }
}

/// The best few of the domains that could have held a job that is spread, and at which step each lost; None where counts do
/// not tell.
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

/// The best way to spread the job over one domain: how good it is, and units of each leaf that is used; None where it does not
/// hold the job.
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
