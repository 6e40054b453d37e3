//! Why a job waits or ended as it did, in Slurm's one-word names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the reasons and their names, which are Slurm's.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?; limits: $($limit:ident),* $(,)?) => {
        /// The word in the REASON column; the sentence that explains it travels beside it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            $(#[doc = concat!("A limit of an association or a QOS, in Slurm's word: `", stringify!($limit), "`.")] $limit,)*
        }

        impl Reason {
            /// Slurm's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                    $(Reason::$limit => stringify!($limit),)*
                }
            }

            /// The reason of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<Reason> {
                [$(Reason::$name,)* $(Reason::$limit,)*].into_iter().find(|reason| reason.name() == name)
            }
        }
    };
}

reasons! {
    /// Nothing to say.
    #[default]
    None,
    /// Jobs of higher priority come first.
    Priority,
    /// Not enough is free.
    Resources,
    /// Waits for another job.
    Dependency,
    /// What it waits for can no longer happen.
    DependencyNeverSatisfied,
    /// Held by its user.
    JobHeldUser,
    /// Held by an operator.
    JobHeldAdmin,
    /// Held after too many failed attempts.
    JobHoldMaxRequeue,
    /// `--begin`, or the delay after a requeue, lies ahead.
    BeginTime,
    /// The partition takes no jobs to run now.
    PartitionDown,
    /// The partition neither queues nor runs.
    PartitionInactive,
    /// More nodes than the partition allows.
    PartitionNodeLimit,
    /// More time than the partition allows.
    PartitionTimeLimit,
    /// A node it must have is not available.
    ReqNodeNotAvail,
    /// No node has what it asks for.
    BadConstraints,
    /// Licences are used up.
    Licenses,
    /// Waits for its reservation.
    Reservation,
    /// The reservation it asked for is gone.
    ReservationDeleted,
    /// Jobs are being cleared away for it.
    Preempting,
    /// A node was lost and no replacement is free.
    ReplacementNode,
    /// The launch failed.
    JobLaunchFailure,
    /// A node went down.
    NodeDown,
    /// The script's exit code was not 0.
    NonZeroExitCode,
    /// The script died of a signal.
    RaisedSignal,
    /// The time limit was reached.
    TimeLimit,
    /// The deadline was reached.
    DeadLine,
    /// Memory ran out.
    OutOfMemory,
    /// The array's own limit of running tasks.
    JobArrayTaskLimit,
    /// Earlier processes are still being cleared away.
    Cleaning,
    /// Something failed that is not the job's fault.
    SystemFailure,
    /// The job's user has no association with its account.
    InvalidAccount,
    /// There is no such QOS any more.
    InvalidQOS,
    /// None of its partitions takes jobs of its QOS any more.
    QOSNotAllowed,
    /// The command that held the allocation is gone.
    InactiveLimit,
    /// None of its partitions takes jobs of its account.
    AccountNotAllowed,
    /// The limits of its partition leave no room for it.
    PartitionConfig,
    /// More memory for each CPU than the partition gives.
    MaxMemPerLimit,
    ;
    limits:
    AssocGrpCpuLimit, AssocGrpMemLimit, AssocGrpNodeLimit, AssocGrpCPUMinutesLimit, AssocGrpMemMinutes,
    AssocGrpNodeMinutes, AssocGrpCPURunMinutesLimit, AssocGrpMemRunMinutes, AssocGrpNodeRunMinutes,
    AssocMaxCpuPerJobLimit, AssocMaxMemPerJob, AssocMaxNodePerJobLimit, AssocMaxCpuPerNode,
    AssocMaxMemPerNode, AssocMaxCpuMinutesPerJobLimit, AssocMaxMemMinutesPerJob, AssocMaxNodeMinutesPerJob,
    AssocGrpGRES, AssocGrpGRESMinutes, AssocGrpGRESRunMinutes, AssocMaxGRESPerJob,
    AssocMaxGRESMinutesPerJob, AssocMaxGRESPerNode, AssocGrpLicense, AssocGrpLicenseMinutes,
    AssocGrpLicenseRunMinutes, AssocMaxLicensePerJob, AssocMaxLicenseMinutesPerJob, AssocGrpBilling,
    AssocGrpBillingMinutes, AssocGrpBillingRunMinutes, AssocMaxBillingPerJob, AssocMaxBillingMinutesPerJob,
    AssocMaxBillingPerNode, AssocGrpJobsLimit, AssocGrpSubmitJobsLimit, AssocGrpWallLimit,
    AssocMaxWallDurationPerJobLimit, QOSGrpCpuLimit, QOSGrpMemLimit, QOSGrpNodeLimit, QOSGrpCPUMinutesLimit,
    QOSGrpMemoryMinutes, QOSGrpNodeMinutes, QOSGrpCPURunMinutesLimit, QOSGrpMemoryRunMinutes,
    QOSGrpNodeRunMinutes, QOSMaxCpuPerJobLimit, QOSMaxMemoryPerJob, QOSMaxNodePerJobLimit, QOSMaxCpuPerNode,
    QOSMaxMemoryPerNode, QOSMaxCpuMinutesPerJobLimit, QOSMaxMemoryMinutesPerJob, QOSMaxNodeMinutesPerJob,
    QOSGrpGRES, QOSGrpGRESMinutes, QOSGrpGRESRunMinutes, QOSMaxGRESPerJob, QOSMaxGRESMinutesPerJob,
    QOSMaxGRESPerNode, QOSGrpLicense, QOSGrpLicenseMinutes, QOSGrpLicenseRunMinutes, QOSMaxLicensePerJob,
    QOSMaxLicenseMinutesPerJob, QOSGrpBilling, QOSGrpBillingMinutes, QOSGrpBillingRunMinutes,
    QOSMaxBillingPerJob, QOSMaxBillingMinutesPerJob, QOSMaxBillingPerNode, QOSGrpJobsLimit,
    QOSGrpSubmitJobsLimit, QOSGrpWallLimit, QOSMaxWallDurationPerJobLimit, AssocMaxJobsLimit,
    AssocMaxSubmitJobLimit, QOSMaxJobsPerUserLimit, QOSMaxSubmitJobPerUserLimit, MaxJobsPerAccount,
    MaxSubmitJobsPerAccount, QOSMaxCpuPerUserLimit, QOSMaxMemoryPerUser, QOSMaxNodePerUserLimit,
    QOSMinCpuNotSatisfied, QOSMinMemory, QOSMinNode, QOSMaxGRESPerUser, QOSMinGRES, QOSMaxLicensePerUser,
    QOSMinLicense, QOSMaxBillingPerUser, QOSMinBilling, MaxCpuPerAccount, MaxCpuRunMinsPerUser,
    MaxCpuRunMinsPerAccount, MaxMemoryPerAccount, MaxMemoryRunMinsPerUser, MaxMemoryRunMinsPerAccount,
    MaxNodePerAccount, MaxNodeRunMinsPerUser, MaxNodeRunMinsPerAccount, MaxGRESPerAccount,
    MaxGRESRunMinsPerUser, MaxGRESRunMinsPerAccount, MaxLicensePerAccount, MaxLicenseRunMinsPerUser,
    MaxLicenseRunMinsPerAccount, MaxBillingPerAccount, MaxBillingRunMinsPerUser,
    MaxBillingRunMinsPerAccount,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
