//! The table `[topology]` or `[[topologies]]` as an administrator wrote it.
//!
//! These types hold the text of the configuration with its places.
//! [`Fabric::build`](super::fabric::Fabric::build) checks it against the node table and builds the fabric.
//! The types are journalled with the policy, so every key has a default and a stable name.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::gather::{Gather, Placement, Switches};
use crate::text::score::Score;

/// The name of the topology that a plain `[topology]` table describes.
pub const DEFAULT_TOPOLOGY: &str = "default";

/// Number of steps that a search for a placement may take; see `docs/topology.md`.
pub const DEFAULT_SEARCH_BUDGET: u64 = 200_000;

/// The line of the configuration file on which a table starts, counted from 1; `None` if it did not come from
/// a file.
///
/// A line is no part of the content: two lines always compare equal, and none is journalled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line(pub Option<u32>);

impl PartialEq for Line {
    fn eq(&self, _: &Line) -> bool {
        true
    }
}

impl Eq for Line {}

/// The kind of structure of a topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plugin {
    /// Switches above nodes and other switches. Jobs are packed as deep as possible and never wait for that.
    Tree,
    /// Base blocks of equal size and their aligned power-of-two aggregates, with a guarantee by size.
    Block,
    /// No structure: all nodes are equally good.
    #[default]
    None,
}

/// A named topology, with the keys of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopologyConfig {
    /// The name that partitions and `--topology=` use.
    pub name: String,
    /// The kind of structure, which selects the sections below.
    pub plugin: Plugin,
    /// Names of the layers above `node`, from the bottom up; missing ones get their defaults.
    pub layers: Vec<String>,
    /// The switches of a tree.
    pub switches: Vec<SwitchConfig>,
    /// The base blocks of a block topology, in geometric order.
    pub blocks: Vec<BlockConfig>,
    /// Number of nodes in a base block if the node table is cut in order, without `blocks`.
    pub block_size: Option<u32>,
    /// The base size and the sizes of the aggregates, in nodes: each is the first times a power of two.
    pub block_sizes: Vec<u32>,
    /// Rules by size for jobs without constraints of their own; the first match counts.
    pub rule: Vec<RuleConfig>,
    /// Limits on one job's share of a leaf.
    pub limits: LimitsConfig,
    /// Weights of the settable score.
    pub weights: WeightsConfig,
    /// The site's own score, in the place of `weights`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Position of the settable score among the steps of the choice.
    pub score_before: ScoreBefore,
    /// Number of steps that one search may take where the problem is hard in general.
    pub search_budget: u64,
    /// The line on which the table starts.
    #[serde(skip)]
    pub line: Line,
}

impl TopologyConfig {
    /// True if the topology constrains jobs that have no constraints of their own.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.plugin == Plugin::Block || !self.rule.is_empty() || self.limits != LimitsConfig::default()
    }
}

impl Default for TopologyConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT_TOPOLOGY.to_owned(),
            plugin: Plugin::None,
            layers: Vec::new(),
            switches: Vec::new(),
            blocks: Vec::new(),
            block_size: None,
            block_sizes: Vec::new(),
            rule: Vec::new(),
            limits: LimitsConfig::default(),
            weights: WeightsConfig::default(),
            score: None,
            score_before: ScoreBefore::None,
            search_budget: DEFAULT_SEARCH_BUDGET,
            line: Line(None),
        }
    }
}

/// A table `[[topology.switches]]`, with exactly one of `nodes` and `switches`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// The name, unique in the topology. It may be a path, whose last part is displayed where that is
    /// unambiguous.
    pub name: String,
    /// Hostlist of the nodes of a leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Hostlist of the switches below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<String>,
    /// Bandwidth of the links below it in bits per second, e.g. `400G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<String>,
    /// Latency between two of its members, e.g. `2us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
    /// The line on which the table starts.
    #[serde(skip)]
    pub line: Line,
}

