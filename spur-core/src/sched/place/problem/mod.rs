//! One question for the solver: an ask for a fixed number of nodes, with everything that depends on the view worked
//! out per domain.
//!
//! Owns what every way of solving it shares: what domains take (`capacity`) and what they have (`rounding`), ways to use a
//! part of the fabric (`front`) and what they cost (`cost`), how few nodes they need (`heavy`), the order among
//! candidates (`rank`, `score`), why the others lost (`losers`), and whether given shares are allowed at all (`judge`).

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

/// Where the fields of a cost stand, from the one that decides first.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Nodes of each weight class but the lightest, heaviest first.
    pub(super) weights: usize,
    /// Spans at preferred layers.
    pub(super) prefer: Vec<Layer>,
    /// Layers of the fabric, `node` included: spans from the top down, then slots left (or squares) likewise.
    pub(super) layers: usize,
}

impl Layout {
    pub(super) fn width(&self) -> usize {
        self.head() + self.layers
    }

    /// Fields up to the spans: what comes before best fit.
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

/// The fewest and the most nodes that some domains may give.
pub(super) type Limits = BTreeMap<DomainId, (u32, u32)>;

/// An ask for a fixed number of nodes, with what depends on the view worked out per domain.
#[derive(Clone)]
pub(super) struct Problem<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) view: &'a View<'a>,
    pub(super) ask: &'a Ask,
    /// What is placed: tasks, or nodes where `by_nodes` is set.
    pub(super) amount: u32,
    /// The exact number of nodes, where tasks are placed and the number matters.
    pub(super) nodes: Option<u32>,
    /// Every node takes exactly this many slots, and one unit of the amount.
    pub(super) by_nodes: bool,
    /// The unit of the amount in a domain that covers up to the layer: the least common multiple of the multiples at
    /// and below it.
    pub(super) units: SmallVec<[u32; 8]>,
    /// The lowest layer one domain of which must hold the job; None: any root will do.
    pub(super) within: Option<Layer>,
    pub(super) span_caps: Vec<(Layer, u32)>,
    pub(super) needs: [u32; MAX_COUNTS],
    pub(super) layout: Layout,
    leaf_cap: u32,
    /// The same where nodes bring unequally much.
    loads: Loads<'a>,
    /// The most nodes of one leaf, where tasks are placed.
    pub(super) leaf_nodes: Option<u32>,
    /// Where tasks are placed: used domains of the layer hold a multiple of so many nodes.
    node_unit: Option<(Layer, u32)>,
    /// The fewest and the most nodes that some domains may give.
    pub(super) limits: Limits,
    /// Slots of each domain after rounding.
    rounded: Rounded,
    /// Domains that may not be used; None: all may.
    pub(super) barred: Option<FixedBitSet>,
    /// The most each domain can take, after rounding and caps; None: its open nodes or slots, as counted.
    capacity: Option<Vec<u32>>,
    /// Domains that hold required positions.
    forced: Vec<DomainId>,
    /// Node weights that count, heaviest first.
    weights: Vec<u32>,
    /// The weight of the lightest open nodes, where weights count.
    pub(super) lightest: Option<u32>,
    /// Positions that may be used, where only some may.
    pub(super) only: Option<FixedBitSet>,
    /// Positions that must be used.
    pub(super) required: Vec<Pos>,
    /// Domains that must be used.
    pub(super) forced_domains: Vec<DomainId>,
    /// Whether the latency of links tells domains apart that the order of layers does not.
    pub(super) lowest_latency: bool,
    /// The domain that has to hold the job; None: any will do.
    pub(super) holder: Option<DomainId>,
    /// What may still be done.
    pub(super) meter: Meter,
}

/// Steps that count for making a problem, besides those for its domains and positions.
const SETUP: usize = 64;

impl<'a> Problem<'a> {
    /// The question for `nodes` nodes (None: as many as the tasks need), or None where the numbers alone say no.
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
        // No node holds several of one each.
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

    /// The same with what the rule of the topology adds.
    pub(super) fn framed(
        view: &'a View<'a>,
        ask: &'a Ask,
        nodes: Option<u32>,
        meter: &Meter,
    ) -> Option<Self> {
        Self::new(view, ask, nodes, Frame::of(view, ask, nodes), meter)
    }

    /// The highest layer of which one domain may hold the job.
    pub(super) fn highest(&self) -> Layer {
        self.within.unwrap_or(self.fabric.top())
    }

    /// The layers of domains that may hold the job, the lowest first.
    pub(super) fn layers(&self) -> impl DoubleEndedIterator<Item = Layer> + use<> {
        (Layer::LEAF.0..=self.highest().0).map(Layer)
    }

    /// Finds the domains that have to be used.
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

