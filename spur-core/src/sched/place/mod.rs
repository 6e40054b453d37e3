//! Choosing nodes: which positions of a fabric a job gets, and why.
//!
//! Owns the order of preference that `docs/topology.md` promises. Promises: the same fabric, view and ask always give
//! the same placement; a request that can be met is never refused where the answer is marked exact; nothing here
//! knows jobs, partitions, time or reservations. Backfill, preemption, `spur plan` and the refusal at submission all
//! ask this one question, each with its own [`View`].
//!
//! The way of a question through the rooms: `ask` is what is wanted, `slots` what there is; `problem` puts the two together for
//! one number of nodes; `short` answers at once what counts decide, `fronts` everything else; `outline` makes many problems
//! of one where nodes have to lie in windows or segments; `shares` stands in where one of them is given up; `flat` is for
//! jobs to which the fabric is nothing; `explain` has the answers and their words. `oracle` holds all of it to brute force.

mod ask;
mod explain;
mod flat;
mod fronts;
mod outline;
mod problem;
mod relax;
mod shares;
mod short;
mod slots;

#[cfg(test)]
mod oracle;

pub use ask::{
    Ask, AskError, BlockRule, Containment, LeafLoad, Mode, NoMultiple, Resolved, Score, Segment, Strategy,
    Wish, resolve, strategy,
};
pub use explain::{
    Lost, LostWhy, Misfit, MisfitKind, Nearest, Never, Placement, Unit, could_hold, hold_fewer, is_never,
    refusal,
};
pub(in crate::sched) use slots::open;
pub use slots::{Slots, View, Weights};

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};

use problem::{Cost, Frame, Meter, NARROW, Narrow, Problem, Rank, difference, positions, rank_node};
use short::{Equal, Short};

/// Places a job: the best of all placements that are allowed, by the order in `docs/topology.md`.
///
/// # Errors
/// [`Missed`] where none is allowed now, or none was found.
pub fn place(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    let found = search(fabric, view, ask);
    if is_exact(&found) { found } else { relax::better(fabric, view, ask, found) }
}

/// The same by one search, which may be cut.
fn search(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    match Equal::of(view, ask) {
        Some(equal) => {
            let view = View { slots: &equal.whole, ..*view };
            place_sizes(fabric, &view, &equal.ask).map(|placement| equal.slots(placement))
        }
        None => place_sizes(fabric, view, ask),
    }
}

