//! Boots of nodes' hosts that somebody wishes: ordered as soon as a node has no jobs, over when it registers from another
//! boot, given up when it does not in `[power] resume_timeout`.
//!
//! [`settle`] runs after everything that happens, so a node is booted as soon as its last job has gone.

use std::sync::Arc;

use super::{Ctx, ending, power};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::node::{Drain, Health, NextState, Power, Reboot};
use crate::text::time::Time;

/// Who takes a node out of service that does not come back.
pub(super) const CONTROLLER: &str = "spur";

/// Notes that a node is to be booted, unless it is already. `drain` says why and who; its reason may be empty.
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

/// The nodes that are to boot before a job starts there: those that it gets whole and nobody else has anything on. One that
/// is off boots anyway.
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

/// Takes the wish back; a node that was drained for it gets work again, and jobs that have waited for it begin.
pub(super) fn cancel(ctx: &mut Ctx<'_>, node: NodeId) {
    let Some(reboot) = ctx.cluster().node(node).and_then(Node::reboot).cloned() else { return };
    power::clear(ctx, node);
    if reboot.drained {
        ctx.emit(Event::NodeMended { node });
    }
}

/// Orders the boots that nothing stands in the way of any more.
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

/// Whether a node hears orders, and nothing runs there that a boot would end.
fn is_ready(cluster: &Cluster, node: &Node) -> bool {
    let hears = matches!(node.health, Health::Up | Health::Down { silent: false, .. });
    let waits = |job: &JobId| cluster.job(*job).is_some_and(|job| job.configuring.nodes.contains(&node.id));
    hears && has_no_leftovers(node) && node.jobs.iter().all(waits)
}

/// Whether nothing runs on a node that would end with its host.
pub(super) fn is_free(node: &Node) -> bool {
    node.idle() && has_no_leftovers(node)
}

/// Whether a node has nothing of jobs that it should not have any more.
fn has_no_leftovers(node: &Node) -> bool {
    node.stale.is_empty() && node.foreign.is_empty()
}

/// Whether what a node registers with ends a boot that was ordered.
pub(super) fn is_over(node: &Node, boot_id: &str) -> bool {
    let before = node.registration.as_ref().map(|registration| &*registration.boot_id);
    node.is_rebooting() && before != Some(boot_id)
}

/// Whether a node is drained no more when its boot is over.
pub(super) fn undrains(node: &Node) -> bool {
    node.reboot().is_some_and(|reboot| reboot.drained || reboot.next.is_some())
}

/// A node has booted as it was to; jobs that have waited for it begin.
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

/// The boot is over without success.
fn give_up(ctx: &mut Ctx<'_>, node: NodeId) {
    let drained = ctx.cluster().node(node).and_then(Node::reboot).is_some_and(|reboot| reboot.drained);
    ctx.emit(Event::PowerChanged { node, power: None, jobs: Vec::new() });
    if drained {
        ctx.emit(Event::NodeMended { node });
    }
}

/// When the first of the boots that were ordered has taken too long.
pub(super) fn next_deadline(cluster: &Cluster) -> Option<Time> {
    cluster.powered().filter_map(|node| deadline(cluster, node)).min()
}

fn deadline(cluster: &Cluster, node: &Node) -> Option<Time> {
    Some(node.reboot()?.issued? + cluster.policy().power.resume_timeout.0)
}

/// Gives up those that have taken too long by `now`.
pub(super) fn expire(ctx: &mut Ctx<'_>, now: Time) {
    let is_late = |node: &&Node| deadline(ctx.cluster(), node).is_some_and(|at| at <= now);
    let late: Vec<NodeId> = ctx.cluster().powered().filter(is_late).map(|node| node.id).collect();
    for id in late {
        let Some(node) = ctx.cluster().node(id) else { continue };
        let (silent, reboot) = (node.is_silent(), node.reboot().cloned());
        let reason = reboot.map_or_else(|| "".into(), |reboot| reboot.reason_with("reboot timed out"));
        ctx.emit(Event::NodeDowned { node: id, reason, silent, by: Some(CONTROLLER.into()) });
        // Those that wait for the boot are known to have begun nothing.
        ending::lose_node(ctx, id);
        give_up(ctx, id);
    }
}
