//! The jobs that gain priority by age where `GrpJobsAccrue` or a `MaxJobsAccrue` limit their number.
//!
//! A job begins to gain age at its submission if its limits leave room, else at a later roll of usage. Jobs
//! with smaller numbers come first. Tasks of an array count singly: if there is room for some of them only,
//! these get a record of their own.

use std::collections::BTreeMap;

use super::Ctx;
use crate::cluster::{Cluster, Event, Holder};
use crate::id::JobId;
use crate::model::phase::Phase;
use crate::text::array::TaskSet;
use crate::text::time::Time;

/// Lets all pending jobs gain age, as far as the limits admit them.
pub(super) fn begin_all(ctx: &mut Ctx<'_>) {
    if ctx.cluster().limits_accrual() {
        let pending = ctx.cluster().jobs().pending().map(|job| job.id).collect();
        begin(ctx, pending);
    }
}

/// Lets these jobs gain age, as far as the limits admit them.
pub(super) fn begin(ctx: &mut Ctx<'_>, jobs: Vec<JobId>) {
    let (mut begun, mut more) = (Vec::new(), BTreeMap::new());
    for job in jobs {
        let Some(wish) = Wish::of(ctx.cluster(), job, ctx.now(), &more) else { continue };
        let mut own = job;
        if let Some(tasks) = wish.split {
            own = ctx.cluster().next_job();
            ctx.emit(Event::TasksSplit { job: own, from: job, tasks });
        }
        for holder in wish.holders {
            *more.entry(holder).or_default() += wish.count;
        }
        begun.push(own);
    }
    if !begun.is_empty() {
        ctx.emit(Event::AccrualBegun { jobs: begun });
    }
}

/// A job that may begin to gain age.
struct Wish {
    /// The number of tasks that begin; 1 for a job without tasks.
    count: u64,
    /// The tasks that need a record of their own, because the others have to wait.
    split: Option<TaskSet>,
    /// The holders of the job's limits.
    holders: Vec<Holder>,
}

impl Wish {
    /// The wish of a job that may begin to gain age now. `None` if the job gains age already, has no limit on
    /// this, is not eligible, or is beyond a limit. `more` counts jobs that are about to begin.
    fn of(cluster: &Cluster, id: JobId, now: Time, more: &BTreeMap<Holder, u64>) -> Option<Wish> {
        let job = cluster.job(id)?;
        let Phase::Pending(pending) = &job.phase else { return None };
        if pending.accrued.is_some() || pending.eligible.is_none_or(|eligible| eligible > now) {
            return None;
        }
        let rules = cluster.accrual_rules(&job.spec);
        let room = rules.iter().map(|rule| {
            let counted = cluster.counters().tally(&rule.holder).map_or(0, |tally| tally.accruing);
            rule.most.saturating_sub(counted + more.get(&rule.holder).copied().unwrap_or(0))
        });
        let room = room.min().filter(|room| *room > 0)?;
        let tasks = job.array.as_ref().map(|part| &part.tasks);
        let count = room.min(job.task_count() as u64);
        let split = tasks
            .filter(|tasks| count < tasks.len() as u64)
            .map(|tasks| tasks.iter().take(count as usize).collect());
        Some(Wish { count, split, holders: rules.iter().map(|rule| rule.holder.clone()).collect() })
    }
}
