//! Changes of nodes: drain, resume, down, power, weight, features, devices and places.

use std::sync::Arc;

use super::super::command::{NewPlaces, NodeChange, NodeStateChange};
use super::super::{Ctx, Reject, Reply, ending, power, reboot};
use super::silent::NOT_RESPONDING;
use super::{move_nodes, register};
use crate::cluster::{Cluster, Event, Node};
use crate::id::NodeId;
use crate::model::caller::Caller;
use crate::model::node::Drain;
use crate::text::time::Time;

pub(super) struct Decision {
    nodes: Vec<NodeId>,
    change: NodeChange,
    drain: Drain,
    moved: Vec<move_nodes::Decision>,
}

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    names: &[Arc<str>],
    change: NodeChange,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let needs_reason = matches!(change.state, Some(NodeStateChange::Down | NodeStateChange::Drain));
    if needs_reason && change.reason.is_none() {
        return Err(Reject::Invalid(
            "You must specify a reason when DOWNING or DRAINING a node: add Reason=…".to_owned(),
        ));
    }
    let find = |name: &Arc<str>| {
        cluster.node_named(name).map(|node| node.id).ok_or_else(|| Reject::InvalidNodeName(name.to_string()))
    };
    let nodes = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    // Jobs identify devices by ids, which a change of devices would give to others.
    let busy = nodes.iter().filter_map(|id| cluster.node(*id)).find(|node| !node.jobs.is_empty());
    if let Some(node) = busy.filter(|_| change.gres.is_some()) {
        return Err(Reject::NodesBusy(format!(
            "{} has jobs, and its Gres cannot change under them",
            node.name()
        )));
    }
    check_power(cluster, &nodes, change.state)?;
    if matches!(change.state, Some(NodeStateChange::Resume | NodeStateChange::Undrain))
        && change.gres.is_none()
    {
        check_devices(cluster, &nodes)?;
    }
    let moved = match &change.places {
        Some(NewPlaces::Named(places)) => move_nodes::check(cluster, &nodes, places)?.into_iter().collect(),
        Some(NewPlaces::Reported) => move_nodes::check_reported(cluster, &nodes)?,
        None => Vec::new(),
    };
    let reason = change.reason.clone().unwrap_or_else(|| "".into());
    let drain = Drain { reason, by: Arc::clone(&caller.owner.user), at: now, until_mended: false };
    Ok(Decision { nodes, change, drain, moved })
}

/// Refuses to put a node into service whose devices are missing: jobs would get numbers behind which there is
/// nothing. The next registration with its devices, or another `Gres=`, lets it serve again.
fn check_devices(cluster: &Cluster, nodes: &[NodeId]) -> Result<(), Reject> {
    let lacks = |node: &Node| {
        let registration = node.registration.as_ref().filter(|_| node.configured)?;
        register::lacking_devices(node, registration).map(|lack| format!("{}: {lack}", node.name()))
    };
    match nodes.iter().filter_map(|id| cluster.node(*id)).find_map(lacks) {
        Some(lack) => Err(Reject::InvalidNodeState(format!(
            "{lack}; start its spurd again when it has them, or change its Gres="
        ))),
        None => Ok(()),
    }
}

/// Checks that a program exists that boots the nodes or switches them off, or that a boot can still be called
/// off.
fn check_power(cluster: &Cluster, nodes: &[NodeId], change: Option<NodeStateChange>) -> Result<(), Reject> {
    match change {
        Some(NodeStateChange::PowerDown(_) | NodeStateChange::PowerUp)
            if cluster.policy().power.suspend_program.is_none() =>
        {
            let text =
                "[power] suspend_program and resume_program in spur.toml say what switches nodes off and on";
            Err(Reject::InvalidNodeState(text.to_owned()))
        }
        Some(NodeStateChange::Reboot { .. }) if cluster.policy().power.reboot_program.is_none() => {
            let text =
                "RebootProgram isn't defined: [power] reboot_program in spur.toml says what boots a node";
            Err(Reject::Invalid(text.to_owned()))
        }
        Some(NodeStateChange::CancelReboot) => {
            let waits = |node: &&Node| node.reboot().is_some_and(|reboot| reboot.issued.is_none());
            let other = nodes.iter().filter_map(|id| cluster.node(*id)).find(|node| !waits(node));
            other.map_or(Ok(()), |node| {
                let why = match node.reboot() {
                    Some(_) => "is booting already, which cannot be cancelled",
                    None => "is not to be booted",
                };
                Err(Reject::InvalidNodeState(format!("{} {why}", node.name())))
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { nodes, change, drain, moved } = decision;
    if !moved.is_empty() {
        move_nodes::enact(ctx, moved);
    }
    for node in nodes {
        let NodeChange { weight, features, gres, comment, extra, .. } = change.clone();
        if weight.is_some() || features.is_some() || gres.is_some() || comment.is_some() || extra.is_some() {
            ctx.emit(Event::NodeUpdated { node, weight, features, gres, comment, extra });
        }
        if change.end_foreign && ctx.cluster().node(node).is_some_and(|node| !node.foreign.is_empty()) {
            ctx.emit(Event::ForeignDropped { node });
        }
        match change.state {
            Some(NodeStateChange::Down) => {
                let (reason, by) = (Arc::clone(&drain.reason), Some(Arc::clone(&drain.by)));
                let silent = ctx.cluster().node(node).is_some_and(Node::is_silent);
                ctx.emit(Event::NodeDowned { node, reason, silent, by });
                ending::lose_node(ctx, node);
            }
            Some(NodeStateChange::Drain) => ctx.emit(Event::NodeDrained { node, drain: drain.clone() }),
            Some(NodeStateChange::Resume) => {
                reboot::cancel(ctx, node);
                power::resume(ctx, node);
                resume(ctx, node);
            }
            Some(NodeStateChange::Undrain) => resume(ctx, node),
            Some(NodeStateChange::Reboot { asap, next }) => reboot::wish(ctx, node, &drain, asap, next),
            Some(NodeStateChange::CancelReboot) => reboot::cancel(ctx, node),
            Some(NodeStateChange::PowerDown(haste)) => power::off(ctx, node, &drain, haste),
            Some(NodeStateChange::PowerUp) => power::on(ctx, node),
            None => {}
        }
    }
    Reply::Done
}

/// Resumes a node; a silent one is down until it registers.
fn resume(ctx: &mut Ctx<'_>, node: NodeId) {
    // A node that is off registers when it is powered up.
    let silent = ctx.cluster().node(node).is_some_and(|node| node.is_silent() && !node.is_off());
    ctx.emit(Event::NodeResumed { node });
    if silent {
        ctx.emit(Event::NodeDowned { node, reason: NOT_RESPONDING.into(), silent, by: None });
    }
}
