//! Gives running jobs nodes in the places of those that failed (`--no-kill`).
//!
//! [`settle`] runs after everything that happens, so a node is replaced at once if there is a free one that will do, or
//! else as soon as there is: before anybody who waits is started there. Those who were submitted first come first.

use super::handle::start;
use super::{Ctx, replenish};
use crate::cluster::{Event, Node};
use crate::id::JobId;
use crate::model::alloc::StartPart;
use crate::sched::replace;

/// Replaces what can be replaced, if anything has happened that bears on it.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    let short: Vec<JobId> = ctx.cluster().jobs().short().map(|job| job.id).collect();
    let bears = |event: &Event| {
        matches!(event, Event::JobSuspended { .. } | Event::JobResumed { .. } | Event::NodesMoved { .. })
            || replenish::bears_on_nodes(event)
    };
    if short.is_empty() || !ctx.entries.iter().any(|entry| bears(&entry.event)) {
        return;
    }
    for job in short {
        let cluster = ctx.cluster();
        let take = |node: &Node, part: &StartPart, exclusive: bool| {
            start::take(node, &cluster.kept(node.id, &[]), part, exclusive)
        };
        if let Some((replaced, why)) = replace::find(cluster, ctx.now(), job, &take) {
            ctx.emit(Event::JobNodesReplaced { job, replaced, why });
        }
    }
}
