//! Placement that ignores the fabric: lighter nodes first, and of those the ones with the fewest free slots.

use std::collections::BTreeMap;

use crate::model::fabric::{Fabric, Pos};

use super::{Ask, Placement, View};

/// A node that could take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    weight: u32,
    slots: u32,
    pos: Pos,
    takes: u32,
}

/// Places a job on any nodes, those outside the fabric included; `nodes` as in the ask, but one number.
pub(super) fn place_flat(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    nodes: Option<u32>,
) -> Option<Placement> {
    let each = match (ask.tasks_per_node, ask.tasks) {
        (Some(each), _) => Some(each.max(1)),
        (None, None) => Some(1),
        (None, Some(_)) => None,
    };
    let wanted = Wanted::new(ask, nodes, each)?;
    let takes = |slots: u32| match each {
        Some(each) => u32::from(slots >= each) * each,
        None => slots.min(ask.max_tasks_per_node.unwrap_or(u32::MAX)),
    };
    let mut free: Vec<Free> = (view.slots.iter())
        .map(|(pos, slots)| {
            let weight = view.weights.map_or(0, |weights| weights[pos.index()]);
            Free { weight, slots, pos, takes: takes(slots) }
        })
        .filter(|free| free.takes > 0)
        .collect();
    let chosen = if ask.contiguous {
        window(&free, ask, wanted)?
    } else {
        free.sort_unstable();
        pick(&free, ask, wanted)?
    };
    Some(placement(fabric, view, chosen, wanted, each))
}

/// How much is wanted: slots, and nodes where their number is given.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    slots: u32,
    nodes: Option<u32>,
}

impl Wanted {
    fn new(ask: &Ask, nodes: Option<u32>, each: Option<u32>) -> Option<Self> {
        match (each, nodes, ask.tasks) {
            (Some(each), Some(nodes), None) => {
                Some(Self { slots: nodes.checked_mul(each)?, nodes: Some(nodes) })
            }
            (Some(each), nodes, Some(tasks)) => {
                let needed = tasks / each;
                let fits = tasks % each == 0 && nodes.is_none_or(|nodes| nodes == needed);
                fits.then_some(Self { slots: tasks, nodes: Some(needed) })
            }
            (None, nodes, Some(tasks)) => Some(Self { slots: tasks, nodes }),
            (None, _, None) | (Some(_), None, None) => None,
        }
    }
}

/// The first nodes in order of preference with which the job can still be completed; `free` is in that order.
fn pick(free: &[Free], ask: &Ask, wanted: Wanted) -> Option<Vec<Free>> {
    let mut taken = vec![false; free.len()];
    for &pos in &ask.required {
        taken[free.iter().position(|free| free.pos == pos)?] = true;
    }
    for (set, need) in &ask.counts {
        let held = (0..free.len()).filter(|&i| taken[i] && set.contains(free[i].pos.index())).count();
        let missing = (*need as usize).saturating_sub(held);
        let more: Vec<usize> = (0..free.len())
            .filter(|&i| !taken[i] && set.contains(free[i].pos.index()))
            .take(missing)
            .collect();
        if more.len() < missing {
            return None;
        }
        more.into_iter().for_each(|i| taken[i] = true);
    }
    let mut left = wanted.slots;
    let mut room = wanted.nodes.unwrap_or(u32::MAX);
    let mut rest: BTreeMap<u32, u32> = BTreeMap::new();
    for (free, &taken) in free.iter().zip(&taken) {
        if taken {
            room = room.checked_sub(1)?;
            left = left.saturating_sub(free.takes);
        } else {
            *rest.entry(free.takes).or_default() += 1;
        }
    }
    for (index, free) in free.iter().enumerate() {
        let enough = if wanted.nodes.is_some() { room == 0 } else { left == 0 };
        if taken[index] || enough {
            continue;
        }
        if let Some(count) = rest.get_mut(&free.takes) {
            *count -= 1;
        }
        // With a number of nodes, a small node is passed over where the others could not make up for it.
        if wanted.nodes.is_none() || free.takes.saturating_add(largest(&rest, room - 1)) >= left {
            taken[index] = true;
            room -= 1;
            left = left.saturating_sub(free.takes);
        }
    }
    // Every node has a task.
    let count = taken.iter().filter(|taken| **taken).count();
    let complete = left == 0 && wanted.nodes.is_none_or(|_| room == 0) && count <= wanted.slots as usize;
    complete.then(|| free.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(free, _)| *free).collect())
}

/// The most that so many of the nodes can take.
fn largest(rest: &BTreeMap<u32, u32>, mut nodes: u32) -> u32 {
    let mut sum: u32 = 0;
    for (&takes, &count) in rest.iter().rev() {
        let some = count.min(nodes);
        sum = sum.saturating_add(takes.saturating_mul(some));
        nodes -= some;
        if nodes == 0 {
            break;
        }
    }
    sum
}

/// Consecutive positions: the window with the least weight, then the fewest slots, then the first; `free` is in
/// fabric order.
fn window(free: &[Free], ask: &Ask, wanted: Wanted) -> Option<Vec<Free>> {
    let mut best: Option<(u64, u64, &[Free])> = None;
    for start in 0..free.len() {
        let mut sum: u64 = 0;
        for end in start..free.len() {
            if end > start && free[end].pos.0 != free[end - 1].pos.0 + 1 {
                break;
            }
            sum += u64::from(free[end].takes);
            let some = &free[start..=end];
            let count = some.len() as u64;
            if wanted.nodes.is_some_and(|nodes| count > u64::from(nodes)) || count > u64::from(wanted.slots) {
                break;
            }
            let complete = wanted.nodes.is_none_or(|nodes| count == u64::from(nodes));
            if !complete || sum < u64::from(wanted.slots) || !holds_all(some, ask) {
                continue;
            }
            let weight = some.iter().map(|free| u64::from(free.weight)).sum();
            let slots = some.iter().map(|free| u64::from(free.slots)).sum();
            if best.is_none_or(|best| (weight, slots) < (best.0, best.1)) {
                best = Some((weight, slots, some));
            }
            break;
        }
    }
    best.map(|(_, _, some)| some.to_vec())
}

/// Whether the required nodes and the counted sets are in a window.
fn holds_all(some: &[Free], ask: &Ask) -> bool {
    ask.required.iter().all(|&pos| some.iter().any(|free| free.pos == pos))
        && ask.counts.iter().all(|(set, need)| {
            some.iter().filter(|free| set.contains(free.pos.index())).count() >= *need as usize
        })
}

fn placement(
    fabric: &Fabric,
    view: &View<'_>,
    mut chosen: Vec<Free>,
    wanted: Wanted,
    each: Option<u32>,
) -> Placement {
    chosen.sort_unstable_by_key(|free| free.pos);
    let mut left = wanted.slots;
    let mut after = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
    let mut shares = Vec::with_capacity(chosen.len());
    for free in chosen {
        // Every node gets at least one task, earlier ones as many as they take.
        after -= 1;
        let share = each.unwrap_or_else(|| free.takes.min(left.saturating_sub(after)));
        left = left.saturating_sub(share);
        shares.push((free.pos, share));
    }
    let positions: Vec<Pos> = shares.iter().map(|&(pos, _)| pos).collect();
    let slots: u64 = positions.iter().map(|&pos| u64::from(view.slots.at(pos))).sum();
    Placement {
        spans: fabric.spans(&positions),
        common: fabric.deepest_common(&positions),
        waste: slots.saturating_sub(u64::from(wanted.slots)),
        shares,
        exact: true,
    }
}
