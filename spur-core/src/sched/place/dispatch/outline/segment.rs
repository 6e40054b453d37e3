//! Segments: the job consists of groups of equally many nodes, and the block rule holds for each.
//!
//! Where a segment fits one base block, each base block holds a multiple of a segment, and the dynamic
//! programme is exact. A larger segment is in one aggregate and may use only so many blocks of the layer
//! below. Packing segments into blocks is hard in general, so branch and bound is used: the best placement
//! without that rule is computed. If it does not divide into segments, its shares for an aggregate's blocks
//! are forbidden (a no-good). Then the next best is computed, within the budget.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::{Ask, BlockRule, Frame, Segment, lower};
use crate::sched::place::dispatch::{solve, solve_ranked};
use crate::sched::place::problem::{Limits, Meter, Problem, Rank};
use crate::sched::place::slots::{Slots, View, bottom_up, narrow};

/// Places `nodes` nodes in segments.
pub(crate) fn place_segments(
    view: &View<'_>,
    ask: &Ask,
    nodes: u32,
    segment: Segment,
    meter: &Meter,
) -> Result<Placement, Missed> {
    let (fabric, size) = (view.fabric, segment.size);
    if size == 0 || !nodes.is_multiple_of(size) {
        return Err(Missed::NONE);
    }
    let one = BlockRule::new(fabric, view.idle).containment(size, 0);
    let home = one.within.unwrap_or(fabric.top());
    let in_base = home == Layer::LEAF;
    let (below, touch) = one.touch.unwrap_or((Layer::LEAF, u32::MAX));
    let packing = Packing { size, touch, below, spread: segment.spread };
    let homes = fabric.domains_covering(home);
    let mut search = SegmentSearch { fabric, packing, homes: &homes, meter: meter.clone(), exact: true };
    let mut frame = Frame { within: ask.must, unit: Some((home, size)), ..Frame::default() };
    if in_base && segment.spread {
        frame.leaf_nodes = Some(size);
    }
    if segment.consolidate {
        let whole = search.whole_job(view.idle, nodes, home);
        frame.within = lower(frame.within, whole.within);
        frame.touch = whole.touch;
    }
    let mut problem = Problem::new(view, ask, nodes.into(), frame, meter).ok_or(Missed::NONE)?;
    if in_base {
        return solve(&problem);
    }
    let limits: Limits = (homes.iter())
        .map(|&id| (id, (0, search.most(&packing.rooms(&problem, id)))))
        .filter(|&(_, (_, most))| most < u32::MAX)
        .collect();
    problem.set_limits(limits.clone());
    let placement = solve(&problem).map_err(|missed| Missed { exact: missed.exact && search.exact })?;
    if search.first_whole(&placement).is_none() {
        return Ok(Placement { exact: placement.exact && search.exact, ..placement });
    }
    search.branch(problem, limits)
}

/// The shape of a segment.
#[derive(Debug, Clone, Copy)]
struct Packing {
    size: u32,
    /// The most domains of the layer `below` that one segment may use.
    touch: u32,
    /// The layer below the domains that hold a segment.
    below: Layer,
    /// True if no two segments may share a base block.
    spread: bool,
}

impl Packing {
    /// The blocks below an aggregate in which a packing counts: the blocks that segments use, or base blocks
    /// where no two segments may share one.
    fn blocks(self, fabric: &Fabric, home: DomainId) -> Vec<DomainId> {
        let layer = if self.spread { Layer::LEAF } else { self.below };
        let (mut blocks, mut open) = (Vec::new(), vec![home]);
        while let Some(id) = open.pop() {
            let domain = fabric.domain(id);
            if domain.layer() <= layer || domain.children().is_empty() {
                blocks.push(id);
            } else {
                open.extend(domain.children().iter().rev());
            }
        }
        blocks
    }

    /// The free nodes of each of these blocks.
    fn rooms(self, problem: &Problem<'_>, home: DomainId) -> Vec<u32> {
        let room = |id: DomainId| match problem.by_nodes {
            true => problem.capacity(id),
            false => problem.view.slots.nodes_of(id),
        };
        self.blocks(problem.fabric, home).into_iter().map(room).collect()
    }

