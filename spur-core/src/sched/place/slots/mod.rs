//! What every position could take for one kind of job at one moment, counted per domain.

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

/// Slots of every position and, kept in step with them, of every domain.
///
/// A slot is one task that fits what is free on the node, or, for jobs that take whole nodes, the node itself. Sums
/// per domain are plain: the rounding of multiples is the solver's affair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    open: FixedBitSet,
    tasks: Option<Tasks>,
    /// By domain; none where slots are whole nodes, which are counted already.
    sums: Vec<u64>,
    nodes: Vec<u32>,
}

impl Slots {
    /// One slot on each position of the set: what a job of whole nodes sees.
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

    /// Tasks per position, 0 where none fits; `tasks` has one number for each position of the fabric.
    #[must_use]
    pub fn tasks(fabric: &Fabric, tasks: Vec<u32>) -> Self {
        Self::with_tasks(fabric, open(&tasks), Tasks::new(&tasks))
    }

    /// Slots where every position takes so many tasks, none of them [`u16::MAX`] or more.
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

    /// No slots anywhere, of whole nodes or of tasks.
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

    /// Forgets what it knew of the fabric and has these slots instead. A position comes at most once; those without slots
    /// are passed over.
    pub fn refill(&mut self, fabric: &Fabric, slots: impl Iterator<Item = (Pos, u32)>) {
        self.clear();
        for (pos, slots) in slots {
            let _ = self.raise(fabric, pos, slots);
        }
        self.sum_up(fabric);
    }

    /// Has no slots any more.
    pub fn clear(&mut self) {
        if let Some(tasks) = &mut self.tasks {
            tasks.clear(self.open.as_slice());
        }
        self.open.clear();
        self.sums.fill(0);
        self.nodes.fill(0);
    }

    /// Gives a position that many slots if it has fewer, and says how many it had then. What is above leaves does not know
    /// of it before [`Slots::sum_up`]. For whole nodes any number above 0 is 1.
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

    /// Gives positions that many slots where they have fewer, and writes down those that had none; not even their leaves know
    /// of them before [`Slots::tell_leaves`]. The numbers are below [`u16::MAX`]; what is no position of the fabric is passed
    /// over.
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

    /// Tells the leaves of positions that had no slots before they were raised all at once what these have now.
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

    /// Gives a position that many slots and says how many it had. What is above leaves does not know of it before
    /// [`Slots::sum_up`]. For whole nodes any number above 0 is 1.
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

    /// Gives positions other slots, one after another. What is above leaves does not know of it before [`Slots::sum_up`]. For
    /// whole nodes any number above 0 is 1.
    pub fn put_all(&mut self, fabric: &Fabric, changes: &[(Pos, u32)]) {
        let known = changes.iter().position(|(_, slots)| few(*slots).is_none()).unwrap_or(changes.len());
        let known = if self.put_few(fabric, &changes[..known]) { known } else { 0 };
        for &(pos, slots) in &changes[known..] {
            self.put(fabric, pos, slots);
        }
    }

    /// The same for numbers that are not kept apart; says whether it is done, as it is not where others are.
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

    /// Works out what is above the leaves from what they have.
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

    /// Changes the slots of one position, in time proportional to the depth of the fabric. For whole nodes any
    /// number above 0 is 1.
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

    /// Whether slots are whole nodes.
    #[must_use]
    pub fn are_whole(&self) -> bool {
        self.tasks.is_none()
    }

    /// The positions that have a slot.
    #[must_use]
    pub fn open(&self) -> &FixedBitSet {
        &self.open
    }

