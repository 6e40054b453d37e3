//! The nodes that a job may use, and their positions on the fabric; jobs with the same request share them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::cluster::Past;
use crate::id::NodeId;
use crate::model::fabric::{Fabric, FunctionNodes, Pos};
use crate::model::job::{JobSpec, Shape};
use crate::model::reservation::Reservation;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::RoomId;
use crate::sched::place::{Slots, View, Weights, open, wished_features};
use crate::sched::request::Need;
use crate::sched::request::constraints::Wisher;
use crate::text::features::FeatureExpr;
use crate::text::hostlist::{Function, HostExpr};

/// The number for a node that has no domain at the layer, or no position.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A number of slots that is not computed yet, or too large for 16 bits.
pub(crate) const UNKNOWN: u16 = u16::MAX;

/// The nodes that partition, constraint and exclusion admit, on one fabric, with their slots for one need.
#[derive(Clone, Debug)]
pub(crate) struct EligibleNodes {
    /// The key of the admitted nodes and the fabric; equal for sets that differ only in the need.
    pub(crate) outline: usize,
    /// The fabric on which the job is placed.
    pub(crate) fabric: Arc<Fabric>,
    /// Configured nodes that may be used, whatever their state.
    pub(crate) admitted: Arc<FixedBitSet>,
    /// The slots of these nodes when idle and up; where nodes are counted, 1 for each node that has any.
    pub(crate) idle: Arc<Slots>,
    /// The slots of an idle node of each class.
    of_class: Arc<[u32]>,
    /// True if every slot is a whole node.
    is_whole: bool,
    /// Weights by position; `None` if all are equal.
    weights: Option<Arc<Weights>>,
    /// Past performance by position; `None` if no node was lost under a job.
    performance: Option<Arc<[u32]>>,
    /// For each node, its position, or [`NOWHERE`].
    positions: Arc<[u32]>,
    /// For each node, its position if it may be used, or [`NOWHERE`].
    seats: Arc<[u32]>,
}

impl EligibleNodes {
    /// Computes the nodes of a partition that meet a constraint.
    ///
    /// # Errors
    /// A message about a name in a hostlist that is unknown.
    pub(crate) fn new(outline: usize, wisher: &Wisher<'_>, filter: &Filter<'_>) -> Result<Self, String> {
        let Wisher { inventory, fabric, request, .. } = *wisher;
        let admitted = filter.admitted(wisher)?;
        let weight = |index| inventory.nodes[fabric.node(Pos::at(index)).index()].weight;
        let weights = Weights::new((0..fabric.len()).map(weight).collect());
        let mut positions = vec![NOWHERE; inventory.nodes.len()];
        for pos in (0..fabric.len()).map(Pos::at) {
            positions[fabric.node(pos).index()] = pos.0;
        }
        let seat = |(node, pos): (usize, &u32)| if admitted.contains(node) { *pos } else { NOWHERE };
        let seats = positions.iter().enumerate().map(seat).collect();
        let unseen = Self {
            outline,
            positions: positions.into(),
            seats,
            fabric: Arc::clone(fabric),
            admitted: Arc::new(admitted),
            idle: Arc::default(),
            of_class: Arc::default(),
            is_whole: false,
            weights: (!weights.are_equal()).then(|| Arc::new(weights)),
            performance: performance(inventory, fabric),
        };
        Ok(unseen.seen_by(inventory, &request.need))
    }

    /// This set of nodes on its fabric, with the slots for another need.
    pub(crate) fn seen_by(&self, inventory: &Inventory, need: &Need) -> Self {
        let of_class = by_class(inventory, need);
        let is_same = self.idle.are_whole() == need.counts_nodes() && self.of_class == of_class;
        let idle = if is_same { Arc::clone(&self.idle) } else { self.idle(inventory, need, &of_class) };
        Self { idle, of_class, is_whole: need.counts_whole_nodes(), ..self.clone() }
    }

    /// The slots of idle nodes for a need, given the slots of each class.
    fn idle(&self, inventory: &Inventory, need: &Need, of_class: &[u32]) -> Arc<Slots> {
        let slots_of = |node: NodeId| match self.admitted.contains(node.index()) {
            true => of_class[inventory.nodes[node.index()].class.index()],
            false => 0,
        };
        let fabric = &self.fabric;
        let slots: Vec<u32> = (0..fabric.len()).map(|index| slots_of(fabric.node(Pos::at(index)))).collect();
        Arc::new(match need.counts_nodes() {
            true => Slots::whole(fabric, open(&slots)),
            false => Slots::tasks(fabric, slots),
        })
    }