/// Places a job on the largest number of nodes for which that is found.
fn place_sizes(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> Result<Placement, Missed> {
    let of_shares = shares::are_wanted(fabric, view, ask);
    let meter = Meter::new(if of_shares { ask.budget / shares::PART } else { ask.budget });
    let (mut exact, mut sizes, mut step) = (true, sizes(fabric, view, ask), 0);
    let mut without_steps = 0;
    while let Some(nodes) = sizes.nth(step) {
        let mut found = place_size(fabric, view, ask, nodes, &meter);
        if of_shares && !is_exact(&found) {
            found = shares::as_whole(fabric, view, ask, nodes, found);
        }
        match found {
            Ok(placement) => return Ok(Placement { exact: exact && placement.exact, ..placement }),
            Err(missed) => exact &= missed.exact,
        }
        without_steps += u32::from(meter.is_spent());
        exact &= without_steps < SIZES_WITHOUT_STEPS;
        // Once a search cannot go to its end, or only by ways that ask for no steps, few more numbers are tried.
        if !exact {
            step = (2 * step + 1).min(sizes.len().saturating_sub(1));
        }
    }
    Err(Missed { exact })
}

/// Numbers of nodes that are tried one after another when no steps are left, because what asks for none says for sure that
/// they will not do. It takes its time as well: on 100,000 nodes some milliseconds each.
const SIZES_WITHOUT_STEPS: u32 = 16;

/// Whether a search came to its end.
fn is_exact(found: &Result<Placement, Missed>) -> bool {
    found.as_ref().map_or_else(|missed| missed.exact, |placement| placement.exact)
}

/// The same for somebody who wants to know why not, which takes a few searches more.
///
/// # Errors
/// [`Misfit`] where there is no placement; it says what is missing where.
pub fn place_or_say(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> Result<Placement, Misfit> {
    place(fabric, view, ask).map_err(|missed| explain::misfit(fabric, view, ask, missed))
}

/// No placement was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Whether that means that there is none.
    pub exact: bool,
}

impl Missed {
    /// There is none.
    const NONE: Missed = Missed { exact: true };
}

/// The best few of the domains that could have held a job that was placed, and at which step each lost.
///
/// `ask` and `view` are those of the placement; `nodes` is the number of nodes it got, where the ask left that open.
#[must_use]
pub fn rivals(fabric: &Fabric, view: &View<'_>, ask: &Ask, placement: &Placement, most: usize) -> Vec<Lost> {
    let outlined = ask.contiguous || ask.adjacent.is_some() || ask.segment.is_some();
    if ask.strategy == Strategy::Flat || fabric.roots().is_empty() || outlined {
        return Vec::new();
    }
    if let Some(equal) = Equal::of(view, ask) {
        let view = View { slots: &equal.whole, ..*view };
        return equal.lost(rivals(fabric, &view, &equal.ask, placement, most));
    }
    let nodes = ask.nodes.map(|_| u32::try_from(placement.shares.len()).unwrap_or(u32::MAX));
    let frame = frame(fabric, view, ask, nodes);
    let problem = Problem::new(fabric, view, ask, nodes, frame, &Meter::new(ask.budget));
    let Some(problem) = problem else { return Vec::new() };
    match placement.shares[..] {
        [(winner, _)] if !view.slots.are_whole() => of_nodes(&problem, winner, most),
        _ => losers(&problem, most),
    }
}

fn losers(problem: &Problem<'_>, most: usize) -> Vec<Lost> {
    short::losers(problem, most).unwrap_or_else(|| fronts::losers::<Vec<i64>>(problem, most))
}

/// Where the winner is one node: leaves that have such a node as well lost by what the best of them has; what is above
/// leaves has nothing to add, so that more are looked for where it stands between them.
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
        // A later one with as many slots that is no lighter is no better.
        let takes = u64::from(slots) >= problem.wanted_slots();
        let needed = takes && seen.is_none_or(|(fewer, lighter)| slots < fewer || weight < lighter);
        seen = if needed { Some((slots, weight)) } else { seen };
        needed
    });
    candidates.filter_map(|pos| rank_on(problem, pos)).min()
}

/// The rank of one node that takes the whole job.
fn rank_on(problem: &Problem<'_>, pos: Pos) -> Option<Rank> {
    let item = problem.node::<Vec<i64>>(pos, (0, u32::MAX)).filter(|item| problem.amount <= item.hi)?;
    Some(rank_node(problem, pos, &item))
}

/// The numbers of nodes to try, the largest first.
fn sizes(
    fabric: &Fabric,
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
            let holders = fabric.domains().filter(|(_, domain)| domain.layer() <= layer);
            holders.map(|(id, _)| view.slots.nodes_of(id)).max().unwrap_or(0)
        }
        _ => open,
    };
    let most = most.min(largest).min(ask.tasks.unwrap_or(u32::MAX));
    of(Some((least.max(1), most)))
}

/// Places a job on a given number of nodes (None: on as many as its tasks need). Where nothing is picked by size once a
/// search is cut, every number has steps of its own.
fn place_size(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    nodes: Option<u32>,
    meter: &Meter,
) -> Result<Placement, Missed> {
    if ask.strategy == Strategy::Flat || fabric.roots().is_empty() {
        return meter.apart(|meter| flat::place_flat(fabric, view, ask, nodes, meter));
    }
    if let (Some(segment), Some(nodes)) = (ask.segment, nodes) {
        return meter.apart(|meter| outline::place_segments(fabric, view, ask, nodes, segment, meter));
    }
    let plain = without_needless(ask, nodes);
    let ask = plain.as_ref().unwrap_or(ask);
    let frame = frame(fabric, view, ask, nodes);
    let problem = Problem::new(fabric, view, ask, nodes, frame, meter);
    problem.ok_or(Missed::NONE).and_then(|problem| solve(&problem))
}

