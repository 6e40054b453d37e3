//! Checks and defaults of a job's QOS.

use std::sync::Arc;

use super::super::Reject;
use crate::cluster::{Cluster, Partition};
use crate::model::accounts::NORMAL;
use crate::model::caller::Caller;
use crate::model::config::{AccountingEnforce, QosConfig};
use crate::model::job::JobSpec;
use crate::text::nearest::nearest;

/// The QOS of a job; `None` if none of the following exists.
///
/// The QOS that the job names comes first. The default of its association follows, or the only QOS of the
/// association, then that of its first partition with one, then that of the cluster. The last is `normal`, if
/// QOS or limits are enforced.
pub(super) fn default(cluster: &Cluster, partitions: &[&Partition], spec: &JobSpec) -> Option<Arc<str>> {
    let of_partition = || partitions.iter().find_map(|partition| partition.config.default_qos.clone());
    let of_cluster = || cluster.policy().scheduler.default_qos.clone();
    let enforces = |part| cluster.enforces(part);
    let enforced = enforces(AccountingEnforce::Qos) || enforces(AccountingEnforce::Limits);
    let normal = || cluster.accounts().qos_named(NORMAL).filter(|_| enforced).map(|_| NORMAL.into());
    let named = spec.qos.clone().or_else(|| of_association(cluster, spec));
    named.or_else(of_partition).or_else(of_cluster).or_else(normal)
}

/// The default QOS of a job's association. Without a default, and where QOS are enforced, it is the only QOS
/// that the association has. `None` with neither, and if associations are not enforced.
fn of_association(cluster: &Cluster, spec: &JobSpec) -> Option<Arc<str>> {
    let enforced = cluster.enforces(AccountingEnforce::Associations);
    let partition = spec.partitions.first().filter(|_| enforced)?;
    let (tree, association) = (cluster.accounts(), cluster.association_of(spec, partition)?);
    let only = || {
        let mut open = tree.qos_of(association).into_iter();
        open.next().filter(|_| open.next().is_none() && cluster.enforces(AccountingEnforce::Qos))
    };
    tree.default_qos_of(association).or_else(only)
}

/// Refuses a job without a QOS of its association, where QOS are enforced.
fn enforce(cluster: &Cluster, spec: &JobSpec) -> Result<(), Reject> {
    if !cluster.enforces(AccountingEnforce::Qos) {
        return Ok(());
    }
    for partition in &spec.partitions {
        let Some(association) = cluster.association_of(spec, partition) else { continue };
        let open = cluster.accounts().qos_of(association);
        if !spec.qos.as_ref().is_some_and(|name| open.contains(name)) {
            let named = spec.qos.as_deref().unwrap_or("none");
            let open: Vec<&str> = open.iter().map(|name| &**name).collect();
            let (user, account) = (&spec.owner.user, &association.account);
            let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            return Err(Reject::InvalidQos(format!(
                "'{named}' is not open to user {user} in account {account}; QOS open to him there: {open}"
            )));
        }
    }
    Ok(())
}

/// Sets the QOS of a het job's later component to that of the `first` if it names none; refuses another one.
pub(super) fn of_whole(cluster: &Cluster, first: &JobSpec, other: &mut JobSpec) -> Result<(), Reject> {
    if cluster.policy().qos.is_empty() {
        return Ok(());
    }
    if other.qos.is_none() {
        other.qos.clone_from(&first.qos);
    }
    if other.qos == first.qos {
        return Ok(());
    }
    let show =
        |spec: &JobSpec| spec.qos.as_deref().map_or_else(|| "none".to_owned(), |qos| format!("'{qos}'"));
    let (mine, theirs) = (show(other), show(first));
    Err(Reject::InvalidQos(format!(
        "a het job has one QOS; this is {mine}, that of the first component {theirs}"
    )))
}

/// Refuses a QOS that does not exist, or that is closed to the caller or the job's account. Without any
/// configured QOS, every name is accepted.
pub(super) fn check(cluster: &Cluster, caller: &Caller, spec: &JobSpec) -> Result<(), Reject> {
    let policy = cluster.policy();
    let named = spec.qos.as_deref();
    if let Some(name) = named.filter(|name| !policy.knows_qos(Some(name))) {
        return Err(unknown(&policy.qos, name));
    }
    policy.qos_of(named).map_or(Ok(()), |qos| admit(qos, caller, spec))?;
    enforce(cluster, spec)
}

fn unknown(known: &[QosConfig], name: &str) -> Reject {
    let names: Vec<&str> = known.iter().map(|qos| &*qos.name).collect();
    let meant = nearest(name, names.iter().copied()).map(|meant| format!("did you mean '{meant}'? "));
    let meant = meant.unwrap_or_default();
    Reject::InvalidQos(format!("there is no '{name}'; {meant}QOS here: {}", names.join(", ")))
}

fn admit(qos: &QosConfig, caller: &Caller, spec: &JobSpec) -> Result<(), Reject> {
    let QosConfig { name, allow_groups, allow_accounts, .. } = qos;
    if !allow_groups.is_empty() && !caller.is_in_any(allow_groups) {
        let groups = allow_groups.join(", ");
        return Err(Reject::InvalidQos(format!("QOS {name} is for groups {groups}; ask for another")));
    }
    let admitted =
        |account: &Arc<str>| allow_accounts.iter().any(|listed| listed.eq_ignore_ascii_case(account));
    if !allow_accounts.is_empty() && !spec.account.as_ref().is_some_and(admitted) {
        let accounts = allow_accounts.join(", ");
        return Err(Reject::InvalidQos(format!(
            "QOS {name} is for accounts {accounts}; ask for one with -A, or for another QOS"
        )));
    }
    Ok(())
}
