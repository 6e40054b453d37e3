//! The dynamic program: fronts of every domain from those of its members, from the nodes upwards.
//!
//! Exact for every problem; where node counts or counted sets must come out exactly next to an amount, fronts can grow
//! with the product of the two, and the search keeps only so many ways as the budget allows.

mod balance;
mod candidates;
mod greedy;
mod greedy_weights;
mod lower_bounds;
mod share;
mod traceback;

use std::rc::Rc;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::Mode;
use crate::sched::place::problem::{Cost, Item, NARROW, Problem, positions, prune};

pub(super) use candidates::{Candidate, choose, losers, may_hold, realise};
pub(super) use greedy::greedy_placement;
pub(super) use share::share;

use lower_bounds::{Guide, Reach, keep_near, sums};

/// Ways that are put together before those that are of no use are dropped.
const AT_ONCE: usize = 1 << 17;
/// Ways that every front may have, whatever the budget.
const WIDEST: usize = 1 << 12;

/// A part of a domain: a domain below it, or a node of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Domain(DomainId),
    Node(Pos),
}

/// The ways a part can be used.
pub(super) type Front<C> = Rc<Vec<Item<C>>>;

/// Solves one problem; fronts are kept from one domain to the next.
pub(super) struct Solver<'p, 'a, C> {
    pub(super) problem: &'p Problem<'a>,
    /// By layer: the least and the most of the amount in a used domain that counts for it.
    pub(super) bounds: Vec<(u32, u32)>,
    fronts: Vec<Option<Front<C>>>,
    /// Which of them are known.
    known: Vec<DomainId>,
    heads_only: bool,
    /// More than any part needs to hold: what is beyond it is not told apart.
    plenty: u32,
    guide: Option<Box<Guide<'p, 'a, C>>>,
    /// The domain that is to hold the whole job, where its members are counted before everything else.
    target: Option<DomainId>,
    pub(super) exact: bool,
}

impl<'p, 'a, C: Cost> Solver<'p, 'a, C> {
    pub(super) fn new(problem: &'p Problem<'a>) -> Self {
        let layers = problem.layout.layers;
        // To set it up and to take it down is work, too.
        problem.meter.take(problem.fabric.domains().size_hint().0 / 32);
        Self {
            problem,
            bounds: vec![(0, u32::MAX); layers],
            fronts: vec![None; problem.fabric.domains().size_hint().0],
            known: Vec::new(),
            heads_only: false,
            plenty: problem.amount.saturating_add(if problem.can_be_guided() {
                problem.largest_piece()
            } else {
                0
            }),
            guide: None,
            target: None,
            exact: true,
        }
    }

    /// A solver of the same problem in which every used domain of a layer holds an amount within bounds.
    pub(super) fn bounded(&self, bounds: Vec<(u32, u32)>) -> Self {
        Self { bounds, ..Self::new(self.problem) }
    }

    /// The members of a domain that can be used, in fabric order.
    pub(super) fn members(&mut self, id: DomainId) -> Vec<(Member, Front<C>)> {
        let domain = self.problem.fabric.domain(id);
        if !domain.children().is_empty() {
            return (domain.children().iter())
                .map(|&child| (Member::Domain(child), self.front(child)))
                .filter(|(_, front)| !front.is_empty())
                .collect();
        }
        let open = self.problem.view.slots.open();
        (positions(domain.range()).filter(|pos| open.contains(pos.index())))
            .filter_map(|pos| Some((Member::Node(pos), self.node_front(pos)?)))
            .collect()
    }

    fn node_front(&self, pos: Pos) -> Option<Front<C>> {
        let mut item = self.problem.node(pos, self.bounds[0])?;
        self.forget_tail(&mut item);
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

    /// Whether a member has to be used.
    pub(super) fn is_forced(&self, member: Member) -> bool {
        match member {
            Member::Domain(id) => self.problem.is_forced(id),
            Member::Node(pos) => self.problem.required.binary_search(&pos).is_ok(),
        }
    }

    /// The ways to use a domain as a part of the one above it; empty where it cannot be used.
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
        self.known.push(id);
        front
    }

