//! The common case without a general search: whole nodes, packed, into one leaf or into the leaves of one domain.
//!
//! Gives exactly what the dynamic program would, from counts per domain alone; where a case is not of this kind it
//! says so and leaves it to the general solver. Of several leaves the fewest that hold the job are taken, of those
//! with the fewest slots in sum, of those the first, as [`leaves`] finds them; for large jobs by a subset sum over what
//! each leaf lacks of the fullest one, which is small because one leaf less would not do.

use crate::model::fabric::{DomainId, Layer, Pos};

use super::leaves::{Packing, spread};
use super::problem::{Problem, positions};
use super::{Mode, Placement, choose};

/// What the common case comes to.
pub(super) enum Plain {
    /// It is another case.
    Other,
    /// No domain holds the job.
    Nowhere,
    /// The best placement.
    Placed(Placement),
}

/// Places a job of whole nodes if it is the common case.
pub(super) fn place(problem: &Problem<'_>) -> Plain {
    if !applies(problem) {
        return Plain::Other;
    }
    let highest = problem.within.unwrap_or(problem.fabric.top());
    for layer in (1..=highest.0).map(Layer) {
        let mut holders = Vec::new();
        for id in problem.fabric.domains_of(layer) {
            if problem.capacity(id) >= problem.amount && !problem.is_barred(id) {
                holders.push(id);
            }
        }
        if holders.is_empty() {
            continue;
        }
        if layer == Layer::LEAF {
            let leaf = least_waste(problem, holders, None);
            return Plain::Placed(placed(problem, leaf, &[(leaf, problem.amount)]));
        }
        if !are_over_leaves(problem, &holders) {
            let placement = over_domains(problem, &holders, layer == highest);
            return placement.map_or(Plain::Other, Plain::Placed);
        }
        match several_leaves(problem, holders) {
            Ok(Some(placement)) => return Plain::Placed(placement),
            Ok(None) => {}
            Err(NotPlain) => return Plain::Other,
        }
    }
    Plain::Nowhere
}

fn applies(problem: &Problem<'_>) -> bool {
    let ask = problem.ask;
    problem.nodes_are_alike()
        && ask.mode == Mode::Consolidated
        && ask.prefer_domain.is_none()
        && !ask.lowest_latency
        && !ask.score.weights.any()
        && problem.forced_domains.is_empty()
        && problem.within != Some(Layer::NODE)
        && problem.span_caps.iter().all(|&(layer, cap)| layer == Layer::LEAF && cap > 0)
}

/// The case needs the general solver.
struct NotPlain;

/// Whether there is nothing but leaves below all of the holders.
fn are_over_leaves(problem: &Problem<'_>, holders: &[DomainId]) -> bool {
    let fabric = problem.fabric;
    let children = holders.iter().flat_map(|&id| fabric.domain(id).children());
    children.into_iter().all(|&child| fabric.domain(child).layer() == Layer::LEAF)
}

/// The best placement in one of the holders, which are all of one layer and the lowest that can hold the job; None
/// where that takes the general solver.
fn over_domains(problem: &Problem<'_>, holders: &[DomainId], is_highest: bool) -> Option<Placement> {
    let fabric = problem.fabric;
    let layer = fabric.domain(*holders.first()?).layer();
    // A higher domain could touch fewer domains of a preferred layer, which comes before staying low.
    let may_rise = !is_highest && problem.ask.prefer.iter().any(|&preferred| preferred < layer);
    if may_rise || !problem.can_be_guided() {
        return None;
    }
    let packing = Packing::new(problem, layer, holders.iter().map(|&id| problem.slots(id)).max()?)?;
    let mut best: Option<(_, DomainId, Vec<(DomainId, u32)>)> = None;
    for &id in holders {
        let found = spread(problem, id, &packing)?;
        let above = (layer.0..=fabric.top().0).map(Layer);
        let waste: Vec<u64> = above.map(|layer| problem.slots(fabric.covering(id, layer))).collect();
        let order = (found.spans, waste, found.slots, fabric.domain(id).range().start);
        if best.as_ref().is_none_or(|(least, ..)| order < *least) {
            best = Some((order, id, found.shares));
        }
    }
    best.map(|(_, id, shares)| placed(problem, id, &shares))
}

