//! Differences between a discovered topology and the topology in force.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::model::topology::{Plugin, TopologyConfig};
use spur_core::text::hostlist::HostList;
use spur_proto::v1::Topology;

/// The properties of a topology that are compared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    plugin: String,
    /// Nodes of each leaf or base block.
    leaves: BTreeMap<String, BTreeSet<String>>,
    /// Switch directly above each switch.
    parents: BTreeMap<String, String>,
}

fn names(list: &str) -> Vec<String> {
    list.parse::<HostList>().map(|list| list.iter().collect()).unwrap_or_default()
}

impl Shape {
    /// Returns the shape of a topology in a configuration.
    pub(super) fn written(topology: &TopologyConfig) -> Shape {
        let plugin = match topology.plugin {
            Plugin::Tree => "tree",
            Plugin::Block => "block",
            Plugin::None => "none",
        };
        let mut shape = Shape { plugin: plugin.to_owned(), ..Shape::default() };
        for switch in &topology.switches {
            match (&switch.nodes, &switch.switches) {
                (Some(nodes), _) => shape.leaf(&switch.name, nodes),
                (None, children) => shape.above(&switch.name, children.as_deref().unwrap_or_default()),
            }
        }
        topology.blocks.iter().for_each(|block| shape.leaf(&block.name, &block.nodes));
        shape
    }

    /// Returns the shape of a topology as the controller reports it.
    pub(super) fn running(topology: &Topology) -> Shape {
        let mut shape = Shape { plugin: topology.plugin.clone(), ..Shape::default() };
        for domain in &topology.domains {
            match domain.level {
                0 => shape.leaf(&domain.name, &domain.nodes),
                _ if domain.aggregate => {}
                _ => shape.above(&domain.name, &domain.children),
            }
        }
        shape
    }

    fn leaf(&mut self, name: &str, nodes: &str) {
        self.leaves.insert(name.to_owned(), names(nodes).into_iter().collect());
    }

    fn above(&mut self, name: &str, children: &str) {
        self.parents.extend(names(children).into_iter().map(|child| (child, name.to_owned())));
    }

    /// Returns the number of leaves or base blocks.
    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Returns the leaf of each node.
    fn leaf_of(&self) -> BTreeMap<&str, &str> {
        let pairs = self.leaves.iter().map(|(leaf, nodes)| nodes.iter().map(move |node| (&**node, &**leaf)));
        pairs.flatten().collect()
    }
}

/// Returns a sentence for each difference: leaves that were added, removed or renamed, nodes that moved, and
/// changed parents.
pub(super) fn differences(before: &Shape, after: &Shape) -> Vec<String> {
    let mut said = Vec::new();
    if before.plugin != after.plugin && !before.plugin.is_empty() {
        said.push(format!("plugin {}: was {}", after.plugin, before.plugin));
    }
    let renamed = renamed(before, after);
    let new_names: BTreeMap<&str, &str> = renamed.iter().map(|(new, old)| (*old, *new)).collect();
    for (new, old) in &renamed {
        said.push(format!("leaf {new}: was called {old}"));
    }
    for (name, nodes) in &after.leaves {
        if !before.leaves.contains_key(name) && !renamed.contains_key(&**name) {
            said.push(format!("leaf {name} came, with {}", list(nodes)));
        }
    }
    for (name, nodes) in &before.leaves {
        if !after.leaves.contains_key(name) && !new_names.contains_key(&**name) {
            said.push(format!("leaf {name} went, which had {}", list(nodes)));
        }
    }
    said.extend(moves(before, after, &new_names));
    for (child, parent) in &after.parents {
        let old = renamed.get(&**child).copied().unwrap_or(child);
        match before.parents.get(old) {
            Some(was) if was != parent => {
                said.push(format!("switch {child} is below {parent}: was below {was}"))
            }
            None if before.leaves.contains_key(old) || before.parents.values().any(|name| name == old) => {
                said.push(format!("switch {child} is below {parent}: was at the top"));
            }
            _ => {}
        }
    }
    for (child, was) in &before.parents {
        let new = new_names.get(&**child).copied().unwrap_or(child);
        let is_there = after.leaves.contains_key(new) || after.parents.values().any(|name| name == new);
        if is_there && !after.parents.contains_key(new) {
            said.push(format!("switch {new} is at the top: was below {was}"));
        }
    }
    said
}

