//! The search for a way to place all components within some positions.
//!
//! One after another, each where it likes best: if nobody is any less local for it than alone, there is nothing to gain.
//! Otherwise each is confined to one domain after another, and after that, as far as the budget goes, to every set of
//! nodes and shares that would do for it.

use std::borrow::Cow;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::sched::place::{self, Ask, Mode, Placement, SharedBudget, Slots, Strategy, View};
use crate::sched::request::Part;
use crate::sched::request::eligible_nodes::slots_by_position;

use super::rank::{fit, locality};
use super::{Member, Seat};

/// A number of slots that has not been worked out.
const UNKNOWN: u32 = u32::MAX;
/// Positions looked at that take as long as one step of a placement.
const POSITIONS_FOR_STEP: usize = 8;
/// Sets of nodes and shares that are tried for one component.
const MOST_SHARES: usize = 4_096;
/// Positions with room up to which they are tried.
const MOST_POSITIONS: usize = 64;

/// One component placed, and how it compares.
#[derive(Clone, Debug)]
pub(super) struct PlacedComponent {
    /// Whether it is known to be allowed; otherwise only that there is room for it.
    allowed: bool,
    locality: Vec<i64>,
    fit: Vec<u64>,
    pub(super) seat: Seat,
}

/// All of them placed, and how that compares.
#[derive(Clone, Debug)]
pub(super) struct JointPlacement {
    /// Domains of each preferred layer that they touch together.
    pub(super) near: Vec<u32>,
    pub(super) placed: Vec<PlacedComponent>,
}

impl JointPlacement {
    /// Whether it comes before another.
    pub(super) fn is_better_than(&self, other: &JointPlacement) -> bool {
        let (mine, theirs) = (&self.placed, &other.placed);
        let fits = || mine.iter().map(|own| &own.fit).cmp(theirs.iter().map(|other| &other.fit));
        let shares = || mine.iter().map(shares_of).cmp(theirs.iter().map(shares_of));
        self.near
            .cmp(&other.near)
            .then_with(|| localities(mine).cmp(localities(theirs)))
            .then_with(fits)
            .then_with(shares)
            .is_lt()
    }
}

/// What a component takes of each position.
fn shares_of(placed: &PlacedComponent) -> &[(Pos, u32)] {
    &placed.seat.placement.shares
}

/// How local each component is.
fn localities(placed: &[PlacedComponent]) -> impl Iterator<Item = &Vec<i64>> {
    placed.iter().map(|placed| &placed.locality)
}

/// How a component is confined.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// The component is confined to some positions, or to nothing.
    Within(Option<&'a FixedBitSet>),
    /// To these positions with these shares.
    Shares(&'a [(Pos, u32)]),
}

/// What a search goes by.
pub(super) struct JointSearch<'a, 'r> {
    pub(super) inventory: &'a Inventory,
    pub(super) rooms: &'r mut Rooms,
    pub(super) members: &'a [Member<'a>],
    pub(super) prefer: Vec<Layer>,
    /// By member, by node: what those that have been placed leave.
    pub(super) left: Vec<Vec<Option<RoomId>>>,
    /// The slots that every member has in what is free.
    open: Vec<Slots>,
    /// The slots of every room, by member.
    known: Vec<Vec<u32>>,
    placed: Vec<PlacedComponent>,
    /// How local the members have to be, if a way is known where they are.
    worst: Option<Vec<Vec<i64>>>,
    pub(super) budget: u64,
    /// What this search and others may take together.
    shared: Option<&'a SharedBudget>,
    /// Whether nothing was left out so far.
    pub(super) exact: bool,
}

/// A node whose room was changed for a member.
type Undo = (usize, NodeId, Option<RoomId>);

impl<'a, 'r> JointSearch<'a, 'r> {
    pub(super) fn new(
        inventory: &'a Inventory,
        rooms: &'r mut Rooms,
        members: &'a [Member<'a>],
        prefer: Vec<Layer>,
        (budget, shared): (u64, Option<&'a SharedBudget>),
    ) -> Self {
        let positions_seen: usize = members.iter().map(|member| member.rooms.len()).sum();
        if let Some(shared) = shared {
            shared.take((positions_seen / POSITIONS_FOR_STEP) as u64);
        }
        let mut search = Self {
            inventory,
            rooms,
            members,
            prefer,
            left: members.iter().map(|member| member.rooms.clone()).collect(),
            open: Vec::with_capacity(members.len()),
            known: vec![Vec::new(); members.len()],
            placed: Vec::new(),
            worst: None,
            budget,
            shared,
            exact: true,
        };
        for (index, Member { eligible, need, .. }) in members.iter().enumerate() {
            let fabric = &eligible.fabric;
            let slots = positions(fabric, None).map(|pos| search.slots_on(index, fabric.node(pos)));
            let slots = slots_by_position(fabric, need, slots.collect());
            search.open.push(slots);
        }
        search
    }

