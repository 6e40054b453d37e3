//! Reading of `[topology]` and `[[topologies]]`, which are then checked as fabrics.

use std::collections::BTreeMap;

use super::nodes::Nodes;
use super::policy::set;
use super::section::Section;
use crate::id::NodeId;
use crate::model::fabric::{Fabric, Fault};
use crate::model::topology::{
    BlockConfig, DEFAULT_TOPOLOGY, LimitsConfig, Line, Plugin, RuleConfig, ScoreBefore, SwitchConfig,
    TopologyConfig, Weight, WeightsConfig,
};
use crate::text::gather::is_layer_name;

/// The largest weight of the settable score.
const MOST_WEIGHT: f64 = 1000.0;
/// Factor of a stored weight: weights are stored in millionths.
const MILLION: f64 = 1e6;

/// Reads every topology: `default` first, if present, then in file order.
pub(super) fn topologies(top: &mut Section<'_>, nodes: &Nodes) -> Vec<TopologyConfig> {
    let table: Vec<(NodeId, &str)> =
        (0_u32..).map(NodeId).zip(nodes.known.iter().map(|node| &*node.name)).collect();
    let mut topologies: Vec<TopologyConfig> = Vec::new();
    let mut first_lines: BTreeMap<String, u32> = BTreeMap::new();
    let default = top.section("topology").map(|section| (section, true));
    let named = top.sections("topologies").into_iter().map(|section| (section, false));
    for (mut section, is_default) in default.into_iter().chain(named) {
        let name = if is_default { DEFAULT_TOPOLOGY } else { name(&mut section) };
        let (topology, is_understood) = topology(&mut section, name);
        if let Some(line) = first_lines.insert(name.to_owned(), section.line()) {
            let problem = format!("topology {name} is defined twice, first on line {line}");
            section.refuse("name", problem);
        }
        // With another plugin than the intended one, everything would be a mistake.
        let checked = is_understood.then(|| Fabric::build(&topology, &table, &[]));
        let errors = checked.and_then(Result::err).into_iter().flatten();
        for error in errors.filter(|error| nodes.are_all || !matches!(error.fault, Fault::UnknownNode { .. }))
        {
            section.refuse_at(error.line.0.unwrap_or(section.line()), "", error.fault);
        }
        section.finish();
        if !name.is_empty() && !topologies.iter().any(|other| other.name == name) {
            topologies.push(topology);
        }
    }
    topologies
}

fn name<'a>(section: &mut Section<'a>) -> &'a str {
    let name = section.required_name("name").unwrap_or_default();
    if !name.is_empty() && !is_layer_name(name) {
        let help = "use letters, digits, `_`, `-` and `.`";
        section.refuse("name", format_args!("`{name}` cannot be the name of a topology; {help}"));
    }
    if ["tree", "block", "none"].contains(&name) {
        section
            .refuse("name", format_args!("`{name}` has a meaning of its own in --topology; choose another"));
    }
    name
}

/// A topology as written, and true if its plugin is known.
fn topology(section: &mut Section<'_>, name: &str) -> (TopologyConfig, bool) {
    let mut topology =
        TopologyConfig { name: name.to_owned(), line: line(section), ..TopologyConfig::default() };
    let plugin =
        section.choice("plugin", &[("tree", Plugin::Tree), ("block", Plugin::Block), ("none", Plugin::None)]);
    let is_understood = plugin.is_some() || !section.has("plugin");
    set!(
        topology.plugin => plugin,
        topology.score_before => section.choice("score_before", &[
            ("span", ScoreBefore::Span),
            ("fit", ScoreBefore::Fit),
            ("none", ScoreBefore::None),
        ]),
        topology.search_budget => section.integer("search_budget", 1..=u64::from(u32::MAX)),
    );
    topology.layers = section.strings("layers").into_iter().map(|(_, name)| name.to_owned()).collect();
    topology.block_size = section.integer("block_size", 1..=u32::MAX);
    topology.block_sizes = section.integers("block_sizes");
    topology.switches = section.sections("switches").into_iter().map(switch).collect();
    topology.blocks = section.sections("blocks").into_iter().map(block).collect();
    topology.rule = section.sections("rule").into_iter().map(rule).collect();
    topology.limits = section.section("limits").map(limits).unwrap_or_default();
    topology.weights = section.section("weights").map(weights).unwrap_or_default();
    topology.score = section.parsed("score");
    if topology.score.is_some() && topology.weights.any() {
        section.refuse("score", "it stands in the place of the weights: say one of score and [weights]");
    }
    (topology, is_understood)
}

fn line(section: &Section<'_>) -> Line {
    Line(Some(section.line()))
}

fn owned(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    section.string(key).map(str::to_owned)
}

fn switch(mut section: Section<'_>) -> SwitchConfig {
    let switch = SwitchConfig {
        name: section.required_name("name").unwrap_or_default().to_owned(),
        nodes: owned(&mut section, "nodes"),
        switches: owned(&mut section, "switches"),
        link_speed: owned(&mut section, "link_speed"),
        latency: owned(&mut section, "latency"),
        line: line(&section),
    };
    section.finish();
    switch
}

fn block(mut section: Section<'_>) -> BlockConfig {
    let block = BlockConfig {
        name: section.required_name("name").unwrap_or_default().to_owned(),
        nodes: owned(&mut section, "nodes").unwrap_or_default(),
        link_speed: owned(&mut section, "link_speed"),
        latency: owned(&mut section, "latency"),
        line: line(&section),
    };
    section.finish();
    block
}

fn rule(mut section: Section<'_>) -> RuleConfig {
    let rule = RuleConfig {
        max_nodes: section.integer("max_nodes", 1..=u32::MAX),
        gather: section.parsed("gather"),
        whole: section.boolean("whole").unwrap_or(false),
        adjacent: section.integer("adjacent", 1..=u32::MAX),
        switches: section.parsed("switches"),
        placement: section.parsed("placement"),
        line: line(&section),
    };
    section.finish();
    rule
}

fn limits(mut section: Section<'_>) -> LimitsConfig {
    let limits = LimitsConfig {
        max_nodes_per_leaf: section.integer("max_nodes_per_leaf", 1..=u32::MAX),
        max_gpus_per_leaf: section.integer("max_gpus_per_leaf", 1..=u32::MAX),
    };
    section.finish();
    limits
}

fn weights(mut section: Section<'_>) -> WeightsConfig {
    let mut weight = |key| {
        let number = section.number(key, 0.0..=MOST_WEIGHT).unwrap_or(0.0);
        Weight((number * MILLION).round() as u32)
    };
    let weights = WeightsConfig {
        resource_availability: weight("resource_availability"),
        topology_alignment: weight("topology_alignment"),
        domain_utilisation: weight("domain_utilisation"),
        past_performance: weight("past_performance"),
    };
    section.finish();
    weights
}