/// The same ask without what says no more than others do: one node follows itself, one leaf lies beside itself, and no leaf
/// has more of a job than there is.
fn without_needless(ask: &Ask, nodes: Option<u32>) -> Option<Ask> {
    let is_single = nodes == Some(1) || ask.tasks == Some(1);
    let slots = ask.tasks.or(nodes.filter(|_| ask.tasks_per_node.is_none()));
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

/// Solves one problem, whatever its width.
fn solve(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if problem.layout.width() <= NARROW {
        solve_with::<Narrow>(problem)
    } else {
        solve_with::<Vec<i64>>(problem)
    }
}

/// The lowest layer that has to hold the job, and the limit that the block rule sets on the layer below.
fn frame(fabric: &Fabric, view: &View<'_>, ask: &Ask, nodes: Option<u32>) -> Frame {
    if ask.strategy != Strategy::Block {
        return Frame { within: ask.must, ..Frame::default() };
    }
    let slots = if nodes.is_some() { 0 } else { u64::from(ask.tasks.unwrap_or(0)) };
    let rule = BlockRule::new(fabric, view.idle).containment(nodes.unwrap_or(0), slots);
    Frame { within: lower(rule.within, ask.must), touch: rule.touch, ..Frame::default() }
}

/// The lower of two layers that have to hold a job.
fn lower(a: Option<Layer>, b: Option<Layer>) -> Option<Layer> {
    a.into_iter().chain(b).min()
}

/// A placement with its place in the order of preference.
type Ranked = (Rank, Placement);

/// Solves one problem without any short cut.
fn solve_ranked(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    if problem.layout.width() <= NARROW { ranked::<Narrow>(problem) } else { ranked::<Vec<i64>>(problem) }
}

fn ranked<C: Cost>(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    if problem.ask.contiguous {
        return outline::contiguous::<C>(problem);
    }
    if let Some(leaves) = problem.ask.adjacent {
        return outline::adjacent::<C>(problem, leaves);
    }
    let (winner, mut exact) = fronts::choose::<C>(problem);
    if winner.is_none() && exact {
        return Err(Missed::NONE);
    }
    let found = winner.and_then(|mut winner| {
        exact &= winner.even_out(problem);
        let rank = winner.rank.clone();
        Some((rank, fronts::realise(problem, winner, exact)?))
    });
    match found {
        Some((_, Placement { exact: true, .. })) => found.ok_or(Missed::NONE),
        // What was cut off may have been better than what is soon found.
        _ => better(problem, found, fronts::rough::<C>(problem)).ok_or(Missed { exact: false }),
    }
}

/// The better of two placements of which none is known to be the best.
fn better(problem: &Problem<'_>, found: Option<Ranked>, other: Option<Ranked>) -> Option<Ranked> {
    let judged = |(_, placement): Ranked| Some((problem.judge(&placement.shares)?, placement));
    let all = [found, other].into_iter().flatten().filter_map(judged);
    all.min_by(|(one, _), (other, _)| one.cmp(other))
}

fn solve_with<C: Cost>(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if problem.ask.contiguous || problem.ask.adjacent.is_some() {
        return ranked::<C>(problem).map(|(_, placement)| placement);
    }
    let counted = match short::place(problem) {
        Short::Placed(placement) if placement.exact => return Ok(placement),
        Short::Placed(placement) => Some(placement),
        Short::Nowhere => return Err(Missed::NONE),
        Short::Other => None,
    };
    let found = ranked::<C>(problem);
    if let Err(Missed { exact: true }) | Ok((_, Placement { exact: true, .. })) = found {
        return found.map(|(_, placement)| placement);
    }
    let loosely = match short::place_loosely(problem) {
        Short::Placed(placement) if placement.exact => return Ok(placement),
        Short::Placed(placement) => Some(placement),
        Short::Nowhere => return Err(Missed::NONE),
        Short::Other => None,
    };
    let judged = |placement: Placement| Some((problem.judge(&placement.shares)?, placement));
    let others = [counted, loosely, short::largest_first(problem)].into_iter().flatten().filter_map(judged);
    let best = others.chain(found.ok()).min_by(|(one, _), (other, _)| one.cmp(other));
    best.map(|(_, placement)| Placement { exact: false, ..placement }).ok_or(Missed { exact: false })
}
