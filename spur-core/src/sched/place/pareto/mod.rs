//! The dynamic programme: the front of every domain from the fronts of its members, from the nodes upwards.
//!
//! Exact for every problem within the budget. Where node counts or counted sets must be exact beside an
//! amount, fronts can grow with the product of the two. The search then keeps only as many ways as the budget
//! allows.

mod balance;
mod candidates;
mod greedy;
mod greedy_weights;
mod share;
mod traceback;

use std::rc::Rc;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{Cost, Item, NARROW, Problem, prune};

pub(super) use candidates::{choose, losers, may_hold, realise};
pub(super) use greedy::greedy_placement;
pub(super) use share::{fill, share};

/// Number of joined ways after which dominated ones are dropped.
const AT_ONCE: usize = 1 << 17;
/// Number of ways that every front may have, whatever the budget.
const WIDEST: usize = 1 << 12;

/// A part of a domain: a domain below it, or a node of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Domain(DomainId),
    Node(Pos),
}

/// The Pareto front of a part: the ways to use it that no other way dominates.
pub(super) type Front<C> = Rc<Vec<Item<C>>>;

/// Solves one problem, and keeps the fronts of domains for repeated use.
pub(super) struct Solver<'p, 'a, C> {
    pub(super) problem: &'p Problem<'a>,
    /// For each layer, the least and the most of the amount in a used domain that counts for it.
    pub(super) bounds: Vec<(u32, u32)>,
    fronts: Vec<Option<Front<C>>>,
    pub(super) exact: bool,
}

impl<'p, 'a, C: Cost> Solver<'p, 'a, C> {
    pub(super) fn new(problem: &'p Problem<'a>) -> Self {
        let layers = problem.layout.layers;
        // Setting the solver up and freeing it takes time, too.
        problem.meter.take(problem.fabric.domains().size_hint().0 / 32);
        Self {
            problem,
            bounds: vec![(0, u32::MAX); layers],
            fronts: vec![None; problem.fabric.domains().size_hint().0],
            exact: true,
        }
    }

    /// A solver of the same problem in which every used domain of a layer holds an amount within bounds.
    pub(super) fn bounded(&self, bounds: Vec<(u32, u32)>) -> Self {
        Self { bounds, ..Self::new(self.problem) }
    }

    /// The members of a domain that can be used, in fabric order, each with its front.
    pub(super) fn members(&mut self, id: DomainId) -> Vec<(Member, Front<C>)> {
        let domain = self.problem.fabric.domain(id);
        if !domain.children().is_empty() {
            return (domain.children().iter())
                .map(|&child| (Member::Domain(child), self.front(child)))
                .filter(|(_, front)| !front.is_empty())
                .collect();
        }
        (self.problem.open_nodes(id))
            .filter_map(|pos| Some((Member::Node(pos), self.node_front(pos)?)))
            .collect()
    }

    fn node_front(&self, pos: Pos) -> Option<Front<C>> {
        let item = self.problem.node(pos, self.bounds[0])?;
        let mut items = Vec::new();
        if self.problem.ask.mode == Mode::Distributed && !self.problem.by_nodes {
            let unit = self.problem.unit(Layer::NODE);
            for amount in (item.lo..=item.hi.min(self.problem.amount)).step_by(unit as usize) {
                items.push(self.square(&item, amount, Layer::NODE, Layer::NODE));
            }
        } else {
            items.push(item);
        }
        Some(Rc::new(items))
    }

    /// True if a member has to be used.
    pub(super) fn is_forced(&self, member: Member) -> bool {
        match member {
            Member::Domain(id) => self.problem.is_forced(id),
            Member::Node(pos) => self.problem.required.binary_search(&pos).is_ok(),
        }
    }

    /// The ways to use a domain as a part of its parent; empty if it cannot be used.
    pub(super) fn front(&mut self, id: DomainId) -> Front<C> {
        if let Some(front) = &self.fronts[id.index()] {
            return Rc::clone(front);
        }
        let mut closed = Vec::new();
        if !self.problem.is_barred(id) && !self.problem.meter.is_spent() {
            for item in self.inside(id) {
                self.close(id, &item, &mut closed);
            }
            let unit = self.problem.unit(self.problem.fabric.domain(id).cover());
            prune(&mut closed, unit);
            self.cut(&mut closed);
        }
        let front = Rc::new(closed);
        self.fronts[id.index()] = Some(Rc::clone(&front));
        front
    }

    /// The ways to use the members of a domain, including the way that uses none.
    pub(super) fn inside(&mut self, id: DomainId) -> Vec<Item<C>> {
        let domain = self.problem.fabric.domain(id);
        let width = self.problem.layout.width();
        let is_empty = self.problem.view.slots.nodes_of(id) == 0 || !self.problem.may_use_any(id);
        if self.problem.is_barred(id) || is_empty {
            return vec![Item::nothing(width)];
        }
        if domain.children().is_empty() && self.problem.nodes_are_alike() {
            let whole = Item { hi: self.problem.view.slots.nodes_of(id), lo: 1, ..Item::nothing(width) };
            return vec![Item::nothing(width), whole];
        }
        if self.misses_a_forced(id) {
            return Vec::new();
        }
        let members = self.members(id);
        self.problem.meter.take(members.len());
        self.fold(id, &members, |_| ())
    }

