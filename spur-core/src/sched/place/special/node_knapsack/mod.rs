//! Nodes with unequal slots or weights, solved without the general search.
//!
//! Returns exactly what the dynamic programme would where everything that matters adds up over nodes, and
//! [`Missed::UNKNOWN`] elsewhere. Counts find the lowest layer at which some domain can hold the job. A
//! single node is found by its slots. Of leaves, only those are solved that may need as few nodes as the best
//! so far. Domains of several leaves are solved by [`tree_knapsack`](super::tree_knapsack).

mod holder_order;
mod items;

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::{Lost, Missed, Placement};
use crate::sched::place::pareto::share;
use crate::sched::place::problem::{self, Holder, Item, Problem, Rank, rank, rank_node};

use super::comparison::{Found, best_of, by_score, charge, order};
use super::if_any;
use super::reduced_costs::best_nodes_below;
use super::tree_knapsack::{Beside, KnapsackItem, PriceScale, solve};
use items::{Items, MANY};

/// The largest number of table entries of one knapsack; larger ones are not tried.
const MOST: usize = 1 << 25;

/// Places a job if everything that matters adds up over nodes; [`Missed::UNKNOWN`] otherwise.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    let items = Items::new(problem).ok_or(Missed::UNKNOWN)?;
    let found = search(&items);
    if found.is_ok() || !items.is_lightest_alone() {
        return found;
    }
    search(&items.of_all_weights()?)
}

fn search(items: &Items<'_, '_>) -> Result<Placement, Missed> {
    let problem = items.problem;
    if let Some((leaf, pos)) = on_one_node(items) {
        return Ok(Placement::new(problem, vec![(pos, problem.amount)], Some(leaf), true));
    }
    for layer in problem.layers() {
        let holders = items.holders(layer);
        if holders.is_empty() {
            continue;
        }
        let may_be_higher = layer < problem.highest() || problem.is_scored(ScoreBefore::Span);
        if may_be_higher && problem.ask.prefer.iter().any(|&preferred| preferred < layer) {
            // A domain of a higher layer or a lower score could use fewer domains of a preferred layer, which
            // ranks first.
            return Err(Missed::UNKNOWN);
        }
        match if_any(at_layer(items, &holders)) {
            Ok(Some((holder, nodes))) => return Ok(placed(problem, holder, &nodes)),
            Ok(None) => {}
            Err(_) if items.is_counted() => {
                let holder = least_waste(items, &holders);
                let placement = placed(problem, holder, &items.largest_below(holder));
                return Ok(Placement { exact: false, ..placement });
            }
            Err(missed) => {
                // A knapsack that is too large is too large for the general search, too.
                problem.meter.use_up();
                return Err(missed);
            }
        }
    }
    Err(Missed::NONE)
}

/// The best nodes in one of several domains of one layer.
fn at_layer(items: &Items<'_, '_>, holders: &[DomainId]) -> Result<(DomainId, Vec<KnapsackItem>), Missed> {
    let problem = items.problem;
    if problem.is_scored(ScoreBefore::Span) {
        return by_score(problem, holders, |equal| among(items, equal));
    }
    among(items, holders)
}

/// The best nodes in one of several domains of one layer, where no score decides before spans.
fn among(items: &Items<'_, '_>, holders: &[DomainId]) -> Result<(DomainId, Vec<KnapsackItem>), Missed> {
    let is_leaf = items.problem.fabric.domain(holders[0]).layer() == Layer::LEAF;
    if is_leaf && !items.is_mixed() { in_one_leaf(items, holders) } else { in_one_domain(items, holders) }
}

/// The domain with the least waste among those that need the fewest members.
fn least_waste(items: &Items<'_, '_>, holders: &[DomainId]) -> DomainId {
    let suited = items.with_fewest_members(holders);
    suited.into_iter().min_by(|&one, &other| items.by_waste(one, other)).unwrap_or(holders[0])
}

