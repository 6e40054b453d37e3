//! Nodes that take unequally much, or weigh unequally much, without a general search.
//!
//! Gives exactly what the dynamic programme would where everything that matters adds up over nodes; where a case is
//! not of this kind it says so and leaves it to the general solver. The lowest layer of which some domain can hold
//! the job is found by counts. One node is found by looking at what each takes; of leaves only those are looked into
//! that could do with as few nodes as the best so far; what lies in several leaves is the affair of [`walk`].

mod choice;
mod fit;
mod order;
mod stock;
mod walk;
mod weighed;

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::{Lost, Placement};
use crate::sched::place::ask::Ask;
use crate::sched::place::fronts::share;
use crate::sched::place::problem::{self, Frame, Holder, Item, Problem, rank, rank_node};

use super::choice::{NoChoice, Short};
use super::layers::best_nodes_below;
use super::standing::{order, scored};
use super::whole;
use choice::Choice;
use stock::{MANY, Nodes, Stock};
use walk::{Beside, Candidate, Scale, walk};
use weighed::best_nodes;

/// Places a job if it is one of the cases in which everything adds up.
pub(super) fn place(problem: &Problem<'_>) -> Short {
    let Some(stock) = Stock::new(problem) else { return Short::Other };
    let found = search(&stock);
    if matches!(found, Short::Placed(_)) || !stock.is_lightest_alone() {
        return found;
    }
    match stock.of_all_weights() {
        Ok(stock) => search(&stock),
        Err(NoChoice::Nowhere) => Short::Nowhere,
        Err(NoChoice::Unknown) => Short::Other,
    }
}

fn search(stock: &Stock<'_, '_>) -> Short {
    let problem = stock.problem;
    if let Some((leaf, pos)) = on_one_node(stock) {
        let share = problem.per_node.unwrap_or(problem.amount);
        return Short::Placed(Placement::new(problem, vec![(pos, share)], Some(leaf), true));
    }
    let highest = problem.within.unwrap_or(problem.fabric.top());
    for layer in (1..=highest.0).map(Layer) {
        let holders = stock.holders(layer);
        if holders.is_empty() {
            continue;
        }
        let may_be_higher = layer < highest || problem.is_scored(ScoreBefore::Span);
        if may_be_higher && problem.ask.prefer.iter().any(|&preferred| preferred < layer) {
            // A higher domain, or one of a lower score, could touch fewer domains of a preferred layer, which comes before that.
            return Short::Other;
        }
        match at_layer(stock, &holders) {
            Ok((holder, nodes)) => return Short::Placed(placed(problem, holder, &nodes)),
            Err(NoChoice::Nowhere) => {}
            Err(NoChoice::Unknown) if is_counted(stock) => {
                let holder = least_waste(stock, &holders);
                let placement = placed(problem, holder, &stock.largest_below(holder));
                return Short::Placed(Placement { exact: false, ..placement });
            }
            Err(NoChoice::Unknown) => {
                if let Some((holder, nodes)) = of_nodes_alone(stock, &holders) {
                    return Short::Placed(placed(problem, holder, &nodes));
                }
                // What is too large for a walk is for a search as well.
                problem.meter.use_up();
                return Short::Other;
            }
        }
    }
    Short::Nowhere
}

/// The best nodes of one of some domains of one layer, where so many nodes are wanted and those that are best whatever they
/// take have room for all tasks: tasks leave less to choose from and make nothing better.
fn of_nodes_alone(stock: &Stock<'_, '_>, holders: &[DomainId]) -> Option<(DomainId, Vec<Candidate>)> {
    let Beside::Nodes(nodes) = stock.beside else { return None };
    let Problem { fabric, view, within, .. } = *stock.problem;
    let ask = Ask {
        nodes: Some((nodes, nodes)),
        tasks: None,
        tasks_per_node: None,
        max_tasks_per_node: None,
        ..stock.problem.ask.clone()
    };
    // The score knows the share of slots that the job fills.
    if ask.score.weights.any() {
        return None;
    }
    let frame = Frame { within, ..Frame::default() };
    let problem = Problem::new(fabric, view, &ask, Some(nodes), frame, &stock.problem.meter)?;
    let holders: Vec<DomainId> = holders
        .iter()
        .copied()
        .filter(|&id| stock.most_on(id, nodes) >= stock.problem.amount.into())
        .collect();
    let (holder, nodes) = whole::best_of(&problem, &holders)?;
    let candidate = |pos: Pos| Candidate { pos, takes: stock.problem.most_on(pos) };
    let nodes: Vec<Candidate> = nodes.into_iter().map(candidate).collect();
    let takes: u64 = nodes.iter().map(|node| u64::from(node.takes)).sum();
    (takes >= stock.problem.amount.into()).then_some((holder, nodes))
}

