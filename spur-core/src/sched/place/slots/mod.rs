//! The slots of every position for one kind of job at one moment, summed per domain.

mod takes;
mod tasks;
mod weights;

use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{Domain, DomainId, Fabric, Pos};
use crate::sched::place::budget::SharedBudget;

pub use weights::Weights;

pub(super) use takes::Takes;
pub(super) use weights::count_both;

use tasks::Tasks;

/// The slots of every position and, updated with them, the sums of every domain.
///
/// A slot is one task that fits what is free on the node, or, for jobs that take whole nodes, the node
/// itself. The sums are not rounded; the solvers apply multiples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    open: FixedBitSet,
    tasks: Option<Tasks>,
    /// The slots of each domain, by its number; empty where slots are whole nodes, because `nodes` has the
    /// same counts.
    sums: Vec<u64>,
    nodes: Vec<u32>,
}

impl Slots {
    /// One slot on each position of the set, for a job that takes whole nodes.
    #[must_use]
    pub fn whole(fabric: &Fabric, mut open: FixedBitSet) -> Self {
        open.grow(fabric.len());
        let nodes = if open.count_ones(..) <= FEW {
            count_few(fabric, &open)
        } else {
            let count = |range| u32::try_from(open.count_ones(range)).expect("positions are u32");
            bottom_up(fabric, |_, domain, below| below.map_or_else(|| count(domain.range()), narrow))
        };
        Self { open, tasks: None, sums: Vec::new(), nodes }
    }

    /// The slots of a job with tasks: one number of tasks for each position of the fabric, 0 where none
    /// fits.
    #[must_use]
    pub fn tasks(fabric: &Fabric, tasks: Vec<u32>) -> Self {
        Self::with_tasks(fabric, open(&tasks), Tasks::new(&tasks))
    }

    /// The slots of a job with tasks, one number for each position, every number below [`u16::MAX`].
    #[must_use]
    pub fn few_tasks(fabric: &Fabric, tasks: Vec<u16>) -> Self {
        Self::with_tasks(fabric, open(&tasks), Tasks::few(tasks))
    }

    fn with_tasks(fabric: &Fabric, open: FixedBitSet, tasks: Tasks) -> Self {
        debug_assert_eq!(open.len(), fabric.len(), "one number for each position");
        let domains = fabric.domains().size_hint().0;
        let (mut nodes, mut sums) = (vec![0; domains], vec![0; domains]);
        for (id, domain) in fabric.domains().filter(|(_, domain)| domain.children().is_empty()) {
            (nodes[id.index()], sums[id.index()]) = tasks.count(domain.range());
        }
        let mut slots = Self { open, tasks: Some(tasks), sums, nodes };
        slots.sum_up(fabric);
        slots
    }

    /// No slots at any position, counted in whole nodes or in tasks.
    #[must_use]
    pub fn none(fabric: &Fabric, whole: bool) -> Self {
        let domains = fabric.domains().size_hint().0;
        Self {
            open: FixedBitSet::with_capacity(fabric.len()),
            tasks: (!whole).then(|| Tasks::none(fabric.len())),
            sums: if whole { Vec::new() } else { vec![0; domains] },
            nodes: vec![0; domains],
        }
    }

    /// Replaces all slots by the given ones. A position may come once at most; positions with 0 slots are
    /// ignored.
    pub fn refill(&mut self, fabric: &Fabric, slots: impl Iterator<Item = (Pos, u32)>) {
        self.clear();
        for (pos, slots) in slots {
            let _ = self.raise(fabric, pos, slots);
        }
        self.sum_up(fabric);
    }

    /// Removes all slots.
    pub fn clear(&mut self) {
        if let Some(tasks) = &mut self.tasks {
            tasks.clear(self.open.as_slice());
        }
        self.open.clear();
        self.sums.fill(0);
        self.nodes.fill(0);
    }

