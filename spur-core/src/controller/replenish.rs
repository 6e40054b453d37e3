//! Replacement of nodes in reservations: of those out of service or, with `REPLACE`, taken by jobs.
//!
//! [`settle`] runs after every input, so a node is replaced as soon as there is an idle one. Jobs on nodes
//! that leave a reservation run on, but still end with the reservation.

use std::sync::Arc;

use super::Ctx;
use crate::cluster::{Event, Scope};
use crate::model::reservation::Reservation;
use crate::sched::site;

/// Replaces nodes of reservations, if any event concerns nodes.
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

/// True if an event may change the service state or use of a node, or the nodes of a reservation.
fn bears_on_nodes(event: &Event) -> bool {
    match event.scope() {
        Scope::Resources(_) | Scope::Node { .. } | Scope::Layout | Scope::Reservation => true,
        Scope::Journal | Scope::Queue(_) | Scope::Progress(_) | Scope::Accounts | Scope::Usage => false,
    }
}
