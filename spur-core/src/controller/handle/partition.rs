//! Creation, change and deletion of partitions.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::reconfigure::NEGATIVE_WEIGHTS;
use crate::cluster::{Cluster, Event, FeatureLevel};
use crate::model::caller::Caller;
use crate::model::config::edit::{self, Known};
use crate::model::config::{PartitionConfig, Private};
use crate::model::phase::Phase;
use crate::text::gather::is_layer_name;

pub(super) enum Decision {
    /// Sets only the state.
    Set(PartitionConfig),
    Edit(PartitionConfig),
    Delete(Arc<str>),
    Nothing,
}

/// Keys and values, in the order written.
type Settings = [(Arc<str>, Arc<str>)];

pub(super) fn check_new(
    cluster: &Cluster,
    caller: &Caller,
    name: &str,
    settings: &Settings,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    if cluster.partition(name).is_some() {
        return Err(Reject::Invalid(format!("Partition {name} already exists; scontrol update changes it")));
    }
    if !is_layer_name(name) {
        let text =
            format!("`{name}` cannot be the name of a partition; use letters, digits, `_`, `-` and `.`");
        return Err(Reject::Invalid(text));
    }
    let config = PartitionConfig { name: name.into(), ..PartitionConfig::default() };
    changed(cluster, config, settings).map(Decision::Edit)
}

pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    name: &str,
    settings: &Settings,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let before = &cluster.partition(name).ok_or_else(|| unknown(cluster, name))?.config;
    let config = changed(cluster, before.clone(), settings)?;
    if config == *before {
        return Ok(Decision::Nothing);
    }
    let only_state = PartitionConfig { state: config.state, ..before.clone() } == config;
    Ok(if only_state { Decision::Set(config) } else { Decision::Edit(config) })
}

/// A partition's configuration with the settings applied.
fn changed(
    cluster: &Cluster,
    mut config: PartitionConfig,
    settings: &Settings,
) -> Result<PartitionConfig, Reject> {
    let nodes: Vec<_> =
        cluster.nodes().iter().filter(|node| node.configured).map(|node| Arc::clone(node.name())).collect();
    let partitions: Vec<_> = cluster.partitions().iter().map(|known| Arc::clone(known.name())).collect();
    let topologies: Vec<_> = cluster.topologies().iter().map(|known| Arc::clone(&known.name)).collect();
    let qos: Vec<_> = cluster.policy().qos.iter().map(|known| Arc::clone(&known.name)).collect();
    let known = Known { nodes: &nodes, partitions: &partitions, topologies: &topologies, qos: &qos };
    for (key, value) in settings {
        edit::partition(&mut config, key, value, &known).map_err(Reject::Invalid)?;
    }
    match config.contradictions().into_iter().next() {
        Some((key, problem)) => Err(Reject::Invalid(format!("{key}: {problem}"))),
        None => {
            cluster.allows(&config)?;
            if config.tres_billing_weights.has_negative() {
                cluster.has_level(FeatureLevel(2), NEGATIVE_WEIGHTS)?;
            }
            Ok(config)
        }
    }
}

/// Decides on the deletion of a partition. No unended job, other partition or reservation may name it.
pub(super) fn check_gone(cluster: &Cluster, caller: &Caller, name: &str) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let partition = cluster.partition(name).ok_or_else(|| unknown(cluster, name))?;
    let names_it = |job: &&crate::model::job::Job| {
        !matches!(job.phase, Phase::Ended(_)) && job.spec.partitions.iter().any(|other| **other == *name)
    };
    let refuse = |by: String| Err(Reject::PartitionInUse(by));
    if let Some(job) = cluster.jobs().iter().find(names_it) {
        return refuse(format!("job {} is in it", job.reference()));
    }
    let stands_in = |other: &&crate::cluster::Partition| other.config.alternate.as_deref() == Some(name);
    if let Some(other) = cluster.partitions().iter().find(stands_in) {
        return refuse(format!("it is the alternate of {}", other.name()));
    }
    if let Some(kept) = cluster.reservations().find(|kept| kept.partition.as_deref() == Some(name)) {
        return refuse(format!("reservation {} is in it", kept.name));
    }
    if cluster.partitions().len() == 1 {
        return refuse("it is the only one".to_owned());
    }
    Ok(Decision::Delete(Arc::clone(partition.name())))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    match decision {
        Decision::Set(PartitionConfig { name, state, .. }) => {
            ctx.emit(Event::PartitionSet { partition: name, state });
        }
        Decision::Edit(partition) => ctx.emit(Event::PartitionEdited { partition: Arc::new(partition) }),
        Decision::Delete(name) => ctx.emit(Event::PartitionDeleted { name }),
        Decision::Nothing => {}
    }
    Reply::Done
}

/// The refusal of an unknown partition. It lists the existing ones unless partitions are private.
pub(super) fn unknown(cluster: &Cluster, name: &str) -> Reject {
    if cluster.policy().jobs.private_data.contains(&Private::Partitions) {
        return Reject::InvalidPartition { name: name.to_owned(), known: String::new() };
    }
    let known: Vec<&str> = cluster.partitions().iter().map(|partition| &**partition.name()).collect();
    Reject::InvalidPartition { name: name.to_owned(), known: known.join(", ") }
}
