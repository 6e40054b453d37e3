//! Starts for several components at one moment.

use std::sync::Arc;

use crate::id::NodeId;
use crate::sched::inventory::Inventory;
use crate::sched::request::constraints::Stage;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::sched::timeline::licenses::{Asked, WantedLicenses};
use crate::sched::together::{Member, Nearness, Seat, is_sure, place_together};
use crate::text::time::Time;

use crate::sched::request::Part;
use crate::sched::space::{Aspect, Hit, Query, Space};

/// Number of moments at which all components of one job are tried. A count makes a pass decide the same on
/// every machine.
const MOST_MOMENTS: u32 = 200;

/// A component in one partition with one of its sets of eligible nodes.
pub(crate) struct Place<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) eligible: &'a Arc<EligibleNodes>,
}

/// All components of a job, which must start at one moment.
pub(crate) struct Joint<'a, S> {
    pub(crate) space: &'a mut S,
    pub(crate) inventory: &'a Inventory,
    pub(crate) places: &'a [Place<'a>],
    pub(crate) near: &'a Nearness,
}

/// The stage of a component that starts at `at`.
fn stage<'a>(query: &Query<'a>, at: Time) -> Option<&'a Stage> {
    query.stages.iter().find(|stage| stage.from <= at && at < stage.until)
}

impl<S: Space> Joint<'_, S> {
    /// The earliest moment before `until` at which all components fit at once, with the placement of each.
    ///
    /// A moment is tried if each component fits alone then. The placement of all together is tried at that
    /// moment, and then whenever resources are returned.
    pub(crate) fn find(&mut self, until: Time) -> Option<Vec<(Hit, Vec<Part>)>> {
        let places = self.places;
        let asked: Vec<(usize, &WantedLicenses)> =
            places.iter().map(|place| (place.query.realm, place.query.licenses)).collect();
        let run_time = places.iter().map(|place| place.query.run_time).max()?;
        let mut budget = places.first()?.query.stages.first()?.ask().budget;
        let mut moments: Option<Vec<Time>> = None;
        let last = places.iter().filter_map(|place| self.space.realms().end(place.query.realm)).min();
        let until = last.map_or(until, |last| last.min(until));
        let first = places.iter().map(|place| place.query.from).max()?;
        let mut at = first.max(self.space.now());
        for tried in 0..=MOST_MOMENTS {
            at = self.each_alone(&asked, run_time, at, until)?;
            let waits =
                at > self.space.now() || self.space.licenses().lacking(&asked, at, run_time).is_some();
            for starts in [true, false].into_iter().skip(usize::from(waits)) {
                let found = self.at_once(at, starts, &mut budget);
                if !is_sure(&found) {
                    self.space.doubt();
                }
                if let Ok(seats) = found {
                    let hits = places.iter().zip(seats).map(|(Place { query, eligible }, seat)| {
                        let stage = stage(query, at).expect("it was placed by its stage at that time");
                        let placed = (seat.placement, Vec::new(), starts);
                        let aspect = Aspect { query, stage, eligible };
                        (aspect.hit(self.space.realms(), at, placed), seat.parts)
                    });
                    return Some(hits.collect());
                }
            }
            let moments = moments.get_or_insert_with(|| self.moments());
            let next = *moments.get(moments.partition_point(|moment| *moment <= at))?;
            // After this many moments, only the one after all planned ends is tried.
            at = if tried + 1 < MOST_MOMENTS { next } else { moments.last().copied().unwrap_or(next) };
        }
        None
    }

    /// The first moment from `from` on at which each component fits alone and there are licenses for all.
    fn each_alone(&mut self, asked: &Asked<'_>, run_time: u64, from: Time, until: Time) -> Option<Time> {
        let mut at = from;
        loop {
            let before = at;
            at = self.space.licensed(asked, at, run_time)?;
            for place in self.places {
                at = self.alone(place, at, until)?;
            }
            if at == before {
                return (at < until).then_some(at);
            }
        }
    }

    fn alone(&mut self, Place { query, eligible }: &Place<'_>, from: Time, until: Time) -> Option<Time> {
        let stages = query.stages.iter().filter(|stage| stage.until > from);
        let times = stages.map(|stage| (stage, stage.from.max(from)..stage.until.min(until)));
        times.filter(|(_, times)| !times.is_empty()).find_map(|(stage, times)| {
            let (hit, _) = self.space.search(Aspect { query, stage, eligible }, times);
            hit.map(|hit| hit.start)
        })
    }

    /// Places all components at one moment; if `starts`, only on what no job holds.
    ///
    /// # Errors
    /// There is no placement; the flag is true if that is certain.
    fn at_once(&mut self, at: Time, starts: bool, budget: &mut u64) -> Result<Vec<Seat>, bool> {
        let Self { space, inventory, places, near } = self;
        let mut members = Vec::with_capacity(places.len());
        for Place { query, eligible } in *places {
            let stage = stage(query, at).ok_or(true)?;
            let rooms = (0..inventory.nodes.len()).map(|node| {
                let id = NodeId::at(node);
                let admits = eligible.admitted.contains(node);
                if admits { space.room(query.realm, id, at, query.run_time, starts) } else { None }
            });
            let rooms = rooms.collect();
            let minds = stage.ask().minds_others(query.run_time);
            let occupied =
                minds.map(|seconds| space.occupied(query.realm, &eligible.fabric, (at, seconds), starts));
            members.push(Member { eligible, need: &query.request.need, asks: &stage.asks, rooms, occupied });
        }
        place_together(inventory, space.rooms(), &members, near, (budget, None))
    }

    /// The times at which the amount of a node changes, or a component enters another stage.
    fn moments(&self) -> Vec<Time> {
        let places = self.places;
        let stages = places.iter().flat_map(|place| place.query.stages).map(|stage| stage.from);
        let steps = places.iter().flat_map(|place| self.space.moments(place.query.realm));
        let mut moments: Vec<Time> = steps.chain(stages).filter(|at| !at.is_never()).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }
}
