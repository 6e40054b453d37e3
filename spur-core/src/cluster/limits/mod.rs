//! Checks of submissions and starts against the limits of associations and QOS.
//!
//! A start is judged by the counters that `apply` keeps ([`counters`](super::counters)). Until the next
//! start, running jobs can only give up resources.

mod judge;
mod known;
mod reasons;
mod rules;
mod threshold;

use std::fmt;
use std::sync::Arc;

pub use judge::{Judge, Running, Started, Sums};
pub(super) use known::KnownRules;
pub use reasons::reason;
pub use rules::{Rule, Rules, Setter};
pub use threshold::BelowThreshold;

use super::tres::Amounts;
use super::{Cluster, FeatureLevel};
use crate::id::JobId;
use crate::model::accounts::qos::QosFlag;
use crate::model::accounts::usage::Rate;
use crate::model::accounts::{Charged, LimitKind};
use crate::model::config::{AccountingEnforce, PriorityFlag};
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::memory::MemoryMb;
use crate::text::time::{Time, TimeLimit};
use crate::text::tres::TresKind;

/// A job that is judged: the resources that it would hold, and its time limit.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Request of the job.
    pub spec: &'a JobSpec,
    /// The limits that apply to the job.
    pub rules: &'a Rules,
    /// The resources that the job would hold.
    pub amounts: &'a Amounts,
    /// The time limit with which the job would start.
    pub limit: TimeLimit,
    /// True if the job may get more than `amounts`.
    pub at_least: bool,
    /// True if the job may be charged more than `amounts` say.
    pub bills_at_least: bool,
}

impl<'a> Asked<'a> {
    /// A job whose amounts and charge are final.
    #[must_use]
    pub fn of(spec: &'a JobSpec, rules: &'a Rules, amounts: &'a Amounts, limit: TimeLimit) -> Self {
        Self { spec, rules, amounts, limit, at_least: false, bills_at_least: false }
    }

    /// Number of seconds that the job counts in limits of resources times minutes; `u64::MAX` without a time
    /// limit.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        counted_seconds(self.limit.seconds().unwrap_or(u64::MAX), self.rules.time_factor)
    }
}

/// A number of seconds times the factor of a QOS, rounded up. `u64::MAX` stands for no time limit, and stays
/// unless the factor is 0.
#[must_use]
pub fn counted_seconds(seconds: u64, factor: Option<Rate>) -> u64 {
    match factor {
        None => seconds,
        Some(Rate(0)) => 0,
        Some(_) if seconds == u64::MAX => seconds,
        Some(Rate(factor)) => {
            let product = u128::from(seconds).saturating_mul(factor);
            u64::try_from(product.div_ceil(Rate::ONE.0)).unwrap_or(u64::MAX)
        }
    }
}

/// A job that is about to start.
#[derive(Clone, Debug)]
pub struct Starter {
    /// Number of the job.
    pub job: JobId,
    /// Request of the job.
    pub spec: Arc<JobSpec>,
    /// Partition in which the job would start.
    pub partition: Arc<str>,
    /// The resources that the job would hold.
    pub amounts: Amounts,
    /// The time limit with which the job would start.
    pub limit: TimeLimit,
}

/// The limit that stops a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Limit that stops the job.
    pub rule: Arc<Rule>,
    /// Amount of the limit that is used; 0 for a limit of one job.
    pub used: u64,
    /// Amount that the job asks for.
    pub asked: u64,
    /// True if `used` counts jobs that are planned to start later, before this one.
    pub planned: bool,
}

impl Stop {
    /// The stop by a limit, with the amount that is used and the amount that the job asks for.
    fn of(rule: &Arc<Rule>, used: u64, asked: u64) -> Self {
        Self { rule: Arc::clone(rule), used, asked, planned: false }
    }

