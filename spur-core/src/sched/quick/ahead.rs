//! What is planned on the nodes for later, and when they are shut: what lies between a job that would start now and its
//! end.
//!
//! Promises: what a claim leaves of a node is kept up to date with what is held there, as long as
//! [`Ahead::recount`] is called for nodes on which something else is held, and [`Ahead::shrink`] for what starts.

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

/// What is planned of a node for later.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) turn: Turn,
    pub(super) taken: Arc<[u64]>,
    /// What is left of the node when it begins, by all that is held and planned there then; less than nothing where
    /// that is too much.
    left: Left,
}

/// What is left of a node, or how much too little there is.
type Left = SmallVec<[i64; 4]>;

impl Claim {
    fn is_active(&self, at: Time) -> bool {
        self.from <= at && at < self.to
    }

    /// What is left of the node when it begins.
    pub(super) fn left(&self) -> impl Iterator<Item = u64> + '_ {
        self.left.iter().map(|left| u64::try_from(*left).unwrap_or(0))
    }

    /// Whether there is not enough of the node for all that is planned there when it begins.
    pub(super) fn is_short(&self) -> bool {
        self.left.iter().any(|left| *left < 0)
    }
}

/// Claims and windows, by node.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The claims on every node, by their begin.
    claims: Vec<Vec<Claim>>,
    /// Nodes that have any.
    claimed: FixedBitSet,
    /// When nodes are shut in the open realm.
    windows: BTreeMap<NodeId, Vec<(Time, Time)>>,
    /// When that begins or ends somewhere.
    pub(super) bounds: BTreeSet<Time>,
}

impl Ahead {
    /// Nothing, on so many nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let (claims, claimed) = (vec![Vec::new(); nodes], FixedBitSet::with_capacity(nodes));
        Self { claims, claimed, windows: BTreeMap::new(), bounds: BTreeSet::new() }
    }

    /// Looks when nodes are shut; says whether that is another time than was known.
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

    /// Whether a node is shut or open from some time after `from` on, up to `to`, that was not before.
    pub(super) fn turns(&self, from: Time, to: Time) -> bool {
        from < to && self.bounds.range(from + 1..=to).next().is_some()
    }

    /// Plans so much of a node for later.
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

    /// Plans that no longer.
    pub(super) fn drop_claim(&mut self, node: NodeId, turn: Turn) {
        let claims = &mut self.claims[node.index()];
        let Some(at) = claims.iter().position(|claim| claim.turn == turn) else { return };
        let gone = claims.remove(at);
        for claim in claims.iter_mut().filter(|claim| gone.is_active(claim.from)) {
            change(&mut claim.left, &gone.taken, 1);
        }
        self.claimed.set(node.index(), !claims.is_empty());
    }

    /// Plans nothing any more.
    pub(super) fn clear(&mut self) {
        self.claimed.ones().for_each(|node| self.claims[node].clear());
        self.claimed.clear();
    }

    /// So much of a node is taken from now on until a time.
    pub(super) fn shrink(&mut self, node: NodeId, until: Time, taken: &[u64]) {
        let claims = self.claims[node.index()].iter_mut();
        for claim in claims.take_while(|claim| claim.from < until) {
            change(&mut claim.left, taken, -1);
        }
    }

    /// Works out anew what claims leave of a node.
    pub(super) fn recount(&mut self, held: &Held, node: NodeId) {
        let claims = &mut self.claims[node.index()];
        for at in 0..claims.len() {
            claims[at].left = left_at(held, node, claims, claims[at].from);
        }
    }

    /// What is planned on a node, by begin.
    pub(super) fn on(&self, node: NodeId) -> &[Claim] {
        &self.claims[node.index()]
    }

    /// Nodes on which something is planned, with what.
    pub(super) fn claims(&self) -> impl Iterator<Item = (NodeId, &[Claim])> {
        self.claimed.ones().map(|node| (NodeId::at(node), self.claims[node].as_slice()))
    }

    /// When a node is shut.
    pub(super) fn windows(&self, node: NodeId) -> &[(Time, Time)] {
        self.windows.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether a node is shut at some time from `from` to `to`.
    pub(super) fn is_shut(&self, node: NodeId, from: Time, to: Time) -> bool {
        self.windows(node).iter().any(|window| window.0 < to && from < window.1)
    }

    /// The nodes that are shut at some time from `from` to `to`.
    pub(super) fn shut_between(&self, from: Time, to: Time) -> impl Iterator<Item = NodeId> + '_ {
        self.windows.keys().copied().filter(move |node| self.is_shut(*node, from, to))
    }

    /// Nodes of which something is planned, or that are shut at some time, one after another; some may come twice.
    pub(super) fn special(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.claimed.ones().map(NodeId::at).chain(self.windows.keys().copied())
    }

    /// What is left of `room`, which a node has at a time, for all that lasts from then `to` a time.
    pub(super) fn leave(&self, node: NodeId, room: &mut [u64], at: Time, to: Time) {
        // Those that are under way come first.
        for claim in self.on(node).iter().take_while(|claim| claim.from < to) {
            if claim.is_active(at) {
                take(room, &claim.taken);
            } else if claim.from > at {
                room.iter_mut().zip(claim.left()).for_each(|(room, left)| *room = (*room).min(left));
            }
        }
    }

    /// What a node has throughout a stretch of time for one whose turn it is: what is planned in later turns does not
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

/// What is left of a node at a time by what is held there then and by these claims.
fn left_at(held: &Held, node: NodeId, claims: &[Claim], at: Time) -> Left {
    let free = held.at(node, at).into_iter();
    let mut left: Left = free.map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)).collect();
    claims.iter().filter(|claim| claim.is_active(at)).for_each(|claim| change(&mut left, &claim.taken, -1));
    left
}
