//! Set comments and derived exit codes of jobs, also of those that have ended and left memory.

use super::super::command::Annotated;
use super::super::{Ctx, Reject, Reply};
use crate::cluster::{Cluster, Event};
use crate::model::caller::Caller;
use crate::model::note::JobNote;

/// Operators may set everything; users may set the comment and the derived exit code of their own jobs.
///
/// # Errors
/// There is nothing to set, no job is named, the caller lacks the right, or the cluster's feature level is
/// too low.
pub fn check(cluster: &Cluster, caller: &Caller, runs: &[Annotated], note: &JobNote) -> Result<(), Reject> {
    if note.is_empty() {
        return Err(Reject::Accounts(" You didn't give me anything to set".to_owned()));
    }
    if runs.is_empty() {
        return Err(Reject::NothingToDo(" Nothing modified".to_owned()));
    }
    for Annotated { run, .. } in runs {
        cluster.allows(&Event::JobAnnotated { job: run.job, restarts: run.restart, note: note.clone() })?;
    }
    let is_own = |run: &Annotated| run.uid == caller.owner.uid;
    if caller.is_operator() || (note.admin_comment.is_none() && runs.iter().all(is_own)) {
        return Ok(());
    }
    Err(Reject::AccountsDenied(" Error with request: Access/permission denied".to_owned()))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, runs: Vec<Annotated>, note: JobNote) -> Reply {
    let mut lines = vec![" Modified jobs...".to_owned()];
    for Annotated { run, line, .. } in runs {
        ctx.emit(Event::JobAnnotated { job: run.job, restarts: run.restart, note: note.clone() });
        lines.push(line);
    }
    Reply::AccountsChanged { lines }
}
