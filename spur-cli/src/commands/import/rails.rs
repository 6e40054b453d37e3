//! Joins switches, the hosts' ports on them and the links between switches into one tree.
//!
//! With rails each host has ports on several leaves, so a leaf cannot be a domain: a node is in one domain
//! per layer. Leaves that serve the same hosts become one domain, a *unit*. A wrong cable must not join two
//! units, so a single shared host does not suffice. Two leaves belong together if more than half of the hosts
//! of the smaller leaf have ports on both. Two switches above form one parent if both reach more than half of
//! the units that the larger one reaches. A link from a core to a leaf therefore does not make the core a
//! spine.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::text::hostlist::{HostList, compare_names};

use super::tree::Switch;

/// Name of the added root if no switch is above all units.
pub(in crate::commands) const ROOT: &str = "fabric";

/// Cabling of a fabric.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Cabling {
    /// Names of the switches, each once.
    pub(in crate::commands) switches: Vec<String>,
    /// Ports of hosts, in the order of the file.
    pub(in crate::commands) ports: Vec<Port>,
    /// Links between two switches, by index.
    pub(in crate::commands) links: Vec<(usize, usize)>,
}

/// A port of a host.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Port {
    pub(in crate::commands) host: String,
    /// Index of the switch to which the port is connected.
    pub(in crate::commands) switch: usize,
    /// The switch's port and the host's device, as messages show them; empty if unknown.
    pub(in crate::commands) label: String,
}

/// The tree of a cabling.
#[derive(Debug)]
pub(in crate::commands) struct Joined {
    /// Units first, then each layer above, each in the order of names.
    pub(in crate::commands) switches: Vec<Switch>,
    /// Hosts on at most half of the leaves of their unit, with a sentence for each.
    pub(in crate::commands) doubtful: Vec<(String, String)>,
    /// Sentences about probably wrong cables and everything that is left out.
    pub(in crate::commands) left_out: Vec<String>,
}

/// One domain: the switches that form it, and the domains below.
#[derive(Debug, Default)]
struct Group {
    switches: Vec<usize>,
    hosts: Vec<usize>,
    children: Vec<usize>,
    has_parent: bool,
    /// Name of a group without switches.
    name: Option<String>,
}

/// State while a cabling is joined.
struct Joining {
    cabling: Cabling,
    hosts: Vec<String>,
    /// Ports of each host, in the order of the file.
    ports_of: Vec<Vec<usize>>,
    /// Hosts on each switch.
    hosts_on: Vec<BTreeSet<usize>>,
    /// Neighbours of each switch, with the number of links to each.
    near: Vec<BTreeMap<usize, usize>>,
    /// Group of each switch.
    group_of: Vec<Option<usize>>,
    groups: Vec<Group>,
    left_out: Vec<String>,
}

/// Joins leaves into units, and the switches above into parents.
pub(in crate::commands) fn joined(cabling: Cabling) -> Joined {
    let mut joining = Joining::new(cabling);
    joining.lower_hosts();
    joining.units();
    let doubtful = joining.place_hosts();
    joining.parents();
    joining.roots();
    joining.without_empty();
    Joined { switches: joining.tree(), doubtful, left_out: joining.left_out }
}