    /// Looks from now on for nothing that comes behind what was found, where no layer is preferred to it.
    pub(super) fn beat(&mut self, found: &JointPlacement) {
        self.worst = self.prefer.is_empty().then(|| localities(&found.placed).cloned().collect());
    }

    /// The fabric that nearness is about.
    pub(super) fn fabric(&self) -> std::sync::Arc<Fabric> {
        std::sync::Arc::clone(&self.members[0].eligible.fabric)
    }

    /// Whether every member by itself has enough slots and nodes in some positions.
    pub(super) fn has_enough(&mut self, within: &FixedBitSet) -> bool {
        (0..self.members.len()).all(|member| self.has_enough_for(member, Some(within)))
    }

    fn has_enough_for(&mut self, member: usize, within: Option<&FixedBitSet>) -> bool {
        let (nodes, slots) = self.asks_for(member);
        let slots_seen = &self.open[member];
        let (mut open, mut total) = (0, 0);
        for pos in positions(&self.members[member].eligible.fabric, within) {
            let has = slots_seen.at(pos);
            open += u64::from(has > 0);
            total += u64::from(has);
            if open >= nodes && total >= slots {
                return true;
            }
        }
        false
    }

    /// The best way to place all members within some positions; none where it could only be one that is less local than
    /// `worst`.
    pub(super) fn assign(&mut self, within: Option<&FixedBitSet>) -> Option<JointPlacement> {
        if !self.may_hold_all(within) {
            return None;
        }
        // However little is left, everybody has one try.
        let once = self.members.iter().map(|member| 2 * cost(member, &Bounds::Within(within))).sum();
        self.budget = self.budget.max(once);
        let mut alone = Vec::with_capacity(self.members.len());
        for member in 0..self.members.len() {
            alone.push(self.try_one(member, Bounds::Within(within))?.locality);
        }
        if self.worst.as_ref().is_some_and(|worst| alone > *worst) {
            return None;
        }
        let mut best = None;
        self.dive(within, &mut best);
        let is_best = |best: &JointPlacement| localities(&best.placed).eq(&alone);
        if best.as_ref().is_some_and(is_best) {
            return best;
        }
        self.branch(within, &alone, &mut best, Self::confined);
        if best.as_ref().is_some_and(|best| is_best(best) || self.is_settled(best, within)) {
            return best;
        }
        self.branch(within, &alone, &mut best, Self::every_share);
        best
    }

    /// Whether trying domains has tried all that might be more local than the best there is: every member but the last has
    /// whole nodes of one leaf, as then has whoever is no less local, and the nodes of a leaf are alike for everybody.
    fn is_settled(&self, best: &JointPlacement, within: Option<&FixedBitSet>) -> bool {
        let takes_any = |ask: &Ask| !ask.contiguous && ask.required.is_empty() && ask.counts.is_empty();
        let is_plain = |member: &Member<'_>| !member.eligible.weighs() && member.asks.iter().all(takes_any);
        let is_in_leaf = |(member, placed): (&Member<'_>, &PlacedComponent)| {
            let holder = placed.seat.placement.common.map(|id| member.eligible.fabric.domain(id).layer());
            let [ask] = member.asks else { return false };
            member.need.whole
                && holder == Some(Layer::LEAF)
                && ask.nodes.is_some_and(|(least, most)| least == most)
                && ask.mode == Mode::Consolidated
                && ask.strategy != Strategy::Flat
                && ask.prefer_domain.is_none()
        };
        let before_last = self.members.len().saturating_sub(1);
        self.members.iter().all(is_plain)
            && self.members.iter().zip(&best.placed).take(before_last).all(is_in_leaf)
            && self.leaves_are_alike(within)
    }

