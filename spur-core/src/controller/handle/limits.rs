//! The limits of associations and QOS that a submission is judged by.

use std::sync::Arc;

use super::super::Reject;
use super::submit;
use crate::cluster::limits::{Asked, Judge, Running, Started, Stop};
use crate::cluster::tres::Tariff;
use crate::cluster::{Cluster, Partition};
use crate::id::JobId;
use crate::model::accounts::Qos;
use crate::model::accounts::qos::QosFlag;
use crate::model::config::AccountingEnforce;
use crate::model::job::{Job, JobSpec};
use crate::sched::request;
use crate::text::time::{Time, TimeLimit};

/// Judges jobs submitted together by the limits of associations and QOS. Returns a warning for each job that
/// is accepted but exceeds a limit by itself, and so waits. Each array task counts as a job; a job with
/// several partitions counts for the first.
///
/// # Errors
/// [`Reject::OverLimit`] for the first limit that refuses a job; also a QOS that requires a reservation, and
/// an unknown partition.
pub(super) fn check(cluster: &Cluster, now: Time, specs: &[&JobSpec]) -> Result<Vec<String>, Reject> {
    let mut warnings = Vec::new();
    let mut started = Started::default();
    for (number, spec) in specs.iter().enumerate() {
        let tasks = spec.array.as_ref().map_or(1, |array| array.tasks.len() as u64);
        let judged = Judged { spec, tasks, is_last: number + 1 == specs.len() };
        warnings.extend(judge(cluster, now, judged, &[], &mut started)?);
    }
    Ok(warnings)
}

/// Judges a changed request of a job, or of the tasks in its record. A request with the same account, QOS
/// and partitions is not judged. Returns a warning if the job exceeds a limit by itself, and so waits.
///
/// # Errors
/// [`Reject::OverLimit`] for the first limit that refuses the job; also a QOS that requires a reservation,
/// and an unknown partition.
pub(super) fn check_changed(
    cluster: &Cluster,
    now: Time,
    spec: &JobSpec,
    job: &Job,
) -> Result<Option<String>, Reject> {
    let counts_for = |spec: &JobSpec| (spec.account.clone(), spec.qos.clone(), spec.partitions.clone());
    if counts_for(spec) == counts_for(&job.spec) {
        return Ok(None);
    }
    let judged = Judged { spec, tasks: job.task_count() as u64, is_last: true };
    judge(cluster, now, judged, &[job.id], &mut Started::default())
}

/// A request that is judged.
#[derive(Clone, Copy)]
struct Judged<'a> {
    spec: &'a JobSpec,
    /// Number of jobs that the request stands for.
    tasks: u64,
    /// True if no further request is judged together with this one.
    is_last: bool,
}

/// Judges a submission after those in `started`, and adds it to these unless it is the last; the jobs in
/// `except` do not count.
fn judge(
    cluster: &Cluster,
    now: Time,
    Judged { spec, tasks, is_last }: Judged<'_>,
    except: &[JobId],
    started: &mut Started,
) -> Result<Option<String>, Reject> {
    needs_reservation(cluster, spec)?;
    let partition = submit::partitions(cluster, spec)?.into_iter().next();
    let Some(partition) = partition.filter(|_| cluster.enforces(AccountingEnforce::Limits)) else {
        return Ok(None);
    };
    let rules = cluster.rules(spec, partition.name());
    let tariff = Tariff::new(&cluster.policy().scheduler, &partition.config);
    let amounts = request::least_amounts(spec, &partition.config, tariff);
    let limit = spec.least_time();
    let asked = Asked { bills_at_least: !tariff.is_by_amounts(), ..Asked::of(spec, &rules, &amounts, limit) };
    let sums = Running { counters: cluster.counters(), usage: cluster.usage(), started, except, now };
    let judge = Judge { sums: &sums, safe: cluster.enforces(AccountingEnforce::Safe) };
    if let Some(stop) = judge.submit(&asked, tasks) {
        return Err(over(&stop));
    }
    let stop = judge.alone(&asked);
    if !is_last {
        started.add(&asked);
    }
    Ok(stop.map(|stop| format!("the job waits ({}): {stop}", stop.reason())))
}

/// Refuses a job without a reservation if its QOS has `RequiresReservation`.
fn needs_reservation(cluster: &Cluster, spec: &JobSpec) -> Result<(), Reject> {
    let qos = spec.qos.as_deref().and_then(|name| cluster.accounts().qos_named(name));
    let needs = |qos: &&Arc<Qos>| qos.flags.contains(&QosFlag::RequiresReservation);
    match qos.filter(needs).filter(|_| spec.reservations().next().is_none()) {
        Some(qos) => Err(Reject::InvalidQos(format!(
            "jobs of QOS {} run in reservations (RequiresReservation); name one with --reservation",
            qos.name
        ))),
        None => Ok(()),
    }
}

fn over(stop: &Stop) -> Reject {
    Reject::OverLimit { reason: stop.reason(), limit: stop.to_string() }
}

/// The longest time limit that the limits allow a job in the first of its partitions.
pub(super) fn most_time(cluster: &Cluster, spec: &JobSpec, partitions: &[&Partition]) -> TimeLimit {
    let Some(first) = partitions.first().filter(|_| cluster.enforces(AccountingEnforce::Limits)) else {
        let qos = cluster.policy().qos_of(spec.qos.as_deref());
        return qos.and_then(|qos| qos.max_wall).unwrap_or(TimeLimit::Unlimited);
    };
    let minutes = cluster.rules(spec, first.name()).most_minutes();
    minutes.map_or(TimeLimit::Unlimited, |minutes| TimeLimit::Seconds(minutes.saturating_mul(60)))
}
