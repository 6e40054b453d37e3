//! Writes a configuration as Slurm's files.
//!
//! This is the counterpart of `spur import slurm`, which reads the original configuration back as far as
//! Slurm can express it. Other settings that differ from their defaults become comments.

use std::fmt::{Display, Write};

use spur_core::model::config::{
    CgroupPlugin, Config, NodeConfig, Oversubscribe, PartitionConfig, Policy, PreemptBy, PreemptMode,
};
use spur_core::model::topology::{DEFAULT_TOPOLOGY, Plugin, TopologyConfig};
use spur_core::text::gather::Placement;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Seconds, TimeLimit};
use spur_proto::convert::config::settings;
use spur_proto::v1::KeyValue;

/// One of Slurm's files.
#[derive(Debug)]
pub(super) struct File {
    /// Name of the file.
    pub(super) name: &'static str,
    /// Content of the file.
    pub(super) text: String,
}

/// Format of a value in `slurm.conf`.
#[derive(Clone, Copy)]
enum Spelled {
    /// The value itself.
    Plain,
    /// Number of seconds.
    Seconds,
    /// Time as `D-HH:MM:SS`.
    Span,
    /// 0 or 1.
    Flag,
    /// YES or NO.
    Yes,
    /// Number of minutes, rounded up.
    InMinutes,
    /// Unchanged, and omitted if it is Slurm's default, because older releases do not know the key.
    Newer,
    /// Part of a line that combines several settings.
    Elsewhere,
}

use Spelled::{Elsewhere, Flag, InMinutes, Newer, Plain, Seconds as InSeconds, Span, Yes};

/// Settings with their keys in `slurm.conf` and the formats of their values.
const SETTINGS: &[(&str, &str, Spelled)] = &[
    ("cluster_name", "ClusterName", Plain),
    ("controller.enforce_part_limits", "EnforcePartLimits", Plain),
    ("controller.inactive_limit", "InactiveLimit", InSeconds),
    ("controller.kill_wait", "KillWait", InSeconds),
    ("controller.max_array_size", "MaxArraySize", Plain),
    ("controller.max_batch_requeue", "MaxBatchRequeue", Newer),
    ("controller.max_job_count", "MaxJobCount", Plain),
    ("controller.min_job_age", "MinJobAge", InSeconds),
    ("controller.mpi_default", "MpiDefault", Plain),
    ("controller.kill_on_bad_exit", "KillOnBadExit", Flag),
    ("controller.propagate_resource_limits", "PropagateResourceLimits", Elsewhere),
    ("controller.propagate_resource_limits_except", "PropagateResourceLimitsExcept", Elsewhere),
    ("controller.use_interactive_step", "LaunchParameters", Elsewhere),
    ("controller.epilog_slurmctld", "EpilogSlurmctld", Plain),
    ("controller.private_data", "PrivateData", Plain),
    ("controller.prolog_epilog_timeout", "PrologEpilogTimeout", Elsewhere),
    ("controller.prolog_slurmctld", "PrologSlurmctld", Plain),
    ("controller.requeue", "JobRequeue", Flag),
    ("controller.track_wckey", "TrackWCKey", Flag),
    ("licenses", "Licenses", Plain),
    ("power.reboot_program", "RebootProgram", Plain),
    ("power.resume_fail_program", "ResumeFailProgram", Plain),
    ("power.resume_program", "ResumeProgram", Plain),
    ("power.resume_rate", "ResumeRate", Plain),
    ("power.resume_timeout", "ResumeTimeout", InSeconds),
    ("power.suspend_exc_nodes", "SuspendExcNodes", Plain),
    ("power.suspend_exc_parts", "SuspendExcParts", Plain),
    ("power.suspend_exc_states", "SuspendExcStates", Newer),
    ("power.suspend_program", "SuspendProgram", Plain),
    ("power.suspend_rate", "SuspendRate", Plain),
    ("power.suspend_time", "SuspendTime", InSeconds),
    ("power.suspend_timeout", "SuspendTimeout", InSeconds),
    ("preempt.by", "PreemptType", Elsewhere),
    ("preempt.exempt_time", "PreemptExemptTime", Span),
    ("preempt.grace_time", "GraceTime", Elsewhere),
    ("preempt.mode", "PreemptMode", Elsewhere),
    ("recovery.node_timeout", "SlurmdTimeout", InSeconds),
    ("scheduler.backfill", "SchedulerType", Elsewhere),
    ("scheduler.depth", "SchedulerParameters", Elsewhere),
    ("scheduler.depth_per_partition", "SchedulerParameters", Elsewhere),
    ("scheduler.depth_per_user", "SchedulerParameters", Elsewhere),
    ("scheduler.order", "PriorityType", Elsewhere),
    ("scheduler.billing", "", Elsewhere),
    ("scheduler.fair_share_dampening_factor", "FairShareDampeningFactor", Plain),
    ("scheduler.priority_calc_period", "PriorityCalcPeriod", InMinutes),
    ("scheduler.priority_decay_half_life", "PriorityDecayHalfLife", Span),
    ("scheduler.priority_favor_small", "PriorityFavorSmall", Yes),
    ("scheduler.priority_flags", "PriorityFlags", Plain),
    ("scheduler.priority_max_age", "PriorityMaxAge", Span),
    ("scheduler.priority_usage_reset_period", "PriorityUsageResetPeriod", Plain),
    ("scheduler.priority_weight_age", "PriorityWeightAge", Plain),
    ("scheduler.priority_weight_assoc", "PriorityWeightAssoc", Plain),
    ("scheduler.priority_weight_fairshare", "PriorityWeightFairshare", Plain),
    ("scheduler.priority_weight_job_size", "PriorityWeightJobSize", Plain),
    ("scheduler.priority_weight_partition", "PriorityWeightPartition", Plain),
    ("scheduler.priority_weight_qos", "PriorityWeightQOS", Plain),
    ("scheduler.priority_weight_tres", "PriorityWeightTRES", Plain),
];

