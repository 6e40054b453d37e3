//! The future of every node as far as it is known: what is free when.
//!
//! A node's future is a list of *steps*: from that time on, this room. From the steps follow its *holes*: every longest
//! stretch of time over which some room is free throughout. A job that needs a node for a while fits if one hole has the
//! length and the room, and then nothing else has to be looked at. All holes of all nodes stand on a few shelves by their
//! room, and there by their start, so that "the earliest time at which some domain can hold this" is one sweep over them
//! with a counter for each domain; see [`sweep`].
//!
//! Where reservations of nodes and time say what a node shows for a while, that is shown over the steps: holes are those
//! of what is shown, bookings change what is below.
//!
//! Promises: nothing is ever booked twice, because a booking takes its amounts out of the steps; what was asked for
//! once and not found before some time is not found before it later in the same pass, because room only shrinks.

pub(super) mod free_for_ever;
pub(super) mod free_now;
pub(super) mod held;
pub(super) mod holding;
pub(super) mod hole_index;
pub(super) mod holes;
pub(super) mod licenses;
pub(super) mod needs;
pub(super) mod realm;
pub(super) mod second;
pub(super) mod start_bounds;
pub(super) mod step_function;
mod stretches;
pub(super) mod sweep;

use std::borrow::Cow;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::id::NodeId;
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::text::time::Time;

use hole_index::HoleIndex;
use holes::Hole;
use realm::Screen;
use second::{Second, length};
use stretches::{Free, all, is_near, nested};

/// A stretch of time, from one moment until another.
pub(super) type Stretch = (Second, Second);

/// From this moment on a node has this room, until its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeStep {
    from: Second,
    room: RoomId,
}

/// By time; those of most nodes lie where the node does.
type Steps = SmallVec<[FreeStep; 10]>;

/// What is free when, on every node.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    begin: Time,
    nodes: Vec<Future>,
    /// By node: what is shown over its steps. Empty where there are no reservations.
    screens: Vec<Vec<Screen>>,
    /// The holes of all nodes; none before the first search for some.
    shelves: Option<HoleIndex>,
    /// Nodes whose holes may not be those of their steps, and others.
    stale: Vec<u32>,
    shortest: u32,
    /// Nodes that have a hole from the beginning on that ends: something is planned there.
    limited: FixedBitSet,
    /// By node: what it has from the beginning on for ever.
    standing: Vec<Option<RoomId>>,
    /// Nodes that were changed, one after another, and where each stands there last.
    changed: Vec<u32>,
    last_change: Vec<usize>,
    /// How many of the changes gave something back.
    returns: usize,
    /// Holes that were cut in two, and what is left before and behind the cut; the shelves have yet to be told.
    gone: Vec<Hole>,
    before: Vec<Hole>,
    behind: Vec<Hole>,
    scratch: Scratch,
}

/// What is free when on one node.
#[derive(Clone, Debug, Default)]
struct Future {
    steps: Steps,
    /// The holes of the node, by start and end.
    holes: SmallVec<[Hole; 3]>,
    /// Whether rooms met of which neither contained the other; mostly such rooms meet again.
    mixed: bool,
    /// Where the holes may not be those of the steps.
    stale: Option<Stale>,
}

/// A change of steps that the holes do not show yet.
#[derive(Clone, Copy, Debug)]
struct Stale {
    /// Holes that are not near this stretch of time are as they were.
    near: Stretch,
    /// Whether all that was changed is that nothing is left in the stretch.
    is_cut: bool,
}

/// Lists that are used over and over.
#[derive(Clone, Debug, Default)]
struct Scratch {
    stretches: Vec<Free>,
    open: Vec<FreeStep>,
    holes: Vec<Hole>,
}

impl Timeline {
    /// A timeline from `begin` on, of `nodes` nodes that have nothing free yet. Holes shorter than `shortest` seconds are
    /// of no use to anybody and left out.
    pub(super) fn new(begin: Time, nodes: usize, shortest: u64) -> Self {
        Self {
            begin,
            nodes: vec![Future::default(); nodes],
            shortest: length(shortest.max(1)),
            limited: FixedBitSet::with_capacity(nodes),
            standing: vec![None; nodes],
            last_change: vec![0; nodes],
            ..Self::default()
        }
    }

