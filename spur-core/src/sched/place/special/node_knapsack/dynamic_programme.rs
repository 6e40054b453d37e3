//! The best nodes of one domain, by one walk over them.
//!
//! What the general solver finds with fronts of every domain, found for the cases in which a node is used or not and
//! everything that matters adds up: spans, nodes, slots of what is used. The walk goes from the last node to the
//! first and keeps the least price for everything that may still be wanted then and for every part of the way down
//! from the holder that may be in use already. Of equally good choices it takes the one whose nodes come first.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;
use crate::sched::place::special::knapsack_step::{KnapsackStep, Total};
use crate::sched::place::special::outcome::NoChoice;

/// Numbers that one walk may work out, beyond which it is not tried.
const MOST: usize = 1 << 25;
/// Numbers that are worked out in the time of one step of a search, if they are short and if they are long.
const AT_ONCE: (usize, usize) = (1 << 7, 1 << 4);

/// A node that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) pos: Pos,
    /// The most of the amount that it can take.
    pub(super) takes: u32,
}

/// What comes out at a number of its own, next to the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing: the fewest nodes of each way to lie are best.
    Nothing,
    /// Exactly so many nodes are used.
    Nodes(u32),
    /// At most so many leaves are used.
    Leaves(u32),
}

impl Beside {
    fn number(self) -> u32 {
        match self {
            Beside::Nothing => 0,
            Beside::Nodes(number) | Beside::Leaves(number) => number,
        }
    }
}

/// What a choice costs: smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Price {
    /// What comes before best fit: heavier nodes, spans of preferred layers, spans from the top down.
    head: u64,
    /// Slots of what is used, from the top down.
    tail: u128,
}

impl Price {
    const NOTHING: Price = Price { head: 0, tail: 0 };

    fn plus(self, other: Price) -> Price {
        Price { head: self.head + other.head, tail: self.tail + other.tail }
    }
}

/// A price as it is added up and compared on a walk.
trait Packed: Total {
    /// From a price whose tail has no more than so many bits.
    fn pack(price: Price, tail: u32) -> Self;
}

impl Packed for u64 {
    fn pack(price: Price, tail: u32) -> Self {
        let low = u64::try_from(price.tail).unwrap_or(u64::MAX);
        price.head.checked_shl(tail).unwrap_or(0) | low
    }
}

impl Total for Price {
    const NEVER: Self = Price { head: u64::MAX, tail: u128::MAX };
    const NOTHING: Self = Price::NOTHING;

    fn plus(self, other: Self) -> Self {
        Self { head: self.head.saturating_add(other.head), tail: self.tail.saturating_add(other.tail) }
    }
}

impl Packed for Price {
    fn pack(price: Price, _: u32) -> Self {
        price
    }
}

/// How prices are packed: bits of a number of nodes or domains and of a number of slots, and what is charged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale<'a> {
    prefer: &'a [Layer],
    /// Layers below the holder, `node` included.
    layers: u8,
    weights: usize,
    span: u32,
    slots: u32,
    are_nodes_counted: bool,
}

impl<'a> Scale<'a> {
    /// For domains of a layer with no more than so many slots; None where the numbers are too large.
    ///
    /// `weights` says whether nodes heavier than the lightest may be used.
    pub(super) fn new(
        problem: &'a Problem<'_>,
        holders: Layer,
        most_slots: u64,
        beside: Beside,
        weights: bool,
    ) -> Option<Self> {
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        let scale = Self {
            prefer: problem.layout.prefer.as_slice(),
            layers: holders.0,
            weights: if weights { problem.layout.weights } else { 0 },
            span: bits(problem.amount.into()),
            slots: bits(most_slots),
            are_nodes_counted: !matches!(beside, Beside::Nodes(_)) && !problem.by_nodes,
        };
        let counts = u32::try_from(scale.weights + scale.prefer.len()).ok()? + u32::from(scale.layers);
        // A bit of each is left so that nothing is taken for what cannot be done.
        let fits = counts * scale.span < u64::BITS && u32::from(scale.layers) * scale.slots < u128::BITS;
        fits.then_some(scale)
    }

