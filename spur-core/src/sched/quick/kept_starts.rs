//! Later starts of the last deep pass, kept from quick pass to quick pass as long as they are valid.
//!
//! The kept starts are those that [`Walk::keep`] would keep, which checks all of them in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::NodeId;
use crate::sched::pass::Kept;
use crate::sched::pass::walk::Walk;
use crate::sched::planned_starts::{Reservation, Reservations, Turn};
use crate::sched::queue::pending_order::{Changes, PendingOrder};
use crate::sched::timeline::licenses::wanted;

use super::Memory;
use super::ahead::Claim;
use super::ledger::Ledger;

impl Memory {
    /// Keeps the later starts of earlier passes that are still valid. Returns whether any was dropped or
    /// moved.
    pub(super) fn keep(
        &mut self,
        walk: &mut Walk<Ledger>,
        known: Reservations,
        (cluster, line, changes): (&Cluster, &PendingOrder, &Changes),
        touched: &BTreeSet<NodeId>,
    ) -> bool {
        if std::mem::take(&mut self.replanned) {
            walk.space.forget(cluster);
            walk.keep(line, &known);
            return true;
        }
        let now = walk.space.books.now;
        let mut doubtful: BTreeSet<Turn> = known.begun(now).collect();
        let moved = changes.arrived.iter().chain(&changes.left);
        doubtful.extend(moved.flat_map(|job| known.of_job(*job)));
        for node in touched {
            let claims = walk.space.books.ahead.on(*node);
            if claims.iter().any(Claim::is_short) {
                doubtful.extend(claims.iter().map(|claim| claim.turn));
            }
        }
        if !walk.space.books.licenses.is_empty() {
            let wants = known.iter().filter(|made| !wanted(&made.spec).is_empty());
            doubtful.extend(wants.map(|made| made.turn));
        }
        walk.known = known;
        walk.kept = std::mem::take(&mut self.kept);
        check(walk, line, &doubtful)
    }
}

/// Checks again the starts that may be invalid, and the starts that these affect. Returns whether any was
/// dropped or moved.
fn check(walk: &mut Walk<Ledger>, line: &PendingOrder, doubtful: &BTreeSet<Turn>) -> bool {
    let mut left: BTreeMap<Turn, Arc<Reservation>> = BTreeMap::new();
    for turn in doubtful {
        doubt(walk, &mut left, turn);
    }
    let mut changed = false;
    while let Some((turn, first)) = left.pop_first() {
        let mut all = vec![(turn, first)];
        while let Some(next) = left.first_entry().filter(|next| next.get().is_together_with(&all[0].1)) {
            all.push(next.remove_entry());
        }
        let made: Vec<&Arc<Reservation>> = all.iter().map(|(_, made)| made).collect();
        let kept = walk.keep_together(line, &made);
        changed |= kept != Kept::Yes;
        if kept == Kept::Moved {
            let last = all.last().map_or(turn, |(last, _)| *last);
            let nodes = made.iter().flat_map(|made| &made.parts).map(|part| part.node);
            let claims = nodes.flat_map(|node| walk.space.books.ahead.on(node));
            let behind: BTreeSet<Turn> =
                claims.map(|claim| claim.turn).filter(|later| *later > last).collect();
            behind.iter().for_each(|later| doubt(walk, &mut left, later));
        }
    }
    changed
}

/// Takes a later start out to check it again, with the starts that begin together with it.
fn doubt(walk: &mut Walk<Ledger>, left: &mut BTreeMap<Turn, Arc<Reservation>>, turn: &Turn) {
    for turn in walk.known.together_with(turn) {
        left.extend(walk.give_up(&turn).map(|made| (turn, made)));
    }
}
