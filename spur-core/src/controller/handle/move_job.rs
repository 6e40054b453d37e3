//! Let a running job wait again for other nodes, which are kept for it.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, ending};
use super::{preempt, start};
use crate::cluster::{Cluster, Event, FeatureLevel};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::nomination::Nomination;
use crate::model::phase::{EndState, Then};
use crate::model::reason::Reason;
use crate::sched::defrag;
use crate::sched::plan::Start;
use crate::text::time::Time;

pub(super) struct Decision {
    job: JobId,
    nomination: Arc<Nomination>,
}

/// Checks that the attempt still runs and may be requeued, and that its new nodes have room for it once it
/// has ended, together with the attempts that end already.
///
/// # Errors
/// The caller is no operator, or the move was planned on another state of the cluster.
pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    proposed: &Start,
) -> Result<Decision, Reject> {
    // An older program drops the nodes that are kept for a job that is still ending.
    cluster.has_level(FeatureLevel(2), "spur defrag --apply")?;
    let id = proposed.attempt.job;
    let stale = |what: &str| Err(Reject::Stale(format!("job {id}: {what}")));
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let Some(job) = cluster.job(id).filter(|job| job.attempt() == proposed.attempt) else {
        return stale("there is no such attempt");
    };
    if !defrag::may_move(cluster, job) {
        return stale("it does not run any more, or may not be requeued");
    }
    let partition = start::may_run(cluster, now, job, proposed)?;
    if !preempt::has_room_elsewhere(cluster, id, proposed) {
        return stale("its new nodes are not free");
    }
    let nomination = Nomination {
        partition: Arc::clone(partition.name()),
        reservation: None,
        parts: proposed.parts.clone().into_boxed_slice(),
        exclusive: proposed.exclusive,
        why: proposed.why.clone(),
        detail: "its last attempt made room for another job; nodes are kept for it".into(),
        place: None,
        victims: Box::new([proposed.attempt]),
    };
    Ok(Decision { job: id, nomination: Arc::new(nomination) })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { job, nomination } = decision;
    let outcome = ending::outcome(EndState::Preempted, Reason::None);
    ending::begin(ctx, job, outcome, Then::Requeue { hold: None });
    ctx.emit(Event::JobNominated { job, nomination });
    Reply::Done
}
