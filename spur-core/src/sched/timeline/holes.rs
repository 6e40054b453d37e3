//! The holes of all nodes by their start, in chunks and blocks of chunks that say how far their holes reach.

use crate::sched::scene::room::RoomId;

use super::second::Second;

/// Holes in a chunk, and chunks in a block, before it is cut in two.
const FULL: usize = 48;

/// A stretch of time over which a node has a room free throughout; `end` is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) struct Hole {
    pub(in crate::sched) start: Second,
    pub(in crate::sched) end: Second,
    pub(in crate::sched) node: u32,
    pub(in crate::sched) room: RoomId,
}

impl Hole {
    /// Seconds.
    #[inline]
    pub(in crate::sched) fn length(&self) -> u32 {
        self.end.since(self.start)
    }

    #[inline]
    fn key(&self) -> Key {
        u128::from(self.start.0) << 64 | u128::from(self.node) << 32 | u128::from(self.end.0)
    }

    #[inline]
    fn reach(&self) -> Reach {
        Reach { longest: self.length(), latest: self.end }
    }
}

/// Start, node and end in one number: what holes are sorted by.
type Key = u128;

/// How long the longest of some holes is, in seconds, and when the last of them ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    longest: u32,
    latest: Second,
}

impl Reach {
    #[inline]
    fn join(self, other: Self) -> Self {
        Self { longest: self.longest.max(other.longest), latest: self.latest.max(other.latest) }
    }

    /// Whether it would be less without something that reaches so far.
    fn rests_on(&self, other: Self) -> bool {
        self.longest == other.longest || self.latest == other.latest
    }

    /// Whether some hole may last for `duration` seconds and until `until`.
    #[inline]
    fn may_hold(&self, duration: u32, until: Second) -> bool {
        self.longest >= duration && self.latest >= until
    }
}

/// Some neighbours in the list, never none.
#[derive(Clone, Debug)]
struct Chunk {
    /// No hole of the chunk comes before this one did, and none of the chunk before it after.
    first: Key,
    reach: Reach,
    holes: Vec<Hole>,
}

impl Chunk {
    fn new(holes: Vec<Hole>) -> Self {
        let first = holes.first().map(Hole::key).unwrap_or_default();
        let mut chunk = Self { first, reach: Reach::default(), holes };
        chunk.measure();
        chunk
    }

    fn measure(&mut self) {
        self.reach = self.holes.iter().map(Hole::reach).fold(Reach::default(), Reach::join);
    }
}

/// Some neighbouring chunks, never none.
#[derive(Clone, Debug)]
struct Block {
    first: Key,
    reach: Reach,
    chunks: Vec<Chunk>,
}

impl Block {
    fn new(chunks: Vec<Chunk>) -> Self {
        let first = chunks.first().map(|chunk| chunk.first).unwrap_or_default();
        let mut block = Self { first, reach: Reach::default(), chunks };
        block.measure();
        block
    }

    fn measure(&mut self) {
        self.reach = self.chunks.iter().map(|chunk| chunk.reach).fold(Reach::default(), Reach::join);
    }
}

/// All holes, by start, then node, then end.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Holes {
    blocks: Vec<Block>,
}

impl Holes {
    /// Puts holes in order.
    pub(in crate::sched) fn new(mut holes: Vec<Hole>) -> Self {
        holes.sort_unstable_by_key(Hole::key);
        let mut chunks =
            holes.chunks(FULL / 2).map(|chunk| Chunk::new(roomy(chunk.iter().copied()))).peekable();
        let mut blocks = Vec::new();
        while chunks.peek().is_some() {
            blocks.push(Block::new(roomy(chunks.by_ref().take(FULL / 2))));
        }
        Self { blocks }
    }

