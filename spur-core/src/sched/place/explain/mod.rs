//! Answers with reasons: a placement, or what is missing where.

mod words;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::sched::place::answer::{Misfit, MisfitKind, Missed, Placement, Unit};
use crate::sched::place::ask::{Ask, Frame, Strategy};
use crate::sched::place::dispatch::place;
use crate::sched::place::pareto::may_hold;
use crate::sched::place::problem::{Meter, Problem, positions};
use crate::sched::place::slots::View;

pub use words::{BY_TOPOLOGY, Nearest, Never, hold_fewer, refusal};

/// Places a job like [`place`]; without a placement it explains why, at the cost of a few more searches.
///
/// # Errors
/// [`Misfit`] if there is no placement: what is missing, and which domains come nearest.
pub fn place_or_say(view: &View<'_>, ask: &Ask) -> Result<Placement, Misfit> {
    place(view, ask).map_err(|missed| misfit(view, ask, missed))
}

/// Number of domains that a misfit names.
const NAMED: usize = 3;

/// The reason why a job could not be placed, and the domains that come nearest.
pub(super) fn misfit(view: &View<'_>, ask: &Ask, missed: Missed) -> Misfit {
    let (fabric, (within, problem)) = (view.fabric, least(view, ask));
    let nodes = ask.nodes.map(|(least, _)| least);
    let (unit, wanted) = match (ask.tasks, nodes) {
        // One task on one node counts as a node.
        (Some(1), Some(1)) => (Unit::Nodes, 1),
        (Some(tasks), _) => (Unit::Tasks, tasks),
        (None, nodes) => (Unit::Nodes, nodes.unwrap_or(0)),
    };
    let mut misfit = Misfit {
        wanted,
        unit,
        layer: within,
        kind: MisfitKind::Shape,
        nearest: Vec::new(),
        exact: missed.exact,
    };
    let Some(problem) = problem else { return misfit };
    let mut takes = largest(&problem, holders(fabric, within));
    if takes.first().is_none_or(|&(_, most)| most < problem.amount) {
        misfit.kind = MisfitKind::TooFew;
    }
    if let Some(need) = ask.min_speed.filter(|_| misfit.kind == MisfitKind::TooFew) {
        misfit.kind = MisfitKind::Link;
        let is_low = |id: &DomainId| within.is_none_or(|within| fabric.domain(*id).layer() <= within);
        takes = largest(&problem, fast_enough(fabric, need).filter(is_low));
    }
    if ask.required.iter().any(|&pos| view.slots.at(pos) == 0) {
        misfit.kind = MisfitKind::Required;
    } else if misfit.kind == MisfitKind::Shape {
        misfit.kind = shape(view, ask, (unit, wanted));
        if let MisfitKind::Span { layer, .. } = misfit.kind {
            takes = largest(&problem, fabric.domains_covering(layer));
        }
    }
    misfit.nearest = takes;
    misfit
}

/// The problem for the fewest nodes, and the layer at which one domain has to hold the job, if any.
fn least<'a>(view: &'a View<'a>, ask: &'a Ask) -> (Option<Layer>, Option<Problem<'a>>) {
    let nodes = ask.nodes.map(|(least, _)| least);
    let frame = Frame::of(view, ask, nodes);
    (frame.within, Problem::new(view, ask, nodes, frame, &Meter::of(view, ask)))
}

/// The domains of which one has to hold a job.
fn holders(fabric: &Fabric, within: Option<Layer>) -> Vec<DomainId> {
    match within {
        Some(layer) if layer > Layer::NODE => fabric.domains_covering(layer),
        _ => fabric.roots().to_vec(),
    }
}

/// The positions of domains that could hold the whole job, by their capacity and by the nodes that the job
/// requires; all positions if no domain has to hold it.
#[must_use]
pub fn could_hold(view: &View<'_>, ask: &Ask) -> FixedBitSet {
    let fabric = view.fabric;
    let mut could = FixedBitSet::with_capacity(fabric.len());
    match least(view, ask) {
        (Some(within), Some(problem)) if ask.strategy != Strategy::Flat => {
            let holds = |id: &DomainId| problem.capacity(*id) >= problem.amount && may_hold(&problem, *id);
            let suited = holders(fabric, Some(within)).into_iter().filter(holds);
            suited.for_each(|id| could.insert_range(fabric.domain(id).range()));
        }
        _ => could.insert_range(..),
    }
    could
}

/// The domains that take most, the largest first, at most [`NAMED`], each with the amount that it could take.
fn largest(problem: &Problem<'_>, domains: impl IntoIterator<Item = DomainId>) -> Vec<(DomainId, u32)> {
    let mut takes: Vec<(DomainId, u32)> = domains.into_iter().map(|id| (id, problem.capacity(id))).collect();
    takes.sort_by_key(|&(id, takes)| (std::cmp::Reverse(takes), problem.fabric.domain(id).range().start));
    takes.truncate(NAMED);
    takes
}

/// The highest domains whose links reach a speed: the parent's links do not.
fn fast_enough(fabric: &Fabric, need: u64) -> impl Iterator<Item = DomainId> {
    let is_fast = move |id: DomainId| fabric.domain(id).link().speed.is_some_and(|speed| speed >= need);
    let fast = fabric.domains().map(|(id, _)| id).filter(move |&id| is_fast(id));
    fast.filter(move |&id| fabric.domain(id).parent().is_none_or(|parent| !is_fast(parent)))
}

/// The constraint that alone prevents a placement although enough is free; [`MisfitKind::Shape`] if no single
/// one does.
fn shape(view: &View<'_>, ask: &Ask, (unit, wanted): (Unit, u32)) -> MisfitKind {
    let without = |ask: Ask| place(view, &ask).is_ok();
    if let [(layer, most)] = ask.max_spans[..]
        && without(Ask { max_spans: Vec::new(), ..ask.clone() })
    {
        return MisfitKind::Span { layer, most };
    }
    if ask.contiguous {
        let longest = (view.fabric.roots().iter())
            .map(|&root| stretch(view, unit, view.fabric.domain(root).range()))
            .max();
        if let Some(longest) = longest.filter(|longest| *longest < wanted) {
            return MisfitKind::Apart { longest };
        }
    }
    MisfitKind::Shape
}

/// The amount in the longest stretch of positions that all have free slots.
fn stretch(view: &View<'_>, unit: Unit, range: std::ops::Range<usize>) -> u32 {
    let (mut longest, mut here) = (0_u32, 0_u32);
    for pos in positions(range) {
        here = match view.slots.at(pos) {
            0 => 0,
            slots => here.saturating_add(if unit == Unit::Nodes { 1 } else { slots }),
        };
        longest = longest.max(here);
    }
    longest
}
