//! Chooses among the domains that could hold the whole job.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::{Lost, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{self, Cost, Holder, Item, Problem, Rank, first, rank, rank_node};

use super::Solver;
use super::balance::balance;
use super::share::share;
use super::traceback::{Chosen, trace};

/// A node or domain that can hold the job, with its rank and the way to use it.
#[derive(Clone)]
pub(crate) struct HolderChoice<C> {
    pub(super) holder: Holder,
    pub(crate) rank: Rank,
    best: Item<C>,
    bounds: Vec<(u32, u32)>,
}

/// The best of all candidates (balanced, where asked for), or `None` if there are none. The flag is true if
/// the search was exhaustive.
pub(crate) fn choose<C: Cost>(problem: &Problem<'_>) -> (Option<HolderChoice<C>>, bool) {
    let mut solver = Solver::<C>::new(problem);
    let mut winner: Option<HolderChoice<C>> = None;
    for layer in (Layer::NODE.0..=problem.fabric.top().0).map(Layer) {
        if winner.as_ref().is_some_and(|winner| is_settled(problem, winner)) {
            break;
        }
        for candidate in at_layer(&mut solver, layer) {
            take_better(&mut solver, &mut winner, candidate);
        }
        if problem.meter.is_spent() {
            break;
        }
    }
    let mut exact = solver.exact && !problem.meter.is_spent();
    if let Some(winner) = winner.as_mut().filter(|_| problem.ask.mode == Mode::Balanced) {
        let mut solver = Solver::new(problem);
        even_out(&mut solver, winner);
        exact &= solver.exact && !problem.meter.is_spent();
    }
    (winner, exact)
}

/// The best `most` domains that could have held a job, each with the step at which it lost.
pub(crate) fn losers<C: Cost>(problem: &Problem<'_>, most: usize) -> Vec<Lost> {
    let ask = problem.ask;
    let by_height = ask.mode != Mode::Distributed
        && ask.prefer.is_empty()
        && ask.prefer_domain.is_none()
        && !problem.lowest_latency
        && problem.layout.weights == 0;
    let mut solver = Solver::<C>::new(problem);
    let of_layer = |layer: Layer, _, _: &dyn Fn(DomainId) -> bool| {
        let mut found = at_layer(&mut solver, layer);
        if ask.mode == Mode::Balanced {
            found.iter_mut().for_each(|candidate| even_out(&mut solver, candidate));
        }
        Some(found.into_iter().map(|candidate| (candidate.rank, candidate.holder)).collect())
    };
    problem::losers(problem, by_height, most, of_layer).unwrap_or_default()
}

/// Keeps the better of two candidates; with equal ranks the earlier one in fabric order.
fn take_better<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    winner: &mut Option<HolderChoice<C>>,
    mut candidate: HolderChoice<C>,
) {
    let Some(best) = winner else {
        *winner = Some(candidate);
        return;
    };
    if candidate.rank.head > best.rank.head {
        return;
    }
    if candidate.rank.head == best.rank.head && solver.problem.ask.mode == Mode::Balanced {
        even_out(solver, best);
        even_out(solver, &mut candidate);
    }
    let order = candidate.rank.cmp(&best.rank);
    if order.then_with(|| first_node(solver, &candidate).cmp(&first_node(solver, best))).is_lt() {
        *best = candidate;
    }
}

/// The index of the first node of a candidate, for comparison among equal ranks. With a spread job a domain
/// may contain nodes before the first one used, so there the nodes are traced.
fn first_node<C: Cost>(solver: &Solver<'_, '_, C>, candidate: &HolderChoice<C>) -> usize {
    match candidate.holder {
        Holder::Domain(id) if solver.problem.ask.mode == Mode::Distributed => {
            let nodes = trace(&mut solver.bounded(candidate.bounds.clone()), id, &candidate.best, false);
            nodes.first().map_or(usize::MAX, |(pos, _, _)| pos.index())
        }
        holder => first(solver.problem, holder),
    }
}

