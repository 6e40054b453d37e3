//! The nodes that a job may be placed on, where everything that matters adds up over nodes.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::Missed;
use crate::sched::place::problem::{
    Problem, fewest_heavy, fewest_heavy_of_any, position, positions, reach, sum_of_largest,
};
use crate::sched::place::slots::{Takes, bottom_up, narrow};
use crate::sched::place::special::reduced_costs;

use super::super::tree_knapsack::{Beside, KnapsackItem};

/// Number of nodes in a leaf above which nodes that can never be used are removed first.
pub(super) const MANY: usize = 48;

/// The nodes that may be used, by weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UsableWeights {
    /// All nodes have the same weight, or weight does not matter.
    Same,
    /// Only the lightest nodes may be used.
    Lightest,
    /// Exactly this number of nodes of each class but the lightest, the heaviest first: the fewest possible.
    Some(Vec<u32>),
}

/// The nodes that a job may be placed on, and the amount that each takes.
pub(super) struct Items<'s, 'a> {
    pub(super) problem: &'s Problem<'a>,
    pub(super) beside: Beside,
    weights: UsableWeights,
    /// The largest amount that each domain takes, where that differs from the problem's capacity.
    rooms: Option<Vec<u32>>,
    /// The amounts of nodes, where they are known leaf by leaf.
    takes: Option<Takes<'a>>,
    /// Facts about all leaves together, computed on demand, where nodes of one weight are used.
    extremes: OnceCell<Option<LeafExtremes>>,
}

impl reduced_costs::CapacityBounds for &Items<'_, '_> {
    fn of(&self, id: DomainId) -> (u32, u32) {
        (0, self.room(id))
    }

    fn each_of(&self, leaf: DomainId, see: impl FnMut(Pos, u32)) {
        Items::each_of(self, leaf, see);
    }
}

/// Facts about all leaves that may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafExtremes {
    /// The largest amount that one node takes.
    pub(super) peak: u32,
    /// The fewest slots of a node that takes the whole job; `None` if no node does.
    smallest: Option<u32>,
}

impl<'s, 'a> Items<'s, 'a> {
    /// All nodes, or only the lightest where weights differ; `None` if this solver does not apply: some cost
    /// or constraint does not add up over nodes, or a preference looks at single nodes or domains.
    pub(super) fn new(problem: &'s Problem<'a>) -> Option<Self> {
        let ask = problem.ask;
        // With whole nodes no domain below leaves is examined.
        let below_leaves = problem.view.slots.are_whole() && problem.within == Some(Layer::NODE);
        let applies = problem.adds_up()
            && ask.prefer_domain.is_none()
            && !problem.lowest_latency
            && !ask.prefer.contains(&Layer::NODE)
            && !below_leaves;
        let beside = match (problem.nodes, problem.span_caps.as_slice()) {
            (None, []) => Beside::Nothing,
            (Some(nodes), []) => Beside::Nodes(nodes),
            (None, &[(Layer::LEAF, leaves)]) if leaves > 0 => Beside::Leaves(leaves),
            _ => return None,
        };
        if !applies {
            return None;
        }
        let weights = if problem.layout.weights > 0 { UsableWeights::Lightest } else { UsableWeights::Same };
        let mut takes = problem.takes();
        if weights == UsableWeights::Lightest {
            let lightest = problem.lightest;
            takes = takes.zip(lightest).and_then(|(all, weight)| all.of_weight(problem.view, weight));
        }
        let mut items = Self { problem, beside, weights, rooms: None, takes, extremes: OnceCell::new() };
        if items.weights == UsableWeights::Lightest {
            items.rooms = Some(items.count());
        }
        Some(items)
    }

    /// True if the number of nodes is given.
    pub(super) fn is_number_given(&self) -> bool {
        matches!(self.beside, Beside::Nodes(_))
    }

    /// True if only the lightest nodes may be used.
    pub(super) fn is_lightest_alone(&self) -> bool {
        self.weights == UsableWeights::Lightest
    }

