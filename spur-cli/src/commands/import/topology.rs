//! Converts `topology.conf` and `topology.yaml` of Slurm and topograph to `[topology]` and `[[topologies]]`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use spur_core::text::gather::LinkSpeed;
use spur_core::text::hostlist::HostList;

use super::keys::Kind;
use super::lines::{self, Line, Pair, Place};
use super::nodes::Nodes;
use super::page::Section;
use super::source::{Entry, Notes};
use super::tree::{self, Switch};

/// Name of the topology that `[topology]` describes.
const DEFAULT: &str = "default";
/// Switch below which topograph puts nodes in an unknown place.
const NO_PLACE: &str = "no-topology";
/// Names with another meaning in `--topology`.
const RESERVED: [&str; 3] = ["tree", "block", "none"];

/// One topology as a file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Topology {
    pub(in crate::commands) name: String,
    /// Names of the layers above the nodes; empty for the default names.
    pub(in crate::commands) layers: Vec<String>,
    pub(in crate::commands) switches: Vec<Switch>,
    pub(in crate::commands) blocks: Vec<(String, Vec<String>)>,
    sizes: Vec<String>,
    pub(in crate::commands) is_block: bool,
    is_flat: bool,
    pub(in crate::commands) is_default: bool,
    pub(in crate::commands) remarks: Vec<String>,
}

/// All topologies, and the one that partitions use by default.
#[derive(Debug, Default)]
pub(in crate::commands) struct Topologies {
    all: Vec<Topology>,
    /// Topology of partitions that name none; `None` for `default`.
    pub(super) default: Option<String>,
    /// Remarks on places in `Topology=` of node lines that cannot be taken over.
    remarks: Vec<String>,
}

impl Topologies {
    /// Collects topologies. The default is the one marked as such, or the only one.
    pub(in crate::commands) fn new(mut all: Vec<Topology>) -> Topologies {
        let mut seen = BTreeSet::new();
        for topology in &mut all {
            let plain = domain(&topology.name).replace('/', "-");
            let mut name =
                if RESERVED.contains(&plain.as_str()) { format!("{plain}-topology") } else { plain };
            if name.is_empty() {
                name = DEFAULT.to_owned();
            }
            while !seen.insert(name.clone()) {
                name.push('-');
            }
            if name != topology.name {
                topology.remarks.push(format!("topology {}: called {name} here", topology.name));
                topology.name = name;
            }
        }
        let first = all.iter().find(|topology| topology.is_default);
        let default = first.map(|topology| topology.name.clone()).filter(|name| name != DEFAULT);
        Topologies { all, default, remarks: Vec::new() }
    }

    /// Returns the name in Spur of a topology with this name; `None` for an unknown topology.
    pub(super) fn named(&self, name: &str) -> Option<String> {
        let plain = domain(name).replace('/', "-");
        let here =
            |topology: &&Topology| topology.name == plain || topology.name == format!("{plain}-topology");
        self.all.iter().find(here).map(|topology| topology.name.clone())
    }

    /// Returns all nodes that a topology names, in the order of the topologies.
    pub(in crate::commands) fn nodes(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let switches =
            self.all.iter().flat_map(|topology| topology.switches.iter().map(|switch| &switch.nodes));
        let blocks = self.all.iter().flat_map(|topology| topology.blocks.iter().map(|(_, nodes)| nodes));
        switches.chain(blocks).flatten().filter(|name| seen.insert((*name).clone())).cloned().collect()
    }

    /// Adds nodes to the places in `Topology=TOPOLOGY:UNIT` of their lines: to a block, or to the last
    /// switch of a path. Missing switches are created, as in Slurm.
    pub(super) fn place(&mut self, places: &[(Pair, Vec<String>)]) {
        for (pair, nodes) in places {
            for item in pair.value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                let (name, unit) = item.split_once(':').unwrap_or((DEFAULT, item));
                let here = self.named(name);
                let found = self.all.iter_mut().find(|topology| Some(&topology.name) == here.as_ref());
                let placed = match found {
                    Some(topology) => topology.place(unit, nodes),
                    None => Err(format!("no file defines topology {name}")),
                };
                if let Err(why) = placed {
                    self.remarks.push(format!("{pair}: {why}"));
                }
            }
        }
    }

    /// Returns the sections of all topologies, after the remarks as comments.
    pub(in crate::commands) fn sections(self, nodes: &Nodes, notes: &mut Notes) -> Vec<Section> {
        let mut said = Section::default();
        self.remarks.into_iter().filter_map(|text| notes.sentence(text)).for_each(|text| said.comment(text));
        let said = std::iter::once(said).filter(|said| !said.is_empty());
        said.chain(self.all.into_iter().flat_map(|topology| topology.sections(nodes, notes))).collect()
    }
}