/// The placement on the chosen nodes.
fn placed(problem: &Problem<'_>, holder: DomainId, nodes: &[KnapsackItem]) -> Placement {
    let chosen: Vec<_> = nodes.iter().map(|node| (node.pos, 1, node.takes)).collect();
    Placement::new(problem, share(problem, holder, &chosen, &[]), Some(holder), true)
}

/// The node with the fewest slots that takes the whole job, in the leaf with the fewest, and so on up. `None`
/// if no node takes it, if the job needs several nodes, or if slots are whole nodes, because leaves stand for
/// their nodes.
fn on_one_node(items: &Items<'_, '_>) -> Option<(DomainId, Pos)> {
    let problem = items.problem;
    let takes_several = problem.view.slots.are_whole()
        || problem.by_nodes && problem.amount > 1
        || problem.nodes.is_some_and(|nodes| nodes > 1);
    if takes_several {
        return None;
    }
    items.smallest()
}

/// The fewest nodes of a leaf that take the job.
#[derive(Debug, Clone, Copy)]
struct Fewest {
    nodes: u32,
    /// The amount that the largest of these nodes takes, and the amount of the smallest.
    first: u32,
    last: u32,
    /// The amount by which these nodes exceed the job.
    slack: u32,
}

/// Computes the fewest nodes of a leaf that take the job; `None` if none do. `takes` is a reusable buffer.
fn fewest(items: &Items<'_, '_>, leaf: DomainId, takes: &mut Vec<u32>) -> Option<Fewest> {
    takes.clear();
    if let (Some(peak @ 1..=MOST_COUNTED), Beside::Nothing) = (items.peak(), items.beside) {
        return fewest_of_few(items, leaf, peak);
    }
    items.each_of(leaf, |_, node| takes.push(node));
    takes.sort_unstable_by(|a, b| b.cmp(a));
    if let Beside::Nodes(nodes) = items.beside {
        let most: u64 = takes.iter().take(nodes as usize).map(|&takes| u64::from(takes)).sum();
        let holds = takes.len() >= nodes as usize && most >= u64::from(items.problem.amount);
        return holds.then_some(Fewest { nodes, first: 0, last: 0, slack: 0 });
    }
    let mut left = items.problem.amount;
    let first = takes.first().copied()?;
    for (&takes, nodes) in takes.iter().zip(1..) {
        if takes >= left {
            return Some(Fewest { nodes, first, last: takes, slack: takes - left });
        }
        left -= takes;
    }
    None
}

/// The largest amount per node up to which nodes are counted by amount instead of sorted.
const MOST_COUNTED: u32 = 63;

/// Computes the fewest nodes of a leaf that take the job, where none takes more than `peak`.
fn fewest_of_few(items: &Items<'_, '_>, leaf: DomainId, peak: u32) -> Option<Fewest> {
    let mut counts = [0_u32; MOST_COUNTED as usize + 1];
    items.each_of(leaf, |_, takes| counts[takes as usize] += 1);
    let (mut left, mut nodes, mut first) = (items.problem.amount, 0, 0);
    for takes in (1..=peak).rev() {
        let count = counts[takes as usize];
        let needed = left.div_ceil(takes);
        if count > 0 && first == 0 {
            first = takes;
        }
        if count >= needed {
            return Some(Fewest { nodes: nodes + needed, first, last: takes, slack: needed * takes - left });
        }
        nodes += count;
        left -= count * takes;
    }
    None
}

/// True if a leaf could be as good as the best so far, which takes `least`; `order` compares the leaf's waste
/// with the best's.
///
/// For any number, m nodes take at most m times the number plus what each node of the leaf takes beyond it.
fn may_do_with(items: &Items<'_, '_>, leaf: DomainId, least: &Fewest, order: Ordering) -> bool {
    if matches!(items.beside, Beside::Nodes(_)) {
        return order.is_le();
    }
    let nodes = if order.is_gt() { least.nodes.saturating_sub(1) } else { least.nodes };
    if items.peak().is_some_and(|peak| u64::from(nodes) * u64::from(peak) < items.problem.amount.into()) {
        return false;
    }
    let most = |number: u32| u64::from(nodes) * u64::from(number) + items.beyond(leaf, number);
    [least.last, least.first].into_iter().all(|number| most(number) >= u64::from(items.problem.amount))
}

