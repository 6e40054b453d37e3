//! Candidates and the order among them: every step of the objective is a number, and smaller is better.

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::answer::{LostWhy, Placement};
use crate::sched::place::ask::Mode;

use super::Problem;
use super::cost::Cost;
use super::front::Item;

/// The node or domain that holds a whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// The job is on one node.
    Node(Pos),
    /// The job is on members of one domain: nodes of a leaf, or lower domains.
    Domain(DomainId),
}

/// The steps of the objective for one candidate, compared from left to right: `head`, then `even`, then
/// `tail`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Weights, preferences, the layer of the domain, and spans.
    pub(crate) head: Vec<Criterion>,
    /// The least share (negated) and the largest share of a balanced placement, from the top layer down.
    pub(crate) even: Vec<Criterion>,
    /// Waste, slots left in used domains, and the settable score.
    pub(crate) tail: Vec<Criterion>,
}

/// A placement with its rank in the order of preference.
pub(crate) type Ranked = (Rank, Placement);

/// One number of a rank, and its meaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Criterion {
    pub(crate) value: i64,
    pub(crate) means: Means,
}

impl PartialEq for Criterion {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Criterion {}

impl PartialOrd for Criterion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Criterion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value)
    }
}

/// The quantity that a number of a rank measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    Weight,
    Span(Layer),
    Preferred,
    Latency,
    Height,
    Score,
    Even,
    Waste(Layer),
}

impl Criterion {
    fn new(value: i64, means: Means) -> Self {
        Self { value, means }
    }
}

/// The rank of a job in a domain, at the cost of the members used.
pub(crate) fn rank<C: Cost>(problem: &Problem<'_>, holder: DomainId, inside: &Item<C>) -> Rank {
    let domain = problem.fabric.domain(holder);
    let mut fields = inside.cost.fields().to_vec();
    let top = problem.fabric.top();
    // The holder counts as one domain in its own layer and in all layers above. The slots left there are
    // the waste, which ranks by itself.
    problem.charge(&mut fields, domain.layer(), top, 0);
    let waste: Vec<(Layer, u64)> = layers(domain.layer(), top)
        .map(|layer| (layer, problem.slots(problem.fabric.covering(holder, layer))))
        .collect();
    if problem.ask.mode == Mode::Distributed {
        let amount = i64::from(problem.amount);
        for layer in domain.layer().index()..problem.layout.layers {
            fields[problem.layout.tail(layer)] += amount * amount;
        }
    }
    assemble(problem, Holder::Domain(holder), &fields, &waste)
}

/// The rank of a job on one node.
pub(crate) fn rank_node<C: Cost>(problem: &Problem<'_>, pos: Pos, item: &Item<C>) -> Rank {
    let leaf = problem.fabric.leaf_of(pos).expect("a candidate is in a leaf");
    let mut fields = item.cost.fields().to_vec();
    let own = problem.slots_of_node(pos);
    if !problem.view.slots.are_whole() && problem.ask.mode != Mode::Distributed {
        // With one node as the holder, its slots are the waste and must not count a second time.
        fields[problem.layout.tail(0)] = 0;
    }
    problem.charge(&mut fields, Layer::LEAF, problem.fabric.top(), 0);
    let above = layers(Layer::LEAF, problem.fabric.top())
        .map(|layer| (layer, problem.slots(problem.fabric.covering(leaf, layer))));
    let waste: Vec<(Layer, u64)> = std::iter::once((Layer::NODE, own)).chain(above).collect();
    assemble(problem, Holder::Node(pos), &fields, &waste)
}

fn layers(from: Layer, to: Layer) -> impl Iterator<Item = Layer> {
    (from.0..=to.0).map(Layer)
}

