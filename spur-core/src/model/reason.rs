//! Reasons for which jobs wait or ended, with Slurm's words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the reasons and their names, which are Slurm's.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?; limits: $($limit:ident),* $(,)?) => {
        /// The word in the REASON column; a sentence that explains it is stored beside it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            $(#[doc = concat!("A limit of an association or a QOS, in Slurm's word: `", stringify!($limit), "`.")] $limit,)*
        }

        impl Reason {
            /// Slurm's name of the reason.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                    $(Reason::$limit => stringify!($limit),)*
                }
            }

            /// The reason with this name; `None` if there is none.
            #[must_use]
            pub fn named(name: &str) -> Option<Reason> {
                [$(Reason::$name,)* $(Reason::$limit,)*].into_iter().find(|reason| reason.name() == name)
            }
        }
    };
}

reasons! {
    /// No reason applies to the job.
    #[default]
    None,
    /// Jobs of higher priority come first.
    Priority,
    /// The free resources do not suffice.
    Resources,
    /// The job depends on another job.
    Dependency,
    /// The dependency can no longer be satisfied.
    DependencyNeverSatisfied,
    /// The job is held by its user.
    JobHeldUser,
    /// The job is held by an operator.
    JobHeldAdmin,
    /// The job is held after too many requeues.
    JobHoldMaxRequeue,
    /// The begin time, or the end of the delay after a requeue, is in the future.
    BeginTime,
    /// The partition starts no jobs at present.
    PartitionDown,
    /// The partition neither accepts nor starts jobs.
    PartitionInactive,
    /// The number of nodes exceeds a limit of the partition.
    PartitionNodeLimit,
    /// The time limit exceeds that of the partition.
    PartitionTimeLimit,
    /// A required node is not available.
    ReqNodeNotAvail,
    /// No node meets the request.
    BadConstraints,
    /// Licenses are used up.
    Licenses,
    /// The job waits for its reservation.
    Reservation,
    /// The requested reservation is gone.
    ReservationDeleted,
    /// Other jobs are being preempted for the job.
    Preempting,
    /// A node was lost and no replacement is free.
    ReplacementNode,
    /// The launch of the job failed on a node.
    JobLaunchFailure,
    /// A node went down.
    NodeDown,
    /// The exit code of the script was not 0.
    NonZeroExitCode,
    /// The script was killed by a signal.
    RaisedSignal,
    /// The time limit was reached.
    TimeLimit,
    /// The deadline was reached.
    DeadLine,
    /// Memory of the job ran out.
    OutOfMemory,
    /// The array's limit on running tasks is reached.
    JobArrayTaskLimit,
    /// Earlier processes still have to end.
    Cleaning,
    /// A failure that is not the job's fault.
    SystemFailure,
    /// The job's user has no association with its account.
    InvalidAccount,
    /// The QOS of the job has been deleted.
    InvalidQOS,
    /// None of the partitions admits the job's QOS.
    QOSNotAllowed,
    /// The command that held the allocation is gone.
    InactiveLimit,
    /// None of the partitions admits the job's account.
    AccountNotAllowed,
    /// The limits of the partition rule the job out.
    PartitionConfig,
    /// The memory per CPU exceeds a limit of the partition.
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
    QOSGrpSubmitJobsLimit, QOSUsageThreshold, QOSGrpWallLimit, QOSMaxWallDurationPerJobLimit, AssocMaxJobsLimit,
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
