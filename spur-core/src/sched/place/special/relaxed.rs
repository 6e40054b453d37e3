//! Solves questions that are hard because of one constraint. Without it a special solver may apply. If the
//! best choice then keeps the constraint, it is the best of all that do: leaving a constraint out adds
//! choices and makes none better.
//!
//! Only constraints that do not affect the rank are left out: counted features, caps per leaf, limits on
//! spans. The number of tasks is left out where the number of nodes is given; the tasks are then shared out
//! over the nodes.

use crate::model::fabric::Pos;
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::{Ask, Mode};
use crate::sched::place::pareto::share;
use crate::sched::place::problem::Problem;

/// Places a job if the best choice of an easier question keeps every constraint. [`Missed::NONE`] if an
/// easier question has no placement, [`Missed::UNKNOWN`] if none helps.
pub(crate) fn place(problem: &Problem<'_>) -> Result<Placement, Missed> {
    let ask = problem.ask;
    if ask.mode != Mode::Consolidated || !problem.is_as_asked() {
        return Err(Missed::UNKNOWN);
    }
    let is_capped = ask.caps_leaves() || !problem.span_caps.is_empty();
    // The score knows the share of slots that a job fills, and multiples count tasks.
    let counts_both = problem.nodes.is_some() && ask.multiples.is_empty() && !ask.score.any();
    // Every easier question leaves out counted features; the second also leaves out tasks, the third caps.
    let looser =
        [(false, false, !ask.counts.is_empty()), (false, true, counts_both), (true, false, is_capped)];
    let looser = looser.into_iter().filter(|(_, _, is_looser)| *is_looser);
    let mut answers = looser.map(|(caps, tasks, _)| of_looser(problem, caps, tasks));
    answers.find(|answer| *answer != Err(Missed::UNKNOWN)).unwrap_or(Err(Missed::UNKNOWN))
}

/// The answer to an easier question, if it is an answer to the original one, too.
fn of_looser(problem: &Problem<'_>, without_caps: bool, without_tasks: bool) -> Result<Placement, Missed> {
    let mut ask = Ask { counts: Vec::new(), max_spans: problem.span_caps.clone(), ..problem.ask.clone() };
    if without_caps {
        (ask.max_nodes_per_leaf, ask.max_slots_per_leaf, ask.max_spans) = (None, None, Vec::new());
        ask.leaf_load = None;
    }
    if without_tasks {
        (ask.tasks, ask.max_tasks_per_node, ask.max_slots_per_leaf) = (None, None, None);
        ask.nodes = problem.nodes.map(|nodes| (nodes, nodes));
    }
    let found = super::place(&problem.looser(&ask).ok_or(Missed::UNKNOWN)?)?;
    let found = if without_tasks { shared_out(problem, found) } else { found };
    let keeps_all = found.exact && problem.judge(&found.shares).is_some();
    if keeps_all { Ok(found) } else { Err(Missed::UNKNOWN) }
}

/// Shares the tasks out over the nodes of a placement, as far as they fit.
fn shared_out(problem: &Problem<'_>, found: Placement) -> Placement {
    let Some(common) = found.common else { return found };
    let nodes: Vec<(Pos, u32, u32)> =
        found.shares.iter().map(|&(pos, _)| (pos, 1, problem.most_on(pos))).collect();
    let free = vec![(0, u32::MAX); problem.layout.layers];
    Placement::new(problem, share(problem, common, &nodes, &free), Some(common), found.exact)
}
