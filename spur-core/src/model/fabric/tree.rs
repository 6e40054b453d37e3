//! Tree topologies: the hierarchy of switches and its mistakes.

use std::collections::BTreeMap;

use super::shape::{Forest, Seed, last_part};
use super::table::{Faults, Table, check_name, expand, read_link};
use super::{Fault, names};
use crate::model::topology::{Line, Plugin, SwitchConfig, TopologyConfig};

/// Default names of the lowest layers of a tree.
const DEFAULT_LAYERS: [&str; 3] = ["leaf", "spine", "core"];

/// Switches by name; a last part that several switches share denotes none.
struct Names<'a> {
    full: BTreeMap<&'a str, usize>,
    last: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> Names<'a> {
    fn read(switches: &'a [SwitchConfig], faults: &mut Faults<'_>) -> Self {
        let mut names = Self { full: BTreeMap::new(), last: BTreeMap::new() };
        for (index, switch) in switches.iter().enumerate() {
            check_name(&switch.name, switch.line, faults);
            if let Some(&first) = names.full.get(switch.name.as_str()) {
                let first = switches[first].line;
                faults.add(switch.line, Fault::Duplicate { name: switch.name.clone(), first });
                continue;
            }
            names.full.insert(&switch.name, index);
            names.last.entry(last_part(&switch.name)).and_modify(|only| *only = None).or_insert(Some(index));
        }
        names
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.full.get(name).copied().or_else(|| self.last.get(name).copied().flatten())
    }
}

/// Builds the forest of a tree topology.
pub(super) fn plant<'a>(
    config: &'a TopologyConfig,
    table: &mut Table<'_>,
    faults: &mut Faults<'_>,
) -> Forest<'a> {
    let switches = &config.switches;
    let by_name = Names::read(switches, faults);
    let mut seeds: Vec<Seed> = Vec::with_capacity(switches.len());
    let mut parent: Vec<Option<usize>> = vec![None; switches.len()];
    for (index, switch) in switches.iter().enumerate() {
        let (name, line) = (&switch.name, switch.line);
        let link = read_link(name, switch.link_speed.as_deref(), switch.latency.as_deref(), line, faults);
        let mut seed = Seed { name: name.clone(), link, ..Seed::default() };
        match (&switch.nodes, &switch.switches) {
            (Some(nodes), None) => seed.nodes = table.take(name, nodes, line, faults),
            (None, Some(list)) => {
                for child in expand(name, list, line, faults) {
                    seed.children.extend(adopt(&child, index, switches, &by_name, &mut parent, faults));
                }
                // Fabric order is file order, whatever the order in which the parent names its children.
                seed.children.sort_unstable();
                if list.trim().is_empty() {
                    faults.add(line, Fault::Neither(name.clone()));
                }
            }
            (None, None) => faults.add(line, Fault::Neither(name.clone())),
            (Some(_), Some(_)) => faults.add(line, Fault::Both(name.clone())),
        }
        seeds.push(seed);
    }
    let roots = (0..seeds.len()).filter(|&index| parent[index].is_none()).collect();
    find_cycles(switches, &parent, faults);
    let height = raise(&mut seeds, &parent);
    let layers = std::iter::once("node".to_owned())
        .chain((0..usize::from(height)).map(|layer| match DEFAULT_LAYERS.get(layer) {
            Some(name) => (*name).to_owned(),
            None => format!("layer{}", layer + 1),
        }))
        .collect();
    Forest {
        name: &config.name,
        plugin: Plugin::Tree,
        seeds,
        roots,
        layers,
        hidden_top: false,
        base_size: 0,
        multiples: Vec::new(),
    }
}

/// Makes a named switch the child of a parent and returns the child's index; `None` if the link is refused.
fn adopt(
    child: &str,
    index: usize,
    switches: &[SwitchConfig],
    by_name: &Names<'_>,
    parent: &mut [Option<usize>],
    faults: &mut Faults<'_>,
) -> Option<usize> {
    let line = switches[index].line;
    let own = || switches[index].name.clone();
    let Some(found) = by_name.find(child) else {
        let near = names::nearest(child, switches.iter().map(|switch| switch.name.as_str()));
        faults.add(line, Fault::UnknownChild { parent: own(), child: child.to_owned(), near });
        return None;
    };
    if let Some(first) = parent[found] {
        let (child, first) = (switches[found].name.clone(), switches[first].name.clone());
        faults.add(line, Fault::TwoParents { child, first, second: own() });
        return None;
    }
    parent[found] = Some(index);
    Some(found)
}

/// Reports each cycle once. As each switch has one parent, a climb that never ends shows a cycle above.
fn find_cycles(switches: &[SwitchConfig], parent: &[Option<usize>], faults: &mut Faults<'_>) {
    let mut state = vec![0_usize; switches.len()];
    for start in 0..switches.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        while let Some(index) = at
            && state[index] == 0
        {
            state[index] = start + 1;
            path.push(index);
            at = parent[index];
        }
        if let Some(index) = at
            && state[index] == start + 1
            && let Some(from) = path.iter().position(|&other| other == index)
        {
            let mut names: Vec<String> =
                path[from..].iter().rev().map(|&index| switches[index].name.clone()).collect();
            names.push(names[0].clone());
            let line = path[from..].iter().filter_map(|&index| switches[index].line.0).max();
            faults.add(Line(line), Fault::Cycle(names));
        }
    }
}

/// Sets the level of every switch, counted from the nodes; returns the highest. Switches on a cycle keep a
/// level that is never used, since the topology is refused.
fn raise(seeds: &mut [Seed], parent: &[Option<usize>]) -> u8 {
    let mut left: Vec<usize> = seeds.iter().map(|seed| seed.children.len()).collect();
    let mut ready: Vec<usize> = (0..seeds.len()).filter(|&index| left[index] == 0).collect();
    let mut height = 0;
    while let Some(index) = ready.pop() {
        let below = seeds[index].children.iter().map(|&child| seeds[child].level).max().unwrap_or(0);
        seeds[index].level = below.saturating_add(1);
        height = height.max(seeds[index].level);
        if let Some(up) = parent[index] {
            left[up] -= 1;
            if left[up] == 0 {
                ready.push(up);
            }
        }
    }
    height
}
