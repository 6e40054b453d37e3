//! Het jobs in a pass: components that start at one moment or not at all.

use std::ops::Range;
use std::sync::Arc;

use crate::id::{JobId, NodeId};
use crate::model::config::Backfill;
use crate::model::reason::Reason;
use crate::sched::explain;
use crate::sched::plan::UNAVAILABLE;
use crate::sched::planned_starts::{Reservation, Turn};
use crate::sched::prospect::{self, Prospect, Prospects};
use crate::sched::queue::{Candidate, Queued};
use crate::sched::request::Part;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::sched::shorter_time::{self, Length};
use crate::sched::space::{Hit, Query, Space};
use crate::sched::state::together::{Joint, Place};
use crate::sched::timeline::licenses::{WantedLicenses, wanted};
use crate::sched::together::{Nearness, nearness, ways};
use crate::text::hostlist::HostList;
use crate::text::time::Time;

use super::limits::Stretch;
use super::walk::{EXPLAINED, Walk};

/// The nodes of a job or of one component: the prospect through which they were found, the hit, and the
/// parts.
pub(super) type Seat<'a> = (&'a Prospect, Hit, Vec<Part>);

/// One prospect of a component with one of its sets of eligible nodes.
pub(super) type Sight<'a> = (&'a Prospect, &'a Arc<EligibleNodes>);