/// Returns the files: `slurm.conf`, the topology's file if there is a topology, and others as needed.
pub(super) fn files(config: &Config) -> Vec<File> {
    let policy = &config.policy;
    let topology = topologies(policy);
    let mut text = String::new();
    common(&mut text, policy);
    daemons(&mut text, config);
    if let Some((plugin, _)) = &topology {
        pair(&mut text, "TopologyPlugin", plugin);
    }
    let all_gres = policy.nodes.iter().flat_map(|node| &node.shape.gres);
    let mut gres: Vec<&str> = all_gres.map(|gres| &*gres.name).collect();
    gres.sort_unstable();
    gres.dedup();
    if !gres.is_empty() {
        pair(&mut text, "GresTypes", gres.join(","));
    }
    text.push('\n');
    nodes(&mut text, config);
    text.push('\n');
    policy.partitions.iter().for_each(|one| partition(&mut text, one, policy));
    let mut files = vec![File { name: "slurm.conf", text }];
    files.extend(topology.map(|(_, file)| file));
    files.extend(cgroup(config.local.agent.cgroup_plugin));
    files.extend(slurmdbd(policy));
    files
}

/// Returns `cgroup.conf`, unless the plugin is detected automatically.
fn cgroup(plugin: CgroupPlugin) -> Option<File> {
    let named = plugin != CgroupPlugin::Autodetect;
    named.then(|| File { name: "cgroup.conf", text: format!("CgroupPlugin={}\n", plugin.name()) })
}

/// Returns `slurmdbd.conf` with the ages of records in hours, unless all records stay for ever.
fn slurmdbd(policy: &Policy) -> Option<File> {
    let jobs = &policy.jobs;
    let mut text = String::new();
    for (key, age) in [("PurgeJobAfter", jobs.purge_job_after), ("PurgeEventAfter", jobs.purge_event_after)] {
        if let Some(age) = age {
            pair(&mut text, key, format_args!("{}hours", age.0.div_ceil(3600)));
        }
    }
    (!text.is_empty()).then_some(File { name: "slurmdbd.conf", text })
}

fn pair(text: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(text, "{key}={value}");
}

fn lost(text: &mut String, what: impl Display) {
    let _ = writeln!(text, "# Slurm has no word for {what}");
}

