//! Replacement of failed nodes of running jobs (`--no-kill`).
//!
//! [`settle`] runs after every input, so a node is replaced as soon as a suitable one is free, before a
//! pending job can start there. Jobs are served in the order of submission.

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

/// The nodes that an event may have made usable as replacements.
enum News<'a> {
    /// The event made no node usable.
    Nothing,
    /// The event may have made this node usable.
    Node(NodeId),
    /// The event may have made any node usable.
    Any,
    /// Any node, for this job, which has just resumed.
    For(&'a JobId),
}

/// Replaces lost nodes of jobs, as far as events of this input have made nodes usable.
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
            let partition =
                cluster.job(job).and_then(|job| cluster.partition(&job.phase.alloc()?.partition))?;
            let left = cluster.cpus_left(node, &partition.config, &[]);
            start::take(node, (&cluster.kept(node.id, &[]), left.as_ref()), part, exclusive, &spec)
        };
        if let Some((replaced, why)) = replace::find(cluster, ctx.now(), job, touched, &take)
            && lets_replace(cluster, ctx.now(), job, &replaced)
        {
            ctx.emit(Event::JobNodesReplaced { job, replaced, why });
        }
    }
}

/// True if limits of associations and QOS let a job have these nodes, which may have more resources than the
/// lost ones.
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
        // The job closed its leaves to other jobs; with the release they may be open again.
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
            // Limits may have risen, and a change of the tree drops all nominations.
            Scope::Accounts if cluster.enforces(AccountingEnforce::Limits) => News::Any,
            // Other events of jobs take nodes or change nothing about them.
            Scope::Journal
            | Scope::Queue(_)
            | Scope::Resources(_)
            | Scope::Progress(_)
            | Scope::Accounts
            | Scope::Usage => News::Nothing,
        },
    }
}
