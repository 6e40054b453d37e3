//! The holes of all nodes on shelves by amount and length. A search for a large amount never meets small
//! holes, nor a search for a long time short ones.
//!
//! A shelf is defined by the CPUs, memory and devices of its amounts, by whether the node is idle, and by the
//! length of its holes, each in powers of two. A hole on a matching shelf may still be too small, but no hole
//! that would do is on a shelf that a search skips. The holes of a shelf are about equally long, so they end
//! in about the order in which they begin.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::sched::inventory::amounts::{CPUS, GRES, MEMORY, RoomId, Rooms};
use crate::sched::request::Need;

use super::holes::{Hole, Holes};
use super::second::FOR_EVER;

/// The largest values of an amount, or the least values of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// True if the node is idle, or has to be.
    idle: bool,
    cpus: u64,
    memory: u64,
    devices: u64,
}

impl Measure {
    /// The least that one slot takes; a node may need more.
    pub(crate) fn of(need: &Need) -> Self {
        let running = u64::from(need.tasks(1));
        let cpus = (running * u64::from(need.cpus_per_task)).max(u64::from(need.min_cpus));
        // All the memory of a node can be any amount.
        let fixed = if need.memory_per_node == u64::MAX { 0 } else { need.memory_per_node };
        Self {
            idle: need.whole,
            cpus,
            memory: fixed.saturating_add(cpus.saturating_mul(need.memory_per_cpu)),
            devices: need.devices_of_node().saturating_add(need.devices_of_slot()),
        }
    }

    fn holds(&self, least: &Self) -> bool {
        (self.idle || !least.idle)
            && self.cpus >= least.cpus
            && self.memory >= least.memory
            && self.devices >= least.devices
    }
}

#[derive(Clone, Debug)]
struct Shelf {
    /// The largest values of any amount on the shelf.
    most: Measure,
    /// The length of the longest hole on the shelf in seconds; [`FOR_EVER`] only if no hole ends.
    longest: u32,
    holes: Holes,
}

/// Amounts whose holes are on the same shelves.
#[derive(Clone, Debug)]
struct Kind {
    most: Measure,
    /// The shelf of each power of two of the length; [`NONE`] where there is no shelf yet.
    shelves: [u32; LENGTHS],
}

/// Number of lengths in powers of two; the last is for holes that do not end.
const LENGTHS: usize = 34;
/// The number of no shelf, or of no kind.
const NONE: u32 = u32::MAX;

/// All holes, by shelf.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoleIndex {
    shelves: Vec<Shelf>,
    kinds: Vec<Kind>,
    /// The number of each kind, by what distinguishes kinds.
    by_steps: BTreeMap<(bool, u32, u32, u32), u32>,
    /// The kind of each amount, by the amount's number; [`NONE`] if not computed yet.
    of_room: Vec<u32>,
}

impl HoleIndex {
    /// Sorts holes onto shelves.
    pub(crate) fn new(rooms: &Rooms, holes: impl Iterator<Item = Hole>) -> Self {
        let mut shelves = Self::default();
        let mut lists: Vec<Vec<Hole>> = Vec::new();
        for hole in holes {
            let shelf = shelves.of(rooms, &hole);
            lists.resize(shelves.shelves.len(), Vec::new());
            lists[shelf].push(hole);
        }
        for (shelf, list) in shelves.shelves.iter_mut().zip(lists) {
            shelf.holes = Holes::new(list);
        }
        shelves
    }

    /// The holes of every shelf that may have the amount and whose longest hole has a length in the range,
    /// shelf by shelf.
    pub(super) fn holding(
        &self,
        least: Measure,
        longest: RangeInclusive<u32>,
    ) -> impl Iterator<Item = &Holes> {
        let may = move |shelf: &&Shelf| longest.contains(&shelf.longest) && shelf.most.holds(&least);
        self.shelves.iter().filter(may).map(|shelf| &shelf.holes)
    }

    /// The holes of these shelves that last for ever; such holes never share a shelf with others.
    pub(crate) fn lasting(&self, least: Measure) -> impl Iterator<Item = &Holes> {
        self.holding(least, FOR_EVER..=FOR_EVER)
    }

    /// The holes that are long and large enough and that end.
    pub(crate) fn ending(&self, least: Measure, duration: u32) -> impl Iterator<Item = &Holes> {
        self.holding(least, duration..=FOR_EVER - 1)
    }

    /// Adds holes, which are sorted.
    pub(crate) fn insert(&mut self, rooms: &Rooms, holes: &[Hole]) {
        for alike in holes.chunk_by(are_alike) {
            let shelf = self.of(rooms, &alike[0]);
            self.shelves[shelf].holes.insert(alike);
        }
    }

    /// Removes holes, which are sorted; holes that are not there are ignored.
    pub(crate) fn remove(&mut self, rooms: &Rooms, holes: &[Hole]) {
        for alike in holes.chunk_by(are_alike) {
            let shelf = self.of(rooms, &alike[0]);
            self.shelves[shelf].holes.remove(alike);
        }
    }

