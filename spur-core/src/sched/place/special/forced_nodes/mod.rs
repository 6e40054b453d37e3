//! Whole nodes of which some are in every best choice: required nodes, and lighter nodes where weights
//! differ.
//!
//! In a best choice, the number of nodes of each weight follows from counts ([`leaf_shares`]): the nodes of a
//! leaf are used in order of weight, all of them up to some weight, and some of the next. Only domains in
//! which these numbers are least can win. Nodes in every choice cost all choices the same, so they are
//! charged nothing; the rest is a question for [`reduced_costs`](super::reduced_costs).

mod leaf_shares;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::Problem;

use super::comparison::{HolderShares, best_of, holders, lowest, order, ranked};
use super::reduced_costs::best_below;
use leaf_shares::{Leaves, Mix};

/// Places a job of whole nodes if some of them are in every best choice; [`Missed::UNKNOWN`] otherwise.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if !applies(problem) {
        return Err(Missed::UNKNOWN);
    }
    let holders = holders(problem);
    if holders.is_empty() {
        return Err(Missed::NONE);
    }
    let leaves = Leaves::new(problem).ok_or(Missed::NONE)?;
    let (holder, shares) = search(&leaves, &holders)?;
    let mut nodes: Vec<(Pos, u32)> = Vec::with_capacity(problem.amount as usize);
    for &(leaf, amount) in &shares {
        nodes.extend(leaves.nodes_of(leaf, amount).into_iter().map(|pos| (pos, 1)));
    }
    Ok(Placement::new(problem, nodes, Some(holder), true))
}

fn applies(problem: &Problem<'_>) -> bool {
    let ask = problem.ask;
    let weighs = problem.layout.weights > 0;
    let units = &problem.units[Layer::LEAF.index()..];
    problem.by_nodes
        && problem.view.slots.are_whole()
        && ask.mode == Mode::Consolidated
        && ask.prefer_domain.is_none()
        && ask.counts.is_empty()
        && !problem.lowest_latency
        && problem.only.is_none()
        && !problem.adds_up_loads()
        && problem.forced_domains.is_empty()
        && problem.within != Some(Layer::NODE)
        && problem.unit(Layer::NODE) == 1
        && problem.span_caps.iter().all(|&(_, cap)| cap > 0)
        && (weighs || !problem.required.is_empty())
        // With unequal units, the lightest choice for one unit need not be lightest for another.
        && (!weighs || units.iter().all(|unit| *unit == units[0]) && problem.limits.is_empty())
}

/// The best placement: of the least weight, in the lowest layer that holds the job, unless a higher one uses
/// fewer domains of preferred layers.
fn search(leaves: &Leaves<'_, '_>, holders: &[DomainId]) -> Result<HolderShares, Missed> {
    let problem = leaves.problem;
    let fabric = problem.fabric;
    let mixes = holders.iter().filter_map(|&id| Some((id, leaves.mix(id)?)));
    let mut lightest: Vec<(DomainId, Mix)> = mixes.collect();
    let least = lightest.iter().map(|(_, mix)| &mix.weights).min().cloned();
    lightest.retain(|(_, mix)| Some(&mix.weights) == least.as_ref());
    let layer = |(id, _): &(DomainId, Mix)| fabric.domain(*id).layer();
    let layers = lightest.chunk_by(|one, other| layer(one) == layer(other));
    let found =
        lowest(problem, layers, |tied| at_layer(leaves, tied), |spans| spans.iter().all(|span| *span == 1));
    // Where spans are limited, a heavier choice may use fewer domains, so a failure is not final.
    let is_all = problem.layout.weights == 0 || problem.span_caps.is_empty();
    found.map_err(|missed| Missed { exact: missed.exact && is_all })
}

/// The best placement in one of the holders, which are all of one layer.
fn at_layer(leaves: &Leaves<'_, '_>, holders: &[(DomainId, Mix)]) -> Result<HolderShares, Missed> {
    let problem = leaves.problem;
    let order = order(problem, problem.fabric.domain(holders[0].0).layer());
    best_of(problem, holders.iter().map(|(id, mix)| (*id, mix)), |id, mix, best| {
        if order.is_empty() {
            let shares = vec![(id, problem.amount)];
            return Ok((ranked(problem, id, shares.iter().copied()), shares));
        }
        let takes = leaves.takes(id, mix).ok_or(Missed::NONE)?;
        best_below(problem, id, &order, |id: DomainId| takes[id.index()], best.map(|(rank, ..)| rank))
    })
}
