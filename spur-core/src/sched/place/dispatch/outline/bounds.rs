//! Lower bounds on the cost of a placement on a stretch of positions, from prefix sums along the positions. A
//! bound is exact where every node of the stretch is used, and where whole nodes are alike.

use std::ops::{Range, RangeInclusive};

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{
    Cost, Item, Problem, Rank, added_up, position, positions, rank, rank_node,
};

/// Prefix sums along the positions of a fabric.
pub(super) struct Bounds<'p, 'a> {
    problem: &'p Problem<'a>,
    /// For each layer from the leaves to below the top: the domains used below the holder of a stretch.
    layers: Vec<Along>,
    /// For each weight, the heaviest first: prefix sums of the usable nodes of that weight. Empty where
    /// weights do not count.
    of_weights: Vec<Vec<u32>>,
}

/// The domains that count for a layer, in the order of positions.
struct Along {
    /// For each leaf, the index of the domain above it.
    places: Vec<usize>,
    /// For each index, the slots of all domains before it.
    before: Vec<u64>,
}

impl<'p, 'a> Bounds<'p, 'a> {
    /// The bounds; `None` where one node is placed or jobs are spread. With tasks, bounds hold only for
    /// stretches of which every node is used.
    pub(super) fn of(problem: &'p Problem<'a>) -> Option<Self> {
        let is_single = problem.by_nodes && problem.amount == 1;
        if is_single || problem.ask.mode == Mode::Distributed {
            return None;
        }
        let heavier = problem.layout.weights;
        let is_of = |class: usize, pos: Pos| {
            problem.most_on(pos) > 0 && problem.weight_class(pos).unwrap_or(heavier) == class
        };
        let classes = if heavier == 0 { 0 } else { heavier + 1 };
        let weighs = |class: usize| {
            added_up(positions(0..problem.fabric.wired()).map(|pos| u32::from(is_of(class, pos))))
        };
        let below_top = (Layer::LEAF.0..problem.fabric.top().0).map(Layer);
        Some(Self {
            layers: below_top.map(|layer| Along::of(problem, layer)).collect(),
            of_weights: (0..classes).map(weighs).collect(),
            problem,
        })
    }

    /// True if stretches that begin in the same leaf and end in the same leaf have equal ranks: nodes are
    /// whole and of one weight.
    pub(super) fn are_of_leaves(&self) -> bool {
        self.of_weights.is_empty() && self.problem.view.slots.are_whole()
    }

    /// A lower bound on the rank of a placement that uses every domain of a stretch, on nodes that have at
    /// least `slots` slots together. `None` if no domain that may hold the job contains the stretch. Tasks
    /// use every node.
    pub(super) fn rank<C: Cost>(&self, stretch: &Range<usize>, slots: u64) -> Option<Rank> {
        let problem = self.problem;
        if !problem.by_nodes && stretch.len() == 1 && !problem.view.slots.are_whole() {
            let pos = position(stretch.start);
            return problem.node::<C>(pos, (0, u32::MAX)).map(|item| rank_node(problem, pos, &item));
        }
        let holder = problem.fabric.deepest_common(&[position(stretch.start), position(stretch.end - 1)])?;
        let layer = problem.fabric.domain(holder).layer();
        if problem.within.is_some_and(|within| layer > within) {
            return None;
        }
        let mut item = Item::<C>::nothing(problem.layout.width());
        let fields = item.cost.fields_mut();
        let nodes = if problem.by_nodes { problem.amount as usize } else { stretch.len() };
        // Nodes are counted from the lightest class up, which gives the smallest cost.
        let mut wanted = u32::try_from(nodes).unwrap_or(u32::MAX);
        for (class, before) in self.of_weights.iter().enumerate().rev() {
            let taken = wanted.min(before[stretch.end] - before[stretch.start]);
            wanted -= taken;
            if class < problem.layout.weights {
                fields[class] += i64::from(taken);
            }
        }
        if !problem.view.slots.are_whole() {
            problem.charge_for(fields, Layer::NODE, (nodes, slots));
        }
        let [first, last] =
            [stretch.start, stretch.end - 1].map(|index| problem.fabric.leaf_of(position(index)));
        let leaves = first?..=last?;
        for (below, along) in (Layer::LEAF.0..layer.0).map(Layer).zip(&self.layers) {
            problem.charge_for(fields, below, along.used(&leaves));
        }
        Some(rank(problem, holder, &item))
    }
}

impl Along {
    fn of(problem: &Problem<'_>, layer: Layer) -> Self {
        let mut along = Self { places: Vec::new(), before: Vec::new() };
        let (mut last, mut sum) = (None, 0);
        for leaf in problem.fabric.domains_of(Layer::LEAF) {
            let domain = problem.fabric.covering(leaf, layer);
            // A domain without nodes is never used.
            if last != Some(domain) && problem.fabric.domain(leaf).size() > 0 {
                along.before.push(sum);
                sum += problem.slots(domain);
                last = Some(domain);
            }
            along.places.push(along.before.len().saturating_sub(1));
        }
        along.before.push(sum);
        along
    }

    /// The number of domains above a range of leaves, and their slots.
    fn used(&self, leaves: &RangeInclusive<DomainId>) -> (usize, u64) {
        let [first, last] = [leaves.start(), leaves.end()].map(|leaf| self.places[leaf.index()]);
        (last + 1 - first, self.before[last + 1] - self.before[first])
    }
}