    /// Raises a position to `slots` and returns its number before, or `None` if it has as many already. The
    /// sums above leaves are stale until [`Slots::sum_up`] is called. For whole nodes numbers above 0 are 1.
    #[inline]
    pub fn raise(&mut self, fabric: &Fabric, pos: Pos, slots: u32) -> Option<u32> {
        let leaf = fabric.leaf_of(pos);
        let had = match &mut self.tasks {
            Some(tasks) => {
                let had = tasks.raise(pos.index(), slots)?;
                if let Some(leaf) = leaf {
                    self.sums[leaf.index()] += u64::from(slots - had);
                }
                had
            }
            None if slots == 0 || self.open.contains(pos.index()) => return None,
            None => 0,
        };
        if had == 0 {
            self.open.insert(pos.index());
            if let Some(leaf) = leaf {
                self.nodes[leaf.index()] += 1;
            }
        }
        Some(had)
    }

    /// Raises each position to its number of slots, and appends the positions that had none to `begun`. The
    /// sums of leaves are stale until [`Slots::tell_leaves`] is called, and the sums above until
    /// [`Slots::sum_up`] is called, too. The numbers are below [`u16::MAX`]. Positions outside the fabric are
    /// ignored.
    #[inline]
    pub fn raise_all(&mut self, slots: impl ExactSizeIterator<Item = (Pos, u16)>, begun: &mut Vec<Pos>) {
        match &mut self.tasks {
            Some(tasks) => tasks.raise_all(slots, begun),
            None => {
                let positions = self.open.len();
                let open = &mut self.open;
                let may = |pos: &Pos| pos.index() < positions && !open.put(pos.index());
                begun.extend(slots.filter(|(_, slots)| *slots > 0).map(|(pos, _)| pos).filter(may));
            }
        }
    }

    /// Adds positions that [`Slots::raise_all`] has appended to `begun` to the open positions and to the sums
    /// of their leaves.
    pub fn tell_leaves(&mut self, fabric: &Fabric, begun: &[Pos]) {
        let leaves = fabric.leaves_by_position();
        let (open, nodes) = (self.open.as_mut_slice(), self.nodes.as_mut_slice());
        let Some(tasks) = &self.tasks else {
            for pos in begun {
                if let Some(leaf) = leaves.get(pos.index()) {
                    nodes[leaf.index()] += 1;
                }
            }
            return;
        };
        let (tasks, sums) = (tasks.cut(), self.sums.as_mut_slice());
        for pos in begun {
            let index = pos.index();
            open[index / BLOCK] |= 1 << (index % BLOCK);
            if let Some(leaf) = leaves.get(index) {
                nodes[leaf.index()] += 1;
                sums[leaf.index()] += u64::from(tasks[index]);
            }
        }
    }

    /// Sets the slots of a position and returns its number before. The sums above leaves are stale until
    /// [`Slots::sum_up`] is called. For whole nodes any number above 0 is 1.
    #[inline]
    pub fn put(&mut self, fabric: &Fabric, pos: Pos, slots: u32) -> u32 {
        let leaf = fabric.leaf_of(pos);
        let (before, after) = match &mut self.tasks {
            Some(tasks) => {
                let before = tasks.at(pos.index());
                tasks.set(pos.index(), slots);
                if let Some(sum) = leaf.and_then(|leaf| self.sums.get_mut(leaf.index())) {
                    *sum = *sum - u64::from(before) + u64::from(slots);
                }
                (before, slots)
            }
            None => (u32::from(self.open.contains(pos.index())), slots.min(1)),
        };
        if (before > 0) != (after > 0) {
            self.open.set(pos.index(), after > 0);
            if let Some(leaf) = leaf {
                let nodes = &mut self.nodes[leaf.index()];
                *nodes = if after > 0 { *nodes + 1 } else { *nodes - 1 };
            }
        }
        before
    }

