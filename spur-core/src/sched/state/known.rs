//! How many slots rooms have for a need, worked out once for each.

use crate::sched::request::{Given, Need};
use crate::sched::scene::room::{ClassId, RoomId, Rooms};
use crate::sched::timeline::sweep::UNKNOWN;

/// What is known of one need.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By room. It is looked up for every hole that a search meets, so that it has to be small.
    slots: Vec<u16>,
    /// By class of nodes: what a slot takes, see [`Need::floor`].
    floors: Vec<Option<Given>>,
}

impl Known {
    /// How many slots a room has; `need` is always the same.
    #[inline]
    pub(super) fn slots(&mut self, rooms: &Rooms, need: &Need, room: RoomId) -> u32 {
        match self.slots.get(room.index()) {
            Some(slots) if *slots != UNKNOWN => u32::from(*slots),
            _ => self.find(rooms, need, room),
        }
    }

    /// By room, as far as they are known.
    pub(super) fn by_room(&self) -> &[u16] {
        &self.slots
    }

    /// The same, worked out.
    #[cold]
    fn find(&mut self, rooms: &Rooms, need: &Need, room: RoomId) -> u32 {
        let (class, amount) = (rooms.class_of(room), rooms.amount(room));
        let known = self.floors.len();
        let next = rooms.classes().skip(known).take_while(|next| *next <= class);
        self.floors.extend(next.map(|next: ClassId| need.floor(rooms.shape(next))));
        let slots = match &self.floors[class.index()] {
            Some(floor) => {
                let times = amount.iter().zip(floor).filter_map(|(have, least)| have.checked_div(*least));
                times.min().map_or(0, |times| u32::try_from(times).unwrap_or(u32::MAX))
            }
            None => need.slots(rooms.shape(class), amount),
        };
        self.slots.resize(self.slots.len().max(rooms.len()), UNKNOWN);
        self.slots[room.index()] = u16::try_from(slots).unwrap_or(UNKNOWN);
        slots
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::node::{NodeGres, NodeShape};
    use crate::sched::request::Slot;
    use crate::text::gres::GresSpec;

    fn devices() -> impl Strategy<Value = Vec<GresSpec>> {
        let one = (prop::sample::select(vec!["gpu", "nic"]), prop::option::of("[ab]"), 0_u64..4);
        prop::collection::vec(
            one.prop_map(|(name, kind, count)| GresSpec::new(name, kind.as_deref(), count)),
            0..3,
        )
    }

    fn need() -> impl Strategy<Value = Need> {
        let slot =
            prop_oneof![(1_u32..4).prop_map(|tasks| Slot::Node { tasks }), Just(Slot::Task), Just(Slot::Gpu)];
        let memory = prop_oneof![0_u64..9, Just(u64::MAX)];
        let counts = (prop::option::of(0_u32..4), 1_u32..4, 0_u32..6, 0_u64..3, 0_u64..3);
        let need = (slot, counts, memory, devices(), devices(), any::<bool>());
        need.prop_map(
            |(
                slot,
                (most, cpus_per_task, min_cpus, memory_per_cpu, tmp_disk_mb),
                memory,
                node,
                task,
                whole,
            )| {
                Need {
                    slot,
                    most: most.filter(|_| slot == Slot::Task),
                    cpus_per_task,
                    min_cpus,
                    memory_per_node: memory,
                    memory_per_cpu,
                    tmp_disk_mb,
                    gres_per_node: node,
                    gres_per_task: task,
                    whole,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_known_of_a_room_is_what_the_need_says(
            need in need(),
            amounts in prop::collection::vec((0_usize..2, 0_u64..9, 0_u64..17, [0_u64..4, 0_u64..4]), 1..20),
        ) {
            let gres = |kind: &str| NodeGres { name: "gpu".into(), kind: kind.into(), count: 3 };
            let shapes = [("a", "b", 1), ("", "a", 2)].map(|(one, other, threads_per_core)| {
                let gres = vec![gres(one), gres(other)];
                Arc::new(NodeShape { cpus: 8, memory_mb: 16, tmp_disk_mb: 1, threads_per_core, gres, ..NodeShape::default() })
            });
            let mut rooms = Rooms::default();
            let classes = shapes.map(|shape| rooms.class(&shape));
            let mut known = Known::default();
            for (class, cpus, memory, gres) in amounts {
                let room = rooms.intern(classes[class], &[cpus, memory, gres[0], gres[1]]);
                let slots = need.slots(rooms.shape(classes[class]), rooms.amount(room));
                for _ in 0..2 {
                    prop_assert_eq!(known.slots(&rooms, &need, room), slots);
                }
            }
        }
    }
}
