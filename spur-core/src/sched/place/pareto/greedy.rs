//! A greedy placement for a question that takes too long. Nodes are picked by the amount that they take,
//! largest domains first; the solver then checks the placement on just these nodes, which is fast.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::Placement;
use crate::sched::place::ask::{Ask, Mode};
use crate::sched::place::problem::{Cost, Problem, Ranked, halve, positions, sum_of_largest};

use super::Solver;
use super::candidates::may_hold;
use super::greedy_weights::Light;
use super::share::share;
use super::traceback::trace;

/// Number of domains of one layer that are tried.
const FEW: usize = 2;
/// Amounts that are subtracted from each node's when a given number of nodes is picked, as fractions of the
/// average amount of a node.
const TOLLS: [(u64, u64); 4] = [(0, 1), (1, 2), (1, 1), (5, 4)];

/// The better of two greedy placements: the one with as few heavier nodes as possible, where a number of
/// nodes is given, and the one on the largest nodes. `None` if neither is allowed.
pub(crate) fn greedy_placement<C: Cost>(problem: &Problem<'_>) -> Option<Ranked> {
    let found = [lightest::<C>(problem), of_largest::<C>(problem)];
    found.into_iter().flatten().min_by(|(one, _), (other, _)| one.cmp(other))
}

/// The greedy placement with as few heavier nodes as possible; `None` unless a number of nodes is given
/// beside tasks.
fn lightest<C: Cost>(problem: &Problem<'_>) -> Option<Ranked> {
    let light = Light::of(problem)?;
    let least = light.least_heavier(problem.highest())?;
    problem.layers().find_map(|layer| {
        let holders = holders(problem, layer).into_iter();
        let mut holders = holders.filter(|&id| light.heavier(id).as_ref() == Some(&least)).take(FEW);
        holders.find_map(|id| on_these::<C>(problem, id, light.pick(id, &least)?))
    })
}

/// The domains of a layer that may hold the job, the ones that need the fewest members first.
fn holders(problem: &Problem<'_>, layer: Layer) -> Vec<DomainId> {
    let suited = |&id: &DomainId| problem.capacity(id) >= problem.amount && may_hold(problem, id);
    let mut holders: Vec<(usize, u64, DomainId)> = (problem.fabric.domains_of(layer).filter(suited))
        .map(|id| (problem.fewest_members(id), problem.slots(id), id))
        .filter(|&(fewest, _, _)| fewest < usize::MAX)
        .collect();
    holders.sort_unstable();
    holders.into_iter().map(|(_, _, id)| id).collect()
}

/// The greedy placement on the largest nodes, whatever their weight.
fn of_largest<C: Cost>(problem: &Problem<'_>) -> Option<Ranked> {
    let on_layer = |layer: Layer| {
        let holders = holders(problem, layer);
        let mut few = holders.into_iter().take(FEW);
        few.find_map(|id| on_these::<C>(problem, id, Picker::new(problem, id).pick()?))
    };
    let is_spread = problem.ask.mode == Mode::Distributed;
    if is_spread { problem.layers().rev().find_map(on_layer) } else { problem.layers().find_map(on_layer) }
}

/// The placement on exactly these nodes of a domain; `None` if it is not allowed.
fn on_these<C: Cost>(problem: &Problem<'_>, holder: DomainId, picked: Vec<Pos>) -> Option<Ranked> {
    // A limit per node evens out the shares, which needs no solver.
    let is_even = problem.ask.mode != Mode::Consolidated && !problem.by_nodes;
    let most = if is_even { Some(level(problem, &picked)) } else { problem.ask.max_tasks_per_node };
    let ask = Ask { mode: Mode::Consolidated, max_tasks_per_node: most, ..problem.ask.clone() };
    let chosen = problem.only_these(picked.into_iter()).anew().asking(&ask);
    let mut solver = Solver::<C>::new(&chosen);
    let best = solver.best(holder)?;
    let nodes = trace(&mut solver, holder, &best, false);
    if chosen.meter.is_spent() {
        return None;
    }
    let shares = share(&chosen, holder, &nodes, &[]);
    Some((problem.judge(&shares)?, Placement::new(problem, shares, Some(holder), false)))
}

/// The nodes of a leaf that may be used.
pub(super) fn usable(problem: &Problem<'_>, leaf: DomainId) -> Vec<Pos> {
    if problem.is_barred(leaf) || problem.limit(leaf) == 0 {
        return Vec::new();
    }
    problem.open_nodes(leaf).filter(|&pos| problem.may_use(pos) && problem.most_on(pos) > 0).collect()
}

/// The smallest limit per node under which the nodes still take the whole job.
fn level(problem: &Problem<'_>, nodes: &[Pos]) -> u32 {
    1 + halve(0, problem.amount, |most| {
        let takes = nodes.iter().map(|&pos| u64::from(problem.most_on(pos).min(most)));
        takes.sum::<u64>() < u64::from(problem.amount)
    })
}

