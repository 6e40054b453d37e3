//! Converts lines of nodes, and their devices in `gres.conf`, to `[[nodes]]`.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::model::idset::IdSet;
use spur_core::model::node::SHARD;
use spur_core::text::gather::is_layer_name;
use spur_core::text::gres::GresSpec;
use spur_core::text::hostlist::HostList;
use spur_core::text::memory::MemoryMb;

use super::keys::{self, Kind};
use super::lines::{Line, Pair};
use super::page::Section;
use super::source::{Entry, Notes};
use super::specialized::specialized;

/// Maximum number of any part of a node.
const MOST: u32 = 1_000_000;

/// The nodes read so far.
#[derive(Debug, Default)]
pub(in crate::commands) struct Nodes {
    /// Sections of the nodes.
    pub(super) sections: Vec<Section>,
    /// Names of the nodes in the order of the table.
    pub(super) names: Vec<String>,
    known: BTreeSet<String>,
    features: BTreeMap<String, Vec<String>>,
    /// Nodes of each `NodeSet`, by name.
    pub(super) sets: BTreeMap<String, Vec<String>>,
    /// Each `Topology=` of a node line, with the nodes of that line.
    pub(super) places: Vec<(Pair, Vec<String>)>,
}

impl Nodes {
    /// Returns nodes of which only the names are known.
    pub(in crate::commands) fn of_names(names: Vec<String>) -> Nodes {
        let mut section = Section::new("[[nodes]]");
        section
            .comment("Nodes as the topology names them: what they have they say when their daemons start.");
        section.text("names", HostList::from_names(&names));
        let known = names.iter().cloned().collect();
        Nodes { sections: vec![section], names, known, ..Nodes::default() }
    }

    /// True if a node has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    /// Reads a `NodeSet` line.
    pub(super) fn set(&mut self, mut entry: Entry, notes: &mut Notes) -> Section {
        let mut section = Section::default();
        let name = entry.value("NodeSet").unwrap_or_default();
        let mut members: Vec<String> = Vec::new();
        if let Some(feature) = entry.value("Feature") {
            let has = |name: &&String| self.features.get(*name).is_some_and(|all| all.contains(&feature));
            members.extend(self.names.iter().filter(has).cloned());
        }
        if let Some(pair) = entry.pair("Nodes") {
            members.extend(self.expand(&pair, &mut section, notes));
        }
        self.sets.insert(name, members);
        section
    }

    /// Returns the names in a list of nodes and sets, without unknown ones.
    pub(super) fn expand(&self, pair: &Pair, section: &mut Section, notes: &mut Notes) -> Vec<String> {
        let Some(list) = hostlist(pair, section, notes) else { return Vec::new() };
        let mut names: Vec<String> = Vec::new();
        let mut unknown = HostList::new();
        for name in list.iter() {
            if self.known.contains(&name) {
                names.push(name);
            } else if let Some(members) = self.sets.get(&name) {
                names.extend(members.iter().cloned());
            } else if name.eq_ignore_ascii_case("ALL") {
                names.extend(self.names.iter().cloned());
            } else {
                unknown.push(&name);
            }
        }
        if !unknown.is_empty() {
            notes.tell(section, pair, &format!("no NodeName line defines {unknown}"));
        }
        names
    }
}

/// Parses a list of names; `None` if it is empty or invalid.
pub(super) fn hostlist(pair: &Pair, section: &mut Section, notes: &mut Notes) -> Option<HostList> {
    if pair.value.is_empty() || pair.value == "(null)" {
        return None;
    }
    match pair.value.parse::<HostList>() {
        Ok(list) => Some(list),
        Err(error) => {
            notes.tell(section, pair, &format!("not a hostlist: {error}"));
            None
        }
    }
}

/// Devices that `gres.conf` assigns to nodes.
#[derive(Debug, Default)]
pub(super) struct Devices {
    lines: Vec<DeviceLine>,
}

