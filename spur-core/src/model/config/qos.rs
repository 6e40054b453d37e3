//! `[[qos]]`: classes of jobs. What they count for, whose place they may take, and who may use them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::{PartitionConfig, Policy, PreemptMode};
use crate::model::accounts::qos::QosFlag;
use crate::text::time::{Seconds, TimeLimit};

/// One QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QosConfig {
    /// What `--qos` names.
    pub name: Arc<str>,
    /// For the QOS factor of multifactor priority, relative to the largest one configured; where QOS preempt, also what
    /// it costs that a job of it makes way.
    pub priority: u32,
    /// QOS whose jobs may be preempted for jobs of this one, under `[preempt] by = "qos"`. Never in a circle.
    pub preempt: Vec<Arc<str>>,
    /// Overrides the mode of the partition and of `[preempt]`.
    pub preempt_mode: Option<PreemptMode>,
    /// Overrides `grace_time` of the partition and of `[preempt]`.
    pub grace_time: Option<Seconds>,
    /// `preempt_exempt_time`: overrides `[preempt] exempt_time`.
    #[serde(rename = "preempt_exempt_time")]
    pub exempt_time: Option<Seconds>,
    /// Longest limit that a job of it may ask for; `None`: the partition's.
    pub max_wall: Option<TimeLimit>,
    /// Groups that may use it; empty: all.
    pub allow_groups: Vec<Arc<str>>,
    /// Accounts that may use it; empty: all.
    pub allow_accounts: Vec<Arc<str>>,
    /// Flags that `sacctmgr` has set.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<QosFlag>,
}

impl QosConfig {
    /// Whether the QOS has a flag.
    #[must_use]
    pub fn has(&self, flag: QosFlag) -> bool {
        self.flags.contains(&flag)
    }
}

impl Policy {
    /// Which of the configured QOS has that name.
    #[must_use]
    pub fn qos_index(&self, name: &str) -> Option<usize> {
        self.qos.iter().position(|qos| &*qos.name == name)
    }

    /// The QOS that a job names. `None` if it names none, or one that is not configured.
    #[must_use]
    pub fn qos_of(&self, named: Option<&str>) -> Option<&QosConfig> {
        self.qos_index(named?).map(|index| &self.qos[index])
    }

    /// Whether what a job names as its QOS is one. Where none is configured every name is, and means nothing.
    #[must_use]
    pub fn knows_qos(&self, named: Option<&str>) -> bool {
        self.qos.is_empty() || named.is_none_or(|name| self.qos_index(name).is_some())
    }

    /// For each QOS how many stand above it at most, each of which may preempt the next: 0 for one that nobody may.
    #[must_use]
    pub fn qos_depths(&self) -> Vec<u32> {
        let mut depths = vec![0; self.qos.len()];
        // A chain has each QOS once, so that many rounds are enough, and a circle would not go on for ever.
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
    /// Whether jobs may run here that name this QOS, or none.
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
