//! Fields of `sinfo` for groups of equal nodes of a partition.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::rc::Rc;

use spur_core::text::hostlist::{HostList, compare_names};
use spur_proto::v1::{Node, Partition};

use crate::format::value::{limit, load, or, or_null, time};
use crate::format::{Field, Show, Table};
use crate::version;

/// One line of output: nodes of a partition, or of several partitions that the printed fields do not
/// distinguish.
#[derive(Clone, Debug)]
pub struct Row {
    /// The partition; the first one of several.
    pub partition: Rc<Partition>,
    /// Index of the partition in the configuration.
    pub position: usize,
    /// The nodes, each once, in the order of their names.
    pub nodes: Vec<Rc<Node>>,
}

impl Row {
    /// Returns the numbers of allocated, idle, other and all nodes.
    pub fn node_counts(&self) -> [u64; 4] {
        let mut counts = [0, 0, 0, self.nodes.len() as u64];
        for node in &self.nodes {
            let class = match node.state.as_str() {
                "drained" | "down" | "fail" | "drain" => 2,
                "allocated" | "mixed" | "completing" | "draining" | "failing" => 0,
                _ if node.cpus_allocated > 0 => 0,
                _ => 1,
            };
            counts[class] += 1;
        }
        counts
    }

    /// Returns the numbers of allocated, idle, other and all CPUs.
    pub fn cpu_counts(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        for node in &self.nodes {
            let free = u64::from(node.cpus.saturating_sub(node.cpus_allocated));
            let gone =
                matches!(node.state.as_str(), "down" | "drain" | "drained" | "draining" | "fail" | "failing");
            counts[0] += u64::from(node.cpus_allocated);
            counts[if gone { 2 } else { 1 }] += free;
            counts[3] += u64::from(node.cpus);
        }
        counts
    }
}

/// Effect of a field on the grouping of nodes into lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// A field of the partition, in which lines differ.
    Partition,
    /// A field of the node, in which lines differ.
    Node,
    /// A field in which lines differ with `--exact` only; otherwise the smallest value represents the line.
    Exact,
    /// A sum or a list of the nodes of a line.
    Never,
}

/// Returns the effect of the field with this long name.
pub fn groups(name: &str) -> Groups {
    match name {
        "Available" | "Groups" | "OverSubscribe" | "PriorityJobFactor" | "Time" | "DefaultTime"
        | "PreemptMode" | "PriorityTier" | "Partition" | "PartitionName" | "Root" | "Size" | "AllocNodes"
        | "MaxCPUsPerNode" | "Placement" => Groups::Partition,
        "Features" | "features_act" | "Gres" | "GresUsed" | "Reason" | "TimeStamp" | "User" | "UserLong"
        | "NodeHost" | "NodeAddr" | "StateCompact" | "StateLong" | "StateComplete" | "Version"
        | "SpurVersion" | "SwitchName" | "SwitchPath" | "Topology" | "ReportedTopology" | "Comment"
        | "Extra" | "ReservationName" => Groups::Node,
        "CPUs" | "Disk" | "FreeMem" | "Memory" | "CPUsLoad" | "Weight" | "Sockets" | "Cores" | "Threads"
        | "SocketCoreThread" | "AllocMem" => Groups::Exact,
        _ => Groups::Never,
    }
}

/// Returns a limit as a number; `UNLIMITED` for none.
pub fn or_unlimited(limit: Option<u32>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), |most| most.to_string())
}

/// Returns `JobDefaults=`: CPUs and memory per GPU of jobs that request neither.
pub fn job_defaults(partition: &Partition) -> String {
    let cpus = partition.default_cpus_per_gpu.map(|cpus| format!("DefCpuPerGPU={cpus}"));
    let memory = partition.default_memory_per_gpu_mb.map(|mb| format!("DefMemPerGPU={mb}"));
    cpus.into_iter().chain(memory).collect::<Vec<_>>().join(",")
}

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    text: fn(&Row, &Show) -> String,
) -> Field<Row> {
    Field::new(Some(letter), name, header, text)
}

const fn named(name: &'static str, header: &'static str, text: fn(&Row, &Show) -> String) -> Field<Row> {
    Field::new(None, name, header, text)
}

/// Field by which `#P` sorts: the order of the configuration.
pub const CONFIGURED: &Field<Row> =
    &Field::<Row>::new(None, "Partition", "PARTITION", |r, _| r.partition.name.clone())
        .by(|a, b| a.position.cmp(&b.position));

/// Table of the fields of nodes.
pub static TABLE: Table<Row> = Table { records: "node", fields: FIELDS, bars: ["|", " |", " "] };

