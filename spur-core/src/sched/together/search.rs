//! The search for a way to place all components within some positions.
//!
//! First each component in turn is placed where it is best for it. If none is less local than it would be
//! alone, no way is better. Otherwise each is confined to one domain after another, and then, as far as the
//! budget allows, to every set of nodes and shares that would do.

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

/// A number of slots that is not computed yet.
const UNKNOWN: u32 = u32::MAX;
/// Number of positions that take as long as one step of a placement.
const POSITIONS_FOR_STEP: usize = 8;
/// The largest number of sets of nodes and shares that are tried for one component.
const MOST_SHARES: usize = 4_096;
/// The largest number of positions with free slots for which these sets are tried.
const MOST_POSITIONS: usize = 64;

/// A placed component, with the keys for comparison.
#[derive(Clone, Debug)]
pub(super) struct PlacedComponent {
    /// True if the placement is known to be allowed; otherwise only its slots are known to be free.
    allowed: bool,
    locality: Vec<i64>,
    fit: Vec<u64>,
    pub(super) seat: Seat,
}

/// All components placed, with the keys for comparison.
#[derive(Clone, Debug)]
pub(super) struct JointPlacement {
    /// Number of domains of each preferred layer that the components use together.
    pub(super) near: Vec<u32>,
    pub(super) placed: Vec<PlacedComponent>,
}

impl JointPlacement {
    /// True if this way comes before another.
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

/// The amount that a component takes of each position.
fn shares_of(placed: &PlacedComponent) -> &[(Pos, u32)] {
    &placed.seat.placement.shares
}

/// The locality of each component.
fn localities(placed: &[PlacedComponent]) -> impl Iterator<Item = &Vec<i64>> {
    placed.iter().map(|placed| &placed.locality)
}

/// The bounds on the nodes of a component.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// The component is confined to some positions, or not confined.
    Within(Option<&'a FixedBitSet>),
    /// The component takes exactly these shares.
    Shares(&'a [(Pos, u32)]),
}

/// The state of a search.
pub(super) struct JointSearch<'a, 'r> {
    pub(super) inventory: &'a Inventory,
    pub(super) rooms: &'r mut Rooms,
    pub(super) members: &'a [Member<'a>],
    pub(super) prefer: Vec<Layer>,
    /// For each member and node, the amount that the placed members leave.
    pub(super) left: Vec<Vec<Option<RoomId>>>,
    /// The slots of every member on what is free.
    open: Vec<Slots>,
    /// For each member, the slots of every amount.
    known: Vec<Vec<u32>>,
    placed: Vec<PlacedComponent>,
    /// The localities of a known way, which a new one must not exceed.
    worst: Option<Vec<Vec<i64>>>,
    pub(super) budget: u64,
    /// The budget that this search shares with others.
    shared: Option<&'a SharedBudget>,
    /// True if nothing was left out so far.
    pub(super) exact: bool,
}

/// A member and a node, with the amount to restore.
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

    /// Skips from now on every way that is less local than the one found, if no layer is preferred.
    pub(super) fn beat(&mut self, found: &JointPlacement) {
        self.worst = self.prefer.is_empty().then(|| localities(&found.placed).cloned().collect());
    }

    /// The fabric that nearness refers to.
    pub(super) fn fabric(&self) -> std::sync::Arc<Fabric> {
        std::sync::Arc::clone(&self.members[0].eligible.fabric)
    }

    /// True if every member by itself has enough slots and nodes within some positions.
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

    /// The best way to place all members within some positions; `None` if there is none, or only one that is
    /// less local than `worst`.
    pub(super) fn assign(&mut self, within: Option<&FixedBitSet>) -> Option<JointPlacement> {
        if !self.may_hold_all(within) {
            return None;
        }
        // Whatever is left of the budget, every component has one try.
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

    /// True if trying domains has covered every way that might be more local than `best`. Every member but
    /// the last must have whole nodes of one leaf, and the nodes of a leaf must be alike for all members.
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

    /// True if each member has the same amount on all usable nodes of a leaf.
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

    /// Places each component in turn where it is best for it.
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

    /// Tries the options of the next member, the best first, and continues with the member after it.
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
                // The later options are no better.
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

    /// True if the members after this one still have enough, by counts, beside its placement.
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

    /// Placements of a member: anywhere, and in each domain.
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
            // Also with as many nodes as the later members leave if each takes its fewest, and with its own
            // fewest.
            let others = self.members[member + 1..].iter().map(|other| range(other).0);
            let others = others.fold(0, u32::saturating_add);
            let left = u32::try_from(slots.nodes()).unwrap_or(u32::MAX).saturating_sub(others);
            for most in [left.max(least), least] {
                options.extend(self.try_up_to(member, Bounds::Within(within), most));
            }
        }
        let ids: Vec<_> = fabric.domains().map(|(id, _)| id).collect();
        let all = slots.nodes();
        // A domain with all nodes adds nothing new.
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

