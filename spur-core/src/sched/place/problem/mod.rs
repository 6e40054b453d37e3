//! One question for the solvers: an ask for a fixed number of nodes, with everything that depends on the
//! view computed per domain.
//!
//! Owns what all solvers share: the amounts that domains take (`capacity`), their slots after rounding
//! (`rounding`), ways to use a part of the fabric (`front`) and their costs (`cost`), the fewest heavy
//! nodes (`heavy`), the order among candidates (`rank`, `score`), the reasons why others lost (`losers`),
//! and the check of given shares (`judge`).

mod capacity;
mod cost;
mod front;
mod heavy;
mod judge;
mod load;
mod losers;
mod meter;
mod rank;
mod rounding;
mod score;

use std::collections::BTreeMap;
use std::ops::{Add, Div, Rem, Sub};

use fixedbitset::FixedBitSet;
use smallvec::{SmallVec, smallvec};

use crate::model::fabric::{Domain, DomainId, Fabric, Layer, Pos};
use crate::sched::place::answer::Placement;
use crate::sched::place::ask::{Ask, Frame, Mode};
use crate::sched::place::slots::View;

pub(super) use crate::sched::place::slots::{position, positions};
pub(super) use cost::{Cost, NARROW, Narrow};
pub(super) use front::{Item, Key, prune};
pub(super) use heavy::{fewest_heavy, fewest_heavy_of_any, reach, sum_of_largest};
pub(super) use losers::{Contender, first, losers};
pub(super) use meter::Meter;
pub(super) use rank::{Criterion, Holder, Means, Rank, Ranked, difference, rank, rank_node};
pub(super) use rounding::keep_least;

use load::Loads;
use rank::differ_in_latency;
use rounding::Rounded;

use front::{MAX_COUNTS, MAX_SPAN_CAPS};

/// The positions of the fields of a cost, the one that decides first at the front.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Number of weight classes without the lightest; one field each for the number of nodes, the heaviest
    /// first.
    pub(super) weights: usize,
    /// The preferred layers; one field each for the span.
    pub(super) prefer: Vec<Layer>,
    /// Number of layers of the fabric, `node` included. Each has a field for its span and one for slots
    /// left (or squares of shares), from the top down.
    pub(super) layers: usize,
}

impl Layout {
    pub(super) fn width(&self) -> usize {
        self.head() + self.layers
    }

    /// Number of fields up to the spans, which come before best fit.
    pub(super) fn head(&self) -> usize {
        self.first_span() + self.layers
    }

    pub(super) fn first_span(&self) -> usize {
        self.weights + self.prefer.len()
    }

    pub(super) fn span(&self, layer: usize) -> usize {
        self.first_span() + self.layers - 1 - layer
    }

    pub(super) fn tail(&self, layer: usize) -> usize {
        self.span(layer) + self.layers
    }
}

/// The fewest and the most nodes that each of some domains may give.
pub(super) type Limits = BTreeMap<DomainId, (u32, u32)>;

/// An ask for a fixed number of nodes, with everything that depends on the view computed per domain.
#[derive(Clone)]
pub(super) struct Problem<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) view: &'a View<'a>,
    pub(super) ask: &'a Ask,
    /// The amount to place: tasks, or nodes where `by_nodes` is set.
    pub(super) amount: u32,
    /// The exact number of nodes, where tasks are placed and the number of nodes is given.
    pub(super) nodes: Option<u32>,
    /// True if every used node counts as one unit of the amount.
    pub(super) by_nodes: bool,
    /// The unit of the amount at each layer: the least common multiple of the multiples at the layer and
    /// below.
    pub(super) units: SmallVec<[u32; 8]>,
    /// The lowest layer at which one domain must hold the job; `None` if any root may hold it.
    pub(super) within: Option<Layer>,
    pub(super) span_caps: Vec<(Layer, u32)>,
    pub(super) needs: [u32; MAX_COUNTS],
    pub(super) layout: Layout,
    leaf_cap: u32,
    /// The cap of a leaf where nodes count unequally, by the GPUs that each brings.
    loads: Loads<'a>,
    /// The largest number of nodes in one leaf, where tasks are placed.
    pub(super) leaf_nodes: Option<u32>,
    /// The multiple of nodes that each used domain of the layer gives, where tasks are placed.
    node_unit: Option<(Layer, u32)>,
    /// The fewest and the most nodes that some domains may give.
    pub(super) limits: Limits,
    /// The slots of each domain after rounding.
    rounded: Rounded,
    /// The domains that may not be used; `None` if all may be used.
    pub(super) barred: Option<FixedBitSet>,
    /// The largest amount that each domain can take, after rounding and caps; `None` if that is its number
    /// of open nodes or slots.
    capacity: Option<Vec<u32>>,
    /// The domains that hold required positions, and all domains above these; sorted.
    forced: Vec<DomainId>,
    /// The node weights that occur, without the lightest; the heaviest first.
    weights: Vec<u32>,
    /// The weight of the lightest open nodes, where weights count.
    pub(super) lightest: Option<u32>,
    /// The positions that may be used; `None` if all may be used.
    pub(super) only: Option<FixedBitSet>,
    /// The positions that must be used.
    pub(super) required: Vec<Pos>,
    /// The domains that must be used.
    pub(super) forced_domains: Vec<DomainId>,
    /// True if latency is asked for and some layer has domains with unequal latencies.
    pub(super) lowest_latency: bool,
    /// The domain that has to hold the job; `None` if any may.
    pub(super) holder: Option<DomainId>,
    /// The steps that are left for this question.
    pub(super) meter: Meter,
}

