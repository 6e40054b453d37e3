//! End of the controller's prolog or epilog of an attempt.
//!
//! A job whose prolog failed is requeued, or cancelled if it may not be; repeated failures hold it, as those
//! of nodes do. A failed epilog changes nothing but the shell's log.

use super::super::{Ctx, Program, Reject, Reply, ending};
use crate::cluster::{Cluster, Event};
use crate::id::{Attempt, JobId};
use crate::model::phase::{EndState, Outcome, Then};
use crate::model::reason::Reason;

/// Refuses the end of a program that nothing waits for.
pub(super) fn check(cluster: &Cluster, attempt: Attempt, program: Program) -> Result<(), Reject> {
    let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt);
    let waited_for = job.is_some_and(|job| match program {
        Program::Prolog => job.configuring.prolog,
        Program::Epilog => job.epilog,
    });
    match waited_for {
        true => Ok(()),
        false => Err(Reject::Stale(format!("job {}: nothing waits for its program", attempt.job))),
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, job: JobId, program: Program, failed: Option<String>) -> Reply {
    match (program, failed) {
        (Program::Prolog, None) => ctx.emit(Event::PrologEnded { job }),
        (Program::Prolog, Some(why)) => {
            let then = ending::after_failure(ctx.cluster(), job);
            let state = match then {
                Then::Requeue { .. } => EndState::NodeFail,
                Then::End => EndState::Cancelled,
            };
            let outcome =
                Outcome { detail: Some(why.into()), ..ending::outcome(state, Reason::JobLaunchFailure) };
            ending::begin(ctx, job, outcome, then);
        }
        (Program::Epilog, _) => {
            ctx.emit(Event::EpilogEnded { job });
            ending::finish(ctx, job);
        }
    }
    Reply::Done
}