/// All fields: Slurm's first, then those that only Spur has.
pub const FIELDS: &[Field<Row>] = &[
    field('a', "Available", "AVAIL", |r, _| availability(&r.partition)),
    field('A', "NodeAI", "NODES(A/I)", |r, _| {
        let [allocated, idle, ..] = r.node_counts();
        format!("{allocated}/{idle}")
    }),
    field('b', "features_act", "ACTIVE_FEATURES", |r, _| of_node(r, |n| or_null(&n.features))),
    field('B', "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", |r, _| or_unlimited(r.partition.max_cpus_per_node)),
    field('c', "CPUs", "CPUS", |r, _| least(r, |n| n.cpus.into()))
        .by(|a, b| order_least(a, b, |n| n.cpus.into())),
    field('C', "CPUsState", "CPUS(A/I/O/T)", |r, _| slashed(r.cpu_counts())),
    field('d', "Disk", "TMP_DISK", |r, _| least(r, |n| n.tmp_disk_mb))
        .by(|a, b| order_least(a, b, |n| n.tmp_disk_mb)),
    field('D', "Nodes", "NODES", |r, _| r.nodes.len().to_string())
        .by(|a, b| a.nodes.len().cmp(&b.nodes.len())),
    field('e', "FreeMem", "FREE_MEM", |r, _| range(r, |n| n.memory_free_mb, |m| m.to_string())),
    field('E', "Reason", "REASON", |r, _| of_node(r, |n| or(&n.reason, "none"))),
    field('f', "Features", "AVAIL_FEATURES", |r, _| of_node(r, |n| or_null(&n.features))),
    field('F', "NodeAIOT", "NODES(A/I/O/T)", |r, _| slashed(r.node_counts())),
    field('g', "Groups", "GROUPS", |r, _| match r.partition.allow_groups.as_str() {
        "" | "ALL" => "all".to_owned(),
        groups => groups.to_owned(),
    }),
    field('G', "Gres", "GRES", |r, _| of_node(r, |n| or_null(&n.gres))),
    field('h', "OverSubscribe", "OVERSUBSCRIBE", |r, _| r.partition.oversubscribe.clone()),
    field('H', "TimeStamp", "TIMESTAMP", |r, show| of_node(r, |n| time(n.reason_time, "Unknown", show))),
    field('i', "ReservationName", "RESERVATION", |r, _| of_node(r, |n| n.reservation.clone()))
        .or(&["Reservation"]),
    field('I', "PriorityJobFactor", "PRIO_JOB_FACTOR", |r, _| r.partition.priority_job_factor.to_string())
        .by(|a, b| a.partition.priority_job_factor.cmp(&b.partition.priority_job_factor)),
    field('l', "Time", "TIMELIMIT", |r, _| limit(r.partition.max_time, "infinite"))
        .by(|a, b| unlimited_last(a.partition.max_time, b.partition.max_time)),
    field('L', "DefaultTime", "DEFAULTTIME", |r, _| limit(r.partition.default_time, "n/a"))
        .by(|a, b| unlimited_last(a.partition.default_time, b.partition.default_time)),
    field('m', "Memory", "MEMORY", |r, _| least(r, |n| n.memory_mb))
        .by(|a, b| order_least(a, b, |n| n.memory_mb)),
    field('M', "PreemptMode", "PREEMPT_MODE", |r, _| or(&r.partition.preempt_mode, "OFF").to_uppercase()),
    field('n', "NodeHost", "HOSTNAMES", |r, _| listed(r, |n| or(&n.hostname, &n.name))),
    field('N', "NodeList", "NODELIST", |r, _| listed(r, |n| n.name.clone())).by(by_first_node),
    field('o', "NodeAddr", "NODE_ADDR", |r, _| listed(r, |n| or(host_and_port(&n.address).0, &n.name))),
    field('O', "CPUsLoad", "CPU_LOAD", |r, _| range(r, |n| n.load_hundredths.map(u64::from), hundredths)),
    field('p', "PriorityTier", "PRIO_TIER", |r, _| r.partition.priority_tier.to_string())
        .by(|a, b| a.partition.priority_tier.cmp(&b.partition.priority_tier)),
    field('P', "Partition", "PARTITION", |r, _| starred(&r.partition)),
    field('r', "Root", "ROOT", |r, _| if r.partition.root_only { "yes" } else { "no" }.to_owned()),
    field('R', "PartitionName", "PARTITION", |r, _| r.partition.name.clone()),
    field('s', "Size", "JOB_SIZE", |r, _| job_size(&r.partition)),
    field('S', "AllocNodes", "ALLOCNODES", |r, _| or(&r.partition.alloc_nodes, "all")),
    field('t', "StateCompact", "STATE", |r, _| {
        of_row(r, |n| starred_state(n, compact_state(&n.state), "boot"))
    })
    .by(by_state),
    field('T', "StateLong", "STATE", |r, _| of_row(r, |n| starred_state(n, &n.state, "reboot"))).by(by_state),
    field('u', "User", "USER", |r, _| of_node(r, |n| or(&n.reason_user, "Unknown"))),
    field('U', "UserLong", "USER", |r, _| of_node(r, reason_user_long)),
    field('v', "Version", "VERSION", |r, _| of_node(r, |n| or(version::of_node(&n.version), "N/A"))),
    field('V', "Cluster", "CLUSTER", |_, show| or(&show.cluster, "N/A")),
    field('w', "Weight", "WEIGHT", |r, _| least(r, |n| n.weight.into()))
        .by(|a, b| order_least(a, b, |n| n.weight.into())),
    field('X', "Sockets", "SOCKETS", |r, _| least(r, |n| n.sockets.into()))
        .by(|a, b| order_least(a, b, |n| n.sockets.into())),
    field('Y', "Cores", "CORES", |r, _| least(r, |n| n.cores_per_socket.into()))
        .by(|a, b| order_least(a, b, |n| n.cores_per_socket.into())),
    field('Z', "Threads", "THREADS", |r, _| least(r, |n| n.threads_per_core.into()))
        .by(|a, b| order_least(a, b, |n| n.threads_per_core.into())),
    field('z', "SocketCoreThread", "S:C:T", |r, _| {
        let [sockets, cores, threads] = [
            least(r, |n| n.sockets.into()),
            least(r, |n| n.cores_per_socket.into()),
            least(r, |n| n.threads_per_core.into()),
        ];
        format!("{sockets}:{cores}:{threads}")
    }),
    named("AllocMem", "ALLOCMEM", |r, _| least(r, |n| n.memory_allocated_mb)),
    named("Comment", "COMMENT", |r, _| of_node(r, |n| or_null(&n.owner_comment))),
    named("Extra", "EXTRA", |r, _| of_node(r, |n| or_null(&n.extra))),
    named("GresUsed", "GRES_USED", |r, _| of_node(r, |n| or_null(&n.gres_used))),
    named("StateComplete", "STATECOMPLETE", |r, _| of_row(r, |n| state_flags(n).to_lowercase())),
    named("Placement", "PLACEMENT", |r, _| or_null(&r.partition.placement)),
    named("Port", "PORT", |r, _| of_node(r, |n| or(host_and_port(&n.address).1.unwrap_or_default(), "0"))),
    named("SpurVersion", "SPUR_VERSION", |r, _| of_node(r, |n| or(&n.version, "N/A"))),
    named("SwitchName", "SWITCH", |r, _| of_node(r, |n| or_null(&n.switch_name))),
    named("SwitchPath", "SWITCH_PATH", |r, _| of_node(r, |n| or_null(&n.switch_path))),
    named("Topology", "TOPOLOGY", |r, _| of_node(r, |n| or_null(&n.topology))),
    named("ReportedTopology", "REPORTED_TOPOLOGY", |r, _| of_node(r, |n| or_null(&n.reported_topology))),
];