    /// True if any division over blocks is allowed, because a segment may use that many of them.
    fn is_loose(self, touched: usize) -> bool {
        !self.spread && touched as u64 <= u64::from(self.touch)
    }
}

/// Search steps that one step of packing counts for, because it takes about that much longer.
const STEP: usize = 8;

/// A search for ways to pack segments into blocks.
///
/// Taking a segment from a minimal set of blocks, all but one of them used up, never hurts a packing: the
/// block that keeps the rest can hold what the others held. So a state is only the free amount of each block.
struct SegmentSearch<'a> {
    fabric: &'a Fabric,
    packing: Packing,
    /// The domains of which one has to hold each segment.
    homes: &'a [DomainId],
    meter: Meter,
    exact: bool,
}

impl SegmentSearch<'_> {
    /// The frame of the whole job with consolidated segments. Sizes count whole segments, as many as fit a
    /// domain that no other job uses. Limits on layers below the domain of a segment do not apply to the job,
    /// only to each segment.
    fn whole_job(&mut self, idle: &Slots, nodes: u32, home: Layer) -> Frame {
        let (fabric, size) = (self.fabric, self.packing.size);
        let holds = bottom_up(fabric, |id, domain, below| {
            let mut most = below.map_or_else(|| idle.nodes_of(id), narrow);
            if (domain.layer()..=domain.cover()).contains(&home) {
                most -= most % size;
                if home > Layer::LEAF {
                    let blocks = self.packing.blocks(fabric, id).into_iter();
                    most = most.min(self.most(&blocks.map(|id| idle.nodes_of(id)).collect::<Vec<_>>()));
                } else if self.packing.spread {
                    most = most.min(size);
                }
            }
            most
        });
        let whole = BlockRule::from_sizes(fabric, |id| (holds[id.index()], 0)).containment(nodes, 0);
        Frame { touch: whole.touch.filter(|(layer, _)| *layer >= home), ..whole }
    }

    /// The most nodes, in whole segments, that blocks with the given free nodes can hold; [`u32::MAX`] where
    /// any division is allowed.
    fn most(&mut self, rooms: &[u32]) -> u32 {
        if self.packing.is_loose(rooms.iter().filter(|&&room| room > 0).count()) {
            return u32::MAX;
        }
        let sum = rooms.iter().fold(0_u32, |sum, &room| sum.saturating_add(room));
        let mut segments = sum / self.packing.size;
        while segments > 0 && self.pack(rooms, segments).is_none() {
            segments -= 1;
        }
        segments * self.packing.size
    }

    /// The number of nodes of each block that `segments` segments take; `None` if they do not fit.
    fn pack(&mut self, rooms: &[u32], segments: u32) -> Option<Vec<u32>> {
        let mut left: Vec<(u32, usize)> =
            rooms.iter().copied().zip(0..).filter(|(room, _)| *room > 0).collect();
        let mut taken = vec![0; rooms.len()];
        let mut dead = BTreeSet::new();
        self.place(&mut left, segments, &mut taken, &mut dead).then_some(taken)
    }

    fn place(
        &mut self,
        left: &mut [(u32, usize)],
        segments: u32,
        taken: &mut [u32],
        dead: &mut BTreeSet<Vec<u32>>,
    ) -> bool {
        if segments == 0 {
            return true;
        }
        left.sort_unstable_by_key(|&(room, block)| (std::cmp::Reverse(room), block));
        let state: Vec<u32> = left.iter().map(|(room, _)| *room).collect();
        let sum: u64 = state.iter().map(|&room| u64::from(room)).sum();
        let wanted = u64::from(segments) * u64::from(self.packing.size);
        if sum < wanted || dead.contains(&state) {
            return false;
        }
        for some in self.minimal_sets(&state) {
            if !self.takes_a_step() {
                return false;
            }
            let (mut next, mut used) = (left.to_vec(), taken.to_vec());
            let mut need = self.packing.size;
            // Small blocks are used up; the largest block keeps the rest.
            for &index in some.iter().rev() {
                let part = next[index].0.min(need);
                need -= part;
                used[next[index].1] += part;
                next[index].0 = if self.packing.spread { 0 } else { next[index].0 - part };
            }
            next.retain(|(room, _)| *room > 0);
            if self.place(&mut next, segments - 1, &mut used, dead) {
                taken.copy_from_slice(&used);
                return true;
            }
        }
        dead.insert(state);
        false
    }

    /// Takes a step if one is left; otherwise marks the search as cut and returns false.
    fn takes_a_step(&mut self) -> bool {
        let is_left = self.meter.take(STEP);
        self.exact &= is_left;
        is_left
    }

    /// The minimal sets of blocks that hold one segment: without any one block the set is too small. `rooms`
    /// is in descending order.
    fn minimal_sets(&mut self, rooms: &[u32]) -> Vec<Vec<usize>> {
        // Where base blocks are counted but the block rule limits larger ones, the number of base blocks is
        // not limited.
        let counts_others = self.packing.spread && self.packing.below > Layer::LEAF;
        let most = if counts_others { u32::MAX } else { self.packing.touch };
        let mut sets = Vec::new();
        let mut stack: Vec<(Vec<usize>, u32)> = vec![(Vec::new(), 0)];
        while let Some((set, sum)) = stack.pop() {
            if !self.takes_a_step() {
                break;
            }
            let from = set.last().map_or(0, |last| last + 1);
            for index in from..rooms.len() {
                let same_as_before = index > from && rooms[index] == rooms[index - 1];
                if same_as_before || set.len() as u64 >= u64::from(most) {
                    continue;
                }
                let mut more = set.clone();
                more.push(index);
                let total = sum + rooms[index];
                // Blocks are in descending order, so the last one is the smallest: without it the set must be
                // too small.
                if total >= self.packing.size {
                    sets.push(more);
                } else {
                    stack.push((more, total));
                }
            }
        }
        sets.sort_by_key(|set| {
            let sum: u32 = set.iter().map(|&index| rooms[index]).sum();
            (set.len(), sum - self.packing.size)
        });
        sets
    }
}

