//! Places several requests that start together: the components of a het job.
//!
//! Each component is placed by [`place`] on what the components before it leave. This module decides how far
//! each component is confined so that all fit well. Every component keeps its own constraints, and all are in
//! one domain of each layer that `--het-gather` makes a must. Allowed ways are compared in lexicographic
//! order:
//!
//! 1. left to right, the fewest domains of each layer that `--het-gather` prefers, over all components;
//! 2. component by component, how local its placement is: see `rank::locality`;
//! 3. component by component, how well it fits, and whose nodes come first.
//!
//! The result is allowed. If it is marked exact, no other way is better in 1 and 2, and a refusal means that
//! there is no way.

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

/// Number of sets of domains that are tried for one preferred layer, so that a wide fabric does not delay a
/// pass.
const MOST_SETS: usize = 2_000;

/// Number of combinations of a partition and an alternative for each component, so that many choices do not
/// delay a pass.
const MOST_WAYS: usize = 64;

/// A component to place.
pub(super) struct Member<'a> {
    pub(super) eligible: &'a EligibleNodes,
    pub(super) need: &'a Need,
    /// The asks for the numbers of nodes that will do, the largest first.
    pub(super) asks: &'a [Ask],
    /// For each node, the amount that it has for this component for its run time; `None` if the component may
    /// not run there.
    pub(super) rooms: Vec<Option<RoomId>>,
    /// Positions that are not entirely free, for a component that wants whole leaves.
    pub(super) occupied: Option<FixedBitSet>,
}

/// The nodes of one component.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) placement: Placement,
    /// The amounts that it takes of each node, in rank order.
    pub(super) parts: Vec<Part>,
}

/// The common domains of the components, as layers of one fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nearness {
    /// The layer at which one domain holds all components.
    pub(super) must: Option<Layer>,
    /// Layers of which the components should use few domains, the first one first.
    pub(super) prefer: Vec<Layer>,
    /// Clauses without effect, each with the reason.
    pub(super) warnings: Vec<String>,
}

impl Nearness {
    /// The layers that `--het-gather` names.
    ///
    /// # Errors
    /// A message about a must for a layer that does not exist.
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

/// Places all members on the amounts of one moment. `near` refers to the fabric of all members; if it is
/// empty, each may be on a fabric of its own. `budget` bounds the search in positions, and keeps what is
/// left. `shared` is a budget shared with other searches.
///
/// # Errors
/// No way was found; the flag is true if none exists.
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

/// True if no better way exists than the one found, or none at all.
pub(super) fn is_sure(found: &Result<Vec<Seat>, bool>) -> bool {
    found.as_ref().map_or_else(|sure| *sure, |seats| seats.iter().all(|seat| seat.placement.exact))
}

/// The best way within some positions; `prefer` has the remaining preferred layers.
fn gather(
    search: &mut JointSearch<'_, '_>,
    prefer: &[Layer],
    within: Option<&FixedBitSet>,
) -> Option<JointPlacement> {
    let (Some((layer, rest)), Some(within)) = (prefer.split_first(), within) else {
        return search.assign(within);
    };
    // The unconfined result says how many domains are needed at most.
    let base = search.assign(Some(within))?;
    let at = search.prefer.iter().position(|preferred| preferred == layer)?;
    let fabric = search.fabric();
    let units: Vec<Range<usize>> = (units(&fabric, *layer).into_iter())
        .filter(|unit| within.contains_any_in_range(unit.clone()))
        .collect();
    let (most, mut sets) = (usize::try_from(base.near[at]).unwrap_or(usize::MAX), 0);
    for size in 1..=most {
        // Nodes in no domain of the layer are in no set, but count as a domain.
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

/// Advances to the next combination of indices below `count`, in order; returns false after the last.
fn next_choice(chosen: &mut [usize], count: usize) -> bool {
    let size = chosen.len();
    let Some(at) = (0..size).rev().find(|at| chosen[*at] + size - at < count) else { return false };
    let next = chosen[at] + 1;
    chosen[at..].iter_mut().zip(next..).for_each(|(number, value)| *number = value);
    true
}

/// The positions of each unit of a layer: of its domains, or of one node each, nodes in no domain included.
fn units(fabric: &Fabric, layer: Layer) -> Vec<Range<usize>> {
    if layer == Layer::NODE {
        return (0..fabric.len()).map(|index| index..index + 1).collect();
    }
    fabric.domains_covering(layer).into_iter().map(|id| fabric.domain(id).range()).collect()
}

/// The positions of several units.
fn of_units<'a>(fabric: &Fabric, units: impl IntoIterator<Item = &'a Range<usize>>) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(fabric.len());
    units.into_iter().for_each(|unit| set.insert_range(unit.clone()));
    set
}

/// All combinations of one choice for each component, the first choices first, at most [`MOST_WAYS`].
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

/// The nearness of components that are placed on these fabrics.
///
/// # Errors
/// A message about a layer that does not exist, or about a must for components that are not on one fabric.
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
