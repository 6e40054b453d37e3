//! The planned future of every node: the amounts that are free, and when.
//!
//! The future of a node is a list of *steps*: from a given time on, this amount is free. The *holes* of the
//! node follow from its steps: every longest stretch of time over which some amount is free throughout. A job
//! fits the node for a time if and only if one hole has the length and the amount. The holes of all nodes are
//! on shelves by amount, sorted by start. So one sweep with a counter for each domain finds the earliest time
//! at which some domain can hold a job; see [`sweep`].
//!
//! Where reservations of nodes decide what a node shows for a while, a screen covers its steps: holes follow
//! from what is shown, bookings change the steps below.
//!
//! No amount is booked twice, because a booking takes it out of the steps. Amounts only shrink within a pass.
//! So a request that finds no start before some time finds none before that time later in the same pass.

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

/// The amount that a node has from a moment on, until its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeStep {
    from: Second,
    room: RoomId,
}

/// Steps by time; most nodes have so few that they are stored inline.
type Steps = SmallVec<[FreeStep; 10]>;

/// The free amounts of every node over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    begin: Time,
    nodes: Vec<Future>,
    /// For each node, the screens over its steps. Empty if there are no reservations.
    screens: Vec<Vec<Screen>>,
    /// The holes of all nodes; `None` before the first search.
    shelves: Option<HoleIndex>,
    /// Nodes whose holes may be out of date; may include others.
    stale: Vec<u32>,
    shortest: u32,
    /// Nodes with a hole that begins now and ends, because something is planned there.
    limited: FixedBitSet,
    /// For each node, the amount that it has from now on for ever.
    standing: Vec<Option<RoomId>>,
    /// The nodes that were changed, in order of change, and the index of each node's last change.
    changed: Vec<u32>,
    last_change: Vec<usize>,
    /// Number of changes that gave something back.
    returns: usize,
    /// Holes that were cut in two, and the parts before and behind the cut, which the shelves do not have
    /// yet.
    gone: Vec<Hole>,
    before: Vec<Hole>,
    behind: Vec<Hole>,
    scratch: Scratch,
}

/// The future of one node.
#[derive(Clone, Debug, Default)]
struct Future {
    steps: Steps,
    /// The holes of the node, by start and end.
    holes: SmallVec<[Hole; 3]>,
    /// True if two adjacent amounts were found of which neither contains the other; such amounts mostly meet
    /// again.
    mixed: bool,
    /// The stretch of time in which the holes are out of date.
    stale: Option<Stale>,
}

/// A change of steps that the holes do not include yet.
#[derive(Clone, Copy, Debug)]
struct Stale {
    /// Holes that are not near this stretch of time are up to date.
    near: Stretch,
    /// True if the only change is that nothing is left in the stretch.
    is_cut: bool,
}

/// Reused lists.
#[derive(Clone, Debug, Default)]
struct Scratch {
    stretches: Vec<Free>,
    open: Vec<FreeStep>,
    holes: Vec<Hole>,
}

impl Timeline {
    /// A timeline from `begin` on for `nodes` nodes that have nothing free yet. Holes shorter than `shortest`
    /// seconds are left out, because no job can use them.
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

    /// Sets the amounts that a node has, by time, the first from the beginning. Call this once for every
    /// node, before anything is booked.
    pub(super) fn set(&mut self, rooms: &mut Rooms, node: usize, steps: &[(Time, RoomId)]) {
        let begin = self.begin;
        let known = steps.iter().map(|(from, room)| FreeStep { from: Second::of(*from, begin), room: *room });
        self.nodes[node].steps = known.filter(|step| step.from < Second::LAST).collect();
        self.put_off(rooms, node, Stale { near: ALWAYS, is_cut: false });
    }

    /// Sets the screens over the steps of a node. Call this before [`Timeline::set`] of any node.
    pub(super) fn show(&mut self, node: usize, screens: Vec<Screen>) {
        if !screens.is_empty() {
            self.screens.resize(self.nodes.len(), Vec::new());
            self.screens[node] = screens;
        }
    }

