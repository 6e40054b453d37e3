//! The earliest time at which some small domain has enough nodes, by counting nodes and nothing else.
//!
//! A job that takes one share of each of its nodes, and has to be in one leaf, mostly finds a single leaf that has enough
//! first, and is placed there whatever the rest of the machine looks like. So nothing is kept here but which nodes had a
//! hole that would do, and how many of these each domain has. Holes are noted a window of time at once, in any order, and none
//! is taken back when it ends: a domain never has more nodes than it seems to have. One that seems to have enough is looked
//! at itself, hole by hole, and either that says when, or its count is put right.

use std::ops::Range;

use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Pos};
use crate::sched::request::domains::Kind;

use super::Timeline;
use super::holes::Hole;
use super::second::Second;
use super::standing::Counts;
use super::sweep::{Cursor, SHELVES, Search};
use super::tails::{Earliest, SMALL};
use crate::sched::request::lens::UNKNOWN;

/// Holes that a window of time should have, about.
const WINDOW: usize = 64;
/// Seconds that a window has at first.
const PACE: u32 = 600;

/// What is counted in, kept from one search to the next so that nothing is allocated anew.
#[derive(Clone, Debug)]
pub(crate) struct Scout {
    tally: Tally,
    /// Seconds of a window. However many there are, the answer is the same.
    pace: u32,
    /// The holes of one domain, node by node, and moments at which some of them begin.
    holes: Vec<Hole>,
    moments: Vec<Second>,
}

/// Nodes by domain.
#[derive(Clone, Debug)]
struct Tally {
    /// A bit for each position, set where there was a hole that would do.
    seen: Vec<u64>,
    /// How many of these every domain has: never fewer than there are at the time that was reached.
    counts: Vec<u32>,
    /// Domains whose count has become enough.
    near: Vec<u32>,
}

impl Scout {
    /// For so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        let seen = vec![0; nodes.div_ceil(BITS)];
        Self {
            tally: Tally { seen, counts: Vec::new(), near: Vec::new() },
            pace: PACE,
            holes: Vec::new(),
            moments: Vec::new(),
        }
    }

    /// When some domain has enough nodes with a slot each for a search, which asks for nothing else: [`Second::NEVER`] for not
    /// before the search ends; `None` where the domains are too large for this.
    pub(crate) fn earliest(
        &mut self,
        search: &Search<'_>,
        timeline: &Timeline,
        slots: &mut impl Counts,
    ) -> Option<Earliest> {
        if search.domains.kind != Kind::Domains || search.domains.largest > SMALL {
            return None;
        }
        self.tally.clear(search.domains.count);
        let needed = search.from.after(search.duration);
        let mut cursors: SmallVec<[Cursor<'_>; SHELVES]> = SmallVec::new();
        for shelf in timeline.holes().holding(search.least, search.duration) {
            let chunks = shelf.reaching(search.duration, needed, search.until);
            let see = |open: &[Hole]| self.tally.see(search, slots.known(), open, needed);
            cursors.push(Cursor::behind(chunks, search.from, see));
        }
        self.tally.sum_up(search);
        let mut window = (search.from, search.from.after(1));
        loop {
            if let Some(found) = self.look(search, timeline, window, slots) {
                return Some(found);
            }
            let next = cursors.iter_mut().filter_map(Cursor::next_start).min();
            let Some(next) = next.filter(|next| *next < search.until) else {
                return Some(Earliest { at: Second::NEVER, sole: None });
            };
            window = (window.1, next.after(self.pace).min(search.until));
            let mut shown = 0;
            for cursor in &mut cursors {
                shown += cursor.before(window.1, |holes| self.tally.count(search, slots.known(), holes));
            }
            self.pace = match shown {
                few if few < WINDOW / 2 => self.pace.saturating_mul(2),
                many if many > WINDOW * 2 => (self.pace / 2).max(1),
                _ => self.pace,
            };
        }
    }

    /// Looks closer at the domains that seem to have enough within a window: the earliest of them, if one has.
    fn look(
        &mut self,
        search: &Search<'_>,
        timeline: &Timeline,
        window: (Second, Second),
        slots: &mut impl Counts,
    ) -> Option<Earliest> {
        let mut best: Option<Earliest> = None;
        while let Some(domain) = self.tally.near.pop() {
            // No other can be earlier, nor make it the only one.
            if best.is_some_and(|best| best.at == window.0 && best.sole.is_none()) {
                break;
            }
            self.list(domain, search, timeline, window, slots);
            let enough =
                |at: &&Second| serving(&self.holes, **at, search).count() >= search.min_nodes.max(1) as usize;
            match (self.moments.iter().find(enough), &mut best) {
                (Some(at), Some(best)) if *at == best.at => best.sole = None,
                (Some(at), Some(best)) if *at > best.at => {}
                (Some(at), _) => best = Some(Earliest { at: *at, sole: Some(domain) }),
                (None, Some(_)) => {}
                (None, None) => self.put_right(domain, search, window.1),
            }
        }
        best
    }

    /// Lists the holes of a domain that would do within a window, and the moments at which there is more of them.
    fn list(
        &mut self,
        domain: u32,
        search: &Search<'_>,
        timeline: &Timeline,
        (begun, horizon): (Second, Second),
        slots: &mut impl Counts,
    ) {
        self.holes.clear();
        self.moments.clear();
        for node in nodes_of(search, domain) {
            for hole in timeline.holes_on(node) {
                let from = hole.start.max(begun);
                if from < horizon && hole.end >= from.after(search.duration) && slots.slots(hole.room) > 0 {
                    self.holes.push(*hole);
                    self.moments.push(from);
                }
            }
        }
        self.moments.sort_unstable();
        self.moments.dedup();
    }

    /// Counts for the listed domain what it has right before the end of a window.
    fn put_right(&mut self, domain: u32, search: &Search<'_>, horizon: Second) {
        let Tally { seen, counts, .. } = &mut self.tally;
        for pos in search.lens.fabric.domain(DomainId(domain)).range() {
            seen[pos / BITS] &= !(1 << (pos % BITS));
        }
        let serving = serving(&self.holes, Second(horizon.0 - 1), search);
        let positions = serving.filter_map(|node| search.lens.pos(node));
        counts[domain as usize] = 0;
        for pos in positions {
            seen[pos.index() / BITS] |= 1 << (pos.index() % BITS);
            counts[domain as usize] += 1;
        }
    }
}

