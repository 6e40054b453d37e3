//! The answers as values: a placement, or what is missing where, and the domains that lost.

use crate::model::fabric::{DomainId, Layer, Pos};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Whole nodes, or one slot on each.
    Nodes,
    /// Tasks.
    Tasks,
}

/// Where a job goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Positions in fabric order, which is rank order, each with its tasks (1 for a whole node).
    pub shares: Vec<(Pos, u32)>,
    /// Domains touched, by layer from `node` upwards.
    pub spans: Vec<u32>,
    /// The deepest domain that holds all of it.
    pub common: Option<DomainId>,
    /// Slots left in that domain once the job is in.
    pub waste: u64,
    /// The score of that domain in millionths, where the site has an expression of its own.
    pub score: Option<i64>,
    /// Whether the search came to its end: no placement is better.
    pub exact: bool,
}

impl Placement {
    /// The positions alone.
    #[must_use]
    pub fn positions(&self) -> Vec<Pos> {
        self.shares.iter().map(|&(pos, _)| pos).collect()
    }
}

/// A domain that could have held the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The domain.
    pub domain: DomainId,
    /// At which step it lost.
    pub why: LostWhy,
}

/// The first step at which a candidate was worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWhy {
    /// It would have used more of the heavier nodes.
    Weight,
    /// It would have touched more domains of a preferred layer, or of any: its number and the winner's.
    Span {
        /// The layer.
        layer: Layer,
        /// The number of domains that the loser would use.
        had: u32,
        /// The winner's.
        best: u32,
    },
    /// The other is the domain that was asked for.
    NotPreferred,
    /// It is of a higher layer.
    Higher,
    /// Its shares would have been less even.
    Uneven,
    /// It would have left more slots: in itself or an ancestor of that layer, or in the used domains of that layer.
    Waste {
        /// The layer.
        layer: Layer,
        /// The free slots of the loser.
        had: u64,
        /// The winner's.
        best: u64,
    },
    /// The job would be on one of its nodes, and the best of them has more slots: its number and the winner's.
    Node {
        /// Slots of its best node.
        had: u64,
        /// The winner's.
        best: u64,
    },
    /// The links of the loser have a higher latency.
    Latency,
    /// The settable score, in millionths.
    Score {
        /// The score of the loser, millionths.
        had: i64,
        /// The winner's.
        best: i64,
    },
    /// It is equally good by every measure, but listed later.
    Later,
}

/// Why a job cannot be placed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The amount that the job wants.
    pub wanted: u32,
    /// The unit that the amounts are counted in.
    pub unit: Unit,
    /// The layer of which one domain has to hold it; None: anywhere.
    pub layer: Option<Layer>,
    /// What stands in the way.
    pub kind: MisfitKind,
    /// The domains that come nearest, the largest first, with how much of the wanted each could take.
    pub nearest: Vec<(DomainId, u32)>,
    /// Whether the search was exhaustive.
    pub exact: bool,
}

/// What stands in the way of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisfitKind {
    /// Not enough is free.
    TooFew,
    /// There is enough in some domain, but not in the shape that the constraints want.
    Shape,
    /// There is enough, but not in so few domains of a layer.
    Span {
        /// The layer.
        layer: Layer,
        /// How many of its domains the job may use.
        most: u32,
    },
    /// There is enough, but not in consecutive positions.
    Apart {
        /// How much there is in the longest stretch without a gap.
        longest: u32,
    },
    /// A required node is not free, or the required nodes lie too far apart.
    Required,
    /// Not enough is free in domains that have the links.
    Link,
}

/// No placement was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Whether that means that there is none.
    pub exact: bool,
}

impl Missed {
    /// There is none.
    pub(super) const NONE: Missed = Missed { exact: true };
    /// It takes too long to find out, or more has to be known for it: somebody else may have an answer.
    pub(super) const UNKNOWN: Missed = Missed { exact: false };
}
