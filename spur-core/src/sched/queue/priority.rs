//! The priority of a pending job: Slurm's multifactor priority, and the orders of the scheduling literature.

use crate::model::config::{Order, PriorityFlag, SchedulerPolicy};
pub use crate::sched::inventory::PriorityScale;
use crate::text::time::Time;

/// The facts about a pending job that orders use.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The time of submission.
    pub submitted: Time,
    /// The time since which the job waits only for resources.
    pub eligible: Time,
    /// The time from which the age factor counts; `None` for a job that gains no age.
    pub accrues_from: Option<Time>,
    /// The fewest nodes of the job.
    pub nodes: u32,
    /// The fewest CPUs of the job.
    pub cpus: u64,
    /// The time limit in minutes, rounded up; 2^32 - 1 without a limit.
    pub limit_minutes: u64,
    /// Planned run time in seconds.
    pub run_time: u64,
    /// The run time in seconds by which orders weigh the job.
    pub weighed_time: u64,
    /// `priority_job_factor` of its partition.
    pub partition_factor: u32,
    /// `priority` of its QOS; 0 without a QOS.
    pub qos_priority: u32,
    /// `Priority` of its association; 0 if the association has none.
    pub assoc_priority: u64,
    /// The fair-share factor of its association, from 0 to 1.
    pub fair_share: f64,
    /// The sum of the job's shares of a partition's resources, each times its weight.
    pub tres: f64,
    /// The priority that was asked for, or set by an operator.
    pub explicit: Option<u32>,
    /// The `--nice` value.
    pub nice: i32,
    /// The priority below which the job does not fall; 0 without `INCR_ONLY`.
    pub kept: u32,
}

/// The factors of a multifactor priority, each from 0 to 1. The exceptions are `tres`, and factors that a
/// `NO_NORMAL` flag of `priority_flags` keeps from being divided by the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Factors {
    /// The time since eligibility over `priority_max_age`; with `ACCRUE_ALWAYS`, the time since submission.
    pub age: f64,
    /// The mean of the job's shares of nodes and CPUs; with `SMALL_RELATIVE_TO_TIME`, the larger share over
    /// the time limit in minutes. With `priority_favor_small`, the factor is 1 less that number.
    pub job_size: f64,
    /// The partition's `priority_job_factor` over the largest of any partition.
    pub partition: f64,
    /// The `priority` of the QOS over the largest of any QOS.
    pub qos: f64,
    /// The `Priority` of the association over the largest of any association.
    pub assoc: f64,
    /// The fair-share factor of the association.
    pub fair_share: f64,
    /// The sum of the weighted shares of resources.
    pub tres: f64,
}

impl Factors {
    /// The factors at `now`.
    #[must_use]
    pub fn new(policy: &SchedulerPolicy, scale: &PriorityScale, facts: &Facts, now: Time) -> Self {
        let normal = |flag, number: u64, largest: u64| match policy.has_flag(flag) {
            true => real(number),
            false => ratio(number, largest),
        };
        let (partition, partitions) = (facts.partition_factor.into(), scale.partition_factor.into());
        let (qos, all_qos) = (facts.qos_priority.into(), scale.qos_priority.into());
        Self {
            age: ratio(facts.accrues_from.map_or(0, |from| now.since(from)), policy.priority_max_age.0),
            job_size: job_size(policy, scale, facts),
            partition: normal(PriorityFlag::NoNormalPart, partition, partitions),
            qos: normal(PriorityFlag::NoNormalQos, qos, all_qos),
            assoc: normal(PriorityFlag::NoNormalAssoc, facts.assoc_priority, scale.assoc_priority),
            fair_share: facts.fair_share,
            tres: facts.tres,
        }
    }
}

fn job_size(policy: &SchedulerPolicy, scale: &PriorityScale, facts: &Facts) -> f64 {
    let (nodes, cpus) = (ratio(facts.nodes.into(), scale.nodes.into()), ratio(facts.cpus, scale.cpus));
    let size = match policy.has_flag(PriorityFlag::SmallRelativeToTime) {
        true => nodes.max(cpus) / real(facts.limit_minutes.max(1)),
        false => f64::midpoint(nodes, cpus),
    };
    if policy.priority_favor_small { 1.0 - size } else { size }
}

