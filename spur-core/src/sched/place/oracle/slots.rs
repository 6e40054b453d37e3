//! Slots that are counted step by step equal those that are counted at once.

use super::case::Random;
use super::{Fabric, Pos, Slots};

fn counted_at_once(fabric: &Fabric, whole: bool, tasks: &[u32]) -> Slots {
    match whole {
        true => Slots::whole(fabric, (0..tasks.len()).filter(|index| tasks[*index] > 0).collect()),
        false => Slots::tasks(fabric, tasks.to_vec()),
    }
}

#[test]
fn slots_are_the_same_however_they_are_counted() {
    for seed in 0..super::cases(300) {
        let mut random = Random::new(seed);
        let fabric = random.fabric();
        let positions: Vec<Pos> = (0..).take(fabric.len()).map(Pos).collect();
        let count = if positions.is_empty() { 0 } else { random.between(0, 30) };
        let offers: Vec<(Pos, u32)> =
            (0..count).map(|_| (random.pick(&positions), random.between(0, 5))).collect();
        let (at_once, one_by_one) =
            offers.split_at(random.between(0, u32::try_from(offers.len()).unwrap()) as usize);
        for whole in [false, true] {
            let mut counted = Slots::none(&fabric, whole);
            // Former contents must leave nothing behind.
            counted.refill(&fabric, positions.iter().map(|pos| (*pos, 70_000)));
            counted.clear();
            assert_eq!(counted, Slots::none(&fabric, whole), "seed {seed}");
            let mut begun = Vec::new();
            let small = at_once.iter().map(|(pos, slots)| (*pos, u16::try_from(*slots).unwrap()));
            counted.raise_all(small, &mut begun);
            counted.tell_leaves(&fabric, &begun);
            for (pos, slots) in one_by_one {
                counted.raise(&fabric, *pos, *slots);
            }
            counted.sum_up(&fabric);
            let most = |index: usize| {
                offers.iter().filter(|(pos, _)| pos.index() == index).map(|(_, slots)| *slots).max()
            };
            let tasks: Vec<u32> = (0..fabric.len()).map(|index| most(index).unwrap_or(0)).collect();
            assert_eq!(counted, counted_at_once(&fabric, whole, &tasks), "seed {seed}");
        }
    }
}

#[test]
fn slots_that_were_counted_again_are_those_counted_at_once() {
    for seed in 0..super::cases(300) {
        let mut random = Random::new(seed);
        let fabric = random.fabric();
        let some = |random: &mut Random| random.pick(&[0, 0, 1, 2, 5, 65_534, 65_535, 70_000]);
        let before: Vec<u32> = (0..fabric.len()).map(|_| some(&mut random)).collect();
        let mut after = before.clone();
        let changes = if before.is_empty() { 0 } else { random.between(0, 30) };
        let mut changed = Vec::new();
        for _ in 0..changes {
            let index = random.between(0, u32::try_from(before.len() - 1).unwrap());
            after[index as usize] = some(&mut random);
            changed.push((Pos(index), after[index as usize]));
        }
        for whole in [false, true] {
            let mut counted = counted_at_once(&fabric, whole, &before);
            counted.put_all(&fabric, &changed);
            counted.sum_up(&fabric);
            assert_eq!(counted, counted_at_once(&fabric, whole, &after), "seed {seed}");
        }
    }
}