impl<S: Space> Walk<S> {
    /// Starts all components, or finds their earliest start and the reason why they do not start now.
    pub(super) fn consider_together(&mut self, candidate: &Queued) {
        let known = candidate.all().filter_map(|component| self.take_known(component.attempt.job));
        let known: Vec<Arc<Reservation>> = known.collect();
        let mut prospects = Vec::with_capacity(candidate.rest.len() + 1);
        for component in candidate.all() {
            match self.prospects(component) {
                Ok(found) => prospects.push(found),
                Err(problem) => {
                    return self.wait(candidate, Reason::BadConstraints, problem, None);
                }
            }
        }
        if self.starts_as_nominated(candidate) {
            return;
        }
        let reserves = !self.is_unreserved(candidate)
            && known.is_empty()
            && prospects.iter().flat_map(|of| of.iter()).any(|own| self.reserves(own));
        if let Some(stop) = self.stopped_together(candidate, reserves || !known.is_empty()) {
            self.stop(candidate, stop);
            return;
        }
        let strict = self.backfill == Backfill::None && !reserves && known.is_empty();
        let until = if reserves { Time::MAX } else { self.now + 1 };
        let found = match strict {
            true => Ok(None),
            false => self.earliest_together(candidate, &prospects, until),
        };
        let found = found.map(|found| {
            let places = |seats: &Vec<Seat<'_>>| {
                let found =
                    seats.iter().map(|(prospect, hit, parts)| (*prospect, &**parts, Stretch::of(hit)));
                self.stops_at(candidate, found, &[])
            };
            let stops = found.as_ref().is_some_and(places);
            found.filter(|_| !stops)
        });
        if self.is_stopped() && known.is_empty() {
            return self.stop_noted(candidate);
        }
        self.take_stop(candidate);
        match found {
            Err(problem) => self.wait(candidate, Reason::BadConstraints, problem, None),
            Ok(Some(seats)) if seats[0].1.starts => self.start(candidate, &seats),
            Ok(_) if self.clears_the_way(candidate, &prospects) => {}
            Ok(_) if self.is_stopped() => self.stop_noted(candidate),
            Ok(found) => {
                let found = found.filter(|_| reserves);
                self.hold_back(candidate, &prospects, known, found.is_some(), |walk| {
                    let all = (0..).zip(candidate.all()).zip(found.into_iter().flatten());
                    let book =
                        |((number, component), (prospect, hit, parts)): ((_, &Candidate), Seat<'_>)| {
                            let turn = Turn { key: candidate.key, number };
                            walk.reservation(component, turn, prospect, &hit, parts)
                        };
                    all.map(book).collect::<Vec<_>>()
                });
            }
        }
    }

    /// The earliest start of all components before `until`, with all of their time or with less, and the
    /// nodes of each.
    fn earliest_together<'p>(
        &mut self,
        candidate: &Candidate,
        prospects: &'p [Prospects],
        until: Time,
    ) -> Result<Option<Vec<Seat<'p>>>, String> {
        let (mut ways, mut problem) = (Vec::new(), None);
        for chosen in combinations(prospects) {
            match nearness(&candidate.spec, chosen.iter().map(|(_, eligible)| &*eligible.fabric)) {
                Ok(near) => ways.push((chosen, near)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if let Some(problem) = problem.filter(|_| ways.is_empty()) {
            return Err(problem);
        }
        // The job goes before others in a head group in which no job waits.
        let job = candidate.attempt.job;
        let all = prospects.iter().flat_map(|of| of.iter());
        let floors = all.map(|prospect| self.floor(job, self.seat_of(prospect)));
        let from = floors.min().unwrap_or(self.now);
        let hit: for<'s> fn(&'s Vec<Seat<'p>>) -> &'s Hit = |seats| &seats[0].1;
        Ok(self.earliest(candidate, hit, |walk, length, before| {
            walk.search_together(candidate, &ways, length, from..until.min(before))
        }))
    }

    /// The earliest start of all components with a run time, over all combinations of prospects.
    fn search_together<'p>(
        &mut self,
        candidate: &Candidate,
        ways: &[(Vec<Sight<'p>>, Nearness)],
        length: Length,
        Range { start: from, end: until }: Range<Time>,
    ) -> Option<Vec<Seat<'p>>> {
        let mut best: Option<Vec<Seat<'p>>> = None;
        for (chosen, near) in ways {
            let until = best.as_ref().map_or(until, |seats| seats[0].1.start);
            let places: Vec<Place<'_>> = chosen
                .iter()
                .zip(candidate.all())
                .map(|(&(prospect, eligible), component)| {
                    let (run_time, _) = length.of(component);
                    Place { query: Query { run_time, from, ..prospect.query(component, until) }, eligible }
                })
                .collect();
            let (space, inventory) = (&mut self.space, &self.inventory);
            let mut joint = Joint { space, inventory, places: &places, near };
            let Some(hits) = joint.find(until) else { continue };
            let seats = chosen.iter().zip(hits).zip(candidate.all());
            let seats = seats.map(|(((prospect, _), (hit, parts)), component)| {
                let (_, limit) = length.of(component);
                (*prospect, Hit { limit, ..hit }, parts)
            });
            best = Some(seats.collect());
        }
        best
    }

    /// The reason why the components fit at no time; `None` if they do.
    pub(super) fn never_together(
        &mut self,
        candidate: &Candidate,
        prospects: &[Prospects],
        reserves: bool,
    ) -> Option<(Reason, String)> {
        let asked = asked(candidate, prospects.iter().map(|of| &of[0]));
        let longest = longest(candidate);
        if reserves
            && self.space.licenses().earliest(&asked, self.now, longest).is_none()
            && let Some(detail) = self.space.lacks_license(&asked, longest)
        {
            return Some((Reason::Licenses, detail));
        }
        // True if a component fits only after the time that plans know.
        let mut is_beyond = false;
        for ((offset, of), component) in prospects.iter().enumerate().zip(candidate.all()) {
            let never = match reserves {
                true => {
                    let mut queries = of.iter().map(|prospect| prospect.query(component, Time::MAX));
                    !queries.any(|query| self.space.find(&query).is_some())
                }
                false => self.deep && self.lacks_nodes(component, of),
            };
            if never && let Some((reason, detail)) = prospect::never(&self.inventory, of) {
                let (reason, detail) = self.limit(component, reason).unwrap_or((reason, detail));
                return Some((reason, format!("component {offset}: {detail}")));
            }
            is_beyond |= never;
        }
        if !reserves || is_beyond || shorter_time::too_late(candidate).is_some() {
            return None;
        }
        let out = prospects.iter().flat_map(|of| of.iter()).flat_map(|prospect| &prospect.eligible_sets);
        let out = out
            .flat_map(|eligible| eligible.admitted.ones())
            .filter(|node| !self.inventory.nodes[*node].available);
        let mut out: Vec<NodeId> = out.map(NodeId::at).collect();
        out.sort_unstable();
        out.dedup();
        if out.is_empty() {
            let detail = "the components never fit the cluster together".to_owned();
            return Some((Reason::BadConstraints, detail));
        }
        let names = HostList::from_names(self.inventory.names(out));
        Some((Reason::ReqNodeNotAvail, format!("{UNAVAILABLE}{names}")))
    }

    /// The sentence about what is missing now: of the first component that does not fit by itself, or of all
    /// together.
    pub(super) fn missing_together(
        &mut self,
        candidate: &Candidate,
        prospects: &[Prospects],
        behind: Option<JobId>,
    ) -> String {
        self.explained += 1;
        if self.explained > EXPLAINED {
            return String::new();
        }
        for ((offset, of), component) in prospects.iter().enumerate().zip(candidate.all()) {
            let Some(prospect) = of.first() else { continue };
            let query = prospect.query(component, self.now + 1);
            if let Some((misfit, free)) = self.space.misfit(&query) {
                let fabric = &prospect.plain().fabric;
                let detail = explain::waiting(fabric, prospect.request(), &misfit, free);
                return format!("component {offset}: {detail}");
            }
        }
        let near = candidate.spec.fabric.as_ref().and_then(|fabric| fabric.het_gather.as_ref());
        match (near.filter(|near| near.clauses.iter().any(|clause| clause.must)), behind) {
            (Some(near), _) => format!("the components do not fit together under --het-gather={near}"),
            (None, Some(head)) => format!("job {head} comes first"),
            (None, None) => "each component fits by itself, and all do not fit together".to_owned(),
        }
    }
}

/// The licenses that the components want, each through one of its prospects.
pub(super) fn asked<'a, 'p>(
    candidate: &'a Candidate,
    prospects: impl Iterator<Item = &'p Prospect>,
) -> Vec<(usize, &'a WantedLicenses)> {
    let realms = prospects.map(|prospect| prospect.realm);
    candidate.all().zip(realms).map(|(component, realm)| (realm, wanted(&component.spec))).collect()
}

/// The longest run time of the components in seconds.
pub(super) fn longest(candidate: &Candidate) -> u64 {
    candidate.all().map(|component| component.run_time).max().unwrap_or(1)
}

/// All combinations of one prospect and set of eligible nodes for each component, at most 64.
pub(super) fn combinations(prospects: &[Prospects]) -> Vec<Vec<Sight<'_>>> {
    fn sights(prospect: &Prospect) -> impl Iterator<Item = Sight<'_>> {
        prospect.eligible_sets.iter().map(move |eligible| (prospect, eligible))
    }
    let choices = prospects.iter().map(|of| of.iter().flat_map(sights).collect());
    ways(&choices.collect::<Vec<Vec<Sight<'_>>>>())
}
