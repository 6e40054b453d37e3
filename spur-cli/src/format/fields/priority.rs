//! Fields of `sprio` for a job in one of its partitions.

use std::cmp::Ordering;

use serde::Serialize;
use spur_proto::v1::{KeyValue, PriorityFactors, TresShare};

use crate::format::value::or_null;
use crate::format::{Field, Show, Table};

/// Weights of the factors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Weights {
    /// Setting `priority_weight_age`.
    pub age: u32,
    /// Setting `priority_weight_assoc`.
    pub assoc: u32,
    /// Setting `priority_weight_fairshare`.
    pub fairshare: u32,
    /// Setting `priority_weight_job_size`.
    pub job_size: u32,
    /// Setting `priority_weight_partition`.
    pub partition: u32,
    /// Setting `priority_weight_qos`.
    pub qos: u32,
    /// Setting `priority_weight_tres`; empty if not set.
    pub tres: String,
}

impl Weights {
    /// Returns the weights among a controller's settings.
    pub fn of(settings: &[KeyValue]) -> Self {
        let weight = |name: &str| {
            let setting =
                settings.iter().find(|setting| setting.key == format!("scheduler.priority_weight_{name}"));
            setting.and_then(|setting| setting.value.parse().ok()).unwrap_or(0)
        };
        Self {
            age: weight("age"),
            assoc: weight("assoc"),
            fairshare: weight("fairshare"),
            job_size: weight("job_size"),
            partition: weight("partition"),
            qos: weight("qos"),
            tres: settings
                .iter()
                .find(|setting| setting.key == "scheduler.priority_weight_tres")
                .map_or_else(String::new, |setting| setting.value.clone()),
        }
    }
}

/// A job in one of its partitions, or the row of the weights.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Factors of the job; `None` in the row of the weights.
    pub job: Option<PriorityFactors>,
    /// The weights.
    pub weights: Weights,
}

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    text: fn(&Row, &Show) -> String,
) -> Field<Row> {
    Field::new(Some(letter), name, header, text)
}

/// Table of the fields of priorities.
pub static TABLE: Table<Row> = Table { records: "job", fields: FIELDS, bars: ["|", "|", ""] };

/// All fields of priorities.
pub const FIELDS: &[Field<Row>] = &[
    field('a', "AgeNorm", "AGE", |r, _| norm(r, |w| w.age, |f| f.age)).by(|a, b| by(a, b, |f| f.age)),
    field('A', "Age", "AGE", |r, _| weighted(r, |w| w.age, |f| f.age)).by(|a, b| by(a, b, |f| f.age)),
    field('b', "AssocNorm", "ASSOC", |r, _| norm(r, |w| w.assoc, |f| f.assoc))
        .by(|a, b| by(a, b, |f| f.assoc)),
    field('B', "Assoc", "ASSOC", |r, _| weighted(r, |w| w.assoc, |f| f.assoc))
        .by(|a, b| by(a, b, |f| f.assoc)),
    field('c', "Cluster", "CLUSTER", |_, show| show.cluster.clone()),
    field('f', "FairShareNorm", "FAIRSHARE", |r, _| norm(r, |w| w.fairshare, |f| f.fair_share))
        .by(|a, b| by(a, b, |f| f.fair_share)),
    field('F', "FairShare", "FAIRSHARE", |r, _| weighted(r, |w| w.fairshare, |f| f.fair_share))
        .by(|a, b| by(a, b, |f| f.fair_share)),
    field('i', "JobID", "JOBID", |r, _| of_job(r, "Weights", |job| job.job_id.to_string()))
        .by(|a, b| key(a, |job| job.job_id).cmp(&key(b, |job| job.job_id))),
    field('j', "JobSizeNorm", "JOBSIZE", |r, _| norm(r, |w| w.job_size, |f| f.job_size))
        .by(|a, b| by(a, b, |f| f.job_size)),
    field('J', "JobSize", "JOBSIZE", |r, _| weighted(r, |w| w.job_size, |f| f.job_size))
        .by(|a, b| by(a, b, |f| f.job_size)),
    field('N', "Nice", "NICE", |r, _| of_job(r, "", |job| job.nice.to_string()))
        .by(|a, b| key(a, |job| job.nice).cmp(&key(b, |job| job.nice))),
    field('p', "PartitionNorm", "PARTITION", |r, _| norm(r, |w| w.partition, |f| f.partition_factor))
        .by(|a, b| by(a, b, |f| f.partition_factor)),
    field('P', "PartitionFactor", "PARTITION", |r, _| weighted(r, |w| w.partition, |f| f.partition_factor))
        .by(|a, b| by(a, b, |f| f.partition_factor)),
    field('n', "QOSName", "QOSNAME", |r, _| of_job(r, "", |job| job.qos_name.clone())),
    field('o', "Account", "ACCOUNT", |r, _| of_job(r, "", |job| job.account.clone())),
    field('q', "QOSNorm", "QOS", |r, _| norm(r, |w| w.qos, |f| f.qos)).by(|a, b| by(a, b, |f| f.qos)),
    field('Q', "QOS", "QOS", |r, _| weighted(r, |w| w.qos, |f| f.qos)).by(|a, b| by(a, b, |f| f.qos)),
    field('r', "Partition", "PARTITION", |r, _| of_job(r, "", |job| job.partition.clone())),
    field('S', "Site", "SITE", |r, _| weighted(r, |_| 1, |_| 0.0)),
    field('t', "TRESNorm", "TRES", |r, _| tres(r, |share| format!("{:.2}", share.share))),
    field('T', "TRES", "TRES", |r, _| tres(r, |share| format!("{:.0}", share.share * share.weight))),
    field('u', "User", "USER", |r, _| of_job(r, "", |job| job.user.clone())),
    field('y', "PriorityNorm", "PRIORITY", |r, _| {
        of_job(r, "", |job| format!("{:.14}", exact(&r.weights, job) / f64::from(u32::MAX)))
    })
    .by(by_priority),
    field('Y', "Priority", "PRIORITY", |r, _| of_job(r, "", |job| job.priority.to_string())).by(by_priority),
];

