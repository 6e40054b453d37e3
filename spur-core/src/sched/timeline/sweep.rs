//! One forward sweep over the timeline: the earliest time at which some domain can hold a job.
//!
//! The sweep counts the holes that are open where it begins, then visits holes by start over all shelves that
//! may hold enough. For every node it keeps the slots that last for the job's time from the current moment.
//! It also keeps their sums for every domain of the layer that has to hold the job. When a domain has enough,
//! the caller tries to place the job at that moment. If constraints that sums do not cover prevent the
//! placement, the sweep goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::sched::place::Slots;
use crate::sched::request::domains::{Domains, Kind};
use crate::sched::request::eligible_nodes::{EligibleNodes, NOWHERE, UNKNOWN};
use crate::sched::timeline::Timeline;

use super::hole_index::Measure;
use super::holes::{Hole, Reaching};
use super::needs::Seen;
use super::second::Second;

/// Number of shelves that a sweep usually visits.
const SHELVES: usize = 32;

/// The job to find a time for, and the nodes and times that it may use.
pub(crate) struct SweepRequest<'a> {
    pub(crate) timeline: &'a Timeline,
    /// The nodes that may be used, and their positions.
    pub(crate) eligible: &'a EligibleNodes,
    /// The run time of the job in seconds.
    pub(crate) duration: u32,
    /// The first moment that is allowed.
    pub(crate) from: Second,
    /// The moment before which the job must start.
    pub(crate) until: Second,
    /// The domains of which one has to hold the whole job.
    pub(crate) domains: &'a Domains,
    /// The nodes and slots that one of these domains must have.
    pub(crate) wanted: Wanted,
    /// The least that a slot takes of a node.
    pub(crate) least: Measure,
    /// True if the job takes one slot of each node, so that further slots of a node do not help.
    pub(crate) counts_nodes: bool,
    /// True if the job closes whole leaves, so that a node which becomes idle matters even if it may not be
    /// used.
    pub(crate) whole_leaves: bool,
}

/// The fewest nodes and slots of a domain that may hold the whole job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) nodes: u32,
    pub(crate) slots: u64,
}

impl Wanted {
    /// True if these numbers of nodes and slots are enough.
    #[inline]
    pub(crate) fn is_met(self, (nodes, slots): (u32, u64)) -> bool {
        nodes >= self.nodes && slots >= self.slots
    }
}

/// The sums of every domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainSums {
    /// Number of nodes and slots of every domain.
    pub(crate) sums: Vec<(u32, u64)>,
    /// Number of domains that have enough.
    pub(crate) enough: u32,
}

impl DomainSums {
    /// Updates the sums for a node of a domain whose slots have changed; a node in no domain is ignored.
    #[inline]
    pub(crate) fn change(&mut self, wanted: Wanted, domain: u32, before: u32, after: u32) {
        if domain == NOWHERE {
            return;
        }
        let sum = &mut self.sums[domain as usize];
        let had = wanted.is_met(*sum);
        sum.0 = sum.0 - u32::from(before > 0) + u32::from(after > 0);
        sum.1 = sum.1 - u64::from(before) + u64::from(after);
        self.enough = self.enough - u32::from(had) + u32::from(wanted.is_met(*sum));
    }
}

/// The answer to a time at which some domain has enough: go on, or end with this time or with none.
pub(crate) type Verdict = ControlFlow<Option<Second>>;

/// A function that judges a time, given the slots of amounts and the slots of positions at that time.
pub(crate) type Judge<'j> = dyn FnMut(&mut Seen<'_>, Second, &mut Slots) -> Verdict + 'j;

/// A moment and a number, packed so that marks sort by the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark(u64);

impl Mark {
    fn new(at: Second, number: u32) -> Self {
        Self(u64::from(at.0) << 32 | u64::from(number))
    }

    fn parts(self) -> (Second, u32) {
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).expect("it was cut to 32 bits");
        (Second(low(self.0 >> 32)), low(self.0))
    }
}

/// The counters of a sweep, reused from one sweep to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// The slots that every position has for the job's time if the job started at the moment that the sweep
    /// has reached.
    slots: Slots,
    /// True if the sums above the leaves are out of date.
    is_stale: bool,
    /// The fabric of these slots.
    fabric: Option<Arc<Fabric>>,
    /// The previous slots, of another fabric or another kind.
    spare: (Slots, Option<Arc<Fabric>>),
    /// For each node, the end of its slots; the beginning where they last for ever.
    until: Vec<Second>,
    /// Positions that have slots at the beginning and for ever and that are not counted in their leaves yet.
    begun: Vec<Pos>,
    /// Holes at the beginning whose slots are not known yet.
    unknown: Vec<Hole>,
    /// Nodes whose slots had an end at some time during the sweep.
    ending: Vec<u32>,
    domains: DomainSums,
    /// The ends of offers with their nodes: unsorted until the first of them matters, then in a heap.
    ends: BinaryHeap<Reverse<Mark>>,
    unsorted: Vec<Reverse<Mark>>,
    /// A lower bound on the end of every offer.
    next_end: Second,
    /// The start of the next hole of every visited shelf.
    ahead: BinaryHeap<Reverse<Mark>>,
}