    /// The holes in order, chunk by chunk; left out are those that begin at `before` or later, and chunks of which no
    /// hole lasts for `duration` seconds and until `until`.
    pub(in crate::sched) fn reaching(&self, duration: u32, until: Second, before: Second) -> Reaching<'_> {
        Reaching { blocks: self.blocks.iter(), chunks: [].iter(), duration, until, before }
    }

    /// Adds a hole.
    pub(in crate::sched) fn insert(&mut self, hole: Hole) {
        let Some((at, within)) = self.find(&hole) else {
            self.blocks.push(Block::new(roomy([Chunk::new(roomy([hole]))])));
            return;
        };
        let block = &mut self.blocks[at];
        block.reach = block.reach.join(hole.reach());
        block.first = block.first.min(hole.key());
        let chunk = &mut block.chunks[within];
        chunk.reach = chunk.reach.join(hole.reach());
        chunk.first = chunk.first.min(hole.key());
        let place = chunk.holes.partition_point(|other| other.key() < hole.key());
        chunk.holes.insert(place, hole);
        if chunk.holes.len() > FULL {
            let second = roomy(chunk.holes.drain(FULL / 2..));
            chunk.measure();
            block.chunks.insert(within + 1, Chunk::new(second));
        }
        if block.chunks.len() > FULL {
            let second = roomy(block.chunks.drain(FULL / 2..));
            block.measure();
            self.blocks.insert(at + 1, Block::new(second));
        }
    }

    /// Takes a hole out; nothing happens if it is not there.
    pub(in crate::sched) fn remove(&mut self, hole: &Hole) {
        let Some((at, within)) = self.find(hole) else { return };
        let block = &mut self.blocks[at];
        let chunk = &mut block.chunks[within];
        let Ok(place) = chunk.holes.binary_search_by_key(&hole.key(), Hole::key) else { return };
        chunk.holes.remove(place);
        let before = chunk.reach;
        // Where all last for ever, as on some shelves, one is as good as another.
        let as_far = chunk.holes.first().is_some_and(|other| other.reach() == before);
        if before.rests_on(hole.reach()) && !as_far {
            chunk.measure();
        }
        let shrank = chunk.reach != before;
        if chunk.holes.is_empty() {
            block.chunks.remove(within);
        } else if chunk.holes.len() < FULL / 4 {
            block.merge(within);
        }
        if block.chunks.is_empty() {
            self.blocks.remove(at);
        } else if shrank && block.reach.rests_on(before) {
            block.measure();
        }
    }

    /// Says that the room of a hole is another; nothing happens if it is not there.
    pub(in crate::sched) fn change(&mut self, hole: &Hole, room: RoomId) {
        let Some((at, within)) = self.find(hole) else { return };
        let holes = &mut self.blocks[at].chunks[within].holes;
        if let Ok(place) = holes.binary_search_by_key(&hole.key(), Hole::key) {
            holes[place].room = room;
        }
    }

    /// The block a hole belongs in and the chunk within it; `None` where there is none at all.
    fn find(&self, hole: &Hole) -> Option<(usize, usize)> {
        let key = hole.key();
        let at = self.blocks.partition_point(|block| block.first <= key).saturating_sub(1);
        let chunks = &self.blocks.get(at)?.chunks;
        Some((at, chunks.partition_point(|chunk| chunk.first <= key).saturating_sub(1)))
    }
}

/// See [`Holes::reaching`].
#[derive(Debug)]
pub(in crate::sched) struct Reaching<'a> {
    blocks: std::slice::Iter<'a, Block>,
    chunks: std::slice::Iter<'a, Chunk>,
    duration: u32,
    until: Second,
    before: Second,
}

impl<'a> Iterator for Reaching<'a> {
    type Item = &'a [Hole];

    #[inline]
    fn next(&mut self) -> Option<&'a [Hole]> {
        loop {
            for chunk in self.chunks.by_ref() {
                if starts(chunk.first) >= self.before {
                    return None;
                }
                if chunk.reach.may_hold(self.duration, self.until) {
                    return Some(&chunk.holes);
                }
            }
            let block = self.blocks.next().filter(|block| starts(block.first) < self.before)?;
            if block.reach.may_hold(self.duration, self.until) {
                self.chunks = block.chunks.iter();
            }
        }
    }
}

fn starts(key: Key) -> Second {
    Second(u32::try_from(key >> 64).expect("a start has 32 bits"))
}

/// A list with room for all that it may come to hold.
fn roomy<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::with_capacity(FULL + 1);
    list.extend(items);
    list
}

impl Block {
    /// Joins a small chunk with the next one, if that is small as well.
    fn merge(&mut self, at: usize) {
        let Some(next) = self.chunks.get(at + 1) else { return };
        if self.chunks[at].holes.len() + next.holes.len() <= FULL / 2 {
            let next = self.chunks.remove(at + 1);
            let chunk = &mut self.chunks[at];
            chunk.holes.extend(next.holes);
            chunk.reach = chunk.reach.join(next.reach);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holes_stay_in_order(changes in prop::collection::vec((0_u32..50, 1_u32..20, 0_u32..40), 0..1500)) {
            let mut holes = Holes::new(Vec::new());
            let mut model = std::collections::BTreeMap::new();
            for (start, length, node) in changes {
                let hole = Hole { start: Second(start), end: Second(start + length), node, room: RoomId(0) };
                if model.remove(&hole.key()).is_some() {
                    holes.remove(&hole);
                } else {
                    model.insert(hole.key(), hole);
                    holes.insert(hole);
                }
            }
            let listed: Vec<Hole> = holes.reaching(0, Second::BEGIN, Second::NEVER).flatten().copied().collect();
            prop_assert_eq!(&listed, &model.into_values().collect::<Vec<_>>());
            for (duration, until, before) in [(5, 30, 40), (12, 40, 45), (1, 60, 20)] {
                let (until, before) = (Second(until), Second(before));
                let wanted = |hole: &Hole| {
                    hole.start < before && hole.end >= until && hole.length() >= duration
                };
                let found = holes.reaching(duration, until, before).flatten().copied().filter(wanted);
                prop_assert_eq!(
                    found.collect::<Vec<_>>(),
                    listed.iter().copied().filter(wanted).collect::<Vec<_>>()
                );
            }
            for block in &holes.blocks {
                prop_assert!(!block.chunks.is_empty());
                let mut measured = block.clone();
                measured.measure();
                prop_assert_eq!(measured.reach, block.reach);
                for chunk in &block.chunks {
                    prop_assert!(!chunk.holes.is_empty());
                    prop_assert_eq!(Chunk::new(chunk.holes.clone()).reach, chunk.reach);
                }
            }
        }
    }
}
