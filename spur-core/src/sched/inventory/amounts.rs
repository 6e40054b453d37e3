//! Amounts of what nodes have, numbered, so that a pass compares and looks up small integers instead of
//! vectors.
//!
//! An amount is a row of numbers: CPUs, memory in MiB, whether the node has no suspended job, then devices in
//! the order of the node's `gres`, then entries for limits of partitions on CPUs (`cpu_limits`). Nodes of
//! equal shape, and with equal such entries, form a class. A [`RoomId`] stands for one class and one amount;
//! equal amounts of a class have one number.

use std::slice::ChunksExact;
use std::sync::Arc;

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::model::node::NodeShape;

/// The index of the CPUs in an amount.
pub(crate) const CPUS: usize = 0;
/// The index of the memory in an amount, in MiB.
pub(crate) const MEMORY: usize = 1;
/// The index of the entry that is 1 while no suspended job is on the node. No job asks for it. A suspended
/// job keeps its leaf, whatever it holds there, so a node without this entry is not idle for jobs that want
/// whole leaves.
pub(crate) const CLEAR: usize = 2;
/// The index of the devices of the first `gres` entry; the others follow.
pub(crate) const GRES: usize = 3;

/// An amount by itself, without a number. That of a node with few kinds of devices is stored inline.
pub(crate) type Amount = SmallVec<[u64; 4]>;

/// A class of nodes of equal shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u32);

impl ClassId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A numbered amount of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoomId(pub(crate) u32);

impl RoomId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A class, and the range of its amount in [`Rooms::amounts`].
#[derive(Clone, Copy, Debug)]
struct Room {
    class: ClassId,
    begin: u32,
    end: u32,
}

impl Room {
    #[inline]
    fn amount(self, amounts: &[u64]) -> &[u64] {
        &amounts[self.begin as usize..self.end as usize]
    }
}

/// The classes of nodes and every amount that a pass has computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    shapes: Vec<Arc<NodeShape>>,
    full: Vec<RoomId>,
    rooms: Vec<Room>,
    /// The amounts of all `rooms`, one after the other.
    amounts: Vec<u64>,
    /// The number of every amount, by the hash of its class and amount. It is only searched, never iterated.
    numbers: HashTable<RoomId>,
    /// The last answer of [`Rooms::minus`]: nodes that are taken together are often alike.
    last: Option<(RoomId, Box<[u64]>, RoomId)>,
    /// The last answer of [`Rooms::shared`]: most jobs take the same of nodes as the one before.
    shared: Arc<[u64]>,
    scratch: Vec<u64>,
}

impl Rooms {
    /// A shared copy of an amount.
    pub(crate) fn shared(&mut self, amount: &[u64]) -> Arc<[u64]> {
        if *self.shared != *amount {
            self.shared = Arc::from(amount);
        }
        Arc::clone(&self.shared)
    }

    /// The class of nodes of a shape whose amounts have these entries behind their devices while the node is
    /// idle.
    pub(crate) fn class(&mut self, shape: &Arc<NodeShape>, further: &[u64]) -> ClassId {
        let is_same = |index: &usize| {
            let known = &self.shapes[*index];
            (Arc::ptr_eq(known, shape) || known == shape)
                && self.amount(self.full[*index])[GRES + shape.gres.len()..] == *further
        };
        let known = (0..self.shapes.len()).rev().find(is_same);
        let index = known.unwrap_or_else(|| {
            self.shapes.push(Arc::clone(shape));
            let class = ClassId(number(self.shapes.len() - 1));
            let full = self.intern(class, &[&*capacity(shape), further].concat());
            self.full.push(full);
            self.shapes.len() - 1
        });
        ClassId(number(index))
    }

