//! tidy: table
//! The keys of Slurm's files: names of the keys with a counterpart, and the other keys with the reasons why
//! they have none. An empty reason stands for [`PLAIN`].

/// Kind of a line in Slurm's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Settings of the cluster, in `slurm.conf`.
    Cluster,
    /// Settings of nodes.
    Node,
    /// Settings of partitions.
    Partition,
    /// Settings in `cgroup.conf`.
    Cgroup,
    /// Settings in `gres.conf`.
    Gres,
    /// Settings in `job_container.conf`.
    JobContainer,
    /// Settings in `topology.conf`.
    Topology,
}

/// Reason for keys without a specific one.
pub(super) const PLAIN: &str = "no counterpart";

/// Synonyms; the import uses the first name of each group.
const SAME: &[&[&str]] = &[
    &["CPUs", "Procs", "Processors"],
    &["Features", "Feature"],
    &["OverSubscribe", "Shared"],
    &["DefaultTime", "DefTime"],
    &["AllowQos", "AllowQOS"],
    &["TmpDisk", "Tmp"],
    &["AllowGroups", "AllowGroup"],
    &["AllowAccounts", "AllowAccount"],
    &["LinkSpeed", "Speed"],
];

fn canonical(key: &str) -> &str {
    let list = SAME.iter().find(|names| names.iter().any(|name| name.eq_ignore_ascii_case(key)));
    list.map_or(key, |names| names[0])
}

/// True if two keys are equal or synonyms.
pub(super) fn same(a: &str, b: &str) -> bool {
    canonical(a).eq_ignore_ascii_case(canonical(b))
}

/// Returns the keys without a counterpart, with the reasons.
pub(super) fn of(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Cluster => CLUSTER,
        Kind::Node => NODE,
        Kind::Partition => PARTITION,
        Kind::Cgroup => CGROUP,
        Kind::Gres => GRES,
        Kind::JobContainer => JOB_CONTAINER,
        Kind::Topology => &[],
    }
}

/// Returns the keys of a kind that have a counterpart.
pub(super) fn taken(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Cluster => TAKEN_OF_CLUSTER,
        Kind::Node => TAKEN_OF_NODE,
        Kind::Partition => TAKEN_OF_PARTITION,
        Kind::Cgroup => &["CgroupPlugin", "ConstrainDevices"],
        Kind::Gres => {
            &["NodeName", "Name", "Type", "Count", "File", "MultipleFiles", "Cores", "CPUs", "Links"]
        }
        Kind::JobContainer => &["BasePath", "Dirs"],
        Kind::Topology => &["SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes"],
    }
}

/// Returns all keys that Slurm has for a kind.
pub(super) fn all(kind: Kind) -> Vec<&'static str> {
    taken(kind).iter().copied().chain(of(kind).iter().map(|(key, _)| *key)).collect()
}

