//! The nodes of each leaf in the order in which a job uses them, and the nodes that are used in every best
//! choice.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

/// Number of nodes of each weight, the heaviest first. In comparisons fewer of the heaviest come first.
type NodesByWeight = Vec<(u32, u32)>;

/// A leaf that may be used.
struct Leaf {
    /// Number of nodes used in every choice: the required ones, rounded up to a multiple.
    sure: u32,
    /// Further steps in the order of use, the lightest first: the kind of a step, and the number of steps of
    /// that kind.
    steps: Vec<(u32, u32)>,
    /// Number of nodes in one step.
    unit: u32,
}

/// All leaves that may be used, with the nodes of each that every choice uses.
pub(super) struct Leaves<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    leaves: BTreeMap<DomainId, Leaf>,
    /// The weights of the nodes of each kind of step, the lightest kind first.
    kinds: Vec<NodesByWeight>,
}

/// The lightest nodes of a domain that hold the job.
pub(super) struct Mix {
    /// The weights of these nodes, without those that are used in every choice.
    pub(super) weights: NodesByWeight,
    /// The heaviest kind of step among them.
    heaviest: u32,
}

impl<'p, 'a> Leaves<'p, 'a> {
    /// The leaves of a problem; `None` if some required node cannot be used.
    pub(super) fn new(problem: &'p Problem<'a>) -> Option<Self> {
        let mut required = problem.required.as_slice();
        let mut known: BTreeMap<NodesByWeight, u32> = BTreeMap::new();
        let mut leaves: BTreeMap<DomainId, Leaf> = BTreeMap::new();
        for id in problem.fabric.domains_of(Layer::LEAF) {
            let domain = problem.fabric.domain(id);
            let range = domain.range();
            let inside = required.partition_point(|pos| pos.index() < range.end);
            let (own, rest) = required.split_at(inside);
            required = rest;
            let (room, unit) = (problem.room(id), problem.unit(domain.cover()));
            let sure = u32::try_from(own.len()).ok()?.checked_next_multiple_of(unit)?;
            // A required node may be in no leaf at all.
            let are_open = own
                .iter()
                .all(|pos| pos.index() >= range.start && problem.view.slots.open().contains(pos.index()));
            if sure > room || !are_open {
                return None;
            }
            if room > 0 {
                let steps = steps(problem, id, sure, (room, unit), &mut known);
                leaves.insert(id, Leaf { sure, steps, unit });
            }
        }
        // Steps were numbered in order of discovery; this renumbers them in order of weight.
        let mut places = vec![0; known.len()];
        let mut kinds = Vec::with_capacity(known.len());
        for (place, (weights, seen)) in (0..).zip(known) {
            places[seen as usize] = place;
            kinds.push(weights);
        }
        let steps = leaves.values_mut().flat_map(|leaf| &mut leaf.steps);
        steps.for_each(|(kind, _)| *kind = places[*kind as usize]);
        required.is_empty().then_some(Self { problem, leaves, kinds })
    }

    /// The leaves of a domain that may be used if the domain holds the job.
    fn below(&self, id: DomainId) -> impl Iterator<Item = (DomainId, &Leaf)> {
        let leaves = self.problem.leaves_below(id, |below| below == id || !self.problem.is_barred(below));
        leaves.into_iter().filter_map(|leaf| Some((leaf, self.leaves.get(&leaf)?)))
    }

    /// The lightest nodes of a domain that hold the job; `None` if no nodes do.
    pub(super) fn mix(&self, id: DomainId) -> Option<Mix> {
        let mut left = self.problem.amount;
        let mut steps: Vec<(u32, u32, u32)> = Vec::new();
        for (_, leaf) in self.below(id) {
            left = left.checked_sub(leaf.sure)?;
            steps.extend(leaf.steps.iter().map(|&(kind, count)| (kind, count, leaf.unit)));
        }
        steps.sort_unstable();
        let mut weights: BTreeMap<Reverse<u32>, u32> = BTreeMap::new();
        let mut heaviest = 0;
        for (kind, count, unit) in steps {
            if left == 0 {
                break;
            }
            let count = count.min(left.div_ceil(unit));
            left = left.saturating_sub(count * unit);
            heaviest = kind;
            for &(weight, nodes) in &self.kinds[kind as usize] {
                *weights.entry(Reverse(weight)).or_default() += nodes * count;
            }
        }
        let weights = weights.into_iter().map(|(Reverse(weight), nodes)| (weight, nodes)).collect();
        (left == 0).then_some(Mix { weights, heaviest })
    }

