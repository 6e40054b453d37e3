//! Places a job that ignores the fabric: lighter nodes first, and of these the nodes with the fewest free
//! slots.
//!
//! The result is the set of nodes whose list sorts first in that order. Where the number of nodes is open,
//! the fewest nodes that meet the counts are chosen first, then the fewest others that hold the rest. The
//! caps per leaf (`[topology.limits]`) hold here, too; under caps nodes are filled one after another in that
//! order.

mod capped;
mod consecutive;
mod counted;

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Fabric, Pos};
use crate::sched::place::Missed;
use crate::sched::place::answer::Placement;
use crate::sched::place::ask::Ask;
use crate::sched::place::problem::{Meter, fewest_heavy_of_any};
use crate::sched::place::slots::View;

use capped::Caps;
use counted::Counted;

/// A node that the job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    weight: u32,
    slots: u32,
    pos: Pos,
    takes: u32,
}

/// Places a job on any nodes, including those outside the fabric; `nodes` is one number of the ask's range,
/// or `None`.
pub(super) fn place_flat(
    view: &View<'_>,
    ask: &Ask,
    nodes: Option<u32>,
    meter: &Meter,
) -> Result<Placement, Missed> {
    let slots = ask.tasks.or(nodes).ok_or(Missed::NONE)?;
    let wanted = Wanted { fabric: view.fabric, ask, slots, nodes, caps: Caps::of(ask), meter };
    let most = if ask.tasks.is_none() { 1 } else { ask.max_tasks_per_node.unwrap_or(u32::MAX) };
    let mut free: Vec<Free> = (view.slots.iter())
        .map(|(pos, slots)| {
            let weight = view.weights.map_or(0, |weights| weights.at(pos));
            Free { weight, slots, pos, takes: slots.min(most) }
        })
        .filter(|free| free.takes > 0)
        .collect();
    if ask.contiguous {
        let chosen = consecutive::best(&free, wanted).ok_or(Missed::NONE)?;
        return Ok(placement(view, chosen, wanted, true));
    }
    let is_plain = ask.counts.is_empty() && ask.required.is_empty() && wanted.caps.is_none();
    if let (true, None, Some(nodes)) = (is_plain, ask.tasks, nodes) {
        let chosen = first(free, nodes).ok_or(Missed::NONE)?;
        return Ok(placement(view, chosen, wanted, true));
    }
    free.sort_unstable();
    let (taken, exact) = match wanted.caps {
        None => pick(&free, wanted),
        Some(caps) => capped::pick(&free, wanted, caps),
    };
    let taken = taken.ok_or(Missed { exact })?;
    let chosen = free.into_iter().zip(taken).filter(|(_, taken)| *taken).map(|(free, _)| free).collect();
    Ok(placement(view, chosen, wanted, exact))
}

/// The request: slots, and the number of nodes if it is given.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    fabric: &'a Fabric,
    ask: &'a Ask,
    slots: u32,
    nodes: Option<u32>,
    caps: Option<Caps<'a>>,
    meter: &'a Meter,
}

/// The first `nodes` nodes in order of preference; `None` if there are fewer.
fn first(mut free: Vec<Free>, nodes: u32) -> Option<Vec<Free>> {
    let nodes = nodes as usize;
    if nodes < free.len() {
        free.select_nth_unstable(nodes);
        free.truncate(nodes);
    }
    (free.len() == nodes).then_some(free)
}

/// The first nodes, in the order of `free`, with which the job can be completed. The flag is true if the
/// search was exhaustive.
fn pick(free: &[Free], wanted: Wanted<'_>) -> (Option<Vec<bool>>, bool) {
    let ask = wanted.ask;
    if wanted.nodes.is_none() && ask.counts.is_empty() && ask.required.is_empty() {
        return (fill(free, vec![false; free.len()], wanted.slots), true);
    }
    let Some(mut counted) = Counted::new(free, ask, wanted.meter) else { return (None, true) };
    let taken = match wanted.nodes {
        Some(nodes) if nodes > wanted.slots => None,
        Some(nodes) => counted.first(nodes, wanted.slots),
        None => counted.fewest(wanted.slots).and_then(|taken| fill(free, taken, wanted.slots)),
    };
    (taken, counted.exact)
}