/// Writes the settings of the cluster.
fn common(text: &mut String, policy: &Policy) {
    let usual = settings(&Policy::default());
    for setting in settings(policy) {
        let (key, value) = (setting.key.as_str(), setting.value.as_str());
        let seconds = || value.parse::<Seconds>().unwrap_or_default().0;
        let is_usual = usual.iter().any(|usual| usual.key == key && usual.value == value);
        match SETTINGS.iter().find(|(own, ..)| *own == key) {
            Some((_, _, Elsewhere)) => {}
            Some((_, _, Newer)) if is_usual => {}
            Some(_) if value.is_empty() => {}
            // Without switching and booting of nodes, the power settings are omitted.
            Some(_) if is_usual && key.starts_with("power.") => {}
            Some((_, slurm, Plain | Newer)) => pair(text, slurm, value),
            Some((_, slurm, InSeconds)) => pair(text, slurm, seconds()),
            Some((_, slurm, InMinutes)) => pair(text, slurm, seconds().div_ceil(60)),
            Some((_, slurm, Span)) => pair(text, slurm, TimeLimit::Seconds(seconds()).long()),
            Some((_, slurm, Flag)) => pair(text, slurm, u8::from(value == "true")),
            Some((_, slurm, Yes)) => pair(text, slurm, if value == "true" { "YES" } else { "NO" }),
            None if is_usual => {}
            // Slurm keeps QOS in its database.
            None if key.starts_with("qos.") => lost(text, format_args!("{key} = {value} but in sacctmgr")),
            None => lost(text, format_args!("{key} = {value}")),
        }
    }
    let jobs = &policy.jobs;
    // Slurm takes one of the two keys.
    match jobs.propagate_resource_limits_except.join(",").as_str() {
        "" => pair(text, "PropagateResourceLimits", jobs.propagate_resource_limits.join(",")),
        except => pair(text, "PropagateResourceLimitsExcept", except),
    }
    if jobs.use_interactive_step {
        pair(text, "LaunchParameters", "use_interactive_step");
    }
    plugins(text, policy, &settings(policy));
}

/// Writes the settings for which Slurm has plugins.
fn plugins(text: &mut String, policy: &Policy, all: &[KeyValue]) {
    let by = match policy.preempt.by {
        PreemptBy::None => "preempt/none",
        PreemptBy::Partition => "preempt/partition_prio",
        PreemptBy::Qos => "preempt/qos",
    };
    pair(text, "PreemptType", by);
    if policy.preempt.by != PreemptBy::None {
        pair(text, "PreemptMode", preempt_mode(policy.preempt.mode));
    }
    let scheduler = &policy.scheduler;
    let said = |key: &str| all.iter().find(|own| own.key == key).map_or("", |own| &own.value);
    match said("scheduler.backfill") {
        "none" => pair(text, "SchedulerType", "sched/builtin"),
        kind => {
            if kind != "easy" {
                lost(text, format_args!("scheduler.backfill = {kind}"));
            }
            pair(text, "SchedulerType", "sched/backfill");
        }
    }
    let (depth, user, partition) = (scheduler.depth, scheduler.depth_per_user, scheduler.depth_per_partition);
    let parameters = format!("bf_max_job_test={depth},bf_max_job_user={user},bf_max_job_part={partition}");
    pair(text, "SchedulerParameters", parameters);
    match said("scheduler.order") {
        "multifactor" => pair(text, "PriorityType", "priority/multifactor"),
        "fcfs" => pair(text, "PriorityType", "priority/basic"),
        order => lost(text, format_args!("scheduler.order = {order}")),
    }
    pair(text, "SelectType", "select/cons_tres");
    pair(text, "SelectTypeParameters", "CR_Core_Memory");
}

fn preempt_mode(mode: PreemptMode) -> &'static str {
    match mode {
        PreemptMode::Off => "OFF",
        PreemptMode::Cancel => "CANCEL",
        PreemptMode::Requeue => "REQUEUE",
        PreemptMode::Suspend => "SUSPEND,GANG",
    }
}

/// Writes the addresses of the daemons and their programs.
fn daemons(text: &mut String, config: &Config) {
    let local = &config.local;
    for address in &local.controller.addresses {
        pair(text, "SlurmctldHost", &address.host);
    }
    pair(text, "SlurmctldPort", local.controller.addresses.first().map_or(0, |address| address.port));
    pair(text, "SlurmdPort", local.agent.listen_addr.port);
    let agent = &local.agent;
    for (key, program) in [
        ("MailProg", &local.controller.mail_prog),
        ("TaskProlog", &agent.task_prolog),
        ("TaskEpilog", &agent.task_epilog),
    ] {
        if let Some(program) = program {
            pair(text, key, program.display());
        }
    }
    for (key, paths) in [("Prolog", &agent.prolog), ("Epilog", &agent.epilog)] {
        paths.iter().for_each(|path| pair(text, key, path.display()));
    }
    if let Some(program) = &agent.health_check_program {
        pair(text, "HealthCheckProgram", program.display());
        pair(text, "HealthCheckInterval", agent.health_check_interval.0);
    }
    if !agent.health_check_node_state.is_empty() {
        let states = agent.health_check_node_state.iter().map(|state| state.name());
        pair(text, "HealthCheckNodeState", states.collect::<Vec<_>>().join(","));
    }
    if agent.job_container_base_path.is_some() {
        pair(text, "JobContainerType", "job_container/tmpfs");
    }
    pair(text, "PrologEpilogTimeout", agent.prolog_timeout.0);
    pair(text, "JobAcctGatherFrequency", agent.job_acct_gather_frequency.0);
}