/// A base block, from a table `[[topology.blocks]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockConfig {
    /// The name, unique in the topology.
    pub name: String,
    /// Hostlist of its nodes; an empty block keeps its position.
    #[serde(default)]
    pub nodes: String,
    /// Bandwidth of the links below it in bits per second, e.g. `400G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<String>,
    /// Latency between two of its members, e.g. `2us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
    /// The line on which the table starts.
    #[serde(skip)]
    pub line: Line,
}

/// A table `[[topology.rule]]`: constraints for jobs of at most this size without constraints of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// The largest number of nodes of a job that the rule applies to; `None` for all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// The gather list, as in `--gather=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather: Option<Gather>,
    /// True if every leaf in use must be empty before, and is closed to other jobs while the job runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The exact number of leaves, with consecutive positions under one parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjacent: Option<u32>,
    /// The largest number of leaf switches, as in `--switches=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    /// The objective, as in `--placement=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The line on which the table starts.
    #[serde(skip)]
    pub line: Line,
}

/// The table `[topology.limits]`: limits on one job's share of a leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Largest number of nodes of one leaf that one job may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes_per_leaf: Option<u32>,
    /// Largest number of GPUs of one leaf that one job may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_per_leaf: Option<u32>,
}

/// The table `[topology.weights]`: weights of the terms of the settable score. If all are zero, there is no
/// score.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WeightsConfig {
    /// Weight of domains of which a large share of the nodes could take the job now.
    pub resource_availability: Weight,
    /// Weight of domains whose free slots the job fills exactly.
    pub topology_alignment: Weight,
    /// Weight of domains of which a large share of the nodes already runs something.
    #[serde(alias = "domain_utilization")]
    pub domain_utilisation: Weight,
    /// Weight of domains where few jobs were lost with a node.
    pub past_performance: Weight,
}

impl WeightsConfig {
    /// True if there is a score.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A weight, stored in millionths so that scores are exact and the same on every machine.
///
/// Written as a number from 0 to 1000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub u32);

impl Weight {
    const ONE: f64 = 1e6;
    const LARGEST: f64 = 1000.0;
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / Self::ONE)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=Self::LARGEST).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 1000 in millionths fits u32"
            )]
            return Ok(Self((number * Self::ONE).round() as u32));
        }
        Err(serde::de::Error::custom(format!("a weight is a number from 0 to 1000, not {number}")))
    }
}

/// The step of the choice before which the settable score counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreBefore {
    /// Before the spans: the score chooses among the domains of the lowest layer that can hold the job.
    Span,
    /// Before best fit: the score chooses among placements of equal span.
    Fit,
    /// After best fit: the score only breaks ties.
    #[default]
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_and_survives_the_journal() {
        let text = r#"
            name = "fast"
            plugin = "tree"
            layers = ["leaf", "spine"]
            score_before = "fit"
            score = "2 * free_nodes - layer"
            search_budget = 7
            [[switches]]
            name = "s0"
            nodes = "n[0-3]"
            link_speed = "400G"
            latency = "2us"
            [[switches]]
            name = "top"
            switches = "s0"
            [[rule]]
            max_nodes = 2
            gather = "must:leaf"
            whole = true
            adjacent = 1
            [limits]
            max_nodes_per_leaf = 3
            max_gpus_per_leaf = 8
            [weights]
            resource_availability = 0.25
            past_performance = 1
        "#;
        let config: TopologyConfig = toml::from_str(text).unwrap();
        assert_eq!(config.weights.resource_availability, Weight(250_000));
        assert_eq!(config.weights.past_performance, Weight(1_000_000));
        assert_eq!(config.rule[0].adjacent, Some(1));
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TopologyConfig>(&json).unwrap(), config);
    }

    #[test]
    fn unknown_keys_and_bad_weights_are_refused() {
        for text in [
            "plugins = 'tree'",
            "weights = { speed = 1 }",
            "weights = { past_performance = -1 }",
            "rule = [{ gather = 'pod' }]",
            "rule = [{ switches = 'two' }]",
        ] {
            assert!(toml::from_str::<TopologyConfig>(text).is_err(), "{text}");
        }
    }
}
