//! Special solvers: the results of the general search, computed without fronts where counts decide.
//!
//! In the order in which they are mostly tried: `water_filling` solves spread jobs. `equal_slots` turns tasks
//! on nodes with equal slots into whole nodes. `whole_nodes` solves whole or shared nodes of one weight, or
//! where the lightest nodes suffice. `forced_nodes` solves jobs of which some nodes are in every choice,
//! `node_knapsack` nodes with unequal slots, `counted_kinds` whole nodes of counted kinds. `relaxed` asks
//! them an easier question where none has an answer.
//!
//! They share `reduced_costs` (the best leaves in any number of layers), `comparison` (choices in domains of
//! one layer), `fewest` (the fewest sizes that hold an amount) and `tree_knapsack` (the best set of items on
//! a tree).

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

/// Places a job if a special solver applies. Otherwise returns [`Missed::UNKNOWN`].
pub(super) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    let Some(wanted) = problem.ask.prefer_domain else { return anywhere(problem) };
    let ask = Ask { prefer_domain: None, ..problem.ask.clone() };
    let inside = anywhere(&problem.inside(wanted).asking(&ask));
    let is_first = problem.layout.weights == 0 && problem.layout.prefer.is_empty();
    match inside {
        Err(Missed::NONE) => anywhere(&problem.clone().asking(&ask)),
        // If nothing ranks before the preferred domain and that domain can hold the job, no other domain
        // matters.
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

/// The result as an option: `None` if no placement exists; an error if that is unknown.
fn if_any<T>(found: Result<T, Missed>) -> Result<Option<T>, Missed> {
    match found {
        Err(Missed::NONE) => Ok(None),
        found => found.map(Some),
    }
}

/// The best `most` domains that could have held a job, each with the step at which it lost; `None` if no
/// special solver applies.
pub(super) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    if problem.ask.mode == Mode::Distributed {
        return water_filling::losers(problem, most);
    }
    whole_nodes::losers(problem, most)
        .or_else(|| counted_kinds::losers(problem, most))
        .or_else(|| node_knapsack::losers(problem, most))
}
