//! What jobs see at this very moment, kept in step with what is booked.
//!
//! Where only a start now is of interest, hardly anything changes from one job to the next: a few nodes are booked.
//! So what a lens sees of nodes that stay as they are for ever is counted once and changed node by node; nodes that
//! something is planned on are looked at for every job, because what they offer depends on how long it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::model::fabric::Pos;
use crate::sched::place::Slots;
use crate::sched::scene::lens::Lens;
use crate::sched::scene::room::RoomId;
use crate::sched::timeline::Timeline;

use super::holes::Hole;
use super::second::{FOR_EVER, Second, length};
use super::shelves::Measure;

/// One lens.
#[derive(Clone, Debug)]
struct Sight {
    slots: Slots,
    /// How many of the changes it has followed, and how many of them gave something back.
    followed: usize,
    returns: usize,
}

/// What every lens sees now for ever, by outline and need.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Standing {
    sights: BTreeMap<(usize, usize), Sight>,
}

/// The beginning of a timeline, and how long it is looked at.
pub(in crate::sched) struct Moment<'a> {
    pub(in crate::sched) timeline: &'a Timeline,
    /// Planned run time, seconds.
    pub(in crate::sched) run_time: u64,
    /// What a slot takes, at least.
    pub(in crate::sched) least: Measure,
}

impl Standing {
    /// Shows `look` what a lens sees for a job that starts now; `slots_in` says how many slots a room has.
    pub(in crate::sched) fn look<T>(
        &mut self,
        lens: &Arc<Lens>,
        need: usize,
        moment: &Moment<'_>,
        mut slots_in: impl FnMut(RoomId) -> u32,
        look: impl FnOnce(&Slots) -> T,
    ) -> T {
        let timeline = moment.timeline;
        let needed = Second::BEGIN.after(length(moment.run_time));
        let sight = self.sights.entry((lens.outline, need)).or_insert_with(|| Sight {
            slots: lens.slots_of(lasting(moment, &mut slots_in)),
            followed: timeline.changes(),
            returns: timeline.returns(),
        });
        let only_shrank = timeline.returns() == sight.returns;
        // Where there was nothing, there still is nothing.
        let may_differ = |slots: &Slots, node| match lens.pos(node) {
            Some(pos) => !only_shrank || slots.at(pos) > 0,
            None => false,
        };
        let changed: SmallVec<[u32; 256]> =
            timeline.changed_since(sight.followed, |node| may_differ(&sight.slots, node)).collect();
        for node in changed {
            let suits = |hole: &Hole| hole.start == Second::BEGIN && hole.end.is_never();
            set(lens, &mut sight.slots, node, timeline, suits, &mut slots_in);
        }
        (sight.followed, sight.returns) = (timeline.changes(), timeline.returns());
        let mut before: Vec<(Pos, u32)> = Vec::new();
        for node in timeline.limited() {
            let suits = |hole: &Hole| hole.start == Second::BEGIN && hole.end >= needed;
            before.extend(set(lens, &mut sight.slots, node, timeline, suits, &mut slots_in));
        }
        let answer = look(&sight.slots);
        for (pos, slots) in before {
            sight.slots.set(&lens.fabric, pos, slots);
        }
        answer
    }
}

/// The nodes that have something from now on for ever, and how many slots.
fn lasting<'a>(
    moment: &Moment<'a>,
    mut slots_in: impl FnMut(RoomId) -> u32 + 'a,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    let shelves = moment.timeline.holes().lasting(moment.least);
    let chunks = shelves.flat_map(|holes| holes.reaching(FOR_EVER, Second::NEVER, Second(1)));
    let holes = chunks.flatten().filter(|hole| hole.start == Second::BEGIN);
    holes.map(move |hole| (hole.node, slots_in(hole.room)))
}

/// Gives a node the slots of the best of some of its holes; what it had before, if that was something else.
fn set(
    lens: &Lens,
    slots: &mut Slots,
    node: u32,
    timeline: &Timeline,
    suits: impl Fn(&Hole) -> bool,
    mut slots_in: impl FnMut(RoomId) -> u32,
) -> Option<(Pos, u32)> {
    let pos = lens.pos(node)?;
    let holes = timeline.holes_on(node).iter().filter(|hole| suits(hole));
    let after = holes.map(|hole| slots_in(hole.room)).max().unwrap_or(0);
    let before = slots.at(pos);
    if before == after {
        return None;
    }
    slots.set(&lens.fabric, pos, after);
    Some((pos, before))
}
