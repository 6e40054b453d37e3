//! Where a job fits now, and when a head of the queue fits: answered from what is held, without a timeline.
//!
//! As long as nothing is reserved on a node, what it has free only grows as its jobs end. So the earliest start of a
//! head is found by walking the planned ends; and whether a job fits now depends on nothing but what nobody holds, and,
//! if it lasts long enough to meet a reservation, on what that leaves of its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::Pos;
use crate::sched::request::wish::Stage;
use crate::sched::scene::lens::{DomainTable, Domains, Lens};
use crate::sched::scene::room::{CPUS, RoomId};
use crate::sched::timeline::held::Held;
use crate::sched::timeline::licenses::Licenses;
use crate::sched::timeline::stairs::{Family, Size, Smaller, Stairs};
use crate::sched::timeline::sweep::NOWHERE;
use crate::text::time::Time;

use super::super::place::{self, Ask, Lost, Placement, Slots, View};
use super::super::prospect::Lenses;
use super::super::request::{Need, Slot};
use super::super::scene::{Scene, others_of_leaves};
use super::super::state::{Hit, Hunt, MAX_TRIES, Part, RIVALRIES, RIVALS, layer};

/// A number of slots that has not been worked out.
const UNKNOWN: u32 = u32::MAX;
/// Lenses that are kept.
const MOST_LENSES: usize = 1_024;
/// Needs of which it is kept how often they fit which room.
const MOST_NEEDS: usize = 4_096;

/// What a reservation leaves of its nodes to jobs that last until it begins.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// When it begins.
    pub(super) from: Time,
    pub(super) left: BTreeMap<NodeId, Box<[u64]>>,
}

/// What has been found out about needs, domains and sizes.
#[derive(Debug, Default)]
pub(super) struct Finder {
    pub(super) lenses: Lenses,
    numbers: BTreeMap<Need, usize>,
    needs: Vec<Need>,
    smaller: Smaller,
    /// By need, by room: slots.
    slots: Vec<Vec<u32>>,
    domains: DomainTable,
    stairs: Stairs,
    tally: Tally,
}

/// What one pass knows besides.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) now: Time,
    pub(super) licenses: Licenses,
    /// What nodes have of which jobs should have given something back by now: their room when those are gone.
    pub(super) overdue: BTreeMap<NodeId, Box<[u64]>>,
    /// Starts with which rivals were named.
    pub(super) rivalries: u32,
}

/// Where a job is looked for.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) scene: &'a Scene,
    pub(super) held: &'a Held,
    /// The reservation in the way, if there is one.
    pub(super) shadow: Option<&'a Shadow>,
}

impl Ground<'_> {
    /// What a node has for all of `seconds` from now on, if that is not simply what nobody holds.
    fn unusual(&self, moment: &Moment, node: NodeId, seconds: u64) -> Option<Box<[u64]>> {
        let shadow = self.shadow.filter(|shadow| moment.now + seconds > shadow.from);
        let left = shadow.and_then(|shadow| shadow.left.get(&node));
        let overdue = moment.overdue.get(&node);
        if left.is_none() && overdue.is_none() {
            return None;
        }
        let idle = self.held.rooms().amount(self.held.idle(node));
        let mut room: Box<[u64]> = overdue.map_or_else(|| idle.into(), Clone::clone);
        if let Some(left) = left {
            room.iter_mut().zip(left).for_each(|(room, left)| *room = (*room).min(*left));
        }
        Some(room)
    }

    /// What a job can be given of a node at a start: at this moment no more than nobody holds.
    fn room(&self, moment: &Moment, node: NodeId, hit: &Hit, seconds: u64) -> Box<[u64]> {
        if hit.start > moment.now {
            return self.held.at(node, hit.start);
        }
        let idle = self.held.rooms().amount(self.held.idle(node));
        let Some(mut room) = self.unusual(moment, node, seconds) else { return idle.into() };
        if hit.starts {
            room.iter_mut().zip(idle).for_each(|(room, idle)| *room = (*room).min(*idle));
        }
        room
    }

    /// Positions that are not entirely free from `at` on for `seconds`.
    fn occupied(&self, moment: &Moment, lens: &Lens, at: Time, seconds: u64) -> FixedBitSet {
        let fabric = &lens.fabric;
        let free = |index: &usize| {
            let node = fabric.node(Pos(u32::try_from(*index).expect("positions are u32")));
            let full = self.held.full(node);
            let is_idle = self.held.rooms().amount(self.held.idle(node)) == full;
            if at > moment.now {
                return !self.held.is_open(node) || *self.held.at(node, at) == *full;
            }
            let meets = self.unusual(moment, node, seconds).is_some_and(|room| *room != *full);
            is_idle && (!self.held.is_open(node) || !meets)
        };
        (0..fabric.len()).filter(|index| !free(index)).collect()
    }
}

