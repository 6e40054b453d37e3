//! The flags of multifactor priority, fair share and billing.

use serde::{Deserialize, Serialize};

use super::SchedulerPolicy;

/// Flags of `[scheduler] priority_flags`, with Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PriorityFlag {
    /// Age counts from the submission, also while a job is held, depends on others or waits for a time.
    AccrueAlways,
    /// The job-size factor is the job's share of the cluster divided by its time limit in minutes.
    SmallRelativeToTime,
    /// Priorities of running and suspended jobs are computed, too.
    CalculateRunning,
    /// Classic fair share in which the depth of an association does not matter; includes `NoFairTree`.
    DepthOblivious,
    /// Classic fair share instead of Fair Tree.
    NoFairTree,
    /// Priorities of pending jobs do not fall.
    IncrOnly,
    /// Billing takes the largest weighted resource of nodes instead of the sum.
    MaxTres,
    /// Billing takes the largest weighted resource of nodes except GRES, plus the sum of GRES.
    MaxTresGres,
    /// All of the following flags.
    NoNormalAll,
    /// The association factor is the association's `Priority`, not divided by the largest.
    NoNormalAssoc,
    /// The partition factor is the `priority_job_factor`, not divided by the largest.
    NoNormalPart,
    /// The QOS factor is the priority of the QOS, not divided by the largest.
    NoNormalQos,
    /// The resources that a job requests are weighed by count, not as shares of the partition.
    NoNormalTres,
}

impl PriorityFlag {
    /// Every flag with its name in Slurm.
    pub const ALL: [(&str, PriorityFlag); 13] = [
        ("ACCRUE_ALWAYS", PriorityFlag::AccrueAlways),
        ("SMALL_RELATIVE_TO_TIME", PriorityFlag::SmallRelativeToTime),
        ("CALCULATE_RUNNING", PriorityFlag::CalculateRunning),
        ("DEPTH_OBLIVIOUS", PriorityFlag::DepthOblivious),
        ("NO_FAIR_TREE", PriorityFlag::NoFairTree),
        ("INCR_ONLY", PriorityFlag::IncrOnly),
        ("MAX_TRES", PriorityFlag::MaxTres),
        ("MAX_TRES_GRES", PriorityFlag::MaxTresGres),
        ("NO_NORMAL_ALL", PriorityFlag::NoNormalAll),
        ("NO_NORMAL_ASSOC", PriorityFlag::NoNormalAssoc),
        ("NO_NORMAL_PART", PriorityFlag::NoNormalPart),
        ("NO_NORMAL_QOS", PriorityFlag::NoNormalQos),
        ("NO_NORMAL_TRES", PriorityFlag::NoNormalTres),
    ];

    /// The flag with this name, compared without regard to case.
    #[must_use]
    pub fn named(name: &str) -> Option<PriorityFlag> {
        let found = Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, flag)| *flag)
    }
}

impl SchedulerPolicy {
    /// True if `priority_flags` has the flag, or one that includes it.
    #[must_use]
    pub fn has_flag(&self, flag: PriorityFlag) -> bool {
        let including = match flag {
            PriorityFlag::NoNormalAssoc
            | PriorityFlag::NoNormalPart
            | PriorityFlag::NoNormalQos
            | PriorityFlag::NoNormalTres => PriorityFlag::NoNormalAll,
            PriorityFlag::NoFairTree => PriorityFlag::DepthOblivious,
            other => other,
        };
        self.priority_flags.iter().any(|set| *set == flag || *set == including)
    }
}
