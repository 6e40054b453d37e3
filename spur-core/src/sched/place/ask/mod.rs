//! What a job asks of a fabric, resolved: layers and domains are numbers, everything optional has been decided.

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

/// What one job asks for. Build it with [`Ask::nodes`] or [`Ask::tasks`] and set what differs: the default is nothing, with no
/// steps to search for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// Fewest and most nodes; the largest number that every constraint allows is taken. None: as many as the order
    /// of preference chooses for the tasks.
    pub nodes: Option<(u32, u32)>,
    /// Whether the nodes are only bounds: what the order of preference chooses for the tasks is taken if it keeps within them,
    /// else the fewest nodes if it chooses fewer.
    pub is_limited: bool,
    /// Tasks. None: nodes are counted, one slot on each.
    pub tasks: Option<u32>,
    /// At most this many tasks on one node (`--ntasks-per-node` together with `-n`).
    pub max_tasks_per_node: Option<u32>,
    /// Which rule of the topology applies.
    pub strategy: Strategy,
    /// How the job is split over domains.
    pub mode: Mode,
    /// One domain that counts for this layer holds the whole job.
    pub must: Option<Layer>,
    /// Each domain of the layer that is used holds a multiple of the number: tasks if the job counts them, else nodes.
    pub multiples: Vec<(Layer, u32)>,
    /// At most this many domains of the layer are used; `--switches=N` is `(Layer::LEAF, N)`.
    pub max_spans: Vec<(Layer, u32)>,
    /// Nodes come in segments, each of which the block rule holds for.
    pub segment: Option<Segment>,
    /// Leaves are taken whole: none that is used runs anything else (`--exclusive=topo`, `whole = true`).
    pub whole_leaves: bool,
    /// Exactly this many leaves with consecutive positions under one parent.
    pub adjacent: Option<u32>,
    /// Consecutive positions in fabric order.
    pub contiguous: bool,
    /// Positions the job must have (`-w`), sorted.
    pub required: Vec<Pos>,
    /// Most nodes of one leaf.
    pub max_nodes_per_leaf: Option<u32>,
    /// Most slots of one leaf; how a limit on GPUs per leaf arrives here.
    pub max_slots_per_leaf: Option<u32>,
    /// The most devices of one leaf where nodes are held whole that have unequally many.
    pub leaf_load: Option<LeafLoad>,
    /// At least that many of the nodes are in the set (`[a*2&b*4]`); at most [`Ask::MAX_COUNTS`].
    pub counts: Vec<(FixedBitSet, u32)>,
    /// Every domain used has links of at least so many bits per second.
    pub min_speed: Option<u64>,
    /// The domain whose links have the lowest latency comes first.
    pub lowest_latency: bool,
    /// Layers whose span is made small before anything else, first one first.
    pub prefer: Vec<Layer>,
    /// The domain the job would like to be in.
    pub prefer_domain: Option<DomainId>,
    /// The settable score.
    pub score: Score,
    /// Steps the search may take; beyond them a good placement is taken for the best.
    pub budget: u64,
}

impl Ask {
    /// How many counted sets one ask may have.
    pub const MAX_COUNTS: usize = crate::text::features::MAX_COUNTS;

    /// For how many seconds from the start of a job that runs for so long it matters on which nodes others run: for all
    /// of them where leaves are taken whole, for the first where a score knows what runs; `None` if it does not matter.
    #[must_use]
    pub fn minds_others(&self, run_time: u64) -> Option<u64> {
        let is_scored = self.score.minds_others();
        if self.whole_leaves { Some(run_time) } else { is_scored.then_some(1) }
    }

    /// Whether it says how many tasks a domain has, not only which nodes the job gets.
    #[must_use]
    pub fn shares_out_tasks(&self) -> bool {
        self.mode != Mode::Consolidated || !self.multiples.is_empty() || self.caps_leaves()
    }

    /// Whether a leaf may give only so much.
    pub(super) fn caps_leaves(&self) -> bool {
        self.max_nodes_per_leaf.is_some() || self.max_slots_per_leaf.is_some() || self.leaf_load.is_some()
    }

    /// An ask for a number of nodes, one slot on each.
    #[must_use]
    pub fn nodes(count: u32) -> Self {
        Self { nodes: Some((count, count)), tasks: None, ..Self::tasks(0) }
    }

    /// An ask for a number of tasks on as many nodes as they need.
    #[must_use]
    pub fn tasks(count: u32) -> Self {
        let budget = crate::model::topology::DEFAULT_SEARCH_BUDGET;
        Self { tasks: Some(count), budget, ..Self::default() }
    }
}

/// What nodes bring along, however many of their slots are used, of which a leaf may give one job only so much: GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLoad {
    /// What each node brings, by position.
    pub of: Arc<[u32]>,
    /// The most of it in one leaf.
    pub most: u32,
}

impl LeafLoad {
    /// What the node there brings.
    #[must_use]
    pub fn at(&self, pos: Pos) -> u32 {
        self.of.get(pos.index()).copied().unwrap_or(0)
    }

    /// Whether a leaf may give nodes that bring so much.
    #[must_use]
    pub fn allows(&self, load: u32) -> bool {
        load <= self.most
    }

    /// How many nodes a leaf may give at most besides those that bring `held`, of nodes that bring these: those that bring
    /// the least.
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

/// Which rule of the topology applies to a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Pack as deep as possible over all layers; never wait for it.
    #[default]
    Tree,
    /// A guarantee by configured size; see [`super::BlockRule`].
    Block,
    /// Ignore the fabric: fill the nodes with the fewest slots first.
    Flat,
}

/// `--segment`: the job is so many groups of `size` nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Nodes in each.
    pub size: u32,
    /// No two share a base block.
    pub spread: bool,
    /// The block rule binds the job as a whole as well.
    pub consolidate: bool,
}

/// The settable score of a domain: what counts, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Score {
    /// The weights of its terms.
    pub weights: WeightsConfig,
    /// The site's own expression, in the place of the weights.
    pub expression: Option<Expression>,
    /// Before which step it decides.
    pub before: ScoreBefore,
}

impl Score {
    /// Whether there is a score at all.
    #[must_use]
    pub fn any(&self) -> bool {
        self.expression.is_some() || self.weights.any()
    }

    /// Whether it depends on which nodes run something.
    fn minds_others(&self) -> bool {
        let weighs = || self.weights.domain_utilisation.0 > 0;
        self.expression.as_ref().map_or_else(weighs, Expression::minds_others)
    }
}