/// Returns the renamed leaves as pairs of new and old name. The two leaves share more than half of the nodes
/// of each, and neither name is in both topologies.
fn renamed<'a>(before: &'a Shape, after: &'a Shape) -> BTreeMap<&'a str, &'a str> {
    let leaf_before = before.leaf_of();
    let mut renamed = BTreeMap::new();
    for (name, nodes) in after.leaves.iter().filter(|(name, _)| !before.leaves.contains_key(*name)) {
        let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
        for old in nodes.iter().filter_map(|node| leaf_before.get(&**node)) {
            *shared.entry(old).or_default() += 1;
        }
        let most = shared.into_iter().max_by_key(|(_, count)| *count);
        if let Some((old, count)) = most.filter(|(old, _)| !after.leaves.contains_key(*old))
            && count * 2 > nodes.len().max(before.leaves[old].len())
        {
            renamed.insert(&**name, old);
        }
    }
    renamed
}

/// Returns sentences about nodes that moved, were added or were removed.
fn moves(before: &Shape, after: &Shape, new_names: &BTreeMap<&str, &str>) -> Vec<String> {
    let (leaf_before, leaf_after) = (before.leaf_of(), after.leaf_of());
    let mut moved: BTreeMap<(Option<&str>, Option<&str>), BTreeSet<String>> = BTreeMap::new();
    let nodes: BTreeSet<&str> = leaf_before.keys().chain(leaf_after.keys()).copied().collect();
    for node in nodes {
        let old = leaf_before.get(node).copied();
        let now = leaf_after.get(node).copied();
        let old_here = old.map(|old| new_names.get(old).copied().unwrap_or(old));
        if old_here != now {
            moved.entry((old, now)).or_default().insert(node.to_owned());
        }
    }
    let sentence = |((old, now), nodes): ((Option<&str>, Option<&str>), BTreeSet<String>)| {
        let nodes = list(&nodes);
        match (old, now) {
            (Some(old), Some(now)) => format!("{nodes}: from {old} to {now}"),
            (Some(old), None) => format!("{nodes}: was in {old}, is in no leaf"),
            (None, now) => format!("{nodes}: was in no leaf, is in {}", now.unwrap_or_default()),
        }
    };
    moved.into_iter().map(sentence).collect()
}

fn list(nodes: &BTreeSet<String>) -> String {
    match nodes.is_empty() {
        true => "no nodes".to_owned(),
        false => HostList::from_names(nodes).sorted().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `a: n1 n2; s > a b`.
    fn shape(text: &str) -> Shape {
        let mut shape = Shape { plugin: "tree".into(), ..Shape::default() };
        for part in text.split(';') {
            match (part.split_once(':'), part.split_once('>')) {
                (Some((name, nodes)), _) => {
                    shape.leaf(name.trim(), &nodes.split_whitespace().collect::<Vec<_>>().join(","));
                }
                (None, Some((name, children))) => {
                    shape.above(name.trim(), &children.split_whitespace().collect::<Vec<_>>().join(","));
                }
                (None, None) => {}
            }
        }
        shape
    }

    #[test]
    fn every_difference_has_a_sentence() {
        let before = "a: n1 n2; b: n3 n4; s > a b";
        for (after, expected) in [
            (before, ""),
            ("a: n1; b: n2 n3 n4; s > a b", "n2: from a to b"),
            ("a: n1 n2; b: n3; s > a b", "n4: was in b, is in no leaf"),
            ("a: n1 n2; b: n3 n4 n5; s > a b", "n5: was in no leaf, is in b"),
            ("a: n1 n2; c: n3 n4; s > a c", "leaf c: was called b"),
            ("a: n1 n2 n3 n4; s > a", "leaf b went, which had n[3-4]|n[3-4]: from b to a"),
            ("a: n1 n2; b: n3 n4; c: n5; s > a b c", "leaf c came, with n5|n5: was in no leaf, is in c"),
            (
                "a: n1 n2; b: n3 n4; t > a b",
                "switch a is below t: was below s|switch b is below t: was below s",
            ),
            ("a: n1 n2; b: n3 n4", "switch a is at the top: was below s|switch b is at the top: was below s"),
            ("a: n1 n2; b: n3 n4; s > a b; r > s", "switch s is below r: was at the top"),
        ] {
            assert_eq!(differences(&shape(before), &shape(after)).join("|"), expected, "{after}");
        }
    }
}
