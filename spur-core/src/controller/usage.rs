//! Times of usage rolls: at multiples of `priority_calc_period` while a run is counted or a job is pending.
//! Missed periods are made up for at once, before the next run begins.

use std::sync::Arc;

use super::{Ctx, Reply, accrual, budgets, kept_priority};
use crate::cluster::{Cluster, Event};
use crate::model::accounts::usage::{Decay, Ratio};
use crate::text::time::Time;

/// Time of the next roll, at the first multiple of the period after the last one, or of the next reset.
/// `None` if no reset is planned and either nothing depends on usage, or nothing runs and nothing is pending.
#[must_use]
pub(super) fn next_roll(cluster: &Cluster) -> Option<Time> {
    let usage = cluster.usage();
    let has_begun = usage.rolled() != Time::ZERO;
    let is_wanted = usage.has_runs() || (has_begun && cluster.jobs().pending_count() > 0);
    let roll = (is_wanted && cluster.depends_on_usage()).then(|| next_multiple(cluster, usage.rolled()));
    roll.into_iter().chain(usage.next_reset()).min()
}

/// Records the time of the next reset, which the shell computes from the time zone.
pub(super) fn plan_reset(ctx: &mut Ctx<'_>, at: Option<Time>, zone: Arc<str>) -> Reply {
    let usage = ctx.cluster().usage();
    if usage.next_reset() != at || *usage.zone() != zone {
        ctx.emit(Event::ResetPlanned { at, zone });
    }
    Reply::Done
}

/// Rolls usage if a roll is due, and ends the jobs whose budgets the roll has used up.
pub(super) fn roll(ctx: &mut Ctx<'_>, now: Time) {
    if next_roll(ctx.cluster()).is_some_and(|due| due <= now) {
        emit(ctx, now);
        accrual::begin_all(ctx);
        budgets::end_exhausted(ctx);
    }
}

/// Makes up for missed periods before a run begins.
pub(super) fn catch_up(ctx: &mut Ctx<'_>) {
    let (cluster, now) = (ctx.cluster(), ctx.now());
    let rolled = cluster.usage().rolled();
    if rolled != Time::ZERO && cluster.depends_on_usage() && next_multiple(cluster, rolled) <= now {
        emit(ctx, now);
    }
}

fn period(cluster: &Cluster) -> i64 {
    i64::try_from(cluster.policy().scheduler.priority_calc_period.0.max(1)).unwrap_or(i64::MAX)
}

fn next_multiple(cluster: &Cluster, after: Time) -> Time {
    let period = period(cluster);
    Time((after.0.div_euclid(period) + 1).saturating_mul(period))
}

fn emit(ctx: &mut Ctx<'_>, now: Time) {
    let cluster = ctx.cluster();
    let (rolled, period) = (cluster.usage().rolled(), period(cluster));
    let reset = cluster.usage().next_reset().filter(|at| *at <= now);
    // A reset may fall within a period.
    let until = reset.unwrap_or(Time(now.0.div_euclid(period) * period)).max(rolled);
    let periods = until.0.div_euclid(period) - rolled.0.div_euclid(period);
    let decay = Decay::new(cluster.policy().scheduler.priority_decay_half_life);
    let ratio = decay.map_or(Ratio(None), |decay| decay.ratio(until.since(rolled)));
    let reset = reset.is_some();
    let periods = u64::try_from(periods).unwrap_or(0);
    kept_priority::keep(ctx, |ctx| ctx.emit(Event::UsageRolled { until, periods, ratio, reset }));
}
