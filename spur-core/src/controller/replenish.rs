//! Gives reservations idle nodes for those that are out of service, or, with `REPLACE`, taken by jobs.
//!
//! [`settle`] runs after everything that happens, so a node is replaced at once if there is an idle one, or else as soon
//! as there is. Jobs that run on what leaves a reservation run on, and end with it all the same.

use std::sync::Arc;

use super::Ctx;
use crate::cluster::{Event, Scope};
use crate::model::reservation::Reservation;
use crate::sched::site;

/// Replaces what is to be replaced, if anything has happened that bears on it.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    let mut wanting = ctx.cluster().reservations().filter(|kept| kept.is_replenished()).peekable();
    if wanting.peek().is_none() || !ctx.entries.iter().any(|entry| bears_on_nodes(&entry.event)) {
        return;
    }
    for kept in wanting.cloned().collect::<Vec<_>>() {
        if let Some(nodes) = site::replenished(ctx.cluster(), ctx.now(), &kept) {
            let known = Reservation::clone(&kept);
            let reservation = Arc::new(Reservation { nodes: nodes.into(), ..known });
            ctx.emit(Event::ReservationUpdated { reservation });
        }
    }
}

/// Whether a node may have gone out of service or returned, may have been allocated or released, or may have entered or
/// left a reservation.
fn bears_on_nodes(event: &Event) -> bool {
    match event.scope() {
        Scope::Resources(_) | Scope::Node { .. } | Scope::Layout | Scope::Reservation => true,
        Scope::Journal | Scope::Queue(_) | Scope::Progress(_) | Scope::Accounts | Scope::Usage => false,
    }
}