    /// Whether of all nodes of a leaf that somebody may have everybody has the same.
    fn leaves_are_alike(&self, within: Option<&FixedBitSet>) -> bool {
        let fabric = &self.members[0].eligible.fabric;
        if self.members.iter().any(|member| !std::sync::Arc::ptr_eq(&member.eligible.fabric, fabric)) {
            return false;
        }
        let is_open = |pos: &Pos| self.open.iter().any(|open| open.at(*pos) > 0);
        let has = |pos: Pos| {
            let node = fabric.node(pos).index();
            self.left.iter().map(move |left| left[node])
        };
        let mut last: Option<Pos> = None;
        positions(fabric, within).filter(is_open).all(|pos| {
            let before = last.replace(pos).filter(|last| fabric.leaf_of(*last) == fabric.leaf_of(pos));
            before.is_none_or(|before| has(before).eq(has(pos)))
        })
    }

    /// Everybody where he likes best, one after another.
    fn dive(&mut self, within: Option<&FixedBitSet>, best: &mut Option<JointPlacement>) {
        let mut undo = Vec::new();
        for member in 0..self.members.len() {
            let Some(option) = self.try_one(member, Bounds::Within(within)) else { break };
            undo.extend(self.enter(member, option));
        }
        if self.placed.len() == self.members.len() {
            *best = Some(self.found());
        }
        self.placed.clear();
        self.restore(undo);
    }

    /// Tries for the next member whatever `options` come up with, the best first, and goes on with the one after it.
    fn branch(
        &mut self,
        within: Option<&FixedBitSet>,
        alone: &[Vec<i64>],
        best: &mut Option<JointPlacement>,
        options: fn(&mut Self, usize, Option<&FixedBitSet>) -> Vec<PlacedComponent>,
    ) {
        let member = self.placed.len();
        if member == self.members.len() {
            let found = self.found();
            if best.as_ref().is_none_or(|best| localities(&found.placed).lt(localities(&best.placed))) {
                *best = Some(found);
            }
            return;
        }
        for option in options(self, member, within) {
            let bound = localities(&self.placed).chain([&option.locality]).chain(&alone[member + 1..]);
            if best.as_ref().is_some_and(|best| bound.ge(localities(&best.placed))) {
                // Those behind it are no better.
                return;
            }
            let shares = Bounds::Shares(shares_of(&option));
            if self.leaves_enough(member, &option, within)
                && (option.allowed || self.try_one(member, shares).is_some())
            {
                let undo = self.enter(member, option);
                self.branch(within, alone, best, options);
                self.placed.pop();
                self.restore(undo);
            }
        }
    }

    /// Whether those behind a member still have enough, by count alone, when it has its place.
    fn leaves_enough(
        &mut self,
        member: usize,
        offer: &PlacedComponent,
        within: Option<&FixedBitSet>,
    ) -> bool {
        let undo = self.enter(member, offer.clone());
        let enough = (member + 1..self.members.len()).all(|other| self.has_enough_for(other, within));
        self.placed.pop();
        self.restore(undo);
        enough
    }