impl Joining {
    fn new(cabling: Cabling) -> Joining {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut hosts, mut ports_of) = (Vec::new(), Vec::<Vec<usize>>::new());
        let mut hosts_on = vec![BTreeSet::new(); cabling.switches.len()];
        for (index, port) in cabling.ports.iter().enumerate() {
            let host = *numbers.entry(&port.host).or_insert_with(|| {
                hosts.push(port.host.clone());
                ports_of.push(Vec::new());
                hosts.len() - 1
            });
            ports_of[host].push(index);
            hosts_on[port.switch].insert(host);
        }
        let mut near = vec![BTreeMap::new(); cabling.switches.len()];
        for &(a, b) in cabling.links.iter().filter(|(a, b)| a != b) {
            *near[a].entry(b).or_default() += 1;
            *near[b].entry(a).or_default() += 1;
        }
        let group_of = vec![None; cabling.switches.len()];
        let (groups, left_out) = (Vec::new(), Vec::new());
        Joining { cabling, hosts, ports_of, hosts_on, near, group_of, groups, left_out }
    }

    /// True if a switch is above leaves although it has a few hosts. More leaves are linked to it than it has
    /// hosts, and most of them have more hosts.
    fn is_above_leaves(&self, switch: usize) -> bool {
        let own = self.hosts_on[switch].len();
        let around = self.near[switch].keys().map(|&other| self.hosts_on[other].len());
        let leaves: Vec<usize> = around.filter(|&hosts| hosts > 0).collect();
        let larger = leaves.iter().filter(|&&hosts| hosts > own).count();
        own > 0 && leaves.len() > own && larger * 2 > leaves.len()
    }

    /// Removes hosts from switches above leaves. Hosts without another port get a new leaf below that switch.
    fn lower_hosts(&mut self) {
        let above: Vec<usize> =
            (0..self.hosts_on.len()).filter(|&switch| self.is_above_leaves(switch)).collect();
        let is_above: BTreeSet<usize> = above.iter().copied().collect();
        for switch in above {
            let name = self.cabling.switches[switch].clone();
            let mut alone = Vec::new();
            for host in std::mem::take(&mut self.hosts_on[switch]) {
                let on = |port: &usize| self.cabling.ports[*port].switch;
                let (here, elsewhere): (Vec<usize>, Vec<usize>) =
                    self.ports_of[host].iter().partition(|port| on(port) == switch);
                if elsewhere.iter().all(|port| is_above.contains(&on(port))) {
                    alone.push((host, here));
                    continue;
                }
                let text = format!(
                    "{} has a port on {}, which is above leaves: it does not count; likely a wrong cable",
                    self.hosts[host],
                    self.shown(&here)
                );
                self.left_out.push(text);
                self.ports_of[host] = elsewhere;
            }
            if alone.is_empty() {
                continue;
            }
            let leaf = self.cabling.switches.len();
            let list = sorted(alone.iter().map(|(host, _)| self.hosts[*host].clone()));
            self.left_out
                .push(format!("{name} has hosts and leaves; its hosts, {list}, are below {name}-leaf"));
            self.cabling.switches.push(format!("{name}-leaf"));
            self.hosts_on.push(alone.iter().map(|(host, _)| *host).collect());
            self.near.push(BTreeMap::from([(switch, 1)]));
            self.near[switch].insert(leaf, 1);
            self.group_of.push(None);
            for port in alone.into_iter().flat_map(|(_, ports)| ports) {
                self.cabling.ports[port].switch = leaf;
            }
        }
    }

    /// Forms a group from the leaves of each unit.
    fn units(&mut self) {
        let leaves: Vec<usize> =
            (0..self.hosts_on.len()).filter(|&switch| !self.hosts_on[switch].is_empty()).collect();
        let sets: Vec<&BTreeSet<usize>> = leaves.iter().map(|&leaf| &self.hosts_on[leaf]).collect();
        let components = components(&sets, usize::min);
        self.make_groups(&leaves, &components);
    }

    /// Forms one group per component from its switches, in the order of their first switches.
    fn make_groups(&mut self, switches: &[usize], components: &[usize]) -> BTreeSet<usize> {
        let mut made: BTreeMap<usize, usize> = BTreeMap::new();
        for (&switch, &component) in switches.iter().zip(components) {
            let group = *made.entry(component).or_insert_with(|| {
                self.groups.push(Group::default());
                self.groups.len() - 1
            });
            self.groups[group].switches.push(switch);
            self.group_of[switch] = Some(group);
        }
        made.into_values().collect()
    }

    /// Places each host into the unit with most of its ports; the first in the file wins a tie. Returns the
    /// hosts that are on few leaves of their unit.
    fn place_hosts(&mut self) -> Vec<(String, String)> {
        let mut doubtful = Vec::new();
        for host in 0..self.hosts.len() {
            let unit_of = |port: &usize| {
                self.group_of[self.cabling.ports[*port].switch]
                    .expect("a switch with hosts is a leaf of a unit")
            };
            let ports = self.ports_of[host].clone();
            let mut units: Vec<(usize, usize)> = Vec::new();
            for unit in ports.iter().map(unit_of) {
                match units.iter_mut().find(|(other, _)| *other == unit) {
                    Some((_, count)) => *count += 1,
                    None => units.push((unit, 1)),
                }
            }
            let Some(most) = units.iter().map(|(_, count)| *count).max() else { continue };
            let best: Vec<usize> =
                units.iter().filter(|(_, count)| *count == most).map(|(unit, _)| *unit).collect();
            let unit = best[0];
            let away: Vec<usize> = ports.iter().copied().filter(|port| unit_of(port) != unit).collect();
            if !away.is_empty() {
                let (name, unit_name) = (&self.hosts[host], self.name(unit));
                let tie =
                    if best.len() > 1 { ", with as many there; the first in the file counts" } else { "" };
                let text = format!(
                    "{name} is in {unit_name} and has ports in other units, likely wrong cables: {}{tie}",
                    self.shown(&away)
                );
                self.left_out.push(text);
            }
            let leaves: BTreeSet<usize> = ports.iter().map(|port| self.cabling.ports[*port].switch).collect();
            let all = self.groups[unit].switches.len();
            let own = leaves.iter().filter(|&&leaf| self.group_of[leaf] == Some(unit)).count();
            if away.is_empty() && all > 1 && own * 2 <= all {
                let text =
                    format!("on {own} of the {all} leaves of {}: {}", self.name(unit), self.shown(&ports));
                doubtful.push((self.hosts[host].clone(), text));
            }
            self.groups[unit].hosts.push(host);
        }
        self.lonely_leaves();
        doubtful
    }

    /// Notes leaves that join no other leaf although their hosts have ports on others.
    fn lonely_leaves(&mut self) {
        for unit in 0..self.groups.len() {
            let [leaf] = self.groups[unit].switches[..] else { continue };
            let elsewhere = |host: &usize| {
                self.ports_of[*host].iter().any(|port| self.cabling.ports[*port].switch != leaf)
            };
            if !self.hosts_on[leaf].iter().any(elsewhere) {
                continue;
            }
            let on_leaf = |port: &usize| self.cabling.ports[*port].switch == leaf;
            let ports: Vec<usize> = self.hosts_on[leaf]
                .iter()
                .flat_map(|host| &self.ports_of[*host])
                .copied()
                .filter(on_leaf)
                .collect();
            let shown: Vec<String> = ports
                .iter()
                .map(|&port| &self.cabling.ports[port])
                .map(|port| format!("{} {}", port.label, port.host).trim_start().to_owned())
                .collect();
            let text = format!(
                "{} joins no other leaf, although its hosts have ports on others: {}",
                self.cabling.switches[leaf],
                shown.join(", ")
            );
            self.left_out.push(text);
        }
    }

    /// Forms the layers from the bottom up: each consists of the free switches linked to the previous layer.
    fn parents(&mut self) {
        let mut below: BTreeSet<usize> = (0..self.groups.len()).collect();
        loop {
            let reach = |switch: usize| -> BTreeSet<usize> {
                let groups = self.near[switch].keys().filter_map(|&other| self.group_of[other]);
                groups.filter(|group| below.contains(group)).collect()
            };
            let free = (0..self.group_of.len()).filter(|&switch| self.group_of[switch].is_none());
            let next: Vec<(usize, BTreeSet<usize>)> =
                free.map(|switch| (switch, reach(switch))).filter(|(_, groups)| !groups.is_empty()).collect();
            if next.is_empty() {
                return;
            }
            let switches: Vec<usize> = next.iter().map(|(switch, _)| *switch).collect();
            let sets: Vec<&BTreeSet<usize>> = next.iter().map(|(_, groups)| groups).collect();
            let components = components(&sets, usize::max);
            let made = self.make_groups(&switches, &components);
            for &group in &below {
                if let Some(parent) = self.most_links(group, &made) {
                    self.groups[group].has_parent = true;
                    self.groups[parent].children.push(group);
                }
            }
            // A switch that became the parent of no group may belong to a higher layer.
            let (idle, used): (BTreeSet<usize>, BTreeSet<usize>) =
                made.into_iter().partition(|&group| self.groups[group].children.is_empty());
            for group in idle {
                for switch in std::mem::take(&mut self.groups[group].switches) {
                    self.group_of[switch] = None;
                }
            }
            below = used;
        }
    }

    /// Returns the group in `among` to which most links of `group` lead; the first one wins a tie. `None` if
    /// no link leads to any of them.
    fn most_links(&self, group: usize, among: &BTreeSet<usize>) -> Option<usize> {
        let mut links: BTreeMap<usize, usize> = BTreeMap::new();
        for &switch in &self.groups[group].switches {
            for (&other, count) in &self.near[switch] {
                if let Some(parent) = self.group_of[other].filter(|parent| among.contains(parent)) {
                    *links.entry(parent).or_default() += count;
                }
            }
        }
        let most = links.values().copied().max()?;
        links.into_iter().find(|(_, count)| *count == most).map(|(parent, _)| parent)
    }

    /// Joins linked groups that have no common parent: below one that is linked to all others, or below an
    /// added root.
    fn roots(&mut self) {
        let mut root_of: Vec<usize> = (0..self.groups.len()).collect();
        // Parents have larger indices than their children.
        for group in (0..self.groups.len()).rev() {
            for child in self.groups[group].children.clone() {
                root_of[child] = root_of[group];
            }
        }
        let mut linked: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let is_used =
            |group: &usize| !self.groups[*group].children.is_empty() || !self.groups[*group].hosts.is_empty();
        for group in (0..self.groups.len()).filter(is_used).filter(|&group| root_of[group] == group) {
            linked.insert(group, BTreeSet::new());
        }
        for (switch, near) in self.near.iter().enumerate() {
            for &other in near.keys() {
                let (Some(a), Some(b)) = (self.group_of[switch], self.group_of[other]) else { continue };
                let (a, b) = (root_of[a], root_of[b]);
                if a != b && linked.contains_key(&a) && linked.contains_key(&b) {
                    linked.entry(a).or_default().insert(b);
                }
            }
        }
        let mut seen = BTreeSet::new();
        for root in linked.keys().copied().collect::<Vec<_>>() {
            let (mut together, mut open) = (BTreeSet::from([root]), vec![root]);
            while let Some(at) = open.pop() {
                open.extend(linked[&at].iter().copied().filter(|&other| together.insert(other)));
            }
            if together.len() > 1 && together.iter().all(|root| seen.insert(*root)) {
                self.one_root(&together, &linked);
            }
        }
    }

    /// Merges a root into another if its switches are linked to more than half of the domains below the
    /// other. Returns the resulting root of each root.
    fn equals(&mut self, roots: &BTreeSet<usize>) -> BTreeMap<usize, usize> {
        let mut now: BTreeMap<usize, usize> = roots.iter().map(|&root| (root, root)).collect();
        for &one in roots {
            for &other in roots {
                let are_apart = one != other && now[&one] == one && now[&other] == other;
                if !are_apart || self.groups[one].children.is_empty() {
                    continue;
                }
                let switches = self.groups[one].switches.iter();
                let near: BTreeSet<usize> = switches
                    .flat_map(|&switch| self.near[switch].keys())
                    .filter_map(|&at| self.group_of[at])
                    .collect();
                let below = &self.groups[other].children;
                if below.iter().filter(|child| near.contains(child)).count() * 2 <= below.len() {
                    continue;
                }
                let Group { switches, children, .. } = std::mem::take(&mut self.groups[one]);
                switches.iter().for_each(|&switch| self.group_of[switch] = Some(other));
                self.groups[other].switches.extend(switches);
                self.groups[other].children.extend(children);
                now.values_mut().filter(|root| **root == one).for_each(|root| *root = other);
            }
        }
        now
    }

    fn one_root(&mut self, roots: &BTreeSet<usize>, linked: &BTreeMap<usize, BTreeSet<usize>>) {
        let now = self.equals(roots);
        let roots: BTreeSet<usize> = now.values().copied().collect();
        if roots.len() == 1 {
            return;
        }
        let is_hub = |root: &&usize| {
            let parts = now.iter().filter(|(_, to)| to == root).flat_map(|(from, _)| &linked[from]);
            let others: BTreeSet<usize> =
                parts.map(|other| now[other]).filter(|other| other != *root).collect();
            others.len() + 1 == roots.len() && self.groups[**root].hosts.is_empty()
        };
        let hubs: Vec<usize> = roots.iter().filter(is_hub).copied().collect();
        let parent = match hubs[..] {
            [hub] if roots.len() > 2 || self.groups[hub].children.len() > 1 => hub,
            _ => {
                let names = sorted(roots.iter().map(|&root| self.name(root)));
                let mut name = ROOT.to_owned();
                while self.cabling.switches.contains(&name) {
                    name.push('-');
                }
                let text = format!(
                    "no switch is above all of {names}, which are linked: they are below one root, {name}, that is no switch"
                );
                self.left_out.push(text);
                self.groups.push(Group { name: Some(name), ..Group::default() });
                self.groups.len() - 1
            }
        };
        for &root in roots.iter().filter(|&&root| root != parent) {
            self.groups[root].has_parent = true;
            self.groups[parent].children.push(root);
        }
    }

    /// Notes switches above nothing, leaves without hosts, and roots with a single domain below.
    fn without_empty(&mut self) {
        let is_empty = |group: &Group| group.hosts.is_empty() && group.children.is_empty();
        let empty: Vec<usize> = (0..self.groups.len()).filter(|&at| is_empty(&self.groups[at])).collect();
        for group in &mut self.groups {
            group.children.retain(|child| !empty.contains(child));
        }
        let mut switches: Vec<usize> =
            empty.iter().flat_map(|&group| self.groups[group].switches.clone()).collect();
        switches.extend((0..self.group_of.len()).filter(|&switch| self.group_of[switch].is_none()));
        if !switches.is_empty() {
            let names = sorted(switches.iter().map(|&switch| self.cabling.switches[switch].clone()));
            self.left_out.push(format!("nothing is left below {names}"));
        }
        for group in (0..self.groups.len()).rev() {
            let [child] = self.groups[group].children[..] else { continue };
            if self.groups[child].children.is_empty() || self.groups[group].has_parent {
                continue;
            }
            let text =
                format!("{} is above {} alone, and no domain of its own", self.name(group), self.name(child));
            self.left_out.push(text);
            self.groups[group].children.clear();
            self.groups[child].has_parent = false;
        }
        let is_root = |group: &usize| !self.groups[*group].has_parent && !is_empty(&self.groups[*group]);
        let roots: Vec<String> =
            (0..self.groups.len()).filter(is_root).map(|group| self.name(group)).collect();
        if roots.len() > 1 {
            let text = format!("no link joins {}: no job spans two of them", sorted(roots.into_iter()));
            self.left_out.push(text);
        }
    }

    /// Returns the number of layers below a group.
    fn height(&self, group: usize) -> usize {
        let below = self.groups[group].children.iter().map(|&child| self.height(child) + 1);
        below.max().unwrap_or_default()
    }

    /// Returns the remaining groups as switches of a tree.
    fn tree(&self) -> Vec<Switch> {
        let mut tree = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            if group.hosts.is_empty() && group.children.is_empty() {
                continue;
            }
            let mut nodes: Vec<String> = group.hosts.iter().map(|&host| self.hosts[host].clone()).collect();
            nodes.sort_by(|a, b| compare_names(a, b));
            let mut children: Vec<String> = group.children.iter().map(|&child| self.name(child)).collect();
            children.sort_by(|a, b| compare_names(a, b));
            let mut stands_for: Vec<String> =
                group.switches.iter().map(|&switch| self.cabling.switches[switch].clone()).collect();
            stands_for.sort_by(|a, b| compare_names(a, b));
            let switch = Switch { name: self.name(index), nodes, children, stands_for, speed: None };
            tree.push((self.height(index), switch));
        }
        tree.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| compare_names(&one.name, &other.name)));
        tree.into_iter().map(|(_, switch)| switch).collect()
    }

    /// Returns the name of a group: that of its first switch in the order of names, which does not depend on
    /// the point of discovery.
    fn name(&self, group: usize) -> String {
        let group = &self.groups[group];
        let names = group.switches.iter().map(|&switch| &self.cabling.switches[switch]);
        let first = names.min_by(|a, b| compare_names(a, b)).cloned();
        group.name.clone().or(first).unwrap_or_default()
    }

    /// Returns ports as messages show them.
    fn shown(&self, ports: &[usize]) -> String {
        let shown = ports.iter().map(|&port| {
            let Port { switch, label, .. } = &self.cabling.ports[port];
            format!("{} {label}", self.cabling.switches[*switch]).trim_end().to_owned()
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Returns names as a hostlist, in the order of names.
fn sorted(names: impl Iterator<Item = String>) -> HostList {
    HostList::from_names(names).sorted()
}

/// Returns for each set the first set of its component. Two sets are connected if their intersection has more
/// than half the size selected by `which`: that of the smaller or the larger set.
fn components(sets: &[&BTreeSet<usize>], which: fn(usize, usize) -> usize) -> Vec<usize> {
    let mut holders: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, set) in sets.iter().enumerate() {
        set.iter().for_each(|member| holders.entry(*member).or_default().push(index));
    }
    let mut first: Vec<usize> = (0..sets.len()).collect();
    let mut apart: BTreeSet<(usize, usize)> = BTreeSet::new();
    for holders in holders.values() {
        for (at, &a) in holders.iter().enumerate() {
            for &b in &holders[at + 1..] {
                let (root_a, root_b) = (root(&mut first, a), root(&mut first, b));
                if root_a == root_b || apart.contains(&(a, b)) {
                    continue;
                }
                let shared = sets[a].intersection(sets[b]).count();
                if shared * 2 > which(sets[a].len(), sets[b].len()) {
                    first[root_a.max(root_b)] = root_a.min(root_b);
                } else {
                    apart.insert((a, b));
                }
            }
        }
    }
    (0..sets.len()).map(|at| root(&mut first, at)).collect()
}

/// Returns the first set of a component and shortens the path to it.
fn root(first: &mut [usize], mut at: usize) -> usize {
    while first[at] != at {
        first[at] = first[first[at]];
        at = first[at];
    }
    at
}

/// True if a node is on several leaves.
pub(super) fn has_rails(switches: &[Switch]) -> bool {
    let mut seen = BTreeMap::new();
    let nodes = switches.iter().flat_map(|switch| switch.nodes.iter().map(|node| (node, &switch.name)));
    nodes.into_iter().any(|(node, leaf)| *seen.entry(node).or_insert(leaf) != leaf)
}

/// Joins the rails of switches read from one of Slurm's files.
pub(super) fn of_switches(switches: &[Switch]) -> Joined {
    let numbers: BTreeMap<&str, usize> =
        switches.iter().enumerate().map(|(index, switch)| (&*switch.name, index)).collect();
    let mut cabling = Cabling {
        switches: switches.iter().map(|switch| switch.name.clone()).collect(),
        ..Cabling::default()
    };
    let mut links = BTreeSet::new();
    for (index, switch) in switches.iter().enumerate() {
        let port = |host: &String| Port { host: host.clone(), switch: index, label: String::new() };
        let mut seen = BTreeSet::new();
        cabling.ports.extend(switch.nodes.iter().filter(|host| seen.insert(*host)).map(port));
        let children = switch.children.iter().filter_map(|child| numbers.get(&**child));
        links.extend(children.map(|&child| (index.min(child), index.max(child))));
    }
    cabling.links.extend(links);
    let mut joined = joined(cabling);
    for switch in &mut joined.switches {
        let members = switch.stands_for.iter().filter_map(|name| numbers.get(&**name));
        switch.speed = members.filter_map(|&member| switches[member].speed.clone()).next();
    }
    joined
}
