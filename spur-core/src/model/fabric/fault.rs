//! Mistakes in a topology: each fault has a line, a name and a fix.

use std::fmt;

use crate::model::topology::Line;

/// A mistake in a topology, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricError {
    /// The line of the table with the mistake.
    pub line: Line,
    /// The name of the topology.
    pub topology: String,
    /// The fault, with its fix.
    pub fault: Fault,
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line.0 {
            write!(f, "line {line}: ")?;
        }
        write!(f, "topology {}: {}", self.topology, self.fault)
    }
}

impl std::error::Error for FabricError {}

/// The mistakes a topology can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The plugin lacks a key that it needs.
    #[error("plugin = \"{plugin}\" needs {needs}")]
    Missing {
        /// The plugin as written.
        plugin: &'static str,
        /// Keys that the plugin needs.
        needs: &'static str,
    },
    /// The plugin does not use these keys.
    #[error("{keys} has no effect with plugin = \"{plugin}\": remove it, or set plugin = \"{wants}\"")]
    Unused {
        /// The plugin as written.
        plugin: &'static str,
        /// The key that has no effect.
        keys: &'static str,
        /// The plugin that uses the key.
        wants: &'static str,
    },
    /// A name is empty, or cannot be written where domains are named.
    #[error(
        "\"{0}\" is no name for a domain: use letters, digits, '-', '_', '.', and '/' between the parts of a path"
    )]
    BadName(String),
    /// Two domains have the same name.
    #[error("{name} is defined twice{}: rename one of them, or write paths such as pod-a/{name}", at_line(.first))]
    Duplicate {
        /// Name that both domains have.
        name: String,
        /// The line of the first definition.
        first: Line,
    },
    /// A switch has neither nodes nor switches.
    #[error(
        "switch {0} has neither nodes nor switches: give it one (nodes = \"\" for a leaf that is still empty)"
    )]
    Neither(String),
    /// A switch has both nodes and switches.
    #[error("switch {0} has both nodes and switches: keep one, and put the nodes under a leaf of their own")]
    Both(String),
    /// A hostlist cannot be read.
    #[error("{domain}: {list:?} is not a hostlist: {why}")]
    BadHostlist {
        /// The domain with the list.
        domain: String,
        /// The list as written.
        list: String,
        /// The message of the parser.
        why: String,
    },
    /// A switch names a child that does not exist.
    #[error("switch {parent} names {child}, which is no switch of this topology{}", nearest(.near))]
    UnknownChild {
        /// The switch that names the child.
        parent: String,
        /// The name of the child.
        child: String,
        /// The known name that is most similar, if any.
        near: Option<String>,
    },
    /// A switch has two parents.
    #[error(
        "switch {child} is below {first} and below {second}: a switch has one parent, remove it from one of them"
    )]
    TwoParents {
        /// Name of the switch with two parents.
        child: String,
        /// The parent that came first.
        first: String,
        /// Parent that came second.
        second: String,
    },
    /// Switches are below themselves.
    #[error("switches form a cycle: {}: remove one of these links", .0.join(" > "))]
    Cycle(Vec<String>),
    /// A domain names nodes that the node table does not have.
    #[error("{domain} names {node}, which no [[nodes]] table defines{}", nearest(.near))]
    UnknownNode {
        /// The domain that names the node.
        domain: String,
        /// The name of the node.
        node: String,
        /// The known name that is most similar, if any.
        near: Option<String>,
    },
    /// A node is in two leaves or blocks, or twice in one.
    #[error(
        "node {node} is in {first} and in {second}: a node has one place, remove it from one of them; if they are \
         rails, `spur discover` and `spur import slurm` make one domain of them"
    )]
    TwoPlaces {
        /// Name of the node.
        node: String,
        /// Domain that named the node first.
        first: String,
        /// Domain that named the node again.
        second: String,
    },
    /// A block size is not the base size times a power of two.
    #[error("block size {size} is not {base} times a power of two: {} would be", power_near(*.size, *.base))]
    BadBlockSize {
        /// The size as written.
        size: u32,
        /// Base size of blocks, in nodes.
        base: u32,
    },
    /// A block size is 0, or the sizes do not increase.
    #[error("block sizes {0:?}: sizes are at least 1 and each is larger than the one before")]
    BlockSizeOrder(Vec<u32>),
    /// `block_size` contradicts the first of `block_sizes`.
    #[error(
        "block_size = {size} is not the first of block_sizes, {base}: make them equal, or give one of them"
    )]
    BlockSizeConflict {
        /// The value of `block_size`.
        size: u32,
        /// The first value of `block_sizes`.
        base: u32,
    },
    /// A layer name is invalid.
    #[error("layer name \"{name}\" {why}")]
    BadLayer {
        /// Layer name as written.
        name: String,
        /// The reason, as a part of the message.
        why: &'static str,
    },
    /// There are more layer names than layers.
    #[error("layers names {named} layers, but the topology has {have}: remove {}", .extra.join(", "))]
    ExtraLayers {
        /// Number of layer names.
        named: usize,
        /// Number of layers above the nodes.
        have: usize,
        /// The names beyond the last layer.
        extra: Vec<String>,
    },
    /// A link speed cannot be read.
    #[error("{domain}: link speed {text:?} is not a bandwidth: write it like 400G or 100M")]
    BadSpeed {
        /// Domain with the link speed.
        domain: String,
        /// The value as written.
        text: String,
    },
    /// A latency cannot be read.
    #[error("{domain}: latency {text:?} is not a latency: write it like 500ns, 2us or 1ms")]
    BadLatency {
        /// Domain with the latency.
        domain: String,
        /// The value as written.
        text: String,
    },
    /// A number that must be positive is 0.
    #[error("{key} = 0 would let no job run: give at least 1, or remove it")]
    Zero {
        /// Key whose value is 0.
        key: &'static str,
    },
    /// A rule names a layer that does not exist.
    #[error("rule: gather = {text:?}: the topology has no layer {layer}; its layers are {}", .known.join(", "))]
    UnknownLayer {
        /// The value as written.
        text: String,
        /// The layer that the rule names.
        layer: String,
        /// Names of all layers.
        known: Vec<String>,
    },
    /// A node was moved to a domain that cannot hold nodes.
    #[error("node {node} is placed in {domain}, which {why}")]
    BadPlace {
        /// Name of the node.
        node: String,
        /// The domain to which the node was moved.
        domain: String,
        /// The reason, as a part of the message.
        why: &'static str,
    },
}

impl Fault {
    /// True if the fault leaves the set of domains and their hierarchy well defined.
    pub(super) fn keeps_shape(&self) -> bool {
        !matches!(
            self,
            Fault::Duplicate { .. }
                | Fault::Neither(_)
                | Fault::Both(_)
                | Fault::BadHostlist { .. }
                | Fault::UnknownChild { .. }
                | Fault::TwoParents { .. }
                | Fault::Cycle(_)
        )
    }
}

fn at_line(line: &Line) -> String {
    line.0.map_or_else(String::new, |line| format!(" (first at line {line})"))
}

fn nearest(near: &Option<String>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!(": did you mean {near}?"))
}

/// The two valid sizes next to a bad one.
fn power_near(size: u32, base: u32) -> String {
    let base = u64::from(base.max(1));
    let mut below = base;
    while below * 2 < u64::from(size) {
        below *= 2;
    }
    format!("{below} or {}", below * 2)
}
