//! The holes of one shelf by start, in chunks and blocks of chunks with the reach of their holes.

use crate::sched::inventory::amounts::RoomId;

use super::second::Second;

/// The largest number of holes in a chunk, and of chunks in a block, before it is split.
const FULL: usize = 48;

/// A stretch of time over which a node has an amount free throughout; `end` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) start: Second,
    pub(crate) end: Second,
    pub(crate) node: u32,
    pub(crate) room: RoomId,
}

impl Hole {
    /// The length in seconds.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.end.since(self.start)
    }

    #[inline]
    pub(super) fn key(&self) -> Key {
        u128::from(self.start.0) << 64 | u128::from(self.node) << 32 | u128::from(self.end.0)
    }

    #[inline]
    fn reach(&self) -> Reach {
        Reach { longest: self.length(), latest: self.end }
    }
}

/// Start, node and end in one number, by which holes are sorted.
pub(super) type Key = u128;

/// The length of the longest of several holes in seconds, and the time at which the last of them ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    longest: u32,
    latest: Second,
}

impl Reach {
    #[inline]
    fn of(holes: &[Hole]) -> Self {
        holes.iter().map(Hole::reach).fold(Self::default(), Self::join)
    }

    #[inline]
    fn join(self, other: Self) -> Self {
        Self { longest: self.longest.max(other.longest), latest: self.latest.max(other.latest) }
    }

    /// True if this reach could be smaller without a hole of the other reach.
    fn rests_on(&self, other: Self) -> bool {
        self.longest == other.longest || self.latest == other.latest
    }

    /// True if some hole may last for `duration` seconds and until `until`.
    #[inline]
    fn may_hold(&self, duration: u32, until: Second) -> bool {
        self.longest >= duration && self.latest >= until
    }
}

/// Adjacent holes of the list, at least one.
#[derive(Clone, Debug)]
struct Chunk {
    /// A lower bound on the keys of the chunk, above all keys of the chunk before.
    first: Key,
    reach: Reach,
    holes: Vec<Hole>,
}

impl Chunk {
    fn new(holes: Vec<Hole>) -> Self {
        Self { first: holes.first().map(Hole::key).unwrap_or_default(), reach: Reach::of(&holes), holes }
    }

    fn measure(&mut self) {
        self.reach = Reach::of(&self.holes);
    }
}

/// Adjacent chunks, at least one.
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

    /// Joins a small chunk with the next one, if that is small, too.
    fn merge(&mut self, at: usize) {
        let Some(next) = self.chunks.get(at + 1) else { return };
        if self.chunks[at].holes.len() + next.holes.len() <= FULL / 2 {
            let next = self.chunks.remove(at + 1);
            let chunk = &mut self.chunks[at];
            chunk.holes.extend(next.holes);
            chunk.reach = chunk.reach.join(next.reach);
        }
    }

    fn measure(&mut self) {
        self.reach = self.chunks.iter().map(|chunk| chunk.reach).fold(Reach::default(), Reach::join);
    }
}

/// Holes, by start, then node, then end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    blocks: Vec<Block>,
}

impl Holes {
    /// Sorts holes into chunks.
    pub(crate) fn new(mut holes: Vec<Hole>) -> Self {
        holes.sort_unstable_by_key(Hole::key);
        let mut chunks =
            holes.chunks(FULL / 2).map(|chunk| Chunk::new(roomy(chunk.iter().copied()))).peekable();
        let mut blocks = Vec::new();
        while chunks.peek().is_some() {
            blocks.push(Block::new(roomy(chunks.by_ref().take(FULL / 2))));
        }
        Self { blocks }
    }

