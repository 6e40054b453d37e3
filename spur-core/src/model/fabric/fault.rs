//! What can be wrong with a topology: each fault names the line, the name and the fix.

use std::fmt;

use crate::model::topology::Line;

/// One mistake in a topology, with where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricError {
    /// The line of the table that holds the mistake.
    pub line: Line,
    /// The topology it is in.
    pub topology: String,
    /// What is wrong and what would work.
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
    /// A plugin without what it needs.
    #[error("plugin = \"{plugin}\" needs {needs}")]
    Missing {
        /// The plugin as written.
        plugin: &'static str,
        /// The keys it needs.
        needs: &'static str,
    },
    /// Keys that the plugin does not use.
    #[error("{keys} has no effect with plugin = \"{plugin}\": remove it, or set plugin = \"{wants}\"")]
    Unused {
        /// The plugin as written.
        plugin: &'static str,
        /// The key that has no effect.
        keys: &'static str,
        /// The plugin that uses the key.
        wants: &'static str,
    },
    /// A name that is empty or cannot be written where domains are named.
    #[error(
        "\"{0}\" is no name for a domain: use letters, digits, '-', '_', '.', and '/' between the parts of a path"
    )]
    BadName(String),
    /// Two domains of one name.
    #[error("{name} is defined twice{}: rename one of them, or write paths such as pod-a/{name}", at_line(.first))]
    Duplicate {
        /// The name.
        name: String,
        /// Where it stands first.
        first: Line,
    },
    /// A switch with neither nodes nor switches.
    #[error(
        "switch {0} has neither nodes nor switches: give it one (nodes = \"\" for a leaf that is still empty)"
    )]
    Neither(String),
    /// A switch with both nodes and switches.
    #[error("switch {0} has both nodes and switches: keep one, and put the nodes under a leaf of their own")]
    Both(String),
    /// A hostlist that cannot be read.
    #[error("{domain}: {list:?} is not a hostlist: {why}")]
    BadHostlist {
        /// The domain whose list it is.
        domain: String,
        /// The list as written.
        list: String,
        /// What the parser says.
        why: String,
    },
    /// A child that no switch is called.
    #[error("switch {parent} names {child}, which is no switch of this topology{}", nearest(.near))]
    UnknownChild {
        /// The switch that names it.
        parent: String,
        /// The name.
        child: String,
        /// The name it may have meant.
        near: Option<String>,
    },
    /// A child of two switches.
    #[error(
        "switch {child} is below {first} and below {second}: a switch has one parent, remove it from one of them"
    )]
    TwoParents {
        /// The child.
        child: String,
        /// The parent that came first.
        first: String,
        /// The other parent.
        second: String,
    },
    /// Switches below themselves.
    #[error("switches form a cycle: {}: remove one of these links", .0.join(" > "))]
    Cycle(Vec<String>),
    /// Nodes that the node table does not have.
    #[error("{domain} names {node}, which no [[nodes]] table defines{}", nearest(.near))]
    UnknownNode {
        /// The domain that names it.
        domain: String,
        /// The name.
        node: String,
        /// The name it may have meant.
        near: Option<String>,
    },
    /// A node in two leaves or blocks, or twice in one.
    #[error(
        "node {node} is in {first} and in {second}: a node has one place, remove it from one of them; if they are \
         rails, `spur discover` and `spur import slurm` make one domain of them"
    )]
    TwoPlaces {
        /// The node.
        node: String,
        /// The domain that came first.
        first: String,
        /// The other one.
        second: String,
    },
    /// A block size that is not a power of two times the base size.
    #[error("block size {size} is not {base} times a power of two: {} would be", power_near(*.size, *.base))]
    BadBlockSize {
        /// The size as written.
        size: u32,
        /// The base size.
        base: u32,
    },
    /// A block size of 0, or sizes that do not grow.
    #[error("block sizes {0:?}: sizes are at least 1 and each is larger than the one before")]
    BlockSizeOrder(Vec<u32>),
    /// `block_size` that contradicts the first of `block_sizes`.
    #[error(
        "block_size = {size} is not the first of block_sizes, {base}: make them equal, or give one of them"
    )]
    BlockSizeConflict {
        /// `block_size`.
        size: u32,
        /// The first of `block_sizes`.
        base: u32,
    },
    /// A layer name that cannot be.
    #[error("layer name \"{name}\" {why}")]
    BadLayer {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More layer names than layers.
    #[error("layers names {named} layers, but the topology has {have}: remove {}", .extra.join(", "))]
    ExtraLayers {
        /// How many names there are.
        named: usize,
        /// How many layers there are above the nodes.
        have: usize,
        /// The names that name nothing.
        extra: Vec<String>,
    },
    /// A link speed that cannot be read.
    #[error("{domain}: link speed {text:?} is not a bandwidth: write it like 400G or 100M")]
    BadSpeed {
        /// The domain.
        domain: String,
        /// The value as written.
        text: String,
    },
    /// A latency that cannot be read.
    #[error("{domain}: latency {text:?} is not a latency: write it like 500ns, 2us or 1ms")]
    BadLatency {
        /// The domain.
        domain: String,
        /// The value as written.
        text: String,
    },
    /// A number that must be positive.
    #[error("{key} = 0 would let no job run: give at least 1, or remove it")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// A rule by size that names a layer that is not there.
    #[error("rule: gather = {text:?}: the topology has no layer {layer}; its layers are {}", .known.join(", "))]
    UnknownLayer {
        /// The value as written.
        text: String,
        /// The layer it names.
        layer: String,
        /// All there are.
        known: Vec<String>,
    },
    /// A node that was moved to a domain that cannot hold nodes.
    #[error("node {node} is placed in {domain}, which {why}")]
    BadPlace {
        /// The node.
        node: String,
        /// The domain it was placed in.
        domain: String,
        /// Why that cannot be.
        why: &'static str,
    },
}

impl Fault {
    /// Whether it leaves open neither which domains there are nor which of them are below which.
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

/// The two sizes next to a bad one that would be right.
fn power_near(size: u32, base: u32) -> String {
    let base = u64::from(base.max(1));
    let mut below = base;
    while below * 2 < u64::from(size) {
        below *= 2;
    }
    format!("{below} or {}", below * 2)
}
