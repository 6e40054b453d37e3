//! The common case without a general search: whole nodes, or shared nodes of which each leaf's fullest are
//! taken, packed into one leaf or into the leaves of one domain.
//!
//! Returns exactly what the dynamic programme would, computed from counts per domain, and [`Missed::UNKNOWN`]
//! elsewhere. Of several leaves the fewest that hold the job are taken, of these the ones with the fewest
//! slots together, then the first. A knapsack ([`tree_knapsack`](super::tree_knapsack)) finds them, or
//! [`reduced_costs`](super::reduced_costs) where the knapsack is too large or nodes are shared.

mod capacity;
mod losers;

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{Problem, keep_least, position};
use crate::sched::place::special::fewest::largest;

use super::comparison::{HolderShares, best_of, by_score, lowest, order, ranked};
use super::reduced_costs::best_below;
use super::tree_knapsack::{Beside, KnapsackItem, PriceScale, solve};
use capacity::Rooms;

pub(super) use losers::losers;

/// The largest number of table entries of a knapsack where another solver may answer. Tests allow fewer, so
/// that brute force on small fabrics covers the other solver and the large knapsack, too.
const FEW: usize = if cfg!(test) { 1 << 5 } else { 1 << 14 };
/// The largest number of table entries of a knapsack where no other solver answers.
const MOST: usize = 1 << 24;

/// Places a job of whole nodes in the common case; [`Missed::UNKNOWN`] otherwise. Where weights differ, only
/// placements on the lightest nodes are found.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if !applies(problem) {
        return Err(Missed::UNKNOWN);
    }
    let rooms = Rooms::new(problem).ok_or(Missed::UNKNOWN)?;
    let missed = |missed: Missed| Missed { exact: missed.exact && rooms.lightest.is_none() };
    search(&rooms).map(|found| placed(&rooms, &found)).map_err(missed)
}

/// A greedy placement: the largest leaves of the largest domains below the holder with the fewest members.
/// Always finds one where only counts matter and a domain holds the job. `None` if the case is another one,
/// or a limit on spans fails.
pub(crate) fn largest_first(problem: &Problem<'_>) -> Option<Placement> {
    if !applies(problem) {
        return None;
    }
    let rooms = Rooms::new(problem)?;
    problem.layers().find_map(|layer| {
        let holders = rooms.holders(layer);
        let holder = holders.into_iter().min_by_key(|&id| problem.fewest_members(id))?;
        let mut shares = Vec::new();
        fill(&rooms, holder, problem.amount, &mut shares);
        shares.sort_unstable_by_key(|(leaf, _)| problem.fabric.domain(*leaf).range().start);
        let placement = Placement { exact: false, ..placed(&rooms, &(holder, shares)) };
        let is_over = |&(layer, cap): &(Layer, u32)| placement.spans[layer.index()] > cap;
        (!problem.span_caps.iter().any(is_over)).then_some(placement)
    })
}

/// Puts an amount into the largest members below a domain.
fn fill(rooms: &Rooms<'_, '_>, id: DomainId, amount: u32, shares: &mut Vec<(DomainId, u32)>) {
    let mut members = rooms.problem.fabric.domain(id).children().to_vec();
    if members.is_empty() {
        shares.push((id, amount));
        return;
    }
    members.sort_by_key(|&child| std::cmp::Reverse(rooms.room(child)));
    let mut left = amount;
    for child in members {
        let part = rooms.room(child).min(left);
        if part > 0 {
            left -= part;
            fill(rooms, child, part, shares);
        }
    }
}

fn applies(problem: &Problem<'_>) -> bool {
    let ask = problem.ask;
    (problem.nodes_of_a_weight_are_alike() || problem.shared_nodes_are_alike() && problem.amount > 1)
        && (problem.layout.weights == 0 || problem.is_free_within_a_weight())
        && ask.mode == Mode::Consolidated
        && ask.prefer_domain.is_none()
        && !problem.lowest_latency
        && problem.forced_domains.is_empty()
        && problem.within != Some(Layer::NODE)
        && problem.unit(Layer::NODE) == 1
        && problem.span_caps.iter().all(|&(_, cap)| cap > 0)
}