    /// Joins the fronts of a domain's members from the last to the first; calls `see` with the result of
    /// every step.
    pub(super) fn fold(
        &mut self,
        id: DomainId,
        members: &[(Member, Front<C>)],
        mut see: impl FnMut(&[Item<C>]),
    ) -> Vec<Item<C>> {
        let mut all = vec![Item::nothing(self.problem.layout.width())];
        for (member, front) in members.iter().rev() {
            if self.problem.meter.is_spent() {
                return Vec::new();
            }
            all = self.join(&all, front, !self.is_forced(*member), id);
            see(&all);
        }
        all
    }

    /// True if some member that has to be used cannot be used.
    fn misses_a_forced(&mut self, id: DomainId) -> bool {
        let fabric = self.problem.fabric;
        if !self.problem.is_forced(id) {
            return false;
        }
        let range = fabric.domain(id).range();
        let children = fabric.domain(id).children();
        if children.is_empty() {
            let required = self.problem.required.iter().filter(|pos| range.contains(&pos.index()));
            return required.into_iter().any(|&pos| self.problem.node::<C>(pos, self.bounds[0]).is_none());
        }
        children.iter().any(|&child| self.problem.is_forced(child) && self.front(child).is_empty())
    }

    /// The ways to use two disjoint parts of a domain, the second of which may stay unused if `optional`.
    pub(super) fn join(
        &mut self,
        some: &[Item<C>],
        more: &[Item<C>],
        optional: bool,
        id: DomainId,
    ) -> Vec<Item<C>> {
        // Costs on the heap take longer.
        let each = if self.problem.layout.width() > NARROW { 3 } else { 1 };
        if !self.problem.meter.take(each * (some.len() + some.len().saturating_mul(more.len()))) {
            self.exact = false;
            return Vec::new();
        }
        let mut joined = if optional { some.to_vec() } else { Vec::new() };
        let below = self.problem.fabric.domain(id).layer().index() - 1;
        let unit = self.problem.units[below];
        // Joining in chunks bounds the memory for ways that are dropped afterwards.
        for some in some.chunks((AT_ONCE / more.len().max(1)).max(1)) {
            if joined.len() > AT_ONCE {
                prune(&mut joined, unit);
            }
            joined.reserve(some.len() * more.len());
            for a in some {
                joined.extend(more.iter().filter_map(|b| self.plus(a, b)));
            }
        }
        prune(&mut joined, unit);
        self.cut(&mut joined);
        joined
    }

    /// Two parts together; `None` if they exceed the amount or a limit.
    pub(super) fn plus(&self, a: &Item<C>, b: &Item<C>) -> Option<Item<C>> {
        let mut item = a.plus(b, &self.problem.needs);
        item.hi = item.hi.min(self.problem.amount);
        let too_many = item.lo > self.problem.amount
            || self.problem.nodes.is_some_and(|nodes| item.key.nodes > nodes)
            || !self.problem.may_bring(item.key.load)
            || self.exceeds_spans(&item);
        (!too_many).then_some(item)
    }

    fn exceeds_spans(&self, item: &Item<C>) -> bool {
        self.problem.span_caps.iter().zip(item.key.spans).any(|((_, cap), span)| span > *cap)
    }

    /// Cuts a front that exceeds the budget: for every key the cheapest and the largest way stay, then a
    /// sample of the others.
    ///
    /// The width is the same for every front of a problem, so computing a domain again gives the same front.
    fn cut(&mut self, items: &mut Vec<Item<C>>) {
        let width = usize::try_from(self.problem.ask.budget.isqrt()).unwrap_or(usize::MAX).max(2);
        let width = if self.problem.is_hard() { width } else { width.max(WIDEST) };
        if items.len() <= width {
            return;
        }
        self.exact = false;
        let (mut ends, middle): (Vec<_>, Vec<_>) =
            (items.iter().enumerate()).partition(|&(index, item)| is_end(items, index) || item.hi == 0);
        let sample = |some: Vec<(usize, &Item<C>)>, room: usize| -> Vec<usize> {
            let stride = some.len().div_ceil(room.max(1)).max(1);
            some.into_iter().map(|(index, _)| index).step_by(stride).take(room).collect()
        };
        let nothing = ends.iter().position(|(_, item)| item.hi == 0).map(|at| ends.remove(at).0);
        let mut keep = sample(ends, width - 1);
        let room = width - 1 - keep.len();
        keep.extend(sample(middle, room));
        keep.extend(nothing);
        keep.sort_unstable();
        *items = keep.into_iter().map(|index| items[index].clone()).collect();
    }

