//! Traces a cost back to nodes: of all placements with that cost, the one whose list of positions sorts
//! first.
//!
//! Members of a domain are visited in fabric order, and each is used if the rest can still be completed at
//! the same cost. Every list has equally many positions, so the result is the first one.

use crate::model::fabric::{DomainId, Pos};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{Cost, Item};

use super::{Member, Solver};

/// A condition on the part of a domain that is still to be chosen. Added to `rest`, the part is a way to use
/// the members of `domain`, which in turn meets `outer`. The outermost goal is the domain that holds the job.
struct Goal<'g, C> {
    domain: DomainId,
    rest: Item<C>,
    outer: Option<&'g Goal<'g, C>>,
    /// The cost of the domain's members together, where it does not depend on their shares.
    cost: Option<C>,
}

/// A chosen node with the least and the most that it may take.
pub(super) type Chosen = (Pos, u32, u32);

/// The list of nodes in `domain` that has the cost of `best` and sorts first.
///
/// Where shares are exact, the first list may leave open how the amount is split. With `shares`, earlier
/// nodes get as much as possible; the solver must then be confined to the listed nodes.
pub(super) fn trace<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    domain: DomainId,
    best: &Item<C>,
    shares: bool,
) -> Vec<Chosen> {
    let nothing = Item::nothing(solver.problem.layout.width());
    let known = solver.problem.ask.mode != Mode::Distributed;
    let goal = Goal { domain, rest: nothing, outer: None, cost: known.then(|| best.cost.clone()) };
    let mut walk = Traceback { solver, cost: &best.cost, shares, nodes: Vec::new() };
    walk.members(domain, &[&goal]);
    walk.nodes
}

impl<C: Cost> Goal<'_, C> {
    /// The cost that a member must have beside the other used parts, where it is known.
    fn member_cost(&self, used: &Item<C>, suffix: &Item<C>) -> Option<C> {
        let mut cost = self.cost.clone()?;
        cost.sub(&used.cost);
        cost.sub(&suffix.cost);
        Some(cost)
    }

    /// True if a part completes a placement with the given cost.
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

/// A walk over the fabric that collects the nodes to use.
struct Traceback<'w, 'p, 'a, C> {
    solver: &'w mut Solver<'p, 'a, C>,
    cost: &'w C,
    shares: bool,
    nodes: Vec<Chosen>,
}