    /// The steps of a node behind its screens.
    #[inline]
    fn seen(&self, rooms: &mut Rooms, node: usize) -> Cow<'_, [FreeStep]> {
        match self.screens_of(node) {
            [] => Cow::Borrowed(&self.nodes[node].steps),
            screens => Cow::Owned(behind(rooms, &self.nodes[node].steps, screens, self.begin)),
        }
    }

    /// Converts a time to this timeline.
    pub(super) fn second(&self, time: Time) -> Second {
        Second::of(time, self.begin)
    }

    /// Converts a stretch of time to this timeline.
    pub(super) fn stretch(&self, from: Time, to: Time) -> Stretch {
        (self.second(from), self.second(to))
    }

    /// The screens over the steps of a node.
    #[inline]
    fn screens_of(&self, node: usize) -> &[Screen] {
        self.screens.get(node).map_or(&[], Vec::as_slice)
    }

    /// True if a node shows nothing at some time from `from` to `to`.
    fn hides(&self, node: usize, from: Time, to: Time) -> bool {
        self.screens_of(node).iter().any(|screen| screen.hides(from, to))
    }

    /// The nodes that show nothing at some time from `from` to `to`.
    pub(super) fn hidden(&self, from: Time, to: Time) -> FixedBitSet {
        (0..self.screens.len()).filter(|node| self.hides(*node, from, to)).collect()
    }

    /// Updates all holes. Call this after bookings and before [`Timeline::holes`], or before
    /// [`Timeline::holes_on`] of a node that is not [limited](Timeline::limited).
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

    /// The holes of all nodes, by shelf.
    pub(super) fn holes(&self) -> &HoleIndex {
        self.shelves.as_ref().expect("holes are settled before they are searched")
    }

    /// The holes of one node.
    pub(super) fn holes_on(&self, node: u32) -> &[Hole] {
        &self.nodes[node as usize].holes
    }

    /// Nodes with planned use, which have their current amount only for a limited time.
    pub(super) fn limited(&self) -> impl Iterator<Item = u32> + '_ {
        self.limited.ones().map(|node| u32::try_from(node).expect("nodes are numbered in u32"))
    }

    /// True if there are at most `most` such nodes.
    pub(super) fn limits_few(&self, most: usize) -> bool {
        self.limited.ones().take(most + 1).count() <= most
    }

    /// The moments at which the amount or the screen of some node changes, unordered.
    pub(super) fn steps(&self) -> impl Iterator<Item = Time> + '_ {
        let screens = self.screens.iter().flatten().flat_map(|screen| [screen.from, screen.to]);
        self.nodes.iter().flat_map(|node| &node.steps).map(|step| step.from.time(self.begin)).chain(screens)
    }

    /// For each node, the amount that it has from the beginning on for ever; `None` if it has none.
    pub(super) fn standing(&self) -> &[Option<RoomId>] {
        &self.standing
    }

    /// Number of changes so far: bookings and returns, node by node.
    pub(super) fn changes(&self) -> usize {
        self.changed.len()
    }

    /// Number of changes that gave something back; while the number stays the same, amounts only shrink.
    pub(super) fn returns(&self) -> usize {
        self.returns
    }

    /// The nodes that were changed after the first `changes` changes, each once.
    pub(super) fn changed_since(&self, changes: usize) -> impl Iterator<Item = u32> + '_ {
        let changed = self.changes_since(changes).iter().copied().zip(changes..);
        changed.filter(|(node, at)| self.last_change[*node as usize] == *at).map(|(node, _)| node)
    }

    /// The nodes that were changed after the first `changes` changes, each once per change.
    pub(super) fn changes_since(&self, changes: usize) -> &[u32] {
        self.changed.get(changes..).unwrap_or_default()
    }

    /// Updates the amount that a node has from the beginning on for ever, and whether it has more for a
    /// limited time.
    fn find_limits(&mut self, node: usize) {
        let now = || self.nodes[node].holes.iter().take_while(|hole| hole.start == Second::BEGIN);
        self.limited.set(node, now().any(|hole| !hole.end.is_never()));
        self.standing[node] = now().filter(|hole| hole.end.is_never()).last().map(|hole| hole.room);
    }

    /// The amount that a node has throughout a stretch of time; `None` if the node has no steps then.
    pub(super) fn room(&self, rooms: &mut Rooms, node: NodeId, (from, to): Stretch) -> Option<RoomId> {
        let steps = self.seen(rooms, node.index());
        let first = steps.iter().rposition(|step| step.from <= from)?;
        let mut room = steps[first].room;
        for step in steps[first + 1..].iter().take_while(|step| step.from < to) {
            room = rooms.common(room, step.room);
        }
        Some(room)
    }

    /// True if a node in service has exactly `room` throughout a stretch of time. A node out of service has
    /// no steps, and nothing is planned there, so the answer is true, too.
    pub(super) fn is_throughout(&self, node: u32, from: Time, to: Time, room: RoomId) -> bool {
        if self.hides(node as usize, from, to) {
            return false;
        }
        let (from, to) = self.stretch(from, to);
        let steps = &self.nodes[node as usize].steps;
        let first = steps.iter().rposition(|step| step.from <= from).unwrap_or(0);
        steps.iter().skip(first).take_while(|step| step.from < to).all(|step| step.room == room)
    }

    /// Books amounts of nodes for a stretch of time; unknown nodes are ignored.
    pub(super) fn take<'a>(
        &mut self,
        rooms: &mut Rooms,
        near: Stretch,
        taken: impl Iterator<Item = (NodeId, &'a [u64])>,
    ) {
        let known = self.nodes.len();
        // Nodes that are booked together often have equal amounts.
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

    /// Updates the shelves with the holes that were cut and their remaining parts. Holes are mostly adjacent:
    /// those that begin together were booked together before, and the parts behind begin at the end of the
    /// booking.
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

    /// Notes a change. A change at the beginning can wait if the node's amount there is clear without its
    /// holes: where jobs are only started, the holes are never used.
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

    /// Updates the holes of one node from its steps.
    fn settle_node(&mut self, rooms: &mut Rooms, node: usize, stale: Stale) {
        let begins = |holes: &[Hole]| holes.first().is_some_and(|hole| hole.start == Second::BEGIN);
        let may_limit = stale.near.0 == Second::BEGIN || begins(&self.nodes[node].holes);
        if !(stale.is_cut && self.cut(node, stale.near)) {
            self.renew(rooms, node, stale.near);
        }
        // A later booking does not affect the beginning if nothing begins there.
        if may_limit {
            self.find_limits(node);
        }
    }

    /// Changes the steps of a node in a stretch of time. Returns whether anything is left in it.
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
        // Only these steps, and the one behind them, may equal the step before.
        for at in (first.max(1)..=last).rev() {
            if steps.get(at).is_some_and(|step| step.room == steps[at - 1].room) {
                steps.remove(at);
            }
        }
        leaves
    }

    /// Cuts a stretch in which nothing is left out of the only hole near it. Returns whether that was
    /// possible. The remaining parts are as long as possible, because any larger amount there would belong to
    /// a hole near the stretch.
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
            // Holes that end before the stretch begins may begin after this one.
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

    /// Recomputes the holes of a node near a stretch of time, and updates the shelves.
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

    /// Computes the holes of a node near a stretch of time, by start and end, into the scratch list.
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
    /// Combines this change with another.
    fn and(self, other: Self) -> Self {
        let ((from, to), (start, end)) = (self.near, other.near);
        Self { near: (from.min(start), to.max(end)), is_cut: false }
    }
}