impl Counters {
    /// Counters for `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { until: vec![Second::BEGIN; nodes], next_end: Second::NEVER, ..Self::default() }
    }

    /// The slots at the time that the last sweep has reached.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Prepares the slots for a need of whole nodes (one slot each), or of tasks.
    pub(crate) fn fit(&mut self, eligible: &EligibleNodes, whole: bool) {
        let suits = |slots: &Slots, fabric: &Option<Arc<Fabric>>| {
            slots.are_whole() == whole
                && fabric.as_ref().is_some_and(|known| Arc::ptr_eq(known, &eligible.fabric))
        };
        if !suits(&self.slots, &self.fabric) {
            let (slots, fabric) = &mut self.spare;
            std::mem::swap(&mut self.slots, slots);
            std::mem::swap(&mut self.fabric, fabric);
        }
        if !suits(&self.slots, &self.fabric) {
            self.slots = Slots::none(&eligible.fabric, whole);
            self.fabric = Some(Arc::clone(&eligible.fabric));
        }
    }

    /// The slots of the nodes of one domain at a moment at which it is the only one that has enough.
    pub(crate) fn of_domain(
        &mut self,
        search: &SweepRequest<'_>,
        domain: DomainId,
        at: Second,
        seen: &mut Seen<'_>,
    ) -> &mut Slots {
        self.clear(search);
        let needed = at.after(search.duration);
        let fabric = &search.eligible.fabric;
        for index in fabric.domain(domain).range() {
            let pos = Pos::at(index);
            let node = fabric.node(pos).0;
            if search.eligible.pos(node).is_none() {
                continue;
            }
            let holes = search.timeline.holes_on(node).iter();
            let lasting = holes.filter(|hole| hole.start <= at && hole.end >= needed);
            if let Some(slots) = lasting.map(|hole| seen.slots(hole.room)).max() {
                self.slots.set(fabric, pos, slots);
            }
        }
        &mut self.slots
    }

    fn clear(&mut self, search: &SweepRequest<'_>) {
        self.slots.clear();
        self.is_stale = false;
        let sums = &mut self.domains.sums;
        sums.resize(sums.len().max(search.domains.count), (0, 0));
        for node in self.ending.drain(..) {
            self.until[node as usize] = Second::BEGIN;
        }
        self.domains.enough = 0;
        self.ends.clear();
        self.unsorted.clear();
        self.next_end = Second::NEVER;
    }

    /// Counts the holes that begin at the beginning and last for ever. They are most of the holes that a
    /// search meets, so leaves are updated afterwards, all at once.
    fn begin_for_ever(&mut self, search: &SweepRequest<'_>, holes: &[Hole], known: &[u16]) {
        let seats = search.eligible.seats();
        let Self { slots, unknown, begun, .. } = self;
        let offers = holes.iter().map(|hole| {
            let slots = known.get(hole.room.index()).copied().unwrap_or(UNKNOWN);
            if slots == UNKNOWN {
                unknown.push(*hole);
            }
            // A node that is nowhere has no position.
            (Pos(seats[hole.node as usize]), if slots == UNKNOWN { 0 } else { slots })
        });
        slots.raise_all(offers, begun);
    }

    /// Counts a hole at the beginning, if it has more slots than the node already has. Sums of domains are
    /// updated later.
    #[inline]
    fn begin_with(&mut self, search: &SweepRequest<'_>, hole: &Hole, slots: u32) {
        let Some(pos) = search.eligible.pos(hole.node) else { return };
        let Some(had) = self.slots.raise(&search.eligible.fabric, pos, slots) else { return };
        // The first hole of a node, if it lasts for ever, replaces no offer that ends.
        if had > 0 || !hole.end.is_never() {
            self.lasts(hole.node, hole.end);
        }
    }

    /// Computes the sums of domains after the holes at the beginning are counted.
    fn sum_up(&mut self, search: &SweepRequest<'_>) {
        let Self { slots, domains, .. } = self;
        self.is_stale = search.domains.are_leaves;
        if !self.is_stale {
            slots.sum_up(&search.eligible.fabric);
        }
        let mut count = |domain: usize, sum| {
            domains.sums[domain] = sum;
            domains.enough += u32::from(search.wanted.is_met(sum));
        };
        match search.domains.kind {
            Kind::Whole => count(0, slots.all()),
            Kind::Nodes => {
                for node in 0..search.domains.count {
                    let pos = u32::try_from(node).ok().and_then(|node| search.eligible.pos(node));
                    let slots = pos.map_or(0, |pos| slots.at(pos));
                    count(node, (u32::from(slots > 0), u64::from(slots)));
                }
            }
            Kind::Domains => {
                let ids = search.domains.ids.iter();
                ids.for_each(|id| count(id.index(), (slots.nodes_of(*id), slots.of(*id))));
            }
        }
    }

    /// Notes the end of a node's slots.
    #[inline]
    fn lasts(&mut self, node: u32, until: Second) {
        let known = &mut self.until[node as usize];
        if !until.is_never() {
            if *known == Second::BEGIN {
                self.ending.push(node);
            }
            *known = until;
            self.next_end = self.next_end.min(until);
            self.unsorted.push(Reverse(Mark::new(until, node)));
        } else if *known != Second::BEGIN {
            *known = until;
        }
    }

    /// Sets the slots of a node and updates the sums.
    #[inline]
    fn set(&mut self, search: &SweepRequest<'_>, node: u32, pos: Pos, slots: u32, until: Second) {
        let before = self.slots.put(&search.eligible.fabric, pos, slots);
        self.is_stale = true;
        self.lasts(node, until);
        self.domains.change(search.wanted, search.domains.of_node[node as usize], before, slots);
    }

    /// Counts a hole, if it has more slots than the node already has. Returns whether a job that did not fit
    /// may fit then.
    #[inline]
    fn offer(&mut self, search: &SweepRequest<'_>, hole: &Hole, slots: u32) -> bool {
        let Some(pos) = search.eligible.pos(hole.node) else { return false };
        let Some(before) = self.slots.raise(&search.eligible.fabric, pos, slots) else { return false };
        self.is_stale = true;
        self.lasts(hole.node, hole.end);
        self.domains.change(search.wanted, search.domains.of_node[hole.node as usize], before, slots);
        !search.counts_nodes || before == 0
    }

    /// Updates the sums above leaves, if any slots have changed.
    fn settle(&mut self, search: &SweepRequest<'_>) {
        if std::mem::take(&mut self.is_stale) {
            self.slots.sum_up(&search.eligible.fabric);
        }
    }

    /// The next node whose offer ends before `needed`, if any.
    fn ended(&mut self, needed: Second) -> Option<u32> {
        if self.ends.is_empty() {
            // Building the heap in one step is faster than adding marks one by one.
            let spare = std::mem::take(&mut self.ends).into_vec();
            self.ends = BinaryHeap::from(std::mem::replace(&mut self.unsorted, spare));
        } else {
            self.ends.extend(self.unsorted.drain(..));
        }
        while let Some(&Reverse(end)) = self.ends.peek() {
            let (until, node) = end.parts();
            if until >= needed {
                self.next_end = until;
                return None;
            }
            self.ends.pop();
            if self.until[node as usize] == until {
                return Some(node);
            }
        }
        self.next_end = Second::NEVER;
        None
    }
}

