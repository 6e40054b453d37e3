//! One forward sweep over the timeline: the earliest time at which some domain can hold a job.
//!
//! The sweep counts the holes that are open where it begins, then walks on by their start, over all shelves that may
//! hold enough, and keeps, for every node, the slots it has throughout the job's time if
//! the job started now, and their sums for every domain of the layer that has to hold the whole job. Only when a
//! domain has enough does anybody look closer: the caller tries to place the job then and there, and the sweep goes on
//! if the constraints that a sum cannot see stand in the way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use fixedbitset::FixedBitSet;

use crate::sched::scene::room::RoomId;
use crate::sched::timeline::Timeline;
use crate::text::time::Time;

use super::holes::Hole;
use super::shelves::Measure;

/// The number of a node that belongs to no domain of the layer.
pub(in crate::sched) const NOWHERE: u32 = u32::MAX;

/// What is looked for.
pub(in crate::sched) struct Search<'a> {
    /// Nodes that may be used.
    pub(in crate::sched) admitted: &'a FixedBitSet,
    /// How long, seconds.
    pub(in crate::sched) duration: u64,
    /// Not before.
    pub(in crate::sched) from: Time,
    /// Before this.
    pub(in crate::sched) until: Time,
    /// For every node the domain that has to hold the whole job, or [`NOWHERE`].
    pub(in crate::sched) domains: &'a [u32],
    /// Nodes wanted, at least.
    pub(in crate::sched) min_nodes: u32,
    /// Slots wanted, at least.
    pub(in crate::sched) min_slots: u64,
    /// What a slot takes of a node, at least.
    pub(in crate::sched) least: Measure,
    /// No node has more slots than that.
    pub(in crate::sched) most: u32,
}

/// What a node offers at the time a sweep has reached. There is one for every node, so it is kept small.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    /// Slots throughout the job's time.
    slots: u32,
    /// Until when it has them; 0 for a node that had no slot at any time of the sweep.
    until: Second,
}

/// Seconds since the beginning of a sweep; [`FOR_EVER`] and beyond is never.
type Second = u32;

/// More than a century.
const FOR_EVER: Second = Second::MAX;

/// The end of an offer and its node, in one number that sorts by the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End(u64);

impl End {
    fn new(until: Second, node: u32) -> Self {
        Self(u64::from(until) << 32 | u64::from(node))
    }

    fn parts(self) -> (Second, u32) {
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).expect("it was cut to 32 bits");
        (low(self.0 >> 32), low(self.0))
    }
}

/// What a sweep counts in; kept from one to the next so that nothing is allocated anew.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Counters {
    /// By node.
    offers: Vec<Offer>,
    /// Nodes that had a slot at some time of the sweep.
    listed: Vec<u32>,
    /// Nodes and slots of every domain.
    sums: Vec<(u32, u64)>,
    used: Vec<u32>,
    /// Domains that have enough.
    enough: u32,
    /// The domain that came to have enough last.
    latest: u32,
    /// Ends of offers, and whose: as they came until the first of them matters, then the earliest first.
    ends: BinaryHeap<Reverse<End>>,
    unsorted: Vec<Reverse<End>>,
    /// No offer ends before.
    next_end: Second,
    /// When the sweep began.
    begin: Time,
}

impl Counters {
    /// For so many nodes.
    pub(in crate::sched) fn new(nodes: usize) -> Self {
        Self { offers: vec![Offer::default(); nodes], next_end: FOR_EVER, ..Self::default() }
    }