/// Steps that are charged for a new problem, besides those for its domains and positions.
const SETUP: usize = 64;

impl<'a> Problem<'a> {
    /// The question for `nodes` nodes (`None`: as many as the tasks need). `None` if the numbers alone rule
    /// a placement out.
    pub(super) fn new(
        view: &'a View<'a>,
        ask: &'a Ask,
        nodes: Option<u32>,
        frame: Frame,
        meter: &Meter,
    ) -> Option<Self> {
        let fabric = view.fabric;
        meter.charge(SETUP + fabric.domains().size_hint().0 / 8 + fabric.len() / 64);
        let by_nodes = ask.tasks.is_none() || ask.tasks == nodes;
        let amount = ask.tasks.or(nodes)?;
        let layers = fabric.top().index() + 1;
        let units = units(ask, frame.unit.filter(|_| by_nodes), layers)?;
        if amount == 0 || units.last().is_some_and(|unit| !amount.is_multiple_of(*unit)) {
            return None;
        }
        // A node holds one unit, so it cannot hold a multiple of several.
        if by_nodes && units[0] > 1 {
            return None;
        }
        let mut span_caps: Vec<(Layer, u32)> = Vec::new();
        for (layer, cap) in ask.max_spans.iter().copied().chain(frame.touch) {
            match span_caps.iter_mut().find(|(known, _)| *known == layer) {
                Some((_, known)) => *known = cap.min(*known),
                None => span_caps.push((layer, cap)),
            }
        }
        span_caps.truncate(MAX_SPAN_CAPS);
        let slots_cap = ask.max_slots_per_leaf.unwrap_or(u32::MAX);
        let leaf_nodes = [ask.max_nodes_per_leaf, frame.leaf_nodes].into_iter().flatten().min();
        let nodes_cap = leaf_nodes.filter(|_| by_nodes).unwrap_or(u32::MAX);
        let mut weights = view.weights.map_or_else(Vec::new, |weights| weights.among(view.slots.open()));
        let lightest = weights.pop();
        let mut needs = [0; MAX_COUNTS];
        needs.iter_mut().zip(&ask.counts).for_each(|(need, (_, count))| *need = *count);
        let mut problem = Self {
            fabric,
            view,
            ask,
            amount,
            nodes: if by_nodes { None } else { nodes },
            by_nodes,
            units,
            within: frame.within,
            span_caps,
            needs,
            layout: Layout { weights: weights.len(), prefer: ask.prefer.clone(), layers },
            leaf_cap: slots_cap.min(nodes_cap),
            loads: Loads::of(view, ask, by_nodes),
            leaf_nodes: leaf_nodes.filter(|_| !by_nodes),
            node_unit: frame.unit.filter(|_| !by_nodes),
            limits: Limits::new(),
            rounded: Rounded::Not,
            barred: barred(view, ask),
            capacity: None,
            forced: Vec::new(),
            weights,
            lightest,
            only: None,
            required: ask.required.clone(),
            forced_domains: Vec::new(),
            lowest_latency: ask.lowest_latency && differ_in_latency(fabric),
            holder: None,
            meter: meter.clone(),
        };
        problem.find_forced();
        problem.measure();
        Some(problem)
    }

    /// The question within the frame that the rule of the topology sets. `None` if the numbers alone rule a
    /// placement out.
    pub(super) fn framed(
        view: &'a View<'a>,
        ask: &'a Ask,
        nodes: Option<u32>,
        meter: &Meter,
    ) -> Option<Self> {
        Self::new(view, ask, nodes, Frame::of(view, ask, nodes), meter)
    }