    /// True if nodes of several weights are used.
    pub(super) fn is_mixed(&self) -> bool {
        matches!(self.weights, UsableWeights::Some(_))
    }

    /// The nodes of all weights, with the fewest heavier ones that any placement needs. An error if there is
    /// no placement, or if this solver does not apply.
    pub(super) fn of_all_weights(&self) -> Result<Self, Missed> {
        let problem = self.problem;
        let highest = problem.highest();
        // Below leaves there is no domain to examine.
        let applies = highest > Layer::NODE && problem.ask.min_speed.is_none();
        if matches!(self.beside, Beside::Leaves(_)) || !applies {
            return Err(Missed::UNKNOWN);
        }
        let all = self.of_weights(UsableWeights::Same);
        let largest = problem.fabric.domains_covering(highest).into_iter();
        let least = largest.filter_map(|id| all.heavier(id)).min().ok_or(Missed::NONE)?;
        Ok(self.with_heavier(least))
    }

    /// The nodes of all weights, with exactly the given number of each class but the lightest.
    pub(super) fn with_heavier(&self, heavier: Vec<u32>) -> Self {
        self.of_weights(UsableWeights::Some(heavier))
    }

    /// The nodes of all weights, restricted by `weights`.
    fn of_weights(&self, weights: UsableWeights) -> Self {
        let Self { problem, beside, .. } = *self;
        let extremes = OnceCell::from(None);
        Self { problem, beside, weights, rooms: None, takes: problem.takes(), extremes }
    }

    /// Number of nodes of each class but the lightest that a job in a domain needs, the heaviest first.
    /// `None` if the domain cannot hold the job. Where the number of nodes is open, all lighter nodes are
    /// used before a heavier one.
    pub(super) fn heavier(&self, holder: DomainId) -> Option<Vec<u32>> {
        let amount = self.problem.amount.into();
        match self.beside {
            Beside::Nodes(nodes) if self.problem.view.slots.nodes_of(holder) < nodes => None,
            Beside::Nodes(nodes) => fewest_heavy(self.takes_by_weight(holder), nodes as usize, amount),
            Beside::Nothing | Beside::Leaves(_) => fewest_heavy_of_any(self.takes_by_weight(holder), amount),
        }
    }

    /// The amounts of the nodes below a domain, by class, the heaviest first.
    fn takes_by_weight(&self, holder: DomainId) -> Vec<Vec<u32>> {
        let classes = self.problem.layout.weights;
        let mut takes: Vec<Vec<u32>> = vec![Vec::new(); classes + 1];
        self.each_below(holder, |node| {
            takes[self.problem.weight_class(node.pos).unwrap_or(classes)].push(node.takes);
        });
        takes
    }

    /// Calls `see` with every node below a domain that may be used, in fabric order.
    fn each_below(&self, holder: DomainId, mut see: impl FnMut(KnapsackItem)) {
        for leaf in self.leaves_below(holder) {
            self.each_of(leaf, |pos, takes| see(KnapsackItem { pos, takes }));
        }
    }

    /// The leaves of a domain that can take anything, in fabric order.
    pub(super) fn leaves_below(&self, id: DomainId) -> Vec<DomainId> {
        self.problem.leaves_below(id, |id| self.room(id) > 0)
    }

    /// Computes the amount that every domain takes.
    fn count(&self) -> Vec<u32> {
        bottom_up(self.problem.fabric, |id, domain, below| match (below, self.takes) {
            _ if self.problem.is_barred(id) => 0,
            (None, Some(takes)) => takes.room(domain.range()),
            (None, None) => narrow(self.nodes_of(id).iter().map(|node| u64::from(node.takes)).sum()),
            (Some(sum), _) => narrow(sum),
        })
    }

    /// The largest amount that a domain takes.
    pub(super) fn room(&self, id: DomainId) -> u32 {
        self.rooms.as_ref().map_or_else(|| self.problem.room(id), |rooms| rooms[id.index()])
    }

    /// The domains of a layer that may hold the job.
    pub(super) fn holders(&self, layer: Layer) -> Vec<DomainId> {
        let mut holders = self.large_enough(layer);
        holders.retain(|&id| self.can_hold(id));
        holders
    }