/// The amount of the first step if no later step has less of anything; then the amount is free for ever, and
/// is the only one that begins now.
fn throughout(rooms: &Rooms, steps: &[FreeStep]) -> Option<RoomId> {
    let (first, later) = steps.split_first()?;
    later.iter().all(|step| rooms.within(first.room, step.room)).then_some(first.room)
}

/// The whole timeline.
const ALWAYS: Stretch = (Second::BEGIN, Second::NEVER);

/// The steps behind the screens.
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

/// Makes a step begin at `at`, given the number of steps before it, unless one begins there or the node has
/// no earlier step. Returns whether a step was added.
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
            let class = rooms.class(&Arc::new(shape), &[]);
            let mut early = Timeline::new(Time(100), 3, 2);
            for (node, (first, later)) in first.iter().zip(&steps).enumerate() {
                let steps = std::iter::once((&0, first)).chain(later);
                let steps: Vec<(Time, RoomId)> =
                    steps.map(|(at, amount)| (Time(100) + *at, rooms.intern(class, amount))).collect();
                early.set(&mut rooms, node, &steps);
            }
            let mut late = early.clone();
            for (node, from, lasts, taken, kind) in bookings {
                // Half of the bookings begin at once, as those of starting jobs do.
                let from = Time(100) + if kind % 2 == 0 { 0 } else { from };
                // Some bookings are of several nodes, at times with the last node twice.
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