fn assemble(problem: &Problem<'_>, holder: Holder, fields: &[i64], waste: &[(Layer, u64)]) -> Rank {
    let layout = &problem.layout;
    let (leaf_or_domain, own_layer) = match holder {
        Holder::Node(pos) => (problem.fabric.leaf_of(pos).expect("a candidate is in a leaf"), Layer::NODE),
        Holder::Domain(id) => (id, problem.fabric.domain(id).layer()),
    };
    let distributed = problem.ask.mode == Mode::Distributed;
    let mut head: Vec<Criterion> =
        fields[..layout.weights].iter().map(|&count| Criterion::new(count, Means::Weight)).collect();
    let preferred = layout.prefer.iter().zip(&fields[layout.weights..]);
    head.extend(preferred.map(|(&layer, &span)| Criterion::new(span, Means::Span(layer))));
    if let Some(wanted) = problem.ask.prefer_domain {
        let inside = problem.fabric.within(leaf_or_domain, wanted);
        head.push(Criterion::new(i64::from(!inside), Means::Preferred));
    }
    let score = |before: ScoreBefore| -> Option<Criterion> {
        problem.is_scored(before).then(|| Criterion::new(problem.score(before, leaf_or_domain), Means::Score))
    };
    if !distributed {
        if problem.ask.lowest_latency {
            head.push(Criterion::new(latency(problem, holder), Means::Latency));
        }
        head.push(Criterion::new(i64::from(own_layer.0), Means::Height));
        head.extend(score(ScoreBefore::Span));
    }
    let downwards = |to: usize| (0..to).rev().map(|layer| Layer(u8::try_from(layer).unwrap_or(u8::MAX)));
    head.extend(downwards(layout.layers).map(|layer| {
        let span = fields[layout.span(layer.index())];
        Criterion::new(span, Means::Span(layer))
    }));
    let mut tail = Vec::new();
    let left = |layer: Layer| Criterion::new(fields[layout.tail(layer.index())], Means::Waste(layer));
    if distributed {
        tail.extend(downwards(layout.layers).map(|layer| Criterion { means: Means::Even, ..left(layer) }));
        let wanted = problem.ask.score.before;
        tail.extend(score(wanted));
    } else {
        tail.extend(score(ScoreBefore::Fit));
        tail.extend(waste.iter().map(|&(layer, slots)| Criterion::new(number(slots), Means::Waste(layer))));
        tail.extend(downwards(own_layer.index()).map(left));
        tail.extend(score(ScoreBefore::None));
    }
    Rank { head, even: Vec::new(), tail }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The latency in nanoseconds between two nodes of the job, from the lowest latency of the holder's link
/// and the links above. A path inside a domain is no slower than one through the domains above it. Without
/// any latency the holder ranks last; a job on one node has latency 0.
fn latency(problem: &Problem<'_>, holder: Holder) -> i64 {
    let is_single = problem.nodes == Some(1) || problem.by_nodes && problem.amount == 1;
    match holder {
        Holder::Domain(id) if !is_single => lowest(problem.fabric, id).map_or(i64::MAX, number),
        Holder::Node(_) | Holder::Domain(_) => 0,
    }
}

/// The lowest latency among the links of a domain and of the domains above it.
fn lowest(fabric: &Fabric, id: DomainId) -> Option<u64> {
    let above = std::iter::successors(Some(id), |&id| fabric.domain(id).parent());
    above.filter_map(|id| fabric.domain(id).link().latency).min()
}

/// True if two domains of one layer have unequal latencies. If none do, a lower domain never has a higher
/// latency, so the order of layers is enough.
pub(super) fn differ_in_latency(fabric: &Fabric) -> bool {
    let layers = (Layer::LEAF.0..=fabric.top().0).map(Layer);
    layers.into_iter().any(|layer| {
        let mut latencies = fabric.domains_of(layer).map(|id| lowest(fabric, id));
        let first = latencies.next();
        latencies.any(|latency| Some(latency) != first)
    })
}

/// The first step at which a rank differs from the winner's, as a reason.
pub(crate) fn difference(rank: &Rank, winner: &Rank) -> LostWhy {
    let steps = |rank: &Rank| -> Vec<Criterion> {
        rank.head.iter().chain(&rank.even).chain(&rank.tail).copied().collect()
    };
    let pair = steps(rank).into_iter().zip(steps(winner)).find(|(a, b)| a != b);
    let Some((had, best)) = pair else { return LostWhy::Later };
    let (had_count, best_count) = (had.value.unsigned_abs(), best.value.unsigned_abs());
    match had.means {
        Means::Weight => LostWhy::Weight,
        Means::Span(layer) => LostWhy::Span {
            layer,
            had: u32::try_from(had_count).unwrap_or(u32::MAX),
            best: u32::try_from(best_count).unwrap_or(u32::MAX),
        },
        Means::Preferred => LostWhy::NotPreferred,
        Means::Latency => LostWhy::Latency,
        Means::Height => LostWhy::Higher,
        Means::Score => LostWhy::Score { had: had.value.saturating_neg(), best: best.value.saturating_neg() },
        Means::Even => LostWhy::Uneven,
        Means::Waste(layer) => LostWhy::Waste { layer, had: had_count, best: best_count },
    }
}