/// A line of `gres.conf`.
#[derive(Debug)]
struct DeviceLine {
    /// Nodes of the line; `None` for all nodes.
    nodes: Option<Pair>,
    name: String,
    /// Type of the devices; empty for none.
    kind: String,
    count: u64,
    /// `File`: one file for each device.
    files: Option<Pair>,
    /// `MultipleFiles`: all files of one device.
    together: Option<Pair>,
    cores: Option<Pair>,
    links: Option<Pair>,
}

/// Names of shares of GPUs, which have no files.
const SHARING: [&str; 2] = [SHARD, "mps"];

impl Devices {
    /// Reads the lines of `gres.conf`. The section has comments about keys without a counterpart.
    pub(super) fn read(lines: &[Line], notes: &mut Notes) -> (Devices, Section) {
        let mut devices = Devices::default();
        let mut section = Section::default();
        for line in lines {
            let mut entry = Entry::of_line(line);
            let nodes = entry.pair("NodeName");
            let name = entry.value("Name");
            let kind = entry.value("Type").unwrap_or_default();
            let count = entry.pair("Count").and_then(|pair| {
                let spec: Option<GresSpec> = format!("x:{}", pair.value).parse().ok();
                spec.map(|spec| spec.count)
            });
            let files = entry.pair("File");
            let listed = |pair: &Pair| pair.value.parse::<HostList>().ok().map(|list| list.len() as u64);
            let together = entry.pair("MultipleFiles");
            let found = files.as_ref().and_then(listed).or(together.as_ref().map(|_| 1));
            // `CPUs` is the former name of `Cores`.
            let cores = entry.pair("Cores").or_else(|| entry.pair("CPUs"));
            let links = entry.pair("Links");
            if files.is_none() && together.is_none() {
                for pair in cores.iter().chain(&links) {
                    notes.tell(&mut section, pair, keys::FOUND_NEAR);
                }
            }
            if let Some(name) = name {
                let count = count.or(found).unwrap_or(1);
                devices.lines.push(DeviceLine { nodes, name, kind, count, files, together, cores, links });
            }
            notes.left(Kind::Gres, entry.rest()).into_iter().for_each(|text| section.comment(text));
        }
        (devices, section)
    }

    /// Returns the devices that have files as `[[gres]]`.
    pub(super) fn sections(self, nodes: &Nodes, notes: &mut Notes) -> Vec<Section> {
        let (parts, of_files): (Vec<_>, Vec<_>) =
            self.lines.into_iter().partition(|line| SHARING.contains(&line.name.as_str()));
        // `Gres=` gives the number of shares on a node; Spur does not assign them to individual GPUs.
        let unequal = parts.iter().filter(|line| line.name == SHARD).filter_map(|line| line.files.as_ref());
        let mut said = Section::default();
        unequal.for_each(|pair| notes.tell(&mut said, pair, "the GPUs of a node have equally many shards"));
        let mut sections: Vec<Section> =
            of_files.into_iter().filter_map(|line| line.section(nodes, notes)).collect();
        sections.push(said);
        sections
    }

    /// Returns the number of devices of each type on a node.
    fn kinds(&self, node: &str, device: &str) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.name.eq_ignore_ascii_case(device)) {
            let named = line.nodes.as_ref().map(|pair| pair.value.parse::<HostList>().unwrap_or_default());
            if named.is_none_or(|nodes| nodes.contains(node)) {
                *kinds.entry(line.kind.clone()).or_default() += line.count;
            }
        }
        kinds
    }

    /// Splits `spec` into the types of the node's devices, if their numbers add up to its count.
    fn typed(&self, node: &str, spec: GresSpec) -> Vec<GresSpec> {
        let kinds = self.kinds(node, &spec.name);
        let fits = spec.kind.is_none()
            && !kinds.is_empty()
            && !kinds.contains_key("")
            && kinds.values().sum::<u64>() == spec.count;
        if !fits {
            return vec![spec];
        }
        kinds.into_iter().map(|(kind, count)| GresSpec::new(spec.name.clone(), Some(&kind), count)).collect()
    }
}