/// The best placement over several leaves of one of the holders, which are all of one layer and hold leaves alone.
fn several_leaves(problem: &Problem<'_>, holders: Vec<DomainId>) -> Result<Option<Placement>, NotPlain> {
    let fabric = problem.fabric;
    let cap = problem.span_caps.first().map_or(u32::MAX, |&(_, cap)| cap);
    let mut scratch = Vec::new();
    let counted: Vec<(u32, DomainId)> = (holders.into_iter())
        .filter_map(|id| Some((fewest(problem, fabric.domain(id).children(), &mut scratch)?, id)))
        .collect();
    let Some(&(count, first)) = counted.iter().min_by_key(|(count, _)| *count) else { return Ok(None) };
    if count > cap {
        return Ok(None);
    }
    let layer = fabric.domain(first).layer();
    if problem.ask.prefer.iter().any(|&preferred| preferred < layer && preferred > Layer::NODE) {
        // A higher domain could touch fewer leaves, which comes before staying low.
        let leaves: Vec<DomainId> = fabric.domains_of(Layer::LEAF).collect();
        if fewest(problem, &leaves, &mut scratch).is_some_and(|least| least < count) {
            return Err(NotPlain);
        }
    }
    let tied: Vec<DomainId> = counted.into_iter().filter(|(c, _)| *c == count).map(|(_, id)| id).collect();
    // With caps, what a leaf takes and what it leaves are two numbers.
    let is_one = |&leaf: &DomainId| u64::from(problem.room(leaf)) == problem.slots(leaf);
    if !tied.iter().flat_map(|&id| fabric.domain(id).children()).all(is_one) {
        return Err(NotPlain);
    }
    let holder = least_waste(problem, tied, Some(count));
    let shares = subset(problem, holder, count);
    Ok(Some(placed(problem, holder, &shares)))
}

/// How few of some leaves hold the job; None where not even all do. `scratch` is reused.
fn fewest(problem: &Problem<'_>, leaves: &[DomainId], scratch: &mut Vec<u32>) -> Option<u32> {
    scratch.clear();
    scratch.extend(leaves.iter().map(|&leaf| problem.room(leaf)));
    scratch.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0_u32;
    let count = scratch.iter().position(|&room| {
        sum = sum.saturating_add(room);
        sum >= problem.amount
    })?;
    u32::try_from(count + 1).ok()
}

/// Of domains of one layer, the one with the fewest slots, then in the ancestors with the fewest; then, where the job
/// takes several leaves of it, the one whose leaves leave least; then the first.
fn least_waste(problem: &Problem<'_>, mut holders: Vec<DomainId>, leaves: Option<u32>) -> DomainId {
    let fabric = problem.fabric;
    let from = fabric.domain(holders[0]).layer();
    for layer in (from.0..=fabric.top().0).map(Layer) {
        let slots = |&id: &DomainId| problem.slots(fabric.covering(id, layer));
        let Some(least) = holders.iter().map(slots).min() else { break };
        holders.retain(|id| slots(id) == least);
        if holders.len() == 1 {
            return holders[0];
        }
    }
    let left = |id: &DomainId| {
        leaves.map_or(0, |count| {
            subset(problem, *id, count).iter().map(|&(leaf, _)| problem.slots(leaf)).sum::<u64>()
        })
    };
    let order = |id: &DomainId| (left(id), fabric.domain(*id).range().start, *id);
    holders.iter().copied().min_by_key(order).expect("there is at least one holder")
}

/// Sums of what chosen leaves lack, as bits.
type Sums = Vec<u64>;

