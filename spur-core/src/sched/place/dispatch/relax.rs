//! Questions that a search cannot answer within its budget, answered by easier ones.
//!
//! Without one of the things that are asked, or with something harder in place of what is only preferred, a question may be
//! soon answered. If that answer keeps everything that is asked, it is one to the whole question; of several the best is taken.
//! So no constraint that an answer keeps can lose it. If not even the easiest question has an answer, there is none.

use std::cmp::Reverse;

use crate::model::fabric::{Fabric, Pos};

use super::outline::are_side_by_side;
use super::{is_exact, search};
use crate::sched::place::answer::{Missed, Placement};
use crate::sched::place::ask::{Ask, Mode, Strategy};
use crate::sched::place::problem::{Meter, Problem, Rank, frame, lower};
use crate::sched::place::slots::View;

/// Something that a question can be asked without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Constraint {
    /// How the job is spread.
    Mode,
    /// Preferred layers, the preferred domain and the lowest latency.
    Wishes,
    /// The layer that has to hold the job, and the block rule.
    Must,
    /// `--switches` and its like.
    Spans,
    Multiples,
    /// What a leaf may give at most.
    Leaves,
    Required,
    Counts,
    /// Consecutive positions, or leaves side by side.
    Outline,
    /// The number of nodes for some tasks.
    Nodes,
}

const CONSTRAINTS: [Constraint; 10] = [
    Constraint::Mode,
    Constraint::Wishes,
    Constraint::Spans,
    Constraint::Multiples,
    Constraint::Leaves,
    Constraint::Must,
    Constraint::Counts,
    Constraint::Required,
    Constraint::Outline,
    Constraint::Nodes,
];

/// Constraints of one question that are left out in every combination; of more, one and two at a time, and all.
const MOST_COMBINED: u32 = 3;

impl Constraint {
    fn is_in(self, ask: &Ask) -> bool {
        match self {
            Constraint::Mode => ask.mode != Mode::Consolidated,
            Constraint::Wishes => !ask.prefer.is_empty() || ask.prefer_domain.is_some() || ask.lowest_latency,
            Constraint::Must => ask.must.is_some() || ask.strategy == Strategy::Block,
            Constraint::Spans => !ask.max_spans.is_empty(),
            Constraint::Multiples => !ask.multiples.is_empty(),
            Constraint::Leaves => {
                ask.max_nodes_per_leaf.is_some()
                    || ask.max_slots_per_leaf.is_some()
                    || ask.leaf_load.is_some()
            }
            Constraint::Required => !ask.required.is_empty(),
            Constraint::Counts => !ask.counts.is_empty(),
            Constraint::Outline => ask.contiguous || ask.adjacent.is_some(),
            Constraint::Nodes => ask.tasks.is_some() && ask.nodes.is_some(),
        }
    }

    fn leave_out(self, ask: &mut Ask) {
        match self {
            Constraint::Mode => ask.mode = Mode::Consolidated,
            Constraint::Wishes => {
                (ask.prefer, ask.prefer_domain, ask.lowest_latency) = (Vec::new(), None, false)
            }
            Constraint::Must => {
                ask.must = None;
                leave_out_block_rule(ask);
            }
            Constraint::Spans => ask.max_spans.clear(),
            Constraint::Multiples => ask.multiples.clear(),
            Constraint::Leaves => {
                (ask.max_nodes_per_leaf, ask.max_slots_per_leaf, ask.leaf_load) = (None, None, None);
            }
            Constraint::Required => ask.required.clear(),
            Constraint::Counts => ask.counts.clear(),
            Constraint::Outline => (ask.contiguous, ask.adjacent) = (false, None),
            Constraint::Nodes => {
                ask.nodes = None;
                // The rule counts those nodes: without their number it may allow fewer blocks.
                leave_out_block_rule(ask);
            }
        }
    }
}

fn leave_out_block_rule(ask: &mut Ask) {
    if ask.strategy == Strategy::Block {
        ask.strategy = Strategy::Tree;
    }
}