    /// Slurm's word for the limit.
    #[must_use]
    pub fn reason(&self) -> Reason {
        reason(self.rule.kind, self.rule.tres.as_ref(), matches!(self.rule.setter, Setter::Qos(_)))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { kind, tres, most, setter, .. } = &*self.rule;
        let amount = |amount: u64| match (tres, kind.is_of_minutes()) {
            (Some(TresKind::Mem), false) => MemoryMb(amount).to_string(),
            _ => amount.to_string(),
        };
        let of = tres.as_ref().map_or_else(String::new, |tres| format!("{tres}="));
        write!(f, "{}={of}{} of {setter}: ", kind.short_name(), amount(*most))?;
        let (used, asked) = (amount(self.used), amount(self.asked));
        let unit = if kind.is_of_minutes() { " minutes" } else { "" };
        match kind {
            LimitKind::MaxTres | LimitKind::MaxTresPerNode | LimitKind::MaxTresMins | LimitKind::MaxWall => {
                write!(f, "the job asks for {asked}{unit}")
            }
            LimitKind::MinTres => write!(f, "the job asks for {asked} only"),
            LimitKind::GrpTresMins | LimitKind::GrpWall => {
                write!(f, "{used}{unit} are used or promised to running jobs, the job asks for {asked}")
            }
            LimitKind::GrpSubmitJobs
            | LimitKind::MaxSubmitJobs
            | LimitKind::MaxSubmitJobsPerUser
            | LimitKind::MaxSubmitJobsPerAccount => {
                write!(f, "{used} jobs wait or run, {asked} more are submitted")
            }
            _ if self.planned => {
                write!(f, "jobs that run or start before it have {used}{unit}, the job asks for {asked}")
            }
            _ => write!(f, "running jobs have {used}{unit}, the job asks for {asked}"),
        }
    }
}

impl Cluster {
    /// The factor of a job's time in limits of resources times minutes: the `UsageFactor` of its QOS, if the
    /// QOS has the flag `UsageFactorSafe` and `safe` is enforced; `None` for 1.
    pub(super) fn time_factor(&self, charged: Charged) -> Option<Rate> {
        let qos = self.accounts.qos_numbered(charged.qos?)?;
        let counts = qos.flags.contains(&QosFlag::UsageFactorSafe) && self.enforces(AccountingEnforce::Safe);
        counts.then(|| Rate::ONE.times(qos.usage_factor))
    }

    /// The first limit that keeps jobs from starting together; `None` if all may start. Jobs of `displaced`
    /// are about to lose their nominations and do not count.
    #[must_use]
    pub fn stops(&self, now: Time, starters: &[Starter], displaced: &[JobId]) -> Option<Stop> {
        if !self.enforces(AccountingEnforce::Limits) {
            return None;
        }
        let except: Vec<JobId> =
            starters.iter().map(|starter| starter.job).chain(displaced.iter().copied()).collect();
        let mut started = Started::default();
        for (number, Starter { spec, partition, amounts, limit, .. }) in starters.iter().enumerate() {
            let rules = self.rules(spec, partition);
            let asked = Asked::of(spec, &rules, amounts, *limit);
            let (counters, usage) = (&**self.counters(), self.usage());
            let sums = Running { counters, usage, started: &started, except: &except, now };
            let judge = Judge { sums: &sums, safe: self.enforces(AccountingEnforce::Safe) };
            if let Some(stop) = judge.start(&asked) {
                return Some(stop);
            }
            if number + 1 < starters.len() {
                started.add(&asked);
            }
        }
        None
    }

    /// True if the number of pending jobs that gain priority by age is limited anywhere, limits are enforced,
    /// and `ACCRUE_ALWAYS` is not set.
    #[must_use]
    pub fn limits_accrual(&self) -> bool {
        self.feature_level() >= FeatureLevel(2)
            && self.enforces(AccountingEnforce::Limits)
            && self.accounts().limits_accrual()
            && !self.policy().scheduler.has_flag(PriorityFlag::AccrueAlways)
    }

    /// The limits on the number of jobs that gain age, for a job in the first of its partitions; empty if
    /// there are none.
    #[must_use]
    pub fn accrual_rules(&self, spec: &JobSpec) -> Vec<Arc<Rule>> {
        let first = spec.partitions.first().filter(|_| self.limits_accrual());
        first.map_or_else(Vec::new, |partition| self.rules(spec, partition).accrual.clone())
    }

    /// The limits that apply to a job in the partition of this name.
    #[must_use]
    pub fn rules(&self, spec: &JobSpec, partition: &str) -> Arc<Rules> {
        let (charged, user) = (self.charged_in(spec, partition), &spec.owner.user);
        self.derived.rules.get(charged, user).unwrap_or_else(|| {
            let rules = Arc::new(Rules::new(self, charged, user));
            self.derived.rules.note(charged, user, &rules);
            rules
        })
    }
}