impl Finder {
    /// Forgets what was found about rooms: their numbers mean something else now.
    pub(super) fn forget_rooms(&mut self) {
        self.slots.iter_mut().for_each(Vec::clear);
    }

    /// Forgets everything, if requests have asked for too many different things.
    pub(super) fn tidy(&mut self) {
        if self.lenses.len() > MOST_LENSES || self.needs.len() > MOST_NEEDS {
            *self = Self::default();
        }
    }

    /// Forgets what was found about times: room was given back.
    pub(super) fn forget_times(&mut self) {
        self.stairs.clear();
    }

    /// The number of a need: equal needs have the same.
    pub(super) fn need(&mut self, need: &Need) -> usize {
        if let Some(known) = self.numbers.get(need) {
            return *known;
        }
        self.slots.push(Vec::new());
        self.needs.push(need.clone());
        self.smaller.add(&self.needs);
        self.numbers.insert(need.clone(), self.needs.len() - 1);
        self.needs.len() - 1
    }

    /// The earliest start for a job before the hunt's `until`: at every stage of its wishes, through each of its lenses,
    /// in the order that a deep pass prefers.
    pub(super) fn find(&mut self, ground: Ground<'_>, moment: &mut Moment, hunt: &Hunt<'_>) -> Option<Hit> {
        let mut best: Option<Hit> = None;
        for stage in hunt.stages {
            for lens in hunt.lenses {
                let until = best.as_ref().map_or(hunt.until, |hit| hunt.beaten_by(hit)).min(stage.until);
                if stage.from.max(moment.now) >= until {
                    break;
                }
                let found = self.find_at(ground, moment, hunt, stage, lens, until);
                if let Some(hit) = found.filter(|hit| best.as_ref().is_none_or(|best| hit.beats(best))) {
                    best = Some(hit);
                }
            }
        }
        best
    }

    /// The earliest start in one stage through one lens, beginning where earlier searches have shown it may lie.
    fn find_at(
        &mut self,
        ground: Ground<'_>,
        moment: &mut Moment,
        hunt: &Hunt<'_>,
        stage: &Stage,
        lens: &Arc<Lens>,
        until: Time,
    ) -> Option<Hit> {
        let (nodes, slots) = (hunt.request.min_nodes(), hunt.request.min_slots());
        let size = Size { nodes, slots, run_time: hunt.run_time };
        let family = Family::of(lens.outline, stage.ask()).filter(|_| hunt.request.sizes.is_none());
        let bound =
            family.as_ref().and_then(|family| self.stairs.bound(family, hunt.need, &size, &self.smaller));
        let begin = stage.from.max(moment.now);
        let mut from = begin.max(bound.unwrap_or(begin));
        loop {
            from = moment.licenses.earliest(hunt.licenses, from, hunt.run_time)?;
            if from >= until {
                return None;
            }
            let mut search = Search { ground, moment, hunt, stage, lens, tries: 0 };
            let found = search.walk(self, from, until);
            let gave_up = search.tries >= MAX_TRIES;
            let learns = begin == moment.now && !gave_up && hunt.licenses.is_empty();
            if let Some(family) = family.as_ref().filter(|_| learns) {
                let earliest = found.as_ref().map_or(until, |(start, ..)| *start);
                self.stairs.note(family.clone(), hunt.need, size, earliest);
            }
            let (start, (placement, lost, starts)) = found?;
            let licensed = moment.licenses.earliest(hunt.licenses, start, hunt.run_time)?;
            if licensed == start {
                moment.rivalries += u32::from(starts);
                return Some(Hit {
                    realm: hunt.realm,
                    start,
                    lasts: hunt.run_time,
                    limit: None,
                    starts: starts && moment.licenses.lacking(hunt.licenses).is_none(),
                    placement,
                    lost,
                    relaxed: stage.relaxed.clone(),
                    whole_leaves: stage.ask().whole_leaves,
                    lens: Arc::clone(lens),
                });
            }
            from = licensed;
        }
    }

    /// What a placement takes of each node.
    ///
    /// `None` where a job past its time still holds devices that the planned ones cannot be exchanged for.
    pub(super) fn parts(ground: Ground<'_>, moment: &Moment, need: &Need, hit: &Hit) -> Option<Vec<Part>> {
        let mut parts = Vec::with_capacity(hit.placement.shares.len());
        for (pos, slots) in &hit.placement.shares {
            let node = hit.lens.fabric.node(*pos);
            let room = ground.room(moment, node, hit, hit.lasts);
            let taken = need.takes(&ground.scene.nodes[node.index()].shape, &room, *slots)?;
            parts.push(Part { node, slots: *slots, taken: taken.into() });
        }
        if hit.whole_leaves {
            let used: Vec<NodeId> = parts.iter().map(|part| part.node).collect();
            for node in others_of_leaves(&hit.lens.fabric, &used) {
                parts.push(Part { node, slots: 0, taken: ground.held.full(node).into() });
            }
        }
        Some(parts)
    }