    /// The highest layer at which one domain may hold the job.
    pub(super) fn highest(&self) -> Layer {
        self.within.unwrap_or(self.fabric.top())
    }

    /// The layers of domains that may hold the job, the lowest first.
    pub(super) fn layers(&self) -> impl DoubleEndedIterator<Item = Layer> + use<> {
        (Layer::LEAF.0..=self.highest().0).map(Layer)
    }

    /// Computes `forced`, the domains that have to be used.
    fn find_forced(&mut self) {
        let above = |start: DomainId| {
            let fabric = self.fabric;
            std::iter::successors(Some(start), move |&id| fabric.domain(id).parent())
        };
        let mut forced: Vec<DomainId> =
            self.required.iter().filter_map(|&pos| self.fabric.leaf_of(pos)).flat_map(above).collect();
        forced.extend(self.forced_domains.iter().copied().flat_map(above));
        forced.sort_unstable();
        forced.dedup();
        self.forced = forced;
    }

    /// True if `nodes` is a multiple of the number that a domain which counts for these layers must give.
    pub(super) fn suits_node_unit(&self, layers: std::ops::RangeInclusive<Layer>, nodes: u32) -> bool {
        self.node_unit.is_none_or(|(layer, unit)| !layers.contains(&layer) || nodes.is_multiple_of(unit))
    }

    /// The largest amount that the limits let a domain take, whatever it has free.
    pub(super) fn limit(&self, id: DomainId) -> u32 {
        if self.by_nodes { self.node_limits(id).1 } else { u32::MAX }
    }

    /// The fewest and the most nodes that a domain may give.
    pub(super) fn node_limits(&self, id: DomainId) -> (u32, u32) {
        self.limits.get(&id).copied().unwrap_or((0, u32::MAX))
    }

