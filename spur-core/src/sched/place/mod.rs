//! Choosing nodes: which positions of a fabric a job gets, and why.
//!
//! Owns the order of preference that `docs/topology.md` promises. Promises: the same fabric, view and ask always give
//! the same placement; a request that can be met is never refused where the answer is marked exact; nothing here
//! knows jobs, partitions, time or reservations. Backfill, preemption, `spur plan` and the refusal at submission all
//! ask this one question, each with its own [`View`].

mod ask;
mod block;
mod choose;
mod cost;
mod even;
mod explain;
mod flat;
mod front;
mod problem;
mod rank;
mod score;
mod share;
mod slots;
mod solve;
mod trace;
mod window;

#[cfg(test)]
mod oracle;

pub use ask::{Ask, LinkNeed, Mode, Score, Segment, Strategy};
pub use block::{BlockRule, Containment};
pub use explain::{Lost, LostWhy, Misfit, MisfitKind, Placement, Unit};
pub use slots::{Slots, View};

use crate::model::fabric::{Fabric, Layer};
use cost::Narrow;
use problem::Problem;

/// Places a job: the best of all placements that are allowed, by the order in `docs/topology.md`.
///
/// # Errors
/// [`Misfit`] where none is allowed now; it says what is missing where.
pub fn place(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> Result<Placement, Misfit> {
    for nodes in sizes(view, ask) {
        if let Some(placement) = place_size(fabric, view, ask, nodes) {
            return Ok(placement);
        }
    }
    Err(explain::misfit(fabric, view, ask))
}

/// The numbers of nodes to try, the largest first.
fn sizes(view: &View<'_>, ask: &Ask) -> Vec<Option<u32>> {
    let Some((least, most)) = ask.nodes else { return vec![None] };
    let open = u32::try_from(view.slots.nodes()).unwrap_or(u32::MAX);
    let most = most.min(open).min(ask.tasks.unwrap_or(u32::MAX));
    (least.max(1)..=most).rev().map(Some).collect()
}

/// Places a job on a given number of nodes (None: on as many as its tasks need).
fn place_size(fabric: &Fabric, view: &View<'_>, ask: &Ask, nodes: Option<u32>) -> Option<Placement> {
    if ask.strategy == Strategy::Flat || fabric.roots().is_empty() {
        return flat::place_flat(fabric, view, ask, nodes);
    }
    let (within, touch) = containment(fabric, view, ask, nodes);
    let problem = Problem::new(fabric, view, ask, nodes, within, touch)?;
    if problem.layout.width() <= cost::NARROW {
        solve_with::<Narrow>(&problem)
    } else {
        solve_with::<Vec<i64>>(&problem)
    }
}

/// The lowest layer that has to hold the job, and the limit that the block rule sets on the layer below.
fn containment(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    nodes: Option<u32>,
) -> (Option<Layer>, Option<(Layer, u32)>) {
    if ask.strategy != Strategy::Block {
        return (ask.must, None);
    }
    let slots = if nodes.is_some() { 0 } else { u64::from(ask.tasks.unwrap_or(0)) };
    let rule = BlockRule::new(fabric, view.idle).containment(nodes.unwrap_or(0), slots);
    let within = match (rule.within, ask.must) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    (within, rule.touch)
}

fn solve_with<C: cost::Cost>(problem: &Problem<'_>) -> Option<Placement> {
    if problem.ask.contiguous {
        return window::contiguous::<C>(problem);
    }
    if let Some(leaves) = problem.ask.adjacent {
        return window::adjacent::<C>(problem, leaves);
    }
    let (winner, exact) = choose::choose::<C>(problem);
    winner.map(|winner| choose::realise(problem, winner, exact))
}
