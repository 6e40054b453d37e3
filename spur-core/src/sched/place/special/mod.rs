//! Special solvers: what the fronts would give, without them, where a case is of a kind that counts decide.
//!
//! The rooms, in the order in which they are mostly asked: `water_filling` has jobs that are spread; of the others,
//! `equal_slots` makes tasks on nodes that all take as many a question about whole nodes; `whole_nodes` has whole nodes,
//! and such that are shared, that weigh the same, or of which the lightest will do; `forced_nodes` has those of which some
//! are used in every choice; `node_knapsack` has nodes that take unequally much; `counted_kinds` has whole nodes of
//! counted kinds; `relaxed` asks them less where nobody has an answer. What they share: `reduced_costs` finds the best leaves in any number of layers, `comparison` compares choices
//! in domains of one layer, `fewest` tells how few of some sizes hold an amount, and `tree_knapsack` finds the best of what is used or not.

mod comparison;
mod counted_kinds;
mod equal_slots;
mod fewest;
mod forced_nodes;
mod node_knapsack;
mod reduced_costs;
mod relaxed;
mod tree_knapsack;
mod water_filling;
mod whole_nodes;

use crate::sched::place::answer::{Lost, Missed, Placement};
use crate::sched::place::ask::{Ask, Mode};
use crate::sched::place::problem::Problem;

pub(super) use equal_slots::Equal;
pub(super) use relaxed::place as place_loosely;
pub(super) use whole_nodes::largest_first;

/// Places a job if it is of a kind that has a special solver.
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    let Some(wanted) = problem.ask.prefer_domain else { return anywhere(problem) };
    let ask = Ask { prefer_domain: None, ..problem.ask.clone() };
    let inside = anywhere(&problem.inside(wanted).asking(&ask));
    let is_first = problem.layout.weights == 0 && problem.layout.prefer.is_empty();
    match inside {
        Err(Missed::NONE) => anywhere(&problem.clone().asking(&ask)),
        // Otherwise nothing comes before the domain that is wanted: if that can hold the job, nothing outside matters.
        Ok(inside) if !is_first => {
            let best = anywhere(&problem.clone().asking(&ask)).map_err(|_| Missed::UNKNOWN)?;
            let exact = inside.exact && best.exact;
            let is_better = problem.judge(&best.shares) < problem.judge(&inside.shares);
            Ok(Placement { exact, ..if is_better { best } else { inside } })
        }
        inside => inside,
    }
}

fn anywhere(problem: &Problem<'_>) -> Result<Placement, Missed> {
    if problem.ask.mode == Mode::Distributed {
        return water_filling::place(problem);
    }
    let ways = [whole_nodes::place, forced_nodes::place, node_knapsack::place, counted_kinds::place];
    let mut cut = Err(Missed::UNKNOWN);
    for place in ways {
        match place(problem) {
            Err(Missed::UNKNOWN) => {}
            Ok(found) if !found.exact => cut = Ok(found),
            answer => return answer,
        }
    }
    cut
}

/// What was found, if there is anything; an error where that is not known.
fn if_any<T>(found: Result<T, Missed>) -> Result<Option<T>, Missed> {
    match found {
        Err(Missed::NONE) => Ok(None),
        found => found.map(Some),
    }
}

/// The best few of the domains that could have held a job, and at which step each lost; None where that has no special solver.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if problem.ask.mode == Mode::Distributed {
        return water_filling::losers(problem, most);
    }
    whole_nodes::losers(problem, most)
        .or_else(|| counted_kinds::losers(problem, most))
        .or_else(|| node_knapsack::losers(problem, most))
}