    /// Sets the fewest and the most nodes of some domains; domains with a least above 0 must be used.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.forced_domains = limits.iter().filter(|(_, (least, _))| *least > 0).map(|(id, _)| *id).collect();
        self.limits = limits;
        self.find_forced();
        self.measure();
    }

    pub(super) fn is_barred(&self, id: DomainId) -> bool {
        self.barred.as_ref().is_some_and(|barred| barred.contains(id.index()))
    }

    pub(super) fn is_forced(&self, id: DomainId) -> bool {
        self.forced.binary_search(&id).is_ok()
    }

    /// True if all open nodes are alike for the job, so that counts per domain are enough.
    /// [`Problem::first_allowed`] picks the nodes of a leaf.
    pub(super) fn nodes_are_alike(&self) -> bool {
        self.weights.is_empty() && self.nodes_of_a_weight_are_alike()
    }

    /// True if all open nodes of one weight are alike for the job.
    pub(super) fn nodes_of_a_weight_are_alike(&self) -> bool {
        self.by_nodes
            && self.view.slots.are_whole()
            && self.ask.counts.is_empty()
            && self.required.is_empty()
            && self.only.is_none()
            && (self.weights.is_empty() || !self.adds_up_loads())
    }

    /// True if nodes are placed that the job shares: each gives one unit of the amount and may have more
    /// slots.
    pub(super) fn shares_nodes(&self) -> bool {
        self.by_nodes && !self.view.slots.are_whole()
    }

    /// True if nodes are shared that differ in nothing but their slots.
    pub(super) fn shared_nodes_are_alike(&self) -> bool {
        self.shares_nodes()
            && self.weights.is_empty()
            && self.ask.counts.is_empty()
            && self.required.is_empty()
            && self.only.is_none()
            && !self.adds_up_loads()
    }

    /// The index of the node's weight class, counted from the heaviest; `None` for the lightest class.
    pub(super) fn weight_class(&self, pos: Pos) -> Option<usize> {
        let weight = self.view.weights?.at(pos);
        self.weights.iter().position(|&class| class == weight)
    }

    /// True if the problem has no restrictions for a part of the job: no allowed positions, no forced
    /// domains, no limits of domains.
    fn is_unconfined(&self) -> bool {
        self.node_unit.is_none()
            && self.limits.is_empty()
            && self.forced_domains.is_empty()
            && self.only.is_none()
    }

    /// True if nothing rounds or caps what domains give, and nothing has to be used. Counted features, and
    /// limits on the number of used domains or nodes, may exist.
    pub(super) fn is_free_but_for_counts(&self) -> bool {
        self.units.iter().all(|&unit| unit == 1)
            && self.leaf_cap == u32::MAX
            && self.loads.is_none()
            && self.required.is_empty()
            && self.is_unconfined()
    }

    /// True if all costs and constraints add up over nodes, besides one exact number of nodes at most:
    /// nothing is forced, rounded or confined.
    pub(super) fn adds_up(&self) -> bool {
        self.ask.mode == Mode::Consolidated
            && self.node_multiple() == 1
            && self.leaf_nodes.is_none()
            && self.ask.counts.is_empty()
            && self.is_free_but_for_counts()
    }

    /// True if the job is spread and counts alone decide how: the unit is the same at every layer, and the
    /// amount that a leaf may give does not depend on the choice of its nodes.
    pub(super) fn spreads_by_counts(&self) -> bool {
        let (node, above) = self.units.split_at(Layer::LEAF.index());
        let are_uncut = self.leaf_cap == u32::MAX && self.loads.is_none();
        let are_counted = match self.by_nodes {
            true => self.weights.is_empty() || are_uncut,
            false => self.weights.is_empty() && self.nodes.is_none() && self.leaf_nodes.is_none(),
        };
        let are_alike = self.weights.is_empty() && self.required.is_empty();
        let is_right = are_alike && (self.by_nodes || node == &above[..1]);
        are_counted
            && (is_right || self.by_nodes && above[0] == 1)
            && self.ask.mode == Mode::Distributed
            && self.within != Some(Layer::NODE)
            && above.iter().all(|&unit| unit == above[0])
            && self.span_caps.iter().all(|&(layer, cap)| layer > Layer::NODE && cap > 0)
            && self.ask.prefer.is_empty()
            && self.ask.counts.is_empty()
            && !self.ask.score.any()
            && self.is_unconfined()
            && !self.adds_up_loads()
    }

    /// True if all children of a domain are leaves.
    pub(super) fn lies_over_leaves(&self, id: DomainId) -> bool {
        let leaves = self.fabric.domain(id).children();
        !leaves.is_empty() && leaves.iter().all(|&leaf| self.fabric.domain(leaf).layer() == Layer::LEAF)
    }

    /// The leaves of a domain in fabric order, without those in a domain for which `may_enter` is false.
    pub(super) fn leaves_below(&self, id: DomainId, may_enter: impl Fn(DomainId) -> bool) -> Vec<DomainId> {
        let (mut leaves, mut ahead) = (Vec::new(), vec![id]);
        while let Some(id) = ahead.pop() {
            match self.fabric.domain(id).children() {
                _ if !may_enter(id) => {}
                [] => leaves.push(id),
                children => ahead.extend(children.iter().rev()),
            }
        }
        leaves
    }

    /// The open nodes of a domain, in fabric order.
    pub(super) fn open_nodes(&self, id: DomainId) -> impl Iterator<Item = Pos> + Clone + use<'a> {
        self.view.slots.open_in(self.fabric.domain(id).range())
    }

    /// True if some position of a domain may be used.
    pub(super) fn may_use_any(&self, id: DomainId) -> bool {
        let range = self.fabric.domain(id).range();
        self.only.as_ref().is_none_or(|only| only.contains_any_in_range(range))
    }

    pub(super) fn may_use(&self, pos: Pos) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(pos.index()))
    }

    /// Returns the question again, to be answered with exactly these nodes.
    pub(super) fn only_these(&self, nodes: impl Iterator<Item = Pos>) -> Self {
        let required: Vec<Pos> = nodes.collect();
        let mut only = FixedBitSet::with_capacity(self.fabric.len());
        required.iter().for_each(|pos| only.insert(pos.index()));
        let mut problem = Self { only: Some(only), required, ..self.clone() };
        problem.find_forced();
        problem
    }

    /// Returns the question again, with the initial number of steps.
    pub(super) fn anew(&self) -> Self {
        Self { meter: self.meter.anew(), ..self.clone() }
    }

    /// Returns the question again, with a domain that has to hold the job; only shortcuts use it.
    pub(super) fn inside(&self, holder: DomainId) -> Self {
        Self { holder: Some(holder), ..self.clone() }
    }

    /// True if a domain lies in the one that has to hold the job, or any may hold it.
    pub(super) fn is_inside(&self, id: DomainId) -> bool {
        self.holder.is_none_or(|holder| self.fabric.within(id, holder))
    }

    /// Returns the question with another ask, which may differ only in what is not computed in advance.
    pub(super) fn asking<'b>(self, ask: &'b Ask) -> Problem<'b>
    where
        'a: 'b,
    {
        Problem { ask, ..self }
    }

    /// True if nothing but the frame of the topology was added to the ask, and the ask has no outline: no
    /// `contiguous`, no `adjacent`, no segment.
    pub(super) fn is_as_asked(&self) -> bool {
        self.is_unconfined()
            && self.required == self.ask.required
            && !self.ask.contiguous
            && self.ask.adjacent.is_none()
            && self.ask.segment.is_none()
    }

    /// The question of another ask for the same number of nodes, within the same layer and without other
    /// frames.
    pub(super) fn looser<'b>(&self, ask: &'b Ask) -> Option<Problem<'b>>
    where
        'a: 'b,
    {
        let nodes = if self.by_nodes { Some(self.amount) } else { self.nodes };
        let frame = Frame { within: self.within, ..Frame::default() };
        Problem::new(self.view, ask, nodes, frame, &self.meter)
    }

    /// Returns the question again, confined to these leaves, each of which has to be used.
    pub(super) fn all_of_these(&self, leaves: &[DomainId]) -> Self {
        let mut only = FixedBitSet::with_capacity(self.fabric.len());
        leaves.iter().for_each(|&leaf| only.insert_range(self.fabric.domain(leaf).range()));
        let mut problem = Self { only: Some(only), forced_domains: leaves.to_vec(), ..self.clone() };
        problem.find_forced();
        problem
    }

    /// Number of slots that the job takes.
    pub(super) fn wanted_slots(&self) -> u64 {
        self.amount.into()
    }

    /// True if capacities alone settle the spans among nodes of one weight, because nothing caps or rounds
    /// what domains hold.
    pub(super) fn is_free_within_a_weight(&self) -> bool {
        self.ask.mode != Mode::Distributed
            && !self.is_hard()
            && self.span_caps.is_empty()
            && self.is_free_but_for_counts()
    }

    /// True if the capacity of a domain is the sum over its leaves, each rounded and capped by itself.
    pub(super) fn takes_add_up(&self) -> bool {
        let units = &self.units[Layer::LEAF.index()..];
        !self.is_hard()
            && units.iter().all(|unit| *unit == units[0])
            && self.span_caps.is_empty()
            && self.required.is_empty()
            && self.is_unconfined()
    }

    /// True if fronts can grow with the product of two numbers.
    pub(super) fn is_hard(&self) -> bool {
        self.nodes.is_some()
            || self.leaf_nodes.is_some()
            || self.adds_up_loads() && !self.nodes_are_alike()
            || !self.ask.counts.is_empty()
    }

    /// The unit of a used domain that covers the layer: the smallest amount that it can take, and the step
    /// between amounts.
    pub(super) fn unit(&self, layer: Layer) -> u32 {
        self.units[layer.index()]
    }

    /// The way to use one node, or `None` if the node cannot be used; `bounds` are the least and the most
    /// of the amount on it.
    pub(super) fn node<C: Cost>(&self, pos: Pos, bounds: (u32, u32)) -> Option<Item<C>> {
        let slots = self.view.slots.at(pos);
        if !self.may_use(pos) {
            return None;
        }
        let unit = self.units[0];
        let (lo, hi) = match self.by_nodes {
            true if slots > 0 && unit == 1 => (1, 1),
            true => return None,
            false => {
                let most = slots.min(self.ask.max_tasks_per_node.unwrap_or(u32::MAX)).min(bounds.1);
                (unit.max(bounds.0).div_ceil(unit) * unit, most - most % unit)
            }
        };
        if lo > hi || lo > bounds.1 || hi < bounds.0 {
            return None;
        }
        let mut item = Item { lo, hi, key: Key::default(), cost: C::zero(self.layout.width()) };
        if self.nodes.is_some() || self.leaf_nodes.is_some() {
            item.key.nodes = 1;
        }
        item.key.load = self.load_of(pos);
        for (count, (set, need)) in item.key.counts.iter_mut().zip(&self.ask.counts) {
            *count = u32::from(*need > 0 && set.contains(pos.index()));
        }
        self.charge_node(item.cost.fields_mut(), pos);
        Some(item)
    }

    /// Adds the cost of one node besides its domains: its weight, and its slots where nodes are shared.
    pub(super) fn charge_node(&self, fields: &mut [i64], pos: Pos) {
        if let Some(class) = self.weight_class(pos) {
            fields[class] += 1;
        }
        if !self.view.slots.are_whole() {
            self.charge(fields, Layer::NODE, Layer::NODE, self.slots_of_node(pos));
        }
    }

    /// Adds the cost of one domain at each of the layers that it counts for: one to the span, and its
    /// slots.
    pub(super) fn charge(&self, fields: &mut [i64], from: Layer, to: Layer, slots: u64) {
        for layer in (from.0..=to.0).map(Layer) {
            self.charge_for(fields, layer, (1, slots));
        }
    }

    /// Adds the cost of several domains at one layer, given their number and their slots together.
    pub(super) fn charge_for(&self, fields: &mut [i64], layer: Layer, (domains, slots): (usize, u64)) {
        let spread = self.ask.mode == Mode::Distributed;
        let span = i64::try_from(domains).unwrap_or(i64::MAX);
        fields[self.layout.span(layer.index())] += if spread { -span } else { span };
        if !spread {
            fields[self.layout.tail(layer.index())] += i64::try_from(slots).unwrap_or(i64::MAX);
        }
        for (index, _) in self.layout.prefer.iter().enumerate().filter(|(_, preferred)| **preferred == layer)
        {
            fields[self.layout.weights + index] += span;
        }
    }
}