/// A greedy choice of nodes below a domain.
struct Picker<'p, 'a> {
    problem: &'p Problem<'a>,
    holder: DomainId,
    picked: Vec<Pos>,
    /// The picked nodes as a set.
    taken: FixedBitSet,
}

impl<'p, 'a> Picker<'p, 'a> {
    fn new(problem: &'p Problem<'a>, holder: DomainId) -> Self {
        let mut taken = FixedBitSet::with_capacity(problem.fabric.len());
        problem.required.iter().for_each(|pos| taken.insert(pos.index()));
        Self { problem, holder, picked: problem.required.clone(), taken }
    }

    /// The picked nodes in fabric order; `None` if there are not enough.
    fn pick(mut self) -> Option<Vec<Pos>> {
        let problem = self.problem;
        self.serve_counts()?;
        if problem.ask.mode == Mode::Distributed {
            self.spread()?;
        } else if let Some(nodes) = problem.nodes {
            self.fill_nodes(nodes as usize)?;
        } else {
            let taken: u32 = self.picked.iter().map(|&pos| problem.most_on(pos)).sum();
            let left = problem.amount.saturating_sub(taken);
            if self.fill(self.holder, left) < left {
                return None;
            }
        }
        self.picked.sort_unstable();
        Some(self.picked)
    }

    fn take(&mut self, pos: Pos) {
        self.picked.push(pos);
        self.taken.insert(pos.index());
    }

    /// The nodes of a leaf that may be used and are not picked yet.
    fn open(&self, leaf: DomainId) -> Vec<Pos> {
        let mut open = usable(self.problem, leaf);
        open.retain(|pos| !self.taken.contains(pos.index()));
        open
    }

    /// The leaves below the holder that can take anything.
    fn leaves(&self) -> Vec<DomainId> {
        let mut leaves = self.problem.leaves_below(self.holder, |_| true);
        leaves.retain(|&leaf| self.problem.room(leaf) > 0);
        leaves
    }

    /// Picks the needed number of nodes of every counted set, from the leaves that have most of them.
    fn serve_counts(&mut self) -> Option<()> {
        let problem = self.problem;
        for (set, need) in &problem.ask.counts {
            let has = self.picked.iter().filter(|pos| set.contains(pos.index())).count();
            let mut left = (*need as usize).saturating_sub(has);
            let mut leaves: Vec<(usize, Vec<Pos>)> = Vec::new();
            for leaf in self.leaves() {
                let mut members = self.open(leaf);
                members.retain(|pos| set.contains(pos.index()));
                problem.keep_allowed(leaf, &mut members, |&pos| pos);
                leaves.push((members.len(), members));
            }
            leaves.sort_by_key(|(count, _)| Reverse(*count));
            for pos in leaves.into_iter().flat_map(|(_, members)| members) {
                if left == 0 {
                    break;
                }
                self.take(pos);
                left -= 1;
            }
            if left > 0 {
                return None;
            }
        }
        Some(())
    }

    /// Picks nodes of a domain for `want` more of the job, the largest nodes of the largest members first.
    /// Returns the amount that the nodes take, at most `want`.
    fn fill(&mut self, id: DomainId, want: u32) -> u32 {
        let problem = self.problem;
        let domain = problem.fabric.domain(id);
        if want == 0 || problem.is_barred(id) {
            return 0;
        }
        if !domain.children().is_empty() {
            let mut members = domain.children().to_vec();
            members.sort_by_key(|&child| (!problem.is_forced(child), Reverse(problem.room(child))));
            let mut left = want;
            for child in members {
                left -= self.fill(child, left);
                if left == 0 {
                    break;
                }
            }
            return want - left;
        }
        let (mut nodes, mut sum, mut load) = (0, 0, 0_u32);
        for pos in positions(domain.range()).filter(|pos| self.taken.contains(pos.index())) {
            (nodes, sum) = (nodes + 1, sum + problem.most_on(pos));
            load = load.saturating_add(problem.load_of(pos));
        }
        let had = sum;
        let unit = problem.unit(domain.cover());
        let most = problem.room(id).min(had.saturating_add(want));
        let most = most - most % unit;
        let mut open = self.open(id);
        let weight = |pos: Pos| problem.view.weights.map_or(0, |weights| weights.at(pos));
        let takes = |pos: Pos| (problem.load_of(pos), Reverse(problem.most_on(pos)));
        open.sort_by_key(|&pos| (weight(pos), takes(pos), problem.slots_of_node(pos)));
        for pos in open {
            if sum >= most || problem.leaf_nodes.is_some_and(|most| nodes >= most) {
                break;
            }
            let more = load.saturating_add(problem.load_of(pos));
            if !problem.may_bring(more) {
                continue;
            }
            self.take(pos);
            (nodes, sum, load) = (nodes + 1, sum + problem.most_on(pos), more);
        }
        sum.min(most).saturating_sub(had)
    }