    /// Replaces holes of a node by others. Both lists are sorted by start and end.
    pub(crate) fn exchange<'a>(
        &mut self,
        rooms: &Rooms,
        before: impl Iterator<Item = &'a Hole>,
        after: &[Hole],
    ) {
        let (mut old, mut new) = (before.peekable(), after.iter().peekable());
        // Both lists have one order, so a merge finds the differences.
        while let Some(order) = match (old.peek(), new.peek()) {
            (Some(old), Some(new)) => Some((old.start, old.end).cmp(&(new.start, new.end))),
            (Some(_), None) => Some(Ordering::Less),
            (None, Some(_)) => Some(Ordering::Greater),
            (None, None) => None,
        } {
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some(gone), Some(come)) if gone.room != come.room => self.change(rooms, gone, come.room),
                (Some(gone), None) => self.remove(rooms, std::slice::from_ref(gone)),
                (None, Some(come)) => self.insert(rooms, std::slice::from_ref(come)),
                _ => {}
            }
        }
    }

    /// Changes the amount of a hole.
    fn change(&mut self, rooms: &Rooms, hole: &Hole, room: RoomId) {
        let (before, after) = (self.kind(rooms, hole.room), self.kind(rooms, room));
        if before == after {
            let shelf = self.of_kind(before, hole);
            self.shelves[shelf].holes.change(hole, room);
        } else {
            self.remove(rooms, std::slice::from_ref(hole));
            self.insert(rooms, &[Hole { room, ..*hole }]);
        }
    }

    #[inline]
    fn of(&mut self, rooms: &Rooms, hole: &Hole) -> usize {
        let kind = self.kind(rooms, hole.room);
        self.of_kind(kind, hole)
    }

    /// The shelf of a hole whose amount is of a kind.
    #[inline]
    fn of_kind(&mut self, kind: usize, hole: &Hole) -> usize {
        let length = length_step(hole.length());
        let Kind { most, shelves } = &mut self.kinds[kind];
        let known = &mut shelves[length];
        if *known == NONE {
            *known = number(self.shelves.len());
            self.shelves.push(Shelf { most: *most, longest: longest_of(length), holes: Holes::default() });
        }
        *known as usize
    }

    #[inline]
    fn kind(&mut self, rooms: &Rooms, room: RoomId) -> usize {
        match self.of_room.get(room.index()) {
            Some(known) if *known != NONE => *known as usize,
            _ => self.find_kind(rooms, room),
        }
    }

    #[cold]
    fn find_kind(&mut self, rooms: &Rooms, room: RoomId) -> usize {
        let amount = rooms.amount(room);
        let idle = amount[CPUS] == rooms.amount(rooms.full(rooms.class_of(room)))[CPUS];
        let devices = amount[GRES..].iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        // Memory is seldom scarce, so its steps are four times as wide.
        let memory = step(amount[MEMORY]).next_multiple_of(4).min(u64::BITS);
        let steps = (idle, step(amount[CPUS]), memory, step(devices));
        let next = number(self.kinds.len());
        let kind = *self.by_steps.entry(steps).or_insert(next);
        if kind == next {
            let (idle, cpus, memory, devices) = steps;
            let most =
                Measure { idle, cpus: most_of(cpus), memory: most_of(memory), devices: most_of(devices) };
            self.kinds.push(Kind { most, shelves: [NONE; LENGTHS] });
        }
        self.of_room.resize(self.of_room.len().max(rooms.len()), NONE);
        self.of_room[room.index()] = kind;
        kind as usize
    }
}

/// True if two holes are certainly on the same shelf.
fn are_alike(one: &Hole, other: &Hole) -> bool {
    one.room == other.room && one.length() == other.length()
}

/// Number of binary digits of a number.
fn step(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// The largest number with this many binary digits.
fn most_of(step: u32) -> u64 {
    1_u64.checked_shl(step).map_or(u64::MAX, |over| over - 1)
}

/// The step of a length in seconds.
fn length_step(length: u32) -> usize {
    if length == FOR_EVER { LENGTHS - 1 } else { step(length.into()) as usize }
}

/// The largest length of a step.
fn longest_of(step: usize) -> u32 {
    match step {
        step if step == LENGTHS - 1 => FOR_EVER,
        step => u32::try_from((1_u64 << step) - 1).unwrap_or(FOR_EVER).min(FOR_EVER - 1),
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("there are fewer shelves than rooms and lengths")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_with_the_largest_number_of_it() {
        for number in (0..5_000).chain([u64::MAX - 1, u64::MAX, 3 << 62, (3 << 62) - 1]) {
            let most = most_of(step(number));
            assert!(number <= most, "{number} is at most {most}");
            assert_eq!(step(most), step(number), "{number} and {most}");
            assert!(most == u64::MAX || step(most + 1) > step(number), "{number} is not with {most}");
        }
    }
    #[test]
    fn what_never_ends_has_a_step_of_its_own() {
        for length in [0, 1, 2, 3, 600, 601, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX - 1] {
            let most = longest_of(length_step(length));
            assert!(length <= most && most < FOR_EVER, "{length} is at most {most}");
            assert_eq!(length_step(most), length_step(length), "{length} and {most}");
        }
        assert_eq!(longest_of(length_step(FOR_EVER)), FOR_EVER);
    }
}