/// A placement, or one that is no worse than what a search that was cut has found, if it has found any.
pub(super) fn better(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    found: Result<Placement, Missed>,
) -> Result<Placement, Missed> {
    let constraints: Vec<Constraint> =
        CONSTRAINTS.into_iter().filter(|constraint| constraint.is_in(ask)).collect();
    if ask.strategy == Strategy::Flat
        || fabric.roots().is_empty()
        || ask.segment.is_some()
        || constraints.is_empty()
    {
        return found;
    }
    let judged = |placement: Placement| Some((standing(fabric, view, ask, &placement)?, placement));
    // What is found already can only be bettered where something is wished for: with weights, lighter nodes.
    let is_wish = |constraint: Constraint| matches!(constraint, Constraint::Mode | Constraint::Wishes);
    let is_settled = view.weights.is_none() && !constraints.iter().any(|constraint| is_wish(*constraint));
    if found.is_ok() && is_settled {
        return found;
    }
    let mut best = found.ok().and_then(judged);
    for easier in easier(ask, &constraints) {
        let answer = search(fabric, view, &easier.ask);
        if easier.is_looser && answer.is_err() && is_exact(&answer) {
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
    best.map(|(_, placement)| Placement { exact: false, ..placement }).ok_or(Missed { exact: false })
}

/// A question in place of another.
struct Easier {
    ask: Ask,
    /// Whether it allows all that the other does.
    is_looser: bool,
}

/// The questions to ask in place of one: first without any of its constraints, then with as many of them as can be, and wishes as
/// musts.
fn easier(ask: &Ask, constraints: &[Constraint]) -> Vec<Easier> {
    let count = u32::try_from(constraints.len()).unwrap_or(u32::MAX);
    let all = (1_u32 << count) - 1;
    let may = |set: &u32| count <= MOST_COMBINED || set.count_ones() <= 2 || *set == all;
    let mut sets: Vec<u32> = (0..=all).filter(may).collect();
    sets.sort_by_key(|set| (*set != all, set.count_ones(), *set));
    let mut asks = Vec::new();
    for set in sets {
        let mut looser = ask.clone();
        for (_, constraint) in (0..).zip(constraints).filter(|(bit, _)| set >> bit & 1 == 1) {
            constraint.leave_out(&mut looser);
        }
        if let Some(&first) = ask.prefer.first()
            && ask.must.is_none_or(|must| first < must)
        {
            let must = lower(looser.must, Some(first));
            let inside = Ask { must, prefer: ask.prefer[1..].to_vec(), ..looser.clone() };
            asks.push(Easier { ask: inside, is_looser: false });
        }
        asks.extend((set != 0).then_some(Easier { ask: looser, is_looser: true }));
    }
    asks
}

/// The place of a placement in the order of preference, the most nodes first where their number is open; `None` where it is
/// not allowed.
fn standing(
    fabric: &Fabric,
    view: &View<'_>,
    ask: &Ask,
    placement: &Placement,
) -> Option<(Reverse<u32>, Rank)> {
    let nodes = u32::try_from(placement.shares.len()).ok()?;
    if ask.nodes.is_some_and(|(least, most)| !(least..=most).contains(&nodes)) {
        return None;
    }
    let positions = placement.positions();
    let follow = |pair: &[Pos]| pair[0].index() + 1 == pair[1].index();
    let is_outlined = (!ask.contiguous || positions.windows(2).all(follow))
        && ask.adjacent.is_none_or(|leaves| are_side_by_side(fabric, positions.iter().copied(), leaves));
    if !is_outlined {
        return None;
    }
    let (size, frame) = match ask.nodes {
        Some(_) => (Some(nodes), frame(fabric, view, ask, Some(nodes))),
        None => (None, frame(fabric, view, ask, None)),
    };
    let problem = Problem::new(fabric, view, ask, size, frame, &Meter::new(ask.budget))?;
    let counted = if ask.nodes.is_some() { nodes } else { 0 };
    Some((Reverse(counted), problem.judge(&placement.shares)?))
}
