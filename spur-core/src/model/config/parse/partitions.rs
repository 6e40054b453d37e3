//! Reading of `[[partitions]]`, checked against nodes and topologies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::policy::set;
use super::qos::{self, PREEMPT_MODES};
use super::section::Section;
use crate::model::config::{
    NodeConfig, Oversubscribe, PartitionConfig, PartitionState, Policy, PreemptMode, QosConfig,
};
use crate::model::topology::TopologyConfig;
use crate::text::gather::is_layer_name;
use crate::text::hostlist::HostList;
use crate::text::nearest::nearest;

/// The word for all nodes.
const ALL: &str = "ALL";
/// Number of unknown nodes of a partition that a message names.
const NAMED: usize = 3;

/// Reads every partition, in file order. `policy` already has nodes, topologies and QOS; `are_all` is true if
/// its nodes are all nodes of the file.
pub(super) fn partitions(top: &mut Section<'_>, policy: &Policy, are_all: bool) -> Vec<PartitionConfig> {
    let Policy { nodes, topologies, qos, .. } = policy;
    let mut partitions: Vec<PartitionConfig> = Vec::new();
    let mut first_lines: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let mut default: Option<Arc<str>> = None;
    let mut alternates: Vec<(u32, Arc<str>)> = Vec::new();
    for mut section in top.sections("partitions") {
        let mut partition = PartitionConfig { name: name(&mut section), ..Default::default() };
        settings(&mut section, &mut partition);
        qualities(&mut section, &mut partition, qos);
        (partition.nodes, partition.all_nodes) = members(&mut section, nodes, are_all);
        partition.topology = topology(&mut section, topologies);
        for (key, problem) in partition.contradictions() {
            section.refuse(key, problem);
        }
        let alternate = partition.alternate.clone();
        alternates.extend(alternate.map(|alternate| (section.line_of("alternate"), alternate)));
        if let Some(line) = first_lines.insert(partition.name.clone(), section.line()) {
            let name = &partition.name;
            section.refuse("name", format_args!("partition {name} is defined twice, first on line {line}"));
        }
        match &default {
            Some(other) if partition.default => {
                let problem = format!("partition {other} is the default already; only one can be");
                section.refuse("default", problem);
            }
            None if partition.default => default = Some(partition.name.clone()),
            _ => {}
        }
        section.finish();
        partitions.push(partition);
    }
    let unknown = |alternate: &&(u32, Arc<str>)| !first_lines.contains_key(&alternate.1);
    for (line, name) in alternates.iter().filter(unknown) {
        top.refuse_at(*line, "alternate", format_args!("there is no partition {name}"));
    }
    partitions
}

fn name(section: &mut Section<'_>) -> Arc<str> {
    let name = section.required_name("name").unwrap_or_default();
    if !name.is_empty() && !is_layer_name(name) {
        let help = "use letters, digits, `_`, `-` and `.`";
        section.refuse("name", format_args!("`{name}` cannot be the name of a partition; {help}"));
    }
    name.into()
}