    /// Turns a way to use the members of a domain into ways to use the domain: rounds, caps and adds the
    /// domain's cost.
    pub(super) fn close(&self, id: DomainId, inside: &Item<C>, out: &mut Vec<Item<C>>) {
        let problem = self.problem;
        let domain = problem.fabric.domain(id);
        let (layer, cover) = (domain.layer(), domain.cover());
        let unit = problem.unit(cover);
        let most = problem.amount.min(problem.limit(id));
        let (mut lo, mut hi) = (inside.lo.max(unit), inside.hi.min(most));
        let (fewest_nodes, most_nodes) = problem.node_limits(id);
        if problem.by_nodes {
            lo = lo.max(fewest_nodes);
        } else if problem.nodes.is_some() && !(fewest_nodes..=most_nodes).contains(&inside.key.nodes) {
            return;
        }
        let mut item = inside.clone();
        if layer == Layer::LEAF {
            hi = hi.min(problem.leaf_cap(id));
            if problem.leaf_nodes.is_some_and(|most| item.key.nodes > most)
                || !problem.may_bring(item.key.load)
            {
                return;
            }
            item.key.load = 0;
            if problem.nodes.is_none() {
                item.key.nodes = 0;
            }
        }
        if !problem.suits_node_unit(layer..=cover, item.key.nodes) {
            return;
        }
        for &(least, most) in &self.bounds[layer.index()..=cover.index()] {
            lo = lo.max(least);
            hi = hi.min(most);
        }
        item.lo = lo.div_ceil(unit).saturating_mul(unit);
        item.hi = hi - hi % unit;
        if inside.hi == 0 || item.lo > item.hi {
            return;
        }
        for (span, (capped, _)) in item.key.spans.iter_mut().zip(&problem.span_caps) {
            *span += u32::from((layer..=cover).contains(capped));
        }
        if self.exceeds_spans(&item) {
            return;
        }
        problem.charge(item.cost.fields_mut(), layer, cover, problem.slots(id));
        if problem.ask.mode == Mode::Distributed {
            for amount in (item.lo..=item.hi).step_by(unit as usize) {
                out.push(self.square(&item, amount, layer, cover));
            }
        } else {
            out.push(item);
        }
    }

    /// The cost of using a domain besides its members, where the cost does not depend on the share.
    pub(super) fn charge_of(&self, id: DomainId) -> C {
        let domain = self.problem.fabric.domain(id);
        let mut cost = C::zero(self.problem.layout.width());
        self.problem.charge(cost.fields_mut(), domain.layer(), domain.cover(), self.problem.slots(id));
        cost
    }

    /// The way with an exact amount, whose square is added to the cost: the sum of squares is smallest for
    /// even shares.
    fn square(&self, item: &Item<C>, amount: u32, from: Layer, to: Layer) -> Item<C> {
        let mut exact = Item { lo: amount, hi: amount, ..item.clone() };
        for layer in from.index()..=to.index() {
            let field = self.problem.layout.tail(layer);
            exact.cost.fields_mut()[field] += i64::from(amount) * i64::from(amount);
        }
        exact
    }

    /// True if a way to use the members of a domain is the whole job.
    pub(super) fn is_whole(&self, id: DomainId, inside: &Item<C>) -> bool {
        let problem = self.problem;
        let amount = problem.amount;
        let leaf = problem.fabric.domain(id).layer() == Layer::LEAF;
        inside.lo <= amount
            && amount <= inside.hi
            && problem.nodes.is_none_or(|nodes| inside.key.nodes == nodes)
            && inside.key.counts == problem.needs
            && !self.exceeds_spans(inside)
            && self.is_within_limits(id)
            && !(leaf && amount > problem.leaf_cap(id))
            && (!leaf || problem.may_bring(inside.key.load))
            && !(leaf && problem.leaf_nodes.is_some_and(|most| inside.key.nodes > most))
    }

    /// True if the whole job is within the limits of the domain that holds it.
    fn is_within_limits(&self, id: DomainId) -> bool {
        let problem = self.problem;
        let (fewest, most) = problem.node_limits(id);
        let nodes = if problem.by_nodes { Some(problem.amount) } else { problem.nodes };
        nodes.is_none_or(|nodes| (fewest..=most).contains(&nodes))
    }

    /// The cheapest way to put the whole job into a domain; `None` if there is none or the steps run out.
    pub(super) fn best(&mut self, id: DomainId) -> Option<Item<C>> {
        if self.problem.meter.is_spent() {
            return None;
        }
        let inside = self.inside(id);
        inside.into_iter().filter(|item| self.is_whole(id, item)).min_by(|a, b| a.cost.cmp(&b.cost))
    }
}

/// True if an item is the first or the last of its key in a sorted front: the cheapest, or the one that holds
/// most.
fn is_end<C: Cost>(items: &[Item<C>], index: usize) -> bool {
    let key = &items[index].key;
    index == 0 || items[index - 1].key != *key || items.get(index + 1).is_none_or(|next| next.key != *key)
}