/// Slurm's multifactor priority at `now`, at least 1: the weighted sum of the factors, less the nice value,
/// and no less than a kept priority. A priority that was asked for, or set by an operator, is returned as it
/// is.
#[must_use]
pub fn multifactor(policy: &SchedulerPolicy, scale: &PriorityScale, facts: &Facts, now: Time) -> u32 {
    if let Some(priority) = facts.explicit {
        return priority;
    }
    let Factors { age, job_size, partition, qos, assoc, fair_share, tres } =
        Factors::new(policy, scale, facts, now);
    let sum = f64::from(policy.priority_weight_age) * age
        + f64::from(policy.priority_weight_job_size) * job_size
        + f64::from(policy.priority_weight_partition) * partition
        + f64::from(policy.priority_weight_qos) * qos
        + f64::from(policy.priority_weight_assoc) * assoc
        + f64::from(policy.priority_weight_fairshare) * fair_share
        + tres
        - f64::from(facts.nice);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what a u32 holds just before"
    )]
    let priority = sum.clamp(1.0, f64::from(u32::MAX)) as u32;
    priority.max(facts.kept)
}

/// `part` over `whole`, from 0 to 1; 0 if `whole` is 0.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (real(part) / real(whole)).min(1.0) }
}

#[expect(clippy::cast_precision_loss, reason = "seconds and CPU counts are far below 2^52")]
pub(super) fn real(number: u64) -> f64 {
    number as f64
}

