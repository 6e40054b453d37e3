//! Whole nodes of one weight of which so many have to be of some kind: counted features.
//!
//! Where no node is of two counted kinds, leaves hold the job if they have as many nodes as it needs, and of each kind as
//! many as it needs of that, whichever nodes are taken in the end: as the counts need no more nodes than the job has, what is
//! over of one kind can always give way to what another lacks. So leaves are told apart by the number of nodes of each kind
//! alone, and what they cost does not depend on what they give: one [`dynamic_programme`] over them finds the best. In these the first
//! nodes are taken that leave enough for what is needed still.

mod dynamic_programme;
mod kind_counts;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::answer::{Lost, Placement};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{self, Holder, Problem};

use super::comparison::{Comparison, order, ranked};
use super::outcome::{NoChoice, Outcome};
use dynamic_programme::best_leaves;
use kind_counts::KindCounts;

/// Places a job of whole nodes of counted kinds.
pub(super) fn place(problem: &Problem<'_>) -> Outcome {
    if !applies(problem) {
        return Outcome::Other;
    }
    let Some(counts) = KindCounts::new(problem) else { return Outcome::Other };
    for layer in (Layer::LEAF.0..=problem.within.unwrap_or(problem.fabric.top()).0).map(Layer) {
        let here = problem.fabric.domains_of(layer).filter(|&id| problem.is_inside(id));
        let holders: Vec<DomainId> = here.filter(|&id| counts.holds(id)).collect();
        match at_layer(&counts, &holders) {
            Ok((holder, leaves)) => {
                let nodes = counts.first_nodes(&leaves).into_iter().map(|pos| (pos, 1));
                return Outcome::Placed(Placement::new(problem, nodes.collect(), Some(holder), true));
            }
            Err(NoChoice::Nowhere) => {}
            Err(NoChoice::Unknown) => return Outcome::Other,
        }
    }
    Outcome::Nowhere
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
        && !ask.score.weights.any()
        && problem.within != Some(Layer::NODE)
        && problem.span_caps.is_empty()
        && problem.is_free_but_for_counts()
}

/// The best leaves in one of some domains of one layer.
fn at_layer(
    counts: &KindCounts<'_, '_>,
    holders: &[DomainId],
) -> Result<(DomainId, Vec<DomainId>), NoChoice> {
    let problem = counts.problem;
    let found = best_leaves(counts, holders)?;
    let mut best: Option<(Comparison, DomainId, Vec<DomainId>)> = None;
    for (&holder, leaves) in holders.iter().zip(found) {
        let shares: Vec<(DomainId, u32)> = leaves.iter().map(|&leaf| (leaf, 1)).collect();
        let order = order(problem, problem.fabric.domain(holder).layer());
        let comparison = Comparison::new(problem, holder, &order, &shares);
        if best.as_ref().is_none_or(|(least, ..)| comparison < *least) {
            best = Some((comparison, holder, leaves));
        }
    }
    best.map(|(_, holder, leaves)| (holder, leaves)).ok_or(NoChoice::Nowhere)
}

/// The best few of the domains that could have held such a job, and at which step each lost; None where that is not told.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if !applies(problem) {
        return None;
    }
    let counts = KindCounts::new(problem)?;
    let of_layer = |layer: Layer, _, may_lose: &dyn Fn(DomainId) -> bool| {
        let here = problem.fabric.domains_of(layer).filter(|&id| problem.is_inside(id) && may_lose(id));
        let holders: Vec<DomainId> = here.filter(|&id| counts.holds(id)).collect();
        let ranks = holders.iter().zip(best_leaves(&counts, &holders).ok()?);
        let ranks = ranks.map(|(&id, leaves)| (ranked(problem, id, leaves), Holder::Domain(id)));
        Some(ranks.collect())
    };
    problem::losers(problem, true, most, of_layer)
}
