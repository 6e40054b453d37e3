//! Picks a given number of nodes for tasks with as few heavier nodes as possible, where the exact search
//! takes too long.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{Problem, fewest_heavy, sum_of_largest};

use super::greedy::{largest_of_few, usable};

/// A node: its weight class (the last is the lightest), the amount that it takes, and its position.
type Node = (usize, u32, Pos);

/// The nodes from which a placement with few heavy nodes is picked.
pub(super) struct Light<'p, 'a> {
    problem: &'p Problem<'a>,
    /// Number of nodes that the job wants.
    nodes: u32,
    /// The nodes of every leaf that may be used.
    leaves: BTreeMap<DomainId, Vec<Node>>,
}

impl<'p, 'a> Light<'p, 'a> {
    /// The nodes to pick from. `None` where all weigh the same, the number of nodes is open, or the job is
    /// not consolidated. Also `None` for a job that must have certain nodes, or a least number of nodes from
    /// some set.
    pub(super) fn of(problem: &'p Problem<'a>) -> Option<Self> {
        let applies = problem.layout.weights > 0
            && problem.ask.mode == Mode::Consolidated
            && problem.required.is_empty()
            && problem.ask.counts.is_empty();
        let nodes = problem.nodes.filter(|_| applies)?;
        let lightest = problem.layout.weights;
        let of_leaf = |leaf: DomainId| {
            let class = |pos: Pos| problem.weight_class(pos).unwrap_or(lightest);
            let open = usable(problem, leaf).into_iter();
            let mut open: Vec<Node> = open.map(|pos| (class(pos), problem.most_on(pos), pos)).collect();
            open.sort_by_key(|&(class, takes, _)| Reverse((class, takes)));
            problem.keep_allowed(leaf, &mut open, |&(_, _, pos)| pos);
            (leaf, open)
        };
        let leaves = problem.fabric.domains_of(Layer::LEAF).filter(|&leaf| problem.room(leaf) > 0);
        Some(Self { problem, nodes, leaves: leaves.map(of_leaf).collect() })
    }

    /// The nodes of each leaf of a domain.
    fn below(&self, holder: DomainId) -> impl Iterator<Item = &[Node]> {
        let leaves = self.problem.leaves_below(holder, |_| true).into_iter();
        leaves.filter_map(|leaf| Some(self.leaves.get(&leaf)?.as_slice()))
    }

    /// Number of nodes of each class but the lightest that the job needs in a domain, the heaviest first.
    /// `None` if the domain does not hold the job.
    pub(super) fn heavier(&self, holder: DomainId) -> Option<Vec<u32>> {
        let mut takes: Vec<Vec<u32>> = vec![Vec::new(); self.problem.layout.weights + 1];
        self.below(holder).flatten().for_each(|&(class, one, _)| takes[class].push(one));
        fewest_heavy(takes, self.nodes as usize, self.problem.amount.into())
    }

    /// The smallest such numbers in any domain up to a layer, in lexicographic order.
    pub(super) fn least_heavier(&self, highest: Layer) -> Option<Vec<u32>> {
        let largest = self.problem.fabric.domains_covering(highest).into_iter();
        largest.filter_map(|id| self.heavier(id)).min()
    }

    /// Nodes of a domain, in fabric order, with the given number of each class but the lightest: of each
    /// class the largest nodes of as few leaves as possible.
    pub(super) fn pick(&self, holder: DomainId, heavier: &[u32]) -> Option<Vec<Pos>> {
        let lightest = self.nodes.checked_sub(heavier.iter().sum())?;
        let counts = heavier.iter().copied().chain([lightest]).map(|count| count as usize);
        let of_class = |class: usize| -> Vec<Vec<(u32, Pos)>> {
            let own = |nodes: &[Node]| {
                let own = nodes.iter().filter(|(of, _, _)| *of == class);
                own.map(|&(_, takes, pos)| (takes, pos)).collect::<Vec<_>>()
            };
            self.below(holder).map(own).filter(|leaf| !leaf.is_empty()).collect()
        };
        let classes = counts.enumerate().filter(|(_, count)| *count > 0);
        let classes: Vec<_> = classes
            .map(|(class, count)| {
                let leaves = of_class(class);
                let takes: Vec<u32> = leaves.iter().flatten().map(|(takes, _)| *takes).collect();
                (count, sum_of_largest(takes, count), leaves)
            })
            .collect();
        let all: u64 = classes.iter().map(|(_, most, _)| most).sum();
        // Where the largest nodes take more than the job, smaller ones allow fewer leaves.
        let mut slack = all.checked_sub(self.problem.amount.into())?;
        let mut picked = Vec::with_capacity(self.nodes as usize);
        for (count, most, leaves) in classes {
            let wanted = most.saturating_sub(slack);
            let chosen = largest_of_few(&leaves, (count, wanted), wanted / count as u64)?;
            let taken: u64 = chosen.iter().map(|(takes, _)| u64::from(*takes)).sum();
            slack = slack.saturating_sub(most.saturating_sub(taken));
            picked.extend(chosen.into_iter().map(|(_, pos)| pos));
        }
        picked.sort_unstable();
        Some(picked)
    }
}
