//! Building of a fabric: checks a topology and turns it into a forest. All mistakes are collected.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::{self, Forest, Seed};
use super::table::{Faults, Table, check_name, read_link};
use super::{Fabric, FabricError, Fault, names, tree};
use crate::id::NodeId;
use crate::model::topology::{Line, Plugin, TopologyConfig};

/// Default sizes of aggregates, in base blocks.
const DEFAULT_MULTIPLES: [u32; 4] = [2, 4, 8, 16];

/// The largest number of layers above the nodes.
const MAX_LAYERS: usize = 64;

/// Builds a fabric; see [`Fabric::build`].
pub(super) fn build(
    config: &TopologyConfig,
    nodes: &[(NodeId, &str)],
    moved: &[(NodeId, Option<&str>)],
) -> Result<Fabric, Vec<FabricError>> {
    let mut faults = Faults { topology: &config.name, found: Vec::new() };
    let ids: BTreeMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, (id, _))| (*id, i)).collect();
    let mut table = Table {
        index: nodes.iter().enumerate().map(|(i, (_, name))| (*name, i)).collect(),
        taken: BTreeMap::new(),
        moved: moved.iter().filter_map(|(id, place)| Some((*ids.get(id)?, *place))).collect(),
    };
    check_sections(config, &mut faults);
    let mut forest = match config.plugin {
        Plugin::Tree => tree::plant(config, &mut table, &mut faults),
        Plugin::Block => blocks(config, nodes.len(), &mut table, &mut faults),
        Plugin::None => Forest {
            name: &config.name,
            plugin: Plugin::None,
            seeds: Vec::new(),
            roots: Vec::new(),
            layers: vec!["node".to_owned()],
            hidden_top: false,
            base_size: 0,
            multiples: Vec::new(),
        },
    };
    if config.plugin == Plugin::Tree {
        add_leaves(&mut forest, &table, &mut faults);
    }
    move_nodes(&mut forest, &table, nodes, &mut faults);
    name_layers(config, &mut forest, &mut faults);
    check_rules(config, &forest, &mut faults);
    if faults.found.is_empty() { Ok(shape::number(forest, nodes)) } else { Err(faults.found) }
}

/// Builds a fabric without domains; see [`Fabric::flat`].
pub(super) fn flat(name: &str, nodes: &[(NodeId, &str)]) -> Fabric {
    shape::number(bare(name), nodes)
}

/// A forest without any domain.
fn bare(name: &str) -> Forest<'_> {
    Forest {
        name,
        plugin: Plugin::None,
        seeds: Vec::new(),
        roots: Vec::new(),
        layers: vec!["node".to_owned()],
        hidden_top: false,
        base_size: 0,
        multiples: Vec::new(),
    }
}

fn plugin_name(plugin: Plugin) -> &'static str {
    match plugin {
        Plugin::Tree => "tree",
        Plugin::Block => "block",
        Plugin::None => "none",
    }
}

/// Refuses keys that the plugin would ignore, and plugins without their keys.
fn check_sections(config: &TopologyConfig, faults: &mut Faults<'_>) {
    let plugin = plugin_name(config.plugin);
    let line = config.line;
    let tree = config.plugin == Plugin::Tree;
    let block = config.plugin == Plugin::Block;
    let mut unused = |there: bool, keys, wants| {
        if there {
            faults.add(line, Fault::Unused { plugin, keys, wants });
        }
    };
    unused(!tree && !config.switches.is_empty(), "switches", "tree");
    unused(!block && !config.blocks.is_empty(), "blocks", "block");
    unused(!block && config.block_size.is_some(), "block_size", "block");
    unused(!block && !config.block_sizes.is_empty(), "block_sizes", "block");
    unused(!tree && !block && !config.layers.is_empty(), "layers", "tree");
    unused(!tree && !block && !config.rule.is_empty(), "rule", "tree");
    unused(!tree && !block && config.limits != Default::default(), "limits", "tree");
    if tree && config.switches.is_empty() {
        faults.add(line, Fault::Missing { plugin, needs: "at least one [[topology.switches]]" });
    }
    if block && config.blocks.is_empty() && config.block_size.is_none() && config.block_sizes.is_empty() {
        faults.add(
            line,
            Fault::Missing { plugin, needs: "[[topology.blocks]], or block_size to cut the node table" },
        );
    }
    let zeros = [
        ("limits.max_nodes_per_leaf", config.limits.max_nodes_per_leaf == Some(0)),
        ("limits.max_gpus_per_leaf", config.limits.max_gpus_per_leaf == Some(0)),
        ("block_size", config.block_size == Some(0)),
        ("search_budget", config.search_budget == 0),
    ];
    for (key, zero) in zeros {
        if zero {
            faults.add(line, Fault::Zero { key });
        }
    }
    for rule in &config.rule {
        for (key, zero) in
            [("rule.max_nodes", rule.max_nodes == Some(0)), ("rule.adjacent", rule.adjacent == Some(0))]
        {
            if zero {
                faults.add(rule.line, Fault::Zero { key });
            }
        }
    }
}