fn even_out<C: Cost>(solver: &mut Solver<'_, '_, C>, candidate: &mut HolderChoice<C>) {
    let Holder::Domain(id) = candidate.holder else { return };
    if candidate.rank.even.is_empty() {
        let balanced = balance(solver, id, &candidate.best);
        candidate.rank = Rank { even: balanced.even, ..rank(solver.problem, id, &balanced.best) };
        candidate.best = balanced.best;
        candidate.bounds = balanced.bounds;
    }
}

/// True if no domain of a higher layer can be better, because every step that comes before the layer has its
/// optimum.
fn is_settled<C>(problem: &Problem<'_>, winner: &HolderChoice<C>) -> bool {
    use crate::sched::place::problem::Means;
    let before = winner.rank.head.iter().take_while(|step| step.means != Means::Height);
    problem.ask.mode != Mode::Distributed
        && before.into_iter().all(|step| match step.means {
            Means::Weight | Means::Preferred => step.value == 0,
            Means::Span(_) => step.value == 1,
            _ => false,
        })
}

/// The candidates of one layer.
fn at_layer<C: Cost>(solver: &mut Solver<'_, '_, C>, layer: Layer) -> Vec<HolderChoice<C>> {
    let problem = solver.problem;
    if problem.within.is_some_and(|within| layer > within) {
        return Vec::new();
    }
    if layer == Layer::NODE {
        return single_nodes(problem);
    }
    let can_hold = |id: &DomainId| problem.capacity(*id) >= problem.amount && may_hold(problem, *id);
    let mut found = Vec::new();
    for id in problem.fabric.domains_of(layer).filter(can_hold) {
        // The last front may have been cut when the steps ran out.
        if problem.meter.is_spent() {
            break;
        }
        if let Some(best) =
            solver.best(id).filter(|best| !problem.meter.is_spent() && !is_held_below(problem, id, best))
        {
            let rank = rank(problem, id, &best);
            let bounds = solver.bounds.clone();
            found.push(HolderChoice { holder: Holder::Domain(id), rank, best, bounds });
        }
    }
    found
}

/// True if a spread job ended up within one lower domain, whose own score then counts.
fn is_held_below<C: Cost>(problem: &Problem<'_>, id: DomainId, best: &Item<C>) -> bool {
    let layer = problem.fabric.domain(id).layer();
    let below = problem.layout.span(layer.index() - 1);
    spreads_by_score(problem) && layer > Layer::LEAF && best.cost.fields()[below] == -1
}

fn spreads_by_score(problem: &Problem<'_>) -> bool {
    problem.ask.mode == Mode::Distributed && problem.ask.score.any()
}

/// True if a domain may be the holder of the job.
pub(crate) fn may_hold(problem: &Problem<'_>, id: DomainId) -> bool {
    let fabric = problem.fabric;
    let range = fabric.domain(id).range();
    // A spread job wants the largest allowed domain, not the smallest that fits.
    let widest = match (fabric.domain(id).parent(), problem.within) {
        (None, _) => true,
        // If the parent is barred, a domain can only be the holder itself.
        (Some(parent), _) if problem.is_barred(parent) => true,
        (Some(parent), Some(within)) => fabric.domain(parent).layer() > within,
        (Some(_), None) => false,
    };
    !problem.is_barred(id)
        && (problem.ask.mode != Mode::Distributed
            || widest
            || [problem.ask.prefer_domain, problem.holder].contains(&Some(id))
            || spreads_by_score(problem))
        && problem.required.iter().all(|pos| range.contains(&pos.index()))
        && problem.forced_domains.iter().all(|&leaf| fabric.within(leaf, id))
}

