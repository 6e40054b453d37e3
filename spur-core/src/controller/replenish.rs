//! Gives reservations idle nodes for those that are out of service, or, with `REPLACE`, taken by jobs.
//!
//! [`settle`] runs after everything that happens, so a node is replaced at once if there is an idle one, or else as soon
//! as there is. Jobs that run on what leaves a reservation run on, and end with it all the same.

use std::sync::Arc;

use super::Ctx;
use crate::cluster::Event;
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

/// Whether a node may have gone out of service or come back, been taken or become idle, or been reserved or not any more.
fn bears_on_nodes(event: &Event) -> bool {
    match event {
        Event::PolicyChanged { .. }
        | Event::JobStarted { .. }
        | Event::NodeReleased { .. }
        | Event::JobNodeLost { .. }
        | Event::JobNodesReplaced { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeCleaned { .. }
        | Event::NodeDowned { .. }
        | Event::NodeDrained { .. }
        | Event::NodeResumed { .. }
        | Event::NodeMended { .. }
        | Event::PowerChanged { .. }
        | Event::NodeUpdated { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::NominationDropped { .. }
        | Event::ReservationCreated { .. }
        | Event::ReservationUpdated { .. }
        | Event::ReservationDeleted { .. } => true,
        Event::HistoryBegun { .. }
        | Event::ReignBegun { .. }
        | Event::JournalDoubted { .. }
        | Event::ClockSet { .. }
        | Event::ForeignDropped { .. }
        | Event::JobSubmitted { .. }
        | Event::TasksSplit { .. }
        | Event::HetJobSubmitted { .. }
        | Event::JobUpdated { .. }
        | Event::JobHeld { .. }
        | Event::JobReleased { .. }
        | Event::StartPromised { .. }
        | Event::JobNominated { .. }
        | Event::JobPreempted { .. }
        | Event::JobSuspended { .. }
        | Event::JobRecalled { .. }
        | Event::CpusReturned { .. }
        | Event::JobResumed { .. }
        | Event::JobWarned { .. }
        | Event::PrologEnded { .. }
        | Event::EpilogEnded { .. }
        | Event::TimeUsed { .. }
        | Event::JobEnding { .. }
        | Event::JobKilled { .. }
        | Event::JobEnded { .. }
        | Event::JobRequeued { .. }
        | Event::JobsForgotten { .. }
        | Event::StepStarted { .. }
        | Event::StepCancelled { .. }
        | Event::StepNodeEnded { .. }
        | Event::BatchEnded { .. }
        | Event::NodesMoved { .. }
        | Event::PartitionSet { .. }
        | Event::PartitionEdited { .. }
        | Event::PartitionDeleted { .. } => false,
    }
}