    /// The holes in order, chunk by chunk, that begin before `before`; without chunks of which no hole lasts
    /// for `duration` seconds and until `until`.
    pub(crate) fn reaching(&self, duration: u32, until: Second, before: Second) -> Reaching<'_> {
        Reaching { blocks: self.blocks.iter(), chunks: [].iter(), duration, until, before }
    }

    /// Adds holes, which are sorted. Adjacent ones are added together, because a booking leaves as many holes
    /// as it takes nodes.
    pub(crate) fn insert(&mut self, holes: &[Hole]) {
        let mut left = holes;
        while let Some(first) = left.first() {
            let Some((at, within)) = self.find(first) else {
                self.blocks.push(Block::new(roomy([Chunk::new(roomy([*first]))])));
                left = &left[1..];
                continue;
            };
            let place =
                self.blocks[at].chunks[within].holes.partition_point(|other| other.key() < first.key());
            let count = if left.len() == 1 { 1 } else { self.fitting((at, within, place), left) };
            let (run, rest) = left.split_at(count);
            self.put((at, within, place), run);
            left = rest;
        }
    }

    /// Number of the given holes, at least one, that come before the next hole behind a place and fit into
    /// its chunk.
    fn fitting(&self, (at, within, place): (usize, usize, usize), holes: &[Hole]) -> usize {
        let chunk = &self.blocks[at].chunks[within];
        let behind = || self.blocks[at].chunks.get(within + 1).map(|next| next.first);
        let behind = || behind().or_else(|| self.blocks.get(at + 1).map(|next| next.first));
        let next = chunk.holes.get(place).map(Hole::key).or_else(behind);
        let most = holes.len().min(FULL + 1 - chunk.holes.len());
        next.map_or(most, |next| holes[..most].partition_point(|hole| hole.key() < next).max(1))
    }

    /// Inserts adjacent holes at a place.
    fn put(&mut self, (at, within, place): (usize, usize, usize), run: &[Hole]) {
        let first = run[0].key();
        let reach = Reach::of(run);
        let block = &mut self.blocks[at];
        block.reach = block.reach.join(reach);
        block.first = block.first.min(first);
        let chunk = &mut block.chunks[within];
        chunk.reach = chunk.reach.join(reach);
        chunk.first = chunk.first.min(first);
        match run {
            [hole] => chunk.holes.insert(place, *hole),
            run => {
                chunk.holes.extend_from_slice(run);
                chunk.holes[place..].rotate_right(run.len());
            }
        }
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

    /// Removes holes, which are sorted; holes that are not there are ignored.
    pub(crate) fn remove(&mut self, holes: &[Hole]) {
        let mut left = holes;
        while let Some(first) = left.first() {
            let gone = self.find(first).map_or(0, |(at, within)| self.cut_out((at, within), left));
            left = &left[gone.max(1)..];
        }
    }

    /// Removes the first of the given holes from a chunk, with those that follow in both. Returns their
    /// number.
    fn cut_out(&mut self, (at, within): (usize, usize), gone: &[Hole]) -> usize {
        let block = &mut self.blocks[at];
        let chunk = &mut block.chunks[within];
        let Ok(place) = chunk.holes.binary_search_by_key(&gone[0].key(), Hole::key) else { return 0 };
        let behind = chunk.holes[place + 1..].iter().zip(&gone[1..]);
        let count = 1 + behind.take_while(|(own, gone)| own.key() == gone.key()).count();
        let reach = Reach::of(&gone[..count]);
        chunk.holes.copy_within(place + count.., place);
        chunk.holes.truncate(chunk.holes.len() - count);
        let before = chunk.reach;
        // On a shelf of holes that all last for ever, every hole has the same reach.
        let as_far = chunk.holes.first().is_some_and(|other| other.reach() == before);
        if before.rests_on(reach) && !as_far {
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
        count
    }

    /// Changes the amount of a hole; does nothing if the hole is not there.
    pub(crate) fn change(&mut self, hole: &Hole, room: RoomId) {
        let Some((at, within)) = self.find(hole) else { return };
        let holes = &mut self.blocks[at].chunks[within].holes;
        if let Ok(place) = holes.binary_search_by_key(&hole.key(), Hole::key) {
            holes[place].room = room;
        }
    }

    /// The block and chunk that a hole belongs to; `None` if there are no blocks.
    fn find(&self, hole: &Hole) -> Option<(usize, usize)> {
        let key = hole.key();
        let at = self.blocks.partition_point(|block| block.first <= key).saturating_sub(1);
        let chunks = &self.blocks.get(at)?.chunks;
        Some((at, chunks.partition_point(|chunk| chunk.first <= key).saturating_sub(1)))
    }
}

/// The chunks that [`Holes::reaching`] returns.
#[derive(Debug)]
pub(crate) struct Reaching<'a> {
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

/// A list with capacity for the largest number of items.
fn roomy<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::with_capacity(FULL + 1);
    list.extend(items);
    list
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holes_stay_in_order(
            changes in prop::collection::vec((0_u32..50, 1_u32..20, 0_u32..40, 1_u32..4, 0_u32..6), 0..700),
        ) {
            let mut holes = Holes::new(Vec::new());
            let mut model = std::collections::BTreeMap::new();
            for (start, length, node, apart, more) in changes {
                // At times more holes come at once than a chunk holds.
                let count = if more == 5 { 100 } else { more };
                let hole = |node| Hole { start: Second(start), end: Second(start + length), node, room: RoomId(0) };
                let all = (0..=count).map(|index| hole(node + index * apart));
                let (gone, come): (Vec<Hole>, Vec<Hole>) = all.partition(|hole| model.contains_key(&hole.key()));
                for hole in &gone {
                    model.remove(&hole.key());
                }
                holes.remove(&gone);
                model.extend(come.iter().map(|hole| (hole.key(), *hole)));
                holes.insert(&come);
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
