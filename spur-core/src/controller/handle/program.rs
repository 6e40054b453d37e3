//! The controller's prolog or epilog of an attempt has ended.
//!
//! A job whose prolog has failed is queued again, or cancelled where it may not be: the next failures hold it, as those
//! of its nodes do. An epilog that has failed changes nothing; the shell says so in its log.

use super::super::{Ctx, Program, Reject, Reply, ending};
use crate::cluster::{Cluster, Event};
use crate::id::{Attempt, JobId};
use crate::model::phase::{EndState, Outcome, Then};
use crate::model::reason::Reason;

/// What has ended was waited for.
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
