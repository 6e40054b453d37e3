//! The price of using domains and nodes, packed into one or two numbers, so that adding and comparing is
//! cheap.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

/// The price of a choice; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Price {
    /// The steps before best fit: heavier nodes, spans of preferred layers, spans from the top down.
    head: u64,
    /// The slots of the used domains, from the top down.
    tail: u128,
}

/// A price in the form in which it is added and compared.
pub(crate) trait Total: Copy + Ord {
    /// The price of the impossible; adding to it keeps it.
    const NEVER: Self;
    const NOTHING: Self;

    fn plus(self, other: Self) -> Self;

    /// Converts a price whose tail has at most `tail` bits.
    fn pack(price: Price, tail: u32) -> Self;
}

impl Total for u64 {
    const NEVER: Self = u64::MAX;
    const NOTHING: Self = 0;

    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn pack(price: Price, tail: u32) -> Self {
        let low = u64::try_from(price.tail).unwrap_or(u64::MAX);
        price.head.checked_shl(tail).unwrap_or(0) | low
    }
}

impl Total for Price {
    const NEVER: Self = Price { head: u64::MAX, tail: u128::MAX };
    const NOTHING: Self = Price { head: 0, tail: 0 };

    fn plus(self, other: Self) -> Self {
        Self { head: self.head.saturating_add(other.head), tail: self.tail.saturating_add(other.tail) }
    }

    fn pack(price: Price, _: u32) -> Self {
        price
    }
}

/// The layout of prices: the bits for a number of nodes or domains and for a number of slots, and the layers
/// charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriceScale<'a> {
    prefer: &'a [Layer],
    /// The layers that are charged: from `lowest` to below `holder`.
    lowest: u8,
    holder: u8,
    weights: usize,
    span: u32,
    slots: u32,
    are_nodes_counted: bool,
}

impl<'a> PriceScale<'a> {
    /// Prices leaves below domains of layer `holders` that have at most `most_slots` slots; `None` if numbers
    /// do not fit.
    pub(crate) fn of_leaves(problem: &'a Problem<'_>, holders: Layer, most_slots: u64) -> Option<Self> {
        Self::new(problem, Layer::LEAF..holders, most_slots, (0, false))
    }

    /// Prices nodes below such domains. `is_number_given` is true if every choice uses equally many nodes,
    /// `weights` if nodes heavier than the lightest may be used. `None` if numbers do not fit.
    pub(crate) fn of_nodes(
        problem: &'a Problem<'_>,
        holders: Layer,
        most_slots: u64,
        is_number_given: bool,
        weights: bool,
    ) -> Option<Self> {
        let weights = if weights { problem.layout.weights } else { 0 };
        let are_nodes_counted = !is_number_given && !problem.by_nodes;
        Self::new(problem, Layer::NODE..holders, most_slots, (weights, are_nodes_counted))
    }

    fn new(
        problem: &'a Problem<'_>,
        layers: std::ops::Range<Layer>,
        most_slots: u64,
        (weights, are_nodes_counted): (usize, bool),
    ) -> Option<Self> {
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        let scale = Self {
            prefer: problem.layout.prefer.as_slice(),
            lowest: layers.start.0,
            holder: layers.end.0,
            weights,
            span: bits(problem.amount.into()),
            slots: bits(most_slots),
            are_nodes_counted,
        };
        let (tail, all) = scale.bits();
        // One bit of each part stays free, so that no real price equals the impossible one.
        (all - tail < u64::BITS && tail < u128::BITS).then_some(scale)
    }

    /// Number of bits of the tail of a price, and of a whole price.
    pub(crate) fn bits(&self) -> (u32, u32) {
        let layers = self.holder - self.lowest;
        let tail = u32::from(layers) * self.slots;
        let heads = self.weights + self.prefer.len() + usize::from(layers);
        (tail, tail.saturating_add(self.span.saturating_mul(u32::try_from(heads).unwrap_or(u32::MAX))))
    }

    /// The price of using one domain below the holder, or one node, by itself.
    fn price(&self, from: Layer, to: Layer, slots: u64, weight: Option<usize>) -> Price {
        let counts = |layer: Layer| (from..=to).contains(&layer) && layer.0 < self.holder;
        let mut price = Price::NOTHING;
        for class in 0..self.weights {
            price.head = price.head << self.span | u64::from(weight == Some(class));
        }
        for &layer in self.prefer {
            price.head = price.head << self.span | u64::from(counts(layer));
        }
        for layer in (self.lowest..self.holder).rev().map(Layer) {
            let is_counted = layer > Layer::NODE || self.are_nodes_counted;
            price.head = price.head << self.span | u64::from(counts(layer) && is_counted);
            price.tail = price.tail << self.slots | if counts(layer) { u128::from(slots) } else { 0 };
        }
        price
    }

    /// The price of using a node besides its domains; nothing if the items are leaves.
    fn of_node(&self, problem: &Problem<'_>, pos: Pos) -> Price {
        if Layer(self.lowest) > Layer::NODE {
            return Price::NOTHING;
        }
        let slots = if problem.view.slots.are_whole() { 0 } else { problem.slots_of_node(pos) };
        let weight = if self.weights > 0 { problem.weight_class(pos) } else { None };
        self.price(Layer::NODE, Layer::NODE, slots, weight)
    }

    /// Suffix sums along a path: the price of the domains from each one on; the last is nothing.
    fn of_path(&self, problem: &Problem<'_>, path: &[DomainId]) -> Vec<Price> {
        let mut costs = vec![Price::NOTHING; path.len() + 1];
        for (at, &id) in path.iter().enumerate().rev() {
            let domain = problem.fabric.domain(id);
            let own = self.price(domain.layer(), domain.cover(), problem.slots(id), None);
            costs[at] = costs[at + 1].plus(own);
        }
        costs
    }

    /// Calls `see` for nodes of a domain in fabric order, or for one node of each leaf. The first argument is
    /// the number of domains, from below the holder to the node's leaf, that are shared with the node before.
    /// The second is the price of using the node by the number of these domains already in use, from none to
    /// all.
    pub(crate) fn along(
        &self,
        problem: &Problem<'_>,
        holder: DomainId,
        nodes: impl Iterator<Item = Pos>,
        mut see: impl FnMut(usize, &mut dyn ExactSizeIterator<Item = Price>),
    ) {
        // The current leaf, the domains from below the holder down to it, and the price of the domains from
        // each one on.
        let (mut leaf, mut path, mut costs) = (None, Vec::new(), Vec::new());
        for pos in nodes {
            let own = problem.fabric.leaf_of(pos);
            let mut shared = path.len();
            if own != leaf {
                let before = std::mem::take(&mut path);
                path.extend(own.into_iter().flat_map(|own| below(problem, own, holder)));
                path.reverse();
                shared = before.iter().zip(&path).take_while(|(one, other)| one == other).count();
                costs = self.of_path(problem, &path);
                leaf = own;
            }
            let own = self.of_node(problem, pos);
            see(shared, &mut costs.iter().map(|&cost| own.plus(cost)));
        }
    }
}

/// The domains from a leaf up to the one below the holder.
pub(crate) fn below<'p>(
    problem: &'p Problem<'_>,
    leaf: DomainId,
    holder: DomainId,
) -> impl Iterator<Item = DomainId> + use<'p> {
    std::iter::successors(Some(leaf), |&id| problem.fabric.domain(id).parent())
        .take_while(move |&id| id != holder)
}
