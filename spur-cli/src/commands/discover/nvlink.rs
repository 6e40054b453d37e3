//! NVLink cliques: derives them from the output of `nvidia-smi` on each node, and places them in a tree.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::text::clique::{self, GpuLine};
use spur_core::text::hostlist::{HostList, compare_names};

use crate::commands::import::tree::Switch;

/// Name of the layer of cliques.
pub(super) const LAYER: &str = "nvl";
/// Names of the layers above the cliques, from the bottom up.
const ABOVE: [&str; 3] = ["leaf", "spine", "core"];

/// The clique of each node that belongs to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cliques {
    /// Clique of each node, by name, as `CLUSTER.CLIQUE`.
    of: BTreeMap<String, String>,
    /// Sentences about nodes without a clique.
    pub(super) left_out: Vec<String>,
}

/// Parses lines `HOST: CLUSTER, CLIQUE`, one per GPU; a line without a host belongs to the host `local`.
///
/// # Errors
/// The first line without a host or with another format, with its number.
pub(super) fn read(text: &str, local: Option<&str>) -> Result<Cliques, String> {
    let mut said: BTreeMap<String, BTreeSet<Option<String>>> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(gpu) = GpuLine::parse(line) else {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            return Err(format!("line {number}: `{line}` is not HOST: CLUSTER-UUID, CLIQUE-ID"));
        };
        let Some(host) = gpu.host.or(local) else {
            let help = "write the host before it, as `clush -L` and `pdsh` do: n1: UUID, 0";
            return Err(format!("line {number}: `{line}` does not say of which host it is; {help}"));
        };
        said.entry(host.to_owned()).or_default().insert(gpu.clique());
    }
    Ok(Cliques::of_gpus(said))
}

impl Cliques {
    /// Combines the cliques of the GPUs of each node.
    fn of_gpus(said: BTreeMap<String, BTreeSet<Option<String>>>) -> Cliques {
        let mut cliques = Cliques::default();
        let mut without = Vec::new();
        for (host, gpus) in said {
            match &Vec::from_iter(gpus)[..] {
                [Some(clique)] => drop(cliques.of.insert(host, clique.clone())),
                [None] => without.push(host),
                several => {
                    let shown = several.iter().map(|clique| clique.as_deref().unwrap_or("none"));
                    let shown = shown.collect::<Vec<_>>().join(", ");
                    cliques
                        .left_out
                        .push(format!("the GPUs of {host} are in different NVLink cliques: {shown}"));
                }
            }
        }
        if !without.is_empty() {
            let list = HostList::from_names(&without).sorted();
            cliques.left_out.push(format!("in no NVLink clique: {list}"));
        }
        cliques
    }

