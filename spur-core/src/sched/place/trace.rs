//! From a cost back to nodes: of all placements of one cost, the one whose list of positions sorts first.
//!
//! Members of a domain are gone through in fabric order and each is used if the rest can still be completed at the
//! same cost; as every list has equally many positions, that gives the first one.

use super::cost::Cost;
use super::front::Item;
use super::solve::{Front, Member, Solver};
use crate::model::fabric::{DomainId, Pos};

/// What must be true of a domain's part for the whole to come out: added to `rest` it is a way to use `domain`'s
/// members, which in turn is a part of what `outer` describes. The outermost goal is the domain that holds the job.
struct Goal<'g, C> {
    domain: DomainId,
    rest: Item<C>,
    outer: Option<&'g Goal<'g, C>>,
}

/// The placement itself.
pub(super) struct Traced {
    /// Positions in fabric order, each with the least and the most it may take.
    pub(super) nodes: Vec<(Pos, u32, u32)>,
}

/// The list of nodes in `domain` that costs what `best` does and sorts first.
pub(super) fn trace<C: Cost>(solver: &mut Solver<'_, '_, C>, domain: DomainId, best: &Item<C>) -> Traced {
    let mut nodes = Vec::new();
    let nothing = Item::nothing(solver.problem.layout.width());
    let goal = Goal { domain, rest: nothing, outer: None };
    walk(solver, &best.cost, domain, &[&goal], &mut nodes);
    Traced { nodes }
}

impl<C: Cost> Goal<'_, C> {
    /// Whether a part, put where this goal wants one, completes a placement of the cost.
    fn accepts(&self, solver: &Solver<'_, '_, C>, cost: &C, part: &Item<C>) -> bool {
        let Some(inside) = solver.plus(&self.rest, part) else { return false };
        let Some(outer) = self.outer else {
            return inside.cost == *cost && solver.is_whole(self.domain, &inside);
        };
        let mut closed = Vec::new();
        solver.close(self.domain, &inside, &mut closed);
        closed.iter().any(|part| outer.accepts(solver, cost, part))
    }
}

/// Goes through the members of a domain; any of `goals` will do, and all of them are about this domain's inside, with
/// nothing of it used yet. Returns what was used.
fn walk<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    cost: &C,
    domain: DomainId,
    goals: &[&Goal<'_, C>],
    nodes: &mut Vec<(Pos, u32, u32)>,
) -> Item<C> {
    let members = solver.members(domain);
    let suffixes = suffixes(solver, &members, domain);
    let mut used = Item::nothing(solver.problem.layout.width());
    for (index, (member, front)) in members.iter().enumerate() {
        let mut parts: Vec<Goal<'_, C>> = Vec::new();
        for goal in goals {
            for suffix in &suffixes[index + 1] {
                let rest = solver.plus(&used, suffix).and_then(|sum| solver.plus(&sum, &goal.rest));
                let Some(rest) = rest else { continue };
                let part = Goal { domain, rest, outer: goal.outer };
                if front.iter().any(|item| part.accepts(solver, cost, item)) {
                    parts.push(part);
                }
            }
        }
        if parts.is_empty() {
            continue;
        }
        let taken = match *member {
            Member::Node(pos) => {
                let accepted = |item: &&Item<C>| parts.iter().any(|part| part.accepts(solver, cost, item));
                let item = front.iter().filter(accepted).max_by_key(|item| item.hi);
                let item = item.expect("a goal accepts some way to use the node").clone();
                nodes.push((pos, item.lo, item.hi));
                item
            }
            Member::Domain(id) => descend(solver, cost, id, &parts, nodes),
        };
        used = solver.plus(&used, &taken).expect("an accepted part is not too much");
    }
    used
}

/// Uses a domain below so that any of the goals is met.
fn descend<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    cost: &C,
    id: DomainId,
    parts: &[Goal<'_, C>],
    nodes: &mut Vec<(Pos, u32, u32)>,
) -> Item<C> {
    let width = solver.problem.layout.width();
    let inner: Vec<Goal<'_, C>> =
        parts.iter().map(|part| Goal { domain: id, rest: Item::nothing(width), outer: Some(part) }).collect();
    let inside = walk(solver, cost, id, &inner.iter().collect::<Vec<_>>(), nodes);
    let mut closed = Vec::new();
    solver.close(id, &inside, &mut closed);
    (closed.into_iter())
        .find(|item| parts.iter().any(|part| part.accepts(solver, cost, item)))
        .expect("what was used meets a goal")
}

/// For every member, the ways to use those from it on; the last entry is using nothing.
fn suffixes<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    members: &[(Member, Front<C>)],
    domain: DomainId,
) -> Vec<Vec<Item<C>>> {
    let mut suffixes = vec![vec![Item::nothing(solver.problem.layout.width())]];
    for (member, front) in members.iter().rev() {
        let last = suffixes.last().expect("it starts with one");
        let optional = !solver.is_forced(*member);
        let next = solver.join(last, front, optional, domain);
        suffixes.push(next);
    }
    suffixes.reverse();
    suffixes
}