    /// Every class.
    pub(crate) fn classes(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..number(self.shapes.len())).map(ClassId)
    }

    /// The shape of the nodes of a class.
    pub(crate) fn shape(&self, class: ClassId) -> &NodeShape {
        &self.shapes[class.index()]
    }

    /// Everything that a node of the class has.
    pub(crate) fn full(&self, class: ClassId) -> RoomId {
        self.full[class.index()]
    }

    /// The amount with nothing of a node of the class.
    pub(crate) fn nothing(&mut self, class: ClassId) -> RoomId {
        let zeros = vec![0; self.amount(self.full(class)).len()];
        self.intern(class, &zeros)
    }

    /// Number of numbered amounts.
    pub(crate) fn len(&self) -> usize {
        self.rooms.len()
    }

    /// The class to which an amount belongs.
    pub(crate) fn class_of(&self, room: RoomId) -> ClassId {
        self.rooms[room.index()].class
    }

    /// The amount as a row of numbers.
    #[inline]
    pub(crate) fn amount(&self, room: RoomId) -> &[u64] {
        self.rooms[room.index()].amount(&self.amounts)
    }

    /// The amounts numbered `first` and above, in runs of one class, with each amount's row.
    pub(crate) fn runs_from(&self, first: usize) -> impl Iterator<Item = (ClassId, ChunksExact<'_, u64>)> {
        let rooms = self.rooms.get(first..).unwrap_or_default();
        rooms.chunk_by(|one, next| one.class == next.class).map(|run| {
            let (begin, end) = (run[0].begin as usize, run[run.len() - 1].end as usize);
            // Amounts of a class have one length, and follow one another in the order of their numbers.
            (run[0].class, self.amounts[begin..end].chunks_exact((end - begin) / run.len()))
        })
    }

    /// True if the amount has a CPU: without one nothing can run.
    pub(crate) fn usable(&self, room: RoomId) -> bool {
        self.amount(room)[CPUS] > 0
    }

    /// True if `small` is contained in `large`, both of one class.
    pub(crate) fn within(&self, small: RoomId, large: RoomId) -> bool {
        small == large || is_within(self.amount(small), self.amount(large))
    }

    /// The number of an amount.
    pub(crate) fn intern(&mut self, class: ClassId, amount: &[u64]) -> RoomId {
        let Self { rooms, amounts, numbers, .. } = self;
        let is_same = |id: &RoomId| {
            let room = rooms[id.index()];
            room.class == class && room.amount(amounts) == amount
        };
        let code = hash(class, amount);
        if let Some(known) = numbers.find(code, is_same) {
            return *known;
        }
        let id = RoomId(number(rooms.len()));
        let begin = number(amounts.len());
        amounts.extend_from_slice(amount);
        rooms.push(Room { class, begin, end: number(amounts.len()) });
        numbers.insert_unique(code, id, |id| {
            let room = rooms[id.index()];
            hash(room.class, room.amount(amounts))
        });
        id
    }

    /// The number of an amount in the class of `room`, whose entries `join` computes from both amounts.
    fn of_both(&mut self, room: RoomId, other: &[u64], join: impl Fn(usize, u64, u64) -> u64) -> RoomId {
        let mut amount = std::mem::take(&mut self.scratch);
        amount.clear();
        let pairs = self.amount(room).iter().zip(other).enumerate();
        amount.extend(pairs.map(|(at, (one, other))| join(at, *one, *other)));
        let id = self.intern(self.class_of(room), &amount);
        self.scratch = amount;
        id
    }

    /// The amount that remains of `room` after `taken` is taken; entries stop at 0.
    pub(crate) fn minus(&mut self, room: RoomId, taken: &[u64]) -> RoomId {
        if let Some((known, same, left)) = &self.last
            && *known == room
            && **same == *taken
        {
            return *left;
        }
        let left = self.of_both(room, taken, |_, have, take| have.saturating_sub(take));
        match &mut self.last {
            Some((known, same, answer)) if same.len() == taken.len() => {
                same.copy_from_slice(taken);
                (*known, *answer) = (room, left);
            }
            last => *last = Some((room, taken.into(), left)),
        }
        left
    }

    /// The amount `room` with `given` added, at most what the class has.
    pub(crate) fn plus(&mut self, room: RoomId, given: &[u64]) -> RoomId {
        let full = self.full(self.class_of(room));
        let full: Box<[u64]> = self.amount(full).into();
        self.of_both(room, given, |at, have, add| (have + add).min(full[at]))
    }

    /// The amount contained in both.
    pub(crate) fn common(&mut self, one: RoomId, other: RoomId) -> RoomId {
        if self.within(one, other) {
            return one;
        }
        if self.within(other, one) {
            return other;
        }
        let other = Amount::from_slice(self.amount(other));
        self.of_both(one, &other, |_, one, other| one.min(other))
    }
}

/// True if no entry of `less` exceeds that of `more`.
pub(crate) fn is_within(less: &[u64], more: &[u64]) -> bool {
    less.iter().zip(more).all(|(less, more)| less <= more)
}

/// Subtracts `taken`, where entries stop at 0.
pub(crate) fn take(room: &mut [u64], taken: &[u64]) {
    room.iter_mut().zip(taken).for_each(|(room, taken)| *room = room.saturating_sub(*taken));
}

/// Everything that a node of a shape has, without the entries for limits of partitions.
pub(crate) fn capacity(shape: &NodeShape) -> Box<[u64]> {
    let fixed = [u64::from(shape.cpus), shape.memory_mb, 1];
    fixed.into_iter().chain(shape.gres.iter().map(|gres| u64::from(gres.count))).collect()
}

/// A hash that distinguishes amounts, the same on every machine. A multiplication whose halves are folded
/// mixes in each word, as wyhash does.
fn hash(class: ClassId, amount: &[u64]) -> u64 {
    let mix = |hash: u64, word: &u64| {
        let product = u128::from(hash ^ *word) * 0x9e37_79b9_7f4a_7c15_u128;
        (product >> 64) as u64 ^ product as u64
    };
    amount
        .iter()
        .fold(u64::from(class.0) + 1, |hash, word| mix(hash.rotate_left(29) ^ 0x2545_f491_4f6c_dd1d, word))
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a pass knows fewer than 2^32 amounts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::NodeGres;

    #[test]
    fn amounts_are_numbered_once_and_calculated_with() {
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 4 }];
        let shape = Arc::new(NodeShape { cpus: 8, memory_mb: 1000, gres, ..NodeShape::default() });
        let mut rooms = Rooms::default();
        let class = rooms.class(&shape, &[]);
        assert_eq!(rooms.class(&Arc::new((*shape).clone()), &[]), class);
        let limited = rooms.class(&shape, &[6]);
        assert_eq!(rooms.amount(rooms.full(limited)), [8, 1000, 1, 4, 6]);
        assert_eq!((rooms.class(&shape, &[6]), rooms.class(&shape, &[])), (limited, class));
        let full = rooms.full(class);
        assert_eq!(rooms.amount(full), [8, 1000, 1, 4]);
        let part = rooms.minus(full, &[2, 100, 0, 4]);
        assert_eq!(rooms.amount(part), [6, 900, 1, 0]);
        assert!(rooms.within(part, full) && !rooms.within(full, part));
        assert_eq!(rooms.plus(part, &[2, 100, 0, 4]), full);
        assert_eq!(rooms.plus(full, &[2, 100, 0, 4]), full);
        let other = rooms.minus(full, &[4, 0, 0, 0]);
        let both = rooms.common(part, other);
        assert_eq!(rooms.amount(both), [4, 900, 1, 0]);
        let none = rooms.minus(full, &[9, 0, 0, 0]);
        assert!(!rooms.usable(none));
    }
}