/// The best nodes in one of several leaves.
fn in_one_leaf(items: &Items<'_, '_>, leaves: &[DomainId]) -> Result<(DomainId, Vec<KnapsackItem>), Missed> {
    let mut best: Option<(Fewest, Vec<DomainId>)> = None;
    let mut takes = Vec::new();
    for &leaf in leaves {
        let mut order = Ordering::Less;
        if let Some((least, tied)) = &best {
            order = items.by_waste(leaf, tied[0]);
            if !may_do_with(items, leaf, least, order) {
                continue;
            }
        }
        let Some(found) = fewest(items, leaf, &mut takes) else { continue };
        if let Some((least, _)) = &best {
            order = found.nodes.cmp(&least.nodes).then(order);
        }
        match (order, &mut best) {
            (Ordering::Equal, Some((_, tied))) => tied.push(leaf),
            (Ordering::Less, _) => best = Some((found, vec![leaf])),
            _ => {}
        }
    }
    let (least, tied) = best.ok_or(Missed::NONE)?;
    let mut winner: Option<((u64, i64), DomainId, Vec<KnapsackItem>)> = None;
    for leaf in tied {
        let nodes = match best_in_leaf(items, leaf, least) {
            Err(Missed::UNKNOWN) if items.is_counted() => layer_by_layer(items, leaf, None),
            found => found,
        }?;
        let own = (items.slots_of(&nodes), items.problem.score(ScoreBefore::None, leaf));
        if winner.as_ref().is_none_or(|(best, _, _)| own < *best) {
            winner = Some((own, leaf, nodes));
        }
    }
    winner.map(|(_, leaf, nodes)| (leaf, nodes)).ok_or(Missed::NONE)
}

/// The best nodes of one leaf.
fn best_in_leaf(items: &Items<'_, '_>, leaf: DomainId, least: Fewest) -> Result<Vec<KnapsackItem>, Missed> {
    let problem = items.problem;
    if problem.view.slots.nodes_of(leaf) as usize <= MANY || matches!(items.beside, Beside::Nodes(_)) {
        return best_below(items, leaf);
    }
    let scale = scale(items, leaf)?;
    let (mut used, open) = settle(items, items.nodes_of(leaf), least);
    let settled = used.iter().map(|node| node.takes).sum();
    if let Some(left) = problem.amount.checked_sub(settled).filter(|left| *left > 0) {
        used.extend(solve(problem, leaf, left, &open, &scale, (items.beside, MOST))?);
    }
    used.sort_unstable_by_key(|node| node.pos);
    Ok(used)
}

/// Splits the nodes of a leaf: those that every best choice uses, and those that some best choice may use, in
/// fabric order.
///
/// The largest nodes hold the job with some slack. A choice of equally many other nodes has to spend that
/// slack: every omitted node that is larger than the smallest of the largest, and every smaller node used,
/// costs the difference. Among nodes with equal amounts, those with the fewest slots come first.
fn settle(
    items: &Items<'_, '_>,
    mut nodes: Vec<KnapsackItem>,
    least: Fewest,
) -> (Vec<KnapsackItem>, Vec<KnapsackItem>) {
    let problem = items.problem;
    nodes.sort_by_cached_key(|node| (node.takes, problem.slots_of_node(node.pos), node.pos));
    let larger = nodes.len() - nodes.partition_point(|node| node.takes <= least.last);
    let slack = least.slack as usize;
    let (mut used, mut open) = (Vec::new(), Vec::new());
    for alike in nodes.chunk_by(|one, other| one.takes == other.takes) {
        let takes = alike[0].takes;
        let changes = |by: u32| (least.slack / by) as usize;
        let (sure, most) = match takes.cmp(&least.last) {
            Ordering::Greater => (alike.len().saturating_sub(changes(takes - least.last)), alike.len()),
            Ordering::Less => (0, changes(least.last - takes)),
            Ordering::Equal => {
                let own = least.nodes as usize - larger;
                (own.saturating_sub(slack), own + slack)
            }
        };
        let (sure, most) = (sure.min(alike.len()), most.min(alike.len()));
        used.extend_from_slice(&alike[..sure]);
        open.extend_from_slice(&alike[sure..most]);
    }
    open.sort_unstable_by_key(|node| node.pos);
    (used, open)
}