impl DeviceLine {
    /// Returns the line's devices as `[[gres]]`; `None` without their files.
    fn section(self, nodes: &Nodes, notes: &mut Notes) -> Option<Section> {
        let (key, files) = match self.together {
            Some(together) => ("multiple_files", together),
            None => ("file", self.files?),
        };
        let mut section = Section::new("[[gres]]");
        let count = match files.value.parse::<HostList>() {
            Ok(list) if !list.is_empty() && list.iter().all(|file| file.starts_with('/')) => {
                if key == "file" { list.len() } else { 1 }
            }
            _ => {
                notes.tell(&mut section, &files, "no absolute paths of files");
                return Some(section.comments_only());
            }
        };
        if let Some(pair) = &self.nodes {
            let names = nodes.expand(pair, &mut section, notes);
            if names.is_empty() {
                return Some(section.comments_only());
            }
            section.text("nodes", HostList::from_names(&names));
        }
        let kind = Some(self.kind.as_str()).filter(|kind| !kind.is_empty());
        if GresSpec::new(self.name.clone(), kind, 1).to_string().parse::<GresSpec>().is_err() {
            notes.tell(&mut section, &files, &format!("{}:{} is no name of a device", self.name, self.kind));
            return Some(section.comments_only());
        }
        section.text("name", &self.name);
        if let Some(kind) = kind {
            section.text("type", kind);
        }
        section.text(key, &files.value);
        if let Some(pair) = &self.cores {
            match pair.value.parse::<IdSet>() {
                Ok(cores) => section.text("cores", cores),
                Err(_) => notes.tell(&mut section, pair, "no list of cores"),
            }
        }
        if let Some(pair) = &self.links {
            let links = pair.value.split(',').map(str::trim);
            let (mut own, mut others) = (0, true);
            for link in links {
                own += usize::from(link == "-1");
                others &= link == "-1" || link.parse::<u32>().is_ok();
            }
            match count {
                1 if own == 1 && others => section.text("links", &pair.value),
                1 => notes.tell(
                    &mut section,
                    pair,
                    "no list of links in which -1 stands for the device itself",
                ),
                _ => notes.tell(
                    &mut section,
                    pair,
                    "several devices cannot have the same links: give each its own [[gres]]",
                ),
            }
        }
        Some(section)
    }
}

/// Reads a line of nodes.
pub(super) fn nodes(mut entry: Entry, devices: &Devices, all: &mut Nodes, notes: &mut Notes) {
    let mut section = Section::new("[[nodes]]");
    let Some(pair) = entry.pair("NodeName") else { return };
    let names = names(&pair, &mut section, all, notes);
    if names.is_empty() {
        all.sections.push(section.comments_only());
        return;
    }
    let addresses = addresses(&mut entry, &pair, names.len(), &mut section, notes);
    shape(&mut entry, &mut section, notes);
    specialized(&mut entry, &mut section, notes);
    let features = features(&mut entry, &mut section, notes);
    let weight = entry.pair("Weight");
    let place = entry.pair("Topology").filter(|pair| !pair.value.is_empty() && pair.value != "(null)");
    state(&mut entry, &pair, &mut section, notes);
    let gres = entry.pair("Gres");
    let gres = gres.map(|pair| gres_of(&pair, &mut section, notes)).unwrap_or_default();
    notes.left(Kind::Node, entry.rest()).into_iter().for_each(|text| section.comment(text));
    section.list("features", &features);
    match weight.map(|pair| pair.value.parse::<u32>().map_err(|_| pair)) {
        Some(Ok(weight)) => section.plain("weight", weight),
        Some(Err(pair)) => notes.tell(&mut section, &pair, "not a weight"),
        None => {}
    }
    if let Some(pair) = place {
        all.places.push((pair, names.iter().map(|(_, name)| name.clone()).collect()));
    }
    for (_, name) in &names {
        all.features.insert(name.clone(), features.clone());
        all.known.insert(name.clone());
        all.names.push(name.clone());
    }
    // Nodes of a line with different devices get separate tables.
    let gres_of = |name: &str| -> Vec<String> {
        let typed = gres.iter().flat_map(|spec| devices.typed(name, spec.clone()));
        typed.map(|spec| spec.to_string()).collect()
    };
    let mut parts: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    for (index, (_, name)) in names.iter().enumerate() {
        let gres = gres_of(name);
        match parts.last_mut() {
            Some((same, indices)) if *same == gres => indices.push(index),
            _ => parts.push((gres, vec![index])),
        }
    }
    for (gres, indices) in parts {
        let mut part = section.clone();
        part.front_text("names", HostList::from_names(indices.iter().map(|&index| &names[index].1)));
        let pick = |index: &usize| names[*index].0;
        addresses.write(&mut part, &indices.iter().map(pick).collect::<Vec<_>>());
        part.list("gres", &gres);
        section.clear_comments();
        all.sections.push(part);
    }
}