    /// The domains of a layer that have the capacity for the job.
    pub(super) fn large_enough(&self, layer: Layer) -> Vec<DomainId> {
        let Problem { fabric, view, amount, .. } = *self.problem;
        let mut large = Vec::new();
        let see = |id| {
            if self.problem.is_inside(id) {
                large.push(id);
            }
        };
        match self.rooms.as_deref().or_else(|| self.problem.rooms()) {
            Some(rooms) => fabric.each_with(layer, rooms, amount, see),
            None => match view.slots.sums_by_number() {
                Some(sums) => fabric.each_with(layer, sums, amount.into(), see),
                None => fabric.domains_of(layer).filter(|&id| self.room(id) >= amount).for_each(see),
            },
        }
        large
    }

    /// True if a domain that has the capacity for the job can hold it.
    fn can_hold(&self, id: DomainId) -> bool {
        let is_light = match &self.weights {
            UsableWeights::Same | UsableWeights::Lightest => true,
            UsableWeights::Some(least) => self.heavier(id).as_ref() == Some(least),
        };
        is_light
            && match self.beside {
                Beside::Nothing => true,
                // For a single leaf this test costs as much as solving it, and there are many leaves.
                Beside::Nodes(nodes) => {
                    (self.problem.fabric.domain(id).children().is_empty() && !self.is_mixed())
                        || self.most_on(id, nodes) >= u64::from(self.problem.amount)
                }
                Beside::Leaves(leaves) => self.most_in(id, leaves) >= u64::from(self.problem.amount),
            }
    }

    /// The largest amount that `nodes` nodes of a domain take; 0 if it has fewer nodes, or if the amount is
    /// known to be too small.
    fn most_on(&self, id: DomainId, nodes: u32) -> u64 {
        let nodes = nodes as usize;
        let is_known =
            self.peak().is_some_and(|peak| u64::from(peak) * (nodes as u64) < u64::from(self.problem.amount));
        if is_known || (self.problem.view.slots.nodes_of(id) as usize) < nodes {
            return 0;
        }
        let mut takes: Vec<u32> = Vec::new();
        self.each_below(id, |node| takes.push(node.takes));
        if takes.len() < nodes { 0 } else { sum_of_largest(takes, nodes) }
    }

    /// The largest amount that `leaves` leaves of a domain take.
    fn most_in(&self, id: DomainId, leaves: u32) -> u64 {
        let rooms = self.leaves_below(id).into_iter().map(|leaf| self.room(leaf)).collect();
        sum_of_largest(rooms, leaves as usize)
    }

    /// The largest amount that a node takes; 0 if the node may not be used.
    pub(super) fn takes(&self, pos: Pos) -> u32 {
        let heavier = self.is_lightest_alone() && self.problem.weight_class(pos).is_some();
        if heavier { 0 } else { self.problem.most_on(pos) }
    }

    /// True if the job may use this node as its only one, by the node's weight.
    fn may_be_alone(&self, pos: Pos) -> bool {
        match &self.weights {
            UsableWeights::Same | UsableWeights::Lightest => true,
            UsableWeights::Some(least) => {
                let class = self.problem.weight_class(pos);
                least.iter().enumerate().all(|(index, &count)| count == u32::from(class == Some(index)))
            }
        }
    }

    /// The nodes of a leaf that take anything, in fabric order.
    pub(super) fn nodes_of(&self, leaf: DomainId) -> Vec<KnapsackItem> {
        let mut nodes = Vec::with_capacity(self.problem.view.slots.nodes_of(leaf) as usize);
        self.each_of(leaf, |pos, takes| nodes.push(KnapsackItem { pos, takes }));
        nodes
    }

    /// Calls `see` with every node of a leaf that takes anything, in fabric order, and its amount.
    pub(super) fn each_of(&self, leaf: DomainId, mut see: impl FnMut(Pos, u32)) {
        let range = self.problem.fabric.domain(leaf).range();
        match self.takes {
            Some(takes) => takes.each(range, |index, takes| see(position(index), takes)),
            None => positions(range).for_each(|pos| match self.takes(pos) {
                0 => {}
                takes => see(pos, takes),
            }),
        }
    }

