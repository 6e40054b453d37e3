//! Feature levels: the versions of the journal, the snapshots and the protocol that releases of Spur share
//! during an upgrade.
//!
//! A cluster has one level, which its journal records. A program writes and sends only what its cluster's
//! level contains, so that programs of the release before still read all of it. An operator raises the level
//! once all daemons know the next one ([`Event::FeatureLevelRaised`](super::Event::FeatureLevelRaised)).
//!
//! [`ADDED`] is the one table of the events and fields that levels above the first have added. The walk in
//! `probe` finds the highest level among the events and fields that a value contains.

mod probe;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Cluster;

/// A feature level; 1 is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureLevel(pub u32);

impl FeatureLevel {
    /// The level of journals that do not record any.
    pub const OLDEST: FeatureLevel = FeatureLevel(1);
    /// The highest level that this release knows; new clusters have it.
    pub const NEWEST: FeatureLevel = FeatureLevel(2);
}

impl Default for FeatureLevel {
    fn default() -> Self {
        FeatureLevel::OLDEST
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member of a serialized type that a level has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The level that has added the member.
    pub level: FeatureLevel,
    /// The name of the struct or enum.
    pub of: &'static str,
    /// The variant of an enum; empty for the field of a struct.
    pub variant: &'static str,
    /// The field; empty for a variant with all its fields.
    pub field: &'static str,
    /// The words for users: the option, key or command that leads to the member.
    pub words: &'static str,
}

const fn field(level: u32, of: &'static str, field: &'static str, words: &'static str) -> Added {
    Added { level: FeatureLevel(level), of, variant: "", field, words }
}

const fn variant(level: u32, of: &'static str, variant: &'static str, words: &'static str) -> Added {
    Added { level: FeatureLevel(level), of, variant, field: "", words }
}

/// The members that levels above the first have added to events and to records of snapshots.
///
/// A field is added with a serde default and is not serialized while it has this default, so that a cluster
/// that does not use the field does not need its level.
pub const ADDED: &[Added] = &[
    variant(2, "AccountChange", "ClusterAdded", "sacctmgr add cluster"),
    variant(2, "AccountChange", "ClusterDeleted", "sacctmgr delete cluster"),
    variant(2, "AccountChange", "OfCluster", "the tree of another cluster"),
    variant(2, "AccountChange", "UsageImported", "spur import slurm --past-usage"),
    variant(2, "AccountingEnforce", "NoJobs", "accounting_storage_enforce `nojobs`"),
    variant(2, "AccountingEnforce", "NoSteps", "accounting_storage_enforce `nosteps`"),
    variant(2, "AccountingEnforce", "Wckeys", "accounting_storage_enforce `wckeys`"),
    variant(2, "Event", "AccrualBegun", "a limit on the jobs that gain age"),
    variant(2, "Event", "FeatureLevelRaised", "a FeatureLevel above 1"),
    variant(2, "Event", "HistoryImported", "spur import slurm --history"),
    variant(2, "Event", "JobAnnotated", "sacctmgr modify job"),
    variant(2, "Event", "JobCheckpointed", "scontrol update LastCheckpoint="),
    variant(2, "Event", "PrioritiesKept", "priority_flags INCR_ONLY"),
    variant(2, "Event", "StepLimitChanged", "scontrol update StepId= TimeLimit="),
    variant(2, "Event", "StepTimedOut", "a time limit of a step"),
    field(2, "Shape", "use_min_nodes", "--use-min-nodes"),
    field(2, "Batch", "limits_named", "sbatch --propagate"),
    Added {
        level: FeatureLevel(2),
        of: "Phase",
        variant: "Running",
        field: "checkpoint",
        words: "scontrol update LastCheckpoint=",
    },
    field(2, "Suspended", "checkpoint", "scontrol update LastCheckpoint="),
    field(2, "Completing", "nominated", "spur defrag --apply"),
    variant(2, "Holder", "QosUser", "the usage of a user in a QOS"),
    variant(2, "Holder", "QosAccount", "the usage of an account in a QOS"),
    variant(2, "Record", "FeatureLevel", "a FeatureLevel above 1"),
    field(2, "StepSpec", "time_limit", "a time limit of a step"),
    field(2, "Step", "time_limit", "a time limit of a step"),
    field(2, "Step", "timed_out", "a time limit of a step"),
    field(2, "JobPolicy", "kill_on_bad_exit", "[controller] kill_on_bad_exit"),
    field(2, "JobPolicy", "propagate_resource_limits", "[controller] propagate_resource_limits"),
    field(
        2,
        "JobPolicy",
        "propagate_resource_limits_except",
        "[controller] propagate_resource_limits_except",
    ),
    field(2, "JobPolicy", "track_wckey", "[controller] track_wckey"),
    field(2, "JobPolicy", "use_interactive_step", "[controller] use_interactive_step"),
    field(2, "Lineage", "imported", "spur import slurm --history"),
    field(2, "Pending", "accrued", "a limit on the jobs that gain age"),
    field(2, "Pending", "kept_priority", "priority_flags INCR_ONLY"),
    variant(2, "PriorityFlag", "AccrueAlways", "priority_flags ACCRUE_ALWAYS"),
    variant(2, "PriorityFlag", "CalculateRunning", "priority_flags CALCULATE_RUNNING"),
    variant(2, "PriorityFlag", "DepthOblivious", "priority_flags DEPTH_OBLIVIOUS"),
    variant(2, "PriorityFlag", "IncrOnly", "priority_flags INCR_ONLY"),
    variant(2, "PriorityFlag", "MaxTresGres", "priority_flags MAX_TRES_GRES"),
    variant(2, "PriorityFlag", "NoFairTree", "priority_flags NO_FAIR_TREE"),
    variant(2, "PriorityFlag", "NoNormalAll", "priority_flags NO_NORMAL_ALL"),
    variant(2, "PriorityFlag", "NoNormalAssoc", "priority_flags NO_NORMAL_ASSOC"),
    variant(2, "PriorityFlag", "NoNormalPart", "priority_flags NO_NORMAL_PART"),
    variant(2, "PriorityFlag", "NoNormalQos", "priority_flags NO_NORMAL_QOS"),
    variant(2, "PriorityFlag", "NoNormalTres", "priority_flags NO_NORMAL_TRES"),
    variant(2, "PriorityFlag", "SmallRelativeToTime", "priority_flags SMALL_RELATIVE_TO_TIME"),
    variant(2, "QosFlag", "Relative", "the QOS flag Relative"),
    field(2, "Used", "imported", "spur import slurm --past-usage"),
    field(2, "JobPolicy", "purge_event_after", "[controller] purge_event_after"),
    field(2, "JobPolicy", "purge_job_after", "[controller] purge_job_after"),
    field(2, "PartitionConfig", "score", "the score of a partition"),
    field(2, "PartitionConfig", "def_cpu_per_gpu", "DefCpuPerGPU of a partition"),
    field(2, "PartitionConfig", "def_mem_per_gpu", "DefMemPerGPU of a partition"),
    field(2, "PartitionConfig", "max_cpus_per_node", "MaxCPUsPerNode of a partition"),
    field(2, "PartitionConfig", "max_cpus_per_socket", "MaxCPUsPerSocket of a partition"),
    field(2, "Registration", "fabric", "[agent] report"),
    field(2, "SchedulerPolicy", "fair_share_dampening_factor", "[scheduler] fair_share_dampening_factor"),
    field(2, "SchedulerPolicy", "priority_weight_assoc", "[scheduler] priority_weight_assoc"),
    field(2, "TopologyConfig", "score", "the score of a topology"),
    field(2, "User", "default_wckey", "the wckeys of users"),
    field(2, "User", "wckeys", "the wckeys of users"),
];

/// The member of a value that needs a higher level than the cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooNew {
    /// The words for users.
    pub words: &'static str,
    /// The level that the member needs.
    pub needs: FeatureLevel,
    /// The level of the cluster.
    pub has: FeatureLevel,
}

impl Cluster {
    /// The feature level of the cluster.
    #[must_use]
    pub fn feature_level(&self) -> FeatureLevel {
        self.feature_level
    }

    /// A cluster of the newest level without a journal, for simulations.
    #[must_use]
    pub fn of_newest_level() -> Self {
        Cluster { feature_level: FeatureLevel::NEWEST, ..Cluster::default() }
    }

    /// Checks that the cluster's level contains all members of a value that is to be journalled.
    ///
    /// # Errors
    /// The first member that needs a higher level.
    pub fn allows(&self, value: &impl Serialize) -> Result<(), TooNew> {
        let has = self.feature_level();
        if has >= FeatureLevel::NEWEST {
            return Ok(());
        }
        match probe::first_above(has, value) {
            Some(added) => Err(TooNew { words: added.words, needs: added.level, has }),
            None => Ok(()),
        }
    }

    /// Checks that the cluster's level is at least `needs`, for a request whose events do not show that they
    /// need the level.
    ///
    /// # Errors
    /// The cluster's level is lower; `words` name the request.
    pub fn has_level(&self, needs: FeatureLevel, words: &'static str) -> Result<(), TooNew> {
        let has = self.feature_level();
        if has < needs { Err(TooNew { words, needs, has }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
