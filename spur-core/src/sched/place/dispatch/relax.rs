//! Answers a question that exceeds its budget by way of easier questions.
//!
//! A question with a constraint left out, or with a preference turned into a must, may be easy. If its answer
//! keeps every constraint of the original, it is an answer to the original; of several answers the best is
//! taken. So a constraint that an answer keeps anyway never loses it. If a question with fewer constraints
//! has no answer, the original has none.

use std::cmp::Reverse;

use crate::model::fabric::Pos;

use super::outline::are_side_by_side;
use super::{is_exact, search};
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::{Ask, Mode, Strategy, lower};
use crate::sched::place::budget::SharedBudget;
use crate::sched::place::problem::{Meter, Problem, Rank};
use crate::sched::place::slots::View;

/// A function that removes one constraint or preference from an ask; an ask without it stays the same.
type Without = fn(&mut Ask);

/// The preferences: the mode of spreading; preferred layers, the preferred domain and the lowest latency.
const WISHES: [Without; 2] = [
    |ask| ask.mode = Mode::Consolidated,
    |ask| (ask.prefer, ask.prefer_domain, ask.lowest_latency) = (Vec::new(), None, false),
];

/// The constraints that may be left out.
const CONSTRAINTS: [Without; 8] = [
    // Limits on spans, such as `--switches`.
    |ask| ask.max_spans.clear(),
    |ask| ask.multiples.clear(),
    // Caps per leaf.
    |ask| (ask.max_nodes_per_leaf, ask.max_slots_per_leaf, ask.leaf_load) = (None, None, None),
    // The layer at which one domain has to hold the job, and the block rule.
    |ask| {
        ask.must = None;
        leave_out_block_rule(ask);
    },
    |ask| ask.counts.clear(),
    |ask| ask.required.clear(),
    // Consecutive positions, or adjacent leaves.
    |ask| (ask.contiguous, ask.adjacent) = (false, None),
    // The number of nodes of a job with tasks. The block rule counts these nodes, and may allow fewer blocks
    // without their number.
    |ask| {
        if ask.tasks.is_some() && ask.nodes.take().is_some() {
            leave_out_block_rule(ask);
        }
    },
];

/// Up to this number of constraints, every combination is left out; of more, one, two or all at a time.
const MOST_COMBINED: u32 = 3;

fn leave_out_block_rule(ask: &mut Ask) {
    if ask.strategy == Strategy::Block {
        ask.strategy = Strategy::Tree;
    }
}

/// The best placement among `found`, the result of a search that was cut, and answers to easier questions.
pub(super) fn better(
    view: &View<'_>,
    ask: &Ask,
    found: Result<Placement, Missed>,
) -> Result<Placement, Missed> {
    let is_in = |leave_out: &Without| {
        let mut without = ask.clone();
        leave_out(&mut without);
        without != *ask
    };
    let constraints: Vec<Without> = WISHES.into_iter().chain(CONSTRAINTS).filter(is_in).collect();
    if ask.strategy == Strategy::Flat
        || view.fabric.roots().is_empty()
        || ask.segment.is_some()
        || constraints.is_empty()
    {
        return found;
    }
    let judged = |placement: Placement| Some((standing(view, ask, &placement)?, placement));
    // A placement that was found can only improve by preferences or by lighter nodes.
    let is_settled = view.weights.is_none() && !WISHES.iter().any(is_in);
    if found.is_ok() && is_settled {
        return found;
    }
    let mut best = found.ok().and_then(judged);
    for (easier, is_looser) in easier(ask, &constraints) {
        if view.budget.is_some_and(SharedBudget::is_spent) {
            break;
        }
        let answer = search(view, &easier);
        if is_looser && answer.is_err() && is_exact(&answer) {
            return Err(Missed::NONE);
        }
        let answer = answer.ok().and_then(judged);
        if let Some(answer) = answer
            && best.as_ref().is_none_or(|best| answer.0 < best.0)
        {
            best = Some(answer);
        }
        if best.is_some() && is_settled {
            break;
        }
    }
    best.map(|(_, placement)| Placement { exact: false, ..placement }).ok_or(Missed::UNKNOWN)
}

/// The easier questions, in order: without any constraint, with all constraints, with one left out, with two
/// left out. Each is asked with the first preferred layer as a must, if there is one, and then without; the
/// one with all constraints only with the must. The flag is true if the question allows all that the original
/// allows.
fn easier(ask: &Ask, constraints: &[Without]) -> Vec<(Ask, bool)> {
    let count = u32::try_from(constraints.len()).unwrap_or(u32::MAX);
    let all = (1_u32 << count) - 1;
    let may = |set: &u32| count <= MOST_COMBINED || set.count_ones() <= 2 || *set == all;
    let mut sets: Vec<u32> = (0..=all).filter(may).collect();
    sets.sort_by_key(|set| (*set != all, set.count_ones(), *set));
    let mut asks = Vec::new();
    for set in sets {
        let mut looser = ask.clone();
        let left_out = (0..).zip(constraints).filter(|(bit, _)| set >> bit & 1 == 1);
        left_out.for_each(|(_, leave_out)| leave_out(&mut looser));
        if let Some(&first) = ask.prefer.first()
            && ask.must.is_none_or(|must| first < must)
        {
            let must = lower(looser.must, Some(first));
            let inside = Ask { must, prefer: ask.prefer[1..].to_vec(), ..looser.clone() };
            asks.push((inside, false));
        }
        asks.extend((set != 0).then_some((looser, true)));
    }
    asks
}

/// The rank of a placement, preceded by the number of nodes (more is better) where that is open. `None` if
/// the ask does not allow the placement.
fn standing(view: &View<'_>, ask: &Ask, placement: &Placement) -> Option<(Reverse<Option<u32>>, Rank)> {
    let nodes = u32::try_from(placement.shares.len()).ok()?;
    if ask.nodes.is_some_and(|(least, most)| !(least..=most).contains(&nodes)) {
        return None;
    }
    let positions = placement.positions();
    let follow = |pair: &[Pos]| pair[0].index() + 1 == pair[1].index();
    let is_outlined = (!ask.contiguous || positions.windows(2).all(follow))
        && ask.adjacent.is_none_or(|leaves| are_side_by_side(view.fabric, positions.iter().copied(), leaves));
    if !is_outlined {
        return None;
    }
    let counted = ask.nodes.map(|_| nodes);
    let problem = Problem::framed(view, ask, counted, &Meter::of(view, ask))?;
    Some((Reverse(counted), problem.judge(&placement.shares)?))
}