impl SweepRequest<'_> {
    /// Visits the timeline from `from` on. Wherever some domain has enough, the judge decides; the first time
    /// that it accepts is the answer. After a search of one moment without an answer, `counters` has the
    /// slots of that moment.
    pub(crate) fn sweep(
        &self,
        counters: &mut Counters,
        seen: &mut Seen<'_>,
        judge: &mut Judge<'_>,
    ) -> Option<Second> {
        let mut ahead = std::mem::take(&mut counters.ahead);
        ahead.clear();
        let answer = self.walk(counters, &mut ahead, seen, judge);
        counters.ahead = ahead;
        counters.settle(self);
        answer
    }

    fn walk(
        &self,
        counters: &mut Counters,
        ahead: &mut BinaryHeap<Reverse<Mark>>,
        seen: &mut Seen<'_>,
        judge: &mut Judge<'_>,
    ) -> Option<Second> {
        counters.clear(self);
        let needed = self.from.after(self.duration);
        let mut later: SmallVec<[_; SHELVES]> = SmallVec::new();
        for shelf in self.timeline.holes().lasting(self.least) {
            let chunks = shelf.reaching(self.duration, needed, self.until);
            let see = |open: &[Hole]| counters.begin_for_ever(self, open, seen.known.by_room());
            let cursor = Cursor::behind(chunks, self.from, see);
            later.extend(cursor.with_next(self));
        }
        counters.slots.tell_leaves(&self.eligible.fabric, &counters.begun);
        counters.begun.clear();
        while let Some(hole) = counters.unknown.pop() {
            counters.begin_with(self, &hole, seen.slots(hole.room));
        }
        for shelf in self.timeline.holes().ending(self.least, self.duration) {
            let chunks = shelf.reaching(self.duration, needed, self.until);
            let cursor = Cursor::behind(chunks, self.from, |open| {
                for hole in open.iter().filter(|hole| hole.end >= needed) {
                    counters.begin_with(self, hole, seen.slots(hole.room));
                }
            });
            later.extend(cursor.with_next(self));
        }
        ahead.extend((0..).zip(&later).map(|(shelf, (hole, _))| Reverse(Mark::new(hole.start, shelf))));
        counters.sum_up(self);
        let mut now = self.from;
        let mut grew = true;
        while let Some(mut next) = ahead.peek_mut() {
            let (start, shelf) = next.0.parts();
            let (at, cursor) = &mut later[shelf as usize];
            let hole = *at;
            match cursor.next(self) {
                Some(follower) => {
                    *at = follower;
                    *next = Reverse(Mark::new(follower.start, shelf));
                    drop(next);
                }
                None => {
                    PeekMut::pop(next);
                }
            }
            let (slots, rooms) = (seen.slots(hole.room), seen.rooms);
            let empties = self.whole_leaves && rooms.full(rooms.class_of(hole.room)) == hole.room;
            if slots == 0 && !empties {
                continue;
            }
            if start > now {
                if grew && let ControlFlow::Break(answer) = self.look(counters, seen, judge, now) {
                    return answer;
                }
                if start >= self.until {
                    return None;
                }
                now = start;
                grew = false;
            }
            grew |= counters.offer(self, hole, slots) || empties;
        }
        if grew { self.look(counters, seen, judge, now).break_value().flatten() } else { None }
    }

    /// Asks the judge if some domain has enough. Offers that have ended are still counted before: a domain
    /// may then seem to have enough, but never too little.
    fn look(
        &self,
        counters: &mut Counters,
        seen: &mut Seen<'_>,
        judge: &mut Judge<'_>,
        now: Second,
    ) -> Verdict {
        if counters.domains.enough == 0 {
            return ControlFlow::Continue(());
        }
        // In most cases no offer has ended.
        if counters.next_end < now.after(self.duration) {
            self.expire(counters, seen, now);
        }
        if counters.domains.enough == 0 {
            return ControlFlow::Continue(());
        }
        counters.settle(self);
        judge(seen, now, &mut counters.slots)
    }

    /// Gives nodes whose slots end too early the slots of their other holes.
    fn expire(&self, counters: &mut Counters, seen: &mut Seen<'_>, now: Second) {
        let needed = now.after(self.duration);
        while let Some(node) = counters.ended(needed) {
            let holes = self.timeline.holes_on(node).iter();
            let lasting = holes.filter(|hole| hole.start <= now && hole.end >= needed);
            let best = lasting.map(|hole| (seen.slots(hole.room), hole.end)).max();
            let (slots, end) = best.unwrap_or((0, Second::NEVER));
            if let Some(pos) = self.eligible.pos(node) {
                counters.set(self, node, pos, slots, end);
            }
        }
    }
}