/// The best nodes in one of several domains of one layer.
fn in_one_domain(
    items: &Items<'_, '_>,
    holders: &[DomainId],
) -> Result<(DomainId, Vec<KnapsackItem>), Missed> {
    best_of(
        items.problem,
        items.in_order(holders).into_iter(),
        |id, members, best: Option<&Found<Vec<KnapsackItem>>>| {
            if best.is_some_and(|(_, than, nodes)| items.is_behind(id, members, *than, nodes)) {
                return Err(Missed::NONE);
            }
            let nodes = match best_below(items, id) {
                Err(Missed::UNKNOWN) if items.is_counted() => {
                    layer_by_layer(items, id, best.map(|(rank, ..)| rank))
                }
                found => found,
            }?;
            Ok((ranked(items.problem, id, &nodes), nodes))
        },
    )
}

/// The best nodes of one domain.
fn best_below(items: &Items<'_, '_>, id: DomainId) -> Result<Vec<KnapsackItem>, Missed> {
    // Nodes that can never be used are left out.
    let nodes: Vec<_> = items.leaves_below(id).into_iter().flat_map(|leaf| items.trimmed(leaf)).collect();
    solve(items.problem, id, items.problem.amount, &nodes, &scale(items, id)?, (items.beside, MOST))
}

/// The prices of the nodes of one domain.
fn scale<'a>(items: &'a Items<'_, '_>, id: DomainId) -> Result<PriceScale<'a>, Missed> {
    let (layer, slots) = (items.problem.fabric.domain(id).layer(), items.problem.slots(id));
    let scale = PriceScale::of_nodes(items.problem, layer, slots, items.is_number_given(), items.is_mixed());
    scale.ok_or(Missed::UNKNOWN)
}

/// The best nodes of one domain where a knapsack of them is too large. [`Missed::NONE`] if no nodes hold the
/// job, or if bounds prove every choice worse than `than`; [`Missed::UNKNOWN`] if the problem is too large.
fn layer_by_layer(
    items: &Items<'_, '_>,
    id: DomainId,
    than: Option<&Rank>,
) -> Result<Vec<KnapsackItem>, Missed> {
    let problem = items.problem;
    // The layers below the holder in the order in which their spans count, then nodes.
    let mut order = order(problem, problem.fabric.domain(id).layer());
    order.push(Layer::NODE);
    let nodes = best_nodes_below(problem, id, &order, items, than)?;
    Ok(nodes.into_iter().map(|pos| KnapsackItem { pos, takes: items.takes(pos) }).collect())
}

/// The best `most` domains that could have held a placed job, each with the step at which it lost. `None` if
/// not everything adds up, or if a higher layer may rank first.
pub(crate) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    let applies = problem.ask.prefer.is_empty() && !problem.ask.score.any() && !problem.nodes_are_alike();
    let items = Items::new(problem).filter(|_| applies)?;
    if items.is_lightest_alone() && matches!(items.beside, Beside::Nodes(2..)) {
        return losers_by_weight(&items.of_all_weights().ok()?, most);
    }
    losers_of(&items, most).or_else(|| losers_of(&items.of_all_weights().ok()?, most))
}

