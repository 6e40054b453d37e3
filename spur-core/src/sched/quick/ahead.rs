//! The use of nodes that is planned for later, and the times at which nodes are reserved: everything that may
//! lie between a job that starts now and its end.
//!
//! The amount that a claim leaves of a node is kept up to date. For this, callers use [`Ahead::recount`] for
//! nodes whose held amount has changed, and [`Ahead::shrink`] for starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::id::NodeId;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{Amount, take};
use crate::sched::planned_starts::Turn;
use crate::sched::timeline::held::Held;
use crate::sched::timeline::realm::{OPEN, Realms};
use crate::text::time::Time;

/// A planned later use of a node.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) turn: Turn,
    pub(super) taken: Arc<[u64]>,
    /// The amounts left at the beginning of the claim, beside everything that is held and planned then;
    /// negative if there is too little.
    left: Left,
}

/// The amounts that are left of a node; negative for missing ones.
type Left = SmallVec<[i64; 4]>;

impl Claim {
    fn is_active(&self, at: Time) -> bool {
        self.from <= at && at < self.to
    }

    /// The amounts left at the beginning of the claim, 0 for missing ones.
    pub(super) fn left(&self) -> impl Iterator<Item = u64> + '_ {
        self.left.iter().map(|left| u64::try_from(*left).unwrap_or(0))
    }

    /// True if the node has too little for everything that is planned at the beginning of the claim.
    pub(super) fn is_short(&self) -> bool {
        self.left.iter().any(|left| *left < 0)
    }
}

/// Claims and windows of reservations, by node.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The claims on every node, by beginning.
    claims: Vec<Vec<Claim>>,
    /// Nodes with a claim.
    claimed: FixedBitSet,
    /// The windows in which nodes are shut in the open realm.
    windows: BTreeMap<NodeId, Vec<(Time, Time)>>,
    /// All times at which such a window begins or ends.
    pub(super) bounds: BTreeSet<Time>,
}

