//! QOS: classes of jobs, with Slurm's fields and two more (`allow_groups`, `allow_accounts`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limits::{LimitKind, Limits};
use crate::model::config::{PreemptMode, QosConfig};
use crate::text::time::{Seconds, TimeLimit};

/// A quality of service: priority, limits and preemption rules for jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Qos {
    /// The number; never given to another QOS. That of `normal` is 1.
    pub id: u32,
    /// Name of the QOS.
    pub name: Arc<str>,
    /// Description of the QOS, free text.
    pub description: Arc<str>,
    /// The priority of the QOS factor, relative to the largest one of all QOS.
    pub priority: u32,
    /// The QOS whose jobs this QOS may preempt.
    pub preempt: BTreeSet<Arc<str>>,
    /// The way in which its jobs are preempted; `None` leaves that to the partition and `[preempt]`.
    pub preempt_mode: Option<PreemptMode>,
    /// The grace time of its jobs; `None` leaves that to the partition and `[preempt]`.
    pub grace_time: Option<Seconds>,
    /// Time that its jobs run before they can be preempted; `None` leaves that to `[preempt]`.
    pub exempt_time: Option<Seconds>,
    /// Flags, all of them Slurm's.
    pub flags: BTreeSet<QosFlag>,
    /// The factor by which usage of its jobs is multiplied.
    pub usage_factor: f64,
    /// The fair-share factor below which jobs wait, with the flag `EnforceUsageThreshold`.
    pub usage_threshold: Option<f64>,
    /// The factor by which TRES limits of associations are multiplied for its jobs.
    pub limit_factor: Option<f64>,
    /// The limits that the QOS sets.
    pub limits: Limits,
    /// The groups whose users may use the QOS; empty for all. Slurm has no such field.
    pub allow_groups: Vec<Arc<str>>,
    /// The accounts whose jobs may use the QOS; empty for all. Slurm has no such field.
    pub allow_accounts: Vec<Arc<str>>,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            id: 0,
            name: Arc::default(),
            description: Arc::default(),
            priority: 0,
            preempt: BTreeSet::new(),
            preempt_mode: None,
            grace_time: None,
            exempt_time: None,
            flags: BTreeSet::new(),
            usage_factor: 1.0,
            usage_threshold: None,
            limit_factor: None,
            limits: Limits::default(),
            allow_groups: Vec::new(),
            allow_accounts: Vec::new(),
        }
    }
}

impl Qos {
    /// The QOS that a `[[qos]]` section of the configuration defines.
    #[must_use]
    pub fn of_config(id: u32, config: &QosConfig) -> Self {
        let mut limits = Limits::default();
        let minutes = config.max_wall.and_then(TimeLimit::seconds).map(|seconds| seconds.div_ceil(60));
        limits.change(LimitKind::MaxWall, &super::limits::LimitChange::Number(minutes));
        Self {
            id,
            name: Arc::clone(&config.name),
            description: Arc::clone(&config.name),
            priority: config.priority,
            preempt: config.preempt.iter().cloned().collect(),
            preempt_mode: config.preempt_mode,
            grace_time: config.grace_time,
            exempt_time: config.exempt_time,
            limits,
            allow_groups: config.allow_groups.clone(),
            allow_accounts: config.allow_accounts.clone(),
            ..Self::default()
        }
    }

    /// The part of the QOS that the planner uses.
    #[must_use]
    pub fn config(&self) -> QosConfig {
        let minutes = self.limits.number(LimitKind::MaxWall);
        QosConfig {
            name: Arc::clone(&self.name),
            priority: self.priority,
            preempt: self.preempt.iter().cloned().collect(),
            preempt_mode: self.preempt_mode,
            grace_time: self.grace_time,
            exempt_time: self.exempt_time,
            max_wall: minutes.map(|minutes| TimeLimit::Seconds(minutes.saturating_mul(60))),
            allow_groups: self.allow_groups.clone(),
            allow_accounts: self.allow_accounts.clone(),
            flags: self.flags.clone(),
        }
    }
}

/// A flag of a QOS, in Slurm's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosFlag {
    /// A job over a limit is refused at submission.
    DenyOnLimit,
    /// Jobs with a fair-share factor below `UsageThreshold` wait.
    EnforceUsageThreshold,
    /// Backfill plans no starts for its jobs.
    NoReserve,
    /// Jobs may have more nodes than their partition allows.
    PartitionMaxNodes,
    /// Jobs may have fewer nodes than their partition requires.
    PartitionMinNodes,
    /// Limits of this QOS take precedence over those of the partition's QOS.
    OverPartQOS,
    /// Jobs may run longer than their partition allows.
    PartitionTimeLimit,
    /// Jobs must name a reservation.
    RequiresReservation,
    /// Usage of the QOS does not decay.
    NoDecay,
    /// In Slurm, usage counts times `UsageFactor` with `safe`. Stored without effect.
    UsageFactorSafe,
    /// Limits of resources are percentages of the cluster, or of the partition whose QOS this is.
    Relative,
}

impl QosFlag {
    pub(super) const ALL: [QosFlag; 11] = [
        QosFlag::DenyOnLimit,
        QosFlag::EnforceUsageThreshold,
        QosFlag::NoReserve,
        QosFlag::PartitionMaxNodes,
        QosFlag::PartitionMinNodes,
        QosFlag::OverPartQOS,
        QosFlag::PartitionTimeLimit,
        QosFlag::RequiresReservation,
        QosFlag::NoDecay,
        QosFlag::UsageFactorSafe,
        QosFlag::Relative,
    ];

    /// The flag of this name, compared without regard to case; `None` if there is none.
    #[must_use]
    pub fn read(text: &str) -> Option<QosFlag> {
        Self::ALL.into_iter().find(|flag| flag.to_string().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for QosFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