impl Topology {
    /// Returns an empty topology with this name.
    pub(in crate::commands) fn named(name: &str) -> Topology {
        Topology { name: name.to_owned(), ..Topology::default() }
    }

    /// True for a topology of switches.
    pub(in crate::commands) fn is_tree(&self) -> bool {
        !self.is_block && !self.is_flat && !self.switches.is_empty()
    }

    /// Replaces the switches by the nearest tree.
    pub(in crate::commands) fn settle(&mut self) {
        if self.is_tree() {
            let (switches, left_out) = tree::nearest(std::mem::take(&mut self.switches));
            self.switches = switches;
            self.remarks.extend(left_out);
        }
    }

    /// Renames switches and blocks according to topograph's comments `# NUMBERED=NAME`.
    pub(in crate::commands) fn rename(&mut self, text: &str) {
        let comments = text.lines().filter_map(|line| line.trim().strip_prefix('#')?.trim().split_once('='));
        let names: BTreeMap<&str, &str> = comments.filter(|(_, name)| !name.contains([' ', '='])).collect();
        let rename = |name: &mut String| {
            if let Some(real) = names.get(&**name) {
                *name = (*real).to_owned();
            }
        };
        for switch in &mut self.switches {
            rename(&mut switch.name);
            switch.children.iter_mut().for_each(rename);
        }
        self.blocks.iter_mut().for_each(|(name, _)| rename(name));
    }