/// Returns the user who set the reason. The controller does not store the uids of users other than root.
fn reason_user_long(node: &Node) -> String {
    match node.reason_user.as_str() {
        "" => "Unknown".to_owned(),
        "root" => "root(0)".to_owned(),
        user => user.to_owned(),
    }
}

/// Returns the name of a partition, with a star for the default partition.
pub fn starred(partition: &Partition) -> String {
    format!("{}{}", partition.name, if partition.is_default { "*" } else { "" })
}

/// Splits `host:port`; without a port, all of the text is the host.
pub fn host_and_port(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (host, Some(port))
        }
        _ => (address, None),
    }
}

/// Returns the number of CPUs that jobs can use.
pub fn effective_cpus(node: &Node) -> u32 {
    node.cpus.saturating_sub(node.cpus_specialized)
}

/// Returns the state by allocation alone: `IDLE`, `MIXED` or `ALLOCATED`.
pub fn in_use(node: &Node) -> &'static str {
    match node.cpus_allocated {
        0 => "IDLE",
        used if used < effective_cpus(node) => "MIXED",
        _ => "ALLOCATED",
    }
}

/// Returns the base state and all flags as `scontrol` prints them, in Slurm's order:
/// `MIXED+DRAIN+NOT_RESPONDING`.
pub fn state_flags(node: &Node) -> String {
    let state = node.state.as_str();
    let is = |states: &[&str]| states.contains(&state);
    let base = match state {
        "drained" | "draining" | "drain" | "completing" | "planned" | "reserved" | "maint" => {
            in_use(node).to_owned()
        }
        _ => state.to_uppercase(),
    };
    let reserved = node.maintenance || !node.reservation.is_empty() || is(&["reserved"]);
    // Flags of a transition come last.
    let late = ["POWERING_UP", "POWERING_DOWN"].contains(&node.power.as_str());
    let power = |last: bool| (!node.power.is_empty() && late == last, node.power.as_str());
    let beside = [
        (is(&["completing"]), "COMPLETING"),
        (is(&["drained", "draining", "drain"]), "DRAIN"),
        (node.maintenance, "MAINTENANCE"),
        power(false),
        (reserved, "RESERVED"),
        (node.not_responding, "NOT_RESPONDING"),
        (is(&["planned"]), "PLANNED"),
        power(true),
    ];
    beside.iter().filter(|(holds, _)| *holds).fold(base, |text, (_, flag)| text + "+" + flag)
}

