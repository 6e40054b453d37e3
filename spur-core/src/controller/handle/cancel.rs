//! Cancel jobs: pending ones end at once, running ones are ended on their nodes.

use super::super::{Ctx, Reject, Reply, ending};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Outcome, Phase, Then};
use crate::model::reason::Reason;
use crate::text::jobid::JobRef;
use crate::text::time::Time;

/// What cancelling means for one job.
pub(super) enum Decision {
    Pending,
    Running,
    /// It is ending already, and was going to wait again: now it ends.
    Ending {
        kill_at: Option<Time>,
    },
}

pub(super) fn check(cluster: &Cluster, caller: &Caller, jobs: &[JobRef<JobId>]) -> Sorted<Decision> {
    sort_whole(cluster, caller, jobs, |job| match &job.phase {
        Phase::Pending(_) => Ok(Decision::Pending),
        Phase::Running { .. } | Phase::Suspended(_) => Ok(Decision::Running),
        Phase::Completing(completing) if matches!(completing.then, Then::Requeue { .. }) => {
            Ok(Decision::Ending { kill_at: completing.kill_at })
        }
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
    })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, by: u32, decision: Sorted<Decision>) -> Reply {
    let outcome = || Outcome { by: Some(by), ..ending::outcome(EndState::Cancelled, Reason::None) };
    for (target, decision) in decision.doable {
        let job = target.single_out(ctx);
        match decision {
            Decision::Pending => ending::end_pending(ctx, job, outcome()),
            Decision::Running => ending::begin(ctx, job, outcome(), Then::End),
            Decision::Ending { kill_at } if waits_again(ctx.cluster(), job) => {
                let then = Then::End;
                ctx.emit(Event::JobEnding {
                    job,
                    outcome: outcome(),
                    then,
                    kill_at,
                    epilog: false,
                    seen: None,
                });
            }
            // Another component of the same het job has seen to it.
            Decision::Ending { .. } => {}
        }
    }
    Sorted::<Decision>::reply(decision.problems)
}

/// Whether a job is ending an attempt that another shall follow.
fn waits_again(cluster: &Cluster, id: JobId) -> bool {
    let phase = cluster.job(id).map(|job| &job.phase);
    matches!(phase, Some(Phase::Completing(completing)) if matches!(completing.then, Then::Requeue { .. }))
}
