//! Compares choices of nodes in different domains of one layer.

use crate::model::fabric::{DomainId, Layer};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::Missed;
use crate::sched::place::pareto::may_hold;
use crate::sched::place::problem::{Criterion, Item, Means, Problem, Rank, rank};

use super::if_any;
use super::tree_knapsack::below;

/// The domain that holds the job, and the amount that each leaf takes.
pub(super) type HolderShares = (DomainId, Vec<(DomainId, u32)>);

/// The domains that may hold the job and have the capacity, the lowest first.
pub(super) fn holders(problem: &Problem<'_>) -> Vec<DomainId> {
    let all = problem.layers().flat_map(|layer| problem.fabric.domains_of(layer));
    all.filter(|&id| problem.room(id) >= problem.amount && problem.is_inside(id) && may_hold(problem, id))
        .collect()
}

/// The layers below a holder of one layer, in the order in which their spans count.
pub(super) fn order(problem: &Problem<'_>, holder: Layer) -> Vec<Layer> {
    let preferred = problem.layout.prefer.iter().copied();
    let below = (Layer::LEAF.0..holder.0).rev().map(Layer);
    let mut layers: Vec<Layer> = Vec::new();
    for layer in preferred.chain(below).filter(|layer| (Layer::LEAF..holder).contains(layer)) {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    layers
}

/// The best choice in the lowest domains that hold the job, unless higher ones use fewer domains of preferred
/// layers. `at_layer` returns the best choice in domains of one layer; `are_fewest` is true if no choice has
/// smaller spans.
pub(super) fn lowest<H>(
    problem: &Problem<'_>,
    layers: impl Iterator<Item = H>,
    mut at_layer: impl FnMut(H) -> Result<HolderShares, Missed>,
    are_fewest: impl Fn(&[u32]) -> bool,
) -> Result<HolderShares, Missed> {
    let mut best: Option<(Vec<u32>, HolderShares)> = None;
    for holders in layers {
        let Some(found) = if_any(at_layer(holders))? else { continue };
        let spans = preferred_spans(problem, &found);
        if best.as_ref().is_none_or(|(least, _)| spans < *least) {
            best = Some((spans, found));
        }
        if best.as_ref().is_some_and(|(spans, _)| are_fewest(spans)) {
            break;
        }
    }
    best.map(|(_, found)| found).ok_or(Missed::NONE)
}

/// Number of domains of each preferred layer above `node` that a choice uses.
fn preferred_spans(problem: &Problem<'_>, (holder, shares): &HolderShares) -> Vec<u32> {
    let fabric = problem.fabric;
    let span = |layer: Layer| {
        if layer >= fabric.domain(*holder).layer() {
            return 1;
        }
        let mut domains: Vec<DomainId> =
            shares.iter().map(|&(leaf, _)| fabric.covering(leaf, layer)).collect();
        domains.dedup();
        u32::try_from(domains.len()).unwrap_or(u32::MAX)
    };
    problem.layout.prefer.iter().copied().filter(|&layer| layer > Layer::NODE).map(span).collect()
}

/// A lower bound on the rank of a choice in a holder that uses the given numbers of domains at the first
/// layers in `order`. Every unknown step counts as 0.
pub(super) fn bound(problem: &Problem<'_>, holder: DomainId, order: &[Layer], counts: &[u32]) -> Rank {
    let mut item = Item::<Vec<i64>>::nothing(problem.layout.width());
    let lowest = if problem.view.slots.are_whole() { Layer::LEAF } else { Layer::NODE };
    for (&layer, &count) in order.iter().zip(counts).filter(|(layer, _)| **layer >= lowest) {
        problem.charge_for(&mut item.cost, layer, (count as usize, 0));
    }
    rank(problem, holder, &item)
}

/// The rank of a choice in a domain: its leaves in fabric order, each with its number of nodes.
pub(super) fn ranked(
    problem: &Problem<'_>,
    holder: DomainId,
    shares: impl Iterator<Item = (DomainId, u32)> + Clone,
) -> Rank {
    let mut item = Item::<Vec<i64>>::nothing(problem.layout.width());
    charge(problem, holder, shares.clone().map(|(leaf, _)| leaf), &mut item.cost);
    if problem.shares_nodes() {
        // All choices have equally many nodes, so only their slots are charged.
        let slots = shares.map(|(leaf, nodes)| problem.slots_of_fullest(leaf)[nodes as usize]).sum();
        problem.charge_for(&mut item.cost, Layer::NODE, (0, slots));
    }
    rank(problem, holder, &item)
}

/// True if the rank uses more domains of some layer than the limit allows.
pub(super) fn is_over(problem: &Problem<'_>, rank: &Rank) -> bool {
    let is_over = |step: &Criterion| {
        let mut caps = problem.span_caps.iter();
        caps.any(|&(layer, cap)| {
            step.means == Means::Span(layer) && step.value.unsigned_abs() > u64::from(cap)
        })
    };
    rank.head.iter().any(is_over)
}

/// A choice in a domain, with its rank.
pub(super) type Found<T> = (Rank, DomainId, T);

/// The best choice over several domains of one layer; of equal ones the first. `find` returns the best choice
/// in one domain, given the best so far, or no choice if the best so far is better.
pub(super) fn best_of<K, T>(
    problem: &Problem<'_>,
    holders: impl Iterator<Item = (DomainId, K)>,
    mut find: impl FnMut(DomainId, K, Option<&Found<T>>) -> Result<(Rank, T), Missed>,
) -> Result<(DomainId, T), Missed> {
    let mut best: Option<Found<T>> = None;
    let start = |id: DomainId| problem.fabric.domain(id).range().start;
    for (id, known) in holders {
        let Some((rank, choice)) = if_any(find(id, known, best.as_ref()))? else { continue };
        if best.as_ref().is_none_or(|(least, than, _)| (&rank, start(id)) < (least, start(*than))) {
            best = Some((rank, id, choice));
        }
    }
    best.map(|(_, id, choice)| (id, choice)).ok_or(Missed::NONE)
}

/// Adds the cost of the domains below a holder that contain the given leaves, which are in fabric order.
pub(super) fn charge(
    problem: &Problem<'_>,
    holder: DomainId,
    leaves: impl Iterator<Item = DomainId>,
    cost: &mut [i64],
) {
    let fabric = problem.fabric;
    let mut before = None;
    for leaf in leaves {
        let is_new = |id: &DomainId| before.is_none_or(|before| !fabric.within(before, *id));
        for id in below(problem, leaf, holder).take_while(is_new) {
            let domain = fabric.domain(id);
            problem.charge(cost, domain.layer(), domain.cover(), problem.slots(id));
        }
        before = Some(leaf);
    }
}

/// The result of `find` for the domains with the best score before spans that give any result.
pub(super) fn by_score<T>(
    problem: &Problem<'_>,
    holders: &[DomainId],
    mut find: impl FnMut(&[DomainId]) -> Result<T, Missed>,
) -> Result<T, Missed> {
    let mut scored: Vec<(i64, DomainId)> =
        holders.iter().map(|&id| (problem.score(ScoreBefore::Span, id), id)).collect();
    scored.sort_by_key(|(score, _)| *score);
    let equal = scored.chunk_by(|(one, _), (other, _)| one == other);
    let equal = equal.map(|some| some.iter().map(|(_, id)| *id).collect::<Vec<DomainId>>());
    let mut found = equal.map(|equal| find(&equal));
    found.find(|found| !matches!(found, Err(Missed::NONE))).unwrap_or(Err(Missed::NONE))
}