    /// Slots of a position.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        match &self.tasks {
            Some(tasks) => tasks.at(pos.index()),
            None => u32::from(self.open.contains(pos.index())),
        }
    }

    /// Slots of all positions, where they are tasks and no position has very many.
    pub(super) fn small_tasks(&self) -> Option<&[u16]> {
        self.tasks.as_ref()?.small()
    }

    /// The open positions as whole nodes.
    pub(super) fn as_whole(&self) -> Self {
        Self { open: self.open.clone(), tasks: None, sums: Vec::new(), nodes: self.nodes.clone() }
    }

    /// Slots of a domain.
    #[must_use]
    pub fn of(&self, domain: DomainId) -> u64 {
        let sum = self.sums.get(domain.index()).copied();
        sum.unwrap_or_else(|| u64::from(self.nodes[domain.index()]))
    }

    /// Positions of a domain that have a slot.
    #[must_use]
    pub fn nodes_of(&self, domain: DomainId) -> u32 {
        self.nodes[domain.index()]
    }

    /// The positions of a range that have a slot, found a block at a time.
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

    /// Positions of every domain that have a slot, by its number.
    pub(super) fn nodes_by_number(&self) -> &[u32] {
        &self.nodes
    }

    /// Slots of every domain, by its number, where they are tasks.
    pub(super) fn sums_by_number(&self) -> Option<&[u64]> {
        self.tasks.as_ref().map(|_| self.sums.as_slice())
    }

    /// Positions that have a slot, in the whole fabric and outside it.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.open.count_ones(..)
    }

    /// All slots there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        match &self.tasks {
            Some(tasks) => tasks.sum(0..self.open.len()),
            None => self.open.count_ones(..) as u64,
        }
    }

    /// How many positions have a slot, and all slots there are.
    #[must_use]
    pub fn all(&self) -> (u32, u64) {
        (u32::try_from(self.nodes()).expect("positions are u32"), self.total())
    }

    /// Positions with a slot and their slots, in fabric order.
    pub fn iter(&self) -> impl Iterator<Item = (Pos, u32)> {
        self.open.ones().map(position).map(|pos| (pos, self.at(pos)))
    }
}

/// Positions from a range of indices.
pub(super) fn positions(range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = Pos> + Clone {
    range.map(position)
}

/// The position of an index.
pub(super) fn position(index: usize) -> Pos {
    Pos(u32::try_from(index).expect("positions are u32"))
}

/// A number of slots that is not kept apart for being so large.
fn few(slots: u32) -> Option<u16> {
    u16::try_from(slots).ok().filter(|few| *few < u16::MAX)
}

/// Positions of a block of a set.
const BLOCK: usize = usize::BITS as usize;

/// The positions whose number is not 0.
pub(crate) fn open<T: Copy + Default + PartialEq>(slots: &[T]) -> FixedBitSet {
    let blocks = slots.chunks(BLOCK).map(|block| match block.as_chunks::<8>() {
        (eights, []) => eights.iter().rev().fold(0, |open, eight| open << 8 | bits(eight)),
        _ => block.iter().rev().fold(0, |open, count| open << 1 | usize::from(*count != T::default())),
    });
    FixedBitSet::with_capacity_and_blocks(slots.len(), blocks)
}

/// A bit for each number, the first the lowest, set where it is not 0. The product has byte `i`, which is 0 or 1, as its bit
/// `56 + i`, so that nothing is done eight times.
#[inline]
fn bits<T: Copy + Default + PartialEq>(eight: &[T; 8]) -> usize {
    let bytes = u64::from_le_bytes(eight.map(|count| u8::from(count != T::default())));
    usize::from((bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8)
}

/// Open positions that are quicker counted one by one than range by range.
const FEW: usize = 512;

/// How many open positions every domain has, counted from each on its way up.
fn count_few(fabric: &Fabric, open: &FixedBitSet) -> Vec<u32> {
    let mut counts = vec![0; fabric.domains().size_hint().0];
    for index in open.ones() {
        for id in fabric.path_up(position(index)) {
            counts[id.index()] += 1;
        }
    }
    counts
}

/// A number for every domain, from the leaves up: `number` is told what the children of a domain have in sum, nothing of a leaf.
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

/// A sum as the number of a domain: the largest there is if it is too large for one.
pub(super) fn narrow(sum: u64) -> u32 {
    u32::try_from(sum).unwrap_or(u32::MAX)
}

/// All that a placement looks at besides what is asked: a fabric, the slots of one moment, and facts about nodes.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The domains over the nodes.
    pub fabric: &'a Fabric,
    /// What each position could take.
    pub slots: &'a Slots,
    /// The same for an idle cluster with every node up: the nodes that partition, constraint and exclusion admit. The
    /// block rule, which goes by configured size, looks at this.
    pub idle: &'a Slots,
    /// Positions where any job runs, however little it uses; only jobs that want whole leaves and scores look at it.
    pub occupied: Option<&'a FixedBitSet>,
    /// Weight of each position; lighter ones are taken first. None: all are equal.
    pub weights: Option<&'a Weights>,
    /// How well jobs ended at each position, in millionths; None: equally well everywhere.
    pub performance: Option<&'a [u32]>,
    /// Steps that this question shares with others. None: it may take all that its ask allows.
    pub budget: Option<&'a SharedBudget>,
}

impl<'a> View<'a> {
    /// A view of slots alone.
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
