//! The history of the controller's journal: checks that the journal is its latest copy, and begins a new
//! history.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::feature_level;
use crate::cluster::{Cluster, Event, FeatureLevel};
use crate::id::{HistoryId, JobId};
use crate::model::history::Seen;

/// Relation of a node to the controller's journal.
pub(super) enum Standing {
    /// The node belongs to the journal's history, or to none yet.
    Own,
    /// The node belongs to a history that this one continues.
    Adopted,
    /// The node has seen a later state of the journal.
    Later {
        /// The evidence, in words for administrators.
        why: Arc<str>,
        /// The largest job number that any node is known to have seen.
        last_job: JobId,
    },
}

/// Compares the state that a node has seen with the journal. Refuses a node of a foreign history, and, on an
/// old copy, a node that adds no evidence.
pub(super) fn examine(cluster: &Cluster, name: &Arc<str>, seen: &Seen) -> Result<Standing, Reject> {
    let doubted = || cluster.doubt().map(|doubt| Reject::OldCopy(Arc::clone(&doubt.why)));
    let (Some(theirs), Some(ours)) = (seen.history, cluster.history()) else {
        return doubted().map_or(Ok(Standing::Own), Err);
    };
    if theirs == ours.id {
        let known = cluster.doubt().map_or(JobId(0), |doubt| doubt.last_job);
        return match contradiction(cluster, seen) {
            Some(what) if cluster.doubt().is_none() || seen.last_job > known => {
                let first = cluster.doubt().map(|doubt| Arc::clone(&doubt.why));
                let why = first.unwrap_or_else(|| format!("node {name} {what}").into());
                Ok(Standing::Later { why, last_job: seen.last_job.max(known) })
            }
            _ => doubted().map_or(Ok(Standing::Own), Err),
        };
    }
    if !ours.ancestors.contains(&theirs) {
        return Err(Reject::ForeignNode { node: Arc::clone(name), theirs, ours: ours.id });
    }
    doubted().map_or(Ok(Standing::Adopted), Err)
}

/// The entry, job or reign that the node has seen and the journal lacks; `None` if there is none.
fn contradiction(cluster: &Cluster, seen: &Seen) -> Option<String> {
    if seen.seq > cluster.seq() {
        return Some(format!("has seen entry {} of it, which ends at {}", seen.seq, cluster.seq()));
    }
    if seen.last_job > cluster.last_job() {
        return Some(format!("has seen job {}; the last one in it is {}", seen.last_job, cluster.last_job()));
    }
    if !cluster.knows_reign(seen.epoch, seen.reign) {
        return Some(format!("was led by a controller, in reign {}, that is not in it", seen.epoch));
    }
    None
}

/// Marks the journal as an old copy.
pub(super) fn doubt(ctx: &mut Ctx<'_>, why: Arc<str>, last_job: JobId) -> Reply {
    ctx.emit(Event::JournalDoubted { why: Arc::clone(&why), last_job });
    Reply::Doubted { why }
}

/// Handles the first input of a controller: begins its reign, and a history if there is none.
pub(super) fn begin(ctx: &mut Ctx<'_>, history: HistoryId, reign: u64, accounting: (u64, JobId)) -> Reply {
    let (end, (reached, last_job)) = (ctx.cluster().seq(), accounting);
    if ctx.cluster().history().is_none() {
        let is_new = feature_level::is_new(ctx.cluster());
        ctx.emit(Event::HistoryBegun { history, parents: Vec::new(), last_job: JobId(0) });
        if is_new {
            feature_level::enact(ctx, FeatureLevel::NEWEST);
        }
    }
    ctx.emit(Event::ReignBegun { reign });
    if reached > end && ctx.cluster().doubt().is_none() {
        let why = format!("accounting has seen entry {reached} of it, which ends at {end}");
        return doubt(ctx, why.into(), last_job);
    }
    Reply::Done
}

/// Begins a new history on an old copy, with job numbers above all that are known to be used.
pub(super) fn renew(
    ctx: &mut Ctx<'_>,
    history: HistoryId,
    adopted: Option<HistoryId>,
    last_job: JobId,
) -> Reply {
    let cluster = ctx.cluster();
    let known = cluster.doubt().map_or(JobId(0), |doubt| doubt.last_job);
    let last_job = cluster.last_job().max(known).max(last_job);
    let parents = cluster.history().map(|history| history.id).into_iter().chain(adopted).collect();
    ctx.emit(Event::HistoryBegun { history, parents, last_job });
    Reply::Done
}
