//! The domains that lost, for a job of whole nodes that are all alike.
//!
//! Lower layers rank first. In one layer counts pick the candidates for the best few: leaves by their slots;
//! domains of leaves by the fewest leaves that hold the job, then by their slots. Identical domains rank
//! equally. So only a few domains are solved, however many could have held the job.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::answer::Lost;
use crate::sched::place::problem::{self, Contender, Holder, Problem};
use crate::sched::place::special::comparison::ranked;
use crate::sched::place::special::if_any;

use super::capacity::Rooms;
use super::{at_layer, fewest};

/// The key of domains of leaves that rank equally: their parent, and the capacity and slots of each leaf.
type Likeness = (Option<DomainId>, Vec<(u32, u64)>);

/// The best `most` domains that could have held such a job, each with the step at which it lost; `None` if
/// this solver does not apply.
pub(crate) fn losers(problem: &Problem<'_>, most: usize) -> Option<Vec<Lost>> {
    let ask = problem.ask;
    let applies = super::applies(problem)
        && problem.nodes_are_alike()
        && problem.adds_up()
        && problem.span_caps.is_empty()
        && ask.min_speed.is_none()
        && !ask.score.any();
    let rooms = applies.then(|| Rooms::new(problem)).flatten()?;
    let of_layer = |layer: Layer, few: usize, may_lose: &dyn Fn(DomainId) -> bool| {
        let mut found: Vec<Contender> = Vec::new();
        let holders = if layer > Layer::NODE { shortlist(&rooms, layer, few) } else { Vec::new() };
        for id in holders.into_iter().filter(|id| may_lose(*id)) {
            if let Some((holder, shares)) = if_any(at_layer(&rooms, &[id])).ok()? {
                found.push((ranked(problem, holder, shares.into_iter()), Holder::Domain(holder)));
            }
        }
        Some(found)
    };
    problem::losers(problem, ask.prefer.is_empty(), most, of_layer)
}

/// The domains of a layer that can be among its best few.
fn shortlist(rooms: &Rooms<'_, '_>, layer: Layer, few: usize) -> Vec<DomainId> {
    if layer == Layer::LEAF {
        return first_leaves(rooms, few);
    }
    let holders = rooms.holders(layer);
    if holders.iter().all(|&id| rooms.problem.lies_over_leaves(id)) {
        first_of_leaves(rooms, holders, few)
    } else {
        holders
    }
}

/// The first `few` leaves, ordered by their slots and by the slots of their ancestors.
fn first_leaves(rooms: &Rooms<'_, '_>, few: usize) -> Vec<DomainId> {
    let problem = rooms.problem;
    let fabric = problem.fabric;
    let above = |id: DomainId| -> Vec<u64> {
        let layers = (Layer::LEAF.0 + 1..=fabric.top().0).map(Layer);
        layers.map(|layer| problem.slots(fabric.covering(id, layer))).collect()
    };
    // Neighbours mostly have the same parent. A leaf that covers several layers counts as its own ancestor.
    let mut known: (Option<DomainId>, Vec<u64>) = (None, Vec::new());
    let mut first: Vec<(u64, Vec<u64>, DomainId)> = Vec::with_capacity(few + 1);
    rooms.each_holder(Layer::LEAF, |id| {
        let slots = problem.slots(id);
        let last = first.last().filter(|_| first.len() == few);
        if last.is_some_and(|last| last.0 < slots) {
            return;
        }
        let parent = fabric.domain(id).parent().filter(|_| fabric.domain(id).cover() == Layer::LEAF);
        if parent.is_none() || parent != known.0 {
            known = (parent, above(id));
        }
        // Of equal leaves the first in fabric order comes first.
        if last.is_some_and(|last| (last.0, &last.1) <= (slots, &known.1)) {
            return;
        }
        let at = first.partition_point(|other| (other.0, &other.1) <= (slots, &known.1));
        first.insert(at, (slots, known.1.clone(), id));
        first.truncate(few);
    });
    first.into_iter().map(|(.., id)| id).collect()
}

/// The domains that need the fewest leaves to hold the job, and among these the ones with the fewest slots;
/// of identical domains only the first `few`.
fn first_of_leaves(rooms: &Rooms<'_, '_>, holders: Vec<DomainId>, few: usize) -> Vec<DomainId> {
    let problem = rooms.problem;
    let fabric = problem.fabric;
    let mut scratch = Vec::new();
    let mut key = |id: DomainId| {
        let count = fewest(rooms, fabric.domain(id).children(), &mut scratch)?;
        Some(((count, problem.slots(id)), id))
    };
    let mut counted: Vec<((u32, u64), DomainId)> = holders.into_iter().filter_map(&mut key).collect();
    if counted.len() > few {
        let mut keys: Vec<(u32, u64)> = counted.iter().map(|(key, _)| *key).collect();
        let (_, last, _) = keys.select_nth_unstable(few - 1);
        counted.retain(|(key, _)| key <= last);
    }
    // Domains whose leaves differ only in order rank equally, next to each other.
    let mut alike: BTreeMap<Likeness, usize> = BTreeMap::new();
    let mut is_one_of_few = |id: DomainId| {
        let leaves = fabric.domain(id).children().iter();
        let mut leaves: Vec<(u32, u64)> =
            leaves.map(|&leaf| (rooms.room(leaf), problem.slots(leaf))).collect();
        leaves.sort_unstable();
        let count = alike.entry((fabric.domain(id).parent(), leaves)).or_default();
        *count += 1;
        *count <= few
    };
    counted.into_iter().map(|(_, id)| id).filter(|id| is_one_of_few(*id)).collect()
}