    /// Sets the slots of several positions, in order. The sums above leaves are stale until
    /// [`Slots::sum_up`] is called. For whole nodes any number above 0 is 1.
    pub fn put_all(&mut self, fabric: &Fabric, changes: &[(Pos, u32)]) {
        let known = changes.iter().position(|(_, slots)| few(*slots).is_none()).unwrap_or(changes.len());
        let known = if self.put_few(fabric, &changes[..known]) { known } else { 0 };
        for &(pos, slots) in &changes[known..] {
            self.put(fabric, pos, slots);
        }
    }

    /// Does the work of [`Slots::put_all`] for numbers below [`u16::MAX`]. Returns false, with nothing
    /// changed, where slots are whole nodes or some position has a larger number.
    fn put_few(&mut self, fabric: &Fabric, changes: &[(Pos, u32)]) -> bool {
        let Some(tasks) = self.tasks.as_mut().and_then(Tasks::few_mut) else { return false };
        let (leaves, open) = (fabric.leaves_by_position(), self.open.as_mut_slice());
        let (sums, nodes) = (self.sums.as_mut_slice(), self.nodes.as_mut_slice());
        for &(pos, slots) in changes {
            let before = std::mem::replace(&mut tasks[pos.index()], few(slots).unwrap_or(0));
            let before = u32::from(before);
            if before == slots {
                continue;
            }
            if let Some(leaf) = leaves.get(pos.index()) {
                let sum = &mut sums[leaf.index()];
                *sum = *sum - u64::from(before) + u64::from(slots);
                let count = &mut nodes[leaf.index()];
                *count = *count - u32::from(before > 0) + u32::from(slots > 0);
            }
            if before == 0 || slots == 0 {
                open[pos.index() / BLOCK] ^= 1 << (pos.index() % BLOCK);
            }
        }
        true
    }

    /// Recomputes the sums of all domains above the leaves.
    pub fn sum_up(&mut self, fabric: &Fabric) {
        for (id, domain, row) in fabric.inner() {
            let nodes = &mut self.nodes;
            nodes[id.index()] = match &row {
                Some(row) => nodes[row.clone()].iter().sum(),
                None => domain.children().iter().map(|child| nodes[child.index()]).sum(),
            };
            if self.tasks.is_some() {
                let sums = &mut self.sums;
                sums[id.index()] = match row {
                    Some(row) => sums[row].iter().sum(),
                    None => domain.children().iter().map(|child| sums[child.index()]).sum(),
                };
            }
        }
    }

    /// Sets the slots of one position and updates all sums, in time proportional to the depth of the
    /// fabric. For whole nodes any number above 0 is 1.
    pub fn set(&mut self, fabric: &Fabric, pos: Pos, slots: u32) {
        let before = self.put(fabric, pos, slots);
        let after = self.at(pos);
        for id in fabric.path_up(pos).skip(1) {
            if let Some(sum) = self.sums.get_mut(id.index()) {
                *sum = *sum - u64::from(before) + u64::from(after);
            }
            let nodes = &mut self.nodes[id.index()];
            *nodes = *nodes - u32::from(before > 0) + u32::from(after > 0);
        }
    }

    /// True if slots are whole nodes.
    #[must_use]
    pub fn are_whole(&self) -> bool {
        self.tasks.is_none()
    }

    /// The positions that have at least one slot.
    #[must_use]
    pub fn open(&self) -> &FixedBitSet {
        &self.open
    }

