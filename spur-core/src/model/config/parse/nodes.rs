//! Reading of `[[nodes]]`: one section may describe many nodes, and each name occurs once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::section::Section;
use crate::model::config::{NodeAddress, NodeConfig};
use crate::model::node::{NodeGres, NodeShape, check_shards};
use crate::text::gather::is_layer_name;
use crate::text::gres::GresSpec;
use crate::text::hostlist::HostList;

/// The largest number of any part of a node.
const MOST: u32 = 1_000_000;

type Addresses = BTreeMap<Arc<str>, NodeAddress>;

/// The nodes of a file.
pub(super) struct Nodes {
    /// The nodes in file order.
    pub(super) known: Vec<NodeConfig>,
    /// Addresses of the nodes, as far as the file gives them.
    pub(super) addresses: Addresses,
    /// True if every list of names could be read. If not, an unknown name may still be that of a node.
    pub(super) are_all: bool,
}

/// Reads every section `[[nodes]]`.
pub(super) fn nodes(top: &mut Section<'_>) -> Nodes {
    let mut nodes = Nodes { known: Vec::new(), addresses: Addresses::new(), are_all: true };
    let mut first_lines: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for mut section in top.sections("nodes") {
        let names = names(&mut section);
        nodes.are_all &= names.is_some();
        let names = names.unwrap_or_default();
        let config = config(&mut section);
        let reached = reached(&mut section, names.len());
        for (i, name) in names.iter().enumerate() {
            if let Some(first) = first_lines.get(name) {
                let problem = format!("node {name} is defined twice, first on line {first}; keep one");
                section.refuse("names", problem);
                continue;
            }
            first_lines.insert(name.clone(), section.line());
            if let Some(address) = reached.get(i).filter(|address| **address != NodeAddress::default()) {
                nodes.addresses.insert(name.clone(), address.clone());
            }
            nodes.known.push(NodeConfig { name: name.clone(), ..config.clone() });
        }
        section.finish();
    }
    nodes
}

/// The names of a section; `None` if they cannot be read.
fn names(section: &mut Section<'_>) -> Option<Vec<Arc<str>>> {
    section.required_name("names")?;
    let list: HostList = section.parsed("names")?;
    if let Some(bad) = list.iter().find(|name| !is_layer_name(name)) {
        let help = "use letters, digits, `_`, `-` and `.`";
        section.refuse("names", format_args!("`{bad}` cannot be the name of a node; {help}"));
    }
    Some(list.iter().map(Arc::from).collect())
}

/// The settings that all nodes of a section have in common.
fn config(section: &mut Section<'_>) -> NodeConfig {
    let config = NodeConfig {
        name: "".into(),
        shape: shape(section),
        weight: section.integer("weight", 0..=u32::MAX).unwrap_or(1),
        core_spec_count: section.integer("core_spec_count", 0..=MOST).unwrap_or(0),
        cpu_spec_list: section.parsed("cpu_spec_list").unwrap_or_default(),
        mem_spec_limit: section.mebibytes("mem_spec_limit").unwrap_or(0),
    };
    if let Some((key, problem)) = config.specialized_wrongly() {
        section.refuse(key, problem);
    }
    config
}

fn shape(section: &mut Section<'_>) -> NodeShape {
    let given = section.integer("cpus", 1..=MOST);
    let parts = ["sockets", "cores_per_socket", "threads_per_core"];
    let layout = parts.iter().any(|key| section.has(key));
    let parts = parts.map(|key| section.integer(key, 1..=MOST));
    let parts = match given.filter(|_| layout) {
        Some(cpus) => completed(cpus, parts),
        None => parts.map(|part| part.unwrap_or(u32::from(layout))),
    };
    let product = parts.iter().try_fold(1_u32, |product, part| product.checked_mul(*part));
    let product = product.unwrap_or(u32::MAX);
    let cpus = given.unwrap_or(product);
    if layout && cpus != product {
        let [sockets, cores, threads] = parts;
        let problem = format!(
            "{cpus} is not {sockets} sockets × {cores} cores × {threads} threads = {product}; \
             give cpus = {product}, or leave it out"
        );
        section.refuse("cpus", problem);
    }
    let [sockets, cores_per_socket, threads_per_core] = parts;
    NodeShape {
        sockets,
        cores_per_socket,
        threads_per_core,
        cpus,
        memory_mb: section.mebibytes("memory_mb").unwrap_or(0),
        tmp_disk_mb: section.mebibytes("tmp_disk_mb").unwrap_or(0),
        gres: gres(section),
        features: features(section),
        ..NodeShape::default()
    }
}

