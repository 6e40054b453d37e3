//! Choosing nodes for several requests that start together: the components of a het job.
//!
//! Each component is placed by [`place`], on the room that those before it leave it. What is decided here is how far
//! each of them is confined so that all fit, and fit well. Of all ways to place them that are allowed (every component
//! for itself, and all in one domain of each layer that `--het-gather` makes a must), the order is lexicographic:
//!
//! 1. left to right, the fewest domains that all components together touch of each layer that `--het-gather` prefers;
//! 2. component by component, how local its placement is: see `rank::locality`;
//! 3. component by component, how well it fits and which nodes come first.
//!
//! Promises: what is found is allowed; where the answer is marked exact no other way is better in 1 and 2, and a refusal
//! means that there is no way.

mod counts;
mod rank;
mod search;

use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{Fabric, Layer};
use crate::model::job::JobSpec;
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::text::gather::HetGather;

use super::inventory::Inventory;
use super::place::{Ask, Placement, SharedBudget, layer_named};
use super::request::{Need, Part};
use search::{JointPlacement, JointSearch};

/// Sets of domains that are tried for one preferred layer, so that a wide fabric does not hold up a pass.
const MOST_SETS: usize = 2_000;

/// Ways to pick a partition and an alternative of its constraint for each component: a count, so that a job of many
/// components with many choices each does not hold up a pass.
const MOST_WAYS: usize = 64;

/// A component to be placed.
pub(super) struct Member<'a> {
    pub(super) eligible: &'a EligibleNodes,
    pub(super) need: &'a Need,
    /// The sizes that will do, the largest first.
    pub(super) asks: &'a [Ask],
    /// By node: what it has for this component as long as it is to run; `None` where it may not run.
    pub(super) rooms: Vec<Option<RoomId>>,
    /// Positions that are not entirely free, for a component that wants whole leaves.
    pub(super) occupied: Option<FixedBitSet>,
}

/// Where one component goes.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) placement: Placement,
    /// What it takes of which node, in rank order.
    pub(super) parts: Vec<Part>,
}

/// Where the components shall be, as layers of one fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nearness {
    /// One domain that counts for this layer holds all of them.
    pub(super) must: Option<Layer>,
    /// Layers of which few domains shall be touched.
    pub(super) prefer: Vec<Layer>,
    /// What has no effect, and why.
    pub(super) warnings: Vec<String>,
}

impl Nearness {
    /// The layers that `--het-gather` names.
    ///
    /// # Errors
    /// A must for a layer that is not there.
    fn of(wish: &HetGather, fabric: &Fabric) -> Result<Self, String> {
        let mut nearness = Self::default();
        for clause in &wish.clauses {
            let layer = match layer_named(fabric, &clause.layer, format_args!("--het-gather={clause}")) {
                Ok(layer) => layer,
                Err(problem) if clause.must => return Err(problem.to_string()),
                Err(problem) => {
                    nearness.warnings.push(format!("{problem}; it has no effect"));
                    continue;
                }
            };
            if clause.must {
                nearness.must = nearness.must.into_iter().chain([layer]).min();
            } else if !nearness.prefer.contains(&layer) {
                nearness.prefer.push(layer);
            }
        }
        nearness.prefer.retain(|layer| nearness.must.is_none_or(|must| *layer < must));
        Ok(nearness)
    }
}

