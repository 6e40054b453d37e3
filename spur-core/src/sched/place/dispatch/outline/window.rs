//! Placements with an outline: consecutive positions, or adjacent leaves. Every outline is a problem of its
//! own, and the order among outlines is the order among placements.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::model::topology::Plugin;
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::pareto::{choose, realise};
use crate::sched::place::problem::{Cost, Problem, Rank, Ranked, added_up, position, positions};

use super::bounds::Bounds;

/// The best placement on consecutive positions.
pub(crate) fn contiguous<C: Cost>(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    let (mut windows, are_all) = windows(problem);
    windows.retain(|window| problem.required.iter().all(|pos| window.contains(&pos.index())));
    let best = Best::new(are_all);
    let Some(bounds) = Bounds::of(problem) else { return best_promising::<C>(problem, windows, best) };
    let slots_of = |pos: Pos| if problem.view.slots.are_whole() { 0 } else { problem.slots_of_node(pos) };
    let before = added_up(positions(0..problem.fabric.wired()).map(slots_of));
    // Windows on the same leaves have the same lower bound.
    let leaves = |window: &Range<usize>| {
        [window.start, window.end - 1].map(|index| problem.fabric.leaf_of(position(index)))
    };
    let ranked = windows.chunk_by(|one, next| bounds.are_of_leaves() && leaves(one) == leaves(next));
    let ranked = ranked.filter_map(|alike| {
        let window = &alike[0];
        Some((bounds.rank::<C>(window, before[window.end] - before[window.start])?, alike))
    });
    let offer = |best: &mut Best, problem: &Problem<'_>, window: &Range<usize>| {
        best.offer_window::<C>(problem, window)
    };
    best_bounded(problem, ranked, |window| window.start, best, offer)
}