    /// Removes refused nodes and nodes in an unknown place. Returns a sentence for each reason.
    pub(in crate::commands) fn keep(
        &mut self,
        refusal: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<String> {
        let mut refused: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        let is_unknown = |name: &str| name == NO_PLACE;
        let blocks = self.blocks.iter_mut().map(|(name, nodes)| (&*name, nodes));
        let leaves = self.switches.iter_mut().map(|switch| (&switch.name, &mut switch.nodes));
        for (name, nodes) in leaves.chain(blocks) {
            nodes.retain(|node| {
                let why =
                    refusal(node).or_else(|| is_unknown(name).then_some("has no place that topograph knows"));
                why.into_iter().for_each(|why| refused.entry(why).or_default().push(node.clone()));
                why.is_none()
            });
        }
        self.switches.retain(|switch| !is_unknown(&switch.name));
        self.switches.iter_mut().for_each(|switch| switch.children.retain(|child| !is_unknown(child)));
        self.blocks.retain(|(name, _)| !is_unknown(name));
        let sentence =
            |(why, nodes): (&str, Vec<String>)| format!("{} {why}", HostList::from_names(nodes).sorted());
        refused.into_iter().map(sentence).collect()
    }

    /// Adds nodes to a block, or to the last switch of a path `root:switch:leaf`.
    fn place(&mut self, unit: &str, nodes: &[String]) -> Result<(), String> {
        if self.is_block {
            let block = self.blocks.iter_mut().find(|(name, _)| name == unit);
            let (_, members) = block.ok_or_else(|| format!("there is no block {unit}"))?;
            members.extend(nodes.iter().cloned());
            return Ok(());
        }
        let path: Vec<&str> = unit.split(':').collect();
        let mut at = None;
        for name in &path {
            let known = self.switches.iter().position(|switch| switch.name == *name);
            let parent: Option<usize> = at;
            at = Some(match (known, parent) {
                (Some(known), _) => known,
                (None, Some(parent)) => {
                    self.switches[parent].children.push((*name).to_owned());
                    self.switches.push(Switch { name: (*name).to_owned(), ..Switch::default() });
                    self.switches.len() - 1
                }
                (None, None) => return Err(format!("there is no switch {name}")),
            });
        }
        if let Some(at) = at {
            let own = &mut self.switches[at].nodes;
            let missing: Vec<String> = nodes.iter().filter(|node| !own.contains(node)).cloned().collect();
            own.extend(missing);
        }
        Ok(())
    }

    fn sections(self, nodes: &Nodes, notes: &mut Notes) -> Vec<Section> {
        let is_default = self.name == DEFAULT;
        let (head, path) =
            if is_default { ("[topology]", "topology") } else { ("[[topologies]]", "topologies") };
        let mut section = Section::new(head);
        let mut say = |section: &mut Section, text: String| {
            notes.sentence(text).into_iter().for_each(|text| section.comment(text));
        };
        for remark in &self.remarks {
            say(&mut section, remark.clone());
        }
        if !is_default {
            section.text("name", &self.name);
        }
        let mut parts = Vec::new();
        if self.is_flat || (self.switches.is_empty() && self.blocks.is_empty()) {
            section.text("plugin", "none");
        } else if self.is_block {
            section.text("plugin", "block");
            parts = blocks(self.blocks, &mut section, nodes, path, &mut say);
            let sizes = sizes(&self.sizes, &mut section, &mut say);
            if !sizes.is_empty() {
                section.plain("block_sizes", format_args!("{sizes:?}"));
            }
        } else {
            section.text("plugin", "tree");
            section.list("layers", &self.layers);
            let known = known_nodes(self.switches, nodes, &mut section, &mut say);
            let (switches, left_out) = tree::nearest(known);
            for text in left_out {
                say(&mut section, text);
            }
            parts = tree_sections(&switches, path, &mut section, &mut say);
        }
        parts.insert(0, section);
        parts
    }
}

/// Returns the switches without unknown nodes.
fn known_nodes(
    mut switches: Vec<Switch>,
    nodes: &Nodes,
    section: &mut Section,
    say: &mut impl FnMut(&mut Section, String),
) -> Vec<Switch> {
    for switch in &mut switches {
        drop_unknown(&switch.name, &mut switch.nodes, nodes, section, say);
    }
    switches
}

fn drop_unknown(
    place: &str,
    members: &mut Vec<String>,
    nodes: &Nodes,
    section: &mut Section,
    say: &mut impl FnMut(&mut Section, String),
) {
    let unknown: Vec<&String> = members.iter().filter(|name| !nodes.has(name)).collect();
    if !unknown.is_empty() {
        let list = HostList::from_names(&unknown);
        say(section, format!("{place} names {list}, which no NodeName line defines"));
        members.retain(|name| nodes.has(name));
    }
}

fn tree_sections(
    switches: &[Switch],
    path: &str,
    section: &mut Section,
    say: &mut impl FnMut(&mut Section, String),
) -> Vec<Section> {
    let names = Names::of(switches.iter().map(|switch| switch.name.as_str()));
    names.remarks.iter().for_each(|text| say(section, text.clone()));
    let mut parts = Vec::new();
    for switch in switches {
        let mut part = Section::new(format!("[[{path}.switches]]"));
        if switch.stands_for.len() > 1 {
            let kind = if switch.children.is_empty() { "leaves" } else { "switches" };
            part.comment(format_args!("The {kind} {}", HostList::from_names(&switch.stands_for)));
        }
        part.text("name", names.here(&switch.name));
        if switch.children.is_empty() {
            part.text("nodes", HostList::from_names(&switch.nodes));
        } else {
            part.text(
                "switches",
                HostList::from_names(switch.children.iter().map(|child| names.here(child))),
            );
        }
        match &switch.speed {
            Some(speed)
                if speed.parse::<LinkSpeed>().is_ok() && speed.ends_with(|c: char| c.is_alphabetic()) =>
            {
                part.text("link_speed", speed);
            }
            Some(speed) => {
                say(section, format!("LinkSpeed={speed}: Slurm does not look at it; write it like 400G"))
            }
            None => {}
        }
        parts.push(part);
    }
    parts
}

fn blocks(
    blocks: Vec<(String, Vec<String>)>,
    section: &mut Section,
    nodes: &Nodes,
    path: &str,
    say: &mut impl FnMut(&mut Section, String),
) -> Vec<Section> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    let mut placed: BTreeSet<String> = BTreeSet::new();
    for (name, mut members) in blocks {
        drop_unknown(&name, &mut members, nodes, section, say);
        let twice: Vec<String> = members.iter().filter(|node| placed.contains(*node)).cloned().collect();
        if !twice.is_empty() {
            let list = HostList::from_names(&twice);
            say(section, format!("left out of block {name}: {list}, which other blocks name before"));
        }
        members.retain(|node| placed.insert(node.clone()));
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, others)) => others.extend(members),
            None => all.push((name, members)),
        }
    }
    let names = Names::of(all.iter().map(|(name, _)| name.as_str()));
    names.remarks.iter().for_each(|text| say(section, text.clone()));
    let part = |(name, members): &(String, Vec<String>)| {
        let mut part = Section::new(format!("[[{path}.blocks]]"));
        part.text("name", names.here(name));
        part.text("nodes", HostList::from_names(members));
        part
    };
    all.iter().map(part).collect()
}

