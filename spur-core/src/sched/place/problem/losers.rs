//! Why the others lost: of the domains that could have held a job the best few, and the step at which each lost.

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::answer::Lost;

use super::Problem;
use super::rank::{Holder, Rank, difference};

/// Where a whole job could go, and how good that is.
pub(crate) type Contender = (Rank, Holder);

/// The best few domains that could have held a job, and at which step each lost to the best of all; None where nothing
/// could, or where `of_layer` does not tell.
///
/// `of_layer` is asked for the contenders of one layer after the other, from the lowest: at least the best of it, as many
/// as it is told, or all. It may leave out domains that are no rivals, for what only holds the winner's own place is none.
/// With `by_height` a lower layer comes before a higher one whatever else there is, so that no more layers are asked
/// for than it takes.
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
    // One of them is the winner, and one may be the leaf of a single node that won.
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

/// The first node of where a job could go.
pub(crate) fn first(problem: &Problem<'_>, holder: Holder) -> usize {
    match holder {
        Holder::Node(pos) => pos.index(),
        Holder::Domain(id) => problem.fabric.domain(id).range().start,
    }
}
