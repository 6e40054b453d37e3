//! Budgets that have run out end the jobs that they count.
//!
//! Budgets are limits of past usage (`GrpTRESMins`, `GrpWall`). They are checked when usage is rolled, so
//! jobs exceed a budget by at most what they use in one period. With `safe` no job starts that could exceed
//! a budget, and none is ended.

use std::collections::BTreeMap;

use super::{Ctx, ending};
use crate::cluster::limits::{Asked, Judge, Running, Started, Stop};
use crate::cluster::{Cluster, Holder};
use crate::id::JobId;
use crate::model::accounts::Limits;
use crate::model::config::AccountingEnforce;
use crate::model::job::Job;
use crate::model::phase::{EndState, Outcome, Then};
use crate::model::reason::Reason;

/// Ends the jobs whose budgets have run out.
pub(super) fn end_exhausted(ctx: &mut Ctx<'_>) {
    for (job, stop) in exhausted(ctx.cluster()) {
        let outcome = ending::outcome(EndState::Timeout, Reason::TimeLimit);
        let detail = Some(format!("{}: {stop}", stop.reason()).into());
        ending::begin(ctx, job, Outcome { detail, ..outcome }, Then::End);
    }
}

/// The jobs that hold resources and have a budget that has run out, each with the first such budget.
fn exhausted(cluster: &Cluster) -> BTreeMap<JobId, Stop> {
    let mut jobs = BTreeMap::new();
    let enforces = |part| cluster.enforces(part);
    if !enforces(AccountingEnforce::Limits) || enforces(AccountingEnforce::Safe) {
        return jobs;
    }
    for holder in holders(cluster) {
        let running = cluster.counters().tally(&holder).into_iter().flat_map(|tally| &tally.running);
        for job in running.filter_map(|job| cluster.job(*job)) {
            if let Some(stop) = stop_of(cluster, job) {
                jobs.insert(job.id, stop);
            }
        }
    }
    jobs
}

/// The associations and QOS of which some budget may be used up.
#[expect(clippy::cast_precision_loss, reason = "whether a budget is used up is judged exactly, job by job")]
fn holders(cluster: &Cluster) -> Vec<Holder> {
    let (tree, usage) = (cluster.accounts(), cluster.usage());
    // `LimitFactor` of a QOS may lower the budgets of associations.
    let factors = tree.qos().filter_map(|qos| qos.limit_factor).filter(|factor| *factor > 0.0);
    let factor = factors.fold(1.0, f64::min);
    let is_used_up = |holder: &Holder, limits: &Limits| {
        limits.budgets().any(|(kind, most)| {
            let past = kind.map_or_else(|| usage.past_wall(holder), |kind| usage.past(holder, kind));
            past.real() / 60.0 >= most as f64 * factor - 1.0
        })
    };
    let associations = tree.associations().map(|own| (Holder::Association(own.id), &own.limits));
    let qos = tree.qos().map(|qos| (Holder::Qos(qos.id), &qos.limits));
    let used_up = associations.chain(qos).filter(|(holder, limits)| is_used_up(holder, limits));
    used_up.map(|(holder, _)| holder).collect()
}

/// The first budget of a running job that is used up.
fn stop_of(cluster: &Cluster, job: &Job) -> Option<Stop> {
    let alloc = job.phase.alloc()?;
    let rules = cluster.rules(&job.spec, &alloc.partition);
    let amounts = cluster.amounts_held(&job.spec, alloc);
    let asked = Asked::of(&job.spec, &rules, &amounts, job.spec.time_limit);
    let (counters, usage, now) = (&**cluster.counters(), cluster.usage(), cluster.at());
    let sums = Running { counters, usage, started: &Started::default(), except: &[], now };
    let judge = Judge { sums: &sums, safe: false };
    let mut budgets = rules.start.iter().filter(|rule| rule.kind.is_budget());
    budgets.find_map(|rule| judge.over(rule, &asked, 1))
}