    /// The position of a node on the fabric, usable or not; `None` if it has none.
    pub(crate) fn position(&self, node: NodeId) -> Option<Pos> {
        let pos = self.positions[node.index()];
        (pos != NOWHERE).then_some(Pos(pos))
    }

    /// The slots of usable nodes by position, from the amount of each node and the known slots of amounts.
    /// Positions whose amount is not known yet get 0 slots and are appended to `unknown`.
    pub(crate) fn slots_by(
        &self,
        nodes: &[Option<RoomId>],
        known: &[u16],
        unknown: &mut Vec<(Pos, RoomId)>,
    ) -> Slots {
        let mut slots = vec![0_u16; self.fabric.len()];
        for (seat, room) in self.seats.iter().zip(nodes) {
            let (Some(room), Some(here)) = (room, slots.get_mut(*seat as usize)) else { continue };
            match known.get(room.index()).copied().unwrap_or(UNKNOWN) {
                UNKNOWN => unknown.push((Pos(*seat), *room)),
                slots => *here = slots,
            }
        }
        match self.is_whole {
            true => Slots::whole(&self.fabric, open(&slots)),
            false => Slots::few_tasks(&self.fabric, slots),
        }
    }

    /// The position of a node; `None` if the node may not be used.
    #[inline]
    pub(crate) fn pos(&self, node: u32) -> Option<Pos> {
        let pos = self.seats[node as usize];
        (pos != NOWHERE).then_some(Pos(pos))
    }

    /// For each node, its position if it may be used, or [`NOWHERE`].
    #[inline]
    pub(crate) fn seats(&self) -> &[u32] {
        &self.seats
    }

    /// True if nodes have unequal weights.
    pub(crate) fn weighs(&self) -> bool {
        self.weights.is_some()
    }

    /// The view that a placement uses, with these slots.
    pub(crate) fn view<'a>(&'a self, slots: &'a Slots) -> View<'a> {
        let performance = self.performance.as_deref();
        View { weights: self.weights.as_deref(), performance, ..View::new(&self.fabric, slots, &self.idle) }
    }
}

/// The part of a request that decides which nodes may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a> {
    /// The features that each node must have.
    pub(crate) features: Option<&'a FeatureExpr>,
    /// The chosen alternative of each `[a|b]`, which all nodes must have.
    pub(crate) shared: &'a [&'a FeatureExpr],
    /// Excluded nodes.
    pub(crate) exclude: Option<&'a HostExpr>,
    /// The reservation to whose nodes the job is confined.
    pub(crate) within: Option<&'a Reservation>,
    /// Reservations whose nodes may not be used.
    pub(crate) without: &'a [Arc<Reservation>],
}

/// One alternative for the nodes of a request. Of starts at the same time the first alternative is taken.
#[derive(Clone, Debug)]
pub(crate) struct Alternative<'a> {
    /// The features that each node must have: of the constraint, or of `--prefer` in its place.
    pub(crate) features: Option<&'a FeatureExpr>,
    /// The index of the alternative among those with the same features.
    pub(crate) number: usize,
    /// The chosen alternative of each `[a|b]`, which all nodes must have.
    shared: Vec<&'a FeatureExpr>,
    /// True if the features come from `--prefer`.
    pub(crate) is_wish: bool,
}

impl<'a> Alternative<'a> {
    /// The filter of this alternative.
    pub(crate) fn filter<'f>(&'f self, shape: &'f Shape) -> Filter<'f>
    where
        'a: 'f,
    {
        Filter { features: self.features, shared: &self.shared, ..Filter::of(shape) }
    }

    fn all(features: Option<&'a FeatureExpr>, is_wish: bool) -> impl Iterator<Item = Self> {
        let ways = features.map_or_else(|| vec![Vec::new()], FeatureExpr::shared);
        let way = move |(number, shared)| Self { features, number, shared, is_wish };
        ways.into_iter().enumerate().map(way)
    }
}

/// All alternatives for the nodes of a request on a fabric, at least one: the preferred features first, then
/// the constraint.
pub(crate) fn alternatives<'a>(spec: &'a JobSpec, fabric: &Fabric) -> SmallVec<[Alternative<'a>; 1]> {
    let wish = spec.fabric.as_deref().and_then(|asked| wished_features(fabric, asked));
    let wished = wish.into_iter().flat_map(|wish| Alternative::all(Some(wish), true));
    wished.chain(Alternative::all(spec.shape.features.as_deref(), false)).collect()
}

/// The largest number of alternatives on any fabric.
pub(crate) fn most_alternatives(spec: &JobSpec) -> usize {
    let ways = |features: &FeatureExpr| features.shared().len();
    let wish = spec.fabric.as_deref().and_then(|asked| asked.prefer.as_deref());
    wish.map_or(0, ways) + spec.shape.features.as_deref().map_or(1, ways)
}

