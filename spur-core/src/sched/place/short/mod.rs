//! Short cuts: what the fronts would give, without them, where a case is of a kind that counts decide.
//!
//! The rooms, in the order in which they are mostly asked: `spread` has jobs that are spread; of the others, `equal` makes
//! tasks on nodes that all take as many a question about whole nodes; `whole` has whole nodes, and such that are shared, that
//! weigh the same, or of which the lightest will do; `sure` has those of which some are used in every choice; `uneven` has
//! nodes that take unequally much; `loose` asks them less where nobody has an answer. What they share: `layers` finds the best
//! leaves in any number of layers, `standing` compares choices in domains of one layer, `sieve` leaves out what no best choice
//! uses, `spend` chooses where little is to spare, and `step` is a step of a walk.

pub(super) mod choice;
mod equal;
mod layers;
mod loose;
mod sieve;
mod spend;
mod spread;
mod standing;
mod step;
mod sure;
mod uneven;
mod whole;

use crate::model::fabric::Layer;
use crate::sched::place::answer::{Lost, Placement};
use crate::sched::place::ask::{Ask, Mode};
use crate::sched::place::problem::Problem;

use choice::Short;
pub(super) use equal::{Equal, of_whole};
pub(super) use loose::place as place_loosely;
pub(super) use whole::largest_first;

/// Places a job if it is of a kind that has a short cut.
pub(super) fn place(problem: &Problem<'_>) -> Short {
    let Some(wanted) = problem.ask.prefer_domain else { return anywhere(problem) };
    let ask = Ask { prefer_domain: None, ..problem.ask.clone() };
    let inside = anywhere(&problem.inside(wanted).asking(&ask));
    let is_first = problem.layout.weights == 0 && problem.layout.prefer.is_empty();
    match inside {
        Short::Other => Short::Other,
        // Nothing comes before the domain that is wanted: if that can hold the job, nothing outside matters.
        Short::Placed(inside) if is_first => Short::Placed(inside),
        Short::Placed(inside) => match anywhere(&problem.clone().asking(&ask)) {
            Short::Placed(best) => {
                let exact = inside.exact && best.exact;
                let is_better = before_domain(problem, &best) < before_domain(problem, &inside);
                Short::Placed(Placement { exact, ..if is_better { best } else { inside } })
            }
            Short::Other | Short::Nowhere => Short::Other,
        },
        Short::Nowhere => anywhere(&problem.clone().asking(&ask)),
    }
}

/// What comes before the domain that is wanted: nodes of each weight but the lightest, and the spans of preferred layers.
fn before_domain(problem: &Problem<'_>, placement: &Placement) -> (Vec<u32>, Vec<u32>) {
    let mut weights = vec![0; problem.layout.weights];
    for class in placement.shares.iter().filter_map(|(pos, _)| problem.weight_class(*pos)) {
        weights[class] += 1;
    }
    let spans = problem.layout.prefer.iter().map(|layer| placement.spans[layer.index()]);
    (weights, spans.collect())
}

fn anywhere(problem: &Problem<'_>) -> Short {
    if problem.ask.mode == Mode::Distributed {
        return spread::place(problem);
    }
    let ways: [fn(&Problem<'_>) -> Short; 3] = if adds_up_in_tables(problem) {
        [uneven::place, whole::place, sure::place]
    } else {
        [whole::place, sure::place, uneven::place]
    };
    let mut cut = Short::Other;
    for place in ways {
        match place(problem) {
            Short::Other => {}
            Short::Placed(found) if !found.exact => cut = Short::Placed(found),
            answer => return answer,
        }
    }
    cut
}

/// Whether nodes are shared and all that is asked adds up over them, in several leaves and as few layers as tables are made
/// for.
fn adds_up_in_tables(problem: &Problem<'_>) -> bool {
    let is_plain = problem.adds_up() && problem.layout.prefer.is_empty() && problem.span_caps.is_empty();
    let is_flat = problem.fabric.top().0 <= Layer::LEAF.0 + 2;
    let open = || problem.view.slots.nodes_by_domain(problem.fabric, Layer::LEAF).iter().copied().max();
    problem.shares_nodes() && is_plain && is_flat && (problem.amount == 1 || open() < Some(problem.amount))
}

/// The best few of the domains that could have held a job, and at which step each lost; None where that has no short cut.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if problem.ask.mode == Mode::Distributed {
        return spread::losers(problem, most);
    }
    whole::losers(problem, most).or_else(|| uneven::losers(problem, most))
}