const TAKEN_OF_CLUSTER: &[&str] = &[
    "AuthType",
    "BackupAddr",
    "BackupController",
    "ClusterName",
    "ControlAddr",
    "ControlMachine",
    "DefCpuPerGPU",
    "DefMemPerCPU",
    "DefMemPerGPU",
    "DefMemPerNode",
    "DisableRootJobs",
    "DownNodes",
    "EnforcePartLimits",
    "Epilog",
    "EpilogSlurmctld",
    "FairShareDampeningFactor",
    "HealthCheckInterval",
    "HealthCheckNodeState",
    "HealthCheckProgram",
    "InactiveLimit",
    "JobAcctGatherFrequency",
    "JobContainerType",
    "JobRequeue",
    "KillOnBadExit",
    "KillWait",
    "LaunchParameters",
    "Licenses",
    "MailProg",
    "MaxArraySize",
    "MaxBatchRequeue",
    "MaxJobCount",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MinJobAge",
    "MpiDefault",
    "NodeName",
    "NodeSet",
    "PartitionName",
    "PreemptExemptTime",
    "PreemptMode",
    "PreemptType",
    "PriorityDecayHalfLife",
    "PriorityFavorSmall",
    "PriorityMaxAge",
    "PriorityType",
    "PriorityWeightAge",
    "PriorityWeightAssoc",
    "PriorityWeightFairshare",
    "PriorityWeightJobSize",
    "PriorityWeightPartition",
    "PriorityWeightQOS",
    "PrivateData",
    "Prolog",
    "PrologEpilogTimeout",
    "PrologSlurmctld",
    "PrologTimeout",
    "PropagateResourceLimits",
    "PropagateResourceLimitsExcept",
    "PurgeEventAfter",
    "PurgeJobAfter",
    "RebootProgram",
    "ResumeFailProgram",
    "ResumeProgram",
    "ResumeRate",
    "ResumeTimeout",
    "SchedulerParameters",
    "SchedulerType",
    "SelectType",
    "SlurmctldAddr",
    "SlurmctldDebug",
    "SlurmctldHost",
    "SlurmctldLogFile",
    "SlurmctldPort",
    "SlurmdLogFile",
    "SlurmdPort",
    "SlurmdTimeout",
    "SuspendExcNodes",
    "SuspendExcParts",
    "SuspendExcStates",
    "SuspendProgram",
    "SuspendRate",
    "SuspendTime",
    "SuspendTimeout",
    "TaskEpilog",
    "TaskProlog",
    "TopologyPlugin",
    "TrackWCKey",
];

const TAKEN_OF_NODE: &[&str] = &[
    "NodeName",
    "NodeAddr",
    "NodeHostname",
    "Port",
    "CPUs",
    "Boards",
    "Sockets",
    "SocketsPerBoard",
    "CoresPerSocket",
    "ThreadsPerCore",
    "RealMemory",
    "TmpDisk",
    "CPUSpecList",
    "CoreSpecCount",
    "MemSpecLimit",
    "Gres",
    "Features",
    "Weight",
    "State",
    "Reason",
    "Topology",
];

const TAKEN_OF_PARTITION: &[&str] = &[
    "PartitionName",
    "Nodes",
    "Default",
    "State",
    "MaxTime",
    "DefaultTime",
    "MinNodes",
    "MaxNodes",
    "PriorityTier",
    "PriorityJobFactor",
    "Priority",
    "OverSubscribe",
    "AllowGroups",
    "AllowAccounts",
    "AllowQos",
    "DenyQos",
    "AllocNodes",
    "Alternate",
    "DenyAccounts",
    "DisableRootJobs",
    "Hidden",
    "ReqResv",
    "RootOnly",
    "DefCpuPerGPU",
    "DefMemPerCPU",
    "DefMemPerGPU",
    "DefMemPerNode",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MaxCPUsPerNode",
    "MaxCPUsPerSocket",
    "JobDefaults",
    "PreemptMode",
    "GraceTime",
    "Topology",
    "QOS",
];

const ACCOUNTING: &str = "the controller keeps accounting beside its journal; there is no slurmdbd";
const CREDENTIALS: &str = "not needed: daemons and commands know each other by the cluster key";
const FOUND: &str = "not needed: nodes find out, with cgroup v2 or v1 where there is one";
const POWER: &str = "nodes are switched off and on by [power] alone, which is the same for all partitions";
const FILES: &str = "messages go to the standard error, or where [log] file says";
const ALWAYS: &str = "not needed: it is always so";
const NO_PLUGINS: &str = "Spur has no plugins";
const SPECIALIZED: &str = "jobs never get what a node keeps for the system";

/// The reason for keys of slurmdbd.conf that keep purged records.
const NO_ARCHIVE: &str = "purged records are deleted; a copy of acct.db keeps them";

/// True for a key of slurmdbd.conf about the age of records or about their archive.
pub(super) fn is_of_records(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.starts_with("purge") || key.starts_with("archive")
}