    /// Ways to place a member: anywhere, and in each domain.
    fn confined(&mut self, member: usize, within: Option<&FixedBitSet>) -> Vec<PlacedComponent> {
        let fabric = &self.members[member].eligible.fabric;
        let mut options: Vec<PlacedComponent> =
            self.try_one(member, Bounds::Within(within)).into_iter().collect();
        let range = |member: &Member<'_>| {
            let largest = member.asks.first().and_then(|ask| ask.nodes).map_or(1, |(_, largest)| largest);
            (member.asks.last().and_then(|ask| ask.nodes).map_or(1, |(least, _)| least), largest)
        };
        let (least, largest) = range(&self.members[member]);
        let slots = self.slots(member, Bounds::Within(within));
        if least < largest {
            // As many nodes as those behind it leave if each takes its fewest for itself; or the fewest of its own.
            let others = self.members[member + 1..].iter().map(|other| range(other).0);
            let others = others.fold(0, u32::saturating_add);
            let left = u32::try_from(slots.nodes()).unwrap_or(u32::MAX).saturating_sub(others);
            for most in [left.max(least), least] {
                options.extend(self.try_up_to(member, Bounds::Within(within), most));
            }
        }
        let ids: Vec<_> = fabric.domains().map(|(id, _)| id).collect();
        let all = slots.nodes();
        // One that has everything is nothing new.
        let has_some = |id: &DomainId| (least as usize..all).contains(&(slots.nodes_of(*id) as usize));
        for id in ids.into_iter().filter(has_some) {
            let mut set = FixedBitSet::with_capacity(fabric.len());
            set.insert_range(fabric.domain(id).range());
            if let Some(within) = within {
                set.intersect_with(within);
            }
            options.extend(self.try_one(member, Bounds::Within(Some(&set))));
        }
        for set in self.out_of_the_way(member, within) {
            options.extend(self.try_one(member, Bounds::Within(Some(&set))));
        }
        in_order(options)
    }

    /// What a member may use and those behind it, which may use less, may not: each of them by itself, and all of them.
    fn out_of_the_way(&self, member: usize, within: Option<&FixedBitSet>) -> Vec<FixedBitSet> {
        let eligible = self.members[member].eligible;
        let mut own = FixedBitSet::with_capacity(eligible.fabric.len());
        let admitted = |pos: &Pos| eligible.admitted.contains(eligible.fabric.node(*pos).index());
        own.extend(positions(&eligible.fabric, within).filter(admitted).map(Pos::index));
        let mut sets: Vec<FixedBitSet> = Vec::new();
        let mut rest = own.clone();
        for other in &self.members[member + 1..] {
            if !other.eligible.admitted.is_subset(&eligible.admitted)
                || eligible.admitted.is_subset(&other.eligible.admitted)
            {
                continue;
            }
            let theirs =
                |pos: &usize| other.eligible.admitted.contains(eligible.fabric.node(Pos::at(*pos)).index());
            let left: FixedBitSet = own.ones().filter(|pos| !theirs(pos)).collect();
            rest.intersect_with(&left);
            if !sets.contains(&left) {
                sets.push(left);
            }
        }
        if sets.len() > 1 && !sets.contains(&rest) {
            sets.push(rest);
        }
        sets
    }

    /// Every way to place a member, as far as they are few.
    fn every_share(&mut self, member: usize, within: Option<&FixedBitSet>) -> Vec<PlacedComponent> {
        let slots = self.slots(member, Bounds::Within(within));
        let most = if self.members[member].need.counts_nodes() { 1 } else { u32::MAX };
        let room: Vec<(Pos, u32)> = slots.iter().map(|(pos, slots)| (pos, slots.min(most))).collect();
        let mut options = Vec::new();
        if room.len() > MOST_POSITIONS {
            self.exact = false;
            return options;
        }
        for ask in self.members[member].asks {
            let sizes = match (ask.nodes, ask.tasks) {
                (Some((least, most)), None) => {
                    (least.max(1)..=most).map(|nodes| (Some(nodes), nodes)).collect()
                }
                (_, Some(tasks)) => vec![(None, tasks)],
                (None, None) => Vec::new(),
            };
            for (nodes, total) in sizes.into_iter().filter(|(_, total)| *total as usize <= MOST_SHARES) {
                let mut shares = Shares { room: &room, nodes, found: Vec::new(), chosen: Vec::new() };
                let all = shares.list(0, total);
                self.exact &= all;
                for shares in shares.found.into_iter().filter(|_| all) {
                    options.extend(self.offer(member, ask, shares, &slots));
                }
            }
        }
        in_order(options)
    }

    fn take(&mut self, steps: u64) {
        self.budget -= steps;
        if let Some(shared) = self.shared {
            shared.take(steps / POSITIONS_FOR_STEP as u64 + 1);
        }
    }

    /// Whether nothing is left of what this search and others may take together.
    fn is_spent(&self) -> bool {
        self.shared.is_some_and(SharedBudget::is_spent)
    }

    /// A member with some shares, of which it is not known whether they are allowed.
    fn offer(
        &mut self,
        member: usize,
        ask: &Ask,
        shares: Vec<(Pos, u32)>,
        slots: &Slots,
    ) -> Option<PlacedComponent> {
        if self.is_spent() || self.budget == 0 {
            self.exact = false;
            return None;
        }
        self.take(1);
        let eligible = self.members[member].eligible;
        let fabric = &eligible.fabric;
        let parts = self.parts(member, &shares)?;
        let positions: Vec<Pos> = shares.iter().map(|(pos, _)| *pos).collect();
        let (spans, common) = (fabric.spans(&positions), fabric.deepest_common(&positions));
        let taken: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let waste = common.map_or(0, |id| slots.of(id).saturating_sub(taken));
        let placement = Placement { shares, spans, common, waste, score: None, exact: true };
        let key = locality(&eligible.view(slots), ask, &placement);
        let fit = fit(slots, fabric, &placement);
        Some(PlacedComponent { allowed: false, locality: key, fit, seat: Seat { placement, parts } })
    }

    /// What a member sees.
    fn slots(&self, member: usize, bounds: Bounds<'_>) -> Slots {
        let Member { eligible, need, .. } = &self.members[member];
        let (fabric, open) = (&eligible.fabric, &self.open[member]);
        let mut slots = Slots::none(fabric, need.counts_whole_nodes());
        match bounds {
            Bounds::Within(None) => return open.clone(),
            Bounds::Within(within) => {
                slots.refill(fabric, positions(fabric, within).map(|pos| (pos, open.at(pos))));
            }
            Bounds::Shares(shares) => slots.refill(fabric, shares.iter().copied()),
        }
        slots
    }

    pub(super) fn slots_on(&mut self, member: usize, node: NodeId) -> u32 {
        let Some(room) = self.left[member][node.index()] else { return 0 };
        let known = &mut self.known[member];
        if known.len() <= room.index() {
            known.resize(self.rooms.len(), UNKNOWN);
        }
        if known[room.index()] == UNKNOWN {
            let shape = self.rooms.shape(self.rooms.class_of(room));
            known[room.index()] = self.members[member].need.slots(shape, self.rooms.amount(room));
        }
        known[room.index()]
    }

    /// Where a member goes if it is confined so, given those that have been placed.
    fn try_one(&mut self, member: usize, bounds: Bounds<'_>) -> Option<PlacedComponent> {
        self.try_up_to(member, bounds, u32::MAX)
    }

    /// Tries to place a member on so many nodes at most.
    fn try_up_to(&mut self, member: usize, bounds: Bounds<'_>, most: u32) -> Option<PlacedComponent> {
        let members = self.members;
        let Member { eligible, asks, occupied, .. } = &members[member];
        let cost = cost(&members[member], &bounds);
        if self.is_spent() || self.budget < cost {
            self.exact = false;
            return None;
        }
        self.take(cost);
        let fabric = &eligible.fabric;
        let slots = self.slots(member, bounds);
        let occupied = occupied.as_ref().map(|occupied| {
            let mut occupied = occupied.clone();
            occupied.grow(fabric.len());
            used(&self.placed)
                .filter_map(|node| fabric.pos(node))
                .for_each(|pos| occupied.insert(pos.index()));
            occupied
        });
        let view = View { occupied: occupied.as_ref(), budget: self.shared, ..eligible.view(&slots) };
        let mut missed = true;
        let (ask, placement) = asks
            .iter()
            .filter_map(|ask| match ask.nodes {
                Some((least, _)) if least > most => None,
                Some((least, largest)) if largest > most => {
                    Some(Cow::Owned(Ask { nodes: Some((least, most)), ..ask.clone() }))
                }
                Some(_) | None => Some(Cow::Borrowed(ask)),
            })
            .find_map(|ask| match place::place(&view, &ask) {
                Ok(placement) => Some((ask, placement)),
                Err(misfit) => {
                    missed &= misfit.exact;
                    None
                }
            })
            .or_else(|| {
                self.exact &= missed;
                None
            })?;
        self.exact &= placement.exact;
        let key = locality(&view, &ask, &placement);
        // What is left over is counted in all there is, not in what was allowed.
        let fit = fit(&self.open[member], fabric, &placement);
        let parts = self.parts(member, &placement.shares)?;
        Some(PlacedComponent { allowed: true, locality: key, fit, seat: Seat { placement, parts } })
    }

    /// What a placement takes of each node, and the nodes that it closes to others.
    fn parts(&mut self, member: usize, shares: &[(Pos, u32)]) -> Option<Vec<Part>> {
        let Member { eligible, need, asks, .. } = &self.members[member];
        let mut parts = Vec::with_capacity(shares.len());
        for (pos, slots) in shares {
            let node = eligible.fabric.node(*pos);
            let room = self.left[member][node.index()]?;
            let shape = self.rooms.shape(self.rooms.class_of(room));
            let taken = need.takes(shape, self.rooms.amount(room), *slots)?;
            parts.push(Part { node, slots: *slots, taken: (&*taken).into() });
        }
        if asks.first().is_some_and(|ask| ask.whole_leaves) {
            self.inventory.close_leaves(&eligible.fabric, &mut parts);
        }
        Some(parts)
    }

    /// Gives a member its place; what to put back when it is taken out again.
    fn enter(&mut self, member: usize, option: PlacedComponent) -> Vec<Undo> {
        let mut undo = Vec::new();
        for part in &option.seat.parts {
            for other in member + 1..self.members.len() {
                let before = self.left[other][part.node.index()];
                let after = before.map(|room| self.rooms.minus(room, &part.taken));
                undo.push((other, part.node, before));
                self.leave(other, part.node, after);
            }
        }
        self.placed.push(option);
        undo
    }

    fn restore(&mut self, undo: Vec<Undo>) {
        for (member, node, room) in undo.into_iter().rev() {
            self.leave(member, node, room);
        }
    }

    /// Leaves a member so much of a node.
    fn leave(&mut self, member: usize, node: NodeId, room: Option<RoomId>) {
        self.left[member][node.index()] = room;
        let eligible = self.members[member].eligible;
        if let Some(pos) = eligible.position(node) {
            let slots = self.slots_on(member, node);
            self.open[member].set(&eligible.fabric, pos, slots);
        }
    }

    /// All members where they are now.
    fn found(&self) -> JointPlacement {
        let near = if self.prefer.is_empty() {
            Vec::new()
        } else {
            let fabric = &self.members[0].eligible.fabric;
            let mut positions: Vec<Pos> = used(&self.placed).filter_map(|node| fabric.pos(node)).collect();
            positions.sort_unstable();
            positions.dedup();
            let spans = fabric.spans(&positions);
            self.prefer.iter().map(|layer| spans[layer.index()]).collect()
        };
        JointPlacement { near, placed: self.placed.clone() }
    }
}