fn settings(section: &mut Section<'_>, partition: &mut PartitionConfig) {
    set!(
        partition.default => section.boolean("default"),
        partition.max_time => section.parsed("max_time"),
        partition.min_nodes => section.integer("min_nodes", 0..=u32::MAX),
        partition.priority_tier => section.integer("priority_tier", 0..=65_533),
        partition.priority_job_factor => section.integer("priority_job_factor", 0..=65_533),
        partition.state => section.choice("state", &[
            ("UP", PartitionState::Up),
            ("DOWN", PartitionState::Down),
            ("DRAIN", PartitionState::Drain),
            ("INACTIVE", PartitionState::Inactive),
        ]),
        partition.oversubscribe => section.choice("oversubscribe", &[
            ("NO", Oversubscribe::No),
            ("EXCLUSIVE", Oversubscribe::Exclusive),
        ]),
        partition.placement => section.parsed("placement"),
        partition.disable_root_jobs => section.boolean("disable_root_jobs"),
        partition.hidden => section.boolean("hidden"),
        partition.req_resv => section.boolean("req_resv"),
        partition.root_only => section.boolean("root_only"),
    );
    partition.score = section.parsed("score");
    let modes: Vec<_> = PREEMPT_MODES.iter().copied().chain([("off", PreemptMode::Off)]).collect();
    partition.default_time = section.parsed("default_time");
    partition.max_nodes = section.integer("max_nodes", 1..=u32::MAX);
    partition.def_mem_per_cpu = section.mebibytes("def_mem_per_cpu");
    partition.max_mem_per_cpu = section.mebibytes("max_mem_per_cpu");
    partition.preempt_mode = section.choice("preempt_mode", &modes);
    partition.grace_time = section.duration("grace_time", 0..=365 * 86_400);
    partition.allow_groups = section.names("allow_groups");
    partition.allow_accounts = section.names("allow_accounts");
    partition.deny_accounts = section.names("deny_accounts");
    partition.alloc_nodes = section.names("alloc_nodes");
    partition.alternate = section.name("alternate").map(Into::into);
    partition.def_mem_per_node = section.mebibytes("def_mem_per_node");
    partition.max_mem_per_node = section.mebibytes("max_mem_per_node");
    partition.def_cpu_per_gpu = section.integer("def_cpu_per_gpu", 1..=65_535);
    partition.def_mem_per_gpu = section.mebibytes("def_mem_per_gpu");
    partition.max_cpus_per_node = section.integer("max_cpus_per_node", 1..=u32::MAX);
    partition.max_cpus_per_socket = section.integer("max_cpus_per_socket", 1..=u32::MAX);
    partition.tres_billing_weights = section.parsed("tres_billing_weights").unwrap_or_default();
}

/// Reads the QOS that jobs may use in the partition.
fn qualities(section: &mut Section<'_>, partition: &mut PartitionConfig, known: &[QosConfig]) {
    partition.allow_qos = qos::list(section, "allow_qos", known);
    partition.deny_qos = qos::list(section, "deny_qos", known);
    partition.default_qos = qos::one(section, "default_qos", known);
    partition.qos = qos::one(section, "qos", known);
}

/// The names of the partition's nodes in the order of the node table, and true if it has all nodes.
fn members(section: &mut Section<'_>, nodes: &[NodeConfig], are_all: bool) -> (Vec<Arc<str>>, bool) {
    if section.is_string("nodes") && section.string("nodes") == Some("") {
        // An empty partition is allowed: its jobs wait.
        return (Vec::new(), false);
    }
    let Some(text) = section.required_name("nodes") else { return (Vec::new(), false) };
    let known = || nodes.iter().map(|node| &node.name);
    if text.eq_ignore_ascii_case(ALL) {
        return (known().cloned().collect(), true);
    }
    let wanted: BTreeSet<String> = match text.parse::<HostList>() {
        Ok(list) => list.iter().collect(),
        Err(e) => {
            section.refuse("nodes", e);
            return (Vec::new(), false);
        }
    };
    let table: BTreeSet<&str> = known().map(|name| &**name).collect();
    let unknown: Vec<&String> = wanted.iter().filter(|name| !table.contains(name.as_str())).collect();
    if let Some(first) = unknown.first().filter(|_| are_all) {
        let meant = nearest(first, table.iter().copied()).map(|name| format!("; did you mean {name}?"));
        let list: HostList = unknown.iter().take(NAMED).collect();
        let more = unknown.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let meant = meant.unwrap_or_else(|| "; define them, or take them out".to_owned());
        section.refuse("nodes", format_args!("no [[nodes]] defines {list}{more}{meant}"));
    }
    (known().filter(|name| wanted.contains(&***name)).cloned().collect(), false)
}

fn topology(section: &mut Section<'_>, topologies: &[TopologyConfig]) -> Option<Arc<str>> {
    let name = section.name("topology")?;
    if !topologies.iter().any(|topology| topology.name == name) {
        let names: Vec<&str> = topologies.iter().map(|topology| topology.name.as_str()).collect();
        let known = match (nearest(name, names.iter().copied()), names.is_empty()) {
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            (None, true) => "define it in [topology] or [[topologies]]".to_owned(),
            (None, false) => format!("known are {}", names.join(", ")),
        };
        section.refuse("topology", format_args!("there is no topology `{name}`; {known}"));
    }
    Some(name.into())
}
