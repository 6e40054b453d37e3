//! Converts the cabling of switches to the nearest tree.
//!
//! A fabric may have several paths between two switches: two spines above the same leaves, switches that are
//! all connected, or shortcuts. A tree has one. Each switch keeps the parent that is nearest to the top,
//! after shortcuts past a switch have been removed. Nodes on several leaves indicate rails, which are joined
//! instead ([`rails`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::rails;

/// One switch as cabled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Switch {
    pub(in crate::commands) name: String,
    pub(in crate::commands) nodes: Vec<String>,
    pub(in crate::commands) children: Vec<String>,
    /// Switches that are joined in this one: the rails of a unit, or the spines above the same units.
    pub(in crate::commands) stands_for: Vec<String>,
    pub(in crate::commands) speed: Option<String>,
}

/// Returns the nearest tree, and a sentence for everything that is left out.
pub(super) fn nearest(switches: Vec<Switch>) -> (Vec<Switch>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut switches = joined(switches, &mut left_out);
    unknown_children(&mut switches, &mut left_out);
    if rails::has_rails(&switches) {
        let joined = rails::of_switches(&leaves_of_their_own(switches, &mut left_out));
        let left_out = named(left_out).into_iter().chain(joined.left_out).collect();
        return (joined.switches, left_out);
    }
    shortcuts(&mut switches, &mut left_out);
    one_parent(&mut switches, &mut left_out);
    one_place(&mut switches, &mut left_out);
    let switches = leaves_of_their_own(switches, &mut left_out);
    let switches = without_empty(switches, &mut left_out);
    (switches, named(left_out))
}

fn named(left_out: Vec<String>) -> Vec<String> {
    left_out.into_iter().map(|text| format!("left out of the tree: {text}")).collect()
}

/// Combines several lines of the same switch.
fn joined(switches: Vec<Switch>, left_out: &mut Vec<String>) -> Vec<Switch> {
    let mut all: Vec<Switch> = Vec::new();
    for switch in switches {
        match all.iter_mut().find(|other| other.name == switch.name) {
            Some(other) => {
                left_out.push(format!("switch {} has several lines, which are put together", switch.name));
                other.nodes.extend(switch.nodes);
                other.children.extend(switch.children);
                other.speed = other.speed.take().or(switch.speed);
            }
            None => all.push(switch),
        }
    }
    all
}

fn unknown_children(switches: &mut [Switch], left_out: &mut Vec<String>) {
    let names: BTreeSet<String> = switches.iter().map(|switch| switch.name.clone()).collect();
    for switch in switches {
        let own = switch.name.clone();
        let mut seen = BTreeSet::new();
        switch.children.retain(|child| {
            if !names.contains(child) {
                left_out.push(format!("switch {own} names {child}, which is no switch"));
            }
            names.contains(child) && *child != own && seen.insert(child.clone())
        });
    }
}

/// Returns all switches below a switch.
fn below(children: &BTreeMap<String, Vec<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for child in children.get(at).into_iter().flatten() {
            if seen.insert(child.clone()) {
                open.push(child);
            }
        }
    }
    seen
}

fn children(switches: &[Switch]) -> BTreeMap<String, Vec<String>> {
    switches.iter().map(|switch| (switch.name.clone(), switch.children.clone())).collect()
}

/// Returns the number of parents of each switch that has any.
fn parents(switches: &[Switch]) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for child in switches.iter().flat_map(|switch| &switch.children) {
        *count.entry(child.clone()).or_default() += 1;
    }
    count
}

/// Removes a link to a switch that another child also reaches, unless the two are in a cycle.
fn shortcuts(switches: &mut [Switch], left_out: &mut Vec<String>) {
    let parents = parents(switches);
    let links = children(switches);
    for switch in switches {
        if !switch.children.iter().any(|child| parents.get(child).is_some_and(|count| *count > 1)) {
            continue;
        }
        let ways: Vec<(String, BTreeSet<String>)> =
            switch.children.iter().map(|child| (child.clone(), below(&links, child))).collect();
        let own = switch.name.clone();
        switch.children.retain(|child| {
            let past = ways.iter().find(|(other, below)| {
                other != child && below.contains(child) && !below.contains(&own) && !below.contains(other)
            });
            if let Some((other, _)) = past {
                left_out.push(format!("the link from {own} to {child}, which {other} leads to as well"));
            }
            past.is_none()
        });
    }
}

/// Keeps for each switch the parent that is reached first from the top.
fn one_parent(switches: &mut [Switch], left_out: &mut Vec<String>) {
    let has_parent = parents(switches);
    let roots = switches.iter().filter(|switch| !has_parent.contains_key(&switch.name));
    let mut open: VecDeque<String> = roots.map(|switch| switch.name.clone()).collect();
    let mut parent: BTreeMap<String, Option<String>> = open.iter().map(|name| (name.clone(), None)).collect();
    let links = children(switches);
    let mut names = switches.iter().map(|switch| switch.name.clone()).collect::<VecDeque<_>>();
    loop {
        while let Some(at) = open.pop_front() {
            for child in &links[&at] {
                if !parent.contains_key(child) {
                    parent.insert(child.clone(), Some(at.clone()));
                    open.push_back(child.clone());
                }
            }
        }
        // A cycle has no top, so its first switch is used as one.
        match names.pop_front() {
            Some(name) if !parent.contains_key(&name) => {
                parent.insert(name.clone(), None);
                open.push_back(name);
            }
            Some(_) => {}
            None => break,
        }
    }
    for switch in switches {
        let own = switch.name.clone();
        switch.children.retain(|child| {
            let kept = parent.get(child).and_then(Option::as_ref);
            let is_kept = kept == Some(&own);
            if !is_kept {
                let where_it_is = match kept {
                    Some(kept) => format!("{child} is below {kept}"),
                    None => format!("{child} is on top"),
                };
                left_out.push(format!("the link from {own} to {child}: {where_it_is}"));
            }
            is_kept
        });
    }
}