impl Tally {
    /// Counts from the beginning, for so many domains.
    fn clear(&mut self, domains: usize) {
        self.seen.fill(0);
        self.near.clear();
        self.counts.clear();
        self.counts.resize(domains, 0);
    }

    /// Sees holes that are open where a search begins, and last until `needed`; what domains have of them is summed up later.
    /// Rooms of which nobody knows what they have are taken as if they had something.
    fn see(&mut self, search: &Search<'_>, known: &[u16], holes: &[Hole], needed: Second) {
        let (seats, seen) = (search.lens.seats(), self.seen.as_mut_slice());
        for hole in holes {
            let slots = known.get(hole.room.index()).copied().unwrap_or(UNKNOWN);
            let pos = seats[hole.node as usize] as usize;
            // Which holes will do is anybody's guess, so that it is not asked but worked out.
            let serves = (slots != 0) & (hole.end >= needed);
            if let Some(block) = seen.get_mut(pos / BITS) {
                *block |= u64::from(serves) << (pos % BITS);
            }
        }
    }

    /// Works out what domains have of the positions that were seen.
    fn sum_up(&mut self, search: &Search<'_>) {
        let enough = search.min_nodes.max(1);
        for id in &search.domains.ids {
            let count = ones(&self.seen, search.lens.fabric.domain(*id).range());
            self.counts[id.index()] = count;
            if count >= enough {
                self.near.push(id.0);
            }
        }
    }

    /// Counts what domains have of holes that begin later.
    fn count(&mut self, search: &Search<'_>, known: &[u16], holes: &[Hole]) {
        let (seats, of_node) = (search.lens.seats(), search.domains.of_node.as_slice());
        for hole in holes {
            let slots = known.get(hole.room.index()).copied().unwrap_or(UNKNOWN);
            let pos = seats[hole.node as usize] as usize;
            let Some(block) = self.seen.get_mut(pos / BITS) else { continue };
            let serves = (slots != 0) & (hole.length() >= search.duration);
            let new = (u64::from(serves) << (pos % BITS)) & !*block;
            *block |= new;
            if new != 0 {
                self.add(of_node[hole.node as usize], search);
            }
        }
    }

    /// Counts one node more of a domain.
    #[inline]
    fn add(&mut self, domain: u32, search: &Search<'_>) {
        let Some(count) = self.counts.get_mut(domain as usize) else { return };
        *count += 1;
        if *count == search.min_nodes.max(1) {
            self.near.push(domain);
        }
    }
}

/// How many bits of a range are set.
#[inline]
fn ones(blocks: &[u64], range: Range<usize>) -> u32 {
    if range.is_empty() {
        return 0;
    }
    let last = range.end - 1;
    let (first, low, high) =
        (range.start / BITS, u64::MAX << (range.start % BITS), u64::MAX >> (BITS - 1 - last % BITS));
    if first == last / BITS {
        return (blocks[first] & low & high).count_ones();
    }
    let between = blocks[first + 1..last / BITS].iter().map(|block| block.count_ones());
    (blocks[first] & low).count_ones() + between.sum::<u32>() + (blocks[last / BITS] & high).count_ones()
}

/// The nodes of which some hole would do at a moment; `holes` are node by node.
fn serving(holes: &[Hole], at: Second, search: &Search<'_>) -> impl Iterator<Item = u32> {
    let needed = at.after(search.duration);
    let serving = holes.iter().filter(move |hole| hole.start <= at && hole.end >= needed);
    let mut last = None;
    serving.map(|hole| hole.node).filter(move |node| last.replace(*node) != Some(*node))
}

/// Nodes that may be used of a domain.
fn nodes_of(search: &Search<'_>, domain: u32) -> impl Iterator<Item = u32> {
    let fabric = &search.lens.fabric;
    let positions = fabric.domain(DomainId(domain)).range();
    let nodes = positions.map(|index| fabric.node(Pos(u32::try_from(index).expect("positions are u32"))).0);
    nodes.filter(|node| search.lens.pos(*node).is_some())
}

/// Positions that share a number of [`Tally::seen`].
const BITS: usize = u64::BITS as usize;
