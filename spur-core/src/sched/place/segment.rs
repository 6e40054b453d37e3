//! Segments: the job is several groups of equally many nodes, and the block rule holds for each.
//!
//! Where a segment fits one base block, each base block holds a multiple of a segment, and the dynamic program stays
//! exact. Where a segment is larger, it lies in one aggregate and may touch only so many blocks of the layer below:
//! packing segments into blocks is hard in general, so what each aggregate can hold is searched within a budget.

use std::collections::BTreeSet;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};

use super::block::{BlockRule, Containment};
use super::cost::{self, Narrow};
use super::problem::{Frame, Problem, positions};
use super::{Ask, Missed, Placement, Segment, Slots, View, choose, lower, solve};

/// Places `nodes` nodes in segments; None where that is not possible now.
pub(super) fn place_segments(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    nodes: u32,
    segment: Segment,
) -> Result<Placement, Missed> {
    let size = segment.size;
    if size == 0 || !nodes.is_multiple_of(size) {
        return Err(Missed::NONE);
    }
    let one = BlockRule::new(fabric, view.idle).containment(size, 0);
    let home = one.within.unwrap_or(fabric.top());
    let in_base = home == Layer::LEAF;
    let mut frame = Frame { within: ask.must, unit: Some((home, size)), ..Frame::default() };
    if in_base && segment.spread {
        frame.leaf_nodes = Some(size);
    }
    if segment.consolidate {
        let whole = whole_job(fabric, view.idle, nodes, segment, home);
        frame.within = lower(frame.within, whole.within);
        frame.touch = whole.touch;
    }
    let mut problem = Problem::new(fabric, view, ask, nodes.into(), frame).ok_or(Missed::NONE)?;
    if in_base {
        return solve(&problem);
    }
    let (below, touch) = one.touch.unwrap_or((Layer::LEAF, u32::MAX));
    // Segments that share no base block are packed base block by base block.
    let touch = if segment.spread && below > Layer::LEAF { u32::MAX } else { touch };
    let packing = Packing { size, touch, spread: segment.spread };
    let homes = fabric.domains_covering(home);
    let mut search = Search { packing, left: ask.budget, exact: true };
    if problem.per_node.is_none() {
        let placement = solve(&problem)?;
        return homes
            .iter()
            .all(|&home| search.falls_apart(&problem, &placement, home))
            .then_some(placement)
            .ok_or(Missed { exact: false });
    }
    let mut limits: Vec<(DomainId, u32)> = (homes.iter())
        .map(|&id| (id, search.most(&rooms(&problem, id, packing.spread))))
        .filter(|&(_, most)| most < u32::MAX)
        .collect();
    limits.sort_unstable();
    problem.set_limits(limits);
    let mut placement = solve(&problem).map_err(|missed| Missed { exact: missed.exact && search.exact })?;
    placement.exact &= search.exact;
    Ok(arrange(&problem, placement, &homes, search))
}

/// Where consolidated segments want the job as a whole: sizes are counted in whole segments.
fn whole_job(fabric: &Fabric, idle: &Slots, nodes: u32, segment: Segment, home: Layer) -> Containment {
    let mut holds: Vec<u32> = Vec::new();
    for (id, domain) in fabric.domains() {
        let mut most = match domain.children() {
            [] => idle.nodes_of(id),
            children => children.iter().map(|child| holds[child.index()]).sum(),
        };
        if (domain.layer()..=domain.cover()).contains(&home) {
            most -= most % segment.size;
            if home == Layer::LEAF && segment.spread {
                most = most.min(segment.size);
            }
        }
        holds.push(most);
    }
    BlockRule::from_sizes(fabric, |id| (holds[id.index()], 0)).containment(nodes, 0)
}

/// The shape of a segment.
#[derive(Debug, Clone, Copy)]
struct Packing {
    size: u32,
    /// Blocks of the layer below that one segment may touch.
    touch: u32,
    /// No two segments share a block.
    spread: bool,
}

/// What is free in each block below an aggregate: the blocks that segments touch, base blocks where none may be
/// shared.
fn rooms(problem: &Problem<'_>, home: DomainId, bases: bool) -> Vec<u32> {
    blocks_below(problem.fabric, home, bases).into_iter().map(|id| problem.capacity(id)).collect()
}

fn blocks_below(fabric: &Fabric, home: DomainId, bases: bool) -> Vec<DomainId> {
    let mut below = vec![home];
    loop {
        let next: Vec<DomainId> = (below.iter())
            .flat_map(|&id| match fabric.domain(id).children() {
                [] => vec![id],
                children => children.to_vec(),
            })
            .collect();
        if !bases || next == below {
            return next;
        }
        below = next;
    }
}

/// A search for ways to pack segments into blocks.
///
/// It never hurts a packing to take a segment from as few blocks as will do, all but one of them used up: what the
/// others held there can be held by the one that keeps the rest. So a state is just the room left in each block.
struct Search {
    packing: Packing,
    left: u64,
    exact: bool,
}