    /// The sum over the nodes of a leaf of the amount that each takes beyond `number`.
    pub(super) fn beyond(&self, leaf: DomainId, number: u32) -> u64 {
        let range = self.problem.fabric.domain(leaf).range();
        match self.takes {
            Some(takes) => takes.beyond(range, number).into(),
            None => positions(range).map(|pos| u64::from(self.takes(pos).saturating_sub(number))).sum(),
        }
    }

    /// The largest amount that one node takes; `None` where it is not known.
    pub(super) fn peak(&self) -> Option<u32> {
        self.extremes().map(|extremes| extremes.peak)
    }

    fn extremes(&self) -> Option<LeafExtremes> {
        *self.extremes.get_or_init(|| Some(extremes(self.problem, self.takes.as_ref()?)))
    }

    /// The best node that takes the whole job: the one with the fewest slots, in the leaf with the fewest
    /// slots, then by the slots of the ancestors. A score before best fit decides earlier, one after best fit
    /// last.
    pub(super) fn smallest(&self) -> Option<(DomainId, Pos)> {
        let leaves = self.large_enough(Layer::LEAF);
        let is_scored = self.problem.ask.score.any();
        if leaves.is_empty() {
            return None;
        }
        if let (Some(extremes), Some(takes), false) = (self.extremes(), self.takes, is_scored) {
            let slots = extremes.smallest?;
            let mut best: Option<(u64, DomainId, Pos)> = None;
            for leaf in leaves {
                let own = self.problem.slots(leaf);
                let is_better = best.is_none_or(|(least, than, _)| {
                    own.cmp(&least).then_with(|| self.by_waste(leaf, than)).is_lt()
                });
                if !is_better {
                    continue;
                }
                let range = self.problem.fabric.domain(leaf).range();
                if let Some(pos) = takes.first_with(range, slots).map(position) {
                    best = Some((own, leaf, pos));
                }
            }
            return best.map(|(_, leaf, pos)| (leaf, pos));
        }
        let score = |before: ScoreBefore, leaf: DomainId| self.problem.score(before, leaf);
        let mut best: Option<((i64, u64), DomainId, Pos)> = None;
        for leaf in leaves {
            let Some((slots, pos)) = self.smallest_of(leaf) else { continue };
            let head = (score(ScoreBefore::Span, leaf) + score(ScoreBefore::Fit, leaf), slots);
            let is_better = best.is_none_or(|(least, other, first)| {
                (head.cmp(&least))
                    .then_with(|| self.by_waste(leaf, other))
                    .then_with(|| score(ScoreBefore::None, leaf).cmp(&score(ScoreBefore::None, other)))
                    .then(pos.cmp(&first))
                    .is_lt()
            });
            if is_better {
                best = Some((head, leaf, pos));
            }
        }
        best.map(|(_, leaf, pos)| (leaf, pos))
    }

    /// The first of the nodes of a leaf with the fewest slots that take the whole job, and its slots.
    fn smallest_of(&self, leaf: DomainId) -> Option<(u64, Pos)> {
        positions(self.problem.fabric.domain(leaf).range())
            .filter(|&pos| self.takes(pos) >= self.problem.amount && self.may_be_alone(pos))
            .map(|pos| (self.problem.slots_of_node(pos), pos))
            .min()
    }

    /// The nodes of a leaf without those that no best choice uses.
    ///
    /// Nodes of one weight with equal amounts and slots are used in fabric order. So only the first few of
    /// them can be used: as many as hold the job, or as the job wants.
    pub(super) fn trimmed(&self, leaf: DomainId) -> Vec<KnapsackItem> {
        let mut nodes = self.nodes_of(leaf);
        if nodes.len() <= MANY {
            return nodes;
        }
        let problem = self.problem;
        let mut seen: BTreeMap<(Option<usize>, u32, u64), u32> = BTreeMap::new();
        nodes.retain(|node| {
            let kind = (problem.weight_class(node.pos), node.takes, problem.slots_of_node(node.pos));
            let count = seen.entry(kind).or_default();
            *count += 1;
            *count
                <= match self.beside {
                    Beside::Nodes(nodes) => nodes,
                    Beside::Nothing | Beside::Leaves(_) => problem.amount.div_ceil(node.takes),
                }
        });
        nodes
    }