impl Placement {
    /// A placement from its shares; `common` is the holder if the shares have no common domain.
    pub(super) fn new(
        problem: &Problem<'_>,
        shares: Vec<(Pos, u32)>,
        common: Option<DomainId>,
        exact: bool,
    ) -> Self {
        let positions: SmallVec<[Pos; 32]> = shares.iter().map(|&(pos, _)| pos).collect();
        let spans = problem.fabric.spans(&positions);
        let common = problem.fabric.deepest_common(&positions).or(common);
        let waste = common.map_or(0, |id| problem.slots(id).saturating_sub(problem.wanted_slots()));
        let score = problem.site_score(common);
        Self { shares, spans, common, waste, score, exact }
    }
}

/// The unit of the amount at every layer; `None` on overflow, because then no amount is a multiple.
fn units(ask: &Ask, unit: Option<(Layer, u32)>, layers: usize) -> Option<SmallVec<[u32; 8]>> {
    let mut units: SmallVec<[u32; 8]> = smallvec![1; layers];
    for (layer, by) in ask.multiples.iter().copied().chain(unit) {
        for unit in &mut units[layer.index()..] {
            *unit = (*unit / gcd(*unit, by)).checked_mul(by)?;
        }
    }
    Some(units)
}

/// The greatest common divisor; of two zeros, 0.
pub(crate) fn gcd<T: Copy + Default + PartialEq + Rem<Output = T>>(a: T, b: T) -> T {
    if b == T::default() { a } else { gcd(b, a % b) }
}