impl Ahead {
    /// No claims and no windows, for `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let (claims, claimed) = (vec![Vec::new(); nodes], FixedBitSet::with_capacity(nodes));
        Self { claims, claimed, windows: BTreeMap::new(), bounds: BTreeSet::new() }
    }

    /// Recomputes the windows in which nodes are reserved. Returns whether any window changed.
    pub(super) fn shut(&mut self, inventory: &Inventory, realms: &Realms, now: Time) -> bool {
        let mut windows: BTreeMap<NodeId, Vec<(Time, Time)>> = BTreeMap::new();
        let nodes = inventory.reservations.iter().flat_map(|reservation| &reservation.nodes);
        for node in nodes.copied().collect::<BTreeSet<NodeId>>() {
            let screens = realms.screens(OPEN, node, now);
            let shut = screens.into_iter().map(|screen| (screen.from, screen.to));
            let shut: Vec<(Time, Time)> = shut.filter(|(_, to)| *to > now).collect();
            if !shut.is_empty() {
                windows.insert(node, shut);
            }
        }
        if windows == self.windows {
            return false;
        }
        self.bounds = windows.values().flatten().flat_map(|(from, to)| [*from, *to]).collect();
        self.windows = windows;
        true
    }

    /// True if some window begins or ends after `from` and up to `to`.
    pub(super) fn turns(&self, from: Time, to: Time) -> bool {
        from < to && self.bounds.range(from + 1..=to).next().is_some()
    }

    /// Adds a claim on a node.
    pub(super) fn claim(
        &mut self,
        held: &Held,
        node: NodeId,
        (from, to): (Time, Time),
        turn: Turn,
        taken: &Arc<[u64]>,
    ) {
        self.claimed.insert(node.index());
        let claims = &mut self.claims[node.index()];
        for claim in claims.iter_mut().filter(|claim| from <= claim.from && claim.from < to) {
            change(&mut claim.left, taken, -1);
        }
        let mut left = left_at(held, node, claims, from);
        change(&mut left, taken, -1);
        let at = claims.partition_point(|claim| claim.from <= from);
        claims.insert(at, Claim { from, to, turn, taken: Arc::clone(taken), left });
    }

    /// Removes a claim.
    pub(super) fn drop_claim(&mut self, node: NodeId, turn: Turn) {
        let claims = &mut self.claims[node.index()];
        let Some(at) = claims.iter().position(|claim| claim.turn == turn) else { return };
        let gone = claims.remove(at);
        for claim in claims.iter_mut().filter(|claim| gone.is_active(claim.from)) {
            change(&mut claim.left, &gone.taken, 1);
        }
        self.claimed.set(node.index(), !claims.is_empty());
    }

    /// Removes all claims.
    pub(super) fn clear(&mut self) {
        self.claimed.ones().for_each(|node| self.claims[node].clear());
        self.claimed.clear();
    }

    /// Subtracts what a start takes of a node until `until` from what claims leave.
    pub(super) fn shrink(&mut self, node: NodeId, until: Time, taken: &[u64]) {
        let claims = self.claims[node.index()].iter_mut();
        for claim in claims.take_while(|claim| claim.from < until) {
            change(&mut claim.left, taken, -1);
        }
    }

    /// Recomputes what claims leave of a node.
    pub(super) fn recount(&mut self, held: &Held, node: NodeId) {
        let claims = &mut self.claims[node.index()];
        for at in 0..claims.len() {
            claims[at].left = left_at(held, node, claims, claims[at].from);
        }
    }

    /// The claims on a node, by beginning.
    pub(super) fn on(&self, node: NodeId) -> &[Claim] {
        &self.claims[node.index()]
    }

    /// Nodes with claims, and the claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = (NodeId, &[Claim])> {
        self.claimed.ones().map(|node| (NodeId::at(node), self.claims[node].as_slice()))
    }

    /// The windows in which a node is shut.
    pub(super) fn windows(&self, node: NodeId) -> &[(Time, Time)] {
        self.windows.get(&node).map_or(&[], Vec::as_slice)
    }

    /// True if a node is shut at some time from `from` to `to`.
    pub(super) fn is_shut(&self, node: NodeId, from: Time, to: Time) -> bool {
        self.windows(node).iter().any(|window| window.0 < to && from < window.1)
    }

    /// The nodes that are shut at some time from `from` to `to`.
    pub(super) fn shut_between(&self, from: Time, to: Time) -> impl Iterator<Item = NodeId> + '_ {
        self.windows.keys().copied().filter(move |node| self.is_shut(*node, from, to))
    }

    /// Nodes with claims or windows; some may come twice.
    pub(super) fn special(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.claimed.ones().map(NodeId::at).chain(self.windows.keys().copied())
    }

    /// Reduces `room`, the amount of a node at `at`, to what is left for a job that lasts from then to `to`.
    pub(super) fn leave(&self, node: NodeId, room: &mut [u64], at: Time, to: Time) {
        // Claims are sorted by beginning, so those under way come first.
        for claim in self.on(node).iter().take_while(|claim| claim.from < to) {
            if claim.is_active(at) {
                take(room, &claim.taken);
            } else if claim.from > at {
                room.iter_mut().zip(claim.left()).for_each(|(room, left)| *room = (*room).min(left));
            }
        }
    }

    /// The amount of a node throughout a stretch of time for a job with a turn; claims of later turns do not
    /// count.
    pub(super) fn before(&self, held: &Held, node: NodeId, turn: &Turn, (from, to): (Time, Time)) -> Amount {
        let earlier = || self.on(node).iter().filter(|claim| claim.turn < *turn);
        let begins = earlier().map(|claim| claim.from).filter(|begin| from < *begin && *begin < to);
        let mut least: Option<Amount> = None;
        for at in begins.chain([from]) {
            let mut room = held.at(node, at);
            earlier().filter(|claim| claim.is_active(at)).for_each(|claim| take(&mut room, &claim.taken));
            least = Some(match least {
                Some(least) => least.iter().zip(&room).map(|(one, other)| *one.min(other)).collect(),
                None => room,
            });
        }
        least.unwrap_or_default()
    }
}

fn change(left: &mut [i64], taken: &[u64], sign: i64) {
    for (left, taken) in left.iter_mut().zip(taken) {
        *left += sign * i64::try_from(*taken).unwrap_or(i64::MAX);
    }
}

/// The amounts left of a node at a time, beside what is held and these claims.
fn left_at(held: &Held, node: NodeId, claims: &[Claim], at: Time) -> Left {
    let free = held.at(node, at).into_iter();
    let mut left: Left = free.map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)).collect();
    claims.iter().filter(|claim| claim.is_active(at)).for_each(|claim| change(&mut left, &claim.taken, -1));
    left
}