    /// Nodes with their slots at the time the sweep has reached.
    pub(in crate::sched) fn nodes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let offers = self.listed.iter().map(|node| (*node, self.offers[*node as usize].slots));
        offers.filter(|(_, slots)| *slots > 0)
    }

    /// How many nodes had a slot at some time of the sweep.
    pub(in crate::sched) fn len(&self) -> usize {
        self.listed.len()
    }

    /// What a node has at the time the sweep has reached.
    pub(in crate::sched) fn slots_on(&self, node: u32) -> u32 {
        self.offers[node as usize].slots
    }

    /// Makes room for so many domains.
    pub(in crate::sched) fn fit(&mut self, domains: usize) {
        self.clear();
        self.sums.resize(self.sums.len().max(domains), (0, 0));
    }

    /// Asks the judge about a time at which one domain alone has enough, with what its nodes have then.
    pub(in crate::sched) fn ask(
        &mut self,
        search: &Search<'_>,
        timeline: &Timeline,
        nodes: impl Iterator<Item = u32>,
        at: Time,
        judge: &mut impl Judge,
    ) -> Found {
        self.clear();
        self.begin = at;
        let needed = at + search.duration;
        for node in nodes.filter(|node| search.admitted.contains(*node as usize)) {
            let lasting =
                timeline.holes_on(node).iter().filter(|hole| hole.start <= at && hole.end >= needed);
            let best = lasting.map(|hole| (judge.slots(hole.room), hole.end)).max();
            if let Some((slots, end)) = best.filter(|(slots, _)| *slots > 0) {
                self.set(search, node, slots, end);
            }
        }
        judge.accept(at, self, None)
    }

    fn clear(&mut self) {
        for node in self.listed.drain(..) {
            self.offers[node as usize] = Offer::default();
        }
        for domain in self.used.drain(..) {
            self.sums[domain as usize] = (0, 0);
        }
        self.enough = 0;
        self.ends.clear();
        self.unsorted.clear();
        self.next_end = FOR_EVER;
    }

    /// How long after the beginning a time is.
    #[inline]
    fn second(&self, time: Time) -> Second {
        Second::try_from(time.since(self.begin)).unwrap_or(FOR_EVER)
    }

    /// Gives a node other slots and keeps the sums right.
    #[inline]
    fn set(&mut self, search: &Search<'_>, node: u32, slots: u32, until: Time) {
        let until = self.second(until).max(1);
        let offer = &mut self.offers[node as usize];
        let before = offer.slots;
        if offer.until == 0 {
            self.listed.push(node);
        }
        *offer = Offer { slots, until };
        if slots > 0 && until < FOR_EVER {
            self.next_end = self.next_end.min(until);
            self.unsorted.push(Reverse(End::new(until, node)));
        }
        let domain = search.domains[node as usize];
        if domain == NOWHERE {
            return;
        }
        let sum = &mut self.sums[domain as usize];
        if *sum == (0, 0) {
            self.used.push(domain);
        }
        let had = search.enough(*sum);
        sum.0 = sum.0 - u32::from(before > 0) + u32::from(slots > 0);
        sum.1 = sum.1 - u64::from(before) + u64::from(slots);
        let has = search.enough(*sum);
        self.enough = self.enough - u32::from(had) + u32::from(has);
        if has && !had {
            self.latest = domain;
        }
    }

    /// The next node whose offer ends before `needed`, if one does.
    fn ended(&mut self, needed: Second) -> Option<u32> {
        if self.ends.is_empty() {
            // All at once, without sorting one by one.
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
            let offer = &self.offers[node as usize];
            if offer.slots > 0 && offer.until == until {
                return Some(node);
            }
        }
        self.next_end = FOR_EVER;
        None
    }
}