const CLUSTER: &[(&str, &str)] = &[
    ("AccountingStorageBackupHost", ACCOUNTING),
    (
        "AccountingStorageEnforce",
        "write accounting_storage_enforce in [controller] once sacctmgr load has read a dump of this cluster",
    ),
    ("AccountingStorageExternalHost", ACCOUNTING),
    ("AccountingStorageHost", ACCOUNTING),
    ("AccountingStorageLoc", ACCOUNTING),
    ("AccountingStorageParameters", ACCOUNTING),
    ("AccountingStoragePass", ACCOUNTING),
    ("AccountingStoragePort", ACCOUNTING),
    ("AccountingStorageTRES", "CPUs, memory, nodes and every device are recorded"),
    ("AccountingStorageType", ACCOUNTING),
    ("AccountingStorageUser", ACCOUNTING),
    ("AccountingStoreFlags", ACCOUNTING),
    ("AccountingStoreJobComment", ACCOUNTING),
    ("AcctGatherEnergyType", "energy is not measured"),
    ("AcctGatherFilesystemType", ""),
    ("AcctGatherInfinibandType", ""),
    ("AcctGatherInterconnectType", ""),
    ("AcctGatherNodeFreq", "energy is not measured"),
    ("AcctGatherProfileType", ""),
    ("AllowSpecResourcesUsage", SPECIALIZED),
    ("ArchiveDir", NO_ARCHIVE),
    ("ArchiveEvents", NO_ARCHIVE),
    ("ArchiveJobs", NO_ARCHIVE),
    ("ArchiveResvs", NO_ARCHIVE),
    ("ArchiveScript", NO_ARCHIVE),
    ("ArchiveSteps", NO_ARCHIVE),
    ("ArchiveSuspend", NO_ARCHIVE),
    ("ArchiveTXN", NO_ARCHIVE),
    ("ArchiveUsage", NO_ARCHIVE),
    ("AuthAltParameters", CREDENTIALS),
    ("AuthAltTypes", CREDENTIALS),
    ("AuthInfo", CREDENTIALS),
    ("BatchStartTimeout", ""),
    ("BcastExclude", ""),
    ("BcastParameters", ""),
    ("BurstBufferType", "burst buffers are not supported by Spur"),
    ("CacheGroups", ALWAYS),
    ("CertgenParameters", CREDENTIALS),
    ("CertgenType", CREDENTIALS),
    ("CertmgrParameters", CREDENTIALS),
    ("CertmgrType", CREDENTIALS),
    ("CheckpointType", "checkpoints are the job's own business"),
    ("CliFilterParameters", NO_PLUGINS),
    ("CliFilterPlugins", NO_PLUGINS),
    ("CommunicationParameters", ""),
    ("CompleteWait", "other jobs start while one is completing"),
    ("CoreSpecPlugin", SPECIALIZED),
    ("CpuFreqDef", "CPU frequencies are left alone"),
    ("CpuFreqGovernors", "CPU frequencies are left alone"),
    ("CredType", CREDENTIALS),
    ("CryptoType", CREDENTIALS),
    ("DataParserParameters", ""),
    ("DebugFlags", "[log] level = \"debug\" tells more"),
    ("DefaultStorageHost", ACCOUNTING),
    ("DefaultStorageLoc", ACCOUNTING),
    ("DefaultStoragePass", ACCOUNTING),
    ("DefaultStoragePort", ACCOUNTING),
    ("DefaultStorageType", ACCOUNTING),
    ("DefaultStorageUser", ACCOUNTING),
    ("DependencyParameters", ""),
    ("EioTimeout", ""),
    ("EpilogMsgTime", ALWAYS),
    ("EpilogTimeout", "[agent] prolog_timeout is for both"),
    ("ExtSensorsFreq", ""),
    ("ExtSensorsType", ""),
    ("FastSchedule", "nodes are what [[nodes]] says; one that has less is not used"),
    ("FederationParameters", "federation is not supported by Spur"),
    ("FirstJobId", "job ids begin with 1"),
    ("FrontendName", "front ends are not supported by Spur"),
    ("GetEnvTimeout", ""),
    ("GpuFreqDef", "GPU frequencies are left alone"),
    ("GresTypes", "not needed: [[nodes]] gres says it"),
    ("GroupUpdateForce", ALWAYS),
    ("GroupUpdateTime", ALWAYS),
    ("HashPlugin", CREDENTIALS),
    ("HttpParserType", ""),
    (
        "InteractiveStepOptions",
        "use_interactive_step runs the user's shell with srun --interactive --preserve-env --pty",
    ),
    ("JobAcctGatherParams", FOUND),
    ("JobAcctGatherType", FOUND),
    ("JobCheckpointDir", "checkpoints are the job's own business"),
    ("JobCompHost", ACCOUNTING),
    ("JobCompLoc", ACCOUNTING),
    ("JobCompParams", ACCOUNTING),
    ("JobCompPass", ACCOUNTING),
    ("JobCompPassScript", ACCOUNTING),
    ("JobCompPort", ACCOUNTING),
    ("JobCompType", ACCOUNTING),
    ("JobCompUser", ACCOUNTING),
    ("JobCredentialPrivateKey", CREDENTIALS),
    ("JobCredentialPublicCertificate", CREDENTIALS),
    ("JobFileAppend", "jobs say it with --open-mode=append"),
    ("JobSubmitPlugins", NO_PLUGINS),
    ("KeepAliveTime", ""),
    ("LaunchType", ALWAYS),
    ("LogTimeFormat", "[log] format = \"json\" is for programs"),
    ("MCSParameters", ""),
    ("MCSPlugin", ""),
    ("MailDomain", "mail goes to the user's name, or where --mail-user says"),
    ("MaxDBDMsgs", ACCOUNTING),
    ("MaxJobId", "job ids do not start again"),
    ("MaxNodeCount", "nodes are those of [[nodes]]"),
    ("MaxStepCount", ""),
    ("MaxTasksPerNode", ""),
    ("MemLimitEnforce", FOUND),
    ("MessageTimeout", ""),
    ("MetricsType", "[controller] metrics_addr serves metrics"),
    ("MpiParams", ""),
    ("NamespaceType", "[agent] job_container_base_path gives jobs a /tmp of their own"),
    ("NodeFeaturesPlugins", NO_PLUGINS),
    ("OverTimeLimit", "a job ends at its limit"),
    ("PluginDir", NO_PLUGINS),
    ("PlugStackConfig", NO_PLUGINS),
    ("PowerParameters", POWER),
    ("PowerPlugin", POWER),
    ("PrEpParameters", NO_PLUGINS),
    ("PrEpPlugins", NO_PLUGINS),
    ("PreemptParameters", ""),
    ("PriorityParameters", NO_PLUGINS),
    ("PrioritySiteFactorParameters", NO_PLUGINS),
    ("PrioritySiteFactorPlugin", NO_PLUGINS),
    ("ProctrackType", FOUND),
    ("PrologFlags", "the prolog runs before the first task of a job on each node"),
    ("PropagatePrioProcess", ""),
    ("PurgeResvAfter", ""),
    ("PurgeStepAfter", "steps are purged with their jobs"),
    ("PurgeSuspendAfter", "times of suspension are purged with their jobs"),
    ("PurgeTXNAfter", ""),
    ("PurgeUsageAfter", "reports are computed from jobs, so they go back as far as jobs do"),
    ("ReconfigFlags", ""),
    ("RequeueExit", "jobs say it by requeueing themselves: scontrol requeue"),
    ("RequeueExitHold", "jobs say it by requeueing themselves: scontrol requeuehold"),
    ("ResvEpilog", "programs run on the nodes only"),
    ("ResvOverRun", ""),
    ("ResvProlog", "programs run on the nodes only"),
    (
        "ReturnToService",
        "a node that was silent serves again when it answers; one that was drained does when an operator says so",
    ),
    ("RoutePlugin", "nodes talk to the controller directly"),
    ("SallocDefaultCommand", "salloc runs the user's shell"),
    ("SbcastParameters", ""),
    ("SchedulerAuth", CREDENTIALS),
    ("SchedulerPort", ALWAYS),
    ("SchedulerRootFilter", ALWAYS),
    ("SchedulerTimeSlice", "jobs do not take turns on the same CPUs"),
    ("ScronParameters", "cron jobs are not supported by Spur"),
    (
        "SelectTypeParameters",
        "CPUs, devices and the memory that jobs ask for always count; a core belongs to one job",
    ),
    ("SlurmSchedLogFile", FILES),
    ("SlurmSchedLogLevel", FILES),
    ("SlurmUser", "where the daemons do not run as root, [auth] user names who runs them"),
    ("SlurmctldParameters", ""),
    ("SlurmctldPidFile", "the service manager knows its daemons"),
    ("SlurmctldPlugstack", NO_PLUGINS),
    ("SlurmctldPrimaryOffProg", ""),
    ("SlurmctldPrimaryOnProg", ""),
    ("SlurmctldSyslogDebug", FILES),
    ("SlurmctldTimeout", "one controller serves at a time"),
    ("SlurmdDebug", "[log] level is for both daemons, and follows SlurmctldDebug"),
    ("SlurmdParameters", ""),
    ("SlurmdPidFile", "the service manager knows its daemons"),
    ("SlurmdSpoolDir", "Slurm's files lie there; Spur's are in [agent] spool_dir, /var/spool/spurd/%n"),
    ("SlurmdSyslogDebug", FILES),
    ("SlurmdUser", "spurd runs as root"),
    ("SrunEpilog", "task_epilog and the user's own script do it"),
    ("SrunPortRange", "nodes do not call srun: srun calls nodes"),
    ("SrunProlog", "task_prolog and the user's own script do it"),
    (
        "StateSaveLocation",
        "Slurm's files lie there; Spur's are in [controller] state, /var/lib/spur; it wants a local disk",
    ),
    ("SwitchName", "switches belong into topology.conf"),
    ("SwitchParameters", ""),
    ("SwitchType", ""),
    ("TCPTimeout", ""),
    ("TLSParameters", CREDENTIALS),
    ("TLSType", CREDENTIALS),
    ("TaskPlugin", FOUND),
    ("TaskPluginParam", "jobs say it with --cpu-bind"),
    ("TmpFS", "the temporary disk is that of /tmp"),
    ("TopologyParam", ""),
    ("TreeWidth", "nodes talk to the controller directly"),
    ("UnkillableStepProgram", ""),
    ("UnkillableStepTimeout", ""),
    ("UrlParserType", ""),
    ("UsePAM", ""),
    ("VSizeFactor", ""),
    ("WaitTime", "jobs say it with srun -W"),
    ("X11Parameters", "--x11 is not supported by Spur"),
];