/// The best placement: in the lowest layer that holds the job, unless a higher one uses fewer domains of
/// preferred layers.
fn search(rooms: &Rooms<'_, '_>) -> Result<HolderShares, Missed> {
    let problem = rooms.problem;
    let is_scored = [ScoreBefore::Span, ScoreBefore::Fit].into_iter().any(|before| problem.is_scored(before));
    // Among leaves, those with more slots than the tightest cannot win.
    let holders = problem.layers().map(|layer| match layer == Layer::LEAF && !is_scored {
        true => rooms.tightest_holders(layer),
        false => rooms.holders(layer),
    });
    let holders = holders.filter(|holders| !holders.is_empty());
    lowest(problem, holders, |holders| at_layer(rooms, &holders), |spans| are_fewest(rooms, spans))
}

/// True if no placement could use fewer domains of the preferred layers.
fn are_fewest(rooms: &Rooms<'_, '_>, spans: &[u32]) -> bool {
    let problem = rooms.problem;
    let preferred = problem.layout.prefer.iter().copied().filter(|&layer| layer > Layer::NODE);
    spans.iter().zip(preferred).all(|(&span, layer)| span == 1 || rooms.are_too_few(layer, span - 1))
}

/// The best placement in one of the holders, which are all of one layer and have the capacity.
fn at_layer(rooms: &Rooms<'_, '_>, holders: &[DomainId]) -> Result<HolderShares, Missed> {
    let problem = rooms.problem;
    let layer = problem.fabric.domain(holders[0]).layer();
    let is_first = !problem.layout.prefer.iter().any(|preferred| (Layer::LEAF..layer).contains(preferred));
    if !problem.is_scored(ScoreBefore::Span) || !is_first {
        return among(rooms, holders);
    }
    by_score(problem, holders, |equal| among(rooms, equal))
}

/// The best placement in one of the holders, where no score decides before spans, or preferred layers decide
/// before the score.
fn among(rooms: &Rooms<'_, '_>, holders: &[DomainId]) -> Result<HolderShares, Missed> {
    let fabric = rooms.problem.fabric;
    if fabric.domain(holders[0]).layer() == Layer::LEAF {
        let leaf = least_waste(rooms, holders, None);
        return Ok((leaf, vec![(leaf, rooms.problem.amount)]));
    }
    if let &[holder] = holders
        && let Some(shares) = rooms.all_of(holder)
        && rooms.problem.span_caps.iter().all(|(_, cap)| shares.len() <= *cap as usize)
    {
        return Ok((holder, shares));
    }
    let hold_leaves = holders.iter().all(|&id| rooms.problem.lies_over_leaves(id));
    if hold_leaves { several_leaves(rooms, holders) } else { over_domains(rooms, holders) }
}

/// The best placement in one of the holders, which are all of one layer.
fn over_domains(rooms: &Rooms<'_, '_>, holders: &[DomainId]) -> Result<HolderShares, Missed> {
    let problem = rooms.problem;
    let layer = problem.fabric.domain(holders[0]).layer();
    let most_slots = holders.iter().map(|&id| problem.view.slots.of(id)).max().unwrap_or(0);
    // The knapsack does not know the slots of single shared nodes.
    let adds_up = problem.takes_add_up() && !problem.shares_nodes();
    let scale = if adds_up { PriceScale::of_leaves(problem, layer, most_slots) } else { None };
    let order = order(problem, layer);
    best_of(problem, holders.iter().map(|&id| (id, ())), |id, (), best| {
        let knapsack = |most: usize| {
            let shares = knapsack(rooms, id, scale.as_ref()?, most)?;
            Some((ranked(problem, id, shares.iter().copied()), shares))
        };
        if let Some(found) = knapsack(FEW) {
            return Ok(found);
        }
        match best_below(problem, id, &order, |id| (0, rooms.room(id)), best.map(|(rank, ..)| rank)) {
            Err(Missed::UNKNOWN) => knapsack(MOST).ok_or(Missed::UNKNOWN),
            found => found,
        }
    })
}