    /// Says what a node will have: a room from each time on, by time, the first one from the beginning. Once for every
    /// node, before anything is booked.
    pub(super) fn set(&mut self, rooms: &mut Rooms, node: usize, steps: &[(Time, RoomId)]) {
        let begin = self.begin;
        let known = steps.iter().map(|(from, room)| FreeStep { from: Second::of(*from, begin), room: *room });
        self.nodes[node].steps = known.filter(|step| step.from < Second::LAST).collect();
        self.put_off(rooms, node, Stale { near: ALWAYS, is_cut: false });
    }

    /// Says what a node shows over its steps. For every node before [`Timeline::set`].
    pub(super) fn show(&mut self, node: usize, screens: Vec<Screen>) {
        if !screens.is_empty() {
            self.screens.resize(self.nodes.len(), Vec::new());
            self.screens[node] = screens;
        }
    }

    /// The steps of a node as they are seen.
    #[inline]
    fn seen(&self, rooms: &mut Rooms, node: usize) -> Cow<'_, [FreeStep]> {
        match self.screens_of(node) {
            [] => Cow::Borrowed(&self.nodes[node].steps),
            screens => Cow::Owned(behind(rooms, &self.nodes[node].steps, screens, self.begin)),
        }
    }

    /// When a time is on this timeline.
    pub(super) fn second(&self, time: Time) -> Second {
        Second::of(time, self.begin)
    }

    /// When a stretch of time is on this timeline.
    pub(super) fn stretch(&self, from: Time, to: Time) -> Stretch {
        (self.second(from), self.second(to))
    }

    /// What a node shows over its steps.
    #[inline]
    fn screens_of(&self, node: usize) -> &[Screen] {
        self.screens.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a node shows nothing at some time from `from` to `to`.
    fn hides(&self, node: usize, from: Time, to: Time) -> bool {
        self.screens_of(node).iter().any(|screen| screen.hides(from, to))
    }

    /// The nodes that show nothing at some time from `from` to `to`.
    pub(super) fn hidden(&self, from: Time, to: Time) -> FixedBitSet {
        (0..self.screens.len()).filter(|node| self.hides(*node, from, to)).collect()
    }

    /// Makes the holes those of the steps. To be called before [`Timeline::holes`], or [`Timeline::holes_on`] of a node that
    /// is not [limited](Timeline::limited), where anything was booked since.
    #[inline]
    pub(super) fn settle(&mut self, rooms: &mut Rooms) {
        if !self.stale.is_empty() || self.shelves.is_none() {
            self.settle_stale(rooms);
        }
    }

    #[inline(never)]
    fn settle_stale(&mut self, rooms: &mut Rooms) {
        let mut stale = std::mem::take(&mut self.stale);
        for node in stale.drain(..).map(|node| node as usize) {
            if let Some(stale) = self.nodes[node].stale.take() {
                self.settle_node(rooms, node, stale);
            }
        }
        self.stale = stale;
        self.behind.sort_unstable_by_key(Hole::key);
        self.shelve(rooms);
        if self.shelves.is_none() {
            let holes = self.nodes.iter().flat_map(|node| &node.holes).copied();
            self.shelves = Some(HoleIndex::new(rooms, holes));
        }
    }

    /// The holes of all nodes, shelf by shelf.
    pub(super) fn holes(&self) -> &HoleIndex {
        self.shelves.as_ref().expect("holes are settled before they are searched")
    }

    /// The holes of one node.
    pub(super) fn holes_on(&self, node: u32) -> &[Hole] {
        &self.nodes[node as usize].holes
    }

    /// Nodes on which something is planned, so that what they have now they have only for so long.
    pub(super) fn limited(&self) -> impl Iterator<Item = u32> + '_ {
        self.limited.ones().map(|node| u32::try_from(node).expect("nodes are numbered in u32"))
    }

    /// Whether there are no more such nodes than that.
    pub(super) fn limits_few(&self, most: usize) -> bool {
        self.limited.ones().take(most + 1).count() <= most
    }

    /// The moments at which some node has or shows something else than before, in no order.
    pub(super) fn steps(&self) -> impl Iterator<Item = Time> + '_ {
        let screens = self.screens.iter().flatten().flat_map(|screen| [screen.from, screen.to]);
        self.nodes.iter().flat_map(|node| &node.steps).map(|step| step.from.time(self.begin)).chain(screens)
    }

    /// By node: what it has from the beginning on for ever, if that is anything.
    pub(super) fn standing(&self) -> &[Option<RoomId>] {
        &self.standing
    }

    /// How many changes there were: bookings and returns, node by node.
    pub(super) fn changes(&self) -> usize {
        self.changed.len()
    }

    /// How many of the changes gave something back; as long as that is the same, room has only shrunk.
    pub(super) fn returns(&self) -> usize {
        self.returns
    }

    /// The nodes that were changed after the first so many changes, each once.
    pub(super) fn changed_since(&self, changes: usize) -> impl Iterator<Item = u32> + '_ {
        let changed = self.changes_since(changes).iter().copied().zip(changes..);
        changed.filter(|(node, at)| self.last_change[*node as usize] == *at).map(|(node, _)| node)
    }

    /// The nodes that were changed after the first so many changes, each as often as it was changed.
    pub(super) fn changes_since(&self, changes: usize) -> &[u32] {
        self.changed.get(changes..).unwrap_or_default()
    }

    /// Notes what a node has from the beginning on for ever, and whether it has more there that ends.
    fn find_limits(&mut self, node: usize) {
        let now = || self.nodes[node].holes.iter().take_while(|hole| hole.start == Second::BEGIN);
        self.limited.set(node, now().any(|hole| !hole.end.is_never()));
        self.standing[node] = now().filter(|hole| hole.end.is_never()).last().map(|hole| hole.room);
    }

    /// What a node has throughout a stretch of time.
    pub(super) fn room(&self, rooms: &mut Rooms, node: NodeId, (from, to): Stretch) -> Option<RoomId> {
        let steps = self.seen(rooms, node.index());
        let first = steps.iter().rposition(|step| step.from <= from)?;
        let mut room = steps[first].room;
        for step in steps[first + 1..].iter().take_while(|step| step.from < to) {
            room = rooms.common(room, step.room);
        }
        Some(room)
    }

    /// Whether a node that is in service has exactly `room` throughout a stretch of time. One that is out of service
    /// has no steps, and nothing is planned there that could be in the way.
    pub(super) fn is_throughout(&self, node: u32, from: Time, to: Time, room: RoomId) -> bool {
        if self.hides(node as usize, from, to) {
            return false;
        }
        let (from, to) = self.stretch(from, to);
        let steps = &self.nodes[node as usize].steps;
        let first = steps.iter().rposition(|step| step.from <= from).unwrap_or(0);
        steps.iter().skip(first).take_while(|step| step.from < to).all(|step| step.room == room)
    }

    /// Books what is taken of nodes for a stretch of time; nodes that were never spoken of here are left out.
    pub(super) fn take<'a>(
        &mut self,
        rooms: &mut Rooms,
        near: Stretch,
        taken: impl Iterator<Item = (NodeId, &'a [u64])>,
    ) {
        let known = self.nodes.len();
        // Nodes that are taken together are often alike.
        let mut last: Option<(RoomId, &[u64], RoomId)> = None;
        let mut minus = |rooms: &mut Rooms, room: RoomId, taken: &'a [u64]| match last {
            Some((like, same, left)) if like == room && std::ptr::eq(same, taken) => left,
            _ => last.insert((room, taken, rooms.minus(room, taken))).2,
        };
        for (NodeId(node), taken) in taken.filter(|(node, _)| node.index() < known) {
            if self.gone.last().is_some_and(|last| last.node >= node) {
                self.shelve(rooms);
            }
            let leaves = self.change(rooms, node, near, |rooms, room| minus(rooms, room, taken));
            self.put_off(rooms, node as usize, Stale { near, is_cut: !leaves });
        }
        self.shelve(rooms);
    }

    /// Tells the shelves of the holes that were cut, none of which is part of another, and of what is left; what is left
    /// behind is in order. They mostly stand next to each other: those that begin together where nodes were booked
    /// together before, those behind because they begin when the booking ends.
    fn shelve(&mut self, rooms: &Rooms) {
        if let Some(shelves) = &mut self.shelves {
            self.gone.sort_unstable_by_key(Hole::key);
            self.before.sort_unstable_by_key(Hole::key);
            shelves.remove(rooms, &self.gone);
            shelves.insert(rooms, &self.before);
            shelves.insert(rooms, &self.behind);
        }
        self.gone.clear();
        self.before.clear();
        self.behind.clear();
    }

    /// Undoes a booking.
    pub(super) fn give_back<'a>(
        &mut self,
        rooms: &mut Rooms,
        stretch: Stretch,
        taken: impl Iterator<Item = (NodeId, &'a [u64])>,
    ) {
        let known = self.nodes.len();
        for (NodeId(node), taken) in taken.filter(|(node, _)| node.index() < known) {
            self.change(rooms, node, stretch, |rooms, room| rooms.plus(room, taken));
            self.put_off(rooms, node as usize, Stale { near: ALWAYS, is_cut: false });
            self.returns += 1;
        }
    }

    /// Notes a change. Where it is one of the beginning, and what the node has there is plain without its holes, these stay
    /// as they are until they are asked for: where jobs are only started, nobody ever asks.
    fn put_off(&mut self, rooms: &mut Rooms, node: usize, stale: Stale) {
        if stale.near.0 > Second::BEGIN && self.nodes[node].stale.is_none() {
            return self.settle_node(rooms, node, stale);
        }
        let stale = self.nodes[node].stale.take().map_or(stale, |before| before.and(stale));
        let may_wait = stale.near.0 == Second::BEGIN && self.screens_of(node).is_empty();
        let standing = may_wait.then(|| throughout(rooms, &self.nodes[node].steps)).flatten();
        let Some(room) = standing else { return self.settle_node(rooms, node, stale) };
        self.nodes[node].stale = Some(stale);
        self.stale.push(u32::try_from(node).expect("nodes are numbered in u32"));
        self.limited.set(node, false);
        self.standing[node] = Some(room).filter(|room| rooms.usable(*room));
    }

    /// Makes the holes of one node those of its steps.
    fn settle_node(&mut self, rooms: &mut Rooms, node: usize, stale: Stale) {
        let begins = |holes: &[Hole]| holes.first().is_some_and(|hole| hole.start == Second::BEGIN);
        let may_limit = stale.near.0 == Second::BEGIN || begins(&self.nodes[node].holes);
        if !(stale.is_cut && self.cut(node, stale.near)) {
            self.renew(rooms, node, stale.near);
        }
        // What is booked for later says nothing of a beginning at which there is nothing.
        if may_limit {
            self.find_limits(node);
        }
    }

    /// Changes the steps of a node from one moment to another; says whether anything is left in them.
    fn change(
        &mut self,
        rooms: &mut Rooms,
        node: u32,
        (from, to): Stretch,
        mut change: impl FnMut(&mut Rooms, RoomId) -> RoomId,
    ) -> bool {
        self.last_change[node as usize] = self.changed.len();
        self.changed.push(node);
        let steps = &mut self.nodes[node as usize].steps;
        let first = steps.partition_point(|step| step.from < from);
        let last = first + steps[first..].partition_point(|step| step.from < to);
        open_step(steps, last, to);
        let last = last + usize::from(open_step(steps, first, from));
        let mut leaves = first == last;
        for step in &mut steps[first..last] {
            step.room = change(rooms, step.room);
            leaves |= rooms.usable(step.room);
        }
        // Only these, and the one behind them, may now be as the ones before.
        for at in (first.max(1)..=last).rev() {
            if steps.get(at).is_some_and(|step| step.room == steps[at - 1].room) {
                steps.remove(at);
            }
        }
        leaves
    }

    /// Cuts a stretch of time of which nothing is left out of the only hole that is near; says whether that is so. What
    /// is left before and after it is as large as it can be: whatever had more room there would be near as well.
    fn cut(&mut self, node: usize, (from, to): Stretch) -> bool {
        let is_screened = !self.screens_of(node).is_empty();
        let holes = &mut self.nodes[node].holes;
        let mut near = holes.iter().enumerate().filter(|(_, hole)| is_near((from, to), hole.start, hole.end));
        let (Some((at, hole)), None, false) = (near.next(), near.next(), is_screened) else { return false };
        let hole = *hole;
        let lasts = |piece: &Hole| piece.start < piece.end && piece.length() >= self.shortest;
        let before = Some(Hole { end: from.min(hole.end), ..hole }).filter(lasts);
        let after = Some(Hole { start: to.max(hole.start), ..hole }).filter(lasts);
        holes.remove(at);
        if let Some(after) = after {
            // Holes that are over when the stretch begins may have begun after this one.
            let next = at + holes[at..].iter().take_while(|hole| hole.start < to).count();
            holes.insert(next, after);
        }
        if let Some(before) = before {
            holes.insert(at, before);
        }
        if self.shelves.is_some() {
            self.gone.push(hole);
            self.before.extend(before);
            self.behind.extend(after);
        }
        true
    }

    /// Finds the holes of a node near a stretch of time again, and puts those that are new on the shelves in the place of
    /// those that are gone.
    fn renew(&mut self, rooms: &mut Rooms, node: usize, near: Stretch) {
        self.find_holes(rooms, node, near);
        let is_near = |hole: &Hole| is_near(near, hole.start, hole.end);
        let (before, after) = (&mut self.nodes[node].holes, &self.scratch.holes);
        if let Some(shelves) = &mut self.shelves {
            shelves.exchange(rooms, before.iter().filter(|hole| is_near(hole)), after);
        }
        before.retain(|hole| !is_near(hole));
        before.extend_from_slice(after);
        before.sort_unstable_by_key(|hole| (hole.start, hole.end));
    }

    /// Works out the holes of a node that are near a stretch of time, by start and end, into the scratch list.
    fn find_holes(&mut self, rooms: &mut Rooms, node: usize, near: Stretch) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let Scratch { stretches, open, holes } = &mut scratch;
        let steps = self.seen(rooms, node);
        stretches.clear();
        let mixed = self.nodes[node].mixed || !nested(rooms, &steps, open, stretches);
        if mixed {
            stretches.clear();
            all(rooms, &steps, near, stretches);
        }
        stretches.retain(|(start, end, room)| {
            is_near(near, *start, *end) && end.since(*start) >= self.shortest && rooms.usable(*room)
        });
        stretches.sort_unstable_by_key(|(start, end, _)| (*start, *end));
        let node = u32::try_from(node).expect("nodes are numbered in u32");
        holes.clear();
        holes.extend(stretches.iter().map(|&(start, end, room)| Hole { start, end, node, room }));
        drop(steps);
        self.nodes[node as usize].mixed = mixed;
        self.scratch = scratch;
    }
}

