//! Messages to the user of a job.

use super::super::{Ctx, Effect, Reject, Reply};
use super::owned;
use crate::cluster::Cluster;
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::phase::Phase;

/// Largest number of characters in a message.
const MOST: usize = 1024;

/// Decides where a message goes. Messages are not journalled: a lost one is not repeated. A message to a het
/// job goes to its leader, which has the script or the command.
pub(super) fn check(cluster: &Cluster, caller: &Caller, job: JobId, message: &str) -> Result<Effect, Reject> {
    let mut job = owned(cluster, caller, job)?;
    if let Some(leader) = job.spec.het.as_ref().and_then(|het| cluster.job(het.leader)) {
        job = leader;
    }
    let length = message.chars().count();
    if length > MOST {
        let text = format!("a message has {MOST} characters at most, this one has {length}");
        return Err(Reject::Invalid(text));
    }
    let message = harmless(message);
    match &job.phase {
        Phase::Completing(_) | Phase::Ended(_) => Err(Reject::AlreadyDone),
        _ if job.spec.needs_client() => Ok(Effect::Tell { attempt: job.attempt(), node: None, message }),
        Phase::Pending(_) => Err(Reject::Pending),
        Phase::Suspended(_) => Err(Reject::Suspended),
        Phase::Running { alloc, .. } => match alloc.nodes.first().filter(|_| job.spec.batch.is_some()) {
            Some(part) => Ok(Effect::Tell { attempt: job.attempt(), node: Some(part.node), message }),
            None => {
                Err(Reject::Invalid("the job has neither a script nor a command that holds it".to_owned()))
            }
        },
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, effect: Effect) -> Reply {
    ctx.effect(effect);
    Reply::Done
}

/// The message on one line, with control characters escaped, so that terminals do not obey them.
fn harmless(message: &str) -> String {
    let mut said = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() && c != '\t' { said.extend(c.escape_default()) } else { said.push(c) }
    }
    said
}