    /// The largest nodes of the largest leaves of the largest domains below the holder, each time as few as
    /// hold the job, in fabric order.
    pub(super) fn largest_below(&self, holder: DomainId) -> Vec<KnapsackItem> {
        let mut members = vec![holder];
        while members.iter().any(|&id| !self.problem.fabric.domain(id).children().is_empty()) {
            let below = |&id: &DomainId| match self.problem.fabric.domain(id).children() {
                [] => vec![id],
                children => children.to_vec(),
            };
            members = self.fewest_of(members.iter().flat_map(below).collect(), |&id| self.room(id));
        }
        let nodes = members.iter().flat_map(|&leaf| self.nodes_of(leaf)).collect();
        let mut nodes = self.fewest_of(nodes, |node| node.takes);
        nodes.sort_unstable_by_key(|node| node.pos);
        nodes
    }

    /// The largest items, as few as hold the job.
    fn fewest_of<T>(&self, mut some: Vec<T>, size: impl Fn(&T) -> u32) -> Vec<T> {
        some.sort_by_key(|one| std::cmp::Reverse(size(one)));
        let sizes: Vec<u32> = some.iter().map(size).collect();
        some.truncate(reach(sizes, self.problem.amount.into()).unwrap_or(some.len()));
        some
    }

    /// True if the number of used members is the first step at which placements in a domain differ.
    pub(super) fn are_members_first(&self) -> bool {
        self.is_counted() && self.problem.ask.prefer.is_empty()
    }

    /// True if the capacity of a domain alone decides whether it can hold the job.
    pub(super) fn is_counted(&self) -> bool {
        self.beside == Beside::Nothing && !self.is_mixed()
    }

    /// Compares two domains of one layer by the score, where it decides before best fit. Then their slots and
    /// those of their ancestors decide, from the bottom up.
    pub(super) fn by_waste(&self, one: DomainId, other: DomainId) -> Ordering {
        let problem = self.problem;
        if !problem.is_scored(ScoreBefore::Fit) {
            return problem.by_waste(one, other);
        }
        let score = |id: DomainId| problem.score(ScoreBefore::Fit, id);
        score(one).cmp(&score(other)).then_with(|| problem.by_waste(one, other))
    }

    /// Number of slots of several nodes together.
    pub(super) fn slots_of(&self, nodes: &[KnapsackItem]) -> u64 {
        nodes.iter().map(|node| self.problem.slots_of_node(node.pos)).sum()
    }
}

/// Computes the extremes over all nodes in domains that may be used.
fn extremes(problem: &Problem<'_>, takes: &Takes<'_>) -> LeafExtremes {
    let fabric = problem.fabric;
    if problem.by_nodes && problem.amount > 1 {
        return LeafExtremes { peak: 1, smallest: None };
    }
    let mut extremes = LeafExtremes { peak: 0, smallest: None };
    let mut see = |range| {
        let (peak, smallest) = takes.extremes(range, problem.amount);
        extremes.peak = extremes.peak.max(peak);
        extremes.smallest = extremes.smallest.into_iter().chain(smallest).min();
    };
    if problem.barred.is_some() {
        let may_use = |&leaf: &DomainId| !problem.is_barred(leaf) && problem.is_inside(leaf);
        let leaves = fabric.domains_of(Layer::LEAF).filter(may_use);
        leaves.for_each(|leaf| see(fabric.domain(leaf).range()));
    } else if let Some(holder) = problem.holder {
        see(fabric.domain(holder).range());
    } else {
        see(0..fabric.wired());
    }
    extremes.smallest = extremes.smallest.filter(|_| extremes.peak >= problem.amount);
    extremes
}