    /// Slots of a numbered room.
    fn slots_of(&mut self, ground: Ground<'_>, need: (usize, &Need), room: RoomId) -> u32 {
        let (rooms, known) = (ground.held.rooms(), &mut self.slots[need.0]);
        if known.len() <= room.index() {
            known.resize(rooms.len(), UNKNOWN);
        }
        if known[room.index()] == UNKNOWN {
            let shape = rooms.shape(rooms.class_of(room));
            known[room.index()] = need.1.slots(shape, rooms.amount(room));
        }
        known[room.index()]
    }

    fn domains(&mut self, lens: &Lens, ask: &Ask, nodes: usize) -> Arc<Domains> {
        let layer = layer(lens, ask);
        let table = self.domains.entry((lens.outline, layer));
        Arc::clone(table.or_insert_with(|| Arc::new(Domains::of(&lens.fabric, layer, nodes))))
    }
}

/// One search.
struct Search<'a, 'b> {
    ground: Ground<'a>,
    moment: &'b Moment,
    hunt: &'a Hunt<'a>,
    stage: &'a Stage,
    lens: &'a Arc<Lens>,
    /// Times at which the job was tried.
    tries: u32,
}

/// A time with what was found then.
type Found = (Time, (Placement, Vec<Lost>, bool));

impl Search<'_, '_> {
    /// Walks the planned ends from `from` on. Wherever some domain has enough, the job is tried.
    fn walk(&mut self, finder: &mut Finder, from: Time, until: Time) -> Option<Found> {
        let domains = finder.domains(self.lens, self.stage.ask(), self.ground.scene.nodes.len());
        let wanted = (
            self.stage.asks.last().and_then(|ask| ask.nodes).map_or(1, |(min, _)| min),
            self.hunt.request.min_slots(),
        );
        let mut tally = std::mem::take(&mut finder.tally);
        tally.begin(self.ground.scene.nodes.len(), &domains, wanted);
        for index in self.lens.admitted.ones() {
            let node = NodeId(u32::try_from(index).expect("nodes are numbered in u32"));
            if self.ground.held.is_open(node) {
                let slots = self.slots_at(finder, node, from);
                tally.set(&domains, node, slots);
            }
        }
        let found = self.go_on(finder, &mut tally, &domains, from, until);
        finder.tally = tally;
        found
    }

    fn go_on(
        &mut self,
        finder: &mut Finder,
        tally: &mut Tally,
        domains: &Domains,
        from: Time,
        until: Time,
    ) -> Option<Found> {
        if let Some(found) = self.look(finder, tally, from) {
            return Some((from, found));
        }
        tally.grew = false;
        let held = self.ground.held;
        let mut sums: BTreeMap<NodeId, Box<[u64]>> = BTreeMap::new();
        let mut ends =
            held.ends_after(from).take_while(|(end, _)| *end < until && !end.is_never()).peekable();
        while let Some((at, holder)) = ends.next() {
            for (node, amount) in &holder.parts {
                if !self.lens.admitted.contains(node.index()) || !held.is_open(*node) {
                    continue;
                }
                let sum = sums.entry(*node).or_insert_with(|| held.sum_after(*node, from));
                sum.iter_mut().zip(&**amount).for_each(|(sum, less)| *sum -= less);
                let slots = self.slots_in(*node, &held.left(*node, sum));
                tally.set(domains, *node, slots);
            }
            if ends.peek().is_some_and(|(next, _)| *next == at) || !std::mem::take(&mut tally.grew) {
                continue;
            }
            if let Some(found) = self.look(finder, tally, at) {
                return Some((at, found));
            }
            if self.tries >= MAX_TRIES {
                return None;
            }
        }
        None
    }

    /// Slots of a node from a time on.
    fn slots_at(&self, finder: &mut Finder, node: NodeId, at: Time) -> u32 {
        let held = self.ground.held;
        if at > self.moment.now {
            return self.slots_in(node, &held.at(node, at));
        }
        match self.ground.unusual(self.moment, node, self.hunt.run_time) {
            Some(room) => self.slots_in(node, &room),
            None => {
                let need = (self.hunt.need, &self.hunt.request.need);
                finder.slots_of(self.ground, need, held.idle(node))
            }
        }
    }