/// The best of several outlines by branch and bound. `ranked` groups outlines with equal lower bounds, in
/// order; `start` is the first position of an outline.
fn best_bounded<'w, O: 'w>(
    problem: &Problem<'_>,
    ranked: impl Iterator<Item = (Rank, &'w [O])>,
    start: impl Fn(&O) -> usize,
    mut best: Best,
    offer: impl Fn(&mut Best, &Problem<'_>, &O),
) -> Result<Ranked, Missed> {
    let (ranks, mut groups): (Vec<Rank>, Vec<&[O]>) = ranked.unzip();
    let starts = groups.iter().map(|alike| start(&alike[0]));
    // Open groups by lower bound, then by the start of their first outline.
    let mut open: BinaryHeap<Reverse<(Rank, usize, usize)>> = ranks
        .into_iter()
        .zip(starts)
        .zip(0..)
        .map(|((rank, start), group)| Reverse((rank, start, group)))
        .collect();
    while let Some(Reverse((rank, first, group))) = open.pop() {
        if best.winner.as_ref().is_some_and(|(winner, start, _)| (winner, *start) <= (&rank, first)) {
            break;
        }
        if problem.meter.is_spent() {
            best.exact = false;
            break;
        }
        let Some((outline, alike)) = groups[group].split_first() else { continue };
        offer(&mut best, problem, outline);
        groups[group] = alike;
        open.extend(alike.first().map(|next| Reverse((rank, start(next), group))));
    }
    best.ranked()
}

/// The best window where not every node of a window has to be used.
fn best_promising<C: Cost>(
    problem: &Problem<'_>,
    windows: Vec<Range<usize>>,
    mut best: Best,
) -> Result<Ranked, Missed> {
    // The most promising windows come first, because the budget may not allow all.
    let mut windows: Vec<_> = windows.into_iter().map(|window| (looks(problem, &window), window)).collect();
    windows.sort_by_key(|(looks, window)| (*looks, window.start, window.end));
    for (index, ((promise, ..), window)) in windows.iter().enumerate() {
        if problem.meter.is_spent() {
            best.exact = false;
            break;
        }
        // Windows of equal promise are compared; one of a worse promise cannot win.
        if best.winner.is_some() && index > 0 && *promise != windows[index - 1].0.0 {
            break;
        }
        best.offer_window::<C>(problem, window);
    }
    best.ranked()
}

/// The best placement that uses exactly `leaves` adjacent leaves.
pub(crate) fn adjacent<C: Cost>(problem: &Problem<'_>, leaves: u32) -> Result<Ranked, Missed> {
    let runs = runs(problem.fabric);
    // Prefix sums over the leaves, which are the first domains: their capacity, and the number of full ones.
    let rooms = || problem.fabric.domains_of(Layer::LEAF).map(|leaf| problem.capacity(leaf));
    let (room, full) =
        (added_up(rooms().map(u64::from)), added_up(rooms().map(|room| usize::from(room == 0))));
    let holds = |window: &&[DomainId]| {
        let (first, end) = (window[0].index(), window[0].index() + window.len());
        full[first] == full[end] && room[end] - room[first] >= u64::from(problem.amount)
    };
    let windows = runs.iter().flat_map(|run| run.windows(leaves as usize)).filter(holds);
    let mut windows: Vec<&[DomainId]> = windows.collect();
    // Most questions of waiting jobs, asked for many moments, end here, so nothing else is computed before
    // this test.
    if windows.is_empty() {
        return Err(Missed::NONE);
    }
    let start = |window: &&[DomainId]| problem.fabric.domain(window[0]).range().start;
    let offer = |best: &mut Best, problem: &Problem<'_>, window: &&[DomainId]| {
        best.offer::<C>(&problem.all_of_these(window), start(window));
    };
    // With tasks the number of nodes that each leaf uses is unknown, so only nodes have bounds.
    if let Some(bounds) = Bounds::of(problem).filter(|_| leaves > 1 && problem.by_nodes) {
        let least = least_slots(problem);
        let ranked = windows.chunks(1).filter_map(|alone| {
            let window = alone[0];
            let stretch = start(&window)..problem.fabric.domain(window[window.len() - 1]).range().end;
            let least = window.iter().filter_map(|leaf| *least.get(leaf.index())?).min().unwrap_or(0);
            Some((bounds.rank::<C>(&stretch, u64::from(problem.amount) * least)?, alone))
        });
        return best_bounded(problem, ranked, start, Best::new(true), offer);
    }
    // The most promising windows come first, because the budget may not allow all.
    let fabric = problem.fabric;
    windows.sort_by_cached_key(|window| {
        let parent = fabric.domain(window[0]).parent().map_or(0, |id| problem.slots(id));
        (parent, window.iter().map(|&leaf| problem.slots(leaf)).sum::<u64>(), window[0])
    });
    let mut best = Best::new(true);
    for window in windows {
        if problem.meter.is_spent() {
            best.exact = false;
            break;
        }
        offer(&mut best, problem, &window);
    }
    best.ranked()
}

/// For each leaf, the fewest slots of a usable node; empty where nodes are whole. Leaves are the first
/// domains.
fn least_slots(problem: &Problem<'_>) -> Vec<Option<u64>> {
    let fabric = problem.fabric;
    if !problem.shares_nodes() {
        return Vec::new();
    }
    let least = |leaf: DomainId| {
        let usable = positions(fabric.domain(leaf).range()).filter(|&pos| problem.most_on(pos) > 0);
        usable.map(|pos| problem.slots_of_node(pos)).min()
    };
    fabric.domains_of(Layer::LEAF).map(least).collect()
}

/// Steps that count for setting up the question of one outline.
const SETUP: usize = 256;

/// The best outline found so far.
struct Best {
    /// The rank of the best outline, its first position, and its placement.
    winner: Option<(Rank, usize, Placement)>,
    exact: bool,
}

impl Best {
    fn new(exact: bool) -> Self {
        Self { winner: None, exact }
    }

    fn ranked(self) -> Result<Ranked, Missed> {
        let Self { winner, exact } = self;
        let (rank, _, placement) = winner.ok_or(Missed { exact })?;
        Ok((rank, Placement { exact: exact && placement.exact, ..placement }))
    }

    /// Solves a window, unless its positions are not on the required number of adjacent leaves.
    fn offer_window<C: Cost>(&mut self, problem: &Problem<'_>, window: &Range<usize>) {
        let lies_on = |leaves| are_side_by_side(problem.fabric, window.clone().map(position), leaves);
        if problem.ask.adjacent.is_none_or(lies_on) {
            self.offer::<C>(&problem.only_these(window.clone().map(position)), window.start);
        }
    }

    /// Solves one outline that starts at position `start`, and keeps it if it is better than the best so far.
    fn offer<C: Cost>(&mut self, problem: &Problem<'_>, start: usize) {
        // The question is set up anew for each outline.
        problem.meter.take(SETUP + problem.fabric.domains().size_hint().0 / 8 + problem.fabric.len() / 256);
        let (found, mut exact) = choose::<C>(problem);
        if let Some(found) = found {
            let is_better = |(best, first, _): &(Rank, usize, _)| (&found.rank, start) < (best, *first);
            if self.winner.as_ref().is_none_or(is_better) {
                let rank = found.rank.clone();
                match realise(problem, found, exact) {
                    None => exact = false,
                    Some(placement) => self.winner = Some((rank, start, placement)),
                }
            }
        }
        self.exact &= exact;
    }
}

/// The largest number of windows that are kept.
const MOST: usize = 1 << 17;

/// Runs of consecutive usable positions of a suitable length, none across two roots. The flag is true if no
/// window is missing that could matter.
fn windows(problem: &Problem<'_>) -> (Vec<Range<usize>>, bool) {
    let mut windows = Vec::new();
    let most = problem.amount as usize;
    let exactly = problem.nodes.map(|nodes| nodes as usize);
    // Where only the size matters, a window that is longer than necessary cannot be better.
    let are_shortest_best = problem.adds_up() && problem.ask.adjacent.is_none() && !problem.ask.score.any();
    for &root in problem.fabric.roots() {
        let range = problem.fabric.domain(root).range();
        let takes: Vec<u64> = range.clone().map(|index| problem.most_on(position(index)).into()).collect();
        let sums = added_up(takes.iter().copied());
        // Ends (exclusive) of the run of usable positions, and of the shortest window that holds the job.
        let (mut last, mut enough) = (0, 0);
        for start in (0..takes.len()).filter(|&start| takes[start] > 0) {
            last = last.max(start);
            while last < takes.len() && takes[last] > 0 {
                last += 1;
            }
            enough = enough.max(start + 1);
            while enough <= last && sums[enough] - sums[start] < u64::from(problem.amount) {
                enough += 1;
            }
            let shortest = enough.max(start + exactly.unwrap_or(0));
            let longest = match exactly {
                Some(nodes) => start + nodes,
                None if are_shortest_best => shortest,
                None => start + most,
            };
            let longest = longest.min(last).min(start + most);
            for end in shortest..=longest {
                if windows.len() == MOST {
                    return (windows, false);
                }
                windows.push(range.start + start..range.start + end);
            }
        }
    }
    (windows, true)
}

/// The promise of a window: the layer of its lowest common domain (0 where something else decides first), the
/// number of leaves that it crosses, and the slots of that domain.
fn looks(problem: &Problem<'_>, window: &Range<usize>) -> (u8, u32, u64) {
    let ask = problem.ask;
    let decides = problem.layout.weights == 0
        && ask.prefer.is_empty()
        && ask.prefer_domain.is_none()
        && !problem.lowest_latency
        && ask.mode != Mode::Distributed;
    let ends = [position(window.start), position(window.end - 1)];
    let [first, last] = ends.map(|pos| problem.fabric.leaf_of(pos).map_or(0, |leaf| leaf.0));
    let common = problem.fabric.deepest_common(&ends);
    let layer = common.filter(|_| decides).map_or(0, |id| problem.fabric.domain(id).layer().0);
    (layer, last - first, common.map_or(0, |id| problem.slots(id)))
}

/// Runs of adjacent leaves under one parent; for blocks under one topology, because their order is the
/// geometry.
fn runs(fabric: &Fabric) -> Vec<Cow<'_, [DomainId]>> {
    if fabric.plugin() == Plugin::Block {
        return vec![fabric.domains_of(Layer::LEAF).collect()];
    }
    let layer = |id: DomainId| fabric.domain(id).layer();
    let alone = fabric.roots().iter().filter(|root| layer(**root) == Layer::LEAF);
    let alone = alone.map(|root| Cow::Borrowed(std::slice::from_ref(root)));
    let side_by_side = fabric.inner().flat_map(|(_, domain, _)| {
        let runs = domain.children().split(|child| layer(*child) != Layer::LEAF);
        runs.filter(|run| !run.is_empty()).map(Cow::Borrowed)
    });
    alone.chain(side_by_side).collect()
}

/// True if the positions, in fabric order, are on exactly `leaves` leaves, all adjacent under one parent.
pub(crate) fn are_side_by_side(fabric: &Fabric, positions: impl Iterator<Item = Pos>, leaves: u32) -> bool {
    let mut touched: Vec<DomainId> = positions.filter_map(|pos| fabric.leaf_of(pos)).collect();
    touched.dedup();
    let is_here = |run: &Cow<'_, [DomainId]>| run.windows(touched.len()).any(|some| some == touched);
    touched.len() == leaves as usize && runs(fabric).iter().any(is_here)
}
