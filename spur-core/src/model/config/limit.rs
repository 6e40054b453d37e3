//! Limits of partitions, which an administrator can raise. A job over one waits, unless `enforce_part_limits`
//! refuses it.

use std::sync::Arc;

use super::partition::PartitionConfig;
use super::qos::QosConfig;
use crate::model::accounts::qos::QosFlag;
use crate::model::job::{JobSpec, MemoryNeed};
use crate::model::reason::Reason;
use crate::text::memory::MemoryMb;
use crate::text::time::TimeLimit;

/// The limit of a partition that keeps a job from running there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The partition does not admit the job's QOS, or requires one.
    Qos,
    /// The partition does not admit the job's account, or requires one.
    Account,
    /// The partition allows less time than the job's minimum.
    Time {
        /// Longest time limit, the partition's `max_time`.
        most: TimeLimit,
    },
    /// The partition allows fewer nodes than the job's minimum.
    MostNodes {
        /// The smallest number of nodes that the job accepts.
        asked: u32,
        /// Most nodes of a job, the partition's `max_nodes`.
        most: u32,
    },
    /// The partition requires more nodes than the job's maximum.
    FewestNodes {
        /// The largest number of nodes that the job accepts.
        asked: u32,
        /// Fewest nodes of a job, the partition's `min_nodes`.
        least: u32,
    },
    /// The partition allows less memory per CPU than the job requests.
    Memory {
        /// The requested memory per CPU in MiB.
        asked: u64,
        /// The partition's `max_mem_per_cpu` in MiB.
        most: u64,
    },
}

impl PartitionConfig {
    /// The first limit of the partition that keeps a job with this QOS from running here; `None` if no limit
    /// does. Flags of the QOS lift some limits.
    #[must_use]
    pub fn limit(&self, spec: &JobSpec, qos: Option<&QosConfig>) -> Option<Limit> {
        let lifts = |flag| qos.is_some_and(|qos| qos.has(flag));
        if !self.takes_qos(spec.qos.as_deref()) {
            return Some(Limit::Qos);
        }
        let among = |list: &[Arc<str>]| {
            let same = |account: &Arc<str>| list.iter().any(|listed| listed.eq_ignore_ascii_case(account));
            spec.account.as_ref().is_some_and(same)
        };
        let is_open = self.allow_accounts.is_empty() || among(&self.allow_accounts);
        if !is_open || among(&self.deny_accounts) {
            return Some(Limit::Account);
        }
        if spec.least_time() > self.max_time && !lifts(QosFlag::PartitionTimeLimit) {
            return Some(Limit::Time { most: self.max_time });
        }
        if let (Some(most), Some(MemoryNeed::PerCpu(asked))) = (self.max_mem_per_cpu, spec.shape.memory)
            && asked > most
        {
            return Some(Limit::Memory { asked, most });
        }
        let (min, max) = spec.shape.node_range()?;
        match (self.max_nodes, max) {
            (Some(most), _) if min > most && !lifts(QosFlag::PartitionMaxNodes) => {
                Some(Limit::MostNodes { asked: min, most })
            }
            (_, Some(max)) if max < self.min_nodes && !lifts(QosFlag::PartitionMinNodes) => {
                Some(Limit::FewestNodes { asked: max, least: self.min_nodes })
            }
            _ => None,
        }
    }
}

impl Limit {
    /// Slurm's reason word for a job that waits because of this limit.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Limit::Qos => Reason::QOSNotAllowed,
            Limit::Account => Reason::AccountNotAllowed,
            Limit::Time { .. } => Reason::PartitionTimeLimit,
            Limit::MostNodes { .. } | Limit::FewestNodes { .. } => Reason::PartitionNodeLimit,
            Limit::Memory { .. } => Reason::MaxMemPerLimit,
        }
    }

    /// The limit in a sentence.
    #[must_use]
    pub fn sentence(self, partition: &PartitionConfig, spec: &JobSpec) -> String {
        let name = &partition.name;
        match self {
            Limit::Qos => match spec.qos.as_deref() {
                Some(qos) => format!("partition {name} takes no jobs of QOS {qos}"),
                None => format!("partition {name} takes no job without a QOS"),
            },
            Limit::Account if partition.allow_accounts.is_empty() => {
                let account = spec.account.as_deref().unwrap_or_default();
                format!("partition {name} does not take account {account}")
            }
            Limit::Account => {
                let known = partition.allow_accounts.join(", ");
                match spec.account.as_deref() {
                    Some(account) => format!("partition {name} takes accounts {known}, not {account}"),
                    None => format!("partition {name} takes accounts {known}"),
                }
            }
            Limit::Time { most } => {
                format!("time limit {}: partition {name} allows {most}", spec.least_time())
            }
            Limit::MostNodes { asked, most } => format!("{asked} nodes: partition {name} allows {most}"),
            Limit::FewestNodes { asked, least } => {
                format!("{asked} nodes: partition {name} wants at least {least}")
            }
            Limit::Memory { asked, most } => {
                format!("{} for each CPU: partition {name} allows {}", MemoryMb(asked), MemoryMb(most))
            }
        }
    }
}
