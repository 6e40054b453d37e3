//! Creation and deletion of nodes that the configuration does not name.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, power};
use super::move_nodes;
use crate::cluster::{Cluster, Event};
use crate::id::NodeId;
use crate::model::caller::Caller;
use crate::model::config::{NodeConfig, edit};
use crate::text::place::Places;

pub(super) struct Decision {
    nodes: Vec<NodeConfig>,
    places: Option<Places>,
    /// True if the hosts of the nodes start powered down (`State=CLOUD` with a resume program).
    are_off: bool,
}

/// Decides on the creation of nodes with equal settings. Names that exist are refused.
pub(super) fn check_new(
    cluster: &Cluster,
    caller: &Caller,
    names: &[Arc<str>],
    settings: &[(Arc<str>, Arc<str>)],
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let mut config = NodeConfig { weight: 1, ..NodeConfig::default() };
    let mut places = None;
    for (key, value) in settings {
        match key.eq_ignore_ascii_case("Topology") {
            true => {
                let written: Places = value
                    .parse()
                    .map_err(|error| Reject::TopologyUnavailable(format!("Topology={value}: {error}")))?;
                move_nodes::check(cluster, &[], &written)?;
                places = Some(written);
            }
            false => edit::node(&mut config, key, value).map_err(Reject::Invalid)?,
        }
    }
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        if cluster.node_named(name).is_some_and(|node| node.configured) {
            return Err(Reject::Invalid(format!("Node {name} already exists; scontrol update changes it")));
        }
        let mut config = NodeConfig { name: Arc::clone(name), ..config.clone() };
        edit::complete(&mut config).map_err(Reject::Invalid)?;
        nodes.push(config);
    }
    let in_cloud = settings
        .iter()
        .any(|(key, value)| key.eq_ignore_ascii_case("State") && value.eq_ignore_ascii_case("CLOUD"));
    let are_off = in_cloud && cluster.policy().power.resume_program.is_some();
    Ok(Decision { nodes, places, are_off })
}

pub(super) fn enact_new(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { nodes, places, are_off } = decision;
    let names: Vec<Arc<str>> = nodes.iter().map(|config| Arc::clone(&config.name)).collect();
    ctx.emit(Event::NodesCreated { nodes });
    let ids: Vec<NodeId> =
        names.iter().filter_map(|name| ctx.cluster().node_named(name)).map(|node| node.id).collect();
    if are_off {
        power::never_on(ctx, &ids);
    }
    if let Some(places) = places {
        // The places were checked before the nodes existed.
        if let Ok(Some(moved)) = move_nodes::check(ctx.cluster(), &ids, &places) {
            move_nodes::enact(ctx, vec![moved]);
        }
    }
    Reply::Done
}

/// Decides on the deletion of nodes. A node must have been created by a command, and have no jobs and no
/// reservations.
pub(super) fn check_gone(
    cluster: &Cluster,
    caller: &Caller,
    names: &[Arc<str>],
) -> Result<Vec<NodeId>, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        let node = cluster.node_named(name).filter(|node| node.configured);
        let node = node.ok_or_else(|| Reject::InvalidNodeName(name.to_string()))?;
        if !cluster.is_created(node) {
            let text = format!(
                "node {name} is in the configuration; take it out there and run scontrol reconfigure"
            );
            return Err(Reject::Invalid(text));
        }
        if let Some(job) = node.jobs.first() {
            return Err(Reject::NodesBusy(format!("{name} has something of job {job}")));
        }
        if let Some(kept) = cluster.reservations().find(|kept| kept.nodes.contains(&node.id)) {
            return Err(Reject::NodesBusy(format!("{name} is in reservation {}", kept.name)));
        }
        gone.push(node.id);
    }
    Ok(gone)
}

pub(super) fn enact_gone(ctx: &mut Ctx<'_>, nodes: Vec<NodeId>) -> Reply {
    ctx.emit(Event::NodesDeleted { nodes });
    Reply::Done
}
