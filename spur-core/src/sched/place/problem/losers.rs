//! The best few domains that could have held a job, and the step of the objective at which each lost.

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::answer::Lost;

use super::Problem;
use super::rank::{Holder, Rank, difference};

/// A node or domain that could hold a whole job, with its rank.
pub(crate) type Contender = (Rank, Holder);

/// The best `most` domains that could have held a job, each with the step at which it lost to the best.
/// `None` if no domain could, or if `of_layer` gives no answer.
///
/// `of_layer` returns the contenders of one layer, called from the lowest layer up: at least the best ones,
/// as many as the second argument says, or all. It may omit domains for which the predicate is false, because
/// a domain that only contains the winner is no rival. With `by_height` a lower layer always ranks before a
/// higher one, so layers above the first sufficient ones are not asked.
pub(crate) fn losers(
    problem: &Problem<'_>,
    by_height: bool,
    most: usize,
    mut of_layer: impl FnMut(Layer, usize, &dyn Fn(DomainId) -> bool) -> Option<Vec<Contender>>,
) -> Option<Vec<Lost>> {
    let fabric = problem.fabric;
    let holds = |id: DomainId, winner: Holder| match winner {
        Holder::Node(pos) => fabric.domain(id).range().contains(&pos.index()),
        Holder::Domain(held) => fabric.within(held, id),
    };
    let order = |(one, this): &Contender, (other, that): &Contender| {
        one.cmp(other).then_with(|| first(problem, *this).cmp(&first(problem, *that)))
    };
    // One of the contenders is the winner, and one may be the leaf of a single node that won.
    let few = most + 2;
    let mut found: Vec<Contender> = Vec::new();
    for layer in (0..=problem.highest().0).map(Layer) {
        let winner = found.iter().min_by(|one, other| order(one, other)).filter(|_| by_height);
        let winner = winner.map(|(_, holder)| *holder);
        found.extend(of_layer(layer, few, &|id| winner.is_none_or(|winner| !holds(id, winner)))?);
        let domains = found.iter().filter(|(_, holder)| matches!(holder, Holder::Domain(_))).count();
        if by_height && domains >= few {
            break;
        }
    }
    found.sort_by(order);
    let ((best, winner), others) = found.split_first()?;
    let lost = others.iter().filter_map(|(rank, holder)| match *holder {
        Holder::Domain(domain) if !holds(domain, *winner) => {
            Some(Lost { domain, why: difference(rank, best) })
        }
        Holder::Domain(_) | Holder::Node(_) => None,
    });
    Some(lost.take(most).collect())
}

/// The index of the first position of a holder.
pub(crate) fn first(problem: &Problem<'_>, holder: Holder) -> usize {
    match holder {
        Holder::Node(pos) => pos.index(),
        Holder::Domain(id) => problem.fabric.domain(id).range().start,
    }
}