/// Nodes that are used by some components, without those that are only closed to others.
fn used(placed: &[PlacedComponent]) -> impl Iterator<Item = NodeId> + '_ {
    let parts = placed.iter().flat_map(|placed| &placed.seat.parts);
    parts.filter(|part| part.slots > 0).map(|part| part.node)
}

/// What one try costs: the positions that are looked at, and what comes with it for every domain.
fn cost(member: &Member<'_>, bounds: &Bounds<'_>) -> u64 {
    let fabric = &member.eligible.fabric;
    let positions = match bounds {
        Bounds::Within(None) => fabric.len(),
        Bounds::Within(Some(within)) => within.count_ones(..),
        Bounds::Shares(shares) => shares.len(),
    };
    (positions + fabric.domains().size_hint().0 / 8) as u64 + 20
}

/// The positions of a fabric, within some of them.
pub(super) fn positions(fabric: &Fabric, within: Option<&FixedBitSet>) -> impl Iterator<Item = Pos> {
    let all = if within.is_none() { fabric.len() } else { 0 };
    within.into_iter().flat_map(FixedBitSet::ones).chain(0..all).map(Pos::at)
}

/// The best first, each once.
fn in_order(mut options: Vec<PlacedComponent>) -> Vec<PlacedComponent> {
    options.sort_by_cached_key(|one| (one.locality.clone(), one.fit.clone(), shares_of(one).to_vec()));
    options.dedup_by(|a, b| shares_of(a) == shares_of(b));
    options
}