    /// The positions that this member may use and later members may not: for each later member with fewer
    /// nodes, and for all of them.
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

    /// Every placement of a member, as long as there are few.
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

    /// True if the shared budget is used up.
    fn is_spent(&self) -> bool {
        self.shared.is_some_and(SharedBudget::is_spent)
    }

    /// A member with given shares, which may not be allowed.
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

    /// The slots of a member within bounds.
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

    /// The placement of a member within bounds, beside the placed members; `None` if there is none.
    fn try_one(&mut self, member: usize, bounds: Bounds<'_>) -> Option<PlacedComponent> {
        self.try_up_to(member, bounds, u32::MAX)
    }

    /// The placement of a member on at most `most` nodes.
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
        // Leftovers are counted over everything free, not over the allowed positions.
        let fit = fit(&self.open[member], fabric, &placement);
        let parts = self.parts(member, &placement.shares)?;
        Some(PlacedComponent { allowed: true, locality: key, fit, seat: Seat { placement, parts } })
    }

    /// The amounts that a placement takes of each node, and the nodes that it closes.
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

    /// Places a member. Returns the amounts to restore when it is removed.
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

    /// Sets the amount that a member has left on a node.
    fn leave(&mut self, member: usize, node: NodeId, room: Option<RoomId>) {
        self.left[member][node.index()] = room;
        let eligible = self.members[member].eligible;
        if let Some(pos) = eligible.position(node) {
            let slots = self.slots_on(member, node);
            self.open[member].set(&eligible.fabric, pos, slots);
        }
    }

    /// The way with all members as they are placed.
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

/// Nodes that components use, without those that are only closed.
fn used(placed: &[PlacedComponent]) -> impl Iterator<Item = NodeId> + '_ {
    let parts = placed.iter().flat_map(|placed| &placed.seat.parts);
    parts.filter(|part| part.slots > 0).map(|part| part.node)
}

/// The cost of one try: the positions, and an overhead for every domain.
fn cost(member: &Member<'_>, bounds: &Bounds<'_>) -> u64 {
    let fabric = &member.eligible.fabric;
    let positions = match bounds {
        Bounds::Within(None) => fabric.len(),
        Bounds::Within(Some(within)) => within.count_ones(..),
        Bounds::Shares(shares) => shares.len(),
    };
    (positions + fabric.domains().size_hint().0 / 8) as u64 + 20
}

/// The positions of a fabric, or those within a set.
pub(super) fn positions(fabric: &Fabric, within: Option<&FixedBitSet>) -> impl Iterator<Item = Pos> {
    let all = if within.is_none() { fabric.len() } else { 0 };
    within.into_iter().flat_map(FixedBitSet::ones).chain(0..all).map(Pos::at)
}

/// Sorts options, the best first, and removes duplicates.
fn in_order(mut options: Vec<PlacedComponent>) -> Vec<PlacedComponent> {
    options.sort_by_cached_key(|one| (one.locality.clone(), one.fit.clone(), shares_of(one).to_vec()));
    options.dedup_by(|a, b| shares_of(a) == shares_of(b));
    options
}

/// Lists every way to share an amount out over positions.
struct Shares<'a> {
    room: &'a [(Pos, u32)],
    /// The exact number of nodes, if it is given.
    nodes: Option<u32>,
    found: Vec<Vec<(Pos, u32)>>,
    chosen: Vec<(Pos, u32)>,
}

impl Shares<'_> {
    /// Shares `amount` out over the positions from index `at` on. Returns whether all ways were listed.
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