/// Places all members, whose rooms are those of one moment. `near` is about the fabric of all of them; where it says
/// nothing, each may be on a fabric of its own. `budget` bounds the search, in positions looked at; what is left of it stays
/// there. `shared` is what this search and others may take together.
///
/// # Errors
/// There is no way now; the flag says whether that is certain.
pub(super) fn place_together(
    inventory: &Inventory,
    rooms: &mut Rooms,
    members: &[Member<'_>],
    near: &Nearness,
    (budget, shared): (&mut u64, Option<&SharedBudget>),
) -> Result<Vec<Seat>, bool> {
    let mut search = JointSearch::new(inventory, rooms, members, near.prefer.clone(), (*budget, shared));
    let is_any = near.must.is_some() || !near.prefer.is_empty();
    let fabric = members.first().filter(|_| is_any).map(|first| &first.eligible.fabric);
    let found = match (near.must, fabric) {
        (Some(layer), Some(fabric)) => {
            let mut best: Option<JointPlacement> = None;
            for unit in units(fabric, layer) {
                let within = of_units(fabric, [&unit]);
                if search.has_enough(&within) {
                    take_better(&mut best, gather(&mut search, &near.prefer, Some(&within)));
                }
                best.iter().for_each(|best| search.beat(best));
            }
            best
        }
        _ => {
            let all = fabric.map(|fabric| of_units(fabric, [&(0..fabric.len())]));
            gather(&mut search, &near.prefer, all.as_ref())
        }
    };
    let exact = search.exact;
    *budget = search.budget;
    let mut seats = found.ok_or(exact)?.placed.into_iter().map(|placed| placed.seat).collect::<Vec<_>>();
    seats.iter_mut().for_each(|seat| seat.placement.exact &= exact);
    Ok(seats)
}

/// Whether it is certain that there is no better way than the one that was found, or none.
pub(super) fn is_sure(found: &Result<Vec<Seat>, bool>) -> bool {
    found.as_ref().map_or_else(|sure| *sure, |seats| seats.iter().all(|seat| seat.placement.exact))
}

/// The best way within some positions, where `prefer` is what is left of the preferred layers.
fn gather(
    search: &mut JointSearch<'_, '_>,
    prefer: &[Layer],
    within: Option<&FixedBitSet>,
) -> Option<JointPlacement> {
    let (Some((layer, rest)), Some(within)) = (prefer.split_first(), within) else {
        return search.assign(within);
    };
    // Unconfined: what can be had at all.
    let base = search.assign(Some(within))?;
    let at = search.prefer.iter().position(|preferred| preferred == layer)?;
    let fabric = search.fabric();
    let units: Vec<Range<usize>> = (units(&fabric, *layer).into_iter())
        .filter(|unit| within.contains_any_in_range(unit.clone()))
        .collect();
    let (most, mut sets) = (usize::try_from(base.near[at]).unwrap_or(usize::MAX), 0);
    for size in 1..=most {
        // Nodes that are in no domain of the layer are in no set, and count for it all the same.
        if size == most && rest.is_empty() || size > units.len() {
            break;
        }
        let mut best: Option<JointPlacement> = None;
        let mut chosen: Vec<usize> = (0..size).collect();
        while sets < MOST_SETS {
            sets += 1;
            let mut set = of_units(&fabric, chosen.iter().map(|index| &units[*index]));
            set.intersect_with(within);
            if search.has_enough(&set) {
                take_better(&mut best, gather(search, rest, Some(&set)));
            }
            if !next_choice(&mut chosen, units.len()) {
                break;
            }
        }
        search.exact &= sets < MOST_SETS;
        if best.is_some() {
            return best;
        }
    }
    Some(base)
}

fn take_better(best: &mut Option<JointPlacement>, other: Option<JointPlacement>) {
    let is_better = |other: &JointPlacement| best.as_ref().is_none_or(|best| other.is_better_than(best));
    if other.as_ref().is_some_and(is_better) {
        *best = other;
    }
}

/// The next choice of as many numbers below `count`, in order; false after the last.
fn next_choice(chosen: &mut [usize], count: usize) -> bool {
    let size = chosen.len();
    let Some(at) = (0..size).rev().find(|at| chosen[*at] + size - at < count) else { return false };
    let next = chosen[at] + 1;
    chosen[at..].iter_mut().zip(next..).for_each(|(number, value)| *number = value);
    true
}

/// The positions of each unit of a layer: of its domains, or of one node each, those that are in no domain included.
fn units(fabric: &Fabric, layer: Layer) -> Vec<Range<usize>> {
    if layer == Layer::NODE {
        return (0..fabric.len()).map(|index| index..index + 1).collect();
    }
    fabric.domains_covering(layer).into_iter().map(|id| fabric.domain(id).range()).collect()
}

/// The positions of some units.
fn of_units<'a>(fabric: &Fabric, units: impl IntoIterator<Item = &'a Range<usize>>) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(fabric.len());
    units.into_iter().for_each(|unit| set.insert_range(unit.clone()));
    set
}

/// Every way to choose one for each component, the first choices first.
pub(super) fn ways<T: Copy>(choices: &[Vec<T>]) -> Vec<Vec<T>> {
    let mut ways: Vec<Vec<T>> = vec![Vec::new()];
    for some in choices {
        let longer = ways
            .iter()
            .flat_map(|way| some.iter().map(move |one| way.iter().chain([one]).copied().collect::<Vec<T>>()));
        ways = longer.take(MOST_WAYS).collect();
    }
    ways
}

/// Where components shall be that are placed on these fabrics.
///
/// # Errors
/// A layer that is not there, or a must for components that are not on one fabric.
pub(super) fn nearness<'a>(
    spec: &JobSpec,
    mut fabrics: impl Iterator<Item = &'a Fabric>,
) -> Result<Nearness, String> {
    let wish = spec.fabric.as_ref().and_then(|fabric| fabric.het_gather.as_ref());
    let (Some(wish), Some(first)) = (wish, fabrics.next()) else { return Ok(Nearness::default()) };
    match fabrics.find(|other| other.name() != first.name()) {
        Some(other) if wish.clauses.iter().any(|clause| clause.must) => Err(format!(
            "--het-gather={wish}: components are placed on topologies {} and {}, and no domain holds both; give all of \
             them one topology",
            first.name(),
            other.name()
        )),
        Some(_) => Ok(Nearness::default()),
        None => Nearness::of(wish, first),
    }
}