/// Returns the sizes that are the first one times a power of two.
fn sizes(said: &[String], section: &mut Section, say: &mut impl FnMut(&mut Section, String)) -> Vec<u32> {
    let mut sizes: Vec<u32> = Vec::new();
    for text in said {
        match text.parse::<u32>() {
            Ok(size) if size > 0 => sizes.push(size),
            _ => say(section, format!("BlockSizes: {text} is not a size")),
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    let base = sizes.first().copied().unwrap_or(1);
    sizes.retain(|size| {
        let fits = size % base == 0 && (size / base).is_power_of_two();
        if !fits {
            say(section, format!("BlockSizes: {size} is not {base} times a power of two"));
        }
        fits
    });
    sizes
}

/// Names of domains in Spur.
struct Names {
    pairs: Vec<(String, String)>,
    remarks: Vec<String>,
}

impl Names {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Names {
        let mut all = Names { pairs: Vec::new(), remarks: Vec::new() };
        let mut seen = BTreeSet::new();
        for name in names {
            let mut plain = domain(name);
            while !seen.insert(plain.clone()) {
                plain.push('-');
            }
            if plain != name {
                all.remarks.push(format!("{name} is called {plain} here: letters, digits, `_`, `-` and `.`"));
                all.pairs.push((name.to_owned(), plain));
            }
        }
        all
    }

    fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.pairs.iter().find(|(said, _)| said == name).map_or(name, |(_, plain)| plain)
    }
}

/// Returns a valid name of a domain.
fn domain(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' }).collect();
    // `node` is the name of the layer of nodes.
    if plain == "node" { "node-".to_owned() } else { plain }
}

/// Parses a text written for Slurm, in either format.
///
/// # Errors
/// An error of the YAML text.
pub(in crate::commands) fn of_text(text: &str, file: &str) -> Result<Vec<Topology>, String> {
    let is_key = |line: &str| ["switchname=", "blockname="].iter().any(|key| line.starts_with(key));
    if text.lines().any(|line| is_key(&line.trim_start().to_ascii_lowercase())) {
        return Ok(vec![from_lines(&lines::read(text, &file.into()), &mut Notes::default())]);
    }
    from_yaml(text, file)
}

/// Reads `topology.conf`.
pub(super) fn from_lines(lines: &[Line], notes: &mut Notes) -> Topology {
    let mut topology = Topology { name: DEFAULT.to_owned(), is_default: true, ..Topology::default() };
    for line in lines {
        let mut entry = Entry::of_line(line);
        let sizes = entry.value("BlockSizes");
        topology
            .sizes
            .extend(sizes.iter().flat_map(|list| list.split(',')).map(|size| size.trim().to_owned()));
        let mut list = |key: &str| match entry.pair(key) {
            Some(pair) => names(&pair, &mut topology.remarks),
            None => Vec::new(),
        };
        let (nodes, children) = (list("Nodes"), list("Switches"));
        if let Some(name) = entry.value("BlockName") {
            topology.blocks.push((name, nodes));
        } else if let Some(name) = entry.value("SwitchName") {
            let speed = entry.value("LinkSpeed");
            topology.switches.push(Switch { name, nodes, children, speed, ..Switch::default() });
        }
        topology.remarks.extend(notes.left(Kind::Topology, entry.rest()));
        for word in &line.rest {
            topology.remarks.push(format!("{}: {word}: not understood", line.place));
        }
    }
    topology.is_block = !topology.blocks.is_empty();
    if topology.is_block && !topology.switches.is_empty() {
        topology.remarks.push("topology.conf has blocks and switches; the blocks are taken".to_owned());
    }
    topology
}

fn names(pair: &Pair, remarks: &mut Vec<String>) -> Vec<String> {
    if ["", "(null)", "none"].contains(&pair.value.to_ascii_lowercase().as_str()) {
        return Vec::new();
    }
    match pair.value.parse::<HostList>() {
        Ok(list) => list.iter().collect(),
        Err(error) => {
            remarks.push(format!("{pair}: not a hostlist: {error}"));
            Vec::new()
        }
    }
}

/// Reads `topology.yaml`.
///
/// # Errors
/// An error of the YAML text.
pub(super) fn from_yaml(text: &str, file: &str) -> Result<Vec<Topology>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| format!("{file}: {error}"))?;
    let list = match value {
        Value::Array(list) => list,
        Value::Object(object) if object.contains_key("topology") => vec![Value::Object(object)],
        _ => return Err(format!("{file}: a list of topologies is expected")),
    };
    let mut all: Vec<Topology> = list.iter().map(|value| yaml_topology(value, file)).collect();
    // The default is the first topology marked as such, or the only one.
    let first = all.iter().position(|topology| topology.is_default);
    let first = first.or((all.len() == 1).then_some(0));
    for (index, topology) in all.iter_mut().enumerate() {
        topology.is_default = Some(index) == first;
    }
    Ok(all)
}