/// Builds base blocks and their aligned aggregates.
fn blocks<'a>(
    config: &'a TopologyConfig,
    count: usize,
    table: &mut Table<'_>,
    faults: &mut Faults<'_>,
) -> Forest<'a> {
    let mut seeds = base_blocks(config, count, table, faults);
    if !config.blocks.is_empty() {
        seeds.extend(new_leaves(&seeds, table, faults));
    }
    let named = config.block_sizes.first().copied().or(config.block_size);
    // A node that was moved does not change the size of a block.
    let configured = |seed: &Seed| table.taken.values().filter(|domain| **domain == seed.name).count();
    let first = seeds.iter().map(configured).find(|&len| len > 0).unwrap_or(0);
    let base = named.unwrap_or_else(|| u32::try_from(first).expect("a cluster has fewer than 2^32 nodes"));
    let mut layers = vec!["node".to_owned(), "block".to_owned()];
    let mut sizes = vec![0, 1];
    let mut below: Vec<usize> = (0..seeds.len()).collect();
    let bases = seeds.len();
    let mut span = 1;
    for multiple in multiples(config, base, faults) {
        let level = u8::try_from(layers.len()).unwrap_or(u8::MAX);
        layers.push(format!("block{multiple}"));
        sizes.push(multiple);
        let per = (multiple / span).max(1) as usize;
        span = multiple;
        below = aggregate(&mut seeds, &below, per, level, bases, multiple as usize);
    }
    let hidden_top = below.len() > 1;
    if hidden_top {
        let level = u8::try_from(layers.len()).unwrap_or(u8::MAX);
        layers.push("topology".to_owned());
        seeds.push(Seed { name: config.name.clone(), level, children: below, ..Seed::default() });
        below = vec![seeds.len() - 1];
    }
    let plugin = Plugin::Block;
    Forest {
        name: &config.name,
        plugin,
        seeds,
        roots: below,
        layers,
        hidden_top,
        base_size: base,
        multiples: sizes,
    }
}

/// Joins the domains of one level, `per` at a time; returns the new domains.
fn aggregate(
    seeds: &mut Vec<Seed>,
    below: &[usize],
    per: usize,
    level: u8,
    bases: usize,
    multiple: usize,
) -> Vec<usize> {
    let mut made = Vec::new();
    for (index, members) in below.chunks(per).enumerate() {
        let covered = index * multiple..bases.min((index + 1) * multiple);
        let name = names::compress(&seeds[covered].iter().map(|seed| seed.name.as_str()).collect::<Vec<_>>());
        seeds.push(Seed { name, level, children: members.to_vec(), ..Seed::default() });
        made.push(seeds.len() - 1);
    }
    made
}

fn base_blocks(
    config: &TopologyConfig,
    count: usize,
    table: &mut Table<'_>,
    faults: &mut Faults<'_>,
) -> Vec<Seed> {
    if config.blocks.is_empty() {
        let size = config.block_size.or(config.block_sizes.first().copied()).unwrap_or(1).max(1) as usize;
        let all: Vec<usize> = (0..count).collect();
        let block = |(index, nodes): (usize, &[usize])| {
            let name = format!("block{index:03}");
            let nodes = nodes.iter().copied().filter(|node| table.stays(*node, &name)).collect();
            Seed { name, level: 1, nodes, ..Seed::default() }
        };
        return all.chunks(size).enumerate().map(block).collect();
    }
    let mut seen: BTreeMap<&str, Line> = BTreeMap::new();
    let mut seeds = Vec::new();
    for block in &config.blocks {
        check_name(&block.name, block.line, faults);
        if let Some(first) = seen.insert(&block.name, block.line) {
            faults.add(block.line, Fault::Duplicate { name: block.name.clone(), first });
        }
        let link =
            read_link(&block.name, block.link_speed.as_deref(), block.latency.as_deref(), block.line, faults);
        let nodes = table.take(&block.name, &block.nodes, block.line, faults);
        seeds.push(Seed { name: block.name.clone(), level: 1, nodes, link, ..Seed::default() });
    }
    seeds
}