    /// Number of slots of a position.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        match &self.tasks {
            Some(tasks) => tasks.at(pos.index()),
            None => u32::from(self.open.contains(pos.index())),
        }
    }

    /// The tasks of all positions; `None` where slots are whole nodes or some position has [`u16::MAX`]
    /// tasks or more.
    pub(super) fn small_tasks(&self) -> Option<&[u16]> {
        self.tasks.as_ref()?.small()
    }

    /// The positions with a slot, as whole nodes with one slot each.
    pub(super) fn as_whole(&self) -> Self {
        Self { open: self.open.clone(), tasks: None, sums: Vec::new(), nodes: self.nodes.clone() }
    }

    /// Number of slots of a domain.
    #[must_use]
    pub fn of(&self, domain: DomainId) -> u64 {
        let sum = self.sums.get(domain.index()).copied();
        sum.unwrap_or_else(|| u64::from(self.nodes[domain.index()]))
    }

    /// Number of positions of a domain that have a slot.
    #[must_use]
    pub fn nodes_of(&self, domain: DomainId) -> u32 {
        self.nodes[domain.index()]
    }

    /// The positions of a range that have a slot, in fabric order.
    pub(super) fn open_in(&self, range: Range<usize>) -> impl Iterator<Item = Pos> + Clone {
        let blocks = self.open.as_slice().iter().enumerate();
        let blocks = blocks.take(range.end.div_ceil(BLOCK)).skip(range.start / BLOCK);
        blocks.flat_map(move |(block, open)| {
            let first = block * BLOCK;
            let below = |end: usize| if end < BLOCK { !(usize::MAX << end) } else { usize::MAX };
            let mut left = open & below(range.end - first) & !below(range.start.saturating_sub(first));
            std::iter::from_fn(move || {
                let bit = Some(left.trailing_zeros()).filter(|_| left != 0)?;
                left &= left - 1;
                Some(position(first + bit as usize))
            })
        })
    }

    /// Number of positions with a slot for every domain, by the domain's number.
    pub(super) fn nodes_by_number(&self) -> &[u32] {
        &self.nodes
    }

    /// Number of tasks for every domain, by the domain's number; `None` where slots are whole nodes.
    pub(super) fn sums_by_number(&self) -> Option<&[u64]> {
        self.tasks.as_ref().map(|_| self.sums.as_slice())
    }

    /// Number of positions that have a slot, including positions outside every domain.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.open.count_ones(..)
    }

    /// Number of slots of all positions.
    #[must_use]
    pub fn total(&self) -> u64 {
        match &self.tasks {
            Some(tasks) => tasks.sum(0..self.open.len()),
            None => self.open.count_ones(..) as u64,
        }
    }

    /// The number of positions that have a slot, and the number of slots of all positions.
    #[must_use]
    pub fn all(&self) -> (u32, u64) {
        (u32::try_from(self.nodes()).expect("positions are u32"), self.total())
    }

    /// The positions with a slot, each with its slots, in fabric order.
    pub fn iter(&self) -> impl Iterator<Item = (Pos, u32)> {
        self.open.ones().map(position).map(|pos| (pos, self.at(pos)))
    }
}