/// The nodes that could take the whole job. Where slots are whole nodes the result is empty, because leaves
/// stand for their nodes.
fn single_nodes<C: Cost>(problem: &Problem<'_>) -> Vec<HolderChoice<C>> {
    let whole = problem.view.slots.are_whole() && problem.within != Some(Layer::NODE);
    let too_many = problem.nodes.is_some_and(|nodes| nodes > 1)
        || problem.by_nodes && problem.amount > 1
        || problem.required.len() > 1
        || problem.forced_domains.len() > 1;
    let spread = problem.ask.mode == Mode::Distributed && problem.within != Some(Layer::NODE);
    if whole || too_many || spread {
        return Vec::new();
    }
    let fabric = problem.fabric;
    let mut found: Vec<HolderChoice<C>> = Vec::new();
    let mut last: Option<(DomainId, u32, u32)> = None;
    // Where some node or leaf has to be used, only that is searched.
    let ground = match (problem.required.first(), problem.forced_domains.first()) {
        (Some(pos), _) => pos.index()..pos.index() + 1,
        (None, Some(&forced)) => fabric.domain(forced).range(),
        (None, None) => 0..fabric.wired(),
    };
    for pos in problem.view.slots.open_in(ground) {
        let slots = problem.view.slots.at(pos);
        let Some(leaf) = fabric.leaf_of(pos) else { continue };
        let weight = problem.view.weights.map_or(0, |weights| weights.at(pos));
        let needless = last.is_some_and(|(l, s, w)| l == leaf && slots >= s && weight >= w);
        if u64::from(slots) < problem.wanted_slots()
            || needless
            || problem.is_barred(leaf)
            || problem.required.iter().any(|&required| required != pos)
            || problem.forced_domains.iter().any(|&forced| forced != leaf)
            || problem.amount > problem.leaf_cap(leaf)
        {
            continue;
        }
        let Some(item) = problem.node::<C>(pos, (0, u32::MAX)) else { continue };
        if problem.amount > item.hi || item.key.counts != problem.needs || !problem.may_bring(item.key.load) {
            continue;
        }
        last = Some((leaf, slots, weight));
        let rank = rank_node(problem, pos, &item);
        if found.last().is_some_and(|best| best.rank <= rank) {
            continue;
        }
        found.push(HolderChoice { holder: Holder::Node(pos), rank, best: item, bounds: Vec::new() });
    }
    found
}

/// Computes the placement of a candidate; `exact` says that the candidate is known to be the best. `None` if
/// the steps run out, or if ways were cut without which the nodes do not hold the job.
pub(crate) fn realise<C: Cost>(
    problem: &Problem<'_>,
    mut candidate: HolderChoice<C>,
    exact: bool,
) -> Option<Placement> {
    let problem = &problem.anew();
    let mut solver = Solver::<C>::new(problem);
    if problem.ask.mode == Mode::Balanced {
        even_out(&mut solver, &mut candidate);
    }
    let (shares, common) = match candidate.holder {
        Holder::Node(pos) => (vec![(pos, problem.amount)], problem.fabric.leaf_of(pos)),
        Holder::Domain(id) => {
            let mut bounded = solver.bounded(candidate.bounds.clone());
            let nodes = trace(&mut bounded, id, &candidate.best, false);
            solver.exact &= bounded.exact;
            (share_out(problem, id, &nodes, &candidate), Some(id))
        }
    };
    let exact = exact && solver.exact && !problem.meter.is_spent();
    let holds = if exact { holds(problem, &shares) } else { problem.judge(&shares).is_some() };
    holds.then(|| Placement::new(problem, shares, common, exact))
}

/// True if shares add up to the whole job.
fn holds(problem: &Problem<'_>, shares: &[(Pos, u32)]) -> bool {
    debug_assert!(problem.judge(shares).is_some(), "{shares:?} is not allowed");
    shares.iter().map(|(_, share)| u64::from(*share)).sum::<u64>() == problem.wanted_slots()
}

/// Gives each chosen node its share.
fn share_out<C: Cost>(
    problem: &Problem<'_>,
    holder: DomainId,
    nodes: &[Chosen],
    candidate: &HolderChoice<C>,
) -> Vec<(Pos, u32)> {
    if problem.ask.mode != Mode::Distributed || problem.by_nodes {
        return share(problem, holder, nodes, &candidate.bounds);
    }
    let chosen = problem.only_these(nodes.iter().map(|&(pos, _, _)| pos));
    let mut solver = Solver::<C>::new(&chosen);
    trace(&mut solver, holder, &candidate.best, true).into_iter().map(|(pos, _, most)| (pos, most)).collect()
}
