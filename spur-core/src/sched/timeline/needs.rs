//! Needs by number, and the slots that every amount has for each, computed once.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::sched::inventory::amounts::{ClassId, RoomId, Rooms};
use crate::sched::request::Need;
use crate::sched::request::eligible_nodes::UNKNOWN;
use crate::sched::timeline::start_bounds::Smaller;

/// The numbers of needs; equal needs have one number.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    numbers: BTreeMap<Need, usize>,
    /// The needs by number.
    all: Vec<Need>,
    known: Vec<KnownSlots>,
    smaller: Smaller,
}

impl Needs {
    /// The number of a need.
    pub(crate) fn number(&mut self, need: &Need) -> usize {
        if let Some(number) = self.numbers.get(need) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(need.clone());
        self.known.push(KnownSlots::default());
        self.smaller.add(&self.all);
        self.numbers.insert(need.clone(), number);
        number
    }

    /// Number of needs.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The needs that are no larger than each need.
    pub(crate) fn smaller(&self) -> &Smaller {
        &self.smaller
    }

    /// The known slots of a need, by its number.
    pub(crate) fn known(&mut self, number: usize) -> &mut KnownSlots {
        &mut self.known[number]
    }

    /// Forgets all slots, because the numbers of amounts have changed.
    pub(crate) fn forget_rooms(&mut self) {
        self.known.fill_with(KnownSlots::default);
    }
}

/// The slots that amounts have for one need.
#[derive(Debug, Default)]
pub(crate) struct KnownSlots {
    /// The slots of each amount, by number. Every hole of a search looks an entry up, so entries are small.
    slots: Vec<u16>,
    /// The least that a slot takes on each class of nodes; see [`Need::floor`].
    floors: Vec<Option<Floor>>,
}

impl KnownSlots {
    /// The slots of an amount; `need` must always be the same.
    #[inline]
    pub(crate) fn slots(&mut self, rooms: &Rooms, need: &Need, room: RoomId) -> u32 {
        match self.slots.get(room.index()) {
            Some(slots) if *slots != UNKNOWN => u32::from(*slots),
            _ => self.find(rooms, need, room),
        }
    }

    /// The slots of every amount as far as they are known; [`UNKNOWN`] for others, and for very large
    /// numbers.
    pub(crate) fn by_room(&self) -> &[u16] {
        &self.slots
    }

    /// Computes the slots of all current amounts where a floor exists.
    pub(crate) fn learn(&mut self, rooms: &Rooms, need: &Need) {
        self.learn_classes(rooms, need);
        let Self { slots, floors } = self;
        for (class, amounts) in rooms.runs_from(slots.len()) {
            match &floors[class.index()] {
                Some(floor) => slots.extend(amounts.map(|amount| cut(floor.times(amount)))),
                None => slots.extend(amounts.map(|_| UNKNOWN)),
            }
        }
    }

    /// Computes the slots of an amount.
    #[cold]
    fn find(&mut self, rooms: &Rooms, need: &Need, room: RoomId) -> u32 {
        let (class, amount) = (rooms.class_of(room), rooms.amount(room));
        if self.floors.len() <= class.index() {
            self.learn_classes(rooms, need);
        }
        let slots = match &self.floors[class.index()] {
            Some(floor) => floor.times(amount),
            None => need.slots(rooms.shape(class), amount),
        };
        self.slots.resize(self.slots.len().max(rooms.len()), UNKNOWN);
        self.slots[room.index()] = cut(slots);
        slots
    }

    fn learn_classes(&mut self, rooms: &Rooms, need: &Need) {
        let next = rooms.classes().skip(self.floors.len());
        self.floors
            .extend(next.map(|next: ClassId| need.floor(rooms.shape(next)).map(|floor| Floor::of(&floor))));
    }
}

/// A number of slots as 16 bits.
fn cut(slots: u32) -> u16 {
    u16::try_from(slots).unwrap_or(UNKNOWN)
}

/// The amounts that a slot takes: the index in an amount, and how much of it.
#[derive(Debug)]
struct Floor(SmallVec<[(usize, u64); 4]>);

impl Floor {
    fn of(taken: &[u64]) -> Self {
        Self(taken.iter().copied().enumerate().filter(|(_, least)| *least > 0).collect())
    }

    /// Number of times that an amount contains the floor; 0 for an empty floor.
    #[inline]
    fn times(&self, amount: &[u64]) -> u32 {
        // Most amounts have too little of something.
        if self.0.is_empty() || self.0.iter().any(|(at, least)| amount[*at] < *least) {
            return 0;
        }
        let times = self.0.iter().map(|(at, least)| amount[*at] / least);
        u32::try_from(times.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

/// The known slots of one need, and everything that computes unknown ones.
pub(crate) struct Seen<'a> {
    pub(crate) known: &'a mut KnownSlots,
    pub(crate) rooms: &'a Rooms,
    pub(crate) need: &'a Need,
}

impl Seen<'_> {
    /// The slots that an amount has for the need.
    #[inline]
    pub(crate) fn slots(&mut self, room: RoomId) -> u32 {
        self.known.slots(self.rooms, self.need, room)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::job::CoreAsk;
    use crate::model::node::{NodeGres, NodeShape};
    use crate::sched::inventory::LimitEntries;
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
        let slot = prop_oneof![
            (1_u32..4).prop_map(|tasks| Slot::Node { tasks }),
            (1_u32..4).prop_map(|each| Slot::Tasks { each }),
            (1_u32..4).prop_map(|tasks| Slot::Gpu { tasks })
        ];
        let memory = prop_oneof![0_u64..9, Just(u64::MAX)];
        let counts = (prop::option::of(0_u32..4), 1_u32..4, 0_u32..6, 0_u64..3, 0_u64..3);
        let asked = || prop::option::of(1_u32..3);
        let cores = (asked(), asked(), asked(), asked(), prop::option::of(0_u64..3)).prop_map(
            |(threads_per_core, tasks_per_core, tasks_per_socket, cpus_per_gpu, memory_per_gpu)| CoreAsk {
                threads_per_core,
                tasks_per_core,
                tasks_per_socket,
                cpus_per_gpu,
                memory_per_gpu,
                ..CoreAsk::default()
            },
        );
        let need = (slot, counts, memory, devices(), devices(), any::<bool>(), cores);
        need.prop_map(|(slot, counts, memory_per_node, gres_per_node, gres_per_task, whole, cores)| {
            let (most, cpus_per_task, min_cpus, memory_per_cpu, tmp_disk_mb) = counts;
            Need {
                slot,
                most: most.filter(|_| matches!(slot, Slot::Tasks { .. })),
                cpus_per_task,
                min_cpus,
                memory_per_node,
                memory_per_cpu,
                tmp_disk_mb,
                gres_per_node,
                gres_per_task,
                whole,
                cores,
                limits: LimitEntries::default(),
            }
        })
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
            let classes = shapes.map(|shape| rooms.class(&shape, &[]));
            let (mut known, mut learned) = (KnownSlots::default(), KnownSlots::default());
            for (class, cpus, memory, gres) in amounts {
                let room = rooms.intern(classes[class], &[cpus, memory, cpus % 2, gres[0], gres[1]]);
                let slots = need.slots(rooms.shape(classes[class]), rooms.amount(room));
                if cpus % 3 == 0 {
                    learned.learn(&rooms, &need);
                }
                for _ in 0..2 {
                    prop_assert_eq!(known.slots(&rooms, &need, room), slots);
                    prop_assert_eq!(learned.slots(&rooms, &need, room), slots);
                }
            }
        }
    }
}