    /// Adds a node to a clique.
    pub(super) fn add(&mut self, host: &str, clique: &str) {
        self.of.insert(host.to_owned(), clique.to_owned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Removes the nodes for which `refusal` returns a reason, and records each reason with its nodes.
    pub(super) fn keep(&mut self, refusal: impl Fn(&str) -> Option<&'static str>) {
        let mut refused: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        self.of.retain(|host, _| match refusal(host) {
            Some(why) => {
                refused.entry(why).or_default().push(host.clone());
                false
            }
            None => true,
        });
        let sentence = |(why, hosts)| format!("{} {why}", HostList::from_names::<String>(hosts).sorted());
        self.left_out.extend(refused.into_iter().map(sentence));
    }

    /// Returns a short name for each clique: the prefix of the cluster's UUID that distinguishes the cliques.
    fn names(&self) -> BTreeMap<&str, String> {
        let cliques: BTreeSet<&str> = self.of.values().map(String::as_str).collect();
        let named = |name: fn(&str, &str) -> String| -> BTreeMap<&str, String> {
            cliques.iter().map(|&clique| (clique, name(LAYER, clique))).collect()
        };
        let short = named(clique::short_name);
        let differ = short.values().collect::<BTreeSet<_>>().len() == cliques.len();
        if differ { short } else { named(clique::full_name) }
    }

    /// Returns each clique with its nodes, both in the order of names.
    pub(super) fn blocks(&self) -> Vec<(String, Vec<String>)> {
        let names = self.names();
        let mut blocks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (host, clique) in &self.of {
            blocks.entry(&names[&**clique]).or_default().push(host.clone());
        }
        let mut blocks: Vec<(String, Vec<String>)> =
            blocks.into_iter().map(|(name, hosts)| (name.to_owned(), hosts)).collect();
        blocks.iter_mut().for_each(|(_, hosts)| hosts.sort_by(|a, b| compare_names(a, b)));
        blocks.sort_by(|(a, _), (b, _)| compare_names(a, b));
        blocks
    }

    /// Returns a sentence for each clique whose nodes are in several units of a tree.
    pub(super) fn crossing(&self, tree: &[Switch]) -> Vec<String> {
        let units = units(tree);
        let mut crossing = Vec::new();
        for (name, hosts) in self.blocks() {
            let of: BTreeSet<&str> = hosts.iter().filter_map(|host| units.get(&**host)).copied().collect();
            if of.len() > 1 {
                let list = HostList::from_names(of);
                crossing.push(format!("NVLink clique {name} crosses units: {list}"));
            }
        }
        crossing
    }

    /// Places the cliques below the units of a tree. A node without a clique gets its own domain, so that no
    /// job assumes NVLink between it and another node.
    pub(super) fn nest(&mut self, tree: &mut Vec<Switch>) {
        let names = self.names();
        let mut below = Vec::new();
        for unit in tree.iter_mut().filter(|switch| !switch.nodes.is_empty()) {
            let mut domains: Vec<Switch> = Vec::new();
            for node in std::mem::take(&mut unit.nodes) {
                let name = match self.of.get(&node) {
                    Some(clique) => names[&**clique].clone(),
                    None => format!("{LAYER}-{node}"),
                };
                match domains.iter_mut().find(|domain| domain.name == name) {
                    Some(domain) => domain.nodes.push(node),
                    None => domains.push(Switch { name, nodes: vec![node], ..Switch::default() }),
                }
            }
            domains.sort_by(|a, b| compare_names(&a.name, &b.name));
            unit.children = domains.iter().map(|domain| domain.name.clone()).collect();
            below.extend(domains);
        }
        let placed: BTreeSet<&String> = below.iter().flat_map(|domain| &domain.nodes).collect();
        let outside: Vec<&String> = self.of.keys().filter(|host| !placed.contains(host)).collect();
        if !outside.is_empty() {
            let list = HostList::from_names(outside).sorted();
            self.left_out.push(format!("in an NVLink clique and in no unit of the tree: {list}"));
        }
        tree.splice(0..0, below);
    }
}

/// Returns the unit of each node of a tree.
fn units(tree: &[Switch]) -> BTreeMap<&str, &str> {
    tree.iter().flat_map(|unit| unit.nodes.iter().map(|node| (&**node, &*unit.name))).collect()
}

/// Returns the names of the layers of a tree whose lowest layer consists of cliques.
pub(super) fn layers(tree: &[Switch]) -> Vec<String> {
    let switches: BTreeMap<&str, &Switch> = tree.iter().map(|switch| (&*switch.name, switch)).collect();
    fn height(switches: &BTreeMap<&str, &Switch>, name: &str) -> usize {
        let children = switches.get(name).into_iter().flat_map(|switch| &switch.children);
        children.map(|child| height(switches, child) + 1).max().unwrap_or_default()
    }
    let height = switches.keys().map(|name| height(&switches, name)).max().unwrap_or_default();
    let above = ABOVE.iter().take(height);
    std::iter::once(LAYER).chain(above.copied()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-1111-2222-3333-444444444444";
    const B: &str = "bbbbbbbb-1111-2222-3333-444444444444";

    #[test]
    fn lines_of_several_tools_say_the_same() {
        let text = format!(
            "n1: {A}, 7\nn1: {A}, 7\nn2: {A}, 7\n# a comment\n\nn3,{B},7\nn4 {B} 7 Completed\n\
             n5: [N/A], [N/A]\nn6: {A}, 7\nn6: {B}, 7\nn7: 00000000-0000-0000-0000-000000000000, 0\n\
             n8: {A}, 7, In Progress\nn9,{A},7,Not Started\n"
        );
        let cliques = read(&text, None).unwrap();
        let refused = read(&format!("{text}n9 is up\n"), None).unwrap_err();
        assert!(refused.starts_with("line 14: "), "{refused}");
        let shown: Vec<String> =
            cliques.blocks().iter().map(|(name, nodes)| format!("{name} {}", nodes.join(" "))).collect();
        assert_eq!(shown, ["nvl-aaaaaaaa-7 n1 n2", "nvl-bbbbbbbb-7 n3 n4"]);
        assert_eq!(cliques.left_out.len(), 2, "{:?}", cliques.left_out);
        assert!(cliques.left_out[0].contains("n6") && cliques.left_out[1].ends_with("n[5,7-9]"));
    }

    #[test]
    fn a_line_without_a_host_is_of_the_local_one() {
        let text = format!("{A}, 7\n");
        assert!(read(&text, None).unwrap_err().contains("which host"));
        assert_eq!(read(&text, Some("n1")).unwrap().blocks().len(), 1);
    }

    #[test]
    fn cliques_of_one_cluster_are_told_apart() {
        let twins = format!("n1: {A}, 7\nn2: {}, 7\nn3: {A}, 8\n", A.replace("4444", "5555"));
        let names: Vec<String> =
            read(&twins, None).unwrap().blocks().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}