    /// Bits of the tail of a price, and of all of it.
    pub(super) fn bits(&self) -> (u32, u32) {
        let tail = u32::from(self.layers) * self.slots;
        let heads = self.weights + self.prefer.len() + usize::from(self.layers);
        (tail, tail.saturating_add(self.span.saturating_mul(u32::try_from(heads).unwrap_or(u32::MAX))))
    }

    /// What using a domain below the holder, or a node, costs by itself.
    fn price(&self, from: Layer, to: Layer, slots: u64, weight: Option<usize>) -> Price {
        let counts = |layer: Layer| (from..=to).contains(&layer) && layer.0 < self.layers;
        let mut price = Price::NOTHING;
        for class in 0..self.weights {
            price.head = price.head << self.span | u64::from(weight == Some(class));
        }
        for &layer in self.prefer {
            price.head = price.head << self.span | u64::from(counts(layer));
        }
        for layer in (0..self.layers).rev().map(Layer) {
            let is_counted = layer > Layer::NODE || self.are_nodes_counted;
            price.head = price.head << self.span | u64::from(counts(layer) && is_counted);
            price.tail = price.tail << self.slots | if counts(layer) { u128::from(slots) } else { 0 };
        }
        price
    }

    /// What using a node costs besides its domains.
    fn node(&self, problem: &Problem<'_>, pos: Pos) -> Price {
        let slots = if problem.view.slots.are_whole() { 0 } else { problem.slots_of_node(pos) };
        let weight = if self.weights > 0 { problem.weight_class(pos) } else { None };
        self.price(Layer::NODE, Layer::NODE, slots, weight)
    }

    /// What the domains of a way down cost from each one on; the last is nothing.
    fn costs(&self, problem: &Problem<'_>, path: &[DomainId]) -> Vec<Price> {
        let mut costs = vec![Price::NOTHING; path.len() + 1];
        for (at, &id) in path.iter().enumerate().rev() {
            let domain = problem.fabric.domain(id);
            let own = self.price(domain.layer(), domain.cover(), problem.slots(id), None);
            costs[at] = costs[at + 1].plus(own);
        }
        costs
    }
}

/// A node on the walk.
struct Stop {
    node: Candidate,
    /// What it takes, in units of what all of them take multiples of.
    takes: usize,
    /// How many of the domains from the holder down to its leaf it shares with the node before it.
    shared: usize,
    /// Domains from the holder down to its leaf.
    depth: usize,
    /// Where its prices begin: by how many of these domains are in use.
    prices: usize,
    /// Most and least of the amount that can still be wanted here.
    wanted: (usize, usize),
    /// Where the answers begin.
    answers: usize,
}

/// The nodes that may be used in one domain, in fabric order.
struct NodeProgramme {
    stops: Vec<Stop>,
    prices: Vec<Price>,
    /// Parts of the way down that can be told apart.
    depth: usize,
    /// Numbers of what comes out beside the amount.
    numbers: usize,
    /// Amounts that can be wanted.
    width: usize,
    /// How many answers there are in all.
    answers: usize,
}

impl NodeProgramme {
    fn new(
        problem: &Problem<'_>,
        holder: DomainId,
        nodes: &[Candidate],
        (amount, unit): (usize, u32),
        scale: &Scale<'_>,
        beside: Beside,
    ) -> Self {
        let width = amount + 1;
        let numbers = beside.number() as usize + 1;
        let stops = Vec::with_capacity(nodes.len());
        let mut walk = Self { stops, prices: Vec::new(), depth: 1, numbers, width, answers: 0 };
        along(problem, holder, nodes, scale, |node, shared, prices| {
            let (depth, first) = (prices.len() - 1, walk.prices.len());
            walk.prices.extend(prices);
            let takes = (node.takes / unit) as usize;
            let (wanted, answers) = ((0, 0), 0);
            walk.stops.push(Stop { node, takes, shared, depth, prices: first, wanted, answers });
            walk.depth = walk.depth.max(shared + 1);
        });
        walk.bound(amount);
        walk
    }