/// The best nodes of one of some domains of one layer.
fn at_layer(stock: &Stock<'_, '_>, holders: &[DomainId]) -> Result<(DomainId, Vec<Candidate>), NoChoice> {
    let problem = stock.problem;
    if problem.is_scored(ScoreBefore::Span) {
        let groups = scored(problem, ScoreBefore::Span, holders);
        let mut found = groups.iter().map(|equal| among(stock, equal));
        return found.find(|found| *found != Err(NoChoice::Nowhere)).unwrap_or(Err(NoChoice::Nowhere));
    }
    among(stock, holders)
}

/// The same where no score decides before spans.
fn among(stock: &Stock<'_, '_>, holders: &[DomainId]) -> Result<(DomainId, Vec<Candidate>), NoChoice> {
    let is_leaf = stock.problem.fabric.domain(holders[0]).layer() == Layer::LEAF;
    if is_leaf && !stock.is_mixed() { in_one_leaf(stock, holders) } else { in_one_domain(stock, holders) }
}

/// Whether what a domain takes is enough to know that it can hold the job.
fn is_counted(stock: &Stock<'_, '_>) -> bool {
    stock.beside == Beside::Nothing && !stock.is_mixed()
}

/// Of domains that need the fewest members for the job, one that it leaves least of.
fn least_waste(stock: &Stock<'_, '_>, holders: &[DomainId]) -> DomainId {
    let suited = stock.with_fewest_members(holders);
    suited.into_iter().min_by(|&one, &other| stock.by_waste(one, other)).unwrap_or(holders[0])
}

/// The placement on chosen nodes.
fn placed(problem: &Problem<'_>, holder: DomainId, nodes: &[Candidate]) -> Placement {
    let chosen: Vec<_> = nodes.iter().map(|node| (node.pos, 1, node.takes)).collect();
    let free = vec![(0, u32::MAX); problem.layout.layers];
    Placement::new(problem, share(problem, holder, &chosen, &free), Some(holder), true)
}

/// The node with the fewest slots that takes the whole job, in the leaf with the fewest, and so on up. Whole nodes are
/// left to their leaves.
fn on_one_node(stock: &Stock<'_, '_>) -> Option<(DomainId, Pos)> {
    let problem = stock.problem;
    let takes_several = problem.view.slots.are_whole()
        || problem.per_node.is_some() && problem.amount > 1
        || problem.nodes.is_some_and(|nodes| nodes > 1);
    if takes_several {
        return None;
    }
    stock.smallest()
}

/// How few nodes of a leaf take the job.
#[derive(Debug, Clone, Copy)]
struct Fewest {
    nodes: u32,
    /// What the first of the largest takes, and the last.
    first: u32,
    last: u32,
    /// How much more than the job the largest take.
    slack: u32,
}

/// How few nodes of a leaf take the job; `takes` is reused.
fn fewest(stock: &Stock<'_, '_>, leaf: DomainId, takes: &mut Vec<u32>) -> Option<Fewest> {
    takes.clear();
    if let (Some(peak @ 1..=MOST_COUNTED), Beside::Nothing) = (stock.peak(), stock.beside) {
        return fewest_of_few(stock, leaf, peak);
    }
    stock.each_of(leaf, |_, node| takes.push(node));
    takes.sort_unstable_by(|a, b| b.cmp(a));
    if let Beside::Nodes(nodes) = stock.beside {
        let most: u64 = takes.iter().take(nodes as usize).map(|&takes| u64::from(takes)).sum();
        let holds = takes.len() >= nodes as usize && most >= u64::from(stock.problem.amount);
        return holds.then_some(Fewest { nodes, first: 0, last: 0, slack: 0 });
    }
    let mut left = stock.problem.amount;
    let first = takes.first().copied()?;
    for (&takes, nodes) in takes.iter().zip(1..) {
        if takes >= left {
            return Some(Fewest { nodes, first, last: takes, slack: takes - left });
        }
        left -= takes;
    }
    None
}

