//! What jobs see at this very moment, kept in step with what is booked.
//!
//! Where only a start now is of interest, hardly anything changes from one job to the next: a few nodes are booked. So what
//! one set of eligible nodes sees of nodes that stay as they are for ever is counted once and changed node by node; nodes
//! that something is planned on are looked at for every job, because what they offer depends on how long it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::fabric::Pos;
use crate::sched::place::Slots;
use crate::sched::request::eligible_nodes::{EligibleNodes, with_others};
use crate::sched::timeline::Timeline;

use super::needs::Seen;
use super::second::{Second, length};

/// One set of eligible nodes.
#[derive(Clone, Debug)]
struct FreeSlots {
    /// What is above the leaves is summed up for each look.
    slots: Slots,
    /// How many of the changes it has followed, and how many of them gave something back.
    followed: usize,
    returns: usize,
}

/// What every set of eligible nodes sees now for ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeNow {
    /// What is seen, by realm, outline and need.
    sights: BTreeMap<(usize, usize, usize), FreeSlots>,
    /// A list that is used over and over.
    changed: Vec<(Pos, u32)>,
}

/// The beginning of a timeline, and the time for which a job is looked at there.
pub(crate) struct Moment<'a> {
    pub(crate) realm: usize,
    /// The timeline of this realm.
    pub(crate) timeline: &'a Timeline,
    /// The planned run time of the job, in seconds.
    pub(crate) run_time: u64,
}

impl FreeNow {
    /// Whether one set of eligible nodes was ever looked through in a realm for a need.
    pub(crate) fn knows(&self, realm: usize, eligible: &EligibleNodes, need: usize) -> bool {
        self.sights.contains_key(&(realm, eligible.outline, need))
    }

    /// Shows `look` what one set of eligible nodes sees for a job that starts at this moment.
    pub(crate) fn look<T>(
        &mut self,
        eligible: &Arc<EligibleNodes>,
        need: usize,
        moment: &Moment<'_>,
        seen: &mut Seen<'_>,
        look: impl FnOnce(&Slots) -> T,
    ) -> T {
        let timeline = moment.timeline;
        let needed = Second::BEGIN.after(length(moment.run_time));
        let standing = timeline.standing();
        let sight = self.sights.entry((moment.realm, eligible.outline, need)).or_insert_with(|| {
            let mut unknown = Vec::new();
            let mut slots = eligible.slots_by(standing, seen.known.by_room(), &mut unknown);
            for (pos, room) in unknown {
                slots.put(&eligible.fabric, pos, seen.slots(room));
            }
            FreeSlots { slots, followed: timeline.changes(), returns: timeline.returns() }
        });
        // What was booked since it was looked at last.
        let (changed, open) = (&mut self.changed, sight.slots.open());
        let only_shrunk = timeline.returns() == sight.returns;
        let nodes = timeline.changes_since(sight.followed).iter();
        changed.clear();
        changed.extend(nodes.filter_map(|node| Some((eligible.pos(*node)?, *node))).filter(|(pos, _)| {
            // What had none of what has only shrunk still has none.
            !only_shrunk || open.contains(pos.index())
        }));
        for (_, node) in changed.iter_mut() {
            *node = standing[*node as usize].map_or(0, |room| seen.slots(room));
        }
        sight.slots.put_all(&eligible.fabric, changed);
        (sight.followed, sight.returns) = (timeline.changes(), timeline.returns());
        // Of nodes that something is planned on, the best of their holes.
        let limited = timeline.limited().filter_map(|node| {
            let holes = timeline.holes_on(node).iter();
            let suits = holes.filter(|hole| hole.start == Second::BEGIN && hole.end >= needed);
            Some((eligible.pos(node)?, suits.map(|hole| seen.slots(hole.room)).max().unwrap_or(0)))
        });
        with_others(&eligible.fabric, &mut sight.slots, limited, |slots| look(slots))
    }
}
