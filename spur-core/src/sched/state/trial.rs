//! Attempts to place one job at the moments that a search produces.

use std::ops::ControlFlow;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::sched::place::{self, Slots, View};
use crate::sched::request::eligible_nodes::{positions_where, with_others};
use crate::sched::space::{Aspect, Placed};
use crate::sched::timeline::Timeline;
use crate::sched::timeline::free_for_ever::Earliest;
use crate::sched::timeline::needs::Seen;
use crate::sched::timeline::second::Second;
use crate::sched::timeline::sweep::{Counters, SweepRequest, Verdict};
use crate::text::time::Time;

use super::MAX_TRIES;

/// Number of domains that lost and are named with a start.
const RIVALS: usize = 3;

/// Attempts to place a job at the times that a sweep produces.
pub(super) struct Trial<'a> {
    /// The time at which the timeline begins.
    pub(super) now: Time,
    pub(super) aspect: Aspect<'a>,
    /// The amount of each node that no job holds now.
    pub(super) idle: &'a [RoomId],
    /// True if `idle` may be less than the planned amounts: overdue jobs hold resources, or reservations show
    /// more.
    pub(super) held_back: bool,
    /// For a job with whole leaves: the timeline that shows what else is planned, and the seconds for which
    /// the job needs them.
    pub(super) timeline: Option<(&'a Timeline, u64)>,
    pub(super) tries: u32,
    /// True if rivals are named with a start.
    pub(super) names_rivals: bool,
    /// True if the whole job must be in one of the domains that are counted.
    pub(super) in_domain: bool,
    pub(super) hit: Option<Placed>,
}

impl Trial<'_> {
    /// Answers a search for which the first time with enough in some domain is known, unless it must be
    /// carried out.
    pub(super) fn settle(
        &mut self,
        first: Earliest,
        search: &SweepRequest<'_>,
        seen: &mut Seen<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        match first.sole.filter(|_| self.looks_at_domain(first.at)) {
            _ if first.at >= search.until => ControlFlow::Break(None),
            Some(sole) => {
                let slots = counters.of_domain(search, DomainId(sole), first.at, seen);
                self.accept(seen, first.at, slots)
            }
            None => ControlFlow::Continue(()),
        }
    }

    /// True if nothing outside the one domain that has enough matters at a time. No placement leaves the
    /// domain, but rivals and scores depend on others as well.
    fn looks_at_domain(&self, at: Second) -> bool {
        let is_scored = self.aspect.stage.asks.iter().any(|ask| ask.score.any());
        let looks_around = at == Second::BEGIN && self.names_rivals || is_scored;
        self.in_domain && !looks_around
    }

    /// The best placement; for a start now, with the domains that lost.
    fn place(&self, rooms: &Rooms, slots: &Slots, at: Second, starts: bool) -> Option<Placed> {
        let occupied = self.timeline.map(|(timeline, run_time)| {
            let times = (at.time(self.now), run_time);
            occupied(&self.aspect.eligible.fabric, rooms, self.idle, timeline, times, starts)
        });
        let need = &self.aspect.query.request.need;
        let free = |node: NodeId| need.scarcest(rooms, self.idle[node.index()]);
        let free: Option<&dyn Fn(NodeId) -> u64> = if at == Second::BEGIN { Some(&free) } else { None };
        place(self.aspect, occupied.as_ref(), (slots, free), (starts, self.names_rivals)).0
    }

    /// Decides whether the job can start at a time at which some domain has enough, or the sweep goes on.
    pub(super) fn accept(&mut self, seen: &mut Seen<'_>, at: Second, slots: &mut Slots) -> Verdict {
        self.tries += 1;
        let rooms = seen.rooms;
        self.hit = if at == Second::BEGIN {
            let fabric = &self.aspect.eligible.fabric;
            let held = slots.iter().filter(|_| self.held_back).filter_map(|(pos, slots)| {
                let free = seen.slots(self.idle[fabric.node(pos).index()]);
                (free < slots).then_some((pos, free))
            });
            let held: Vec<(Pos, u32)> = held.collect();
            place_now(self.aspect, slots, held, |slots, starts| self.place(rooms, slots, at, starts))
        } else {
            self.place(rooms, slots, at, false)
        };
        match self.hit {
            Some(_) => ControlFlow::Break(Some(at)),
            None if self.tries < MAX_TRIES => ControlFlow::Continue(()),
            None => ControlFlow::Break(None),
        }
    }
}

/// The best placement, and whether it is certain that none is better, or that there is none. If it starts and
/// rivals are named, the domains that lost come with it. `free` gives the free amount of the job's scarcest
/// resource on a node; without it, nodes with equally many slots are alike.
pub(crate) fn place(
    Aspect { query, stage, eligible }: Aspect<'_>,
    occupied: Option<&FixedBitSet>,
    (slots, free): (&Slots, Option<&dyn Fn(NodeId) -> u64>),
    (starts, names_rivals): (bool, bool),
) -> (Option<Placed>, bool) {
    let view = View { occupied, ..eligible.view(slots) };
    let mut is_sure = true;
    let found = stage.asks.iter().find_map(|ask| {
        let placed = place::place(&view, ask);
        is_sure &= placed.as_ref().map_or_else(|misfit| misfit.exact, |placement| placement.exact);
        let mut placement = placed.ok()?;
        if let Some(free) = free.filter(|_| query.request.need.is_coarse()) {
            placement = place::least_left(&view, ask, placement, &|pos| free(eligible.fabric.node(pos)));
        }
        let names = starts && names_rivals;
        let lost = if names { place::rivals(&view, ask, &placement, RIVALS) } else { Vec::new() };
        Some((placement, lost, starts))
    });
    (found, is_sure)
}

/// Places a job on what no job holds, or else on what should be free by now. `held` lists the positions where
/// the latter is more, with the slots that are really free.
pub(crate) fn place_now(
    Aspect { stage, eligible, .. }: Aspect<'_>,
    slots: &mut Slots,
    held: Vec<(Pos, u32)>,
    mut place: impl FnMut(&Slots, bool) -> Option<Placed>,
) -> Option<Placed> {
    // Other jobs may still hold leaves that this job needs for itself.
    if held.is_empty() && !stage.ask().whole_leaves {
        return place(slots, true);
    }
    let found = with_others(&eligible.fabric, slots, held, |slots| place(slots, true));
    slots.sum_up(&eligible.fabric);
    found.or_else(|| place(slots, false))
}

/// Positions that are not entirely free from `at` on for `run_time` seconds; for a start, also those that
/// some job still holds.
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