    /// The ways to use the members of a domain, using none included.
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
        if let Some(items) = self.over_leaves(id) {
            return items;
        }
        if self.misses_a_forced(id) {
            return Vec::new();
        }
        let members = self.members(id);
        self.problem.meter.take(members.len());
        self.fold(id, &members, |_| ())
    }

    fn member_front(&mut self, member: Member) -> Front<C> {
        match member {
            Member::Domain(child) => self.front(child),
            Member::Node(pos) => self.node_front(pos).unwrap_or_default(),
        }
    }

    /// The ways to use the leaves of a domain where nodes are alike and nothing cuts what leaves hold: for every number
    /// of leaves, the sums that so many can hold, as far as they are near enough to the largest.
    fn over_leaves(&self, id: DomainId) -> Option<Vec<Item<C>>> {
        let problem = self.problem;
        let children = problem.fabric.domain(id).children();
        let is_leaf = |child: &DomainId| problem.fabric.domain(*child).layer() == Layer::LEAF;
        let slack = match &self.guide {
            Some(guide) => guide.slack,
            None if self.heads_only => 0,
            None => return None,
        };
        if slack >= 128 {
            return None;
        }
        if children.is_empty() || !problem.nodes_are_alike() || !children.iter().all(is_leaf) {
            return None;
        }
        let mut rooms: Vec<u32> =
            children.iter().map(|&leaf| problem.room(leaf)).filter(|&room| room > 0).collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        let most = sums(&rooms);
        let cover = problem.fabric.domain(children[0]).cover();
        // Every leaf is compared with every other, many times faster than ways are put together.
        problem.meter.take(rooms.len() * rooms.len() / 64);
        let mut items = vec![Item::nothing(problem.layout.width())];
        let mut all = Item::<C>::nothing(problem.layout.width());
        let lacks = lacks(&rooms, slack as usize);
        for count in 1..=rooms.len() {
            problem.charge(all.cost.fields_mut(), Layer::LEAF, cover, 0);
            for lack in (0..=slack.min(most[count])).filter(|&lack| lacks[count] >> lack & 1 == 1) {
                let hi = most[count] - lack;
                let mut item = all.clone();
                (item.lo, item.hi) = (u32::try_from(count).unwrap_or(u32::MAX), hi.min(self.plenty));
                let fields = item.cost.fields_mut();
                for layer in Layer::LEAF.index()..=cover.index() {
                    fields[problem.layout.tail(layer)] += i64::from(hi);
                }
                self.forget_tail(&mut item);
                items.push(item);
            }
        }
        items.retain(|item| item.lo <= problem.amount);
        prune(&mut items, 1);
        Some(items)
    }

    /// Joins the members of a domain from the last to the first; `see` sees every step.
    pub(super) fn fold(
        &mut self,
        id: DomainId,
        members: &[(Member, Front<C>)],
        mut see: impl FnMut(&[Item<C>]),
    ) -> Vec<Item<C>> {
        let nothing = vec![Item::nothing(self.problem.layout.width())];
        let (mut all, mut floor) = (nothing.clone(), nothing);
        let mut guide = self.guide.take();
        let reach =
            self.target.filter(|&target| target == id).and_then(|id| Reach::new(self.problem, id, members));
        let head = self.problem.layout.head();
        let befores = match (&mut guide, &reach) {
            (Some(guide), Some(reach)) => guide.befores(id, members, reach),
            _ => Vec::new(),
        };
        for (index, (member, front)) in members.iter().enumerate().rev() {
            if self.problem.meter.is_spent() {
                return Vec::new();
            }
            let optional = !self.is_forced(*member);
            let near_enough = |front: &Front<C>| match &reach {
                Some(reach) => front.iter().filter(|item| reach.admits_part(item)).cloned().collect(),
                None => front.to_vec(),
            };
            let mut part: Vec<Item<C>> = near_enough(front);
            if let (Some(guide), Some(all)) = (&guide, befores.last()) {
                self.problem.meter.take(part.len() * all.len() / 8);
                part.retain(|item| guide.completes(item, all, head));
            }
            all = self.join(&all, &part, optional, id);
            if let Some(reach) = &reach {
                all.retain(|item| reach.admits(item, index));
            }
            if let (Some(guide), Some(before)) = (&guide, befores.get(index)) {
                self.problem.meter.take(all.len() * before.len() / 8);
                all.retain(|item| guide.completes(item, before, head));
            }
            if let Some(guide) = &mut guide {
                let front = guide.heads.member_front(*member);
                floor = guide.heads.join(&floor, &near_enough(&front), optional, id);
                if let Some(reach) = &reach {
                    floor.retain(|item| reach.admits(item, index));
                }
                let enough = self.problem.amount.saturating_sub(guide.slack);
                keep_near(&mut all, &floor, enough, guide.slack, head);
            }
            see(&all);
        }
        self.guide = guide;
        all
    }

    /// Finds out what the spans of the best placement in a domain are, where that helps; false if there is none.
    pub(super) fn guide_to(&mut self, id: DomainId) -> bool {
        self.target = self.problem.first_span(id).map(|_| id);
        let free = self.bounds.iter().all(|&(least, most)| least == 0 && most == u32::MAX);
        if self.heads_only || !free || !self.problem.can_be_guided() {
            return true;
        }
        let before = self.guide.take();
        if let Some(guide) = before.filter(|guide| guide.holder == id) {
            self.guide = Some(guide);
            return true;
        }
        // Fronts that were cut for another domain are no use here.
        self.known.drain(..).for_each(|id| self.fronts[id.index()] = None);
        let mut heads = Self { heads_only: true, ..Self::new(self.problem) };
        let Some(best) = heads.best(id) else { return false };
        let alike = heads.inside(id).into_iter().filter(|item| item.cost == best.cost).map(|item| item.hi);
        let slack = alike.max().unwrap_or(best.hi).max(best.hi) - self.problem.amount;
        self.guide = Some(Box::new(Guide { holder: id, slack, best: best.cost, heads }));
        true
    }

    /// The spans of the best placement in a domain, without anything that comes after them.
    pub(super) fn best_head(&mut self, id: DomainId) -> Option<Item<C>> {
        self.guide_to(id);
        match &mut self.guide {
            Some(guide) => guide.heads.best(id),
            None => None,
        }
    }

    fn forget_tail(&self, item: &mut Item<C>) {
        if self.heads_only {
            let head = self.problem.layout.head();
            item.cost.fields_mut()[head..].fill(0);
        }
    }

    /// Whether some member that has to be used cannot be.
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

    /// The ways to use two disjoint parts of a domain, the second one perhaps not at all.
    pub(super) fn join(
        &mut self,
        some: &[Item<C>],
        more: &[Item<C>],
        optional: bool,
        id: DomainId,
    ) -> Vec<Item<C>> {
        // Costs that are not kept on the stack take longer.
        let each = if self.problem.layout.width() > NARROW { 3 } else { 1 };
        if !self.problem.meter.take(each * (some.len() + some.len().saturating_mul(more.len()))) {
            self.exact = false;
            return Vec::new();
        }
        let mut joined = if optional { some.to_vec() } else { Vec::new() };
        let below = self.problem.fabric.domain(id).layer().index() - 1;
        let unit = self.problem.units[below];
        // A part at a time, so that no more is kept than is of use.
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

    /// Two parts together, unless that is too much already.
    pub(super) fn plus(&self, a: &Item<C>, b: &Item<C>) -> Option<Item<C>> {
        let mut item = a.plus(b, &self.problem.needs);
        item.hi = item.hi.min(self.plenty);
        let too_many = item.lo > self.problem.amount
            || self.problem.nodes.is_some_and(|nodes| item.key.nodes > nodes)
            || !self.problem.may_bring(item.key.load)
            || self.exceeds_spans(&item);
        (!too_many).then_some(item)
    }

    fn exceeds_spans(&self, item: &Item<C>) -> bool {
        self.problem.span_caps.iter().zip(item.key.spans).any(|((_, cap), span)| span > *cap)
    }

    /// Beyond the budget only some ways are kept: those of the most and of the least for every key, then a sample.
    ///
    /// The width is the same for every front of a problem, so that going over a domain again gives the same front.
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

    /// Turns a way to use the members of a domain into ways to use the domain: rounds, caps and charges for it.
    pub(super) fn close(&self, id: DomainId, inside: &Item<C>, out: &mut Vec<Item<C>>) {
        let problem = self.problem;
        let domain = problem.fabric.domain(id);
        let (layer, cover) = (domain.layer(), domain.cover());
        let unit = problem.unit(cover);
        // A part may have room for more than the job; a guided search has to know by how much.
        let most = self.plenty.min(problem.limit(id));
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
            if problem.leaf_nodes().is_some_and(|most| item.key.nodes > most)
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
        self.forget_tail(&mut item);
        if problem.ask.mode == Mode::Distributed {
            for amount in (item.lo..=item.hi).step_by(unit as usize) {
                out.push(self.square(&item, amount, layer, cover));
            }
        } else {
            out.push(item);
        }
    }

    /// What using a domain costs besides its members, where that does not depend on its share.
    pub(super) fn charge_of(&self, id: DomainId) -> C {
        let domain = self.problem.fabric.domain(id);
        let mut item = Item::<C>::nothing(self.problem.layout.width());
        self.problem.charge(item.cost.fields_mut(), domain.layer(), domain.cover(), self.problem.slots(id));
        self.forget_tail(&mut item);
        item.cost
    }

    /// The way with an exact amount, charged for its square: the sum of squares is least where shares are even.
    fn square(&self, item: &Item<C>, amount: u32, from: Layer, to: Layer) -> Item<C> {
        let mut exact = Item { lo: amount, hi: amount, ..item.clone() };
        for layer in from.index()..=to.index() {
            let field = self.problem.layout.tail(layer);
            exact.cost.fields_mut()[field] += i64::from(amount) * i64::from(amount);
        }
        exact
    }

    /// Whether a way to use the members of a domain is the whole job.
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
            && !(leaf && problem.leaf_nodes().is_some_and(|most| inside.key.nodes > most))
    }

    /// Whether the whole job is within the limits of the domain that holds it.
    fn is_within_limits(&self, id: DomainId) -> bool {
        let problem = self.problem;
        let (fewest, most) = problem.node_limits(id);
        let nodes = if problem.by_nodes { Some(problem.amount) } else { problem.nodes };
        nodes.is_none_or(|nodes| (fewest..=most).contains(&nodes))
    }

    /// The cheapest way to put the whole job into a domain.
    pub(super) fn best(&mut self, id: DomainId) -> Option<Item<C>> {
        if !self.guide_to(id) || self.problem.meter.is_spent() {
            return None;
        }
        if self.target.is_some() && self.problem.fewest_members(id) == usize::MAX {
            return None;
        }
        let inside = self.inside(id);
        inside.into_iter().filter(|item| self.is_whole(id, item)).min_by(|a, b| a.cost.cmp(&b.cost))
    }
}

/// For every number of leaves, as bits, how much less than the largest so many can hold: up to `slack`, below 128.
/// `rooms` falls.
fn lacks(rooms: &[u32], slack: usize) -> Vec<u128> {
    let width = slack.min(127);
    let mask = u128::MAX >> (127 - width);
    let mut by_count = vec![0_u128; rooms.len() + 1];
    by_count[0] = 1;
    // In falling order, the leaf at `index` as the one number `count` lacks what is between it and the leaf that the
    // largest sum has there.
    for (index, &room) in rooms.iter().enumerate() {
        for count in (1..=index + 1).rev() {
            let lack = rooms[count - 1] - room;
            if lack as usize <= width {
                by_count[count] |= by_count[count - 1] << lack & mask;
            }
        }
    }
    by_count
}

/// Whether an item is the first or the last of its key in a sorted front: the cheapest, or the one that holds most.
fn is_end<C: Cost>(items: &[Item<C>], index: usize) -> bool {
    let key = &items[index].key;
    index == 0 || items[index - 1].key != *key || items.get(index + 1).is_none_or(|next| next.key != *key)
}