/// Returns the usable names of a line, each with its index on the line.
fn names(pair: &Pair, section: &mut Section, all: &Nodes, notes: &mut Notes) -> Vec<(usize, String)> {
    let Some(list) = hostlist(pair, section, notes) else {
        notes.tell(section, pair, "no node");
        return Vec::new();
    };
    let (mut names, mut own) = (Vec::new(), BTreeSet::new());
    let (mut twice, mut bad) = (HostList::new(), HostList::new());
    for (index, name) in list.iter().enumerate() {
        if !is_layer_name(&name) {
            bad.push(&name);
        } else if all.has(&name) || !own.insert(name.clone()) {
            twice.push(&name);
        } else {
            names.push((index, name));
        }
    }
    for (list, why) in [(twice, "defined already, and the first counts"), (bad, "no names of nodes")] {
        if !list.is_empty() {
            notes.tell(section, pair, &format!("{list}: {why}"));
        }
    }
    names
}

/// Addresses of the nodes of a line.
#[derive(Debug, Default)]
struct Addresses {
    hosts: Option<HostList>,
    ports: Vec<u16>,
}

impl Addresses {
    /// Writes the addresses of the nodes at these indices of the line.
    fn write(&self, section: &mut Section, places: &[usize]) {
        if let Some(hosts) = &self.hosts {
            let all: Vec<String> = hosts.iter().collect();
            match all.as_slice() {
                [one] => section.text("addr", one),
                many => section.text("addr", HostList::from_names(places.iter().map(|&place| &many[place]))),
            }
        }
        let ports: Vec<u16> = match self.ports.as_slice() {
            [] => return,
            [one] => vec![*one],
            many => places.iter().map(|&place| many[place]).collect(),
        };
        match ports.as_slice() {
            [one] => section.plain("port", one),
            [first, .., last] => section.text("port", format_args!("{first}-{last}")),
            [] => {}
        }
    }
}

fn addresses(
    entry: &mut Entry,
    names: &Pair,
    count: usize,
    section: &mut Section,
    notes: &mut Notes,
) -> Addresses {
    let said = names.value.parse::<HostList>().map_or(count, |list| list.len());
    let mut addresses = Addresses::default();
    let host = entry.pair("NodeHostname");
    if let Some(pair) = entry.pair("NodeAddr").or(host) {
        match hostlist(&pair, section, notes) {
            Some(list) if list.len() == 1 || list.len() == said => addresses.hosts = Some(list),
            Some(list) => {
                notes.tell(section, &pair, &format!("{} addresses for {said} nodes", list.len()));
            }
            None => {}
        }
    }
    if let Some(pair) = entry.pair("Port") {
        let list = pair.value.trim_matches(['[', ']']);
        let list = format!("[{list}]").parse::<HostList>();
        let ports: Option<Vec<u16>> =
            list.ok().and_then(|list| list.iter().map(|port| port.parse().ok()).collect());
        match ports {
            Some(ports) if (ports.len() == 1 || ports.len() == said) && is_a_row(&ports) => {
                addresses.ports = ports;
            }
            _ => {
                notes.tell(section, &pair, &format!("not one port, nor {said} in a row"));
            }
        }
    }
    addresses
}

