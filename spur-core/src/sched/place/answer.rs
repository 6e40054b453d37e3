//! The answers as values: a placement, the reason why nothing fits, and the domains that lost.

use crate::model::fabric::{DomainId, Layer, Pos};

/// The unit in which amounts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Whole nodes, or one slot on each.
    Nodes,
    /// Tasks; a node may hold several.
    Tasks,
}

/// The nodes and shares that a job gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The positions in fabric order, which is rank order, each with its number of tasks (1 for a whole
    /// node).
    pub shares: Vec<(Pos, u32)>,
    /// Number of domains used at each layer, from `node` upwards.
    pub spans: Vec<u32>,
    /// The deepest domain that holds the whole job.
    pub common: Option<DomainId>,
    /// Number of slots that the domain `common` has left beside the job.
    pub waste: u64,
    /// The score of that domain in millionths, where the site has an expression of its own.
    pub score: Option<i64>,
    /// True if the search came to its end, so that no placement is better.
    pub exact: bool,
}

impl Placement {
    /// The positions of the placement, without their shares.
    #[must_use]
    pub fn positions(&self) -> Vec<Pos> {
        self.shares.iter().map(|&(pos, _)| pos).collect()
    }
}

/// A domain that could have held the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The domain that lost.
    pub domain: DomainId,
    /// The step at which the domain lost.
    pub why: LostWhy,
}

/// The first step of the objective at which a candidate was worse than the winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWhy {
    /// The loser would have used more nodes of a heavier weight class.
    Weight,
    /// The loser would have used more domains of a layer, preferred or not.
    Span {
        /// The layer whose domains are counted.
        layer: Layer,
        /// The number of domains that the loser would use.
        had: u32,
        /// The number of domains that the winner uses.
        best: u32,
    },
    /// The winner is the domain that was asked for, and the loser is not.
    NotPreferred,
    /// The loser is of a higher layer than the winner.
    Higher,
    /// The shares of the loser would have been less even.
    Uneven,
    /// The loser would have left more slots free: in itself or its ancestor of that layer, or in the used
    /// domains of that layer.
    Waste {
        /// The layer whose free slots are compared.
        layer: Layer,
        /// The free slots of the loser at that layer.
        had: u64,
        /// The free slots of the winner at that layer.
        best: u64,
    },
    /// The job takes one node, and the best node of the loser has more slots than the winner's node.
    Node {
        /// The slots of the loser's best node.
        had: u64,
        /// The slots of the winner's node.
        best: u64,
    },
    /// The links of the loser have a higher latency.
    Latency,
    /// The settable score of the loser is lower.
    Score {
        /// The score of the loser, millionths.
        had: i64,
        /// The score of the winner, millionths.
        best: i64,
    },
    /// The loser is equally good by every measure, but its positions sort later.
    Later,
}

/// The reason why a job cannot be placed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The amount that the job wants, in `unit`.
    pub wanted: u32,
    /// The unit of `wanted` and of the amounts in `nearest`.
    pub unit: Unit,
    /// The layer at which one domain has to hold the job; `None` if any domain may.
    pub layer: Option<Layer>,
    /// The constraint that prevents the placement.
    pub kind: MisfitKind,
    /// The domains that could take most, the largest first, each with the amount that it could take.
    pub nearest: Vec<(DomainId, u32)>,
    /// True if the search was exhaustive, so that no placement exists.
    pub exact: bool,
}

/// The constraint that prevents a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisfitKind {
    /// Too few slots are free.
    TooFew,
    /// Some domain has enough free slots, but not in the shape that the constraints require.
    Shape,
    /// Enough slots are free, but in more domains of a layer than the job may use.
    Span {
        /// The layer whose domains are limited.
        layer: Layer,
        /// The largest number of its domains that the job may use.
        most: u32,
    },
    /// Enough slots are free, but not in consecutive positions.
    Apart {
        /// The amount in the longest stretch without a gap.
        longest: u32,
    },
    /// A required node is not free, or the required nodes are too far apart.
    Required,
    /// Domains whose links are fast enough have too few free slots.
    Link,
}

/// The search found no placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// True if no placement exists; false if the search was cut.
    pub exact: bool,
}

impl Missed {
    /// No placement exists.
    pub(super) const NONE: Missed = Missed { exact: true };
    /// The search was cut, or this solver cannot decide the question; another solver may.
    pub(super) const UNKNOWN: Missed = Missed { exact: false };
}