impl Stale {
    /// This change and another.
    fn and(self, other: Self) -> Self {
        let ((from, to), (start, end)) = (self.near, other.near);
        Self { near: (from.min(start), to.max(end)), is_cut: false }
    }
}

/// The room of the first step, if no later one has less of anything: then it is there for ever, and nothing else is there
/// from the beginning on.
fn throughout(rooms: &Rooms, steps: &[FreeStep]) -> Option<RoomId> {
    let (first, later) = steps.split_first()?;
    later.iter().all(|step| rooms.within(first.room, step.room)).then_some(first.room)
}

/// All of a timeline.
const ALWAYS: Stretch = (Second::BEGIN, Second::NEVER);

/// What is seen of steps behind screens.
#[cold]
fn behind(rooms: &mut Rooms, steps: &[FreeStep], screens: &[Screen], begin: Time) -> Vec<FreeStep> {
    let mut seen = Steps::from_slice(steps);
    let Some(class) = steps.first().map(|step| rooms.class_of(step.room)) else { return Vec::new() };
    let full = rooms.full(class);
    for screen in screens {
        let (from, to) = (Second::of(screen.from, begin), Second::of(screen.to, begin));
        for at in [from, to] {
            let next = seen.partition_point(|step| step.from < at);
            open_step(&mut seen, next, at);
        }
        let room = if screen.shows_all { full } else { rooms.nothing(class) };
        for step in seen.iter_mut().filter(|step| from <= step.from && step.from < to) {
            step.room = room;
        }
    }
    seen.dedup_by_key(|step| step.room);
    seen.into_vec()
}