/// The most that nodes take where those that take as much are counted.
const MOST_COUNTED: u32 = 63;

/// How few nodes of a leaf take the job where none takes more than `peak`.
fn fewest_of_few(stock: &Stock<'_, '_>, leaf: DomainId, peak: u32) -> Option<Fewest> {
    let mut counts = [0_u32; MOST_COUNTED as usize + 1];
    stock.each_of(leaf, |_, takes| counts[takes as usize] += 1);
    let (mut left, mut nodes, mut first) = (stock.problem.amount, 0, 0);
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

/// Whether a leaf could be as good as the best so far, which takes the fewest nodes that `least` says; `order` is that
/// of what it leaves.
///
/// No m nodes take more than m times any number and what each node of the leaf takes beyond that number.
fn may_do_with(stock: &Stock<'_, '_>, leaf: DomainId, least: &Fewest, order: Ordering) -> bool {
    if matches!(stock.beside, Beside::Nodes(_)) {
        return order.is_le();
    }
    let nodes = if order.is_gt() { least.nodes.saturating_sub(1) } else { least.nodes };
    if stock.peak().is_some_and(|peak| u64::from(nodes) * u64::from(peak) < stock.problem.amount.into()) {
        return false;
    }
    let most = |number: u32| u64::from(nodes) * u64::from(number) + stock.beyond(leaf, number);
    [least.last, least.first].into_iter().all(|number| most(number) >= u64::from(stock.problem.amount))
}

/// The best nodes of one of some leaves.
fn in_one_leaf(stock: &Stock<'_, '_>, leaves: &[DomainId]) -> Result<(DomainId, Vec<Candidate>), NoChoice> {
    let mut best: Option<(Fewest, Vec<DomainId>)> = None;
    let mut takes = Vec::new();
    for &leaf in leaves {
        let mut order = Ordering::Less;
        if let Some((least, tied)) = &best {
            order = stock.by_waste(leaf, tied[0]);
            if !may_do_with(stock, leaf, least, order) {
                continue;
            }
        }
        let Some(found) = fewest(stock, leaf, &mut takes) else { continue };
        if let Some((least, _)) = &best {
            order = found.nodes.cmp(&least.nodes).then(order);
        }
        match (order, &mut best) {
            (Ordering::Equal, Some((_, tied))) => tied.push(leaf),
            (Ordering::Less, _) => best = Some((found, vec![leaf])),
            _ => {}
        }
    }
    let (least, tied) = best.ok_or(NoChoice::Nowhere)?;
    let mut winner: Option<((u64, i64), DomainId, Vec<Candidate>)> = None;
    for leaf in tied {
        let nodes = match best_of(stock, leaf, least) {
            Err(NoChoice::Unknown) if is_counted(stock) => {
                layer_by_layer(stock, leaf, None)?.ok_or(NoChoice::Nowhere)
            }
            found => found,
        }?;
        let own = (stock.slots_of(&nodes), stock.problem.score(ScoreBefore::None, leaf));
        if winner.as_ref().is_none_or(|(best, _, _)| own < *best) {
            winner = Some((own, leaf, nodes));
        }
    }
    winner.map(|(_, leaf, nodes)| (leaf, nodes)).ok_or(NoChoice::Nowhere)
}

/// The best nodes of one leaf.
fn best_of(stock: &Stock<'_, '_>, leaf: DomainId, least: Fewest) -> Result<Vec<Candidate>, NoChoice> {
    let problem = stock.problem;
    let scale = Scale::new(problem, Layer::LEAF, problem.slots(leaf), stock.beside, false);
    let scale = scale.ok_or(NoChoice::Unknown)?;
    if problem.view.slots.nodes_of(leaf) as usize <= MANY || matches!(stock.beside, Beside::Nodes(_)) {
        let nodes = stock.trimmed(leaf);
        return walk(problem, leaf, problem.amount, &nodes, &scale, stock.beside);
    }
    let (mut used, open) = settle(stock, stock.nodes_of(leaf), least);
    let settled = used.iter().map(|node| node.takes).sum();
    if let Some(left) = problem.amount.checked_sub(settled).filter(|left| *left > 0) {
        used.extend(walk(problem, leaf, left, &open, &scale, stock.beside)?);
    }
    used.sort_unstable_by_key(|node| node.pos);
    Ok(used)
}

/// The nodes of a leaf that every best choice uses, and those that some may: the latter in fabric order.
///
/// The largest nodes hold the job with some slack. A choice of as many nodes that takes others instead has to make do
/// with that slack: each node larger than the last of the largest that is left out, and each smaller one that is used,
/// costs the difference. Of nodes that take the same, those with the fewest slots come first.
fn settle(
    stock: &Stock<'_, '_>,
    mut nodes: Vec<Candidate>,
    least: Fewest,
) -> (Vec<Candidate>, Vec<Candidate>) {
    let problem = stock.problem;
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

/// The best nodes of one of some domains of one layer.
fn in_one_domain(
    stock: &Stock<'_, '_>,
    holders: &[DomainId],
) -> Result<(DomainId, Vec<Candidate>), NoChoice> {
    let mut best: Option<Choice> = None;
    for (id, members) in stock.in_order(holders) {
        if best.as_ref().is_some_and(|best| stock.is_behind(id, members, best.holder(), &best.nodes)) {
            continue;
        }
        let found = match best_below(stock, id) {
            Err(NoChoice::Unknown) if is_counted(stock) => layer_by_layer(stock, id, best.as_ref()),
            found => found.map(Some),
        };
        let nodes = match found {
            Ok(Some(nodes)) => nodes,
            Ok(None) | Err(NoChoice::Nowhere) => continue,
            Err(NoChoice::Unknown) => return Err(NoChoice::Unknown),
        };
        let choice = Choice::new(stock.problem, id, nodes);
        if best.as_ref().is_none_or(|best| choice.is_better(stock, best)) {
            best = Some(choice);
        }
    }
    best.map(|best| (best.holder(), best.nodes)).ok_or(NoChoice::Nowhere)
}

/// The best nodes of one domain.
fn best_below(stock: &Stock<'_, '_>, id: DomainId) -> Result<Vec<Candidate>, NoChoice> {
    let problem = stock.problem;
    if let Some(counts) = stock.counts().filter(|_| stock.is_mixed()) {
        return best_nodes(stock, id, &counts);
    }
    match stock.nodes_below(id) {
        Nodes::Best(nodes) => Ok(nodes),
        Nodes::Open(nodes) => {
            let layer = problem.fabric.domain(id).layer();
            let scale = Scale::new(problem, layer, problem.slots(id), stock.beside, stock.is_mixed());
            let scale = scale.ok_or(NoChoice::Unknown)?;
            match walk(problem, id, problem.amount, &nodes, &scale, stock.beside) {
                Err(NoChoice::Unknown) if stock.is_lightest_alone() => {
                    let counts = stock.counts().ok_or(NoChoice::Unknown)?;
                    best_nodes(stock, id, &counts)
                }
                found => found,
            }
        }
    }
}

/// The same where a walk over the nodes is too long; None where the best choice in another domain is better.
fn layer_by_layer(
    stock: &Stock<'_, '_>,
    id: DomainId,
    best: Option<&Choice>,
) -> Result<Option<Vec<Candidate>>, NoChoice> {
    let problem = stock.problem;
    let mut order = order(problem, problem.fabric.domain(id).layer());
    order.push(Layer::NODE);
    let is_worse = |counts: &[u32]| {
        let known = |layer| order.iter().zip(counts).find(|(known, _)| **known == layer);
        let counts = |layer| known(layer).map_or(0, |(_, count)| *count);
        best.is_some_and(|best| best.is_before(stock, id, counts))
    };
    let nodes = best_nodes_below(problem, id, &order, stock, is_worse)?;
    Ok(nodes.map(|nodes| nodes.into_iter().map(|pos| stock.candidate(pos)).collect()))
}

/// The best few of the domains that could have held a job that was placed, and at which step each lost; None where not
/// everything adds up, or where a higher layer may come first.
pub(crate) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    let applies =
        problem.ask.prefer.is_empty() && !problem.ask.score.weights.any() && !problem.nodes_are_alike();
    let stock = Stock::new(problem).filter(|_| applies)?;
    if stock.is_lightest_alone() && matches!(stock.beside, Beside::Nodes(2..)) {
        return losers_by_weight(&stock.of_all_weights().ok()?, most);
    }
    losers_of(&stock, most).or_else(|| losers_of(&stock.of_all_weights().ok()?, most))
}

/// The same of several nodes of several weights, where the fewest of the heaviest come before everything else.
fn losers_by_weight(stock: &Stock<'_, '_>, most: usize) -> Option<Vec<Lost>> {
    let problem = stock.problem;
    let fabric = problem.fabric;
    let highest = problem.within.unwrap_or(fabric.top());
    let mut holders: Vec<(Vec<u32>, Layer, DomainId)> = Vec::new();
    for layer in (1..=highest.0).map(Layer) {
        let here = stock.large_enough(layer).into_iter();
        holders.extend(here.filter_map(|id| Some((stock.heavier(id)?, layer, id))));
    }
    let order = |one: &(Vec<u32>, Layer, DomainId), other: &(Vec<u32>, Layer, DomainId)| {
        let by_waste = || if one.1 == Layer::LEAF { stock.by_waste(one.2, other.2) } else { Ordering::Equal };
        one.0.cmp(&other.0).then(one.1.cmp(&other.1)).then_with(by_waste)
    };
    // One of them is the winner, and those above it are no rivals.
    let few = most + usize::from(highest.0);
    if few < holders.len() {
        let last = holders.select_nth_unstable_by(few, order).1.clone();
        holders.retain(|other| order(other, &last).is_le());
    }
    let of_layer = |layer: Layer, _, _: &dyn Fn(DomainId) -> bool| {
        let here = holders.iter().filter(|(_, own, _)| *own == layer);
        let ranked = here.filter_map(|(heavier, _, id)| {
            let best = best_in(&stock.with_heavier(heavier.clone()), *id)?;
            Some((rank(problem, *id, &best), Holder::Domain(*id)))
        });
        Some(ranked.collect())
    };
    problem::losers(problem, false, most, of_layer)
}

fn losers_of(stock: &Stock<'_, '_>, most: usize) -> Option<Vec<Lost>> {
    let problem = stock.problem;
    let of_layer = |layer: Layer, few: usize, may_lose: &dyn Fn(DomainId) -> bool| {
        if layer == Layer::NODE {
            let on_node = on_one_node(stock).and_then(|(_, pos)| {
                let item = problem.node::<Vec<i64>>(pos, (0, u32::MAX))?;
                Some((rank_node(problem, pos, &item), Holder::Node(pos)))
            });
            return Some(on_node.into_iter().collect());
        }
        let holders = shortlist(stock, layer, few).into_iter().filter(|id| may_lose(*id));
        let ranked =
            holders.filter_map(|id| Some((rank(problem, id, &best_in(stock, id)?), Holder::Domain(id))));
        Some(ranked.collect())
    };
    problem::losers(problem, true, most, of_layer)
}

/// The domains of a layer that can be among its best few.
fn shortlist(stock: &Stock<'_, '_>, layer: Layer, few: usize) -> Vec<DomainId> {
    let mut holders = stock.holders(layer);
    if layer > Layer::LEAF || holders.len() <= few || stock.is_mixed() {
        return holders;
    }
    let mut takes = Vec::new();
    let mut counted: Vec<(u32, DomainId)> =
        (holders.drain(..)).filter_map(|leaf| Some((fewest(stock, leaf, &mut takes)?.nodes, leaf))).collect();
    let order = |one: &(u32, DomainId), other: &(u32, DomainId)| {
        one.0.cmp(&other.0).then_with(|| stock.by_waste(one.1, other.1))
    };
    // Those that are equal to the last of the few may turn out to be better.
    if counted.len() > few {
        let last = *counted.select_nth_unstable_by(few - 1, order).1;
        counted.retain(|other| order(other, &last).is_le());
    }
    counted.into_iter().map(|(_, leaf)| leaf).collect()
}

/// What the best placement in a domain costs.
fn best_in(stock: &Stock<'_, '_>, id: DomainId) -> Option<Item<Vec<i64>>> {
    let problem = stock.problem;
    let fabric = problem.fabric;
    let nodes = best_below(stock, id).ok()?;
    let mut sum = Item::<Vec<i64>>::nothing(problem.layout.width());
    let mut known: Vec<DomainId> = Vec::new();
    for node in nodes {
        sum = sum.plus(&problem.node::<Vec<i64>>(node.pos, (0, u32::MAX))?, &problem.needs);
        for domain in fabric.path_up(node.pos).take_while(|&domain| domain != id) {
            if !known.contains(&domain) {
                let (from, to) = (fabric.domain(domain).layer(), fabric.domain(domain).cover());
                problem.charge(&mut sum.cost, from, to, problem.slots(domain));
                known.push(domain);
            }
        }
    }
    Some(sum)
}
