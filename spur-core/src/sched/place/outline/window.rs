//! Placements whose outline is fixed beforehand: consecutive positions, or leaves side by side. Every outline is a
//! problem of its own; the order among them is the order among placements.

use std::ops::Range;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::Plugin;
use crate::sched::place::ask::Mode;
use crate::sched::place::explain::Placement;
use crate::sched::place::fronts::{Candidate, choose, realise};
use crate::sched::place::problem::{Cost, Problem};
use crate::sched::place::{Missed, Ranked};

/// The best placement on consecutive positions.
pub(in crate::sched::place) fn contiguous<C: Cost>(problem: &Problem<'_>) -> Result<Ranked, Missed> {
    let mut windows: Vec<(u8, Range<usize>)> =
        windows(problem).into_iter().map(|window| (promise(problem, &window), window)).collect();
    windows.sort_by_key(|(promise, window)| (*promise, window.start, window.end));
    let mut best = Best::<C>::default();
    for (index, (promise, window)) in windows.iter().enumerate() {
        // Windows of equal promise are compared; one of a worse promise cannot win.
        if best.placement.is_some() && index > 0 && *promise != windows[index - 1].0 {
            break;
        }
        let has_required = problem.required.iter().all(|pos| window.contains(&pos.index()));
        if has_required && problem.ask.adjacent.is_none_or(|leaves| are_adjacent(problem, window, leaves)) {
            best.offer(&problem.only_these(window.clone().map(position)), window.start);
        }
    }
    best.ranked()
}

/// The best placement that uses exactly so many leaves side by side.
pub(in crate::sched::place) fn adjacent<C: Cost>(
    problem: &Problem<'_>,
    leaves: u32,
) -> Result<Ranked, Missed> {
    let mut best = Best::<C>::default();
    for run in runs(problem) {
        for window in run.windows(leaves as usize) {
            let open: u32 = window.iter().map(|&leaf| problem.capacity(leaf)).fold(0, u32::saturating_add);
            if open >= problem.amount {
                let inside = problem.all_of_these(window);
                best.offer(&inside, problem.fabric.domain(window[0]).range().start);
            }
        }
    }
    best.ranked()
}

/// The best outline so far.
struct Best<C> {
    winner: Option<(Candidate<C>, usize)>,
    placement: Option<Placement>,
    exact: bool,
}

impl<C> Default for Best<C> {
    fn default() -> Self {
        Self { winner: None, placement: None, exact: true }
    }
}

impl<C: Cost> Best<C> {
    fn ranked(self) -> Result<Ranked, Missed> {
        let found = self.winner.map(|(winner, _)| winner.rank).zip(self.placement);
        found.ok_or(Missed { exact: self.exact })
    }

    /// Solves one outline, which starts at a position, and keeps it if it is better than what there was.
    fn offer(&mut self, problem: &Problem<'_>, start: usize) {
        let (found, exact) = choose::<C>(problem);
        self.exact &= exact;
        let Some(mut found) = found else { return };
        if problem.ask.mode == Mode::Balanced {
            found.even_out(problem);
        }
        let better = match &self.winner {
            Some((best, first)) => (&found.rank, start) < (&best.rank, *first),
            None => true,
        };
        if better {
            self.placement = Some(realise(problem, found.clone(), exact));
            self.winner = Some((found, start));
        }
    }
}

fn position(index: usize) -> Pos {
    Pos(u32::try_from(index).expect("positions are u32"))
}

/// Runs of consecutive usable positions of the right length, none across two roots.
fn windows(problem: &Problem<'_>) -> Vec<Range<usize>> {
    let mut windows = Vec::new();
    for &root in problem.fabric.roots() {
        let range = problem.fabric.domain(root).range();
        let takes: Vec<u32> = range.clone().map(|index| problem.most_on(position(index))).collect();
        for start in range.clone() {
            let mut sum = 0_u32;
            for end in start..range.end {
                let here = takes[end - range.start];
                let count = u32::try_from(end - start + 1).unwrap_or(u32::MAX);
                let too_many = count > problem.amount || problem.nodes.is_some_and(|nodes| count > nodes);
                if here == 0 || too_many {
                    break;
                }
                sum = sum.saturating_add(here);
                if sum >= problem.amount && problem.nodes.is_none_or(|nodes| count == nodes) {
                    windows.push(start..end + 1);
                }
            }
        }
    }
    windows
}

/// The layer of the lowest domain that holds a window, where that is what decides first; 0 where something else does.
fn promise(problem: &Problem<'_>, window: &Range<usize>) -> u8 {
    let ask = problem.ask;
    let decides = problem.layout.weights == 0
        && ask.prefer.is_empty()
        && ask.prefer_domain.is_none()
        && !ask.lowest_latency
        && ask.mode != Mode::Distributed;
    let ends = [position(window.start), position(window.end - 1)];
    let common = problem.fabric.deepest_common(&ends);
    common.filter(|_| decides).map_or(0, |id| problem.fabric.domain(id).layer().0)
}

/// Leaves that lie side by side under one parent: for blocks, under one root, as their order is the geometry.
fn runs(problem: &Problem<'_>) -> Vec<Vec<DomainId>> {
    let fabric = problem.fabric;
    let mut runs: Vec<Vec<DomainId>> = Vec::new();
    if fabric.plugin() == Plugin::Block {
        return vec![fabric.domains_of(Layer::LEAF).collect()];
    }
    for (id, domain) in fabric.domains() {
        if domain.parent().is_none() && domain.layer() == Layer::LEAF {
            runs.push(vec![id]);
        }
        let is_leaf = |id: &DomainId| fabric.domain(*id).layer() == Layer::LEAF;
        runs.extend(domain.children().split(|child| !is_leaf(child)).map(<[DomainId]>::to_vec));
    }
    runs
}

/// Whether a window touches exactly so many leaves, all side by side under one parent.
fn are_adjacent(problem: &Problem<'_>, window: &Range<usize>, leaves: u32) -> bool {
    let mut touched: Vec<DomainId> =
        window.clone().filter_map(|index| problem.fabric.leaf_of(position(index))).collect();
    touched.dedup();
    let is_here = |run: &Vec<DomainId>| run.windows(touched.len()).any(|some| some == touched);
    touched.len() == leaves as usize && runs(problem).iter().any(is_here)
}