/// Bisection: the largest number from `low`, for which the condition holds, to below `high`, for which it
/// does not.
pub(crate) fn halve<T>(mut low: T, mut high: T, mut holds: impl FnMut(T) -> bool) -> T
where
    T: Copy + PartialOrd + From<u8> + Add<Output = T> + Sub<Output = T> + Div<Output = T>,
{
    while high - low > T::from(1) {
        let middle = low + (high - low) / T::from(2);
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// The leaves that the job wants whole but that are occupied, and the domains whose links are too slow.
fn barred(view: &View<'_>, ask: &Ask) -> Option<FixedBitSet> {
    let fabric = view.fabric;
    let mut barred = FixedBitSet::with_capacity(fabric.domains().count());
    if ask.whole_leaves
        && let Some(occupied) = view.occupied
    {
        let is_taken = |id: &DomainId| fabric.domain(*id).range().any(|index| occupied.contains(index));
        barred.extend(fabric.domains_of(Layer::LEAF).filter(is_taken).map(DomainId::index));
    }
    if let Some(need) = ask.min_speed {
        let slow = |domain: &Domain| domain.link().speed.is_none_or(|speed| speed < need);
        barred.extend(fabric.domains().filter(|(_, domain)| slow(domain)).map(|(id, _)| id.index()));
    }
    (!barred.is_clear()).then_some(barred)
}

/// Prefix sums: for every index, and for the end, the sum of all numbers before it.
pub(super) fn added_up<T: Copy + Default + std::ops::AddAssign>(numbers: impl Iterator<Item = T>) -> Vec<T> {
    let sums = numbers.scan(T::default(), |sum, number| {
        *sum += number;
        Some(*sum)
    });
    std::iter::once(T::default()).chain(sums).collect()
}
