//! Computes the holes of one node from its steps.

use smallvec::SmallVec;

use crate::sched::inventory::amounts::{Amount, CPUS, RoomId, Rooms, is_within};

use super::second::Second;
use super::{FreeStep, Stretch};

/// True if a stretch of time overlaps or touches another.
#[inline]
pub(super) fn is_near((from, to): Stretch, start: Second, end: Second) -> bool {
    start <= to && end >= from
}

/// A hole: start, end, and the number of its amount.
pub(super) type Free = (Second, Second, RoomId);

/// The longest stretches if of any two adjacent amounts one contains the other, as while only CPUs are taken.
/// Returns whether that holds. An amount lasts until a smaller one comes, and began with the first one that
/// was not smaller.
pub(super) fn nested(
    rooms: &Rooms,
    steps: &[FreeStep],
    open: &mut Vec<FreeStep>,
    stretches: &mut Vec<Free>,
) -> bool {
    open.clear();
    for step in steps {
        if !rooms.usable(step.room) {
            stretches.extend(open.drain(..).map(|last| (last.from, step.from, last.room)));
            continue;
        }
        let mut from = step.from;
        while let Some(last) = open.last() {
            if rooms.within(last.room, step.room) {
                break;
            }
            if !rooms.within(step.room, last.room) {
                return false;
            }
            stretches.push((last.from, step.from, last.room));
            from = last.from;
            open.pop();
        }
        if open.last().is_none_or(|last| last.room != step.room) {
            open.push(FreeStep { from, room: step.room });
        }
    }
    stretches.extend(open.iter().map(|last| (last.from, Second::NEVER, last.room)));
    true
}

/// The longest stretches in general. For each start the amount shrinks as the stretch grows. A stretch counts
/// just before the amount shrinks, unless it could have begun earlier. Only stretches near another one are
/// needed.
pub(super) fn all(rooms: &mut Rooms, steps: &[FreeStep], near: Stretch, stretches: &mut Vec<Free>) {
    let reached = steps.partition_point(|step| step.from < near.0);
    let mut least: Amount = SmallVec::new();
    let mut room = None;
    // A stretch that begins earlier has, at that point, the least of all steps until then.
    for first in (0..reached).rev() {
        let amount = rooms.amount(steps[first].room);
        if first + 1 == reached {
            least.extend_from_slice(amount);
        } else if !is_within(&least, amount) {
            least.iter_mut().zip(amount).for_each(|(least, there)| *least = (*least).min(*there));
            room = None;
        }
        if least[CPUS] == 0 {
            break;
        }
        if *least == *amount {
            room = Some(steps[first].room);
        }
        grow(rooms, steps, (first, reached), (least.clone(), room), stretches);
    }
    for (first, begin) in steps.iter().enumerate().skip(reached).take_while(|(_, begin)| begin.from <= near.1)
    {
        let least = Amount::from_slice(rooms.amount(begin.room));
        grow(rooms, steps, (first, first + 1), (least, Some(begin.room)), stretches);
    }
}

/// The stretches that begin with a step and last at least until another; `least` is the amount until then,
/// with its number if known.
fn grow(
    rooms: &mut Rooms,
    steps: &[FreeStep],
    (first, until): (usize, usize),
    (mut least, mut room): (Amount, Option<RoomId>),
    stretches: &mut Vec<Free>,
) {
    let begin = steps[first];
    let before = first.checked_sub(1).map(|before| steps[before].room);
    for next in until..=steps.len() {
        if least[CPUS] == 0 || before.is_some_and(|before| is_within(&least, rooms.amount(before))) {
            break;
        }
        let step = steps.get(next);
        if step.is_some_and(|step| is_within(&least, rooms.amount(step.room))) {
            continue;
        }
        let known = room.unwrap_or_else(|| rooms.intern(rooms.class_of(begin.room), &least));
        let Some(step) = step else {
            stretches.push((begin.from, Second::NEVER, known));
            break;
        };
        stretches.push((begin.from, step.from, known));
        let there = rooms.amount(step.room);
        least.iter_mut().zip(there).for_each(|(least, there)| *least = (*least).min(*there));
        room = (*least == *there).then_some(step.room);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::ALWAYS;
    use super::*;
    use crate::model::node::{NodeGres, NodeShape};

    /// The amounts that a node has from each second on.
    fn steps(rooms: &mut Rooms, amounts: impl IntoIterator<Item = [u64; 3]>) -> Vec<FreeStep> {
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 4 }];
        let shape = NodeShape { cpus: 6, memory_mb: 4, gres, ..NodeShape::default() };
        let class = rooms.class(&Arc::new(shape), &[]);
        let found = amounts.into_iter().map(|amount| rooms.intern(class, &amount));
        let steps = (0..).zip(found).map(|(at, room)| FreeStep { from: Second(at), room });
        let mut steps: Vec<FreeStep> = steps.collect();
        steps.dedup_by_key(|step| step.room);
        steps
    }

    proptest! {
        #[test]
        fn nested_rooms_have_the_same_stretches_either_way(cpus in prop::collection::vec(1_u64..7, 1..20)) {
            let mut rooms = Rooms::default();
            let steps = steps(&mut rooms, cpus.into_iter().map(|cpus| [cpus, 4, 1]));
            let (mut quick, mut slow) = (Vec::new(), Vec::new());
            prop_assert!(nested(&rooms, &steps, &mut Vec::new(), &mut quick));
            all(&mut rooms, &steps, ALWAYS, &mut slow);
            quick.retain(|(_, _, room)| rooms.usable(*room));
            quick.sort_unstable();
            slow.sort_unstable();
            prop_assert_eq!(quick, slow);
        }

        #[test]
        fn stretches_near_another_are_those_of_all(
            amounts in prop::collection::vec([0_u64..4, 0_u64..4, 0_u64..4], 1..14),
            near in (0_u32..16, 0_u32..8),
        ) {
            let mut rooms = Rooms::default();
            let steps = steps(&mut rooms, amounts);
            let near = (Second(near.0), Second(near.0 + near.1));
            let (mut some, mut every) = (Vec::new(), Vec::new());
            all(&mut rooms, &steps, near, &mut some);
            all(&mut rooms, &steps, ALWAYS, &mut every);
            every.retain(|(start, end, _)| is_near(near, *start, *end));
            some.sort_unstable();
            every.sort_unstable();
            prop_assert_eq!(some, every);
        }
    }
}
