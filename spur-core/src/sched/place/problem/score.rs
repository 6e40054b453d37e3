//! The settable score of a domain, in millionths: four terms from 0 to 1, each with its weight, or the site's
//! own expression.

use crate::model::fabric::DomainId;

use crate::model::topology::ScoreBefore;

use super::{Problem, positions};

const ONE: u64 = 1_000_000;

impl Problem<'_> {
    /// True if a score is asked for and decides before that step.
    pub(crate) fn is_scored(&self, before: ScoreBefore) -> bool {
        let wanted = &self.ask.score;
        wanted.any() && wanted.before == before
    }

    /// The score of a domain as a number of the rank (negated, so less is better); 0 if it does not decide
    /// before that step.
    pub(crate) fn score(&self, before: ScoreBefore, domain: DomainId) -> i64 {
        if self.is_scored(before) { score(self, domain).saturating_neg() } else { 0 }
    }

    /// The score of the domain that holds a placement, if the site has an expression for it.
    pub(crate) fn site_score(&self, domain: Option<DomainId>) -> Option<i64> {
        self.ask.score.expression.as_ref().and(domain).map(|domain| score(self, domain))
    }
}

/// The score of a domain for the job, in millionths; more is better.
///
/// - *resource availability*: the share of the domain's nodes that have a free slot for the job;
/// - *topology alignment*: the share of the domain's slots that the job fills;
/// - *domain utilisation*: the share of the domain's nodes that run something already;
/// - *past performance*: the mean of what the caller says about its nodes.
fn score(problem: &Problem<'_>, domain: DomainId) -> i64 {
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
    let performance = performance.min(ONE);
    if let Some(expression) = &problem.ask.score.expression {
        return expression.value(&[
            number(availability),
            number(alignment),
            number(utilisation),
            number(performance),
            whole(u64::from(view.slots.nodes_of(domain))),
            whole(size),
            whole(problem.slots(domain)),
            whole(problem.fabric.domain(domain).layer().index() as u64),
        ]);
    }
    let weights = problem.ask.score.weights;
    let terms = [
        (weights.resource_availability, availability),
        (weights.topology_alignment, alignment),
        (weights.domain_utilisation, utilisation),
        (weights.past_performance, performance),
    ];
    number(terms.iter().map(|(weight, term)| u64::from(weight.0) * term / ONE).sum())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count in millionths.
fn whole(count: u64) -> i64 {
    number(count).saturating_mul(number(ONE))
}

fn share(part: u64, whole: u64) -> u64 {
    (part * ONE).checked_div(whole).map_or(0, |share| share.min(ONE))
}
