//! The sections `[[qos]]`: classes of jobs, with their priority, the QOS that they preempt, and their users.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::partition::PartitionConfig;
use super::policy::{Policy, PreemptMode};
use crate::model::accounts::qos::QosFlag;
use crate::text::time::{Seconds, TimeLimit};

/// The configuration of one QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QosConfig {
    /// The name that `--qos` refers to.
    pub name: Arc<str>,
    /// The priority for the QOS factor of multifactor priority, relative to the largest one configured. Where
    /// QOS preempt, also the cost of a victim with this QOS.
    pub priority: u32,
    /// QOS whose jobs this QOS may preempt, with `[preempt] by = "qos"`; never in a circle.
    pub preempt: Vec<Arc<str>>,
    /// The way in which victims leave; overrides that of the partition and of `[preempt]`.
    pub preempt_mode: Option<PreemptMode>,
    /// The grace time of victims; overrides that of the partition and of `[preempt]`.
    pub grace_time: Option<Seconds>,
    /// `preempt_exempt_time`: time that a job runs before it can be a victim; overrides `[preempt]
    /// exempt_time`.
    #[serde(rename = "preempt_exempt_time")]
    pub exempt_time: Option<Seconds>,
    /// The longest time limit of a job with this QOS; `None` for that of the partition.
    pub max_wall: Option<TimeLimit>,
    /// Groups that may use the QOS; empty for all.
    pub allow_groups: Vec<Arc<str>>,
    /// Accounts that may use the QOS; empty for all.
    pub allow_accounts: Vec<Arc<str>>,
    /// Flags that `sacctmgr` has set.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<QosFlag>,
}

impl QosConfig {
    /// True if the QOS has the flag.
    #[must_use]
    pub fn has(&self, flag: QosFlag) -> bool {
        self.flags.contains(&flag)
    }
}

impl Policy {
    /// Index of the QOS with this name; `None` if there is none.
    #[must_use]
    pub fn qos_index(&self, name: &str) -> Option<usize> {
        self.qos.iter().position(|qos| &*qos.name == name)
    }

    /// The QOS that a job names; `None` if it names none, or one that is not configured.
    #[must_use]
    pub fn qos_of(&self, named: Option<&str>) -> Option<&QosConfig> {
        self.qos_index(named?).map(|index| &self.qos[index])
    }

    /// True if a job may name this QOS, or none. Without any configured QOS, every name is accepted and has
    /// no effect.
    #[must_use]
    pub fn knows_qos(&self, named: Option<&str>) -> bool {
        self.qos.is_empty() || named.is_none_or(|name| self.qos_index(name).is_some())
    }

    /// Length of the longest chain of QOS above each QOS, in which each may preempt the next. It is 0 for a
    /// QOS that no other may preempt.
    #[must_use]
    pub fn qos_depths(&self) -> Vec<u32> {
        let mut depths = vec![0; self.qos.len()];
        // A chain has each QOS at most once, so this number of rounds suffices, and a circle cannot loop for
        // ever.
        for _ in &self.qos {
            for (above, qos) in self.qos.iter().enumerate() {
                for below in qos.preempt.iter().filter_map(|name| self.qos_index(name)) {
                    depths[below] = depths[below].max(depths[above] + 1);
                }
            }
        }
        depths
    }
}

impl PartitionConfig {
    /// True if jobs with this QOS, or with none, may use the partition.
    #[must_use]
    pub fn takes_qos(&self, named: Option<&str>) -> bool {
        let lists = |names: &[Arc<str>]| names.iter().any(|name| Some(&**name) == named);
        (self.allow_qos.is_empty() || lists(&self.allow_qos)) && !lists(&self.deny_qos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qos(name: &str, preempt: &[&str]) -> QosConfig {
        let preempt = preempt.iter().map(|name| Arc::from(*name)).collect();
        QosConfig { name: name.into(), preempt, ..QosConfig::default() }
    }

    #[test]
    fn depths_count_the_longest_chain_above() {
        let chain =
            [qos("low", &[]), qos("debug", &[]), qos("high", &["normal", "low"]), qos("normal", &["low"])];
        let policy = Policy { qos: chain.to_vec(), ..Policy::default() };
        assert_eq!(policy.qos_depths(), [2, 0, 0, 1]);
    }

    #[test]
    fn partitions_take_what_they_list() {
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
        let open = PartitionConfig::default();
        let allows = PartitionConfig { allow_qos: names(&["a", "b"]), ..PartitionConfig::default() };
        let denies = PartitionConfig { deny_qos: names(&["a"]), ..PartitionConfig::default() };
        for (named, expected) in
            [(None, [true, false, true]), (Some("a"), [true, true, false]), (Some("c"), [true, false, true])]
        {
            assert_eq!(
                [&open, &allows, &denies].map(|config| config.takes_qos(named)),
                expected,
                "{named:?}"
            );
        }
    }
}