    /// Finds what can still be wanted at each stop: no less than what those before cannot take, no more than what it
    /// and those after it can.
    fn bound(&mut self, amount: usize) {
        let mut before = 0;
        for stop in &mut self.stops {
            stop.wanted.0 = amount.saturating_sub(before);
            before += stop.takes;
        }
        let mut after = 0;
        for stop in self.stops.iter_mut().rev() {
            after += stop.takes;
            stop.wanted.1 = amount.min(after);
        }
        for stop in &mut self.stops {
            stop.answers = self.answers;
            let amounts = (stop.wanted.1 + 1).saturating_sub(stop.wanted.0);
            self.answers = self.answers.saturating_add((stop.shared + 1) * self.numbers * amounts);
        }
    }

    /// What is shared between the node at an index and the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stops.get(index + 1).map_or(0, |stop| stop.shared)
    }

    fn row(&self, used: usize, number: usize) -> usize {
        (used * self.numbers + number) * self.width
    }
}

/// Shows some nodes of a domain, which are in fabric order: how many of the domains from the holder down to its leaf each
/// shares with the node before it, and what using it costs by how many of these are in use, from none to all.
fn along(
    problem: &Problem<'_>,
    holder: DomainId,
    nodes: &[Candidate],
    scale: &Scale<'_>,
    mut see: impl FnMut(Candidate, usize, &mut dyn ExactSizeIterator<Item = Price>),
) {
    // Of the way down to the leaf: its domains, and what using those from each one on costs.
    let (mut leaf, mut path, mut costs) = (None, Vec::new(), Vec::new());
    for &node in nodes {
        let own = problem.fabric.leaf_of(node.pos);
        let mut shared = path.len();
        if own != leaf {
            let before = std::mem::take(&mut path);
            path.extend(own.into_iter().flat_map(|own| below(problem, own, holder)));
            path.reverse();
            shared = before.iter().zip(&path).take_while(|(one, other)| one == other).count();
            costs = scale.costs(problem, &path);
            leaf = own;
        }
        let own = scale.node(problem, node.pos);
        see(node, shared, &mut costs.iter().map(|&cost| own.plus(cost)));
    }
}

/// The domains from a leaf up to the one below the holder.
pub(super) fn below<'p>(
    problem: &'p Problem<'_>,
    leaf: DomainId,
    holder: DomainId,
) -> impl Iterator<Item = DomainId> + use<'p> {
    std::iter::successors(Some(leaf), |&id| problem.fabric.domain(id).parent())
        .take_while(move |&id| id != holder)
}

/// The best way to put an amount on some nodes of a domain, which are in fabric order.
pub(super) fn walk(
    problem: &Problem<'_>,
    holder: DomainId,
    amount: u32,
    nodes: &[Candidate],
    scale: &Scale<'_>,
    beside: Beside,
) -> Result<Vec<Candidate>, NoChoice> {
    let sum: u64 = nodes.iter().map(|node| u64::from(node.takes)).sum();
    if sum < u64::from(amount) {
        return Err(NoChoice::Nowhere);
    }
    let unit = nodes.iter().fold(0, |unit, node| gcd(unit, node.takes)).max(1);
    let amount = amount.div_ceil(unit) as usize;
    let walk = NodeProgramme::new(problem, holder, nodes, (amount, unit), scale, beside);
    let widest = walk.depth.saturating_mul(walk.numbers * walk.width);
    let (tail, all) = scale.bits();
    let at_once = if all < u64::BITS { AT_ONCE.0 } else { AT_ONCE.1 };
    if walk.answers.max(widest) > MOST || !problem.meter.take((walk.answers + widest) / at_once) {
        return Err(NoChoice::Unknown);
    }
    let found = if all < u64::BITS {
        walk.prices_from_the_end::<u64>(tail, beside)
    } else {
        walk.prices_from_the_end::<Price>(tail, beside)
    };
    Ok(walk.follow(&found.ok_or(NoChoice::Nowhere)?, amount, beside))
}