const NODE: &[(&str, &str)] = &[
    ("BcastAddr", ""),
    ("CpuBind", "jobs say it with --cpu-bind"),
    ("RestrictedCoresPerGPU", ""),
    ("TRESWeights", ""),
];

const PARTITION: &[(&str, &str)] = &[
    ("CpuBind", "jobs say it with --cpu-bind"),
    ("DenyGroups", "say who may with allow_groups"),
    ("DenyUsers", "say who may with allow_groups"),
    ("AllowUsers", "say who may with allow_groups"),
    ("ExclusiveTopo", "jobs say it with --exclusive=topo"),
    (
        "ExclusiveUser",
        "jobs of several users may share a node; oversubscribe = \"EXCLUSIVE\" gives each job whole nodes",
    ),
    ("LLN", "jobs say it with --placement=distributed; a partition with placement = \"distributed\""),
    ("OverTimeLimit", "a job ends at its limit"),
    ("PowerDownOnIdle", POWER),
    ("ResumeTimeout", POWER),
    (
        "SelectTypeParameters",
        "CPUs, devices and the memory that jobs ask for always count; a core belongs to one job",
    ),
    ("SuspendTime", POWER),
    ("SuspendTimeout", POWER),
];

const CGROUP: &[(&str, &str)] = &[
    ("AllowedDevicesFile", FOUND),
    ("AllowedKmemSpace", FOUND),
    ("AllowedRAMSpace", "a job has the memory that it asked for"),
    ("AllowedSwapSpace", "a job has the memory that it asked for"),
    ("CgroupAutomount", FOUND),
    ("CgroupMountpoint", FOUND),
    ("CgroupReleaseAgentDir", FOUND),
    ("CgroupSlice", "the service manager's slice of spurd is used"),
    ("ConstrainCores", ALWAYS),
    ("ConstrainKmemSpace", FOUND),
    ("ConstrainRAMSpace", "memory is limited where it was asked for, or the partition has a default"),
    ("ConstrainSwapSpace", "a job has the memory that it asked for"),
    ("EnableControllers", FOUND),
    ("EnableExtraControllers", FOUND),
    ("IgnoreSystemd", FOUND),
    ("IgnoreSystemdOnFailure", FOUND),
    ("MaxKmemPercent", FOUND),
    ("MaxRAMPercent", "a job has the memory that it asked for"),
    ("MaxSwapPercent", "a job has the memory that it asked for"),
    ("MemoryLimitEnforcement", FOUND),
    ("MemoryLimitThreshold", FOUND),
    ("MemorySwappiness", "a job has the memory that it asked for"),
    ("MinKmemSpace", FOUND),
    ("MinRAMSpace", "a job has the memory that it asked for"),
    ("SignalChildrenProcesses", ""),
    ("SystemdTimeout", FOUND),
    ("TaskAffinity", FOUND),
];