/// Makes a step begin at `at`, before which there are `next` steps, if the node's future is known then and none does;
/// says whether it was made.
#[inline]
fn open_step(steps: &mut Steps, next: usize, at: Second) -> bool {
    let begins = steps.get(next).is_some_and(|step| step.from == at);
    match next.checked_sub(1).map(|before| steps[before].room) {
        Some(room) if !begins && at < Second::LAST => {
            steps.insert(next, FreeStep { from: at, room });
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::node::{NodeGres, NodeShape};

    fn amount() -> impl Strategy<Value = [u64; 3]> {
        [0_u64..4, 0_u64..4, 0_u64..4]
    }

    proptest! {
        #[test]
        fn holes_may_be_asked_for_late(
            steps in prop::collection::vec(prop::collection::btree_map(1_u64..30, amount(), 0..4), 3),
            first in prop::collection::vec(amount(), 3),
            bookings in prop::collection::vec((0_u32..3, 0_u64..30, 1_u64..20, amount(), 0_u32..6), 1..25),
        ) {
            let mut rooms = Rooms::default();
            let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 4 }];
            let shape = NodeShape { cpus: 4, memory_mb: 4, gres, ..NodeShape::default() };
            let class = rooms.class(&Arc::new(shape));
            let mut early = Timeline::new(Time(100), 3, 2);
            for (node, (first, later)) in first.iter().zip(&steps).enumerate() {
                let steps = std::iter::once((&0, first)).chain(later);
                let steps: Vec<(Time, RoomId)> =
                    steps.map(|(at, amount)| (Time(100) + *at, rooms.intern(class, amount))).collect();
                early.set(&mut rooms, node, &steps);
            }
            let mut late = early.clone();
            for (node, from, lasts, taken, kind) in bookings {
                // Half of them begin at once, as those of jobs that start do.
                let from = Time(100) + if kind % 2 == 0 { 0 } else { from };
                // Some are of several nodes, the last one twice now and then.
                let nodes = [node, (node + 1).min(2), (node + 2).min(2)];
                let taken: &[u64] = if kind == 5 { &[0; 3] } else { &taken };
                let all = nodes[..1 + kind as usize % 3].iter().map(|node| (NodeId(*node), taken));
                for timeline in [&mut early, &mut late] {
                    let stretch = timeline.stretch(from, from + lasts);
                    match kind {
                        5 => timeline.give_back(&mut rooms, stretch, all.clone()),
                        _ => timeline.take(&mut rooms, stretch, all.clone()),
                    }
                }
                early.settle(&mut rooms);
                prop_assert_eq!(&early.standing, &late.standing);
                prop_assert_eq!(&early.limited, &late.limited);
                for node in late.limited() {
                    prop_assert_eq!(early.holes_on(node), late.holes_on(node));
                }
                if kind == 4 {
                    late.settle(&mut rooms);
                }
            }
            late.settle(&mut rooms);
            let shelved = |timeline: &Timeline| {
                let holes = timeline.holes().holding(hole_index::Measure::default(), 0..=u32::MAX);
                let listed = holes.flat_map(|holes| holes.reaching(0, Second::BEGIN, Second::NEVER).flatten());
                let mut all: Vec<_> =
                    listed.map(|hole| (hole.node, hole.start, hole.end, hole.room)).collect();
                all.sort_unstable();
                all
            };
            let holes = |timeline: &Timeline| {
                let all = timeline.nodes.iter().flat_map(|node| &node.holes);
                all.map(|hole| (hole.node, hole.start, hole.end, hole.room)).collect::<Vec<_>>()
            };
            prop_assert_eq!(shelved(&early), holes(&early));
            prop_assert_eq!(shelved(&late), holes(&early));
            prop_assert_eq!(holes(&late), holes(&early));
        }
    }
}
