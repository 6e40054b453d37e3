//! Requested reboots of nodes' hosts. A reboot is ordered once the node has no jobs. It is over when the node
//! registers from another boot, and given up after `[power] resume_timeout`.
//!
//! [`settle`] runs after every input, so a node is rebooted as soon as its last job has gone.

use std::sync::Arc;

use super::{Ctx, ending, power};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::node::{Drain, Health, NextState, Power, Reboot};
use crate::text::time::Time;

/// The author of the down state of a node that does not come back.
pub(super) const CONTROLLER: &str = "spur";

/// Records the request to reboot a node, unless a power action is under way. `drain` has its author and
/// reason; the reason may be empty.
pub(super) fn wish(ctx: &mut Ctx<'_>, id: NodeId, drain: &Drain, asap: bool, next: Option<NextState>) {
    let Some(node) = ctx.cluster().node(id).filter(|node| node.power.is_none()) else { return };
    let standing = match (&node.drain, &node.health) {
        (Some(drain), _) => Some(Arc::clone(&drain.reason)),
        (None, Health::Down { reason, by: Some(_), .. }) => Some(Arc::clone(reason)),
        (None, Health::Down { .. } | Health::Up | Health::Unknown) => None,
    };
    let usual = if asap { Reboot::ASAP } else { Reboot::REQUESTED };
    let given = (!drain.reason.is_empty()).then(|| Arc::clone(&drain.reason));
    let reason = given.or(standing).unwrap_or_else(|| usual.into());
    // A fault that ends by itself must not end the drain before the boot.
    let drained = asap && node.drain.as_ref().is_none_or(|drain| drain.until_mended);
    if drained {
        let drain = Drain { reason: Arc::clone(&reason), ..drain.clone() };
        ctx.emit(Event::NodeDrained { node: id, drain });
    }
    let (by, at) = (Arc::clone(&drain.by), drain.at);
    let reboot = Reboot { reason, by, at, issued: None, next, drained };
    ctx.emit(Event::PowerChanged { node: id, power: Some(Power::Reboot(reboot)), jobs: Vec::new() });
}

/// The nodes to reboot before a job with `--reboot` starts there: idle nodes that it gets exclusively. Nodes
/// that are off boot anyway.
pub(super) fn wanted(cluster: &Cluster, job: JobId, alloc: &Alloc) -> Vec<NodeId> {
    let wants = cluster.job(job).is_some_and(|job| job.spec.wants_reboot());
    if !wants || !alloc.exclusive || cluster.policy().power.reboot_program.is_none() {
        return Vec::new();
    }
    let boots = |id: &NodeId| {
        let node = cluster.node(*id).filter(|node| node.idle());
        node.is_some_and(|node| node.power.is_none() || node.reboot().is_some())
    };
    alloc.nodes.iter().map(|part| part.node).filter(boots).collect()
}

/// Cancels a requested reboot. A node that was drained for it gets work again, and jobs that waited for it
/// begin.
pub(super) fn cancel(ctx: &mut Ctx<'_>, node: NodeId) {
    let Some(reboot) = ctx.cluster().node(node).and_then(Node::reboot).cloned() else { return };
    power::clear(ctx, node);
    if reboot.drained {
        ctx.emit(Event::NodeMended { node });
    }
}

/// Orders the requested reboots of nodes that are ready for them.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    let ready: Vec<(NodeId, Reboot)> = ctx
        .cluster()
        .powered()
        .filter(|node| is_ready(ctx.cluster(), node))
        .filter_map(|node| Some((node.id, node.reboot().filter(|reboot| reboot.issued.is_none())?.clone())))
        .collect();
    for (node, reboot) in ready {
        let (reason, now) = (reboot.reason_with("reboot issued"), ctx.now());
        let reboot = Reboot { reason, at: now, issued: Some(now), ..reboot };
        ctx.emit(Event::PowerChanged { node, power: Some(Power::Reboot(reboot)), jobs: Vec::new() });
    }
}

/// True if a node can receive orders and runs nothing that a reboot would end.
fn is_ready(cluster: &Cluster, node: &Node) -> bool {
    let hears = matches!(node.health, Health::Up | Health::Down { silent: false, .. });
    let waits = |job: &JobId| cluster.job(*job).is_some_and(|job| job.configuring.nodes.contains(&node.id));
    hears && has_no_leftovers(node) && node.jobs.iter().all(waits)
}

/// True if a node runs nothing that would end with its host.
pub(super) fn is_free(node: &Node) -> bool {
    node.idle() && has_no_leftovers(node)
}

/// True if no stale or foreign attempts are left on a node.
fn has_no_leftovers(node: &Node) -> bool {
    node.stale.is_empty() && node.foreign.is_empty()
}

/// True if a registration with this boot id completes an ordered reboot.
pub(super) fn is_over(node: &Node, boot_id: &str) -> bool {
    let before = node.registration.as_ref().map(|registration| &*registration.boot_id);
    node.is_rebooting() && before != Some(boot_id)
}

/// True if the end of its reboot ends the drain of a node.
pub(super) fn undrains(node: &Node) -> bool {
    node.reboot().is_some_and(|reboot| reboot.drained || reboot.next.is_some())
}

/// Completes the reboot of a node; jobs that waited for it begin.
pub(super) fn end(ctx: &mut Ctx<'_>, node: NodeId) {
    let Some(reboot) = ctx.cluster().node(node).and_then(Node::reboot).cloned() else { return };
    power::clear(ctx, node);
    match reboot.next {
        None if reboot.drained => ctx.emit(Event::NodeMended { node }),
        None => {}
        Some(NextState::Resume) => ctx.emit(Event::NodeResumed { node }),
        Some(NextState::Down) => {
            ctx.emit(Event::NodeResumed { node });
            let (reason, by) = (reboot.reason_with("reboot complete"), Some(reboot.by));
            ctx.emit(Event::NodeDowned { node, reason, silent: false, by });
        }
    }
}

/// Ends a reboot that has failed.
fn give_up(ctx: &mut Ctx<'_>, node: NodeId) {
    let drained = ctx.cluster().node(node).and_then(Node::reboot).is_some_and(|reboot| reboot.drained);
    ctx.emit(Event::PowerChanged { node, power: None, jobs: Vec::new() });
    if drained {
        ctx.emit(Event::NodeMended { node });
    }
}

/// Time at which the first of the ordered reboots is overdue; `None` if none is under way.
pub(super) fn next_deadline(cluster: &Cluster) -> Option<Time> {
    cluster.powered().filter_map(|node| deadline(cluster, node)).min()
}

fn deadline(cluster: &Cluster, node: &Node) -> Option<Time> {
    Some(node.reboot()?.issued? + cluster.policy().power.resume_timeout.0)
}

/// Gives up the reboots that are overdue at `now`.
pub(super) fn expire(ctx: &mut Ctx<'_>, now: Time) {
    let is_late = |node: &&Node| deadline(ctx.cluster(), node).is_some_and(|at| at <= now);
    let late: Vec<NodeId> = ctx.cluster().powered().filter(is_late).map(|node| node.id).collect();
    for id in late {
        let Some(node) = ctx.cluster().node(id) else { continue };
        let (silent, reboot) = (node.is_silent(), node.reboot().cloned());
        let reason = reboot.map_or_else(|| "".into(), |reboot| reboot.reason_with("reboot timed out"));
        ctx.emit(Event::NodeDowned { node: id, reason, silent, by: Some(CONTROLLER.into()) });
        // Jobs that wait for the reboot have not begun anything there.
        ending::lose_node(ctx, id);
        give_up(ctx, id);
    }
}
