//! The holes of all nodes on shelves by how much room they have, so that a search for much room never meets those
//! with little.
//!
//! A shelf is told by the CPUs, the memory and the devices of its rooms, in steps, and by whether the node is idle.
//! What is found on it may still be too small; what would do is never on a shelf that a search leaves out.

use std::collections::BTreeMap;

use super::holes::{Hole, Holes};
use super::request::{Need, Slot};
use super::room::{CPUS, GRES, MEMORY, RoomId, Rooms};

/// What a room has at most, or what a slot takes at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// Whether the node is idle, and has to be.
    idle: bool,
    cpus: u64,
    memory: u64,
    devices: u64,
}

impl Measure {
    /// What one slot takes at least; a node may make more of it.
    pub(super) fn of(need: &Need) -> Self {
        let tasks = match need.slot {
            Slot::Node { tasks } => u64::from(tasks),
            Slot::Task | Slot::Gpu => 1,
        };
        let running = if need.slot == Slot::Gpu { 1 } else { tasks };
        let cpus = (running * u64::from(need.cpus_per_task)).max(u64::from(need.min_cpus));
        // All the memory of a node can be any amount.
        let fixed = if need.memory_per_node == u64::MAX { 0 } else { need.memory_per_node };
        let per_node = need.gres_per_node.iter().map(|spec| spec.count);
        let per_task = need.gres_per_task.iter().map(|spec| spec.count.saturating_mul(tasks));
        Self {
            idle: need.whole,
            cpus,
            memory: fixed.saturating_add(cpus.saturating_mul(need.memory_per_cpu)),
            devices: per_node.chain(per_task).fold(0, u64::saturating_add),
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
    /// No room on it has more.
    most: Measure,
    holes: Holes,
}

/// All holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelves {
    shelves: Vec<Shelf>,
    /// Shelves by what tells them apart.
    by_steps: BTreeMap<(bool, u32, u32, u32), u32>,
    /// By room: its shelf, if that is known.
    of_room: Vec<Option<u32>>,
}

impl Shelves {
    /// Puts holes in order.
    pub(super) fn new(rooms: &Rooms, holes: impl Iterator<Item = Hole>) -> Self {
        let mut shelves = Self::default();
        let mut lists: Vec<Vec<Hole>> = Vec::new();
        for hole in holes {
            let shelf = shelves.of(rooms, hole.room);
            lists.resize(shelves.shelves.len(), Vec::new());
            lists[shelf].push(hole);
        }
        for (shelf, list) in shelves.shelves.iter_mut().zip(lists) {
            shelf.holes = Holes::new(list);
        }
        shelves
    }

    /// The holes of the shelves that may hold so much, shelf by shelf.
    pub(super) fn holding(&self, least: Measure) -> impl Iterator<Item = &Holes> {
        self.shelves.iter().filter(move |shelf| shelf.most.holds(&least)).map(|shelf| &shelf.holes)
    }

    /// Adds a hole.
    pub(super) fn insert(&mut self, rooms: &Rooms, hole: Hole) {
        let shelf = self.of(rooms, hole.room);
        self.shelves[shelf].holes.insert(hole);
    }

    /// Takes a hole out; nothing happens if it is not there.
    pub(super) fn remove(&mut self, rooms: &Rooms, hole: &Hole) {
        let shelf = self.of(rooms, hole.room);
        self.shelves[shelf].holes.remove(hole);
    }

    fn of(&mut self, rooms: &Rooms, room: RoomId) -> usize {
        if let Some(Some(known)) = self.of_room.get(room.index()) {
            return *known as usize;
        }
        let amount = rooms.amount(room);
        let idle = amount[CPUS] == rooms.amount(rooms.full(rooms.class_of(room)))[CPUS];
        let devices = amount[GRES..].iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let steps = (idle, step(amount[CPUS]), step(amount[MEMORY]), step(devices));
        let next = u32::try_from(self.shelves.len()).expect("there are fewer shelves than rooms");
        let shelf = *self.by_steps.entry(steps).or_insert(next);
        if shelf == next {
            let (idle, cpus, memory, devices) = steps;
            let most =
                Measure { idle, cpus: most_of(cpus), memory: most_of(memory), devices: most_of(devices) };
            self.shelves.push(Shelf { most, holes: Holes::default() });
        }
        self.of_room.resize(self.of_room.len().max(rooms.len()), None);
        self.of_room[room.index()] = Some(shelf);
        shelf as usize
    }
}

/// Two steps for every doubling: 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, 12 to 15, …
fn step(number: u64) -> u32 {
    match number.checked_ilog2() {
        None => 0,
        Some(log) => 1 + 2 * log + u32::from(log > 0 && number >> (log - 1) & 1 == 1),
    }
}

/// The largest number of a step.
fn most_of(step: u32) -> u64 {
    let Some(step) = step.checked_sub(1) else { return 0 };
    let (log, upper) = (step / 2, step % 2 == 1);
    match (log, upper) {
        (0, _) => 1,
        (63, true) => u64::MAX,
        (log, true) => (2 << log) - 1,
        (log, false) => (3 << (log - 1)) - 1,
    }
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
}
