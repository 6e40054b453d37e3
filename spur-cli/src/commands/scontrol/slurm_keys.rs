//! Keys of Slurm 24.05 that `scontrol show config` prints, in Slurm's order. Each has the corresponding value
//! in Slurm's words, or `(null)` if Spur has no such feature.

use spur_core::text::time::{Seconds, TimeLimit};
use spur_proto::v1::{KeyValue, PingResponse};

use crate::format::Show;
use crate::format::value::{or_null, time};
use crate::version::SLURM;

/// Facts about the controller and the nodes that are not among its settings.
pub(super) struct Known<'a> {
    /// Answer of the controller to a ping.
    pub(super) controller: &'a PingResponse,
    /// Address of the controller, `host:port`.
    pub(super) address: &'a str,
    /// Path of the configuration that this command read.
    pub(super) file: &'a str,
    /// Names of the nodes' devices, separated by commas.
    pub(super) gres: &'a str,
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Containment of steps on each registered node, such as `kill:cgroup/v2,memory:cgroup/v1`.
    pub(super) containment: Vec<&'a str>,
    /// True if several nodes are on the same host.
    pub(super) shared_hosts: bool,
}

/// Sources of the values: the controller's settings, and other facts.
struct Facts<'a> {
    settings: &'a [KeyValue],
    known: &'a Known<'a>,
    show: &'a Show,
}