fn yaml_topology(value: &Value, file: &str) -> Topology {
    let mut topology = Topology { name: DEFAULT.to_owned(), ..Topology::default() };
    for (key, value) in object(value) {
        match key.as_str() {
            "topology" => topology.name = text(value),
            "clusterdefault" => topology.is_default = value.as_bool() == Some(true) || text(value) == "yes",
            "flat" => topology.is_flat = value.as_bool() != Some(false),
            "torus3d" | "ring" => {
                topology.is_flat = true;
                let shape = if key == "ring" { "ring" } else { "torus" };
                let text = format!(
                    "{file}: {key}: Spur places jobs on trees and blocks, not on a {shape}; the topology is flat here"
                );
                topology.remarks.push(text);
            }
            "tree" => {
                for (key, value) in object(value) {
                    match key.as_str() {
                        "switches" => {
                            for item in value.as_array().into_iter().flatten() {
                                let switch = yaml_switch(item, file, &mut topology.remarks);
                                topology.switches.push(switch);
                            }
                        }
                        _ => topology.remarks.push(format!("{file}: tree: {key}: no counterpart")),
                    }
                }
            }
            "block" => {
                topology.is_block = true;
                yaml_blocks(value, file, &mut topology);
            }
            _ => topology.remarks.push(format!("{file}: {key}: no counterpart")),
        }
    }
    topology
}

fn yaml_switch(item: &Value, file: &str, remarks: &mut Vec<String>) -> Switch {
    let mut switch = Switch::default();
    for (key, value) in object(item) {
        match key.as_str() {
            "switch" => switch.name = text(value),
            "children" | "switches" => switch.children = yaml_names(&key, value, file, remarks),
            "nodes" => switch.nodes = yaml_names(&key, value, file, remarks),
            "linkspeed" => switch.speed = Some(text(value)),
            _ => remarks.push(format!("{file}: switch: {key}: no counterpart")),
        }
    }
    switch
}

fn yaml_blocks(value: &Value, file: &str, topology: &mut Topology) {
    for (key, value) in object(value) {
        match key.as_str() {
            "blocksizes" => {
                let sizes = match value {
                    Value::Array(sizes) => sizes.iter().map(text).collect(),
                    other => text(other).split(',').map(|size| size.trim().to_owned()).collect::<Vec<_>>(),
                };
                topology.sizes.extend(sizes);
            }
            "blocks" => {
                for item in value.as_array().into_iter().flatten() {
                    let (mut name, mut nodes) = (String::new(), Vec::new());
                    for (key, value) in object(item) {
                        match key.as_str() {
                            "block" => name = text(value),
                            "nodes" => nodes = yaml_names(&key, value, file, &mut topology.remarks),
                            _ => topology.remarks.push(format!("{file}: block: {key}: no counterpart")),
                        }
                    }
                    topology.blocks.push((name, nodes));
                }
            }
            _ => topology.remarks.push(format!("{file}: block: {key}: no counterpart")),
        }
    }
}

/// Returns the pairs of a mapping, with keys in lower case and without `_`. Slurm's and topograph's keys are
/// equal then.
fn object(value: &Value) -> Vec<(String, &Value)> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(key, value)| (key.to_ascii_lowercase().replace('_', ""), value)).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

/// Returns the names in a hostlist, or in a list of hostlists.
fn yaml_names(key: &str, value: &Value, file: &str, remarks: &mut Vec<String>) -> Vec<String> {
    let list = match value {
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
        other => text(other),
    };
    let place = Place::new(&file.into(), 0);
    names(&Pair { place, key: key.to_owned(), value: list }, remarks)
}
