//! The holes of all nodes by their start, in chunks that say how long their longest hole is.

use crate::text::time::Time;

use super::room::RoomId;

/// Holes in a chunk before it is cut in two.
const FULL: usize = 256;

/// A stretch of time over which a node has a room free throughout; `end` is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) node: u32,
    pub(super) room: RoomId,
}

impl Hole {
    fn key(&self) -> (Time, u32, Time) {
        (self.start, self.node, self.end)
    }
}

/// Some neighbours in the list.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    holes: Vec<Hole>,
    /// No hole is longer, seconds.
    longest: u64,
    /// No hole ends later.
    latest: Time,
}

impl Chunk {
    fn new(holes: Vec<Hole>) -> Self {
        let longest = holes.iter().map(|hole| hole.end.since(hole.start)).max().unwrap_or(0);
        let latest = holes.iter().map(|hole| hole.end).max().unwrap_or(Time::ZERO);
        Self { holes, longest, latest }
    }

    /// Its holes, by start.
    pub(super) fn holes(&self) -> &[Hole] {
        &self.holes
    }

    /// Whether some hole may last for `duration` seconds and until `until`.
    pub(super) fn may_hold(&self, duration: u64, until: Time) -> bool {
        self.longest >= duration && self.latest >= until
    }
}

/// All holes, by start, then node, then end.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    chunks: Vec<Chunk>,
}

impl Holes {
    /// Puts holes in order.
    pub(super) fn new(mut holes: Vec<Hole>) -> Self {
        holes.sort_unstable_by_key(Hole::key);
        Self { chunks: holes.chunks(FULL / 2).map(|chunk| Chunk::new(chunk.to_vec())).collect() }
    }

    /// The chunks in order; none is empty.
    pub(super) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Adds a hole.
    pub(super) fn insert(&mut self, hole: Hole) {
        let Some(at) = self.chunk_for(&hole) else {
            self.chunks.push(Chunk::new(vec![hole]));
            return;
        };
        let chunk = &mut self.chunks[at];
        let place = chunk.holes.partition_point(|other| other.key() < hole.key());
        chunk.holes.insert(place, hole);
        chunk.longest = chunk.longest.max(hole.end.since(hole.start));
        chunk.latest = chunk.latest.max(hole.end);
        if chunk.holes.len() > FULL {
            let second = chunk.holes.split_off(FULL / 2);
            let first = Chunk::new(std::mem::take(&mut chunk.holes));
            self.chunks[at] = first;
            self.chunks.insert(at + 1, Chunk::new(second));
        }
    }

    /// Takes a hole out; nothing happens if it is not there.
    pub(super) fn remove(&mut self, hole: &Hole) {
        let Some(at) = self.chunk_for(hole) else { return };
        let chunk = &mut self.chunks[at];
        if let Ok(place) = chunk.holes.binary_search_by_key(&hole.key(), Hole::key) {
            chunk.holes.remove(place);
        }
        if chunk.holes.is_empty() {
            self.chunks.remove(at);
        }
    }

    /// The chunk a hole belongs in; `None` where there is none at all.
    fn chunk_for(&self, hole: &Hole) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| chunk.holes[0].key() <= hole.key());
        (!self.chunks.is_empty()).then(|| after.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holes_stay_in_order(changes in prop::collection::vec((0_i64..50, 1_i64..20, 0_u32..40), 0..900)) {
            let mut holes = Holes::new(Vec::new());
            let mut model = std::collections::BTreeMap::new();
            for (start, length, node) in changes {
                let hole = Hole { start: Time(start), end: Time(start + length), node, room: RoomId(0) };
                if model.remove(&hole.key()).is_some() {
                    holes.remove(&hole);
                } else {
                    model.insert(hole.key(), hole);
                    holes.insert(hole);
                }
            }
            let listed: Vec<Hole> = holes.chunks().iter().flat_map(Chunk::holes).copied().collect();
            prop_assert_eq!(listed, model.into_values().collect::<Vec<_>>());
            for chunk in holes.chunks() {
                prop_assert!(!chunk.holes().is_empty());
                let inside = |hole: &Hole| {
                    hole.end <= chunk.latest && hole.end.since(hole.start) <= chunk.longest
                };
                prop_assert!(chunk.holes().iter().all(inside));
            }
        }
    }
}