/// The domains that lost where weights differ, so that the fewest of the heaviest nodes decide first.
fn losers_by_weight(items: &Items<'_, '_>, most: usize) -> Option<Vec<Lost>> {
    let problem = items.problem;
    let mut holders: Vec<(Vec<u32>, Layer, DomainId)> = Vec::new();
    for layer in problem.layers() {
        let here = items.large_enough(layer).into_iter();
        holders.extend(here.filter_map(|id| Some((items.heavier(id)?, layer, id))));
    }
    let order = |one: &(Vec<u32>, Layer, DomainId), other: &(Vec<u32>, Layer, DomainId)| {
        let by_waste = || if one.1 == Layer::LEAF { items.by_waste(one.2, other.2) } else { Ordering::Equal };
        one.0.cmp(&other.0).then(one.1.cmp(&other.1)).then_with(by_waste)
    };
    // One of the holders is the winner, and those above it are no rivals.
    let few = most + problem.highest().index();
    if few < holders.len() {
        let last = holders.select_nth_unstable_by(few, order).1.clone();
        holders.retain(|other| order(other, &last).is_le());
    }
    let of_layer = |layer: Layer, _, _: &dyn Fn(DomainId) -> bool| {
        let here = holders.iter().filter(|(_, own, _)| *own == layer);
        let ranked = here.filter_map(|(heavier, _, id)| {
            Some((best_in(&items.with_heavier(heavier.clone()), *id)?, Holder::Domain(*id)))
        });
        Some(ranked.collect())
    };
    problem::losers(problem, false, most, of_layer)
}

fn losers_of(items: &Items<'_, '_>, most: usize) -> Option<Vec<Lost>> {
    let problem = items.problem;
    let of_layer = |layer: Layer, few: usize, may_lose: &dyn Fn(DomainId) -> bool| {
        if layer == Layer::NODE {
            let on_node = on_one_node(items).and_then(|(_, pos)| {
                let item = problem.node::<Vec<i64>>(pos, (0, u32::MAX))?;
                Some((rank_node(problem, pos, &item), Holder::Node(pos)))
            });
            return Some(on_node.into_iter().collect());
        }
        let holders = shortlist(items, layer, few).into_iter().filter(|id| may_lose(*id));
        let ranked = holders.filter_map(|id| Some((best_in(items, id)?, Holder::Domain(id))));
        Some(ranked.collect())
    };
    problem::losers(problem, true, most, of_layer)
}

/// The domains of a layer that can be among its best few.
fn shortlist(items: &Items<'_, '_>, layer: Layer, few: usize) -> Vec<DomainId> {
    let mut holders = items.holders(layer);
    if layer > Layer::LEAF || holders.len() <= few || items.is_mixed() {
        return holders;
    }
    let mut takes = Vec::new();
    let mut counted: Vec<(u32, DomainId)> =
        (holders.drain(..)).filter_map(|leaf| Some((fewest(items, leaf, &mut takes)?.nodes, leaf))).collect();
    let order = |one: &(u32, DomainId), other: &(u32, DomainId)| {
        one.0.cmp(&other.0).then_with(|| items.by_waste(one.1, other.1))
    };
    // Domains equal to the last of the few may turn out to be better.
    if counted.len() > few {
        let last = *counted.select_nth_unstable_by(few - 1, order).1;
        counted.retain(|other| order(other, &last).is_le());
    }
    counted.into_iter().map(|(_, leaf)| leaf).collect()
}

/// The rank of the best placement in a domain; `None` if it is unknown.
fn best_in(items: &Items<'_, '_>, id: DomainId) -> Option<Rank> {
    Some(ranked(items.problem, id, &best_below(items, id).ok()?))
}

/// The rank of using these nodes of a domain.
fn ranked(problem: &Problem<'_>, holder: DomainId, nodes: &[KnapsackItem]) -> Rank {
    let mut item = Item::<Vec<i64>>::nothing(problem.layout.width());
    nodes.iter().for_each(|node| problem.charge_node(&mut item.cost, node.pos));
    let leaves = nodes.iter().filter_map(|node| problem.fabric.leaf_of(node.pos));
    charge(problem, holder, leaves, &mut item.cost);
    rank(problem, holder, &item)
}
