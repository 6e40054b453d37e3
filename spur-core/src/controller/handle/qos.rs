//! Whether a job may have the QOS it names, where it wants to run.

use std::sync::Arc;

use super::super::Reject;
use crate::cluster::{Cluster, Partition};
use crate::model::caller::Caller;
use crate::model::config::QosConfig;
use crate::model::job::JobSpec;
use crate::text::nearest::nearest;

/// The QOS of a job that names none in these partitions: the default of the first of them that has one, or else the
/// cluster's.
pub(super) fn default(cluster: &Cluster, partitions: &[&Partition]) -> Option<Arc<str>> {
    let of_partition = partitions.iter().find_map(|partition| partition.config.default_qos.as_ref());
    of_partition.or(cluster.policy().scheduler.default_qos.as_ref()).cloned()
}

/// The components of a het job have one QOS: those behind the first that name none have that of the `first`.
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

/// The QOS has to be there and be open to who asks for it and to the job's account. Where none is configured a name means
/// nothing, and everything is allowed.
pub(super) fn check(cluster: &Cluster, caller: &Caller, spec: &JobSpec) -> Result<(), Reject> {
    let policy = cluster.policy();
    let named = spec.qos.as_deref();
    if let Some(name) = named.filter(|name| !policy.knows_qos(Some(name))) {
        return Err(unknown(&policy.qos, name));
    }
    policy.qos_of(named).map_or(Ok(()), |qos| admit(qos, caller, spec))
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