/// Nodes that a single line can describe.
struct Line<'a> {
    nodes: Vec<&'a NodeConfig>,
    hosts: Vec<String>,
    ports: Vec<u16>,
}

fn nodes(text: &mut String, config: &Config) {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for node in &config.policy.nodes {
        let address = config.local.node_addresses.get(&node.name).cloned().unwrap_or_default();
        match lines.last_mut().filter(|line| line.takes(node, address.host.is_some(), address.port)) {
            Some(line) => {
                line.nodes.push(node);
                line.hosts.extend(address.host);
                line.ports.extend(address.port);
            }
            None => lines.push(Line {
                nodes: vec![node],
                hosts: address.host.into_iter().collect(),
                ports: address.port.into_iter().collect(),
            }),
        }
    }
    lines.iter().for_each(|line| line.write(text));
}

impl Line<'_> {
    /// True if a node may join the line: it has the same properties, and its port is either equal to the
    /// others or the next one.
    fn takes(&self, node: &NodeConfig, has_host: bool, port: Option<u16>) -> bool {
        let alike = NodeConfig { name: node.name.clone(), ..self.nodes[0].clone() };
        let port_fits = match (self.ports.as_slice(), port) {
            ([], port) => port.is_none(),
            (_, None) => false,
            ([one], Some(port)) => port == *one || one.checked_add(1) == Some(port),
            ([a, .., b], Some(port)) if a == b => port == *a,
            ([.., last], Some(port)) => last.checked_add(1) == Some(port),
        };
        alike == *node && self.hosts.is_empty() != has_host && port_fits
    }

    fn write(&self, text: &mut String) {
        let node = self.nodes[0];
        let NodeConfig { shape, weight, .. } = node;
        let names = HostList::from_names(self.nodes.iter().map(|node| &node.name));
        if shape.cpus == 0 {
            lost(
                text,
                format_args!(
                    "nodes that say themselves what they have ({names}): without CPUs they have one"
                ),
            );
        }
        let mut words = vec![format!("NodeName={names}")];
        if !self.hosts.is_empty() {
            let list = HostList::from_names(&self.hosts);
            let list =
                if self.hosts.iter().all(|host| *host == self.hosts[0]) { list.unique() } else { list };
            words.push(format!("NodeAddr={list}"));
        }
        match self.ports.as_slice() {
            [] => {}
            [one] => words.push(format!("Port={one}")),
            [a, .., b] if a == b => words.push(format!("Port={a}")),
            [a, .., b] => words.push(format!("Port=[{a}-{b}]")),
        }
        let numbers = [
            ("CPUs", u64::from(shape.cpus)),
            ("Sockets", u64::from(shape.sockets)),
            ("CoresPerSocket", u64::from(shape.cores_per_socket)),
            ("ThreadsPerCore", u64::from(shape.threads_per_core)),
            ("RealMemory", shape.memory_mb),
            ("TmpDisk", shape.tmp_disk_mb),
            ("CoreSpecCount", u64::from(node.core_spec_count)),
            ("MemSpecLimit", node.mem_spec_limit),
        ];
        let given = numbers.iter().filter(|(_, number)| *number > 0);
        words.extend(given.map(|(key, number)| format!("{key}={number}")));
        if !node.cpu_spec_list.is_empty() {
            words.push(format!("CPUSpecList={}", node.cpu_spec_list));
        }
        let gres = shape.gres.iter().map(|gres| match &*gres.kind {
            "" => format!("{}:{}", gres.name, gres.count),
            kind => format!("{}:{kind}:{}", gres.name, gres.count),
        });
        let gres: Vec<String> = gres.collect();
        if !gres.is_empty() {
            words.push(format!("Gres={}", gres.join(",")));
        }
        if !shape.features.is_empty() {
            words.push(format!("Features={}", shape.features.join(",")));
        }
        if *weight != 1 {
            words.push(format!("Weight={weight}"));
        }
        let _ = writeln!(text, "{} State=UNKNOWN", words.join(" "));
    }
}