    /// Whether so many nodes are a multiple of what a domain that stands for the layers holds.
    pub(super) fn suits_node_unit(&self, layers: std::ops::RangeInclusive<Layer>, nodes: u32) -> bool {
        self.node_unit.is_none_or(|(layer, unit)| !layers.contains(&layer) || nodes.is_multiple_of(unit))
    }

    /// The most that a domain may take, whatever it could.
    pub(super) fn limit(&self, id: DomainId) -> u32 {
        if self.by_nodes { self.node_limits(id).1 } else { u32::MAX }
    }

    /// The fewest and the most nodes that a domain may give.
    pub(super) fn node_limits(&self, id: DomainId) -> (u32, u32) {
        self.limits.get(&id).copied().unwrap_or((0, u32::MAX))
    }

    /// Limits what some domains may give.
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

    /// Whether what is needed of each node is the same everywhere, so that domains can be counted. Which nodes of a leaf are
    /// taken is for [`Problem::first_allowed`] to say.
    pub(super) fn nodes_are_alike(&self) -> bool {
        self.weights.is_empty() && self.nodes_of_a_weight_are_alike()
    }

    /// Whether what is needed of each node of one weight is the same everywhere.
    pub(super) fn nodes_of_a_weight_are_alike(&self) -> bool {
        self.by_nodes
            && self.view.slots.are_whole()
            && self.ask.counts.is_empty()
            && self.required.is_empty()
            && self.only.is_none()
            && (self.weights.is_empty() || !self.adds_up_loads())
    }

    /// Whether nodes are counted that are shared: each gives as many slots and may have more.
    pub(super) fn shares_nodes(&self) -> bool {
        self.by_nodes && !self.view.slots.are_whole()
    }

    /// Whether nodes are shared that differ in nothing but their slots.
    pub(super) fn shared_nodes_are_alike(&self) -> bool {
        self.shares_nodes()
            && self.weights.is_empty()
            && self.ask.counts.is_empty()
            && self.required.is_empty()
            && self.only.is_none()
            && !self.adds_up_loads()
    }

    /// The class of a node that is heavier than the lightest there is, counted from the heaviest.
    pub(super) fn weight_class(&self, pos: Pos) -> Option<usize> {
        let weight = self.view.weights?.at(pos);
        self.weights.iter().position(|&class| class == weight)
    }

    /// Whether nothing was added for a part of the job: no part of the fabric is singled out, no domain has a share of its own.
    fn is_unconfined(&self) -> bool {
        self.node_unit.is_none()
            && self.limits.is_empty()
            && self.forced_domains.is_empty()
            && self.only.is_none()
    }

    /// Whether nothing rounds or limits what domains give, and nothing has to be used, but for counted features and limits on
    /// the domains or nodes that are used.
    pub(super) fn is_free_but_for_counts(&self) -> bool {
        self.units.iter().all(|&unit| unit == 1)
            && self.leaf_cap == u32::MAX
            && self.loads.is_none()
            && self.required.is_empty()
            && self.is_unconfined()
    }

    /// Whether all that is asked adds up over nodes, next to one number at most: nothing has to be used, nothing is
    /// rounded, and no part has a share of its own.
    pub(super) fn adds_up(&self) -> bool {
        self.ask.mode == Mode::Consolidated
            && self.node_multiple() == 1
            && self.leaf_nodes.is_none()
            && self.ask.counts.is_empty()
            && self.is_free_but_for_counts()
    }

    /// Whether the job is spread, and how many of each kind there are says how: a unit is the same in every layer, and what a
    /// leaf may give does not depend on which of its nodes give it.
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

    /// Whether a domain consists of leaves.
    pub(super) fn lies_over_leaves(&self, id: DomainId) -> bool {
        let leaves = self.fabric.domain(id).children();
        !leaves.is_empty() && leaves.iter().all(|&leaf| self.fabric.domain(leaf).layer() == Layer::LEAF)
    }

    /// The leaves of a domain in fabric order, those apart that lie in a domain which may not be entered.
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

    /// Whether some position of a domain may be used.
    pub(super) fn may_use_any(&self, id: DomainId) -> bool {
        let range = self.fabric.domain(id).range();
        self.only.as_ref().is_none_or(|only| only.contains_any_in_range(range))
    }

