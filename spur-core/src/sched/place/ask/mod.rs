//! The request of a job on a fabric, resolved: layers and domains are numbers, and every option has its
//! value.

mod block;
mod resolve;

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::topology::{ScoreBefore, WeightsConfig};
use crate::text::score::Score as Expression;

pub use crate::text::gather::Placement as Mode;
pub(super) use block::lower;
pub use block::{BlockRule, Frame};
pub(crate) use resolve::layer_named;
pub use resolve::{AskError, NoMultiple, Resolved, Wish, resolve, strategy, wished_features};

/// The request of one job. [`Ask::nodes`] and [`Ask::tasks`] build one without constraints and with the
/// default budget. The default value asks for nothing and has no steps to search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// The fewest and the most nodes; the largest number that every constraint allows is taken. `None`: the
    /// objective chooses the number of nodes for the tasks.
    pub nodes: Option<(u32, u32)>,
    /// True if the nodes are only bounds. The number that the order of preference chooses for the tasks is
    /// taken if it keeps within them; if it is lower, the fewest nodes are taken.
    pub is_limited: bool,
    /// Number of tasks. `None`: the job counts nodes, with one slot on each.
    pub tasks: Option<u32>,
    /// The most tasks on one node (`--ntasks-per-node` together with `-n`).
    pub max_tasks_per_node: Option<u32>,
    /// The rule of the topology that applies.
    pub strategy: Strategy,
    /// The rule by which the job is split over domains.
    pub mode: Mode,
    /// The layer at which one domain holds the whole job.
    pub must: Option<Layer>,
    /// Each used domain of the layer holds a multiple of the number, in tasks if the job counts them, else in
    /// nodes.
    pub multiples: Vec<(Layer, u32)>,
    /// The job uses at most this number of domains of the layer; `--switches=N` is `(Layer::LEAF, N)`.
    pub max_spans: Vec<(Layer, u32)>,
    /// The job consists of segments, each of which keeps the block rule.
    pub segment: Option<Segment>,
    /// True if no other job may run in a leaf that the job uses (`--exclusive=topo`, `whole = true`).
    pub whole_leaves: bool,
    /// The job uses exactly this number of leaves, with consecutive positions under one parent.
    pub adjacent: Option<u32>,
    /// True if the positions must be consecutive in fabric order.
    pub contiguous: bool,
    /// The positions that the job must have (`-w`), sorted.
    pub required: Vec<Pos>,
    /// The most nodes in one leaf.
    pub max_nodes_per_leaf: Option<u32>,
    /// The most slots in one leaf; a limit on GPUs per leaf becomes this limit.
    pub max_slots_per_leaf: Option<u32>,
    /// The limit on GPUs per leaf where the job takes whole nodes with unequal numbers of GPUs.
    pub leaf_load: Option<LeafLoad>,
    /// The least number of nodes from each set (`[a*2&b*4]`); at most [`Ask::MAX_COUNTS`] sets.
    pub counts: Vec<(FixedBitSet, u32)>,
    /// The least speed of the links of every used domain, in bits per second.
    pub min_speed: Option<u64>,
    /// True if the domain whose links have the lowest latency is preferred.
    pub lowest_latency: bool,
    /// The layers whose spans are minimised before all other steps but the weights of nodes, the first one
    /// first.
    pub prefer: Vec<Layer>,
    /// The domain that the job prefers (`--prefer`, `--gather-with`).
    pub prefer_domain: Option<DomainId>,
    /// The settable score and its place in the objective.
    pub score: Score,
    /// Number of steps that the search may take; a search that needs more gives the best placement found.
    pub budget: u64,
}

impl Ask {
    /// The largest number of counted sets in one ask.
    pub const MAX_COUNTS: usize = crate::text::features::MAX_COUNTS;

    /// The number of seconds, from the start of a job with this run time, during which other jobs' nodes
    /// matter to the ask: the whole run time where leaves are taken whole, 1 where a score uses occupied
    /// nodes, otherwise `None`.
    #[must_use]
    pub fn minds_others(&self, run_time: u64) -> Option<u64> {
        let is_scored = self.score.minds_others();
        if self.whole_leaves { Some(run_time) } else { is_scored.then_some(1) }
    }

    /// True if the ask constrains the tasks of each domain, and not only the choice of nodes.
    #[must_use]
    pub fn shares_out_tasks(&self) -> bool {
        self.mode != Mode::Consolidated || !self.multiples.is_empty() || self.caps_leaves()
    }

    /// True if the ask caps the amount of one leaf.
    pub(super) fn caps_leaves(&self) -> bool {
        self.max_nodes_per_leaf.is_some() || self.max_slots_per_leaf.is_some() || self.leaf_load.is_some()
    }

    /// An ask for `count` nodes, with one slot on each.
    #[must_use]
    pub fn nodes(count: u32) -> Self {
        Self { nodes: Some((count, count)), tasks: None, ..Self::tasks(0) }
    }

    /// An ask for `count` tasks, on as many nodes as the objective chooses.
    #[must_use]
    pub fn tasks(count: u32) -> Self {
        let budget = crate::model::topology::DEFAULT_SEARCH_BUDGET;
        Self { tasks: Some(count), budget, ..Self::default() }
    }
}

/// A cap per leaf on GPUs where a job takes all GPUs of each of its nodes, however many slots it uses there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLoad {
    /// Number of GPUs of each node, by position.
    pub of: Arc<[u32]>,
    /// The most GPUs that one leaf may give to the job.
    pub most: u32,
}

impl LeafLoad {
    /// Number of GPUs of the node at a position; 0 if the position is unknown.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        self.of.get(pos.index()).copied().unwrap_or(0)
    }

    /// True if a leaf may give nodes with `load` GPUs together.
    #[must_use]
    pub fn allows(&self, load: u32) -> bool {
        load <= self.most
    }

    /// The largest number of this leaf's nodes whose GPUs, smallest counts first and together with `held`,
    /// stay within the per-leaf cap.
    #[must_use]
    pub fn most_nodes(&self, held: u32, mut loads: Vec<u32>) -> usize {
        loads.sort_unstable();
        let sums = loads.iter().scan(held, |sum, load| {
            *sum = sum.saturating_add(*load);
            Some(*sum)
        });
        sums.take_while(|sum| self.allows(*sum)).count()
    }
}

/// The rule of the topology for a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Pack as deep as possible over all layers; never wait for a deeper placement.
    #[default]
    Tree,
    /// A guarantee by configured size; see [`super::BlockRule`].
    Block,
    /// Ignore the fabric: take as few heavy nodes as possible, then as few nodes as possible, and of these
    /// the nodes with the fewest slots.
    Flat,
}

/// `--segment`: the job consists of groups of `size` nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of nodes in each segment.
    pub size: u32,
    /// True if no two segments may share a base block (`--spread-segments`).
    pub spread: bool,
    /// True if the job as a whole must keep the block rule, too (`--consolidate-segments`).
    pub consolidate: bool,
}

/// The settable score of a domain: what counts, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Score {
    /// The weights of the terms of the score.
    pub weights: WeightsConfig,
    /// The site's own expression, in the place of the weights.
    pub expression: Option<Expression>,
    /// Before which step it decides.
    pub before: ScoreBefore,
}

impl Score {
    /// True if the score has an expression or a weight.
    #[must_use]
    pub fn any(&self) -> bool {
        self.expression.is_some() || self.weights.any()
    }

    /// True if the score depends on which nodes run something.
    fn minds_others(&self) -> bool {
        let weighs = || self.weights.domain_utilisation.0 > 0;
        self.expression.as_ref().map_or_else(weighs, Expression::minds_others)
    }
}