/// Source of a key's value.
#[derive(Clone, Copy)]
enum Says {
    /// No such feature in Spur.
    Nothing,
    /// A value that is equal on every cluster.
    Always(&'static str),
    /// A setting, unchanged.
    Setting(&'static str),
    /// A time setting as `30 sec`.
    Seconds(&'static str),
    /// A time setting as `7-00:00:00`.
    Span(&'static str),
    /// A boolean setting as `1` or `0`.
    Flag(&'static str),
    /// A boolean setting as `Yes` or `No`.
    YesNo(&'static str),
    /// A setting with programs; newer releases of Slurm number them if there are several.
    Programs(&'static str),
    /// A value computed from the facts.
    Made(fn(&Facts<'_>) -> String),
}

use Says::{Always, Flag, Made, Nothing, Programs, Setting, Span, YesNo};

/// Returns the rows of Slurm's keys, including `SlurmctldHost[0]` and numbered programs.
pub(super) fn rows(settings: &[KeyValue], known: &Known<'_>, show: &Show) -> Vec<KeyValue> {
    let facts = Facts { settings, known, show };
    KEYS.iter().flat_map(|(key, says)| facts.rows(key, *says)).collect()
}

/// Returns the rows of `cgroup.conf` in Slurm's words.
pub(super) fn control_groups(settings: &[KeyValue], known: &Known<'_>, show: &Show) -> Vec<KeyValue> {
    let facts = Facts { settings, known, show };
    CONTROL_GROUPS.iter().flat_map(|(key, says)| facts.rows(key, *says)).collect()
}

impl Facts<'_> {
    fn rows(&self, key: &str, says: Says) -> Vec<KeyValue> {
        let row = |key: String, value: String| KeyValue { key, value };
        let value = match says {
            Nothing => "(null)".to_owned(),
            Always(text) => text.to_owned(),
            Setting(name) => or_null(self.text(name)),
            Says::Seconds(name) => self.secs(name),
            Span(name) => TimeLimit::Seconds(self.seconds(name)).long(),
            Flag(name) => u8::from(self.text(name) == "true").to_string(),
            YesNo(name) => yes_no(self.text(name) == "true"),
            Programs(name) => {
                let all: Vec<&str> = self.text(name).split(',').filter(|path| !path.is_empty()).collect();
                if all.len() > 1 {
                    let numbered = all.iter().enumerate();
                    return numbered
                        .map(|(at, path)| row(format!("{key}[{at}]"), (*path).to_owned()))
                        .collect();
                }
                or_null(all.first().copied().unwrap_or_default())
            }
            Made(make) => make(self),
        };
        vec![row(key.to_owned(), value)]
    }

    fn text(&self, key: &str) -> &str {
        self.settings.iter().find(|setting| setting.key == key).map_or("", |setting| setting.value.as_str())
    }

    /// Returns the number of a setting that the controller leaves out while it has its default.
    fn number(&self, key: &str, default: &str) -> String {
        match self.text(key) {
            "" | "(null)" => default.to_owned(),
            number => number.to_owned(),
        }
    }

    fn seconds(&self, key: &str) -> u64 {
        self.text(key).parse::<Seconds>().map_or(0, |seconds| seconds.0)
    }

    fn secs(&self, key: &str) -> String {
        format!("{} sec", self.seconds(key))
    }

    /// Returns the port of an address setting.
    fn port(&self, key: &str) -> String {
        or_null(self.text(key).rsplit_once(':').map_or("", |(_, port)| port))
    }

    /// Returns the log file of a daemon; `%n` stands for the node, as in Slurm.
    fn log_file(&self, daemon: &str) -> String {
        or_null(&self.text("log.file").replace("%d", daemon))
    }

    /// True if control groups perform a kind of containment (`kill`, `memory` …) on every registered node;
    /// `None` without registered nodes.
    fn confines(&self, what: &str) -> Option<bool> {
        let nodes = &self.known.containment;
        let by_groups = |node: &&str| {
            node.split(',')
                .filter_map(|part| part.split_once(':'))
                .any(|(part, by)| part == what && by.starts_with("cgroup"))
        };
        (!nodes.is_empty()).then(|| nodes.iter().all(by_groups))
    }

    /// Returns the first text if control groups perform the containment on every node, otherwise the second.
    fn confined(&self, what: &str, by_groups: &str, otherwise: &str) -> String {
        or_null(match self.confines(what) {
            Some(true) => by_groups,
            Some(false) => otherwise,
            None => "",
        })
    }

    /// Returns the user of the nodes' daemons: that of `[auth]`, or root. Without keys, it is the
    /// controller's user, because all daemons are on one host.
    fn agent_user(&self) -> String {
        match (self.text("auth.method"), self.text("auth.user")) {
            ("none", _) => or_null(&self.known.controller.user),
            (_, "" | "(null)") => "root(0)".to_owned(),
            (_, user) => user.to_owned(),
        }
    }
}

fn yes_no(holds: bool) -> String {
    if holds { "Yes" } else { "No" }.to_owned()
}

/// Returns the words of `AccountingStorageEnforce` in Slurm's order, with those that others imply.
fn enforced(words: &str) -> String {
    let set: Vec<&str> = words.split(',').filter(|word| !word.is_empty()).collect();
    let has = |all: &[&str]| all.iter().any(|word| set.contains(word));
    let all = [
        ("associations", has(&["associations", "limits", "safe", "qos", "wckeys"])),
        ("limits", has(&["limits", "safe"])),
        ("nojobs", has(&["nojobs"])),
        ("nosteps", has(&["nosteps", "nojobs"])),
        ("qos", has(&["qos"])),
        ("safe", has(&["safe"])),
        ("wckeys", has(&["wckeys"])),
    ];
    let words: Vec<&str> = all.iter().filter(|(_, is)| *is).map(|(word, _)| *word).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(",") }
}

/// Keys of `slurm.conf`, and those that Slurm's controller adds.
const KEYS: &[(&str, Says)] = &[
    ("AccountingStorageBackupHost", Nothing),
    ("AccountingStorageEnforce", Made(|f| enforced(f.text("controller.accounting_enforce")))),
    ("AccountingStorageHost", Made(|f| or_null(&f.known.controller.hostname))),
    ("AccountingStorageExternalHost", Nothing),
    ("AccountingStorageParameters", Nothing),
    ("AccountingStoragePort", Made(controller_port)),
    (
        "AccountingStorageTRES",
        Made(|f| {
            let gres = f.known.gres.split(',').filter(|name| !name.is_empty());
            let gres: String = gres.map(|name| format!(",gres/{name}")).collect();
            format!("cpu,mem,node,billing{gres}")
        }),
    ),
    // Programs check for this value before they request accounting.
    ("AccountingStorageType", Always("accounting_storage/slurmdbd")),
    ("AccountingStorageUser", Nothing),
    ("AccountingStoreFlags", Always("job_comment")),
    ("AcctGatherEnergyType", Nothing),
    ("AcctGatherFilesystemType", Nothing),
    ("AcctGatherInterconnectType", Nothing),
    ("AcctGatherNodeFreq", Nothing),
    ("AcctGatherProfileType", Nothing),
    ("AllowSpecResourcesUsage", Always("No")),
    ("AuthAltTypes", Nothing),
    ("AuthAltParameters", Nothing),
    ("AuthInfo", Made(|f| format!("socket={}", f.text("auth.socket")))),
    ("AuthType", Always("auth/spur")),
    ("BatchStartTimeout", Nothing),
    ("BcastExclude", Nothing),
    ("BcastParameters", Nothing),
    ("BOOT_TIME", Made(|f| time(Some(f.known.controller.started), "Unknown", f.show))),
    ("BurstBufferType", Nothing),
    ("CliFilterParameters", Nothing),
    ("CliFilterPlugins", Nothing),
    ("ClusterName", Setting("cluster_name")),
    ("CommunicationParameters", Nothing),
    ("CompleteWait", Nothing),
    ("CpuFreqDef", Nothing),
    ("CpuFreqGovernors", Nothing),
    ("CredType", Always("cred/spur")),
    ("DataParserParameters", Nothing),
    ("DebugFlags", Made(|f| or_null(&f.known.controller.debug_flags))),
    ("DefMemPerNode", Always("UNLIMITED")),
    ("DependencyParameters", Nothing),
    ("DisableRootJobs", Always("No")),
    ("EioTimeout", Nothing),
    ("EnforcePartLimits", Setting("controller.enforce_part_limits")),
    ("Epilog", Programs("agent.epilog")),
    ("EpilogMsgTime", Nothing),
    ("EpilogSlurmctld", Setting("controller.epilog_slurmctld")),
    ("FairShareDampeningFactor", Made(|f| f.number("scheduler.fair_share_dampening_factor", "1"))),
    ("FederationParameters", Nothing),
    ("FirstJobId", Always("1")),
    ("GetEnvTimeout", Always("120 sec")),
    ("GresTypes", Made(|f| or_null(f.known.gres))),
    ("GpuFreqDef", Nothing),
    ("GroupUpdateForce", Nothing),
    ("GroupUpdateTime", Nothing),
    ("HASH_VAL", Nothing),
    ("HashPlugin", Nothing),
    (
        "HealthCheckInterval",
        Made(|f| match f.text("agent.health_check_program") {
            "" | "(null)" => "0 sec".to_owned(),
            _ => f.secs("agent.health_check_interval"),
        }),
    ),
    ("HealthCheckNodeState", Setting("agent.health_check_node_state")),
    ("HealthCheckProgram", Setting("agent.health_check_program")),
    ("InactiveLimit", Says::Seconds("controller.inactive_limit")),
    (
        "InteractiveStepOptions",
        Made(|f| match f.text("controller.use_interactive_step") {
            "true" => "--interactive --preserve-env --pty $SHELL".to_owned(),
            _ => "(null)".to_owned(),
        }),
    ),
    ("JobAcctGatherFrequency", Made(|f| f.seconds("agent.job_acct_gather_frequency").to_string())),
    ("JobAcctGatherType", Always("jobacct_gather/linux")),
    ("JobAcctGatherParams", Nothing),
    ("JobCompHost", Nothing),
    ("JobCompLoc", Nothing),
    ("JobCompParams", Nothing),
    ("JobCompPort", Nothing),
    ("JobCompType", Nothing),
    ("JobCompUser", Nothing),
    (
        "JobContainerType",
        Made(|f| match f.text("agent.job_container_base_path") {
            "" | "(null)" => "(null)".to_owned(),
            _ => "job_container/tmpfs".to_owned(),
        }),
    ),
    ("JobDefaults", Nothing),
    ("JobFileAppend", Always("0")),
    ("JobRequeue", Flag("controller.requeue")),
    ("JobSubmitPlugins", Nothing),
    ("KillOnBadExit", Flag("controller.kill_on_bad_exit")),
    ("KillWait", Says::Seconds("controller.kill_wait")),
    (
        "LaunchParameters",
        Made(|f| {
            or_null(if f.text("controller.use_interactive_step") == "true" {
                "use_interactive_step"
            } else {
                ""
            })
        }),
    ),
    ("Licenses", Setting("licenses")),
    ("LogTimeFormat", Nothing),
    ("MailDomain", Nothing),
    ("MailProg", Setting("controller.mail_prog")),
    ("MaxArraySize", Setting("controller.max_array_size")),
    ("MaxBatchRequeue", Setting("controller.max_batch_requeue")),
    ("MaxDBDMsgs", Nothing),
    ("MaxJobCount", Setting("controller.max_job_count")),
    ("MaxJobId", Nothing),
    ("MaxMemPerNode", Always("UNLIMITED")),
    ("MaxNodeCount", Made(|f| f.known.nodes.to_string())),
    ("MaxStepCount", Nothing),
    ("MaxTasksPerNode", Nothing),
    ("MCSPlugin", Nothing),
    ("MCSParameters", Nothing),
    ("MessageTimeout", Nothing),
    ("MinJobAge", Says::Seconds("controller.min_job_age")),
    ("MpiDefault", Setting("controller.mpi_default")),
    ("MpiParams", Nothing),
    ("MULTIPLE_SLURMD", Made(|f| yes_no(f.known.shared_hosts))),
    ("NEXT_JOB_ID", Made(|f| f.known.controller.next_job_id.to_string())),
    ("NodeFeaturesPlugins", Nothing),
    ("OverTimeLimit", Always("0 min")),
    ("PluginDir", Nothing),
    ("PlugStackConfig", Nothing),
    ("PreemptMode", Made(preempt_mode)),
    ("PreemptParameters", Nothing),
    (
        "PreemptType",
        Made(|f| match f.text("preempt.by") {
            "partition" => "preempt/partition_prio".to_owned(),
            "qos" => "preempt/qos".to_owned(),
            _ => "preempt/none".to_owned(),
        }),
    ),
    ("PreemptExemptTime", Span("preempt.exempt_time")),
    ("PrEpParameters", Nothing),
    ("PrEpPlugins", Always("prep/script")),
    ("PriorityParameters", Nothing),
    ("PrioritySiteFactorParameters", Nothing),
    ("PrioritySiteFactorPlugin", Nothing),
    ("PriorityDecayHalfLife", Span("scheduler.priority_decay_half_life")),
    ("PriorityCalcPeriod", Span("scheduler.priority_calc_period")),
    ("PriorityFavorSmall", YesNo("scheduler.priority_favor_small")),
    ("PriorityFlags", Setting("scheduler.priority_flags")),
    ("PriorityMaxAge", Span("scheduler.priority_max_age")),
    (
        "PriorityType",
        Made(|f| match f.text("scheduler.order") {
            "multifactor" => "priority/multifactor".to_owned(),
            "fcfs" => "priority/basic".to_owned(),
            other => format!("priority/{other}"),
        }),
    ),
    ("PriorityUsageResetPeriod", Setting("scheduler.priority_usage_reset_period")),
    ("PriorityWeightAge", Setting("scheduler.priority_weight_age")),
    ("PriorityWeightAssoc", Made(|f| f.number("scheduler.priority_weight_assoc", "0"))),
    ("PriorityWeightFairShare", Setting("scheduler.priority_weight_fairshare")),
    ("PriorityWeightJobSize", Setting("scheduler.priority_weight_job_size")),
    ("PriorityWeightPartition", Setting("scheduler.priority_weight_partition")),
    ("PriorityWeightQOS", Setting("scheduler.priority_weight_qos")),
    ("PriorityWeightTRES", Setting("scheduler.priority_weight_tres")),
    (
        "PrivateData",
        Made(|f| match f.text("controller.private_data") {
            "" => "none".to_owned(),
            names => names.to_owned(),
        }),
    ),
    ("ProctrackType", Made(|f| f.confined("kill", "proctrack/cgroup", "proctrack/linuxproc"))),
    ("Prolog", Programs("agent.prolog")),
    ("PrologEpilogTimeout", Made(|f| f.seconds("agent.prolog_timeout").to_string())),
    ("PrologSlurmctld", Setting("controller.prolog_slurmctld")),
    ("PrologFlags", Nothing),
    ("PropagatePrioProcess", Always("0")),
    (
        "PropagateResourceLimits",
        Made(|f| match f.text("controller.propagate_resource_limits_except") {
            "" => f.text("controller.propagate_resource_limits").to_owned(),
            _ => "(null)".to_owned(),
        }),
    ),
    ("PropagateResourceLimitsExcept", Setting("controller.propagate_resource_limits_except")),
    ("RebootProgram", Setting("power.reboot_program")),
    ("ReconfigFlags", Nothing),
    ("RequeueExit", Nothing),
    ("RequeueExitHold", Nothing),
    ("ResumeFailProgram", Setting("power.resume_fail_program")),
    ("ResumeProgram", Setting("power.resume_program")),
    ("ResumeRate", Made(|f| format!("{} nodes/min", f.text("power.resume_rate")))),
    ("ResumeTimeout", Says::Seconds("power.resume_timeout")),
    ("ResvEpilog", Nothing),
    ("ResvOverRun", Always("0 min")),
    ("ResvProlog", Nothing),
    ("ReturnToService", Always("1")),
    ("SchedulerParameters", Made(scheduler_parameters)),
    ("SchedulerTimeSlice", Nothing),
    (
        "SchedulerType",
        Made(|f| match f.text("scheduler.backfill") {
            "none" => "sched/builtin".to_owned(),
            _ => "sched/backfill".to_owned(),
        }),
    ),
    ("ScronParameters", Nothing),
    ("SelectType", Always("select/cons_tres")),
    ("SelectTypeParameters", Always("CR_CORE_MEMORY")),
    ("SlurmUser", Made(|f| or_null(&f.known.controller.user))),
    ("SlurmctldAddr", Nothing),
    ("SlurmctldDebug", Made(|f| or_null(&f.known.controller.debug_level))),
    ("SlurmctldHost[0]", Made(controller_host)),
    ("SlurmctldLogFile", Made(|f| f.log_file("spurctld"))),
    ("SlurmctldPort", Made(controller_port)),
    ("SlurmctldSyslogDebug", Nothing),
    ("SlurmctldPrimaryOffProg", Nothing),
    ("SlurmctldPrimaryOnProg", Nothing),
    ("SlurmctldTimeout", Nothing),
    ("SlurmctldParameters", Nothing),
    (
        "SlurmdDebug",
        Made(|f| match f.text("log.level") {
            "warn" => "error".to_owned(),
            "trace" => "debug2".to_owned(),
            level => or_null(level),
        }),
    ),
    ("SlurmdLogFile", Made(|f| f.log_file("spurd"))),
    ("SlurmdParameters", Nothing),
    ("SlurmdPidFile", Nothing),
    ("SlurmdPort", Made(|f| f.port("agent.listen_addr"))),
    ("SlurmdSpoolDir", Setting("agent.spool_dir")),
    ("SlurmdSyslogDebug", Nothing),
    ("SlurmdTimeout", Says::Seconds("recovery.node_timeout")),
    ("SlurmdUser", Made(|f| f.agent_user())),
    ("SlurmSchedLogFile", Nothing),
    ("SlurmSchedLogLevel", Nothing),
    ("SlurmctldPidFile", Nothing),
    ("SLURM_CONF", Made(|f| f.known.file.to_owned())),
    ("SLURM_VERSION", Always(SLURM)),
    ("SrunEpilog", Nothing),
    ("SrunPortRange", Nothing),
    ("SrunProlog", Nothing),
    ("StateSaveLocation", Setting("controller.state")),
    ("SuspendExcNodes", Setting("power.suspend_exc_nodes")),
    ("SuspendExcParts", Setting("power.suspend_exc_parts")),
    ("SuspendExcStates", Setting("power.suspend_exc_states")),
    ("SuspendProgram", Setting("power.suspend_program")),
    ("SuspendRate", Made(|f| format!("{} nodes/min", f.text("power.suspend_rate")))),
    (
        "SuspendTime",
        Made(|f| match f.text("power.suspend_time") {
            "" | "(null)" => "INFINITE".to_owned(),
            _ => f.secs("power.suspend_time"),
        }),
    ),
    ("SuspendTimeout", Says::Seconds("power.suspend_timeout")),
    ("SwitchParameters", Nothing),
    ("SwitchType", Nothing),
    ("TaskEpilog", Setting("agent.task_epilog")),
    ("TaskPlugin", Made(|f| f.confined("cpuset", "task/affinity,task/cgroup", "task/affinity"))),
    ("TaskPluginParam", Nothing),
    ("TaskProlog", Setting("agent.task_prolog")),
    ("TCPTimeout", Nothing),
    ("TmpFS", Always("/tmp")),
    ("TopologyParam", Nothing),
    (
        "TopologyPlugin",
        Made(|f| match f.text("topology.plugin") {
            "" | "none" => "topology/flat".to_owned(),
            plugin => format!("topology/{plugin}"),
        }),
    ),
    (
        "TrackWCKey",
        Made(|f| {
            let is_enforced = f.text("controller.accounting_enforce").split(',').any(|word| word == "wckeys");
            yes_no(is_enforced || f.text("controller.track_wckey") == "true")
        }),
    ),
    ("TreeWidth", Nothing),
    ("UsePam", Always("No")),
    ("UnkillableStepProgram", Nothing),
    ("UnkillableStepTimeout", Nothing),
    ("VSizeFactor", Nothing),
    ("WaitTime", Always("0 sec")),
    ("X11Parameters", Nothing),
];

/// Keys of `cgroup.conf`.
const CONTROL_GROUPS: &[(&str, Says)] = &[
    ("AllowedRAMSpace", Nothing),
    ("AllowedSwapSpace", Nothing),
    ("CgroupMountpoint", Nothing),
    ("CgroupPlugin", Setting("agent.cgroup_plugin")),
    ("ConstrainCores", Made(|f| f.confined("cpuset", "yes", "no"))),
    ("ConstrainDevices", Made(|f| f.confined("devices", "yes", "no"))),
    ("ConstrainRAMSpace", Made(|f| f.confined("memory", "yes", "no"))),
    ("ConstrainSwapSpace", Nothing),
    ("EnableControllers", Nothing),
    ("IgnoreSystemd", Nothing),
    ("IgnoreSystemdOnFailure", Nothing),
    ("MaxRAMPercent", Nothing),
    ("MaxSwapPercent", Nothing),
    ("MinRAMSpace", Nothing),
];

fn controller_host(f: &Facts<'_>) -> String {
    let host = f.known.address.rsplit_once(':').map_or(f.known.address, |(host, _)| host);
    let named = &f.known.controller.hostname;
    if host == named { host.to_owned() } else { format!("{named}({host})") }
}

fn controller_port(f: &Facts<'_>) -> String {
    f.known.address.rsplit_once(':').map_or("0", |(_, port)| port).to_owned()
}

fn preempt_mode(f: &Facts<'_>) -> String {
    match (f.text("preempt.by"), f.text("preempt.mode")) {
        ("none", _) => "OFF".to_owned(),
        (_, "suspend") => "GANG,SUSPEND".to_owned(),
        (_, mode) => mode.to_uppercase(),
    }
}

/// Returns the limits on a pass in Slurm's words; 0 means no limit in both systems.
fn scheduler_parameters(f: &Facts<'_>) -> String {
    let keys = [
        ("bf_max_job_test", "scheduler.depth"),
        ("bf_max_job_user", "scheduler.depth_per_user"),
        ("bf_max_job_part", "scheduler.depth_per_partition"),
    ];
    let set = keys.into_iter().filter(|(_, key)| !matches!(f.text(key), "" | "0"));
    let parts: Vec<String> = set.map(|(word, key)| format!("{word}={}", f.text(key))).collect();
    or_null(&parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys with a value that no setting changes, each with the behaviour that makes the value true.
    const CONSTANTS: &[(&str, &str)] = &[
        ("AccountingStorageType", "programs ask for this word; the controller serves what slurmdbd serves"),
        ("AccountingStoreFlags", "accounting keeps comments, and neither scripts, environments nor --extra"),
        ("AllowSpecResourcesUsage", "--core-spec and --thread-spec have no effect"),
        ("AuthType", "tokens of spurd's own"),
        ("CredType", "credentials sealed with the cluster's key"),
        ("DefMemPerNode", "only partitions have a default of memory"),
        ("DisableRootJobs", "only partitions refuse jobs of root"),
        ("FirstJobId", "the first journal begins with job 1"),
        ("GetEnvTimeout", "spurstepd waits so long for a login shell"),
        ("JobAcctGatherType", "spurstepd reads /proc"),
        ("JobFileAppend", "output files are truncated without --open-mode=append"),
        ("MaxMemPerNode", "only partitions have a limit of memory"),
        ("OverTimeLimit", "a job ends at its time limit"),
        ("PrEpPlugins", "prologs and epilogs are programs"),
        ("PropagatePrioProcess", "tasks run with the niceness of spurd"),
        ("ResvOverRun", "a job ends with its reservation"),
        ("ReturnToService", "a node that was down for its silence serves when it registers"),
        ("SelectType", "cores, memory and GPUs are allocated"),
        ("SelectTypeParameters", "the unit is the core, with memory"),
        ("SLURM_VERSION", "the release whose output is followed"),
        ("TmpFS", "spurd measures the disk of /tmp"),
        ("UsePam", "no PAM session"),
        ("WaitTime", "srun waits for all tasks without --wait"),
    ];

    #[test]
    fn implied_words_are_listed() {
        for (words, wanted) in [
            ("", "none"),
            ("qos,limits,safe", "associations,limits,qos,safe"),
            ("safe", "associations,limits,safe"),
            ("wckeys", "associations,wckeys"),
            ("nojobs", "nojobs,nosteps"),
        ] {
            assert_eq!(enforced(words), wanted, "{words}");
        }
    }

    #[test]
    fn values_that_no_setting_changes_are_listed_with_their_reason() {
        let constant = |(key, says): &(&'static str, Says)| matches!(says, Always(_)).then_some(*key);
        let found: Vec<&str> = KEYS.iter().chain(CONTROL_GROUPS).filter_map(constant).collect();
        let listed: Vec<&str> = CONSTANTS.iter().map(|(key, _)| *key).collect();
        assert_eq!(found, listed);
    }
}
