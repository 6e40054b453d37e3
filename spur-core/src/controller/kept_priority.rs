//! Priorities that never fall (`INCR_ONLY`).
//!
//! Without a request, the priority of a pending job falls in three cases only: a roll of usage, a change of
//! the policy tree or of the configuration, and the first submission of a user without an association. If the
//! priority before such a change is higher than after it, it is journalled, so that replay and readers agree.

use super::Ctx;
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::config::PriorityFlag;
use crate::model::job::Job;
use crate::sched::present_priority;
use crate::text::time::Time;

/// Makes a change, and with `INCR_ONLY` keeps the priority of each job whose priority is lower afterwards.
pub(super) fn keep(ctx: &mut Ctx<'_>, change: impl FnOnce(&mut Ctx<'_>)) {
    let now = ctx.now();
    let before = priorities(ctx.cluster(), now);
    change(ctx);
    let cluster = ctx.cluster();
    let falls = |(id, before): &(JobId, u32)| {
        cluster.job(*id).is_some_and(|job| present_priority(cluster, job, now) < *before)
    };
    let (jobs, priorities): (Vec<JobId>, Vec<u32>) = before.into_iter().filter(falls).unzip();
    if !jobs.is_empty() {
        ctx.emit(Event::PrioritiesKept { jobs, priorities });
    }
}

/// The priorities of pending jobs; empty without `INCR_ONLY`.
fn priorities(cluster: &Cluster, now: Time) -> Vec<(JobId, u32)> {
    if !cluster.policy().scheduler.has_flag(PriorityFlag::IncrOnly) {
        return Vec::new();
    }
    let priority = |job: &Job| (job.id, present_priority(cluster, job, now));
    cluster.jobs().pending().map(priority).collect()
}