/// Adds nodes for the missing slots: as few as possible of the heaviest weight, then of the next, and so on;
/// of those sets the one whose list sorts first.
fn fill(free: &[Free], mut taken: Vec<bool>, slots: u32) -> Option<Vec<bool>> {
    let held = free.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(free, _)| free.takes);
    let mut left = u64::from(held.fold(slots, u32::saturating_sub));
    let mut weights: Vec<u32> = free.iter().rev().map(|free| free.weight).collect();
    weights.dedup();
    // Classes run from the heaviest weight to the lightest.
    let mut classes: Vec<Class> = vec![Class::default(); weights.len()];
    let class_of = |weight: u32| weights.iter().position(|own| *own == weight);
    for (free, _) in free.iter().zip(&taken).filter(|(_, taken)| !**taken) {
        *classes[class_of(free.weight)?].rest.entry(free.takes).or_default() += 1;
    }
    if left > 0 {
        share_out(&mut classes, left)?;
    }
    for (free, taken) in free.iter().zip(&mut taken).filter(|(_, taken)| !**taken) {
        if left == 0 {
            break;
        }
        let class = class_of(free.weight)?;
        classes[class].leave(free.takes);
        if classes[class].wanted == 0 {
            continue;
        }
        classes[class].wanted -= 1;
        if classes.iter().map(Class::most).sum::<u64>() + u64::from(free.takes) >= left {
            *taken = true;
            left = left.saturating_sub(free.takes.into());
        } else {
            classes[class].wanted += 1;
        }
    }
    (left == 0).then_some(taken)
}

/// The nodes of one weight that are not chosen yet.
#[derive(Debug, Clone, Default)]
struct Class {
    /// Number of nodes, by the amount that they take.
    rest: BTreeMap<u32, u32>,
    /// Number of these nodes that the job still gets.
    wanted: u32,
}

impl Class {
    /// The most slots that `wanted` of these nodes take.
    fn most(&self) -> u64 {
        largest_of(&self.rest, self.wanted).1
    }

    fn leave(&mut self, takes: u32) {
        if let Some(count) = self.rest.get_mut(&takes) {
            *count -= 1;
        }
    }
}

/// For the `wanted` largest nodes: the number that are missing, and the slots that they take.
fn largest_of(rest: &BTreeMap<u32, u32>, wanted: u32) -> (u32, u64) {
    let (mut missing, mut most) = (wanted, 0);
    for (&takes, &count) in rest.iter().rev() {
        if missing == 0 {
            break;
        }
        let some = count.min(missing);
        missing -= some;
        most += u64::from(takes) * u64::from(some);
    }
    (missing, most)
}

/// Computes the fewest nodes of each class, the last being the lightest, that hold `slots` slots.
fn share_out(classes: &mut [Class], slots: u64) -> Option<()> {
    let all =
        |class: &Class| class.rest.iter().flat_map(|(takes, count)| (0..*count).map(|_| *takes)).collect();
    let heavier = fewest_heavy_of_any(classes.iter().map(all).collect(), slots)?;
    classes.iter_mut().zip(heavier).for_each(|(class, count)| class.wanted = count);
    let mut left = slots.saturating_sub(classes.iter().map(Class::most).sum());
    let lightest = classes.last_mut()?;
    for (&takes, &count) in lightest.rest.iter().rev() {
        let some = left.div_ceil(takes.into()).min(count.into());
        lightest.wanted += u32::try_from(some).unwrap_or(u32::MAX);
        left = left.saturating_sub(some * u64::from(takes));
    }
    (left == 0).then_some(())
}

fn placement(view: &View<'_>, mut chosen: Vec<Free>, wanted: Wanted<'_>, exact: bool) -> Placement {
    let Wanted { fabric, caps, .. } = wanted;
    chosen.sort_unstable_by_key(|free| free.pos);
    let mut left = wanted.slots;
    let mut after = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
    // For each leaf: the slots that it may still give under the caps, and the number of its nodes still to
    // fill.
    let mut leaves: BTreeMap<DomainId, (u32, u32)> = BTreeMap::new();
    for leaf in caps.iter().flat_map(|_| &chosen).filter_map(|free| fabric.leaf_of(free.pos)) {
        leaves.entry(leaf).or_insert((caps.map_or(u32::MAX, |caps| caps.slots), 0)).1 += 1;
    }
    let mut shares = Vec::with_capacity(chosen.len());
    for free in chosen {
        // Every node gets at least one task; earlier nodes get as many as they take.
        after -= 1;
        let mut share = free.takes.min(left.saturating_sub(after));
        if let Some((slots, nodes)) = fabric.leaf_of(free.pos).and_then(|leaf| leaves.get_mut(&leaf)) {
            *nodes -= 1;
            share = share.min(slots.saturating_sub(*nodes));
            *slots -= share;
        }
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
        score: None,
        exact,
    }
}