/// Keeps each node below the first switch that names it.
fn one_place(switches: &mut [Switch], left_out: &mut Vec<String>) {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for switch in switches {
        let own = switch.name.clone();
        let mut also: BTreeMap<String, Vec<String>> = BTreeMap::new();
        switch.nodes.retain(|node| match places.get(node) {
            Some(first) => {
                if *first != own {
                    also.entry(first.clone()).or_default().push(node.clone());
                }
                false
            }
            None => {
                places.insert(node.clone(), own.clone());
                true
            }
        });
        for (first, nodes) in also {
            let nodes = spur_core::text::hostlist::HostList::from_names(&nodes);
            left_out.push(format!("the links from {own} to {nodes}, which are below {first}"));
        }
    }
}

/// Moves the nodes of a switch with child switches to a new leaf below it.
fn leaves_of_their_own(switches: Vec<Switch>, left_out: &mut Vec<String>) -> Vec<Switch> {
    let names: BTreeSet<String> = switches.iter().map(|switch| switch.name.clone()).collect();
    let mut all = Vec::new();
    for mut switch in switches {
        if switch.nodes.is_empty() || switch.children.is_empty() {
            all.push(switch);
            continue;
        }
        let mut leaf = format!("{}-leaf", switch.name);
        while names.contains(&leaf) {
            leaf.push('-');
        }
        left_out.push(format!("switch {} has nodes and switches; its nodes are below {leaf}", switch.name));
        let nodes = std::mem::take(&mut switch.nodes);
        all.push(Switch { name: leaf.clone(), nodes, speed: switch.speed.clone(), ..Switch::default() });
        switch.children.insert(0, leaf);
        all.push(switch);
    }
    all
}

/// Removes switches without anything below them.
fn without_empty(mut switches: Vec<Switch>, left_out: &mut Vec<String>) -> Vec<Switch> {
    loop {
        let is_empty = |switch: &Switch| switch.nodes.is_empty() && switch.children.is_empty();
        let empty: BTreeSet<String> =
            switches.iter().filter(|switch| is_empty(switch)).map(|switch| switch.name.clone()).collect();
        if empty.is_empty() {
            return switches;
        }
        left_out.extend(empty.iter().map(|name| format!("switch {name}: nothing is left below it")));
        switches.retain(|switch| !empty.contains(&switch.name));
        for switch in &mut switches {
            switch.children.retain(|child| !empty.contains(child));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `a: n1 n2 > b c`, one switch per part between semicolons.
    fn read(text: &str) -> Vec<Switch> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let line = |line: &str| {
            let (name, rest) = line.trim().split_once(':').expect("a colon");
            let (nodes, below) = rest.split_once('>').unwrap_or((rest, ""));
            let (nodes, children) = (words(nodes), words(below));
            Switch { name: name.into(), nodes, children, ..Switch::default() }
        };
        text.split(';').map(line).collect()
    }

    fn shown(switches: &[Switch]) -> String {
        let mut text = Vec::new();
        for Switch { name, nodes, children, .. } in switches {
            let below =
                if children.is_empty() { String::new() } else { format!(" > {}", children.join(" ")) };
            text.push(format!("{name}: {}{below}", nodes.join(" ")).replace(":  >", ": >"));
        }
        text.join("; ")
    }

    #[test]
    fn what_is_no_tree_becomes_the_nearest() {
        for (cabled, tree, left_out) in [
            ("a: x y; b: z; r: > a b", "a: x y; b: z; r: > a b", 0),
            // Two spines above the same leaves.
            ("a: x; b: y; s: > a b; t: > a b; r: > s t", "a: x; b: y; s: > a b; r: > s", 3),
            ("a: x; b: y; s: > a b; t: > a b", "a: x; b: y; s: > a b", 3),
            // Leaves that are all connected with each other.
            ("a: x > b c; b: y > a c; c: z > a b", "a-leaf: x; a: > a-leaf b c; b: y; c: z", 5),
            // A shortcut past the spine.
            ("a: x; b: y; s: > a b; r: > s a", "a: x; b: y; s: > a b; r: > s", 1),
            // A ring.
            ("a: x > b; b: y > a", "a-leaf: x; a: > a-leaf b; b: y", 2),
            // Several rails to the same nodes.
            ("a: x y; b: x y; r: > a b", "a: x y; r: > a", 0),
            (
                "a: x y z; b: x y z; c: u v; d: u v x; s: > a b c d; t: > a b c d",
                "a: x y z; c: u v; s: > a c",
                1,
            ),
            ("a: x; r: > a q; r: > r", "a: x; r: > a", 2),
        ] {
            let (found, said) = nearest(read(cabled));
            assert_eq!(shown(&found), tree, "{cabled}");
            assert_eq!(said.len(), left_out, "{cabled}: {said:#?}");
        }
    }
}
