//! The first promised start of the job at the head of the queue.

use super::super::{Ctx, Reject, Reply};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::phase::Phase;
use crate::text::time::Time;

pub(super) struct Decision {
    job: JobId,
    start: Time,
}

/// Accepts only the first promise of a job; later plans may be better, never worse.
pub(super) fn check(cluster: &Cluster, id: JobId, start: Time) -> Result<Decision, Reject> {
    let job = cluster.job(id).ok_or(Reject::InvalidJobId)?;
    match (&job.phase, job.promised) {
        (Phase::Pending(_), None) => Ok(Decision { job: id, start }),
        _ => Err(Reject::Stale(format!("job {id} needs no promise"))),
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: &Decision) -> Reply {
    ctx.emit(Event::StartPromised { job: decision.job, start: decision.start });
    Reply::Done
}