fn partition(text: &mut String, partition: &PartitionConfig, policy: &Policy) {
    if partition.placement != Placement::default() {
        lost(text, format_args!("placement = {} of {}", partition.placement, partition.name));
    }
    if let Some(qos) = &partition.default_qos {
        lost(text, format_args!("default_qos = {qos} of {}", partition.name));
    }
    let list = HostList::from_names(&partition.nodes).to_string();
    let mut words = vec![
        format!("PartitionName={}", partition.name),
        format!("Nodes={}", if partition.all_nodes { "ALL" } else { &list }),
    ];
    let mut say =
        |key: &str, value: Option<String>| words.extend(value.map(|value| format!("{key}={value}")));
    let list = |names: &[std::sync::Arc<str>]| (!names.is_empty()).then(|| names.join(","));
    let above = |number: u32, usual: u32| (number != usual).then(|| number.to_string());
    let yes = |holds: bool| holds.then(|| "YES".to_owned());
    say("Default", yes(partition.default));
    say("State", Some(format!("{:?}", partition.state).to_uppercase()));
    say("MaxTime", Some(partition.max_time.long()));
    say("DefaultTime", partition.default_time.map(|limit| limit.long()));
    say("MinNodes", above(partition.min_nodes, 0));
    say("MaxNodes", partition.max_nodes.map(|number| number.to_string()));
    say("PriorityTier", above(partition.priority_tier, 1));
    say("PriorityJobFactor", above(partition.priority_job_factor, 1));
    let weights = &partition.tres_billing_weights;
    say("TRESBillingWeights", (!weights.is_empty()).then(|| weights.to_string()));
    say(
        "OverSubscribe",
        (partition.oversubscribe == Oversubscribe::Exclusive).then(|| "EXCLUSIVE".to_owned()),
    );
    say("AllowGroups", list(&partition.allow_groups));
    say("AllowAccounts", list(&partition.allow_accounts));
    say("DenyAccounts", list(&partition.deny_accounts));
    say("AllocNodes", list(&partition.alloc_nodes));
    say("Alternate", partition.alternate.as_ref().map(ToString::to_string));
    say("DisableRootJobs", yes(partition.disable_root_jobs));
    say("RootOnly", yes(partition.root_only));
    say("ReqResv", yes(partition.req_resv));
    say("Hidden", yes(partition.hidden));
    say("AllowQos", list(&partition.allow_qos));
    say("DenyQos", list(&partition.deny_qos));
    say("QOS", partition.qos.as_ref().map(ToString::to_string));
    say("DefMemPerCPU", partition.def_mem_per_cpu.map(|mb| mb.to_string()));
    say("MaxMemPerCPU", partition.max_mem_per_cpu.map(|mb| mb.to_string()));
    say("DefMemPerNode", partition.def_mem_per_node.map(|mb| mb.to_string()));
    say("MaxMemPerNode", partition.max_mem_per_node.map(|mb| mb.to_string()));
    let defaults = [
        partition.def_cpu_per_gpu.map(|cpus| format!("DefCpuPerGPU={cpus}")),
        partition.def_mem_per_gpu.map(|mb| format!("DefMemPerGPU={mb}")),
    ];
    let defaults: Vec<String> = defaults.into_iter().flatten().collect();
    say("JobDefaults", (!defaults.is_empty()).then(|| defaults.join(",")));
    say("MaxCPUsPerNode", partition.max_cpus_per_node.map(|number| number.to_string()));
    say("MaxCPUsPerSocket", partition.max_cpus_per_socket.map(|number| number.to_string()));
    say("PreemptMode", partition.preempt_mode.map(|mode| preempt_mode(mode).to_owned()));
    let grace = partition.grace_time.unwrap_or(policy.preempt.grace_time);
    say("GraceTime", (grace.0 > 0).then(|| grace.0.to_string()));
    say("Topology", partition.topology.as_ref().map(ToString::to_string));
    let _ = writeln!(text, "{}", words.join(" "));
}

