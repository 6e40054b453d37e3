//! The answers: a placement with its reasons, or what is missing where.

mod words;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::sched::place::ask::{Ask, Strategy};
use crate::sched::place::fronts::may_hold;
use crate::sched::place::problem::{Meter, Problem, positions};
use crate::sched::place::slots::View;
use crate::sched::place::{Missed, frame, place};

pub use words::{Nearest, Never, hold_fewer, is_never, refusal};

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
    /// Whether the search came to its end: no placement is better.
    pub exact: bool,
}

impl Placement {
    /// A placement from its shares; `common` is where it is if it has none.
    pub(super) fn new(
        problem: &Problem<'_>,
        shares: Vec<(Pos, u32)>,
        common: Option<DomainId>,
        exact: bool,
    ) -> Self {
        let positions: SmallVec<[Pos; 32]> = shares.iter().map(|&(pos, _)| pos).collect();
        let spans = problem.fabric.spans(&positions);
        let common = problem.fabric.deepest_common(&positions).or(common);
        let waste = common.map_or(0, |id| problem.slots(id).saturating_sub(problem.wanted_slots()));
        Self { shares, spans, common, waste, exact }
    }

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
        /// Its number.
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
        /// Its slots left.
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
    /// Its links are slower.
    Latency,
    /// The settable score, in millionths.
    Score {
        /// Its score.
        had: u64,
        /// The winner's.
        best: u64,
    },
    /// It is the same by every measure and comes later.
    Later,
}

/// Why a job cannot be placed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// How much is wanted.
    pub wanted: u32,
    /// Of what.
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

/// How many of the nearest domains are named.
const NAMED: usize = 3;

/// What is missing for a job that could not be placed.
pub(super) fn misfit(fabric: &Fabric, view: &View<'_>, ask: &Ask, missed: Missed) -> Misfit {
    let (within, problem) = least(fabric, view, ask);
    let nodes = ask.nodes.map(|(least, _)| least);
    // For one task on one node, the node is what is wanted.
    let is_one = nodes == Some(1) && ask.tasks == Some(1);
    let counts_tasks = ask.tasks.is_some() && ask.tasks_per_node.is_none() && !is_one;
    let unit = if counts_tasks { Unit::Tasks } else { Unit::Nodes };
    let wanted = match unit {
        Unit::Tasks => ask.tasks.unwrap_or(0),
        Unit::Nodes => nodes.or(ask.tasks).unwrap_or(0),
    };
    let mut misfit = Misfit {
        wanted,
        unit,
        layer: within,
        kind: MisfitKind::Shape,
        nearest: Vec::new(),
        exact: missed.exact,
    };
    let Some(problem) = problem else { return misfit };
    let mut takes = largest(&problem, holders(fabric, within));
    if takes.first().is_none_or(|&(_, most)| most < problem.amount) {
        misfit.kind = MisfitKind::TooFew;
    }
    if let Some(need) = ask.min_speed.filter(|_| misfit.kind == MisfitKind::TooFew) {
        misfit.kind = MisfitKind::Link;
        let is_low = |id: &DomainId| within.is_none_or(|within| fabric.domain(*id).layer() <= within);
        takes = largest(&problem, fast_enough(fabric, need).filter(is_low));
    }
    if ask.required.iter().any(|&pos| view.slots.at(pos) == 0) {
        misfit.kind = MisfitKind::Required;
    } else if misfit.kind == MisfitKind::Shape {
        misfit.kind = shape(fabric, view, ask, (unit, wanted));
        if let MisfitKind::Span { layer, .. } = misfit.kind {
            takes = largest(&problem, fabric.domains_covering(layer));
        }
    }
    misfit.nearest = takes;
    misfit
}

/// The question for the least number of nodes, and the layer of which one domain has to hold the job, if there is one.
fn least<'a>(fabric: &'a Fabric, view: &'a View<'a>, ask: &'a Ask) -> (Option<Layer>, Option<Problem<'a>>) {
    let nodes = ask.nodes.map(|(least, _)| least);
    let frame = frame(fabric, view, ask, nodes);
    (frame.within, Problem::new(fabric, view, ask, nodes, frame, &Meter::new(ask.budget)))
}

/// The domains of which one has to hold a job.
fn holders(fabric: &Fabric, within: Option<Layer>) -> Vec<DomainId> {
    match within {
        Some(layer) if layer > Layer::NODE => fabric.domains_covering(layer),
        _ => fabric.roots().to_vec(),
    }
}

/// The positions of domains that could hold the whole job by their room and by the nodes that it names; all where no
/// domain has to.
#[must_use]
pub fn could_hold(fabric: &Fabric, view: &View<'_>, ask: &Ask) -> FixedBitSet {
    let mut could = FixedBitSet::with_capacity(fabric.len());
    match least(fabric, view, ask) {
        (Some(within), Some(problem)) if ask.strategy != Strategy::Flat => {
            let holds = |id: &DomainId| problem.capacity(*id) >= problem.amount && may_hold(&problem, *id);
            let suited = holders(fabric, Some(within)).into_iter().filter(holds);
            suited.for_each(|id| could.insert_range(fabric.domain(id).range()));
        }
        _ => could.insert_range(..),
    }
    could
}

/// The largest of some domains, each with how much of the wanted it could take.
fn largest(problem: &Problem<'_>, domains: impl IntoIterator<Item = DomainId>) -> Vec<(DomainId, u32)> {
    let mut takes: Vec<(DomainId, u32)> = domains.into_iter().map(|id| (id, problem.capacity(id))).collect();
    takes.sort_by_key(|&(id, takes)| (std::cmp::Reverse(takes), problem.fabric.domain(id).range().start));
    takes.truncate(NAMED);
    takes
}

/// The highest domains of which the links, and those of all domains below, are so fast.
fn fast_enough(fabric: &Fabric, need: u64) -> impl Iterator<Item = DomainId> {
    let is_fast = move |id: DomainId| fabric.domain(id).link().speed.is_some_and(|speed| speed >= need);
    let fast = fabric.domains().map(|(id, _)| id).filter(move |&id| is_fast(id));
    fast.filter(move |&id| fabric.domain(id).parent().is_none_or(|parent| !is_fast(parent)))
}

/// Which one constraint stands in the way of a job for which enough is free, if it is one by itself.
fn shape(fabric: &Fabric, view: &View<'_>, ask: &Ask, (unit, wanted): (Unit, u32)) -> MisfitKind {
    let without = |ask: Ask| place(fabric, view, &ask).is_ok();
    if let [(layer, most)] = ask.max_spans[..]
        && without(Ask { max_spans: Vec::new(), ..ask.clone() })
    {
        return MisfitKind::Span { layer, most };
    }
    if ask.contiguous {
        let longest =
            (fabric.roots().iter()).map(|&root| stretch(view, unit, fabric.domain(root).range())).max();
        if let Some(longest) = longest.filter(|longest| *longest < wanted) {
            return MisfitKind::Apart { longest };
        }
    }
    MisfitKind::Shape
}

/// What there is in the longest stretch of positions that all have some.
fn stretch(view: &View<'_>, unit: Unit, range: std::ops::Range<usize>) -> u32 {
    let (mut longest, mut here) = (0_u32, 0_u32);
    for pos in positions(range) {
        here = match view.slots.at(pos) {
            0 => 0,
            slots => here.saturating_add(if unit == Unit::Nodes { 1 } else { slots }),
        };
        longest = longest.max(here);
    }
    longest
}
