//! What sets of eligible nodes see of what nobody holds at this moment, kept from search to search and changed node by node.
//!
//! Most searches are about a start now, and between two of them a few nodes change hands. So what one set of eligible nodes
//! sees is counted once, and follows what has happened to nodes since: no search looks at all of them.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::model::fabric::Pos;
use crate::sched::place::Slots;
use crate::sched::request::Need;
use crate::sched::request::eligible_nodes::{EligibleNodes, slots_by_position};
use crate::sched::timeline::held::Held;

/// Sights that are kept: on a hundred thousand nodes one has some 200 KB.
const MOST: usize = 64;

/// One set of eligible nodes and one need.
#[derive(Debug)]
struct IdleSlots {
    /// What is above the leaves is summed up for each look.
    slots: Slots,
    /// How many of the changes it has followed.
    followed: usize,
    /// When it was looked at last, in looks.
    looked: u64,
}

/// What sets of eligible nodes see, by outline and need.
#[derive(Debug, Default)]
pub(super) struct Sights {
    kept: BTreeMap<(usize, usize), IdleSlots>,
    looks: u64,
}

impl Sights {
    /// What one set of eligible nodes sees for a need, by what `slots_of` says that nodes have now which may be used at all.
    pub(super) fn of(
        &mut self,
        held: &Held,
        eligible: &EligibleNodes,
        (number, need): (usize, &Need),
        mut slots_of: impl FnMut(NodeId) -> u32,
    ) -> &mut Slots {
        self.looks += 1;
        let key = (eligible.outline, number);
        let mut has = |node: NodeId| if held.is_open(node) { slots_of(node) } else { 0 };
        let known = self.kept.remove(&key).and_then(|mut sight| {
            for node in held.changes_since(sight.followed)? {
                if let Some(pos) = eligible.pos(node.0) {
                    sight.slots.put(&eligible.fabric, pos, has(*node));
                }
            }
            Some(sight.slots)
        });
        let slots = known.unwrap_or_else(|| {
            let mut by_position = vec![0; eligible.fabric.len()];
            for node in eligible.admitted.ones().map(NodeId::at) {
                if let Some(Pos(pos)) = eligible.pos(node.0) {
                    by_position[pos as usize] = has(node);
                }
            }
            slots_by_position(&eligible.fabric, need, by_position)
        });
        self.make_room();
        let sight = IdleSlots { slots, followed: held.changes(), looked: self.looks };
        &mut self.kept.entry(key).or_insert(sight).slots
    }

    /// Forgets the one that was looked at longest ago, if there are as many as are kept.
    fn make_room(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, sight)| sight.looked).map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| self.kept.len() >= MOST) {
            self.kept.remove(&oldest);
        }
    }
}