fn is_a_row(ports: &[u16]) -> bool {
    !ports.contains(&0) && ports.windows(2).all(|pair| u32::from(pair[0]) + 1 == u32::from(pair[1]))
}

/// Takes the number of a key, from 1 to [`MOST`]. `None` without the key, and, with a note, for any other
/// value.
fn number(entry: &mut Entry, key: &str, section: &mut Section, notes: &mut Notes) -> Option<(Pair, u32)> {
    let pair = entry.pair(key)?;
    match pair.value.parse::<u32>() {
        Ok(number) if (1..=MOST).contains(&number) => Some((pair, number)),
        _ => {
            notes.tell(section, &pair, &format!("not a number from 1 to {MOST}"));
            None
        }
    }
}

/// Writes CPUs, sockets, cores, threads, memory and disk.
fn shape(entry: &mut Entry, section: &mut Section, notes: &mut Notes) {
    let mut take = |key: &str| number(entry, key, section, notes);
    let cpus = take("CPUs");
    let boards = take("Boards").map(|(_, number)| number);
    let per_board = take("SocketsPerBoard").map(|(_, number)| number);
    let sockets = take("Sockets").map(|(_, number)| number);
    let cores = take("CoresPerSocket").map(|(_, number)| number);
    let threads = take("ThreadsPerCore").map(|(_, number)| number);
    // Spur has no boards, so the sockets of all boards are added.
    let on_boards = (boards.is_some() || per_board.is_some())
        .then(|| boards.unwrap_or(1).saturating_mul(per_board.unwrap_or(1)).min(MOST));
    let sockets = sockets.or(on_boards);
    let parts = [("sockets", sockets), ("cores_per_socket", cores), ("threads_per_core", threads)];
    let product = |parts: &[(&str, Option<u32>)]| {
        parts.iter().fold(1_u32, |product, (_, part)| product.saturating_mul(part.unwrap_or(1)))
    };
    let mut threads_as_cores = false;
    match &cpus {
        Some((pair, cpus)) if parts.iter().any(|(_, part)| part.is_some()) => {
            let whole = completed(*cpus, [sockets, cores, threads]);
            let all = whole.iter().fold(1_u32, |product, part| product.saturating_mul(*part));
            if all == *cpus {
                section.plain("cpus", cpus);
            } else if product(&parts[..2]) == *cpus {
                // Each core is one CPU; the other threads of a core are not used.
                threads_as_cores = true;
                section.plain("cpus", cpus);
                let why =
                    "as many CPUs as cores: the other threads of a core are left alone, threads_per_core = 1";
                notes.tell(section, pair, why);
            } else {
                let why = format!(
                    "not Sockets × CoresPerSocket × ThreadsPerCore = {all}, which counts, as with Slurm"
                );
                notes.tell(section, pair, &why);
            }
        }
        Some((_, cpus)) => section.plain("cpus", cpus),
        None if parts.iter().all(|(_, part)| part.is_none()) => {
            section
                .comment("No CPUs are named, which means one; without `cpus` the node says how many it has.");
            section.plain("cpus", 1);
        }
        None => {}
    }
    for (key, part) in parts {
        match part {
            Some(_) if threads_as_cores && key == "threads_per_core" => section.plain(key, 1),
            Some(part) => section.plain(key, part),
            None => {}
        }
    }
    for (from, to) in [("RealMemory", "memory_mb"), ("TmpDisk", "tmp_disk_mb")] {
        let Some(pair) = entry.pair(from) else { continue };
        match pair.value.parse::<u64>().ok().or_else(|| pair.value.parse().ok().map(|MemoryMb(mb)| mb)) {
            Some(0) => {}
            Some(mb) => section.plain(to, mb.min(u64::from(u32::MAX) << 10)),
            None => {
                notes.tell(section, &pair, "not a size");
            }
        }
    }
}