impl<C: Cost> Traceback<'_, '_, '_, C> {
    /// Visits the members of a domain, none of which is used yet, and meets any one of `goals`, all about
    /// this domain. Returns the ways that were used: several where the nodes leave that open.
    fn members(&mut self, domain: DomainId, goals: &[&Goal<'_, C>]) -> Vec<Item<C>> {
        let leaf = self.solver.problem.fabric.domain(domain).children().is_empty();
        if leaf && self.solver.problem.nodes_are_alike() {
            return vec![self.alike(domain, goals)];
        }
        let members = self.solver.members(domain);
        // For every member, the ways to use the members from it on; the last entry uses nothing.
        let mut suffixes = vec![vec![Item::nothing(self.solver.problem.layout.width())]];
        self.solver.fold(domain, &members, |items| suffixes.push(items.to_vec()));
        suffixes.reverse();
        if self.solver.problem.meter.is_spent() {
            return Vec::new();
        }
        let mut used = vec![Item::nothing(self.solver.problem.layout.width())];
        for (index, (member, front)) in members.iter().enumerate() {
            if !self.solver.problem.meter.take(used.len() * goals.len() * suffixes[index + 1].len()) {
                return Vec::new();
            }
            let mut parts: Vec<(usize, Goal<'_, C>)> = Vec::new();
            for (way, used) in used.iter().enumerate() {
                for goal in goals {
                    for suffix in &suffixes[index + 1] {
                        let wanted = goal.member_cost(used, suffix);
                        let costs = |item: &Item<C>| wanted.as_ref().is_none_or(|cost| item.cost == *cost);
                        if !front.iter().any(costs) {
                            continue;
                        }
                        let rest = self.solver.plus(used, suffix);
                        let Some(rest) = rest.and_then(|sum| self.solver.plus(&sum, &goal.rest)) else {
                            continue;
                        };
                        let part = Goal { domain, rest, outer: goal.outer, cost: wanted };
                        let fits = |item: &Item<C>| part.accepts(self.solver, self.cost, item);
                        let known = |(other, goal): &(usize, Goal<'_, C>)| {
                            *other == way
                                && goal.rest == part.rest
                                && goal.outer.map(std::ptr::from_ref) == part.outer.map(std::ptr::from_ref)
                        };
                        if !parts.iter().any(known) && front.iter().any(fits) {
                            parts.push((way, part));
                        }
                    }
                }
            }
            if parts.is_empty() {
                continue;
            }
            let taken = match *member {
                Member::Node(_) => front.to_vec(),
                Member::Domain(id) => self.descend(id, &parts),
            };
            let (sums, lo, hi) = self.combine(&used, taken, &parts);
            if let Member::Node(pos) = *member {
                self.nodes.push((pos, lo, hi));
            }
            used = sums;
        }
        used
    }

    /// The ways to use a member together with the parts before it that meet a goal, and the least and the
    /// most that the member takes in them. With `shares`, only the way that takes most.
    fn combine(
        &mut self,
        used: &[Item<C>],
        mut taken: Vec<Item<C>>,
        parts: &[(usize, Goal<'_, C>)],
    ) -> (Vec<Item<C>>, u32, u32) {
        taken.sort_by_key(|item| std::cmp::Reverse(item.hi));
        let mut ways: Vec<Item<C>> = Vec::new();
        let (mut lo, mut hi) = (u32::MAX, 0);
        for item in &taken {
            let accepted = parts.iter().filter(|(_, part)| part.accepts(self.solver, self.cost, item));
            for way in accepted.map(|(way, _)| *way) {
                let Some(sum) = self.solver.plus(&used[way], item) else { continue };
                (lo, hi) = (lo.min(item.lo), hi.max(item.hi));
                if self.shares {
                    return (vec![sum], lo, hi);
                }
                if !ways.contains(&sum) {
                    ways.push(sum);
                }
            }
        }
        (ways, lo, hi)
    }

    /// Uses a leaf whose nodes are all alike: the first nodes, as many as any goal takes.
    fn alike(&mut self, leaf: DomainId, goals: &[&Goal<'_, C>]) -> Item<C> {
        let nothing = Item::nothing(self.solver.problem.layout.width());
        let problem = self.solver.problem;
        let most = problem.view.slots.nodes_of(leaf).min(problem.amount);
        for amount in (1..=most).rev() {
            let part = Item { lo: amount, hi: amount, ..nothing.clone() };
            if goals.iter().any(|goal| goal.accepts(self.solver, self.cost, &part)) {
                problem.first_allowed(problem.open_nodes(leaf), amount as usize, |pos| {
                    self.nodes.push((pos, 1, 1))
                });
                return part;
            }
        }
        nothing
    }

    /// Uses a domain below such that one of the goals is met. Returns the ways that meet one.
    fn descend(&mut self, id: DomainId, parts: &[(usize, Goal<'_, C>)]) -> Vec<Item<C>> {
        let nothing = Item::nothing(self.solver.problem.layout.width());
        let inside = |cost: &C| {
            let mut cost = cost.clone();
            cost.sub(&self.solver.charge_of(id));
            cost
        };
        let inner: Vec<Goal<'_, C>> = parts
            .iter()
            .map(|(_, part)| {
                let cost = part.cost.as_ref().map(inside);
                Goal { domain: id, rest: nothing.clone(), outer: Some(part), cost }
            })
            .collect();
        let inside = self.members(id, &inner.iter().collect::<Vec<_>>());
        let mut closed = Vec::new();
        inside.iter().for_each(|way| self.solver.close(id, way, &mut closed));
        closed
    }
}
