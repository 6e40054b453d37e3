//! A complete state of nodes and time as the space of a pass.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::fabric::Fabric;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{RoomId, Rooms, is_within};
use crate::sched::place::Slots;
use crate::sched::planned_starts::Reservation;
use crate::sched::request::{Part, Scarce};
use crate::sched::timeline::licenses::{Licenses, WantedLicenses};
use crate::sched::timeline::realm::Realms;
use crate::text::time::Time;

use super::trial::occupied;
use crate::sched::space::{Aside, Aspect, Findings, Hit, Query, Space};

use super::State;

/// Number of node checks that cost as much as finding what one amount lacks.
const COMPARISON: usize = 16;

impl Space for State {
    fn now(&self) -> Time {
        self.now
    }

    fn realms(&self) -> &Realms {
        &self.realms
    }

    fn licenses(&self) -> &Licenses {
        &self.licenses
    }

    fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    fn doubt(&mut self) {}

    fn search(&mut self, aspect: Aspect<'_>, times: Range<Time>) -> (Option<Hit>, bool) {
        let is_now = times.start == self.now && times.end == self.now + 1;
        match is_now && self.stands(aspect) {
            true => (self.look(aspect), false),
            false => self.sweep(aspect, times),
        }
    }

    fn show_now<T>(&mut self, aspect: Aspect<'_>, look: impl FnOnce(&Slots) -> Option<T>) -> Option<T> {
        if self.is_in_sight(aspect) {
            return self.at_once(aspect, |slots, _| look(slots));
        }
        let (hit, _) = self.sweep(aspect, self.now..self.now + 1);
        if hit.is_some() { None } else { look(self.counters.slots()) }
    }

    fn start(&mut self, _: JobId, _: bool, parts: &[Part], asked: (usize, &WantedLicenses), lasts: u64) {
        self.book(parts, asked, self.now, self.now + lasts, true);
        for part in parts {
            let idle = &mut self.idle[part.node.index()];
            *idle = self.rooms.minus(*idle, &part.taken);
        }
    }

    fn reserve(&mut self, made: &Reservation) {
        self.book(&made.parts, made.asked(&self.realms), made.start, made.end, false);
    }

    fn release(&mut self, made: &Reservation) {
        self.licenses.give_back(made.asked(&self.realms), made.start, made.end);
        self.findings.start_bounds.clear();
        for timeline in &mut self.timelines {
            let stretch = timeline.stretch(made.start, made.end);
            timeline.give_back(&mut self.rooms, stretch, taken(&made.parts));
        }
    }

    fn has_part(&mut self, realm: usize, made: &Reservation, part: &Part) -> Option<bool> {
        let timeline = &self.timelines[realm];
        let stretch = timeline.stretch(made.start, made.end);
        let room = timeline.room(&mut self.rooms, part.node, stretch)?;
        Some(is_within(&part.taken, self.rooms.amount(room)))
    }

    fn is_free(&self, part: &Part) -> bool {
        is_within(&part.taken, self.rooms.amount(self.idle[part.node.index()]))
    }

    fn ends_at(&self, at: Time, parts: &[Part]) -> Option<JobId> {
        let first = self.ends.partition_point(|(end, ..)| *end < at);
        let ending = self.ends[first..].iter().take_while(|(end, ..)| *end == at);
        let frees = |alloc: &Alloc| parts.iter().any(|part| alloc.on(part.node).is_some());
        ending.filter(|(_, _, alloc)| frees(alloc)).map(|(_, job, _)| *job).next()
    }

    fn shut(&self, realm: usize, until: Time) -> Option<FixedBitSet> {
        (!self.realms.is_single()).then(|| self.timelines[realm].hidden(self.now, until))
    }

    fn room(&mut self, realm: usize, node: NodeId, at: Time, seconds: u64, starts: bool) -> Option<RoomId> {
        let timeline = &self.timelines[realm];
        let room = timeline.room(&mut self.rooms, node, timeline.stretch(at, at + seconds))?;
        Some(if starts { self.rooms.common(room, self.idle[node.index()]) } else { room })
    }