    /// Picks nodes until there are exactly `nodes`, which take the job: the largest nodes of as few leaves as
    /// possible, the best of several orders of leaves.
    fn fill_nodes(&mut self, nodes: usize) -> Option<()> {
        let problem = self.problem;
        let wanted = nodes.checked_sub(self.picked.len())?;
        let taken: u64 = self.picked.iter().map(|&pos| u64::from(problem.most_on(pos))).sum();
        let amount = u64::from(problem.amount).saturating_sub(taken);
        let leaves: Vec<Vec<(u32, Pos)>> = (self.leaves().into_iter())
            .map(|leaf| {
                let open = self.open(leaf).into_iter();
                let mut open: Vec<(u32, Pos)> = open.map(|pos| (problem.most_on(pos), pos)).collect();
                open.sort_by_key(|&(takes, _)| Reverse(takes));
                problem.keep_allowed(leaf, &mut open, |&(_, pos)| pos);
                open
            })
            .collect();
        let average = u64::from(problem.amount) / nodes as u64;
        let chosen = largest_of_few(&leaves, (wanted, amount), average)?;
        self.picked.extend(chosen.into_iter().map(|(_, pos)| pos));
        Some(())
    }

    /// Picks nodes spread over all leaves: one of every leaf before a second one of any.
    fn spread(&mut self) -> Option<()> {
        let problem = self.problem;
        let fabric = problem.fabric;
        let mut order: Vec<(usize, usize, Pos)> = Vec::new();
        for leaf in self.leaves() {
            let mut open = self.open(leaf);
            open.sort_by_key(|&pos| Reverse(problem.most_on(pos)));
            let siblings =
                fabric.domain(leaf).parent().map_or(&[][..], |parent| fabric.domain(parent).children());
            let own = siblings.iter().position(|&child| child == leaf).unwrap_or(0);
            problem.keep_allowed(leaf, &mut open, |&pos| pos);
            order.extend(open.into_iter().enumerate().map(|(index, pos)| (index, own, pos)));
        }
        order.sort_unstable();
        let wanted = problem.nodes.unwrap_or(problem.amount) as usize;
        let more = wanted.saturating_sub(self.picked.len());
        self.picked.extend(order.into_iter().take(more).map(|(_, _, pos)| pos));
        let takes = self.picked.iter().map(|&pos| u64::from(problem.most_on(pos)));
        (takes.sum::<u64>() >= u64::from(problem.amount)).then_some(())
    }
}

/// Exactly `nodes` nodes that take an amount: the largest nodes of as few leaves as possible, the best of
/// several orders of leaves. `average` is the mean amount of a node. `None` if no order finds enough.
pub(super) fn largest_of_few(
    leaves: &[Vec<(u32, Pos)>],
    (nodes, amount): (usize, u64),
    average: u64,
) -> Option<Vec<(u32, Pos)>> {
    let tolls = TOLLS.iter().map(|(part, whole)| average * part / whole);
    let best = tolls.filter_map(|toll| few_leaves(leaves, nodes, amount, toll)).min_by_key(Vec::len)?;
    let mut chosen: Vec<(u32, Pos)> =
        best.into_iter().flat_map(|leaf| leaves[leaf].iter().copied()).collect();
    chosen.sort_unstable_by_key(|&(takes, pos)| (Reverse(takes), pos));
    chosen.truncate(nodes);
    Some(chosen)
}

/// The fewest leaves whose `nodes` largest nodes take the amount. Leaves come in order of the sum of their
/// nodes' amounts, each reduced by the toll.
fn few_leaves(leaves: &[Vec<(u32, Pos)>], nodes: usize, amount: u64, toll: u64) -> Option<Vec<usize>> {
    let worth = |leaf: &Vec<(u32, Pos)>| -> u64 {
        leaf.iter().map(|&(takes, _)| u64::from(takes).saturating_sub(toll)).sum()
    };
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.sort_by_cached_key(|&leaf| Reverse((worth(&leaves[leaf]), leaves[leaf].len())));
    let hold = |count: usize| {
        let all = order[..count].iter().flat_map(|&leaf| &leaves[leaf]);
        let takes: Vec<u32> = all.map(|(takes, _)| *takes).collect();
        takes.len() >= nodes && sum_of_largest(takes, nodes) >= amount
    };
    let (mut few, mut many) = (0, order.len());
    if !hold(many) {
        return None;
    }
    while many - few > 1 {
        let middle = few.midpoint(many);
        if hold(middle) { many = middle } else { few = middle }
    }
    order.truncate(many);
    Some(order)
}