/// The greatest common divisor; of two zeros, 0.
fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl NodeProgramme {
    /// For every stop and everything that may be wanted there whether its node is used in the choice of the least price;
    /// None where nothing holds the job.
    fn prices_from_the_end<P: Packed>(&self, tail: u32, beside: Beside) -> Option<Vec<bool>> {
        let mut after = vec![P::NEVER; self.depth * self.numbers * self.width];
        let mut here = after.clone();
        let mut uses = vec![false; self.answers];
        let done = if matches!(beside, Beside::Nodes(_)) { 1 } else { self.numbers };
        (0..self.depth).for_each(|used| {
            (0..done).for_each(|number| after[self.row(used, number)] = P::NOTHING);
        });
        // Of nothing but what those after can take is anything known.
        let mut most_after = 0;
        for (index, stop) in self.stops.iter().enumerate().rev() {
            let (least, most) = stop.wanted;
            let next = self.shared_after(index);
            let amounts = (most + 1).saturating_sub(least);
            let mut answer = stop.answers;
            for used in 0..=stop.shared {
                let price = P::pack(self.prices[stop.prices + used], tail);
                for number in 0..self.numbers {
                    let (row, skipped) = (self.row(used, number), self.row(used.min(next), number));
                    if most > most_after {
                        after[skipped + most_after + 1..=skipped + most].fill(P::NEVER);
                    }
                    let (taken, needs_more) = self.taken(stop, used, number, next, beside);
                    let step = KnapsackStep {
                        skips: &after[skipped + least..skipped + least + amounts],
                        taken: taken.map(|row| &after[row..row + self.width]),
                        takes: stop.takes,
                        least,
                        price,
                    };
                    let outcome = &mut here[row + least..row + least + amounts];
                    step.choose(outcome, &mut uses[answer..answer + amounts], needs_more);
                    answer += amounts;
                }
            }
            most_after = most;
            std::mem::swap(&mut here, &mut after);
        }
        let wanted = self.width - 1;
        let price = after[self.row(0, self.numbers - 1) + wanted];
        (wanted <= most_after && price != P::NEVER).then_some(uses)
    }

    /// The row that holds what is left to do once the node of a stop is used, if it may be; and whether it may be used
    /// though nothing is wanted any more.
    fn taken(
        &self,
        stop: &Stop,
        used: usize,
        number: usize,
        next: usize,
        beside: Beside,
    ) -> (Option<usize>, bool) {
        let opens_leaf = used < stop.depth;
        let left = match beside {
            Beside::Nothing => Some(number),
            Beside::Nodes(_) => number.checked_sub(1),
            Beside::Leaves(_) => number.checked_sub(usize::from(opens_leaf)),
        };
        (left.map(|number| self.row(next, number)), matches!(beside, Beside::Nodes(_)))
    }

    /// The nodes that are used.
    fn follow(&self, uses: &[bool], amount: usize, beside: Beside) -> Vec<Candidate> {
        let (mut used, mut number, mut left) = (0, self.numbers - 1, amount);
        let mut nodes = Vec::new();
        for (index, stop) in self.stops.iter().enumerate() {
            let next = self.shared_after(index);
            let (least, most) = stop.wanted;
            let answer = stop.answers + (used * self.numbers + number) * (most - least + 1) + left - least;
            if uses[answer] {
                match beside {
                    Beside::Nothing => {}
                    Beside::Nodes(_) => number -= 1,
                    Beside::Leaves(_) => number -= usize::from(used < stop.depth),
                }
                nodes.push(stop.node);
                left = left.saturating_sub(stop.takes);
                used = next;
            }
            used = used.min(next);
        }
        nodes
    }
}
