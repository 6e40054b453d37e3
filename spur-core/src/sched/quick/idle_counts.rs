//! The idle slots of sets of eligible nodes, kept from search to search and updated node by node.
//!
//! Most searches are about a start now, and only a few nodes change between two of them. So the slots of one
//! set of eligible nodes are counted once and then follow the changes: no search examines all nodes.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::model::fabric::Pos;
use crate::sched::place::Slots;
use crate::sched::request::Need;
use crate::sched::request::eligible_nodes::{EligibleNodes, slots_by_position};
use crate::sched::timeline::held::Held;

/// Number of sets that are kept; on 100,000 nodes one takes about 200 KB.
const MOST: usize = 64;

/// The slots of one set of eligible nodes for one need.
#[derive(Debug)]
struct IdleSlots {
    /// The slots of leaves are up to date; sums above leaves are computed for each use.
    slots: Slots,
    /// Number of changes that are included.
    followed: usize,
    /// The number of the last use.
    looked: u64,
}

/// The slots of sets of eligible nodes, by outline and need.
#[derive(Debug, Default)]
pub(super) struct Sights {
    kept: BTreeMap<(usize, usize), IdleSlots>,
    looks: u64,
}

impl Sights {
    /// The slots of one set of eligible nodes for a need; `slots_of` returns the slots of a node that may be
    /// used.
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

    /// Forgets the least recently used set if there are [`MOST`].
    fn make_room(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, sight)| sight.looked).map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| self.kept.len() >= MOST) {
            self.kept.remove(&oldest);
        }
    }
}
