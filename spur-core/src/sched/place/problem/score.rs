//! The settable score of a domain, in millionths: four terms from 0 to 1, each with its weight.

use crate::model::fabric::DomainId;

use crate::model::topology::ScoreBefore;

use super::{Problem, positions};

const ONE: u64 = 1_000_000;

impl Problem<'_> {
    /// Whether a score decides before that step.
    pub(crate) fn is_scored(&self, before: ScoreBefore) -> bool {
        let wanted = self.ask.score;
        wanted.weights.any() && wanted.before == before
    }

    /// The score of putting the job into a domain as a step of the choice, where it decides before that step: less is better.
    pub(crate) fn score(&self, before: ScoreBefore, domain: DomainId) -> i64 {
        if self.is_scored(before) { -i64::try_from(score(self, domain)).unwrap_or(i64::MAX) } else { 0 }
    }
}

/// The score of putting the job into a domain; more is better.
///
/// - *resource availability*: the share of the domain's nodes that could take part in the job now;
/// - *topology alignment*: the share of the domain's slots that the job fills;
/// - *domain utilisation*: the share of the domain's nodes that run something already;
/// - *past performance*: the mean of what the caller says about its nodes.
fn score(problem: &Problem<'_>, domain: DomainId) -> u64 {
    let range = problem.fabric.domain(domain).range();
    let size = range.len() as u64;
    if size == 0 {
        return 0;
    }
    let view = problem.view;
    let availability = share(u64::from(view.slots.nodes_of(domain)), size);
    let alignment = share(problem.wanted_slots(), problem.slots(domain));
    let busy = view
        .occupied
        .map_or(0, |occupied| range.clone().filter(|&index| occupied.contains(index)).count() as u64);
    let utilisation = share(busy, size);
    let performance = view
        .performance
        .map_or(ONE, |known| positions(range).map(|pos| u64::from(known[pos.index()])).sum::<u64>() / size);
    let weights = problem.ask.score.weights;
    let terms = [
        (weights.resource_availability, availability),
        (weights.topology_alignment, alignment),
        (weights.domain_utilisation, utilisation),
        (weights.past_performance, performance.min(ONE)),
    ];
    terms.iter().map(|(weight, term)| u64::from(weight.0) * term / ONE).sum()
}

fn share(part: u64, whole: u64) -> u64 {
    (part * ONE).checked_div(whole).map_or(0, |share| share.min(ONE))
}