/// Returns sockets, cores and threads; a missing number is derived as for `spur.toml`.
fn completed(cpus: u32, parts: [Option<u32>; 3]) -> [u32; 3] {
    let mut whole = parts.map(|part| part.unwrap_or(1));
    if let Some(missing) = parts.iter().position(Option::is_none) {
        let others = whole.iter().fold(1_u32, |product, part| product.saturating_mul(*part));
        whole[missing] = (cpus / others.max(1)).max(1);
    }
    whole
}

/// Returns the features of a line as words that are valid in Spur.
fn features(entry: &mut Entry, section: &mut Section, notes: &mut Notes) -> Vec<String> {
    let mut features: Vec<String> = Vec::new();
    let Some(pair) = entry.pair("Features") else { return features };
    for word in pair.value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "(null)") {
        let plain: String =
            word.chars().map(|c| if "&|()[]*:".contains(c) || c.is_whitespace() { '-' } else { c }).collect();
        if plain != word {
            let why = format!("called {plain} here: a feature is a word without & | ( ) [ ] * :");
            let said = Pair { value: word.to_owned(), ..pair.clone() };
            notes.tell(section, &said, &why);
        }
        if !features.contains(&plain) {
            features.push(plain);
        }
    }
    features
}

/// Returns the devices of a line without their sockets.
fn gres_of(pair: &Pair, section: &mut Section, notes: &mut Notes) -> Vec<GresSpec> {
    let mut found: Vec<GresSpec> = Vec::new();
    for item in items(&pair.value) {
        let plain = item.split('(').next().unwrap_or_default();
        let plain = plain.replace(":no_consume", "");
        let said = Pair { value: item.clone(), ..pair.clone() };
        let spec: Option<GresSpec> =
            plain.parse().ok().filter(|spec: &GresSpec| u32::try_from(spec.count).is_ok());
        let why = match &spec {
            None if plain.parse::<GresSpec>().is_ok() => {
                "a node has at most 4294967295 of one kind: count in larger units"
            }
            None => "not a device",
            Some(spec) if spec.name == "mps" => "MPS has no counterpart; GPUs are shared by shards",
            Some(spec) => {
                let same = |other: &&mut GresSpec| other.name == spec.name && other.kind == spec.kind;
                match found.iter_mut().find(same) {
                    Some(other) => other.count += spec.count,
                    None => found.push(spec.clone()),
                }
                continue;
            }
        };
        notes.tell(section, &said, why);
    }
    found
}

/// Splits a list at commas outside brackets.
fn items(list: &str) -> Vec<String> {
    let (mut depth, mut items) = (0_u32, vec![String::new()]);
    for c in list.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match items.last_mut() {
            Some(_) if c == ',' && depth == 0 => items.push(String::new()),
            Some(last) => last.push(c),
            None => {}
        }
    }
    items.retain(|item| !item.trim().is_empty() && item != "(null)");
    items
}

/// Adds comments about states, which `spur.toml` does not have, with the commands that set them.
fn state(entry: &mut Entry, names: &Pair, section: &mut Section, notes: &mut Notes) {
    let reason = entry.value("Reason").unwrap_or_else(|| "imported".to_owned());
    let Some(pair) = entry.pair("State") else { return };
    let word = pair.value.split('+').next().unwrap_or_default().to_ascii_uppercase();
    let why = match word.as_str() {
        "UNKNOWN" | "IDLE" | "" => return,
        "CLOUD" => {
            "down until its daemon has run once; from then on [power] switches it off and on".to_owned()
        }
        "FUTURE" => "nodes that are not there yet are down until their daemon runs".to_owned(),
        "DOWN" | "DRAIN" | "FAIL" | "DRAINED" | "FAILING" => format!(
            "say it once it runs: scontrol update NodeName={} State={} Reason=\"{reason}\"",
            names.value,
            if word.starts_with("DOWN") { "DOWN" } else { "DRAIN" }
        ),
        _ => "not a state of a node".to_owned(),
    };
    notes.tell(section, &pair, &why);
}
