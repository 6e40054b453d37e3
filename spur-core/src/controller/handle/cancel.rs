//! Cancelling jobs: pending ones end at once, running ones are ended on their nodes.

use super::super::{Ctx, Reject, Reply, ending};
use super::target::{Sorted, sort_whole};
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::{EndState, Outcome, Phase, Then};
use crate::model::reason::Reason;
use crate::text::jobid::JobRef;
use crate::text::time::Time;

/// The effect of cancelling on one job.
pub(super) enum Decision {
    Pending,
    Running,
    /// The job is ending an attempt and would be requeued; it is finished instead.
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
            // Cancelling another component of the het job has already changed this one.
            Decision::Ending { .. } => {}
        }
    }
    Sorted::<Decision>::reply(decision.problems)
}

/// True if a job is ending an attempt and will be requeued.
fn waits_again(cluster: &Cluster, id: JobId) -> bool {
    let phase = cluster.job(id).map(|job| &job.phase);
    matches!(phase, Some(Phase::Completing(completing)) if matches!(completing.then, Then::Requeue { .. }))
}
