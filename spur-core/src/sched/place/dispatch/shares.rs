//! Shares of nodes where the best placement takes too long to find: which nodes may be used together does not depend on how
//! full they are.
//!
//! So the same is asked of whole nodes, which mostly is soon told: that answers whether the job fits, and over which domains
//! it is spread. Of the nodes of each leaf those with the fewest slots are taken.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Fabric, Pos};

use super::place_size;
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::{Ask, Mode, Strategy};
use crate::sched::place::problem::{Meter, Problem, frame, positions};
use crate::sched::place::slots::View;
use crate::sched::place::special::of_whole;

/// What part of the steps of a search is spent on how full nodes are: whole nodes soon answer the rest.
pub(super) const PART: u64 = 16;

/// Whether a job takes a share of each of its nodes, and the fabric matters to it.
pub(super) fn are_wanted(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> bool {
    let are_counted = ask.tasks.is_none() && !view.slots.are_whole();
    are_counted && ask.strategy != Strategy::Flat && !fabric.roots().is_empty()
}

/// A placement as local as that of whole nodes, where a search that was cut has `found` another or none.
pub(super) fn as_whole(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    nodes: Option<u32>,
    found: Result<Placement, Missed>,
) -> Result<Placement, Missed> {
    let slots = view.slots.as_whole();
    let whole = View { slots: &slots, ..*view };
    let meter = Meter::new(ask.budget);
    let placement = match place_size(fabric, &whole, &of_whole(ask), nodes, &meter) {
        Ok(placement) => placement,
        Err(missed) => return found.or(Err(missed)),
    };
    let (is_most_local, frame) = (placement.exact, frame(fabric, view, ask, nodes));
    let Some(problem) = Problem::new(fabric, view, ask, nodes, frame, &meter) else { return found };
    let fullest = fullest(&problem, &placement);
    let chosen = fullest.into_iter().map(|pos| (pos, 1)).collect();
    let placement = Placement::new(&problem, chosen, placement.common, false);
    let is_worse = |found: &Placement| {
        let by_waste = ask.mode == Mode::Consolidated
            && view.weights.is_none()
            && ask.prefer_domain.is_none()
            && !ask.lowest_latency
            && !ask.score.weights.any()
            && found.spans == placement.spans;
        if by_waste { placement.waste < found.waste } else { is_most_local }
    };
    Ok(found.ok().filter(|found| !is_worse(found)).unwrap_or(placement))
}

/// As many nodes of each leaf as a placement has, those with the fewest slots, where any of them will do.
fn fullest(problem: &Problem<'_>, placement: &Placement) -> Vec<Pos> {
    let (view, ask) = (problem.view, problem.ask);
    let are_alike =
        view.weights.is_none() && ask.required.is_empty() && ask.counts.is_empty() && !ask.contiguous;
    if !are_alike {
        return placement.positions();
    }
    let mut by_leaf: BTreeMap<DomainId, usize> = BTreeMap::new();
    for leaf in placement.positions().into_iter().filter_map(|pos| problem.fabric.leaf_of(pos)) {
        *by_leaf.entry(leaf).or_default() += 1;
    }
    let mut chosen = Vec::with_capacity(placement.shares.len());
    for (leaf, count) in by_leaf {
        let open = positions(problem.fabric.domain(leaf).range());
        let mut open: Vec<Pos> = open.filter(|pos| view.slots.at(*pos) > 0).collect();
        open.sort_by_key(|pos| view.slots.at(*pos));
        chosen.extend(open.into_iter().take(count));
    }
    chosen.sort_unstable();
    chosen
}
