//! Room for several components that start at one moment.

use std::sync::Arc;

use crate::id::NodeId;
use crate::sched::inventory::Inventory;
use crate::sched::request::constraints::Stage;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::sched::space::Space;
use crate::sched::timeline::licenses::{Asked, WantedLicenses};
use crate::sched::together::{Member, Nearness, Seat, is_sure, place_together};
use crate::text::time::Time;

use crate::sched::request::part::Part;
use crate::sched::space::{Aspect, Hit, Query};

/// Moments at which all components of one job are tried: a count, so that a pass decides the same on every machine.
const MOST_MOMENTS: u32 = 200;

/// A component in one partition, seen through one of its sets of eligible nodes.
pub(crate) struct Place<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) eligible: &'a Arc<EligibleNodes>,
}

/// What a component asks for if it starts then.
fn stage<'a>(query: &Query<'a>, at: Time) -> Option<&'a Stage> {
    query.stages.iter().find(|stage| stage.from <= at && at < stage.until)
}

/// The earliest moment before `until` at which all components fit at once, and where each then goes.
///
/// A moment is worth a look if each component fits then by itself. Whether they do so together is asked at that
/// moment, and then whenever somebody gives something back.
pub(crate) fn find_together(
    space: &mut impl Space,
    inventory: &Inventory,
    places: &[Place<'_>],
    near: &Nearness,
    until: Time,
) -> Option<Vec<(Hit, Vec<Part>)>> {
    let asked: Vec<(usize, &WantedLicenses)> =
        places.iter().map(|place| (place.query.realm, place.query.licenses)).collect();
    let run_time = places.iter().map(|place| place.query.run_time).max()?;
    let mut budget = places.first()?.query.stages.first()?.ask().budget;
    let mut moments: Option<Vec<Time>> = None;
    let last = places.iter().filter_map(|place| space.realms().end(place.query.realm)).min();
    let until = last.map_or(until, |last| last.min(until));
    let first = places.iter().map(|place| place.query.from).max()?;
    let mut at = first.max(space.now());
    for tried in 0..=MOST_MOMENTS {
        at = each_alone(space, places, &asked, run_time, at, until)?;
        let starts = at == space.now() && space.licenses().lacking(&asked, at, run_time).is_none();
        for starts in [starts, false] {
            let found = at_once(space, inventory, places, near, at, starts, &mut budget);
            if !is_sure(&found) {
                space.doubt();
            }
            if let Ok(seats) = found {
                let hits = places.iter().zip(seats).map(|(Place { query, eligible }, seat)| {
                    let stage = stage(query, at).expect("it was placed by its stage at that time");
                    let placed = (seat.placement, Vec::new());
                    let aspect = Aspect { query, stage, eligible };
                    (aspect.hit(space.realms(), (at, starts), placed), seat.parts)
                });
                return Some(hits.collect());
            }
            if !starts {
                break;
            }
        }
        let moments = moments.get_or_insert_with(|| all_moments(space, places));
        let next = *moments.get(moments.partition_point(|moment| *moment <= at))?;
        // After so many, the one at which everything that is planned is over.
        at = if tried + 1 < MOST_MOMENTS { next } else { moments.last().copied().unwrap_or(next) };
    }
    None
}

/// The first moment from `from` on at which each component fits by itself, and there are licenses for all.
fn each_alone(
    space: &mut impl Space,
    places: &[Place<'_>],
    asked: &Asked<'_>,
    run_time: u64,
    from: Time,
    until: Time,
) -> Option<Time> {
    let mut at = from;
    loop {
        let before = at;
        at = space.licensed(asked, at, run_time)?;
        for place in places {
            at = alone(space, place, at, until)?;
        }
        if at == before {
            return (at < until).then_some(at);
        }
    }
}

fn alone(space: &mut impl Space, place: &Place<'_>, from: Time, until: Time) -> Option<Time> {
    let stages = place.query.stages.iter().filter(|stage| stage.until > from);
    for stage in stages {
        let times = stage.from.max(from)..stage.until.min(until);
        if times.is_empty() {
            continue;
        }
        let aspect = Aspect { query: &place.query, stage, eligible: place.eligible };
        if let (Some(hit), _) = space.search(aspect, times) {
            return Some(hit.start);
        }
    }
    None
}

/// Places all components at one moment; if they are to start, on no more than nobody holds.
///
/// # Errors
/// There is no way; the flag says whether that is certain.
fn at_once(
    space: &mut impl Space,
    inventory: &Inventory,
    places: &[Place<'_>],
    near: &Nearness,
    at: Time,
    starts: bool,
    budget: &mut u64,
) -> Result<Vec<Seat>, bool> {
    let mut members = Vec::with_capacity(places.len());
    for Place { query, eligible } in places {
        let stage = stage(query, at).ok_or(true)?;
        let rooms = (0..inventory.nodes.len()).map(|node| {
            let id = NodeId::at(node);
            let admits = eligible.admitted.contains(node);
            if admits { space.room(query.realm, id, at, query.run_time, starts) } else { None }
        });
        let rooms = rooms.collect();
        let minds = stage.ask().minds_others(query.run_time);
        let occupied = minds.map(|seconds| space.occupied(query.realm, eligible, (at, seconds), starts));
        members.push(Member { eligible, need: &query.request.need, asks: &stage.asks, rooms, occupied });
    }
    place_together(inventory, space.rooms(), &members, near, budget)
}

/// The moments at which a node has something else than before, or a component asks for something else.
fn all_moments(space: &impl Space, places: &[Place<'_>]) -> Vec<Time> {
    let stages = places.iter().flat_map(|place| place.query.stages).map(|stage| stage.from);
    let steps = places.iter().flat_map(|place| space.moments(place.query.realm));
    let mut moments: Vec<Time> = steps.chain(stages).filter(|at| !at.is_never()).collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}