/// Returns the plugin and its file: `topology.conf` for a single topology, otherwise `topology.yaml`; `None`
/// without a topology.
fn topologies(policy: &Policy) -> Option<(&'static str, File)> {
    match policy.topologies.as_slice() {
        [] => None,
        [one] if one.name == DEFAULT_TOPOLOGY => match one.plugin {
            Plugin::None => None,
            Plugin::Tree => Some(("topology/tree", File { name: "topology.conf", text: conf(one, policy) })),
            Plugin::Block => {
                Some(("topology/block", File { name: "topology.conf", text: conf(one, policy) }))
            }
        },
        all => {
            let text = all.iter().map(|topology| yaml(topology, policy)).collect();
            Some(("topology/default", File { name: "topology.yaml", text }))
        }
    }
}

/// Writes comments for properties of a topology that Slurm cannot express.
fn lost_of_topology(text: &mut String, topology: &TopologyConfig) {
    let usual = TopologyConfig::default();
    let TopologyConfig { layers, rule, limits, weights, score_before, search_budget, .. } = topology;
    for (is_usual, what) in [
        (*layers == usual.layers, "layers"),
        (*rule == usual.rule, "rule"),
        (*limits == usual.limits, "limits"),
        (*weights == usual.weights, "weights"),
        (*score_before == usual.score_before, "score_before"),
        (*search_budget == usual.search_budget, "search_budget"),
        (topology.switches.iter().all(|switch| switch.latency.is_none()), "latency"),
    ] {
        if !is_usual {
            lost(text, format_args!("{what} of topology {}", topology.name));
        }
    }
}

/// Returns the names and nodes of blocks, including those cut from the list of nodes by `block_size`.
fn blocks(topology: &TopologyConfig, policy: &Policy) -> Vec<(String, String)> {
    if let (true, Some(size)) = (topology.blocks.is_empty(), topology.block_size) {
        let cut = policy.nodes.chunks(size.max(1) as usize).enumerate();
        let named = cut.map(|(index, nodes)| {
            (
                format!("block{index:03}"),
                HostList::from_names(nodes.iter().map(|node| &node.name)).to_string(),
            )
        });
        return named.collect();
    }
    topology.blocks.iter().map(|block| (block.name.clone(), block.nodes.clone())).collect()
}

fn sizes(topology: &TopologyConfig) -> String {
    topology.block_sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn conf(topology: &TopologyConfig, policy: &Policy) -> String {
    let mut text = String::new();
    lost_of_topology(&mut text, topology);
    for switch in &topology.switches {
        let mut words = vec![format!("SwitchName={}", switch.name)];
        words.extend(switch.nodes.as_ref().map(|list| format!("Nodes={list}")));
        words.extend(switch.switches.as_ref().map(|list| format!("Switches={list}")));
        words.extend(switch.link_speed.as_ref().map(|speed| format!("LinkSpeed={speed}")));
        let _ = writeln!(text, "{}", words.join(" "));
    }
    if topology.plugin == Plugin::Block {
        for (name, nodes) in blocks(topology, policy) {
            let _ = writeln!(text, "BlockName={name} Nodes={nodes}");
        }
        if !topology.block_sizes.is_empty() {
            pair(&mut text, "BlockSizes", sizes(topology));
        }
    }
    text
}

fn yaml(topology: &TopologyConfig, policy: &Policy) -> String {
    let mut text = String::new();
    lost_of_topology(&mut text, topology);
    let _ = writeln!(text, "- topology: {:?}", topology.name);
    let _ = writeln!(text, "  cluster_default: {}", topology.name == DEFAULT_TOPOLOGY);
    match topology.plugin {
        Plugin::None => text.push_str("  flat: true\n"),
        Plugin::Tree => {
            text.push_str("  tree:\n    switches:\n");
            for switch in &topology.switches {
                let _ = writeln!(text, "      - switch: {:?}", switch.name);
                for (key, list) in [("nodes", &switch.nodes), ("children", &switch.switches)] {
                    if let Some(list) = list {
                        let _ = writeln!(text, "        {key}: {list:?}");
                    }
                }
            }
        }
        Plugin::Block => {
            if !topology.block_sizes.is_empty() {
                let _ = writeln!(text, "  block:\n    block_sizes: [{}]\n    blocks:", sizes(topology));
            } else {
                text.push_str("  block:\n    blocks:\n");
            }
            for (name, nodes) in blocks(topology, policy) {
                let _ = writeln!(text, "      - block: {name:?}\n        nodes: {nodes:?}");
            }
        }
    }
    text
}
