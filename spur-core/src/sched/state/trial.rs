//! Trying to place one job at the moments that a search comes up with.

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::sched::place::{self, Ask, Lost, Placement, Slots, View};
use crate::sched::request::Need;
use crate::sched::scene::lens::{Canvas, Lens};
use crate::sched::scene::room::{RoomId, Rooms};
use crate::sched::timeline::Timeline;
use crate::sched::timeline::sweep::{Counters, Found, Judge, Search};
use crate::sched::timeline::tails::Earliest;
use crate::text::time::Time;

use super::{MAX_TRIES, RIVALRIES, RIVALS};

/// A number of slots that has not been worked out.
const UNKNOWN: u32 = u32::MAX;

/// Tries to place a job at the times a sweep comes up with.
pub(super) struct Trial<'a> {
    pub(super) now: Time,
    pub(super) lens: &'a Lens,
    pub(super) need: &'a Need,
    pub(super) rooms: &'a Rooms,
    pub(super) known: &'a mut Vec<u32>,
    pub(super) idle: &'a [RoomId],
    /// The sizes that will do, the largest first.
    pub(super) asks: &'a [Ask],
    /// For a job that wants whole leaves: where to see what else is planned, and for how long it wants them.
    pub(super) timeline: Option<(&'a Timeline, u64)>,
    pub(super) tries: u32,
    /// Starts of this pass with which rivals were named.
    pub(super) rivalries: u32,
    /// Whether the whole job has to be in one of the domains that are counted.
    pub(super) in_domain: bool,
    pub(super) canvas: &'a mut Canvas,
    pub(super) hit: Option<(Placement, Vec<Lost>, bool)>,
}

impl Trial<'_> {
    /// What a sweep has counted, in one domain or everywhere, each node cut to what `limit` allows.
    fn seen<'c>(
        &mut self,
        canvas: &'c mut Canvas,
        counters: &Counters,
        sole: Option<DomainId>,
        mut limit: impl FnMut(&mut Self, u32, u32) -> u32,
    ) -> &'c Slots {
        let (lens, need) = (self.lens, self.need);
        match sole {
            Some(domain) => {
                let range = lens.fabric.domain(domain).range();
                let nodes = range.map(|index| lens.fabric.node(position(index)).0);
                let counted =
                    nodes.map(|node| (node, counters.slots_on(node))).filter(|(_, slots)| *slots > 0);
                lens.paint(canvas, need, counted.map(|(node, slots)| (node, limit(self, node, slots))))
            }
            None => {
                let counted = counters.nodes();
                lens.paint(canvas, need, counted.map(|(node, slots)| (node, limit(self, node, slots))))
            }
        }
    }

    /// Answers a search of which it is known when some domain has enough first; `None` where it has to be carried out.
    pub(super) fn settle(
        &mut self,
        first: Earliest,
        search: &Search<'_>,
        timeline: &Timeline,
        counters: &mut Counters,
    ) -> Option<Option<Time>> {
        if first.at >= search.until {
            return Some(None);
        }
        let domain = DomainId(first.sole.filter(|_| self.looks_at_domain(first.at))?);
        let fabric = &self.lens.fabric;
        let nodes = fabric.domain(domain).range().map(|index| fabric.node(position(index)).0);
        match counters.ask(search, timeline, nodes, first.at, self) {
            Found::Yes => Some(Some(first.at)),
            Found::No => None,
            Found::GiveUp => Some(None),
        }
    }

    /// Whether nothing outside the one domain that has enough matters at some time. No placement leaves it; rivals and
    /// scores are looked for elsewhere as well.
    fn looks_at_domain(&self, at: Time) -> bool {
        let looks_around =
            at == self.now && self.names() || self.asks.iter().any(|ask| ask.score.weights.any());
        self.in_domain && !looks_around
    }

    /// Whether rivals are named with a start.
    fn names(&self) -> bool {
        self.rivalries < RIVALRIES
    }

    /// The best placement there is; for one that starts, with those that lost.
    fn place(&self, slots: &Slots, at: Time, starts: bool) -> Option<(Placement, Vec<Lost>, bool)> {
        let occupied = self.timeline.map(|(timeline, run_time)| {
            occupied(&self.lens.fabric, self.rooms, self.idle, timeline, self.now, at, run_time)
        });
        let (placement, lost) =
            placed(self.lens, self.asks, occupied.as_ref(), slots, starts && self.names())?;
        Some((placement, lost, starts))
    }
}

/// The best placement there is, and if `names` is set, those that lost.
pub(super) fn placed(
    lens: &Lens,
    asks: &[Ask],
    occupied: Option<&FixedBitSet>,
    slots: &Slots,
    names: bool,
) -> Option<(Placement, Vec<Lost>)> {
    let fabric = &lens.fabric;
    let view = View { occupied, ..lens.view(slots) };
    let mut asks = asks.iter();
    let (ask, placement) = asks.find_map(|ask| Some((ask, place::place(fabric, &view, ask).ok()?)))?;
    let lost = if names { place::rivals(fabric, &view, ask, &placement, RIVALS) } else { Vec::new() };
    Some((placement, lost))
}

/// How many slots a room has for a need; `known` remembers.
#[inline]
pub(super) fn slots_in(known: &mut Vec<u32>, rooms: &Rooms, need: &Need, room: RoomId) -> u32 {
    if known.len() <= room.index() {
        known.resize(rooms.len(), UNKNOWN);
    }
    let slots = &mut known[room.index()];
    if *slots == UNKNOWN {
        *slots = need.slots(rooms.shape(rooms.class_of(room)), rooms.amount(room));
    }
    *slots
}

impl Judge for Trial<'_> {
    #[inline]
    fn slots(&mut self, room: RoomId) -> u32 {
        slots_in(self.known, self.rooms, self.need, room)
    }

    fn accept(&mut self, at: Time, counters: &Counters, sole: Option<u32>) -> Found {
        self.tries += 1;
        let mut canvas = std::mem::take(self.canvas);
        let starts = at == self.now;
        let is_small = |domain: &DomainId| self.lens.fabric.domain(*domain).range().len() < counters.len();
        let sole = sole.filter(|_| self.looks_at_domain(at)).map(DomainId).filter(is_small);
        let mut held_back = false;
        if starts {
            let idle = self.idle;
            let slots = self.seen(&mut canvas, counters, sole, |trial, node, slots| {
                let free = trial.slots(idle[node as usize]).min(slots);
                held_back |= free < slots;
                free
            });
            self.hit = self.place(slots, at, true);
        }
        if !starts || (self.hit.is_none() && held_back) {
            let slots = self.seen(&mut canvas, counters, sole, |_, _, slots| slots);
            self.hit = self.place(slots, at, false);
        }
        *self.canvas = canvas;
        match self.hit {
            Some(_) => Found::Yes,
            None if self.tries < MAX_TRIES => Found::No,
            None => Found::GiveUp,
        }
    }
}

/// Positions that are not entirely free from `at` on for `run_time` seconds.
pub(super) fn occupied(
    fabric: &Fabric,
    rooms: &Rooms,
    idle: &[RoomId],
    timeline: &Timeline,
    now: Time,
    at: Time,
    run_time: u64,
) -> FixedBitSet {
    let free = |index: usize| {
        let node = fabric.node(position(index));
        let idle = idle[node.index()];
        let full = rooms.full(rooms.class_of(idle));
        timeline.is_throughout(node.0, at, at + run_time, full) && (at > now || idle == full)
    };
    (0..fabric.len()).filter(|index| !free(*index)).collect()
}

fn position(index: usize) -> Pos {
    Pos(u32::try_from(index).expect("positions are u32"))
}
