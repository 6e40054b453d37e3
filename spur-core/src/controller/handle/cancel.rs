//! Cancel jobs: pending ones end at once, running ones are ended on their nodes.

use super::super::{Ctx, Reject, Reply, ending};
use super::{Sorted, jobs_reply, owned, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Outcome, Phase, Then};
use crate::model::reason::Reason;
use crate::text::time::Time;

/// What cancelling means for one job.
pub(super) enum Decision {
    Pending(JobId),
    Running(JobId),
    /// It is ending already, and was going to wait again: now it ends.
    Ending {
        id: JobId,
        kill_at: Option<Time>,
    },
}

pub(super) fn check(cluster: &Cluster, caller: &Caller, jobs: &[JobId]) -> Sorted<Decision> {
    sort_whole(cluster, jobs, |id| match &owned(cluster, caller, id)?.phase {
        Phase::Pending(_) => Ok(Decision::Pending(id)),
        Phase::Running { .. } => Ok(Decision::Running(id)),
        Phase::Completing(completing) if matches!(completing.then, Then::Requeue { .. }) => {
            Ok(Decision::Ending { id, kill_at: completing.kill_at })
        }
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, by: u32, decision: Sorted<Decision>) -> Reply {
    let outcome = || Outcome { by: Some(by), ..ending::outcome(EndState::Cancelled, Reason::None) };
    for job in decision.doable {
        match job {
            Decision::Pending(id) => ending::end_pending(ctx, id, outcome()),
            Decision::Running(id) => ending::begin(ctx, id, outcome(), Then::End),
            Decision::Ending { id, kill_at } if waits_again(ctx.cluster(), id) => {
                ctx.emit(Event::JobEnding { job: id, outcome: outcome(), then: Then::End, kill_at });
            }
            // Another component of the same het job has seen to it.
            Decision::Ending { .. } => {}
        }
    }
    jobs_reply(decision.problems)
}

/// Whether a job is ending an attempt that another shall follow.
fn waits_again(cluster: &Cluster, id: JobId) -> bool {
    let phase = cluster.job(id).map(|job| &job.phase);
    matches!(phase, Some(Phase::Completing(completing)) if matches!(completing.then, Then::Requeue { .. }))
}