fn availability(partition: &Partition) -> String {
    match partition.state.as_str() {
        "INACTIVE" => "inact".to_owned(),
        state => state.to_lowercase(),
    }
}

fn job_size(partition: &Partition) -> String {
    let least = partition.min_nodes.max(1);
    match partition.max_nodes {
        None => format!("{least}-infinite"),
        Some(most) if most == least => least.to_string(),
        Some(most) => format!("{least}-{most}"),
    }
}

fn compact_state(state: &str) -> &str {
    match state {
        "allocated" => "alloc",
        "mixed" => "mix",
        "completing" => "comp",
        "drained" => "drain",
        "draining" => "drng",
        "failing" => "failg",
        "future" => "futr",
        "planned" => "plnd",
        "reserved" => "resv",
        "unknown" => "unk",
        _ => state,
    }
}

/// Returns the state with its mark. A planned boot replaces the state of an idle node.
fn starred_state(node: &Node, state: &str, boot: &str) -> String {
    let (issued, requested) = (node.power == "REBOOT_ISSUED", node.power == "REBOOT_REQUESTED");
    let stands_for_all = (issued || requested) && in_use(node) == "IDLE" && node.state != "maint";
    let state = if stands_for_all { boot } else { state };
    let mark = match node.power.as_str() {
        "POWERING_DOWN" => "%",
        "POWERED_DOWN" => "~",
        "POWERING_UP" => "#",
        "POWER_DOWN" => "!",
        _ => "",
    };
    // A host that is off is shown as idle even if the node is reserved or planned.
    let state = match state {
        "planned" | "plnd" | "reserved" | "resv" if !mark.is_empty() => "idle",
        other => other,
    };
    let suffix = match state {
        _ if !mark.is_empty() && !node.maintenance => mark,
        _ if issued && (stands_for_all || !node.maintenance) => "^",
        _ if requested && !stands_for_all && !node.maintenance => "@",
        _ if node.not_responding => "*",
        "maint" => "",
        _ if node.maintenance => "$",
        _ => "",
    };
    format!("{state}{suffix}")
}

/// Returns the rank of a state in Slurm's order: plain states first, then drained, completing, silent and
/// planned ones.
fn state_rank(node: &Node) -> u32 {
    let in_use = match in_use(node) {
        "IDLE" => 2,
        "MIXED" => 5,
        _ => 3,
    };
    let rank = match node.state.as_str() {
        "unknown" => 0,
        "down" => 1,
        "idle" => 2,
        "allocated" => 3,
        "mixed" => 5,
        "future" => 6,
        "drained" | "draining" | "drain" => in_use + (1 << 9),
        "completing" => in_use + (1 << 10),
        _ => in_use + (1 << 20),
    };
    rank + (u32::from(node.not_responding) << 11)
}

fn by_state(a: &Row, b: &Row) -> Ordering {
    let rank = |row: &Row| row.nodes.first().map(|node| state_rank(node));
    rank(a).cmp(&rank(b))
}