    /// The least and the most that each domain below the holder takes in a choice of the lightest nodes, by
    /// the domain's number. `None` if multiples rule such a choice out.
    pub(super) fn takes(&self, holder: DomainId, mix: &Mix) -> Option<Vec<(u32, u32)>> {
        let problem = self.problem;
        let mut takes = vec![(0, 0); problem.fabric.domain_count()];
        for (id, leaf) in self.below(holder) {
            let nodes = |is_meant: &dyn Fn(u32) -> bool| -> u32 {
                let steps = leaf.steps.iter().filter(|(kind, _)| is_meant(*kind));
                steps.map(|(_, count)| count * leaf.unit).sum()
            };
            let least = leaf.sure + nodes(&|kind| kind < mix.heaviest);
            takes[id.index()] = (least, least + nodes(&|kind| kind == mix.heaviest));
        }
        let range = problem.fabric.domain(holder).range();
        for (id, domain) in problem.fabric.domains() {
            let is_inside =
                id != holder && range.start <= domain.range().start && domain.range().end <= range.end;
            if domain.children().is_empty() || !is_inside || problem.is_barred(id) {
                continue;
            }
            let unit = problem.unit(domain.cover());
            let below = domain.children().iter().map(|child| takes[child.index()]);
            let (least, most) = below.fold((0_u32, 0_u32), |sum, own| (sum.0 + own.0, sum.1 + own.1));
            let most = most.min(problem.limit(id));
            let (least, most) = (least.next_multiple_of(unit), most - most % unit);
            if least > most {
                return None;
            }
            takes[id.index()] = (least, most);
        }
        let below = problem.fabric.domain(holder).children().iter().map(|child| takes[child.index()]);
        let (least, most) = below.fold((0_u32, 0_u32), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        (least..=most).contains(&problem.amount).then_some(takes)
    }

    /// The `amount` nodes of a leaf that are used first, in fabric order.
    pub(super) fn nodes_of(&self, leaf: DomainId, amount: u32) -> Vec<Pos> {
        let mut nodes: Vec<(bool, u32, Pos)> = in_order(self.problem, leaf);
        nodes.truncate(amount as usize);
        let mut nodes: Vec<Pos> = nodes.into_iter().map(|(_, _, pos)| pos).collect();
        nodes.sort_unstable();
        nodes
    }
}

/// The open nodes of a leaf in order of use, each with a flag (false if required) and its weight.
fn in_order(problem: &Problem<'_>, leaf: DomainId) -> Vec<(bool, u32, Pos)> {
    let weights = problem.view.weights.filter(|_| problem.layout.weights > 0);
    let mut nodes: Vec<(bool, u32, Pos)> = (problem.open_nodes(leaf))
        .map(|pos| {
            let is_free = problem.required.binary_search(&pos).is_err();
            (is_free, weights.map_or(0, |weights| weights.at(pos)), pos)
        })
        .collect();
    nodes.sort_unstable();
    nodes
}

/// The steps of a leaf beyond its first `sure` nodes, up to its capacity. `known` numbers the kinds of steps.
fn steps(
    problem: &Problem<'_>,
    leaf: DomainId,
    sure: u32,
    (room, unit): (u32, u32),
    known: &mut BTreeMap<NodesByWeight, u32>,
) -> Vec<(u32, u32)> {
    let mut number = |weights: NodesByWeight| -> u32 {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        *known.entry(weights).or_insert(next)
    };
    let count = (room - sure) / unit;
    if problem.layout.weights == 0 {
        return if count > 0 { vec![(number(Vec::new()), count)] } else { Vec::new() };
    }
    let nodes = in_order(problem, leaf);
    let mut steps: Vec<(u32, u32)> = Vec::new();
    // The weight of the last step, if all its nodes have that weight.
    let mut last = None;
    for step in nodes[sure as usize..].chunks_exact(unit as usize).take(count as usize) {
        let (_, light, _) = step[0];
        let (_, heavy, _) = step[step.len() - 1];
        match steps.last_mut() {
            Some((_, count)) if last == Some(heavy) && light == heavy => *count += 1,
            _ => {
                // Fewer heavy nodes sort first, so the heaviest weight is listed first.
                let same = step.chunk_by(|(_, one, _), (_, other, _)| one == other).rev();
                let weights = same.map(|some| (some[0].1, u32::try_from(some.len()).unwrap_or(u32::MAX)));
                steps.push((number(weights.collect()), 1));
            }
        }
        last = Some(heavy).filter(|_| light == heavy);
    }
    steps
}
