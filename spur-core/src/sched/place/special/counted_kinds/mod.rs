//! Whole nodes of one weight with counted features: a given number of nodes must be of some kind.
//!
//! Where no node is of two counted kinds, leaves hold the job if and only if they have enough nodes of each
//! kind and in all (Hall's condition). So the numbers of nodes of each kind are all that matters about a
//! leaf, and a leaf's cost does not depend on what it gives: one [`dynamic_programme`] over the leaves finds
//! the best ones. Of these, the first nodes are taken that leave enough for the needs that remain.

mod dynamic_programme;
mod kind_counts;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::answer::{Lost, Missed, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{self, Holder, Problem};

use super::comparison::{best_of, ranked};
use super::if_any;
use dynamic_programme::best_leaves;
use kind_counts::KindCounts;

/// Places a job of whole nodes of counted kinds; [`Missed::UNKNOWN`] if the solver does not apply.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if !applies(problem) {
        return Err(Missed::UNKNOWN);
    }
    let counts = KindCounts::new(problem).ok_or(Missed::UNKNOWN)?;
    for layer in problem.layers() {
        let here = problem.fabric.domains_of(layer).filter(|&id| problem.is_inside(id));
        let holders: Vec<DomainId> = here.filter(|&id| counts.holds(id)).collect();
        if let Some((holder, leaves)) = if_any(at_layer(&counts, &holders))? {
            let nodes = counts.first_nodes(&leaves).into_iter().map(|pos| (pos, 1));
            return Ok(Placement::new(problem, nodes.collect(), Some(holder), true));
        }
    }
    Err(Missed::NONE)
}

fn applies(problem: &Problem<'_>) -> bool {
    let ask = problem.ask;
    problem.by_nodes
        && problem.view.slots.are_whole()
        && !ask.counts.is_empty()
        && problem.layout.weights == 0
        && ask.mode == Mode::Consolidated
        && ask.prefer.is_empty()
        && ask.prefer_domain.is_none()
        && ask.min_speed.is_none()
        && !problem.lowest_latency
        && !ask.score.any()
        && problem.within != Some(Layer::NODE)
        && problem.span_caps.is_empty()
        && problem.is_free_but_for_counts()
}

/// The best leaves in one of several domains of one layer.
fn at_layer(counts: &KindCounts<'_, '_>, holders: &[DomainId]) -> Result<(DomainId, Vec<DomainId>), Missed> {
    let problem = counts.problem;
    let found = best_leaves(counts, holders)?;
    best_of(problem, holders.iter().copied().zip(found), |holder, leaves, _| {
        Ok((ranked(problem, holder, leaves.iter().map(|&leaf| (leaf, 1))), leaves))
    })
}

/// The best `most` domains that could have held such a job, each with the step at which it lost; `None` if
/// this solver does not apply.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if !applies(problem) {
        return None;
    }
    let counts = KindCounts::new(problem)?;
    let of_layer = |layer: Layer, _, may_lose: &dyn Fn(DomainId) -> bool| {
        let here = problem.fabric.domains_of(layer).filter(|&id| problem.is_inside(id) && may_lose(id));
        let holders: Vec<DomainId> = here.filter(|&id| counts.holds(id)).collect();
        let ranks = holders.iter().zip(best_leaves(&counts, &holders).ok()?);
        let rank =
            |id: DomainId, leaves: Vec<DomainId>| ranked(problem, id, leaves.iter().map(|&leaf| (leaf, 1)));
        let ranks = ranks.map(|(&id, leaves)| (rank(id, leaves), Holder::Domain(id)));
        Some(ranks.collect())
    };
    problem::losers(problem, true, most, of_layer)
}