    pub(super) fn may_use(&self, pos: Pos) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(pos.index()))
    }

    /// The same question for exactly these nodes.
    pub(super) fn only_these(&self, nodes: impl Iterator<Item = Pos>) -> Self {
        let required: Vec<Pos> = nodes.collect();
        let mut only = FixedBitSet::with_capacity(self.fabric.len());
        required.iter().for_each(|pos| only.insert(pos.index()));
        let mut problem = Self { only: Some(only), required, ..self.clone() };
        problem.find_forced();
        problem
    }

    /// The same question, with as many steps for it as there were at first.
    pub(super) fn anew(&self) -> Self {
        Self { meter: self.meter.anew(), ..self.clone() }
    }

    /// The same question with a domain that has to hold the job; only short cuts look at it.
    pub(super) fn inside(&self, holder: DomainId) -> Self {
        Self { holder: Some(holder), ..self.clone() }
    }

    /// Whether a domain lies in the one that has to hold the job.
    pub(super) fn is_inside(&self, id: DomainId) -> bool {
        self.holder.is_none_or(|holder| self.fabric.within(id, holder))
    }

    /// The same question of another ask, which differs in nothing that is worked out beforehand.
    pub(super) fn asking<'b>(self, ask: &'b Ask) -> Problem<'b>
    where
        'a: 'b,
    {
        Problem { ask, ..self }
    }

    /// Whether nothing was added to what is asked but the frame of the topology.
    pub(super) fn is_as_asked(&self) -> bool {
        self.is_unconfined()
            && self.required == self.ask.required
            && !self.ask.contiguous
            && self.ask.adjacent.is_none()
            && self.ask.segment.is_none()
    }

    /// The question of another ask for as many nodes, where nothing but limits differs.
    pub(super) fn looser<'b>(&self, ask: &'b Ask) -> Option<Problem<'b>>
    where
        'a: 'b,
    {
        let nodes = if self.by_nodes { Some(self.amount) } else { self.nodes };
        let frame = Frame { within: self.within, ..Frame::default() };
        Problem::new(self.view, ask, nodes, frame, &self.meter)
    }

    /// The same question for these leaves, each of which has to be used.
    pub(super) fn all_of_these(&self, leaves: &[DomainId]) -> Self {
        let mut only = FixedBitSet::with_capacity(self.fabric.len());
        leaves.iter().for_each(|&leaf| only.insert_range(self.fabric.domain(leaf).range()));
        let mut problem = Self { only: Some(only), forced_domains: leaves.to_vec(), ..self.clone() };
        problem.find_forced();
        problem
    }

    /// Slots that the job takes in all.
    pub(super) fn wanted_slots(&self) -> u64 {
        self.amount.into()
    }

    /// Whether spans can be settled before everything else by capacity alone, among nodes of one weight: nothing cuts or rounds
    /// what is held.
    pub(super) fn is_free_within_a_weight(&self) -> bool {
        self.ask.mode != Mode::Distributed
            && !self.is_hard()
            && self.span_caps.is_empty()
            && self.is_free_but_for_counts()
    }

    /// Whether what domains take adds up over their leaves, which are rounded and capped each by itself.
    pub(super) fn takes_add_up(&self) -> bool {
        let units = &self.units[Layer::LEAF.index()..];
        !self.is_hard()
            && units.iter().all(|unit| *unit == units[0])
            && self.span_caps.is_empty()
            && self.required.is_empty()
            && self.is_unconfined()
    }

    /// Whether fronts can grow with the product of two numbers.
    pub(super) fn is_hard(&self) -> bool {
        self.nodes.is_some()
            || self.leaf_nodes.is_some()
            || self.adds_up_loads() && !self.nodes_are_alike()
            || !self.ask.counts.is_empty()
    }

    /// The least amount that may be placed in a used domain that covers the layer is its unit; so is every step.
    pub(super) fn unit(&self, layer: Layer) -> u32 {
        self.units[layer.index()]
    }

    /// The way to use one node, if it can be used at all; `bounds` are the least and the most of the amount on it.
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

    /// Adds what using one node costs besides its domains: whole nodes are alike but for their weight.
    pub(super) fn charge_node(&self, fields: &mut [i64], pos: Pos) {
        if let Some(class) = self.weight_class(pos) {
            fields[class] += 1;
        }
        if !self.view.slots.are_whole() {
            self.charge(fields, Layer::NODE, Layer::NODE, self.slots_of_node(pos));
        }
    }

    /// Adds what using one domain costs: its spans, and the slots it has.
    pub(super) fn charge(&self, fields: &mut [i64], from: Layer, to: Layer, slots: u64) {
        for layer in (from.0..=to.0).map(Layer) {
            self.charge_for(fields, layer, (1, slots));
        }
    }

    /// Adds what using so many domains costs at a layer for which they count, which have so many slots together.
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
    /// A placement from its shares; `common` is where it is if it has none.
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

/// The unit of the amount for every layer; None where it overflows, which no amount is a multiple of.
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

/// The largest number from `low`, for which something holds, to below `high`, for which it does not.
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

/// Leaves that cannot be taken whole, and domains whose links are too slow.
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

/// For every place in a list, and for its end, what all numbers before it come to.
pub(super) fn added_up<T: Copy + Default + std::ops::AddAssign>(numbers: impl Iterator<Item = T>) -> Vec<T> {
    let sums = numbers.scan(T::default(), |sum, number| {
        *sum += number;
        Some(*sum)
    });
    std::iter::once(T::default()).chain(sums).collect()
}