/// Lists every way to share out an amount over positions.
struct Shares<'a> {
    room: &'a [(Pos, u32)],
    /// On exactly so many nodes, if that is known.
    nodes: Option<u32>,
    found: Vec<Vec<(Pos, u32)>>,
    chosen: Vec<(Pos, u32)>,
}

impl Shares<'_> {
    /// Shares `amount` out over the positions from the `at`-th on; whether all ways were listed.
    fn list(&mut self, at: usize, amount: u32) -> bool {
        if amount == 0 {
            if self.nodes.is_none_or(|nodes| nodes as usize == self.chosen.len()) {
                self.found.push(self.chosen.clone());
            }
            return self.found.len() < MOST_SHARES;
        }
        let Some((pos, slots)) = self.room.get(at).copied() else { return true };
        if self.nodes.is_some_and(|nodes| self.chosen.len() >= nodes as usize) {
            return true;
        }
        let rest: u64 = self.room[at..].iter().map(|(_, slots)| u64::from(*slots)).sum();
        if rest < u64::from(amount) {
            return true;
        }
        for share in (0..=slots.min(amount)).rev() {
            if share > 0 {
                self.chosen.push((pos, share));
            }
            let all = self.list(at + 1, amount - share);
            if share > 0 {
                self.chosen.pop();
            }
            if !all {
                return false;
            }
        }
        true
    }
}