impl Search<'_> {
    #[inline]
    fn enough(&self, (nodes, slots): (u32, u64)) -> bool {
        nodes >= self.min_nodes && slots >= self.min_slots
    }

    /// Walks the timeline from `from` on. Wherever some domain has enough, the judge says whether that will do; the
    /// first time for which it does is the answer. Without one, `counters` tell what there was at the last time.
    pub(in crate::sched) fn sweep(
        &self,
        timeline: &Timeline,
        counters: &mut Counters,
        judge: &mut impl Judge,
    ) -> Option<Time> {
        counters.clear();
        counters.begin = self.from;
        let needed = self.from + self.duration;
        let mut later = Vec::new();
        let mut ahead = BinaryHeap::new();
        for shelf in timeline.holes().holding(self.least, self.duration) {
            let mut chunks = shelf.reaching(self.duration, needed, self.until);
            let open = |hole: &Hole| hole.start <= self.from;
            let next = chunks.find_map(|holes| {
                let all_open = holes.last().is_some_and(open);
                let at_once = if all_open { holes.len() } else { holes.partition_point(open) };
                for hole in &holes[..at_once] {
                    if hole.end >= needed {
                        self.offer(counters, judge, hole);
                    }
                }
                (at_once < holes.len()).then(|| holes[at_once..].iter())
            });
            let mut cursor = Cursor { chunks, holes: next.unwrap_or_default() };
            if let Some(hole) = cursor.next(self) {
                ahead.push(Reverse((hole.start, later.len())));
                later.push((hole, cursor));
            }
        }
        let mut now = self.from;
        let mut grew = true;
        while let Some(mut next) = ahead.peek_mut() {
            let Reverse((start, shelf)) = *next;
            let (at, cursor) = &mut later[shelf];
            let hole = *at;
            match cursor.next(self) {
                Some(follower) => {
                    *at = follower;
                    *next = Reverse((follower.start, shelf));
                    drop(next);
                }
                None => {
                    PeekMut::pop(next);
                }
            }
            let slots = judge.slots(hole.room);
            if slots == 0 {
                continue;
            }
            if start > now {
                if grew && let Some(answer) = self.look(timeline, counters, judge, now) {
                    return answer;
                }
                if start >= self.until {
                    return None;
                }
                now = start;
                grew = self.expire(timeline, counters, judge, now);
            }
            grew |= self.offer(counters, judge, hole);
        }
        if grew { self.look(timeline, counters, judge, now).flatten() } else { None }
    }

    /// Counts what a node has in a hole, if it is more than what it has already.
    #[inline]
    fn offer(&self, counters: &mut Counters, judge: &mut impl Judge, hole: &Hole) -> bool {
        let had = counters.offers[hole.node as usize].slots;
        if had >= self.most || !self.admitted.contains(hole.node as usize) {
            return false;
        }
        let slots = judge.slots(hole.room);
        if slots > had {
            counters.set(self, hole.node, slots, hole.end);
        }
        slots > had
    }

    /// Asks the caller, if some domain has enough. The outer `None` is "go on".
    fn look(
        &self,
        timeline: &Timeline,
        counters: &mut Counters,
        judge: &mut impl Judge,
        now: Time,
    ) -> Option<Option<Time>> {
        if counters.enough == 0 {
            return None;
        }
        self.expire(timeline, counters, judge, now);
        if counters.enough == 0 {
            return None;
        }
        let latest = counters.latest;
        let is_sole = counters.enough == 1 && self.enough(counters.sums[latest as usize]);
        match judge.accept(now, counters, is_sole.then_some(latest)) {
            Found::Yes => Some(Some(now)),
            Found::No => None,
            Found::GiveUp => Some(None),
        }
    }

    /// Nodes whose slots would not last long enough any more get what their other holes offer; says whether any node
    /// has more slots than before.
    fn expire(
        &self,
        timeline: &Timeline,
        counters: &mut Counters,
        judge: &mut impl Judge,
        now: Time,
    ) -> bool {
        let needed = now + self.duration;
        if counters.next_end >= counters.second(needed) {
            return false;
        }
        let mut grew = false;
        while let Some(node) = counters.ended(counters.second(needed)) {
            let holes = timeline.holes_on(node).iter();
            let lasting = holes.filter(|hole| hole.start <= now && hole.end >= needed);
            let best =
                lasting.map(|hole| (judge.slots(hole.room), hole.end)).max().unwrap_or((0, Time::ZERO));
            grew |= best.0 > counters.offers[node as usize].slots;
            counters.set(self, node, best.0, best.1);
        }
        grew
    }
}

/// A place among the holes of a shelf behind those that are open where a sweep begins.
struct Cursor<'a, I> {
    chunks: I,
    holes: std::slice::Iter<'a, Hole>,
}

impl<'a, I: Iterator<Item = &'a [Hole]>> Cursor<'a, I> {
    /// The next hole that is long enough.
    #[inline]
    fn next(&mut self, search: &Search<'_>) -> Option<&'a Hole> {
        let suits = |hole: &&Hole| {
            hole.end.since(hole.start) >= search.duration && search.admitted.contains(hole.node as usize)
        };
        loop {
            if let Some(hole) = self.holes.find(suits) {
                return Some(hole);
            }
            self.holes = self.chunks.next()?.iter();
        }
    }
}

/// What the caller of a sweep knows and the timeline does not.
pub(in crate::sched) trait Judge {
    /// How many slots a room has.
    fn slots(&mut self, room: RoomId) -> u32;

    /// Whether the job can start at a time at which some domain has enough: none but `sole`, where that is given.
    fn accept(&mut self, at: Time, counters: &Counters, sole: Option<u32>) -> Found;
}

/// What a judge says to a time at which a domain has enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) enum Found {
    /// It will do.
    Yes,
    /// Go on.
    No,
    /// It is not worth going on.
    GiveUp,
}
