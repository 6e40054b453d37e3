//! The wckey of a job, where wckeys are tracked.

use super::super::Reject;
use crate::cluster::Cluster;
use crate::model::config::AccountingEnforce;
use crate::model::job::JobSpec;

/// Gives a job its wckey, where wckeys are tracked. A job that names none gets the default of its user behind
/// a `*`, and only the `*` if its user has no default. Other wckeys are kept in lower case.
///
/// # Errors
/// Wckeys are enforced, and the named one is none of the user's, or the user has no default.
pub(super) fn fill_in(cluster: &Cluster, spec: &mut JobSpec) -> Result<(), Reject> {
    if !cluster.policy().jobs.tracks_wckeys() {
        return Ok(());
    }
    let enforced = cluster.enforces(AccountingEnforce::Wckeys);
    let user = cluster.accounts().user(&spec.owner.user);
    let named = spec.extra.as_ref().and_then(|extra| extra.wckey.as_deref()).map(str::to_lowercase);
    let wckey = match &named {
        Some(key) if enforced && !user.is_some_and(|user| user.wckeys.contains(key.as_str())) => {
            return Err(refusal(cluster, spec, &format!("'{key}'")));
        }
        Some(key) => key.clone(),
        None => match user.and_then(|user| user.default_wckey.as_deref()) {
            None if enforced => return Err(refusal(cluster, spec, "the job names none")),
            default => format!("*{}", default.unwrap_or_default()),
        },
    };
    spec.extra.get_or_insert_default().wckey = Some(wckey.into());
    Ok(())
}

/// The refusal of a job for its wckey, with the wckeys that its user may name.
fn refusal(cluster: &Cluster, spec: &JobSpec, what: &str) -> Reject {
    let name = &spec.owner.user;
    let user = cluster.accounts().user(name);
    let keys: Vec<&str> = user.iter().flat_map(|user| &user.wckeys).map(|key| &**key).collect();
    Reject::InvalidWckey(match keys.as_slice() {
        [] => format!(
            "{what}; user {name} has no wckey; an operator adds one with sacctmgr add user {name} WCKeys="
        ),
        keys => format!("{what}; wckeys of user {name}: {}", keys.join(", ")),
    })
}
