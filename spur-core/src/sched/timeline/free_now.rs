//! The slots that jobs have at the current moment, updated with every booking.
//!
//! Where only a start now matters, hardly anything changes from one job to the next: a few nodes are booked.
//! So the slots of nodes whose free amount never ends are counted once for each set of eligible nodes, and
//! updated node by node. Nodes with planned use are examined for every job, because their slots depend on the
//! job's run time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::fabric::Pos;
use crate::sched::place::Slots;
use crate::sched::request::eligible_nodes::{EligibleNodes, with_others};
use crate::sched::timeline::Timeline;

use super::needs::Seen;
use super::second::{Second, length};

/// The slots of one set of eligible nodes.
#[derive(Clone, Debug)]
struct FreeSlots {
    /// The slots of leaves are up to date; sums above leaves are computed for each job.
    slots: Slots,
    /// Number of changes of the timeline that are included, and the number of these that gave something back.
    followed: usize,
    returns: usize,
}

/// The slots that are free now and for ever, for every set of eligible nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeNow {
    /// The slots by realm, outline and need.
    sights: BTreeMap<(usize, usize, usize), FreeSlots>,
    /// A reused list of changes.
    changed: Vec<(Pos, u32)>,
}

/// The beginning of a timeline, and the run time of the job that may start there.
pub(crate) struct Moment<'a> {
    pub(crate) realm: usize,
    /// The timeline of this realm.
    pub(crate) timeline: &'a Timeline,
    /// The planned run time of the job, in seconds.
    pub(crate) run_time: u64,
}

impl FreeNow {
    /// True if the slots of this set of eligible nodes are kept for a need in a realm.
    pub(crate) fn knows(&self, realm: usize, eligible: &EligibleNodes, need: usize) -> bool {
        self.sights.contains_key(&(realm, eligible.outline, need))
    }

    /// Calls `look` with the slots of one set of eligible nodes for a job that starts at this moment.
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
        // Nodes that were booked since the last call.
        let (changed, open) = (&mut self.changed, sight.slots.open());
        let only_shrunk = timeline.returns() == sight.returns;
        let nodes = timeline.changes_since(sight.followed).iter();
        changed.clear();
        changed.extend(nodes.filter_map(|node| Some((eligible.pos(*node)?, *node))).filter(|(pos, _)| {
            // A node without a slot still has none if amounts have only shrunk.
            !only_shrunk || open.contains(pos.index())
        }));
        for (_, node) in changed.iter_mut() {
            *node = standing[*node as usize].map_or(0, |room| seen.slots(room));
        }
        sight.slots.put_all(&eligible.fabric, changed);
        (sight.followed, sight.returns) = (timeline.changes(), timeline.returns());
        // A node with planned use has the slots of its best hole that is long enough.
        let limited = timeline.limited().filter_map(|node| {
            let holes = timeline.holes_on(node).iter();
            let suits = holes.filter(|hole| hole.start == Second::BEGIN && hole.end >= needed);
            Some((eligible.pos(node)?, suits.map(|hole| seen.slots(hole.room)).max().unwrap_or(0)))
        });
        with_others(&eligible.fabric, &mut sight.slots, limited, |slots| look(slots))
    }
}
