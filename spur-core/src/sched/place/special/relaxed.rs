//! Questions that are hard for one of the things that are asked. Without it they may have a special solver, and if the best choice
//! keeps it as it is, it is the best of those that do: leaving something out adds choices and makes none better.
//!
//! What can be left out says nothing of how good a choice is: counted features, caps on leaves, limits on the domains of
//! layers; and the number of tasks where that of nodes is given, on which these are shared out afterwards.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::Placement;
use crate::sched::place::ask::{Ask, Mode};
use crate::sched::place::pareto::share;
use crate::sched::place::problem::Problem;

use super::outcome::Outcome;

/// Places a job if the best choice of a looser question keeps everything.
pub(crate) fn place(problem: &Problem<'_>) -> Outcome {
    let ask = problem.ask;
    if ask.mode != Mode::Consolidated || !problem.is_as_asked() {
        return Outcome::Other;
    }
    let is_capped = has_caps(ask) || !problem.span_caps.is_empty();
    // The score knows the share of slots that a job fills, and multiples count tasks.
    let counts_both = problem.nodes.is_some() && ask.multiples.is_empty() && !ask.score.weights.any();
    // Without caps and tasks is what the nodes alone are asked for where caps are left out and that is all.
    let looser =
        [(false, false, !ask.counts.is_empty()), (false, true, counts_both), (true, false, is_capped)];
    for (without_caps, without_tasks, _) in looser.into_iter().filter(|(_, _, is_looser)| *is_looser) {
        match of_looser(problem, without_caps, without_tasks) {
            Outcome::Other => {}
            answer => return answer,
        }
    }
    Outcome::Other
}

/// Whether a leaf may give only so much.
fn has_caps(ask: &Ask) -> bool {
    ask.max_nodes_per_leaf.is_some() || ask.max_slots_per_leaf.is_some() || ask.leaf_load.is_some()
}

/// The answer to a looser question if it is one to this as well.
fn of_looser(problem: &Problem<'_>, without_caps: bool, without_tasks: bool) -> Outcome {
    let mut ask = Ask { counts: Vec::new(), max_spans: problem.span_caps.clone(), ..problem.ask.clone() };
    if without_caps {
        (ask.max_nodes_per_leaf, ask.max_slots_per_leaf, ask.max_spans) = (None, None, Vec::new());
        ask.leaf_load = None;
    }
    if without_tasks {
        (ask.tasks, ask.max_tasks_per_node, ask.max_slots_per_leaf) = (None, None, None);
        ask.nodes = problem.nodes.map(|nodes| (nodes, nodes));
    }
    let Some(looser) = problem.looser(&ask) else { return Outcome::Other };
    match super::place(&looser) {
        Outcome::Nowhere => Outcome::Nowhere,
        Outcome::Placed(found) if found.exact => {
            let placement = if without_tasks { shared_out(problem, &found) } else { Some(found) };
            placement
                .filter(|placement| keeps_all(problem, placement))
                .map_or(Outcome::Other, Outcome::Placed)
        }
        _ => Outcome::Other,
    }
}

/// The tasks on the nodes of a placement, if there is room for them.
fn shared_out(problem: &Problem<'_>, found: &Placement) -> Option<Placement> {
    let nodes: Vec<(Pos, u32, u32)> =
        found.shares.iter().map(|&(pos, _)| (pos, 1, problem.most_on(pos))).collect();
    let of_leaves = by_leaf(problem, nodes.iter().map(|&(pos, least, most)| (pos, (least, most))));
    let rooms = of_leaves.iter().map(|(leaf, nodes)| {
        let cap = leaf.map_or(u32::MAX, |leaf| problem.leaf_cap(leaf));
        let (least, most) = nodes
            .iter()
            .fold((0, 0_u32), |(least, most), node| (least + node.0, most.saturating_add(node.1)));
        (least <= cap).then_some(u64::from(most.min(cap)))
    });
    let room: Option<u64> = rooms.sum();
    if room? < u64::from(problem.amount) {
        return None;
    }
    let free = vec![(0, u32::MAX); problem.layout.layers];
    Some(Placement::new(problem, share(problem, found.common?, &nodes, &free), found.common, true))
}

/// Whether a placement keeps what may have been left out.
fn keeps_all(problem: &Problem<'_>, placement: &Placement) -> bool {
    let is_over = |&(layer, cap): &(Layer, u32)| placement.spans[layer.index()] > cap;
    let has_all = problem.ask.counts.iter().all(|(set, need)| {
        let counted = placement.shares.iter().filter(|(pos, _)| set.contains(pos.index()));
        counted.count() >= *need as usize
    });
    let nodes = placement.shares.iter().map(|&(pos, share)| (pos, (share, problem.load_of(pos))));
    let leaves = by_leaf(problem, nodes);
    has_all
        && !problem.span_caps.iter().any(is_over)
        && leaves.iter().all(|(leaf, shares)| {
            let nodes = shares.len() as u64;
            let amount = if problem.by_nodes {
                nodes
            } else {
                shares.iter().map(|&(share, _)| u64::from(share)).sum()
            };
            let load = shares.iter().fold(0_u32, |sum, (_, load)| sum.saturating_add(*load));
            amount <= leaf.map_or(u64::MAX, |leaf| problem.leaf_cap(leaf).into())
                && problem.may_bring(load)
                && problem.leaf_nodes().is_none_or(|most| nodes <= most.into())
        })
}

/// What is known of nodes, leaf by leaf.
fn by_leaf<T>(
    problem: &Problem<'_>,
    nodes: impl Iterator<Item = (Pos, T)>,
) -> BTreeMap<Option<DomainId>, Vec<T>> {
    let mut leaves: BTreeMap<Option<DomainId>, Vec<T>> = BTreeMap::new();
    for (pos, known) in nodes {
        leaves.entry(problem.fabric.leaf_of(pos)).or_default().push(known);
    }
    leaves
}