fn of_job(row: &Row, of_weights: &str, text: impl Fn(&PriorityFactors) -> String) -> String {
    row.job.as_ref().map_or_else(|| of_weights.to_owned(), text)
}

/// Returns the priority with its fraction: the sum of the weighted factors, less the nice value, and at least
/// 1.
fn exact(weights: &Weights, job: &PriorityFactors) -> f64 {
    if job.is_set {
        return job.priority.into();
    }
    let factors = [
        (weights.age, job.age),
        (weights.assoc, job.assoc),
        (weights.fairshare, job.fair_share),
        (weights.job_size, job.job_size),
        (weights.partition, job.partition_factor),
        (weights.qos, job.qos),
    ];
    let sum: f64 = factors.iter().map(|(weight, factor)| f64::from(*weight) * factor).sum();
    let tres: f64 = job.tres.iter().map(|share| share.share * share.weight).sum();
    (sum + tres - f64::from(job.nice)).clamp(1.0, u32::MAX.into())
}

/// Formats a factor from 0 to 1; the row of the weights has the weight.
fn norm(row: &Row, weight: fn(&Weights) -> u32, factor: fn(&PriorityFactors) -> f64) -> String {
    of_job(row, &weight(&row.weights).to_string(), |job| format!("{:.7}", factor(job)))
}

/// Formats a factor times its weight; the row of the weights has the weight.
fn weighted(row: &Row, weight: fn(&Weights) -> u32, factor: fn(&PriorityFactors) -> f64) -> String {
    let weight = weight(&row.weights);
    of_job(row, &weight.to_string(), |job| format!("{:.0}", f64::from(weight) * factor(job)))
}

/// Formats the resources that have a weight, possibly none. The row of the weights has all weights, or
/// `(null)`.
fn tres(row: &Row, text: fn(&TresShare) -> String) -> String {
    match &row.job {
        None => or_null(&row.weights.tres),
        Some(job) => {
            let all = job.tres.iter().map(|share| format!("{}={}", share.name, text(share)));
            all.collect::<Vec<_>>().join(",")
        }
    }
}

fn by(a: &Row, b: &Row, factor: fn(&PriorityFactors) -> f64) -> Ordering {
    let of = |row: &Row| row.job.as_ref().map_or(0.0, factor);
    of(a).total_cmp(&of(b))
}

fn key<T>(row: &Row, key: impl Fn(&PriorityFactors) -> T) -> Option<T> {
    row.job.as_ref().map(key)
}

fn by_priority(a: &Row, b: &Row) -> Ordering {
    key(a, |job| job.priority).cmp(&key(b, |job| job.priority))
}
