//! Explains which other domains could have held a placed job, and why they lost.

use crate::model::fabric::{DomainId, Layer, Pos};

use super::answer::{Lost, LostWhy, Placement};
use super::ask::{Ask, Strategy};
use super::pareto;
use super::problem::{Meter, Problem, Rank, difference, positions, rank_node};
use super::slots::View;
use super::special::{self, Equal};

/// The best `most` domains that could have held a placed job, each with the step at which it lost.
///
/// `ask` and `view` are those of the placement. Where the ask leaves the number of nodes open, the
/// placement's number counts.
#[must_use]
pub fn rivals(view: &View<'_>, ask: &Ask, placement: &Placement, most: usize) -> Vec<Lost> {
    let outlined = ask.contiguous || ask.adjacent.is_some() || ask.segment.is_some();
    if ask.strategy == Strategy::Flat || view.fabric.roots().is_empty() || outlined {
        return Vec::new();
    }
    if let Some(equal) = Equal::of(view, ask) {
        let view = View { slots: &equal.whole, ..*view };
        return equal.lost(rivals(&view, &equal.ask, placement, most));
    }
    let nodes = ask.nodes.map(|_| u32::try_from(placement.shares.len()).unwrap_or(u32::MAX));
    let problem = Problem::framed(view, ask, nodes, &Meter::of(view, ask));
    let Some(problem) = problem else { return Vec::new() };
    match placement.shares[..] {
        [(winner, _)] if !view.slots.are_whole() => of_nodes(&problem, winner, most),
        _ => losers(&problem, most),
    }
}

fn losers(problem: &Problem<'_>, most: usize) -> Vec<Lost> {
    special::losers(problem, most).unwrap_or_else(|| pareto::losers::<Vec<i64>>(problem, most))
}

/// The losers where the winner is one node. A leaf that has such a node lost by comparison of its best node.
/// Domains above leaves add nothing, so more losers are requested until there are enough leaves.
fn of_nodes(problem: &Problem<'_>, winner: Pos, most: usize) -> Vec<Lost> {
    let is_leaf = |lost: &Lost| problem.fabric.domain(lost.domain).layer() == Layer::LEAF;
    let mut wanted = most;
    let leaves = loop {
        let lost = losers(problem, wanted);
        let are_all = lost.len() < wanted;
        let leaves: Vec<Lost> = lost.into_iter().filter(is_leaf).take(most).collect();
        if are_all || leaves.len() == most {
            break leaves;
        }
        wanted = wanted.saturating_mul(2);
    };
    let Some(best) = rank_on(problem, winner) else { return leaves };
    let judged = |lost: Lost| {
        let other = best_of_leaf(problem, lost.domain).filter(|_| lost.why == LostWhy::Higher);
        let why = match other.map(|rank| difference(&rank, &best)) {
            None => lost.why,
            Some(LostWhy::Waste { layer: Layer::NODE, had, best }) => LostWhy::Node { had, best },
            Some(why) => why,
        };
        Lost { why, ..lost }
    };
    leaves.into_iter().map(judged).collect()
}

/// The rank of the best node of a leaf that takes the whole job.
fn best_of_leaf(problem: &Problem<'_>, leaf: DomainId) -> Option<Rank> {
    let (view, mut seen) = (problem.view, None);
    let nodes = positions(problem.fabric.domain(leaf).range()).filter(|_| !problem.is_barred(leaf));
    let candidates = nodes.filter(|&pos| {
        let (slots, weight) = (view.slots.at(pos), view.weights.map_or(0, |weights| weights.at(pos)));
        // A later node with as many slots that is no lighter cannot be better.
        let takes = u64::from(slots) >= problem.wanted_slots();
        let needed = takes && seen.is_none_or(|(fewer, lighter)| slots < fewer || weight < lighter);
        seen = if needed { Some((slots, weight)) } else { seen };
        needed
    });
    candidates.filter_map(|pos| rank_on(problem, pos)).min()
}

/// The rank of the job on one node; `None` if the node does not take the whole job.
fn rank_on(problem: &Problem<'_>, pos: Pos) -> Option<Rank> {
    let item = problem.node::<Vec<i64>>(pos, (0, u32::MAX)).filter(|item| problem.amount <= item.hi)?;
    Some(rank_node(problem, pos, &item))
}
