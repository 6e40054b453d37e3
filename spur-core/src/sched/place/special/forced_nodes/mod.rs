//! Whole nodes of which some are sure to be used: those that are required, and where nodes weigh unequally much, those that are
//! lighter than others.
//!
//! Every domain that can hold the job does so at best with so many nodes of each weight, which counts tell ([`leaf_shares`]): of a
//! leaf, its nodes are used in the order of their weights, so that those up to some weight are used wherever they are, and
//! of one weight some. Only domains with the least such numbers are left. What has to be used in one costs the same for every
//! choice, so that it is as if it cost nothing; the rest is a question for [`reduced_costs`](super::reduced_costs).

mod leaf_shares;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::Placement;
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::Problem;

use super::comparison::{Comparison, HolderShares, NotPlain, order, preferred_spans};
use super::outcome::{NoChoice, Outcome};
use super::reduced_costs::best_below;
use leaf_shares::{Leaves, Mix};

/// Places a job of whole nodes if some of them are sure to be used.
pub(super) fn place(problem: &Problem<'_>) -> Outcome {
    if !applies(problem) {
        return Outcome::Other;
    }
    let holders = holders(problem);
    if holders.is_empty() {
        return Outcome::Nowhere;
    }
    let Some(leaves) = Leaves::new(problem) else { return Outcome::Nowhere };
    match search(&leaves, &holders) {
        Ok(Some((holder, shares))) => {
            let mut nodes: Vec<(Pos, u32)> = Vec::with_capacity(problem.amount as usize);
            for &(leaf, amount) in &shares {
                nodes.extend(leaves.nodes_of(leaf, amount).into_iter().map(|pos| (pos, 1)));
            }
            Outcome::Placed(Placement::new(problem, nodes, Some(holder), true))
        }
        Ok(None) => Outcome::Nowhere,
        Err(NotPlain) => Outcome::Other,
    }
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
        // Of several units what is lightest for one of them need not be for another.
        && (!weighs || units.iter().all(|unit| *unit == units[0]) && !problem.is_limited())
}

/// The domains that have enough open nodes and all that are required, the lowest first.
fn holders(problem: &Problem<'_>) -> Vec<DomainId> {
    let fabric = problem.fabric;
    let highest = problem.within.unwrap_or(fabric.top());
    let ends = problem.required.first().zip(problem.required.last());
    let has_all = |id: DomainId| {
        let range = fabric.domain(id).range();
        ends.is_none_or(|(first, last)| range.contains(&first.index()) && range.contains(&last.index()))
    };
    let all = (Layer::LEAF.0..=highest.0).flat_map(|layer| fabric.domains_of(Layer(layer)));
    all.filter(|&id| problem.room(id) >= problem.amount && problem.is_inside(id) && has_all(id)).collect()
}

/// The best placement: of the least weight, in the lowest layer that holds the job, unless a higher one touches fewer
/// domains of the layers that are preferred.
fn search(leaves: &Leaves<'_, '_>, holders: &[DomainId]) -> Result<Option<HolderShares>, NotPlain> {
    let problem = leaves.problem;
    let fabric = problem.fabric;
    let mut lightest: Vec<(DomainId, Mix)> = Vec::new();
    for &id in holders {
        let Some(mix) = leaves.mix(id) else { continue };
        match lightest.first().map(|(_, least)| mix.weights.cmp(&least.weights)) {
            Some(std::cmp::Ordering::Greater) => continue,
            Some(std::cmp::Ordering::Less) => lightest.clear(),
            _ => {}
        }
        lightest.push((id, mix));
    }
    let mut best: Option<(Vec<u32>, HolderShares)> = None;
    for tied in
        lightest.chunk_by(|(one, _), (other, _)| fabric.domain(*one).layer() == fabric.domain(*other).layer())
    {
        let Some(found) = at_layer(leaves, tied)? else { continue };
        let spans = preferred_spans(problem, &found);
        let are_fewest = spans.iter().all(|span| *span == 1);
        if best.as_ref().is_none_or(|(least, _)| spans < *least) {
            best = Some((spans, found));
        }
        if are_fewest {
            break;
        }
    }
    if best.is_none() && problem.layout.weights > 0 && !problem.span_caps.is_empty() {
        // Of more weight fewer domains may do.
        return Err(NotPlain);
    }
    Ok(best.map(|(_, found)| found))
}

/// The best placement in one of the holders, which are all of one layer.
fn at_layer(leaves: &Leaves<'_, '_>, holders: &[(DomainId, Mix)]) -> Result<Option<HolderShares>, NotPlain> {
    let problem = leaves.problem;
    let Some((first, _)) = holders.first() else { return Ok(None) };
    let order = order(problem, problem.fabric.domain(*first).layer());
    let mut best: Option<(Comparison, HolderShares)> = None;
    for (id, mix) in holders {
        let found = if order.is_empty() {
            let shares = vec![(*id, problem.amount)];
            Some((Comparison::new(problem, *id, &order, &shares), shares))
        } else {
            let Some(takes) = leaves.takes(*id, mix) else { continue };
            let than = best.as_ref().map(|(comparison, _)| comparison);
            match best_below(problem, *id, &order, |id| takes.of(id), than) {
                Ok(found) => found,
                Err(NoChoice::Nowhere) => continue,
                Err(NoChoice::Unknown) => return Err(NotPlain),
            }
        };
        if let Some((comparison, shares)) = found
            && best.as_ref().is_none_or(|(least, _)| comparison < *least)
        {
            best = Some((comparison, (*id, shares)));
        }
    }
    Ok(best.map(|(_, found)| found))
}