fn by_first_node(a: &Row, b: &Row) -> Ordering {
    match (a.nodes.first(), b.nodes.first()) {
        (Some(a), Some(b)) => compare_names(&a.name, &b.name),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

fn unlimited_last(a: Option<u64>, b: Option<u64>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

fn slashed(counts: [u64; 4]) -> String {
    counts.map(|count| count.to_string()).join("/")
}

fn hundredths(load_value: u64) -> String {
    load(u32::try_from(load_value).ok())
}

/// Returns a text that all nodes of a line share; `n/a` without nodes.
fn of_row(row: &Row, text: impl Fn(&Node) -> String) -> String {
    row.nodes.first().map_or_else(|| "n/a".to_owned(), |node| text(node))
}

fn of_node(row: &Row, text: impl Fn(&Node) -> String) -> String {
    row.nodes.first().map(|node| text(node)).unwrap_or_default()
}

fn listed(row: &Row, name: impl Fn(&Node) -> String) -> String {
    HostList::from_names(row.nodes.iter().map(|node| name(node))).unique().to_string()
}

/// Returns the smallest value, with a plus if the line has other values.
fn least(row: &Row, value: impl Fn(&Node) -> u64) -> String {
    let values: BTreeSet<u64> = row.nodes.iter().map(|node| value(node)).collect();
    let more = if values.len() > 1 { "+" } else { "" };
    format!("{}{more}", values.first().copied().unwrap_or(0))
}

fn order_least(a: &Row, b: &Row, value: impl Fn(&Node) -> u64) -> Ordering {
    let least = |row: &Row| row.nodes.iter().map(|node| value(node)).min();
    least(a).cmp(&least(b))
}

/// Returns the range of the known values; `N/A` if none is known.
fn range(row: &Row, value: impl Fn(&Node) -> Option<u64>, text: impl Fn(u64) -> String) -> String {
    let values: BTreeSet<u64> = row.nodes.iter().filter_map(|node| value(node)).collect();
    match (values.first(), values.last()) {
        (Some(&least), Some(&most)) if least < most => format!("{}-{}", text(least), text(most)),
        (Some(&only), _) => text(only),
        _ => "N/A".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the output of Slurm 22.05 for the same flags.
    #[test]
    fn what_is_done_to_hosts_is_shown_as_slurm_shows_it() {
        for (state, used, power, silent, short, long, flags) in [
            ("idle", 0, "REBOOT_REQUESTED", false, "boot", "reboot", "IDLE+REBOOT_REQUESTED"),
            ("idle", 0, "REBOOT_ISSUED", true, "boot^", "reboot^", "IDLE+REBOOT_ISSUED+NOT_RESPONDING"),
            ("drained", 0, "REBOOT_ISSUED", false, "boot^", "reboot^", "IDLE+DRAIN+REBOOT_ISSUED"),
            ("down", 0, "REBOOT_REQUESTED", true, "boot*", "reboot*", "DOWN+REBOOT_REQUESTED+NOT_RESPONDING"),
            ("mixed", 1, "REBOOT_REQUESTED", false, "mix@", "mixed@", "MIXED+REBOOT_REQUESTED"),
            (
                "draining",
                2,
                "REBOOT_REQUESTED",
                false,
                "drng@",
                "draining@",
                "ALLOCATED+DRAIN+REBOOT_REQUESTED",
            ),
            (
                "completing",
                1,
                "REBOOT_REQUESTED",
                false,
                "comp@",
                "completing@",
                "MIXED+COMPLETING+REBOOT_REQUESTED",
            ),
            ("planned", 0, "REBOOT_REQUESTED", false, "boot", "reboot", "IDLE+REBOOT_REQUESTED+PLANNED"),
            ("idle", 0, "POWERED_DOWN", false, "idle~", "idle~", "IDLE+POWERED_DOWN"),
            ("planned", 0, "POWERED_DOWN", false, "idle~", "idle~", "IDLE+POWERED_DOWN+PLANNED"),
            ("idle", 0, "POWERING_DOWN", false, "idle%", "idle%", "IDLE+POWERING_DOWN"),
            ("mixed", 1, "POWERING_UP", true, "mix#", "mixed#", "MIXED+NOT_RESPONDING+POWERING_UP"),
            ("draining", 2, "POWER_DOWN", false, "drng!", "draining!", "ALLOCATED+DRAIN+POWER_DOWN"),
            ("down", 0, "POWERED_DOWN", true, "down~", "down~", "DOWN+POWERED_DOWN+NOT_RESPONDING"),
        ] {
            let node = Node {
                state: state.to_owned(),
                cpus: 2,
                cpus_allocated: used,
                power: power.to_owned(),
                not_responding: silent,
                ..Node::default()
            };
            assert_eq!(starred_state(&node, compact_state(state), "boot"), short, "{flags}");
            assert_eq!(starred_state(&node, state, "reboot"), long, "{flags}");
            assert_eq!(state_flags(&node), flags);
        }
    }
}
