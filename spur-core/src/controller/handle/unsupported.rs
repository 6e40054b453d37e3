//! What this release understands and cannot do. A request for it is refused, because a promise that is not kept is worse
//! than none; a policy that mentions it is taken, and says so.

use super::super::Reject;
use crate::model::config::Policy;
use crate::model::job::JobSpec;

/// The refusal of a request that asks for something this release cannot do.
pub(super) fn of_job(spec: &JobSpec) -> Result<(), Reject> {
    let extra = spec.extra.as_deref();
    let asked = [(
        "--mail-type",
        "watch the job with squeue or sbatch --wait",
        extra.is_some_and(|extra| extra.mail.is_some()),
    )];
    match asked.iter().find(|(_, _, asked)| *asked) {
        Some((option, instead, _)) => {
            Err(Reject::Invalid(format!("{option} is not supported by this release; {instead}")))
        }
        None => Ok(()),
    }
}

/// What a policy asks for in vain, one sentence each.
pub(super) fn of_policy(policy: &Policy) -> Vec<String> {
    let asked = [("[scheduler] priority_weight_fairshare", policy.scheduler.priority_weight_fairshare > 0)];
    let vain = asked.iter().filter(|(_, asked)| *asked);
    vain.map(|(key, _)| format!("warning: {key} has no effect in this release")).collect()
}