/// Sockets, cores and threads, completed from the CPUs: as in Slurm, the first missing one follows from them,
/// and others are 1.
fn completed(cpus: u32, parts: [Option<u32>; 3]) -> [u32; 3] {
    let mut whole = parts.map(|part| part.unwrap_or(1));
    if let Some(missing) = parts.iter().position(Option::is_none) {
        let others = whole.iter().try_fold(1_u32, |product, part| product.checked_mul(*part));
        whole[missing] = others.map_or(1, |others| (cpus / others).max(1));
    }
    whole
}

fn gres(section: &mut Section<'_>) -> Vec<NodeGres> {
    let mut found: Vec<NodeGres> = Vec::new();
    for (line, text) in section.strings("gres") {
        let spec: GresSpec = match text.parse() {
            Ok(spec) => spec,
            Err(e) => {
                section.refuse_at(line, "gres", e);
                continue;
            }
        };
        let kind = spec.kind.unwrap_or_default();
        let Ok(count) = u32::try_from(spec.count) else {
            section.refuse_at(
                line,
                "gres",
                format_args!("`{text}`: a node has at most {} of one kind", u32::MAX),
            );
            continue;
        };
        if found.iter().any(|gres| *gres.name == *spec.name && *gres.kind == *kind) {
            section.refuse_at(line, "gres", format_args!("`{text}` comes twice; add the counts up"));
            continue;
        }
        found.push(NodeGres { name: spec.name.into(), kind: kind.into(), count });
    }
    if let Err(why) = check_shards(&found) {
        section.refuse("gres", why);
    }
    found
}

fn features(section: &mut Section<'_>) -> Vec<Arc<str>> {
    let mut features: Vec<Arc<str>> = Vec::new();
    for (line, text) in section.strings("features") {
        if text.is_empty() || text.contains(|c: char| "&|()[]*,:".contains(c) || c.is_whitespace()) {
            let help = "a feature is one word without & | ( ) [ ] * , :";
            section.refuse_at(line, "features", format_args!("`{text}` is no feature; {help}"));
        } else if !features.iter().any(|feature| **feature == *text) {
            features.push(text.into());
        }
    }
    features
}

/// The address of each of `count` nodes: `addr` and `port` give one for all or one for each.
fn reached(section: &mut Section<'_>, count: usize) -> Vec<NodeAddress> {
    let hosts: Option<Vec<String>> = section.parsed::<HostList>("addr").map(|list| list.iter().collect());
    let ports = ports(section);
    for (key, len) in [("addr", hosts.as_ref().map(Vec::len)), ("port", ports.as_ref().map(Vec::len))] {
        if let Some(len) = len.filter(|&len| len != 1 && len != count) {
            let problem = format!("{len} are given for {count} nodes; give one for all, or one for each");
            section.refuse(key, problem);
        }
    }
    let pick = |len: usize, i: usize| if len == 1 { 0 } else { i };
    let address = |i| NodeAddress {
        host: hosts.as_ref().and_then(|hosts| hosts.get(pick(hosts.len(), i)).cloned()),
        port: ports.as_ref().and_then(|ports| ports.get(pick(ports.len(), i)).copied()),
    };
    (0..count).map(address).collect()
}

/// Reads `port = 6818` or `port = "7001-7016"`; `None` if the key is absent or refused.
fn ports(section: &mut Section<'_>) -> Option<Vec<u16>> {
    if !section.is_string("port") {
        return section.integer("port", 1..=u16::MAX).map(|port| vec![port]);
    }
    let text = section.string("port")?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some((first..=last).collect()),
        _ => {
            let help = "write a number or a range such as \"7001-7016\", from 1 to 65535";
            section.refuse("port", format_args!("`{text}` is no port; {help}"));
            None
        }
    }
}