/// The number of nodes that a placement gives each block of an aggregate.
type Given = Vec<(DomainId, u32)>;

impl SegmentSearch<'_> {
    /// The first aggregate whose nodes do not divide into segments, with the nodes given to each block;
    /// `None` if all divide.
    fn first_whole(&mut self, placement: &Placement) -> Option<(DomainId, Given)> {
        self.homes.iter().find_map(|&home| {
            let blocks = self.packing.blocks(self.fabric, home).into_iter();
            let given: Given = blocks.map(|id| (id, nodes_in(self.fabric, id, &placement.shares))).collect();
            (!self.falls_apart(&given)).then_some((home, given))
        })
    }

    fn falls_apart(&mut self, given: &Given) -> bool {
        let used: Vec<(DomainId, u32)> = given.iter().copied().filter(|(_, used)| *used > 0).collect();
        let segments = used.iter().map(|(_, used)| used).sum::<u32>() / self.packing.size;
        if segments == 0 || self.packing.is_loose(used.len()) {
            return true;
        }
        if !self.packing.spread {
            let rooms: Vec<u32> = used.iter().map(|(_, used)| *used).collect();
            return self.pack(&rooms, segments).is_some();
        }
        let below = |id: DomainId| match self.packing.below {
            Layer::LEAF => id,
            layer => self.fabric.covering(id, layer),
        };
        let parts: Vec<(DomainId, u32)> = used.iter().map(|&(id, used)| (below(id), used)).collect();
        self.divide(&mut vec![false; parts.len()], &parts)
    }

    /// True if base blocks, each paired with the domain below the aggregate that contains it, divide into
    /// groups of one segment each.
    fn divide(&mut self, taken: &mut Vec<bool>, parts: &[(DomainId, u32)]) -> bool {
        match taken.iter().position(|taken| !taken) {
            None => true,
            Some(first) => self.group(taken, parts, first, self.packing.size, &mut BTreeSet::new()),
        }
    }

    /// True if blocks from `at` on complete a group that lacks `left` nodes, and the rest divides, too.
    fn group(
        &mut self,
        taken: &mut Vec<bool>,
        parts: &[(DomainId, u32)],
        at: usize,
        left: u32,
        touched: &mut BTreeSet<DomainId>,
    ) -> bool {
        if left == 0 {
            return self.divide(taken, parts);
        }
        let is_first = touched.is_empty();
        for index in at..parts.len() {
            let (below, used) = parts[index];
            let fits = !taken[index]
                && used <= left
                && (touched.contains(&below) || (touched.len() as u64) < u64::from(self.packing.touch));
            if fits {
                if !self.takes_a_step() {
                    return false;
                }
                let is_new = touched.insert(below);
                taken[index] = true;
                if self.group(taken, parts, index + 1, left - used, touched) {
                    return true;
                }
                taken[index] = false;
                if is_new {
                    touched.remove(&below);
                }
            }
            if is_first {
                break;
            }
        }
        false
    }

    /// The best placement within the limits that divides into segments. Each step takes the best open
    /// placement; if it does not divide, its shares in one aggregate are excluded from the next ones.
    fn branch(&mut self, mut problem: Problem<'_>, limits: Limits) -> Result<Placement, Missed> {
        let step = self.fabric.domains().count() + problem.view.slots.nodes();
        let mut open: BTreeMap<(Rank, Vec<Pos>, usize), (Placement, Limits)> = BTreeMap::new();
        let mut count = 0;
        let mut new = vec![limits.clone()];
        loop {
            for limits in new.drain(..) {
                if !self.meter.take(step) {
                    self.exact = false;
                    return self.settle(problem.anew(), limits);
                }
                problem.set_limits(limits.clone());
                match solve_ranked(&problem) {
                    Ok((rank, placement)) => {
                        count += 1;
                        open.insert((rank, placement.positions(), count), (placement, limits));
                    }
                    Err(missed) => self.exact &= missed.exact,
                }
            }
            let Some((_, (placement, limits))) = open.pop_first() else {
                return Err(Missed { exact: self.exact });
            };
            let Some((_, given)) = self.first_whole(&placement) else {
                return Ok(Placement { exact: placement.exact && self.exact, ..placement });
            };
            new = without(&limits, &given);
        }
    }

    /// Some placement that divides into segments, once the budget is used up: each aggregate is packed by
    /// itself.
    fn settle(&mut self, mut problem: Problem<'_>, mut limits: Limits) -> Result<Placement, Missed> {
        self.meter = problem.meter.clone();
        // Each round settles one more aggregate.
        for _ in 0..=self.homes.len() {
            problem.set_limits(limits.clone());
            let (_, placement) = solve_ranked(&problem).map_err(|_| Missed::UNKNOWN)?;
            let Some((home, given)) = self.first_whole(&placement) else {
                return Ok(Placement { exact: false, ..placement });
            };
            let segments = given.iter().map(|(_, used)| used).sum::<u32>() / self.packing.size;
            let taken = self.pack(&self.packing.rooms(&problem, home), segments).ok_or(Missed::UNKNOWN)?;
            limits.extend(given.iter().zip(taken).map(|((id, _), taken)| (*id, (taken, taken))));
        }
        Err(Missed::UNKNOWN)
    }
}

/// Limits that together exclude exactly the shares given to the blocks of one aggregate.
fn without(limits: &Limits, given: &Given) -> Vec<Limits> {
    let mut others = Vec::new();
    let mut fixed = limits.clone();
    for &(id, used) in given {
        let (least, most) = fixed.get(&id).copied().unwrap_or((0, u32::MAX));
        let mut other = |range: (u32, u32)| {
            fixed.insert(id, range);
            others.push(fixed.clone());
        };
        if used > least {
            other((least, used - 1));
        }
        if used < most {
            other((used + 1, most));
        }
        fixed.insert(id, (used, used));
    }
    others
}

fn nodes_in(fabric: &Fabric, id: DomainId, shares: &[(Pos, u32)]) -> u32 {
    let range = fabric.domain(id).range();
    let inside = shares.iter().filter(|(pos, _)| range.contains(&pos.index()));
    u32::try_from(inside.count()).unwrap_or(u32::MAX)
}
