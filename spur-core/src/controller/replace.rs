//! Gives running jobs nodes in the places of those that failed (`--no-kill`).
//!
//! [`settle`] runs after everything that happens, so a node is replaced at once if there is a free one that will do, or
//! else as soon as there is: before anybody who waits is started there. Those who were submitted first come first.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Ctx;
use super::handle::start;
use crate::cluster::limits::Starter;
use crate::cluster::{Cluster, Event, Node, Scope};
use crate::id::{JobId, NodeId};
use crate::model::alloc::{Alloc, Replacement, StartPart};
use crate::model::config::AccountingEnforce;
use crate::sched::replace;
use crate::text::time::Time;

/// What an event may have made of nodes that were of no use before.
enum News<'a> {
    /// Nothing better.
    Nothing,
    /// Of this one.
    Node(NodeId),
    /// Of any.
    Any,
    /// Of any, for a job that goes on and may have others again.
    For(&'a JobId),
}

/// Replaces what can be replaced, if anything has happened that bears on it.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    let short: Vec<JobId> = ctx.cluster().jobs().short().map(|job| job.id).collect();
    if short.is_empty() {
        return;
    }
    let (mut nodes, mut for_jobs, mut any) = (Vec::new(), BTreeSet::new(), false);
    for entry in &ctx.entries {
        match news(ctx.cluster(), &entry.event) {
            News::Nothing => {}
            News::Node(node) => nodes.push(node),
            News::Any => any = true,
            News::For(job) => {
                for_jobs.insert(*job);
            }
        }
    }
    for job in short {
        let touched = (!any && !for_jobs.contains(&job)).then_some(&*nodes);
        if touched.is_some_and(<[NodeId]>::is_empty) {
            continue;
        }
        let cluster = ctx.cluster();
        let Some(spec) = cluster.job(job).map(|job| Arc::clone(&job.spec)) else { continue };
        let take = |node: &Node, part: &StartPart, exclusive: bool| {
            start::take(node, &cluster.kept(node.id, &[]), part, exclusive, &spec)
        };
        if let Some((replaced, why)) = replace::find(cluster, ctx.now(), job, touched, &take)
            && lets_replace(cluster, ctx.now(), job, &replaced)
        {
            ctx.emit(Event::JobNodesReplaced { job, replaced, why });
        }
    }
}

/// Whether limits of associations and QOS let a job have these nodes, of which some may have more than those that it lost.
fn lets_replace(cluster: &Cluster, now: Time, id: JobId, replaced: &[Replacement]) -> bool {
    let Some(job) = cluster.job(id) else { return false };
    let Some(alloc) = job.phase.alloc() else { return false };
    let with = replaced.iter().try_fold(Alloc::clone(alloc), |alloc, replacement| alloc.with(replacement));
    let Some(with) = with else { return false };
    let (had, amounts) = (cluster.amounts_held(&job.spec, alloc), cluster.amounts_held(&job.spec, &with));
    if amounts.all.tres.0.iter().all(|(kind, amount)| *amount <= had.all.tres.get(kind)) {
        return true;
    }
    let (spec, partition) = (Arc::clone(&job.spec), Arc::clone(&alloc.partition));
    let starter = Starter { job: id, spec, partition, amounts, limit: job.spec.time_limit };
    cluster.stops(now, &[starter], &[]).is_none()
}

fn news<'a>(cluster: &Cluster, event: &'a Event) -> News<'a> {
    let never_ran = |job: JobId| cluster.job(job).is_some_and(|job| job.phase.started().is_none());
    match event {
        // With it the rest of its leaves may be open again.
        Event::NodeReleased { job, .. } if replace::may_close(cluster, *job) => News::Any,
        Event::NodeReleased { node, .. } => News::Node(*node),
        Event::JobResumed { job } => News::For(job),
        Event::JobEnded { job, .. } if !never_ran(*job) => News::Nothing,
        // Each of these may drop the nomination of a pending job, which frees nodes.
        Event::JobNodeLost { .. }
        | Event::JobEnded { .. }
        | Event::NodeDowned { .. }
        | Event::NodeDrained { .. }
        | Event::JobUpdated { .. }
        | Event::JobHeld { .. }
        | Event::NominationDropped { .. }
        | Event::TasksSplit { .. }
        | Event::JobSuspended { .. } => News::Any,
        _ => match event.scope() {
            Scope::Node { node, .. } => News::Node(node),
            Scope::Layout | Scope::Reservation => News::Any,
            // Limits may let a job have more, and nodes are kept for nobody any more.
            Scope::Accounts if cluster.enforces(AccountingEnforce::Limits) => News::Any,
            // The other events of jobs take nodes, or leave them as they are.
            Scope::Journal
            | Scope::Queue(_)
            | Scope::Resources(_)
            | Scope::Progress(_)
            | Scope::Accounts
            | Scope::Usage => News::Nothing,
        },
    }
}