/// Exactly `count` leaves of a domain that hold the job with the fewest slots in sum, the first such, and how much of
/// it each takes.
fn subset(problem: &Problem<'_>, holder: DomainId, count: u32) -> Vec<(DomainId, u32)> {
    let layer = problem.fabric.domain(holder).layer();
    let packing = Packing::new(problem, layer, problem.slots(holder));
    if let Some(spread) = packing.and_then(|packing| spread(problem, holder, &packing)) {
        return spread.shares;
    }
    let leaves: Vec<(DomainId, u32)> = (problem.fabric.domain(holder).children().iter())
        .map(|&leaf| (leaf, problem.room(leaf)))
        .filter(|&(_, room)| room > 0)
        .collect();
    let most = leaves.iter().map(|&(_, room)| room).max().unwrap_or(0);
    // What all chosen leaves may lack together of the fullest one.
    let slack = (count * most - problem.amount) as usize;
    let usable: Vec<(DomainId, u32, usize)> = (leaves.into_iter())
        .map(|(leaf, room)| (leaf, room, (most - room) as usize))
        .filter(|&(_, _, lacks)| lacks <= slack)
        .collect();
    let chosen = if usable.iter().all(|&(_, _, lacks)| lacks == 0) {
        usable[..count as usize].to_vec()
    } else {
        first_subset(&usable, count as usize, slack)
    };
    let mut left = problem.amount;
    let mut shares = Vec::with_capacity(chosen.len());
    for (leaf, room, _) in chosen {
        let part = room.min(left);
        left -= part;
        shares.push((leaf, part));
    }
    shares
}

/// The first `count` of the leaves that lack as much as possible, but no more than `slack`.
fn first_subset(
    leaves: &[(DomainId, u32, usize)],
    count: usize,
    slack: usize,
) -> Vec<(DomainId, u32, usize)> {
    let words = slack / 64 + 1;
    // after[i][c]: the sums that c of the leaves from i on can lack.
    let mut after: Vec<Vec<Sums>> = vec![vec![vec![0; words]; count + 1]; leaves.len() + 1];
    after[leaves.len()][0][0] = 1;
    for index in (0..leaves.len()).rev() {
        let (before, rest) = after.split_at_mut(index + 1);
        let (here, next) = (&mut before[index], &rest[0]);
        for taken in 0..=count.min(leaves.len() - index) {
            here[taken].copy_from_slice(&next[taken]);
            if taken > 0 {
                shift_into(&mut here[taken], &next[taken - 1], leaves[index].2);
            }
        }
    }
    let goal = &after[0][count];
    let best = (0..=slack).rev().find(|&sum| has(goal, sum)).expect("the fullest leaves hold the job");
    let (mut sum, mut needed) = (best, count);
    let mut chosen = Vec::with_capacity(count);
    for (index, leaf) in leaves.iter().enumerate() {
        if needed > 0 && leaf.2 <= sum && has(&after[index + 1][needed - 1], sum - leaf.2) {
            chosen.push(*leaf);
            sum -= leaf.2;
            needed -= 1;
        }
    }
    chosen
}

fn has(sums: &Sums, sum: usize) -> bool {
    sums[sum / 64] >> (sum % 64) & 1 == 1
}

/// Adds every sum of `from` plus `by`; what is beyond the width is dropped.
fn shift_into(into: &mut Sums, from: &Sums, by: usize) {
    let (words, bits) = (by / 64, by % 64);
    for index in (words..into.len()).rev() {
        let mut word = from[index - words] << bits;
        if bits > 0 && index > words {
            word |= from[index - words - 1] >> (64 - bits);
        }
        into[index] |= word;
    }
}

/// A placement on the first open nodes of each leaf.
fn placed(problem: &Problem<'_>, holder: DomainId, shares: &[(DomainId, u32)]) -> Placement {
    let open = problem.view.slots.open();
    let each = problem.per_node.unwrap_or(1);
    let mut nodes: Vec<(Pos, u32)> = Vec::with_capacity(problem.amount as usize);
    for &(leaf, amount) in shares {
        let free = positions(problem.fabric.domain(leaf).range()).filter(|pos| open.contains(pos.index()));
        nodes.extend(free.take(amount as usize).map(|pos| (pos, each)));
    }
    choose::placement(problem, nodes, Some(holder), true)
}