impl Search {
    /// The most nodes, in whole segments, that blocks of the given room can hold; no limit where any sum will do.
    fn most(&mut self, rooms: &[u32]) -> u32 {
        let used = u32::try_from(rooms.iter().filter(|&&room| room > 0).count()).unwrap_or(u32::MAX);
        if used <= self.packing.touch && !self.packing.spread {
            return u32::MAX;
        }
        let sum = rooms.iter().fold(0_u32, |sum, &room| sum.saturating_add(room));
        let mut segments = sum / self.packing.size;
        while segments > 0 && self.pack(rooms, segments).is_none() {
            segments -= 1;
        }
        segments * self.packing.size
    }

    /// How much of each block so many segments take, if they fit.
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
            if self.left == 0 {
                self.exact = false;
                return false;
            }
            self.left -= 1;
            let (mut next, mut used) = (left.to_vec(), taken.to_vec());
            let mut need = self.packing.size;
            // Small blocks are used up; the largest keeps the rest.
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

    /// Sets of at most `touch` blocks that hold a segment and would not without any one of them; `rooms` falls.
    fn minimal_sets(&self, rooms: &[u32]) -> Vec<Vec<usize>> {
        let mut sets = Vec::new();
        let mut stack: Vec<(Vec<usize>, u32)> = vec![(Vec::new(), 0)];
        while let Some((set, sum)) = stack.pop() {
            let from = set.last().map_or(0, |last| last + 1);
            for index in from..rooms.len() {
                let same_as_before = index > from && rooms[index] == rooms[index - 1];
                if same_as_before || set.len() as u64 >= u64::from(self.packing.touch) {
                    continue;
                }
                let mut more = set.clone();
                more.push(index);
                let total = sum + rooms[index];
                // Rooms fall, so the last one is the smallest: without it the set must fall short.
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

impl Search {
    /// Whether what was chosen in an aggregate falls into segments.
    fn falls_apart(&mut self, problem: &Problem<'_>, placement: &Placement, home: DomainId) -> bool {
        let blocks = blocks_below(problem.fabric, home, self.packing.spread);
        let used: Vec<u32> =
            blocks.iter().map(|&id| nodes_in(problem.fabric, id, &placement.shares)).collect();
        let touched = used.iter().filter(|&&used| used > 0).count() as u64;
        let segments = used.iter().sum::<u32>() / self.packing.size;
        segments == 0
            || (!self.packing.spread && touched <= u64::from(self.packing.touch))
            || self.pack(&used, segments).is_some()
    }
}

fn nodes_in(fabric: &Fabric, id: DomainId, shares: &[(Pos, u32)]) -> u32 {
    let range = fabric.domain(id).range();
    let inside = shares.iter().filter(|(pos, _)| range.contains(&pos.index()));
    u32::try_from(inside.count()).unwrap_or(u32::MAX)
}

/// Checks that what was chosen in each aggregate falls into segments, and chooses again there where it does not.
fn arrange(problem: &Problem<'_>, placement: Placement, homes: &[DomainId], mut search: Search) -> Placement {
    let spread = search.packing.spread;
    let mut shares: Vec<(Pos, u32)> = Vec::new();
    let mut exact = placement.exact;
    for &home in homes {
        let range = problem.fabric.domain(home).range();
        let inside = |pos: &Pos| range.contains(&pos.index());
        let here = placement.shares.iter().filter(|(pos, _)| inside(pos));
        if search.falls_apart(problem, &placement, home) {
            shares.extend(here);
            continue;
        }
        let blocks = blocks_below(problem.fabric, home, spread);
        let segments = nodes_in(problem.fabric, home, &placement.shares) / search.packing.size;
        exact = false;
        let Some(taken) = search.pack(&rooms(problem, home, spread), segments) else {
            shares.extend(here);
            continue;
        };
        for (&block, &amount) in blocks.iter().zip(&taken) {
            shares.extend(fill(problem, block, amount));
        }
    }
    shares.sort_unstable();
    choose::placement(problem, shares, placement.common, exact && search.exact)
}

/// The best so many nodes of one block.
fn fill(problem: &Problem<'_>, block: DomainId, amount: u32) -> Vec<(Pos, u32)> {
    if amount == 0 {
        return Vec::new();
    }
    let part = problem.part(block, amount);
    let placed = if part.layout.width() <= cost::NARROW {
        super::solve_with::<Narrow>(&part)
    } else {
        super::solve_with::<Vec<i64>>(&part)
    };
    let first_free = || {
        let open = positions(problem.fabric.domain(block).range()).filter(|&pos| problem.most_on(pos) > 0);
        open.take(amount as usize).map(|pos| (pos, problem.per_node.unwrap_or(1))).collect()
    };
    placed.map_or_else(|_| first_free(), |placement| placement.shares)
}
