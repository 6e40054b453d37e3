//! What a choice of nodes in one domain is, and how good next to those in others of its layer.

use crate::model::fabric::{Domain, DomainId, Layer};
use crate::model::topology::ScoreBefore;
use crate::sched::place::problem::{Item, Problem, Rank, rank};

use super::tree_knapsack::{KnapsackItem, below};

/// The case needs the general solver.
pub(super) struct NotPlain;

/// The domain that holds the job, and how much of it each leaf takes.
pub(super) type HolderShares = (DomainId, Vec<(DomainId, u32)>);

/// The layers below a holder of one layer in the order in which their spans count.
pub(super) fn order(problem: &Problem<'_>, holder: Layer) -> Vec<Layer> {
    let preferred = problem.layout.prefer.iter().copied();
    let below = (Layer::LEAF.0..holder.0).rev().map(Layer);
    let mut layers: Vec<Layer> = Vec::new();
    for layer in preferred.chain(below).filter(|layer| (Layer::LEAF..holder).contains(layer)) {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    layers
}

/// How many domains of each preferred layer above `node` a placement touches.
pub(super) fn preferred_spans(problem: &Problem<'_>, (holder, shares): &HolderShares) -> Vec<u32> {
    let fabric = problem.fabric;
    let span = |layer: Layer| {
        if layer >= fabric.domain(*holder).layer() {
            return 1;
        }
        let mut domains: Vec<DomainId> =
            shares.iter().map(|&(leaf, _)| fabric.covering(leaf, layer)).collect();
        domains.dedup();
        u32::try_from(domains.len()).unwrap_or(u32::MAX)
    };
    problem.layout.prefer.iter().copied().filter(|&layer| layer > Layer::NODE).map(span).collect()
}

/// The first steps of a comparison in a holder of which it is known how many domains of the first few layers in order are used:
/// as many of the steps as that tells.
pub(super) fn head(problem: &Problem<'_>, holder: DomainId, order: &[Layer], counts: &[u32]) -> Vec<i64> {
    let preferred = order.iter().filter(|layer| problem.layout.prefer.contains(layer)).count();
    let score = |before: ScoreBefore| problem.is_scored(before).then(|| problem.score(before, holder));
    let mut steps: Vec<i64> = Vec::new();
    let spans = counts.iter().map(|&count| i64::from(count));
    steps.extend(spans.clone().take(preferred));
    if counts.len() < preferred {
        return steps;
    }
    steps.extend(score(ScoreBefore::Span));
    steps.extend(spans.skip(preferred));
    if counts.len() < order.len() {
        return steps;
    }
    steps.extend(score(ScoreBefore::Fit));
    let above = told_apart(problem, problem.fabric.domain(holder).layer());
    let waste = above.map(|layer| number(problem.slots(problem.fabric.covering(holder, layer))));
    steps.extend(waste);
    steps
}

/// The layers from one up of which two domains may cover holders of it.
pub(super) fn told_apart(problem: &Problem<'_>, from: Layer) -> impl Iterator<Item = Layer> + use<> {
    let top = problem.fabric.top();
    let end = if problem.fabric.roots().len() == 1 { top.0 } else { top.0 + 1 };
    (from.0..end).map(Layer)
}

/// What a choice comes to: smaller is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Comparison {
    /// Domains used, by layer in the order in which they count; what the holder has, and those above it; slots of the domains
    /// used, by layer from the top down, and of nodes that are shared; each with the score before it that counts there; and
    /// where the holder begins.
    steps: Vec<i64>,
    /// Domains used alone.
    spans: Vec<u32>,
}

impl Comparison {
    /// What a choice of whole nodes in some leaves, which are in fabric order, comes to.
    pub(super) fn new(
        problem: &Problem<'_>,
        holder: DomainId,
        order: &[Layer],
        shares: &[(DomainId, u32)],
    ) -> Self {
        let of_leaf = |&(leaf, nodes): &(DomainId, u32)| problem.slots_of_fullest(leaf)[nodes as usize];
        let slots = problem.shares_nodes().then(|| shares.iter().map(of_leaf).sum());
        Self::of(problem, holder, order, shares.iter().map(|(leaf, _)| *leaf), (0, slots))
    }

