//! What this release understands and cannot do: a policy that mentions it is taken, and says so.

use crate::model::config::Policy;

/// What a policy asks for in vain, one sentence each.
pub(super) fn of_policy(policy: &Policy) -> Vec<String> {
    let asked = [("[scheduler] priority_weight_fairshare", policy.scheduler.priority_weight_fairshare > 0)];
    let vain = asked.iter().filter(|(_, asked)| *asked);
    vain.map(|(key, _)| format!("warning: {key} has no effect in this release")).collect()
}