/// The best placement over several leaves of one of the holders, which are all of one layer and have only
/// leaves as children.
fn several_leaves(rooms: &Rooms<'_, '_>, holders: &[DomainId]) -> Result<HolderShares, Missed> {
    let problem = rooms.problem;
    let fabric = problem.fabric;
    let layer = fabric.domain(holders[0]).layer();
    let caps = problem.span_caps.iter().filter(|(capped, _)| *capped < layer);
    let cap = caps.map(|&(_, cap)| cap).min().unwrap_or(u32::MAX);
    let mut scratch = Vec::new();
    let counted: Vec<(u32, DomainId)> = (holders.iter())
        .filter_map(|&id| Some((fewest(rooms, fabric.domain(id).children(), &mut scratch)?, id)))
        .collect();
    let count = counted.iter().map(|(count, _)| *count).min().filter(|count| *count <= cap);
    let count = count.ok_or(Missed::NONE)?;
    let mut tied: Vec<DomainId> =
        counted.into_iter().filter(|(c, _)| *c == count).map(|(_, id)| id).collect();
    keep_best_scored(problem, &mut tied);
    if problem.shares_nodes() {
        // Among choices with equal slots in their leaves, the one with the fewest slots in its nodes is
        // better.
        return over_domains(rooms, &least_wasteful(rooms, &tied));
    }
    let holder = least_waste(rooms, &tied, Some(count));
    match subset(rooms, holder, count) {
        Some(shares) => Ok((holder, shares)),
        None => over_domains(rooms, &tied),
    }
}

/// The fewest of the given domains that hold the job; `None` if all do not. `scratch` is a reusable buffer.
fn fewest(rooms: &Rooms<'_, '_>, domains: &[DomainId], scratch: &mut Vec<u32>) -> Option<u32> {
    scratch.clear();
    scratch.extend(domains.iter().map(|&id| rooms.room(id)));
    let (count, _) = largest(scratch, rooms.problem.amount.into())?;
    u32::try_from(count).ok()
}

/// The domain with the fewest slots, then with the fewest in its ancestors; then, where the job takes several
/// leaves, the one whose used leaves have the fewest; then the first. All holders are of one layer.
fn least_waste(rooms: &Rooms<'_, '_>, holders: &[DomainId], leaves: Option<u32>) -> DomainId {
    let problem = rooms.problem;
    let fabric = problem.fabric;
    let tied = least_wasteful(rooms, holders);
    let is_last = problem.is_scored(ScoreBefore::None) || problem.shares_nodes();
    if tied.len() == 1 || leaves.is_none() && !is_last {
        return tied[0];
    }
    // Domains whose leaves differ only in order leave equally many slots.
    let mut known: BTreeMap<Vec<(u32, u64)>, u64> = BTreeMap::new();
    let mut left = |id: DomainId| {
        let Some(count) = leaves else {
            return if problem.shares_nodes() {
                problem.slots_of_fullest(id)[problem.amount as usize]
            } else {
                0
            };
        };
        let leaves = fabric.domain(id).children().iter();
        let mut sorted: Vec<_> = leaves.map(|&leaf| (rooms.room(leaf), problem.slots(leaf))).collect();
        sorted.sort_unstable();
        *known.entry(sorted).or_insert_with(|| {
            let shares = subset(rooms, id, count).unwrap_or_default();
            shares.iter().map(|&(leaf, _)| problem.slots(leaf)).sum()
        })
    };
    let order = |id: &DomainId| {
        (left(*id), problem.score(ScoreBefore::None, *id), fabric.domain(*id).range().start, *id)
    };
    tied.iter().copied().min_by_key(order).expect("there is at least one holder")
}