/// The configured sizes of aggregates in base blocks, checked.
fn multiples(config: &TopologyConfig, base: u32, faults: &mut Faults<'_>) -> Vec<u32> {
    let sizes = &config.block_sizes;
    if sizes.is_empty() {
        return DEFAULT_MULTIPLES.to_vec();
    }
    if base == 0 || sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
        faults.add(config.line, Fault::BlockSizeOrder(sizes.clone()));
        return Vec::new();
    }
    if let Some(size) = config.block_size
        && size != base
    {
        faults.add(config.line, Fault::BlockSizeConflict { size, base });
    }
    let mut multiples = Vec::new();
    for &size in &sizes[1..] {
        if size % base == 0 && (size / base).is_power_of_two() {
            multiples.push(size / base);
        } else {
            faults.add(config.line, Fault::BadBlockSize { size, base });
        }
    }
    multiples
}

/// Returns a leaf for each name to which a node was moved and that no domain has.
fn new_leaves(seeds: &[Seed], table: &Table<'_>, faults: &mut Faults<'_>) -> Vec<Seed> {
    let known: BTreeSet<&str> = seeds.iter().map(|seed| seed.name.as_str()).collect();
    let names: BTreeSet<&str> = table.moved.values().copied().flatten().collect();
    let leaf = |name: &str| Seed { name: name.to_owned(), level: 1, ..Seed::default() };
    let new: Vec<Seed> = names.difference(&known).map(|name| leaf(name)).collect();
    new.iter().for_each(|seed| check_name(&seed.name, Line(None), faults));
    new
}

/// Adds the leaves of a tree to which nodes were moved and that the configuration does not name: below the
/// root if there is one above switches, otherwise as roots of their own.
fn add_leaves(forest: &mut Forest<'_>, table: &Table<'_>, faults: &mut Faults<'_>) {
    for leaf in new_leaves(&forest.seeds, table, faults) {
        let index = forest.seeds.len();
        forest.seeds.push(leaf);
        match forest.roots[..] {
            [root] if !forest.seeds[root].children.is_empty() => forest.seeds[root].children.push(index),
            _ => forest.roots.push(index),
        }
    }
}

/// Moves nodes to the places that the administrator chose, after the nodes that are configured there.
fn move_nodes(forest: &mut Forest<'_>, table: &Table<'_>, nodes: &[(NodeId, &str)], faults: &mut Faults<'_>) {
    for (&node, place) in &table.moved {
        let Some(place) = *place else { continue };
        let why = match forest.seeds.iter_mut().find(|seed| seed.name == place) {
            Some(seed) if seed.level == 1 && seed.children.is_empty() => {
                if !seed.nodes.contains(&node) {
                    seed.nodes.push(node);
                }
                continue;
            }
            Some(_) => "holds domains, not nodes: name a leaf or a base block",
            None => "is no domain of this topology",
        };
        let fault = Fault::BadPlace { node: nodes[node].1.to_owned(), domain: place.to_owned(), why };
        faults.add(Line(None), fault);
    }
}

/// Refuses rules that name a layer which does not exist.
fn check_rules(config: &TopologyConfig, forest: &Forest<'_>, faults: &mut Faults<'_>) {
    let known = &forest.layers[..forest.layers.len() - usize::from(forest.hidden_top)];
    let gathers = config.rule.iter().filter_map(|rule| Some((rule.line, rule.gather.as_ref()?)));
    for (line, gather) in gathers {
        for clause in &gather.clauses {
            if !known.iter().any(|layer| layer == clause.layer()) {
                let (layer, known) = (clause.layer().to_owned(), known.to_vec());
                faults.add(line, Fault::UnknownLayer { text: gather.to_string(), layer, known });
            }
        }
    }
}

/// Replaces the default names of layers by the administrator's.
fn name_layers(config: &TopologyConfig, forest: &mut Forest<'_>, faults: &mut Faults<'_>) {
    if config.plugin == Plugin::None {
        return;
    }
    let line = config.line;
    let have = forest.layers.len() - 1 - usize::from(forest.hidden_top);
    if have > MAX_LAYERS {
        let why = "is one of more than 64 layers: join some of them";
        faults.add(line, Fault::BadLayer { name: forest.layers[MAX_LAYERS].clone(), why });
    }
    // Without a connected forest, the number of layers is not known.
    if config.layers.len() > have && have > 0 && faults.found.iter().all(|error| error.fault.keeps_shape()) {
        let extra = config.layers[have..].to_vec();
        faults.add(line, Fault::ExtraLayers { named: config.layers.len(), have, extra });
    }
    for (slot, name) in forest.layers[1..=have].iter_mut().zip(&config.layers) {
        slot.clone_from(name);
    }
    for (index, name) in forest.layers[..=have].iter().enumerate() {
        let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let why = if name.is_empty() || !name.chars().all(good) {
            "is not made of letters, digits, '-', '_' and '.'"
        } else if index > 0 && name == "node" {
            "is taken: node is always the lowest layer"
        } else if forest.layers[..index].contains(name) {
            "is used twice: name each layer differently"
        } else {
            continue;
        };
        faults.add(line, Fault::BadLayer { name: name.clone(), why });
    }
}