/// A position among the holes of a shelf, behind those that are open where a sweep begins.
struct Cursor<'a> {
    chunks: Reaching<'a>,
    holes: std::slice::Iter<'a, Hole>,
}

impl<'a> Cursor<'a> {
    /// Calls `see` with the holes that are open at a moment, and returns the position behind them.
    fn behind(mut chunks: Reaching<'a>, at: Second, mut see: impl FnMut(&'a [Hole])) -> Self {
        let open = |hole: &Hole| hole.start <= at;
        let next = chunks.find_map(|holes| {
            let all_open = holes.last().is_some_and(open);
            let (before, behind) =
                holes.split_at(if all_open { holes.len() } else { holes.partition_point(open) });
            see(before);
            (!behind.is_empty()).then(|| behind.iter())
        });
        Self { chunks, holes: next.unwrap_or_default() }
    }

    /// Advances to the next hole that is long enough; `None` if there is none.
    fn with_next(mut self, search: &SweepRequest<'_>) -> Option<(&'a Hole, Self)> {
        Some((self.next(search)?, self))
    }

    /// The next hole that is long enough.
    #[inline]
    fn next(&mut self, search: &SweepRequest<'_>) -> Option<&'a Hole> {
        let suits = |hole: &&Hole| {
            hole.length() >= search.duration
                && (search.eligible.pos(hole.node).is_some() || search.whole_leaves)
        };
        loop {
            if let Some(hole) = self.holes.find(suits) {
                return Some(hole);
            }
            self.holes = self.chunks.next()?.iter();
        }
    }
}