/// The domains with the best score, then the fewest slots, then the fewest slots in their ancestors. All
/// holders are of one layer.
fn least_wasteful(rooms: &Rooms<'_, '_>, holders: &[DomainId]) -> Vec<DomainId> {
    let problem = rooms.problem;
    let fabric = problem.fabric;
    let mut tied = holders.to_vec();
    keep_best_scored(problem, &mut tied);
    problem.keep_fewest_slots(&mut tied);
    // A domain that covers the whole fabric is an ancestor of all, so it cannot decide.
    let highest = fabric.top().0 - u8::from(fabric.roots().len() == 1);
    for layer in (fabric.domain(holders[0]).layer().0 + 1..=highest).map(Layer) {
        if tied.len() == 1 {
            break;
        }
        // Neighbours mostly have the same parent.
        let mut known = (None, 0);
        let slots: Vec<u64> = (tied.iter())
            .map(|&id| {
                let parent = fabric.domain(id).parent();
                if parent.is_none() || parent != known.0 {
                    known = (parent, problem.slots(fabric.covering(id, layer)));
                }
                known.1
            })
            .collect();
        let least = slots.iter().copied().min();
        let mut kept = slots.iter().map(|&slots| Some(slots) == least);
        tied.retain(|_| kept.next().unwrap_or(true));
    }
    tied
}

/// Keeps the domains with the best score, where the score decides before best fit.
fn keep_best_scored(problem: &Problem<'_>, domains: &mut Vec<DomainId>) {
    for before in
        [ScoreBefore::Span, ScoreBefore::Fit].into_iter().filter(|before| problem.is_scored(*before))
    {
        keep_least(domains, |id| problem.score(before, id));
    }
}

/// Exactly `count` leaves of a domain that hold the job with the fewest slots together, the first such, and
/// the amount of each. `None` if the knapsack is too large.
fn subset(rooms: &Rooms<'_, '_>, holder: DomainId, count: u32) -> Option<Vec<(DomainId, u32)>> {
    let problem = rooms.problem;
    let children = problem.fabric.domain(holder).children();
    let leaves: Vec<(DomainId, u32)> =
        children.iter().map(|&leaf| (leaf, rooms.room(leaf))).filter(|&(_, room)| room > 0).collect();
    let kind = |&(leaf, room): &(DomainId, u32)| (room, problem.slots(leaf));
    if leaves.iter().all(|leaf| kind(leaf) == kind(&leaves[0])) {
        return Some(shared_out(problem.amount, leaves.into_iter().take(count as usize)));
    }
    let layer = problem.fabric.domain(holder).layer();
    let scale = PriceScale::of_leaves(problem, layer, problem.slots(holder))?;
    knapsack(rooms, holder, &scale, FEW)
}

/// The best leaves of a domain for the job in fabric order, and the nodes that each gives. `None` if more
/// than `most` table entries are needed.
fn knapsack(
    rooms: &Rooms<'_, '_>,
    holder: DomainId,
    scale: &PriceScale<'_>,
    most: usize,
) -> Option<Vec<(DomainId, u32)>> {
    let Problem { fabric, amount, .. } = *rooms.problem;
    let mut items = Vec::new();
    rooms.each_below(holder, Layer::LEAF, |leaf, takes| {
        items.push(KnapsackItem { pos: position(fabric.domain(leaf).range().start), takes });
    });
    let used = solve(rooms.problem, holder, amount, &items, scale, (Beside::Nothing, most)).ok()?;
    let leaves = used.into_iter().filter_map(|item| Some((fabric.leaf_of(item.pos)?, item.takes)));
    Some(shared_out(amount, leaves))
}

/// The share of each leaf in an amount: earlier leaves take as much as they can.
fn shared_out(amount: u32, leaves: impl Iterator<Item = (DomainId, u32)>) -> Vec<(DomainId, u32)> {
    let mut left = amount;
    let share = |(leaf, room): (DomainId, u32)| {
        let part = room.min(left);
        left -= part;
        (leaf, part)
    };
    leaves.map(share).collect()
}

/// The placement on the nodes of each leaf that the job may have, the first or the fullest ones.
fn placed(rooms: &Rooms<'_, '_>, (holder, shares): &HolderShares) -> Placement {
    let problem = rooms.problem;
    let mut nodes: Vec<(Pos, u32)> = Vec::with_capacity(problem.amount as usize);
    for &(leaf, amount) in shares {
        rooms.take_of(leaf, amount as usize, |pos| nodes.push((pos, 1)));
    }
    Placement::new(problem, nodes, Some(*holder), true)
}
