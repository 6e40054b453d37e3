//! Trying to place one job at the moments that a search comes up with.

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Fabric};
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::sched::place::{self, Ask, Lost, Placement, Slots, View};
use crate::sched::request::eligible_nodes::{Canvas, EligibleNodes, positions_where};
use crate::sched::timeline::Timeline;
use crate::sched::timeline::free_for_ever::Earliest;
use crate::sched::timeline::needs::Seen;
use crate::sched::timeline::second::Second;
use crate::sched::timeline::sweep::{Counters, SweepCaller, SweepRequest, Verdict};
use crate::text::time::Time;

use super::MAX_TRIES;

/// Domains that lost, named with a start.
const RIVALS: usize = 3;

/// Tries to place a job at the times a sweep comes up with.
pub(super) struct Trial<'a> {
    /// When the timeline begins.
    pub(super) now: Time,
    pub(super) eligible: &'a EligibleNodes,
    pub(super) seen: Seen<'a>,
    /// By node: what nobody holds at this moment.
    pub(super) idle: &'a [RoomId],
    /// Whether that may be less than what is planned with: jobs past their time hold it, or reservations show more.
    pub(super) held_back: bool,
    /// The sizes that will do, the largest first.
    pub(super) asks: &'a [Ask],
    /// For a job that wants whole leaves: where to see what else is planned, and for how long it wants them.
    pub(super) timeline: Option<(&'a Timeline, u64)>,
    pub(super) tries: u32,
    /// Whether rivals are named with a start.
    pub(super) names_rivals: bool,
    /// Whether the whole job has to be in one of the domains that are counted.
    pub(super) in_domain: bool,
    pub(super) canvas: &'a mut Canvas,
    pub(super) hit: Option<(Placement, Vec<Lost>, bool)>,
}

impl Trial<'_> {
    /// Answers a search of which it is known when some domain has enough first; `None` where it has to be carried out.
    pub(super) fn settle(
        &mut self,
        first: Earliest,
        search: &SweepRequest<'_>,
        counters: &mut Counters,
    ) -> Option<Option<Second>> {
        if first.at >= search.until {
            return Some(None);
        }
        let domain = DomainId(first.sole.filter(|_| self.looks_at_domain(first.at))?);
        match counters.ask(search, domain, first.at, self) {
            Verdict::Yes => Some(Some(first.at)),
            Verdict::No => None,
            Verdict::GiveUp => Some(None),
        }
    }

    /// Whether nothing outside the one domain that has enough matters at some time. No placement leaves it; rivals and
    /// scores are looked for elsewhere as well.
    fn looks_at_domain(&self, at: Second) -> bool {
        let looks_around =
            at == Second::BEGIN && self.names_rivals || self.asks.iter().any(|ask| ask.score.weights.any());
        self.in_domain && !looks_around
    }

    /// The best placement there is; for one that starts, with those that lost.
    fn place(&self, slots: &Slots, at: Second, starts: bool) -> Option<(Placement, Vec<Lost>, bool)> {
        let occupied = self.timeline.map(|(timeline, run_time)| {
            let times = (at.time(self.now), run_time);
            occupied(&self.eligible.fabric, self.seen.rooms, self.idle, timeline, times, starts)
        });
        let names = starts && self.names_rivals;
        let (found, _) = placed(self.eligible, self.asks, occupied.as_ref(), slots, names);
        found.map(|(placement, lost)| (placement, lost, starts))
    }
}

/// The best placement there is, and if `names` is set, those that lost; and whether it is sure that there is none better, or
/// none.
pub(crate) fn placed(
    eligible: &EligibleNodes,
    asks: &[Ask],
    occupied: Option<&FixedBitSet>,
    slots: &Slots,
    names: bool,
) -> (Option<(Placement, Vec<Lost>)>, bool) {
    let view = View { occupied, ..eligible.view(slots) };
    let mut is_sure = true;
    let found = asks.iter().find_map(|ask| {
        let placed = place::place(&view, ask);
        is_sure &= placed.as_ref().map_or_else(|misfit| misfit.exact, |placement| placement.exact);
        let placement = placed.ok()?;
        let lost = if names { place::rivals(&view, ask, &placement, RIVALS) } else { Vec::new() };
        Some((placement, lost))
    });
    (found, is_sure)
}

impl SweepCaller for Trial<'_> {
    #[inline]
    fn seen(&mut self) -> Seen<'_> {
        Seen { known: &mut *self.seen.known, ..self.seen }
    }

    fn accept(&mut self, at: Second, slots: &Slots) -> Verdict {
        self.tries += 1;
        let starts = at == Second::BEGIN;
        let mut held_back = false;
        self.hit = if starts && self.held_back {
            let mut canvas = std::mem::take(self.canvas);
            let (eligible, need, idle) = (self.eligible, self.seen.need, self.idle);
            let free = slots.iter().map(|(pos, slots)| {
                let node = eligible.fabric.node(pos);
                let free = self.seen.slots(idle[node.index()]).min(slots);
                held_back |= free < slots;
                (node.0, free)
            });
            let free = eligible.paint(&mut canvas, need, free);
            let hit = self.place(free, at, true);
            *self.canvas = canvas;
            hit
        } else {
            self.place(slots, at, starts)
        };
        // Others may still hold leaves that it wants to itself.
        if self.hit.is_none() && (held_back || (starts && self.timeline.is_some())) {
            self.hit = self.place(slots, at, false);
        }
        match self.hit {
            Some(_) => Verdict::Yes,
            None if self.tries < MAX_TRIES => Verdict::No,
            None => Verdict::GiveUp,
        }
    }
}

/// Positions that are not entirely free from `at` on for `run_time` seconds; for a start, also those that somebody still
/// holds.
pub(super) fn occupied(
    fabric: &Fabric,
    rooms: &Rooms,
    idle: &[RoomId],
    timeline: &Timeline,
    (at, run_time): (Time, u64),
    starts: bool,
) -> FixedBitSet {
    positions_where(fabric, |node| {
        let idle = idle[node.index()];
        let full = rooms.full(rooms.class_of(idle));
        !timeline.is_throughout(node.0, at, at + run_time, full) || (starts && idle != full)
    })
}