    /// What a choice of nodes that take unequally much, in fabric order, comes to; `order` has `node` as well.
    pub(super) fn of_nodes(
        problem: &Problem<'_>,
        holder: DomainId,
        order: &[Layer],
        nodes: &[KnapsackItem],
    ) -> Self {
        let slots = nodes.iter().map(|node| problem.slots_of_node(node.pos)).sum();
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let leaves = nodes.iter().filter_map(|node| problem.fabric.leaf_of(node.pos));
        Self::of(problem, holder, order, leaves, (count, Some(slots)))
    }

    /// What using some leaves comes to; `nodes` are how many are used, and their slots, as far as they count.
    fn of(
        problem: &Problem<'_>,
        holder: DomainId,
        order: &[Layer],
        leaves: impl Iterator<Item = DomainId>,
        nodes: (u32, Option<u64>),
    ) -> Self {
        let fabric = problem.fabric;
        let mut used: Vec<(u32, u64)> = vec![(0, 0); fabric.domain(holder).layer().index()];
        used[Layer::NODE.index()].0 = nodes.0;
        each_domain(problem, holder, leaves, |id, domain| {
            for (count, slots) in &mut used[domain.layer().index()..=domain.cover().index()] {
                (*count, *slots) = (*count + 1, *slots + problem.slots(id));
            }
        });
        let spans: Vec<u32> = order.iter().map(|layer| used[layer.index()].0).collect();
        let mut steps = head(problem, holder, order, &spans);
        steps.extend(used.iter().skip(1).rev().map(|(_, slots)| number(*slots)));
        steps.extend(nodes.1.map(number));
        if problem.is_scored(ScoreBefore::None) {
            steps.push(problem.score(ScoreBefore::None, holder));
        }
        steps.push(i64::try_from(fabric.domain(holder).range().start).unwrap_or(i64::MAX));
        Self { steps, spans }
    }

    /// Whether more domains of some layer are used than may be.
    pub(super) fn is_over(&self, problem: &Problem<'_>, order: &[Layer]) -> bool {
        let spans = || order.iter().zip(&self.spans);
        problem
            .span_caps
            .iter()
            .any(|(capped, cap)| spans().any(|(layer, span)| layer == capped && span > cap))
    }

    /// Whether it is better than anything that begins with these steps.
    pub(super) fn is_before(&self, head: &[i64]) -> bool {
        self.steps[..head.len()] < *head
    }
}

/// How good it is to use some leaves of a domain, which are in fabric order.
pub(super) fn ranked(
    problem: &Problem<'_>,
    holder: DomainId,
    leaves: impl IntoIterator<Item = DomainId>,
) -> Rank {
    let mut item = Item::<Vec<i64>>::nothing(problem.layout.width());
    charge(problem, holder, leaves.into_iter(), &mut item.cost);
    rank(problem, holder, &item)
}

/// Charges for the domains below a holder that some leaves of it, which are in fabric order, lie in.
pub(super) fn charge(
    problem: &Problem<'_>,
    holder: DomainId,
    leaves: impl Iterator<Item = DomainId>,
    cost: &mut [i64],
) {
    each_domain(problem, holder, leaves, |id, domain| {
        problem.charge(cost, domain.layer(), domain.cover(), problem.slots(id));
    });
}

/// Shows each of these domains once.
fn each_domain(
    problem: &Problem<'_>,
    holder: DomainId,
    leaves: impl Iterator<Item = DomainId>,
    mut see: impl FnMut(DomainId, &Domain),
) {
    let fabric = problem.fabric;
    let mut before = None;
    for leaf in leaves {
        let is_new = |id: &DomainId| before.is_none_or(|before| !fabric.within(before, *id));
        for id in below(problem, leaf, holder).take_while(is_new) {
            see(id, fabric.domain(id));
        }
        before = Some(leaf);
    }
}

/// Domains of one score after the other, the best first.
pub(super) fn scored(problem: &Problem<'_>, before: ScoreBefore, domains: &[DomainId]) -> Vec<Vec<DomainId>> {
    let mut scored: Vec<(i64, DomainId)> =
        domains.iter().map(|&id| (problem.score(before, id), id)).collect();
    scored.sort_by_key(|(score, _)| *score);
    let equal = scored.chunk_by(|(one, _), (other, _)| one == other);
    equal.map(|some| some.iter().map(|(_, id)| *id).collect()).collect()
}

/// The domains of some that have the best score, where one counts before that step.
pub(super) fn best_scored(
    problem: &Problem<'_>,
    before: ScoreBefore,
    domains: Vec<DomainId>,
) -> Vec<DomainId> {
    if domains.len() < 2 || !problem.is_scored(before) {
        return domains;
    }
    scored(problem, before, &domains).swap_remove(0)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