    fn rooms(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    fn occupied(&self, realm: usize, fabric: &Fabric, times: (Time, u64), starts: bool) -> FixedBitSet {
        occupied(fabric, &self.rooms, &self.idle, &self.timelines[realm], times, starts)
    }

    fn aside(&mut self, inventory: &Inventory, query: &Query<'_>) -> Aside {
        let mut aside = Aside::default();
        let eligible = query.plain;
        let could_serve = |node: NodeId| {
            let pos = eligible.pos(node.0).filter(|_| inventory.nodes[node.index()].available);
            pos.is_some_and(|pos| eligible.idle.at(pos) > 0)
        };
        for (_, job) in self.unused.closed.iter().filter(|(node, _)| could_serve(*node)) {
            *aside.closed.entry(*job).or_default() += 1;
        }
        let mut open =
            self.unused.open.take().unwrap_or_else(|| (0..inventory.nodes.len()).map(NodeId::at).collect());
        // Starts in a pass occupy more of these nodes, and no job ends.
        open.retain(|node| self.rooms.full(inventory.nodes[node.index()].class) == self.idle[node.index()]);
        let (need, now) = (&query.request.need, self.now);
        // On a large cluster only the first of many waiting jobs get this sentence.
        let looks = self.unused.looks.checked_sub(open.len());
        self.unused.looks = looks.unwrap_or(0);
        for node in open.iter().copied().filter(|node| looks.is_some() && could_serve(*node)) {
            let room = self.room(query.realm, node, now, query.run_time, true);
            let shape = &inventory.nodes[node.index()].shape;
            if room.is_some_and(|room| need.slots(shape, self.rooms.amount(room)) > 0) {
                continue;
            }
            match self.realms.shut_by(node, now, now + query.run_time) {
                Some(site) => *aside.reserved.entry(Arc::clone(&site.name)).or_default() += 1,
                None => aside.planned += 1,
            }
        }
        self.unused.open = Some(open);
        if need.tells_scarce() {
            aside.lacking = self.lacking(inventory, query);
        }
        aside
    }

    fn moments(&self, realm: usize) -> Vec<Time> {
        self.timelines[realm].steps().collect()
    }
}

impl State {
    /// Number of nodes with running jobs that have all that a job needs but one resource, by that resource.
    fn lacking(&mut self, inventory: &Inventory, query: &Query<'_>) -> BTreeMap<Scarce, usize> {
        let (eligible, mut lacking) = (query.plain, BTreeMap::new());
        let left = self.unused.comparisons;
        if left < eligible.idle.nodes() {
            return lacking;
        }
        let mut counts = vec![0_usize; self.rooms.len()];
        for (pos, _) in eligible.idle.iter() {
            let node = eligible.fabric.node(pos).index();
            let (room, is_up) = (self.idle[node], inventory.nodes[node].available);
            counts[room.index()] += usize::from(is_up && self.rooms.full(self.rooms.class_of(room)) != room);
        }
        let used = (0..).map(RoomId).zip(counts).filter(|(_, count)| *count > 0);
        let used: Vec<(RoomId, usize)> = used.collect();
        let left = left.checked_sub(eligible.idle.nodes() + used.len() * COMPARISON);
        self.unused.comparisons = left.unwrap_or(0);
        for (room, count) in used.into_iter().filter(|_| left.is_some()) {
            let shape = self.rooms.shape(self.rooms.class_of(room));
            let scarce = query.request.need.scarce(shape, self.rooms.amount(room));
            scarce.into_iter().for_each(|scarce| *lacking.entry(scarce).or_default() += count);
        }
        lacking
    }

    /// Takes the amounts and licenses that a job is planned to use.
    fn book(&mut self, parts: &[Part], asked: (usize, &WantedLicenses), from: Time, to: Time, starts: bool) {
        self.licenses.take(asked, from, to, starts);
        for timeline in &mut self.timelines {
            timeline.take(&mut self.rooms, timeline.stretch(from, to), taken(parts));
        }
    }
}

/// The nodes of the parts, with the amount taken of each.
fn taken(parts: &[Part]) -> impl Iterator<Item = (NodeId, &[u64])> {
    parts.iter().map(|part| (part.node, &*part.taken))
}