    fn slots_in(&self, node: NodeId, room: &[u64]) -> u32 {
        if room[CPUS] == 0 {
            return 0;
        }
        self.hunt.request.need.slots(&self.ground.scene.nodes[node.index()].shape, room)
    }

    /// Tries to place the job at a time, if some domain has enough.
    fn look(&mut self, finder: &mut Finder, tally: &Tally, at: Time) -> Option<(Placement, Vec<Lost>, bool)> {
        if tally.enough == 0 {
            return None;
        }
        self.tries += 1;
        if at > self.moment.now {
            return self.place(&self.slots(tally.nodes()), at, false);
        }
        let mut held_back = false;
        let need = (self.hunt.need, &self.hunt.request.need);
        let ground = self.ground;
        let free = tally.nodes().map(|(node, slots)| {
            let free = finder.slots_of(ground, need, ground.held.idle(node)).min(slots);
            held_back |= free < slots;
            (node, free)
        });
        let slots = self.slots(free.collect::<Vec<_>>());
        match self.place(&slots, at, true) {
            None if held_back => self.place(&self.slots(tally.nodes()), at, false),
            found => found,
        }
    }

    /// Slots by position.
    fn slots(&self, nodes: impl IntoIterator<Item = (NodeId, u32)>) -> Slots {
        let fabric = &self.lens.fabric;
        let nodes = nodes.into_iter().filter(|(_, slots)| *slots > 0);
        let nodes = nodes.filter_map(|(node, slots)| Some((self.lens.position(node)?, slots)));
        if matches!(self.hunt.request.need.slot, Slot::Node { .. }) {
            let mut open = FixedBitSet::with_capacity(fabric.len());
            nodes.for_each(|(pos, _)| open.insert(pos.index()));
            return Slots::whole(fabric, open);
        }
        let mut by_position = vec![0; fabric.len()];
        nodes.for_each(|(pos, slots)| by_position[pos.index()] = slots);
        Slots::tasks(fabric, by_position)
    }

    /// The best placement there is; for one that starts, with those that lost.
    fn place(&self, slots: &Slots, at: Time, starts: bool) -> Option<(Placement, Vec<Lost>, bool)> {
        let fabric = &self.lens.fabric;
        let whole = self.stage.ask().whole_leaves;
        let occupied = whole.then(|| self.ground.occupied(self.moment, self.lens, at, self.hunt.run_time));
        let view = View { occupied: occupied.as_ref(), ..self.lens.view(slots) };
        let mut asks = self.stage.asks.iter();
        let (ask, placement) = asks.find_map(|ask| Some((ask, place::place(fabric, &view, ask).ok()?)))?;
        let names = starts && self.moment.rivalries < RIVALRIES;
        let lost = if names { place::rivals(fabric, &view, ask, &placement, RIVALS) } else { Vec::new() };
        Some((placement, lost, starts))
    }
}

/// Slots of nodes and domains in one search; kept so that nothing is allocated anew.
#[derive(Debug, Default)]
struct Tally {
    slots: Vec<u32>,
    touched: Vec<NodeId>,
    /// Nodes and slots of every domain.
    sums: Vec<(u32, u64)>,
    /// Nodes and slots that are wanted of one domain.
    wanted: (u32, u64),
    /// Domains that have enough.
    enough: u32,
    /// Whether a node got more.
    grew: bool,
}

impl Tally {
    fn begin(&mut self, nodes: usize, domains: &Domains, wanted: (u32, u64)) {
        for node in self.touched.drain(..) {
            self.slots[node.index()] = 0;
        }
        self.slots.resize(nodes, 0);
        self.sums.clear();
        self.sums.resize(domains.count, (0, 0));
        (self.wanted, self.enough, self.grew) = (wanted, 0, false);
    }

    /// Nodes that have had slots, with those they have.
    fn nodes(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.touched.iter().map(|node| (*node, self.slots[node.index()]))
    }

    /// Gives a node other slots and keeps the sums right.
    fn set(&mut self, domains: &Domains, node: NodeId, slots: u32) {
        let before = std::mem::replace(&mut self.slots[node.index()], slots);
        if before == slots {
            return;
        }
        if before == 0 {
            self.touched.push(node);
        }
        self.grew |= slots > before;
        let domain = domains.of_node[node.index()];
        if domain == NOWHERE {
            return;
        }
        let wanted = self.wanted;
        let enough = |(nodes, slots): (u32, u64)| nodes >= wanted.0 && slots >= wanted.1;
        let sum = &mut self.sums[domain as usize];
        let had = enough(*sum);
        sum.0 = sum.0 - u32::from(before > 0) + u32::from(slots > 0);
        sum.1 = sum.1 - u64::from(before) + u64::from(slots);
        self.enough = self.enough - u32::from(had) + u32::from(enough(*sum));
    }
}