/// The positions of a range of indices.
pub(super) fn positions(range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = Pos> + Clone {
    range.map(position)
}

/// The position with an index.
pub(super) fn position(index: usize) -> Pos {
    Pos(u32::try_from(index).expect("positions are u32"))
}

/// `slots` as 16 bits; `None` if the number is [`u16::MAX`] or more.
fn few(slots: u32) -> Option<u16> {
    u16::try_from(slots).ok().filter(|few| *few < u16::MAX)
}

/// Number of positions in one block of a bit set.
const BLOCK: usize = usize::BITS as usize;

/// The positions whose number is not 0.
pub(crate) fn open<T: Copy + Default + PartialEq>(slots: &[T]) -> FixedBitSet {
    let blocks = slots.chunks(BLOCK).map(|block| match block.as_chunks::<8>() {
        (eights, []) => eights.iter().rev().fold(0, |open, eight| open << 8 | bits(eight)),
        _ => block.iter().rev().fold(0, |open, count| open << 1 | usize::from(*count != T::default())),
    });
    FixedBitSet::with_capacity_and_blocks(slots.len(), blocks)
}

/// One bit for each of eight numbers, the first the lowest, set where the number is not 0. The
/// multiplication moves byte `i`, which is 0 or 1, to bit `56 + i`, so that all eight are gathered in one
/// step.
#[inline]
fn bits<T: Copy + Default + PartialEq>(eight: &[T; 8]) -> usize {
    let bytes = u64::from_le_bytes(eight.map(|count| u8::from(count != T::default())));
    usize::from((bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8)
}

/// Up to this number of open positions, counting one by one is faster than counting by range.
const FEW: usize = 512;

/// Number of open positions of every domain, by walking up from each open position.
fn count_few(fabric: &Fabric, open: &FixedBitSet) -> Vec<u32> {
    let mut counts = vec![0; fabric.domains().size_hint().0];
    for index in open.ones() {
        for id in fabric.path_up(position(index)) {
            counts[id.index()] += 1;
        }
    }
    counts
}

/// Computes a number for every domain, from the leaves up. `number` gets the sum over the children of a
/// domain, or `None` for a leaf.
pub(super) fn bottom_up<T: Copy + Into<u64>>(
    fabric: &Fabric,
    mut number: impl FnMut(DomainId, &Domain, Option<u64>) -> T,
) -> Vec<T> {
    let mut numbers: Vec<T> = Vec::with_capacity(fabric.domain_count());
    for (id, domain) in fabric.domains() {
        let below = domain.children().iter().map(|child| numbers[child.index()].into()).sum();
        numbers.push(number(id, domain, Some(below).filter(|_| !domain.children().is_empty())));
    }
    numbers
}

/// A sum as the number of a domain, at most [`u32::MAX`].
pub(super) fn narrow(sum: u64) -> u32 {
    u32::try_from(sum).unwrap_or(u32::MAX)
}

/// The state that a placement looks at besides its ask: a fabric, the slots at one moment, and facts about
/// nodes.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The domains over the nodes.
    pub fabric: &'a Fabric,
    /// The slots of each position at the moment of the question.
    pub slots: &'a Slots,
    /// The slots on an idle cluster with every node up, on the nodes that partition, constraint and
    /// exclusion admit. The block rule, which goes by configured size, uses these.
    pub idle: &'a Slots,
    /// The positions on which any job runs, however little it uses. Only jobs that want whole leaves, and
    /// scores, use this.
    pub occupied: Option<&'a FixedBitSet>,
    /// The weight of each position; lighter nodes are taken first. `None` if all weights are equal.
    pub weights: Option<&'a Weights>,
    /// The past performance of each position, in millionths; `None` if all positions count as 1.
    pub performance: Option<&'a [u32]>,
    /// The steps that this question shares with others; `None` if only the budget of its ask bounds it.
    pub budget: Option<&'a SharedBudget>,
}

impl<'a> View<'a> {
    /// A view with nothing but slots.
    #[must_use]
    pub fn new(fabric: &'a Fabric, slots: &'a Slots, idle: &'a Slots) -> Self {
        Self { fabric, slots, idle, occupied: None, weights: None, performance: None, budget: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn open_positions_are_those_with_slots(slots in prop::collection::vec(0_u16..3, 0..200)) {
            let open = super::open(&slots);
            prop_assert_eq!(open.len(), slots.len());
            let expected = (0..slots.len()).filter(|pos| slots[*pos] > 0);
            prop_assert_eq!(open.ones().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }

        #[test]
        fn open_positions_of_a_range_are_those_in_it(
            open in prop::collection::vec(any::<bool>(), 1..200),
            range in (0_usize..200, 0_usize..200),
        ) {
            let range = range.0.min(range.1).min(open.len())..range.0.max(range.1).min(open.len());
            let expected: Vec<usize> = range.clone().filter(|pos| open[*pos]).collect();
            let open = (0..open.len()).filter(|pos| open[*pos]).collect();
            let slots = super::Slots { open, ..super::Slots::default() };
            prop_assert_eq!(slots.open_in(range).map(|pos| pos.index()).collect::<Vec<_>>(), expected);
        }
    }
}
