//! Changes of the cluster's clock. If the wall clock is set, the times that people gave keep their meaning on
//! the wall.

use std::sync::Arc;

use super::super::command::Command;
use super::super::{Ctx, Reply};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::change::JobChange;
use crate::model::clock::Clock;
use crate::model::job::JobSpec;
use crate::model::phase::Phase;
use crate::model::reservation::{Reservation, ReservationAsk};
use crate::text::time::Time;

/// The changes that follow from another clock.
pub(super) struct Decision {
    clock: Clock,
    jobs: Vec<(JobId, Arc<JobSpec>)>,
    reservations: Vec<Arc<Reservation>>,
    /// Time of the next reset of usage, if it changes.
    reset: Option<Time>,
}

pub(super) fn check(cluster: &Cluster, clock: Clock) -> Decision {
    let known = cluster.clock();
    let moved = |time: Time| clock.own(known.wall(time));
    let (mut jobs, mut reservations, mut reset) = (Vec::new(), Vec::new(), None);
    if known.ahead != clock.ahead {
        reset = cluster.usage().next_reset().map(moved);
        let over = |phase: &Phase| matches!(phase, Phase::Ended(_));
        for job in cluster.jobs().iter().filter(|job| !over(&job.phase)) {
            if job.spec.begin.is_some() || job.spec.deadline.is_some() {
                let mut spec = JobSpec::clone(&job.spec);
                spec.begin = spec.begin.map(moved);
                spec.deadline = spec.deadline.map(moved);
                jobs.push((job.id, Arc::new(spec)));
            }
        }
        // A floating reservation, always ahead by the same time, has no wall-clock time.
        for kept in cluster.reservations().filter(|kept| kept.lead.is_none()) {
            let utc_offset = zone(kept.utc_offset, clock.ahead - known.ahead);
            let (start, end) = (moved(kept.start), moved(kept.end));
            reservations.push(Arc::new(Reservation { start, end, utc_offset, ..Reservation::clone(kept) }));
        }
    }
    Decision { clock, jobs, reservations, reset }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { clock, jobs, reservations, reset } = decision;
    ctx.emit(Event::ClockSet { clock });
    if let Some(at) = reset {
        let zone = Arc::clone(ctx.cluster().usage().zone());
        ctx.emit(Event::ResetPlanned { at: Some(at), zone });
    }
    for (job, spec) in jobs {
        ctx.emit(Event::JobUpdated { job, spec });
    }
    for reservation in reservations {
        ctx.emit(Event::ReservationUpdated { reservation });
    }
    Reply::Done
}

/// The UTC offset that turns a time of the cluster's clock into local wall-clock time.
fn zone(utc_offset: i32, ahead: i64) -> i32 {
    utc_offset.saturating_add(i32::try_from(ahead).unwrap_or(0))
}

/// Converts the wall-clock times in a command to the cluster's clock.
pub(super) fn read(clock: &Clock, command: &mut Command) {
    if clock.ahead == 0 {
        return;
    }
    match command {
        Command::Submit(submission) => {
            for spec in submission.specs_mut() {
                spec.begin = spec.begin.map(|begin| clock.own(begin));
                spec.deadline = spec.deadline.map(|deadline| clock.own(deadline));
            }
        }
        Command::UpdateJob { changes, .. } => {
            for change in changes {
                if let JobChange::Begin(Some(time)) | JobChange::Deadline(Some(time)) = change {
                    *time = clock.own(*time);
                }
            }
        }
        Command::CreateReservation(ask) | Command::UpdateReservation(ask) => {
            let ReservationAsk { start, end, utc_offset, .. } = &mut **ask;
            (*start, *end) = (start.map(|start| clock.own(start)), end.map(|end| clock.own(end)));
            *utc_offset = zone(*utc_offset, clock.ahead);
        }
        _ => {}
    }
}