/// The rank of a job under an order; smaller ranks come first. `None` for orders without a rank.
///
/// With `w` the seconds since submission, `r` the run time in seconds by which the job is weighed, `q` the
/// fewest CPUs and `s` the time of submission: SAF `r q`; WFP3 `-(w/r)³ q`; UNICEP `-w / (log₂(q) r)`; F1
/// `log₁₀(r) q + 870 log₁₀(s)`; F4 `r √q + 5.3·10⁵ log₁₀(s)` (Carastan-Santos and de Camargo, SC'17, for the
/// last four).
#[must_use]
pub fn rank(order: Order, facts: &Facts, now: Time) -> Option<f64> {
    let wait = real(now.since(facts.submitted));
    let run = real(facts.weighed_time.max(1));
    let cpus = real(facts.cpus.max(1));
    let submitted = real(facts.submitted.since(Time::ZERO).max(1));
    Some(match order {
        Order::Multifactor | Order::Fcfs => return None,
        Order::Sjf => run,
        Order::Saf => run * cpus,
        Order::Wfp3 => -(wait / run).powi(3) * cpus,
        // The logarithm of one CPU is 0; a number barely above 0 puts such jobs first.
        Order::Unicep => -wait / (cpus.log2().max(1e-3) * run),
        Order::F1 => run.log10() * cpus + 870.0 * submitted.log10(),
        Order::F4 => run * cpus.sqrt() + 5.3e5 * submitted.log10(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            submitted: Time(0),
            eligible: Time(0),
            accrues_from: Some(Time(0)),
            nodes: 2,
            cpus: 8,
            limit_minutes: 2,
            run_time: 100,
            weighed_time: 100,
            partition_factor: 1,
            qos_priority: 30,
            assoc_priority: 7,
            fair_share: 0.0,
            tres: 0.0,
            explicit: None,
            nice: 0,
            kept: 0,
        }
    }

    #[test]
    fn factors_add_up_as_in_slurm() {
        let scale =
            PriorityScale { nodes: 4, cpus: 16, partition_factor: 2, qos_priority: 40, assoc_priority: 28 };
        let policy = SchedulerPolicy { priority_weight_job_size: 100, ..SchedulerPolicy::default() };
        let half = Time(7 * 86_400 / 2);
        // Half the age of 1000, half the size of 100, half the partition factor of 1000.
        assert_eq!(multifactor(&policy, &scale, &facts(), half), 500 + 50 + 500);
        // Three quarters of the largest QOS priority.
        let weighs_qos = SchedulerPolicy { priority_weight_qos: 2000, ..policy.clone() };
        assert_eq!(multifactor(&weighs_qos, &scale, &facts(), half), 500 + 50 + 500 + 1500);
        // A quarter of the largest priority of an association.
        let weighs_assoc = SchedulerPolicy { priority_weight_assoc: 400, ..policy.clone() };
        assert_eq!(multifactor(&weighs_assoc, &scale, &facts(), half), 500 + 50 + 500 + 100);
        let shares = Facts { fair_share: 0.25, tres: 3.5, ..facts() };
        let weighs_shares = SchedulerPolicy { priority_weight_fairshare: 10, ..policy.clone() };
        assert_eq!(multifactor(&weighs_shares, &scale, &shares, half), 1050 + 6, "2.5 and 3.5");
        let no_qos = PriorityScale { qos_priority: 0, ..scale };
        assert_eq!(multifactor(&weighs_qos, &no_qos, &Facts { qos_priority: 0, ..facts() }, half), 1050);
        assert_eq!(multifactor(&policy, &scale, &Facts { nice: 50, ..facts() }, half), 1000);
        assert_eq!(multifactor(&policy, &scale, &Facts { nice: i32::MAX, ..facts() }, half), 1);
        assert_eq!(multifactor(&policy, &scale, &Facts { kept: 1200, ..facts() }, half), 1200);
        assert_eq!(multifactor(&policy, &scale, &Facts { kept: 900, ..facts() }, half), 1050);
        assert_eq!(multifactor(&policy, &scale, &Facts { explicit: Some(7), ..facts() }, half), 7);
    }

    #[test]
    fn flags_change_factors_as_in_slurm() {
        let scale =
            PriorityScale { nodes: 4, cpus: 64, partition_factor: 2, qos_priority: 40, assoc_priority: 28 };
        let half = Time(7 * 86_400 / 2);
        let plain = Factors::new(&SchedulerPolicy::default(), &scale, &facts(), half);
        let with = |flag, small| {
            let policy = SchedulerPolicy {
                priority_flags: vec![flag],
                priority_favor_small: small,
                ..SchedulerPolicy::default()
            };
            Factors::new(&policy, &scale, &Facts { eligible: Time(100), ..facts() }, half)
        };
        assert_eq!(with(PriorityFlag::MaxTres, false), plain);
        assert_eq!(with(PriorityFlag::NoNormalPart, false), Factors { partition: 1.0, ..plain });
        assert_eq!(with(PriorityFlag::NoNormalQos, false), Factors { qos: 30.0, ..plain });
        assert_eq!(with(PriorityFlag::NoNormalAssoc, false), Factors { assoc: 7.0, ..plain });
        let all = Factors { partition: 1.0, qos: 30.0, assoc: 7.0, ..plain };
        assert_eq!(with(PriorityFlag::NoNormalAll, false), all);
        // Half the nodes, which is more than an eighth of the CPUs, over two minutes.
        let flag = PriorityFlag::SmallRelativeToTime;
        assert_eq!(with(flag, false), Factors { job_size: 0.25, ..plain });
        assert_eq!(with(flag, true), Factors { job_size: 0.75, ..plain });
    }

    #[test]
    fn orders_prefer_what_they_say() {
        let (small, large) = (facts(), Facts { cpus: 64, weighed_time: 1_000, ..facts() });
        for order in [Order::Sjf, Order::Saf, Order::F1, Order::F4, Order::Unicep] {
            assert!(rank(order, &small, Time(50)) < rank(order, &large, Time(50)), "{order:?}");
        }
        let waited = Facts { submitted: Time(-500), ..facts() };
        for order in [Order::Wfp3, Order::Unicep] {
            assert!(rank(order, &waited, Time(50)) < rank(order, &small, Time(50)), "{order:?}");
        }
        assert_eq!(rank(Order::Fcfs, &small, Time(50)), None);
    }

    #[test]
    fn the_orders_of_the_paper_are_its_formulas() {
        // 100 s on 16 CPUs, submitted at 1,000 s.
        let job = Facts { cpus: 16, submitted: Time(1_000), ..facts() };
        assert_eq!(rank(Order::F1, &job, Time(2_000)), Some(2.0 * 16.0 + 870.0 * 3.0));
        assert_eq!(rank(Order::F4, &job, Time(2_000)), Some(100.0 * 4.0 + 5.3e5 * 3.0));
    }
}
