//! The account of a job, where associations are enforced.

use std::sync::Arc;

use super::super::Reject;
use crate::cluster::Cluster;
use crate::model::config::AccountingEnforce;
use crate::model::job::JobSpec;

/// Sets the default account of the job's user, where associations are enforced and the job names none.
pub(super) fn fill_in(cluster: &Cluster, spec: &mut JobSpec) {
    if !cluster.enforces(AccountingEnforce::Associations) {
        return;
    }
    let user = cluster.accounts().user(&spec.owner.user);
    spec.account = spec.account.take().or_else(|| user.and_then(|user| user.default_account.clone()));
    // The job shares the tree's name, so that a million jobs do not hold a million copies of it.
    let known = spec.account.as_ref().and_then(|name| cluster.accounts().account(&name.to_lowercase()));
    spec.account = known.map(|account| Arc::clone(&account.name)).or_else(|| spec.account.take());
}

/// Refuses a job that lacks an association in one of its partitions, where associations are enforced.
pub(super) fn check(cluster: &Cluster, spec: &JobSpec) -> Result<(), Reject> {
    if !cluster.enforces(AccountingEnforce::Associations) {
        return Ok(());
    }
    let without = |partition: &&Arc<str>| cluster.association_of(spec, partition).is_none();
    let Some(partition) = spec.partitions.iter().find(without) else { return Ok(()) };
    let (user, tree) = (&spec.owner.user, cluster.accounts());
    let mut open: Vec<&str> = tree.of_user(user).map(|own| &*own.account).collect();
    open.dedup();
    let open = match open.as_slice() {
        [] => format!(
            "user {user} is in no account; an operator or a coordinator adds him with sacctmgr add user"
        ),
        some => format!("accounts of user {user}: {}", some.join(", ")),
    };
    Err(Reject::InvalidAccount(match &spec.account {
        None => format!("the job names no account and its user has no default; {open}"),
        Some(account) => format!("'{account}' in partition {partition}; {open}"),
    }))
}