/// Reason for settings of devices without their files.
pub(super) const FOUND_NEAR: &str =
    "nodes find out where their GPUs are; [[gres]] says it of others, with their files";

const GRES: &[(&str, &str)] =
    &[("AutoDetect", "not needed: nodes find their GPUs themselves"), ("Flags", "")];

const JOB_CONTAINER: &[(&str, &str)] = &[
    ("AutoBasePath", "not needed: spurd makes it"),
    ("CloneNSEpilog", ""),
    ("CloneNSScript", ""),
    ("EntireStepInNS", ALWAYS),
    ("InitScript", "the prolog runs before the first task of a job on each node"),
    ("NodeName", "one place is for all nodes"),
    ("Shared", "what the host mounts later is seen by jobs, too"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that `spur.toml` has under the same name has a counterpart.
    #[test]
    fn what_spur_has_is_taken() {
        let reference = include_str!("../../../../etc/spur.toml");
        let mut table = "";
        let mut own: Vec<(&str, String)> = Vec::new();
        for line in reference.lines() {
            if line.starts_with('[') {
                table = line;
            }
            let key = line.strip_prefix("# ").unwrap_or(line).split_once(" = ").map(|(key, _)| key);
            own.extend(key.map(|key| (table, key.replace('_', ""))));
        }
        for (kind, tables) in [
            (
                Kind::Cluster,
                &["[controller]", "[agent]", "[log]", "[scheduler]", "[preempt]", "[recovery]"][..],
            ),
            (Kind::Node, &["[[nodes]]"]),
            (Kind::Cgroup, &["[agent]"]),
            (Kind::Partition, &["[[partitions]]"]),
        ] {
            let has = |wanted: &str| {
                own.iter().any(|(table, key)| tables.contains(table) && *key == wanted.to_lowercase())
            };
            let without = of(kind).iter().map(|(key, _)| *key);
            // The key would refuse every job before the accounts are loaded, so it is not imported.
            let later = |key: &&str| *key != "AccountingStorageEnforce";
            let both: Vec<&str> = without.filter(|key| has(key)).filter(later).collect();
            assert!(both.is_empty(), "{kind:?}: {both:?} are keys of spur.toml, too");
        }
    }

    #[test]
    fn no_key_is_both_taken_and_not() {
        for kind in [
            Kind::Cluster,
            Kind::Node,
            Kind::Partition,
            Kind::Cgroup,
            Kind::Gres,
            Kind::JobContainer,
            Kind::Topology,
        ] {
            let mut keys: Vec<String> = all(kind).iter().map(|key| key.to_lowercase()).collect();
            let count = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "{kind:?}");
        }
    }
}