/// The features of nodes in a partition: their own, and the names of their domains.
pub(crate) fn known_features<'a>(wisher: &Wisher<'a>) -> BTreeSet<&'a str> {
    let Wisher { inventory, fabric, .. } = *wisher;
    let mut known = BTreeSet::new();
    for id in &wisher.partition().nodes {
        known.extend(inventory.nodes[id.index()].shape.features.iter().map(|feature| &**feature));
        known.extend(fabric.pos(*id).map(|pos| fabric.features(pos)).unwrap_or_default());
    }
    known
}

impl<'a> Filter<'a> {
    /// The filter of a request.
    pub(crate) fn of(shape: &'a Shape) -> Self {
        Self {
            features: shape.features.as_deref(),
            shared: &[],
            exclude: shape.exclude.as_deref(),
            within: None,
            without: &[],
        }
    }

    /// The configured nodes of a partition that pass the filter, whatever their state.
    ///
    /// # Errors
    /// A message about a name in a hostlist that is unknown.
    pub(crate) fn admitted(&self, wisher: &Wisher<'_>) -> Result<FixedBitSet, String> {
        let Wisher { inventory, fabric, .. } = *wisher;
        let mut admitted = wisher.partition().members.clone();
        admitted.grow(inventory.nodes.len());
        for (index, node) in inventory.nodes.iter().enumerate() {
            if !(node.configured && self.admits(wisher, NodeId::at(index))) {
                admitted.set(index, false);
            }
        }
        if let Some(exclude) = self.exclude {
            for name in named(fabric, exclude)? {
                if let Some(pos) = fabric.pos_named(&name) {
                    admitted.set(fabric.node(pos).index(), false);
                }
            }
        }
        Ok(admitted)
    }

    /// True if a node passes the filter; `exclude` is not considered here.
    fn admits(&self, wisher: &Wisher<'_>, node: NodeId) -> bool {
        self.within.is_none_or(|within| within.holds(node))
            && !self.without.iter().any(|without| without.holds(node))
            && self.features.iter().chain(self.shared).all(|wanted| wisher.has_features(node, wanted))
    }
}

/// The names that a hostlist stands for, with functions over the fabric resolved.
pub(crate) fn named(fabric: &Fabric, list: &HostExpr) -> Result<Vec<String>, String> {
    let mut functions = FunctionNodes::new(fabric);
    let mut add = |function: &Function| functions.add(function).map_err(|error| error.to_string());
    let names = list.expand(&mut add).map_err(|error| error.to_string())?;
    Ok(names.iter().collect())
}

/// Past performance at each position of a fabric, in millionths; `None` if no node was lost under a job.
fn performance(inventory: &Inventory, fabric: &Fabric) -> Option<Arc<[u32]>> {
    let by_position = |index| inventory.nodes[fabric.node(Pos::at(index)).index()].performance;
    let known: Arc<[u32]> = (0..fabric.len()).map(by_position).collect();
    known.iter().any(|share| *share < Past::default().performance()).then_some(known)
}

/// The slots of an idle node of each class.
fn by_class(inventory: &Inventory, need: &Need) -> Arc<[u32]> {
    let rooms = &inventory.rooms;
    let slots = rooms.classes().map(|class| need.slots(rooms.shape(class), rooms.amount(rooms.full(class))));
    slots.map(|slots| if need.counts_nodes() { slots.min(1) } else { slots }).collect()
}

/// Slots from the number at each position.
pub(crate) fn slots_by_position(fabric: &Fabric, need: &Need, slots: Vec<u32>) -> Slots {
    if need.counts_whole_nodes() { Slots::whole(fabric, open(&slots)) } else { Slots::tasks(fabric, slots) }
}

/// Calls `look` with other slots at some positions, then restores the former slots.
pub(crate) fn with_others<T>(
    fabric: &Fabric,
    slots: &mut Slots,
    others: impl IntoIterator<Item = (Pos, u32)>,
    look: impl FnOnce(&mut Slots) -> T,
) -> T {
    let others = others.into_iter().map(|(pos, other)| (pos, slots.put(fabric, pos, other)));
    let before: Vec<(Pos, u32)> = others.collect();
    slots.sum_up(fabric);
    let seen = look(slots);
    for (pos, had) in before.into_iter().rev() {
        slots.put(fabric, pos, had);
    }
    seen
}

/// The positions of a fabric whose node meets a condition.
pub(crate) fn positions_where(fabric: &Fabric, holds: impl Fn(NodeId) -> bool) -> FixedBitSet {
    let mut positions = FixedBitSet::with_capacity(fabric.len());
    positions.extend((0..fabric.len()).filter(|index| holds(fabric.node(Pos::at(*index)))));
    positions
}
