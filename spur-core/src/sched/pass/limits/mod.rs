//! The limits of associations and QOS in a pass.
//!
//! A job is stopped if a limit leaves too little at the moment at which it would otherwise start, or later
//! while it runs. A stopped job keeps no nodes and keeps no other job waiting. A job that is planned for
//! later is booked in its limits, and no job behind it takes the booked amounts.
//!
//! If a limit leaves too little now, jobs that may get nodes for later are looked at all the same, because
//! other jobs may have ended by then. Once such a limit has stopped a job, it stops every job behind it that
//! asks for no less of the limit.

mod amounts;
mod fits;
mod room;
mod stopped_alike;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::limits::{Asked, Rules, Stop, counted_seconds};
use crate::cluster::tres::{self, Amounts, Tariff};
use crate::id::{JobId, NodeId};
use crate::model::config::AccountingEnforce;
use crate::sched::forecast::PlanInput;
use crate::sched::inventory::Inventory;
use crate::sched::plan::Start;
use crate::sched::planned_starts::Reservation;
use crate::sched::prospect::{Prospect, Prospects};
use crate::sched::queue::asleep::{Group, Lane};
use crate::sched::queue::chunks::Key;
use crate::sched::queue::pending_order::PendingOrder;
use crate::sched::queue::{Candidate, Queued};
use crate::sched::request::Part;
use crate::sched::space::{Hit, Space};
use crate::text::time::{Time, TimeLimit};

use super::walk::Walk;
use amounts::Recent;
pub(crate) use fits::Fits;
pub(crate) use room::Bookings;
use room::{Ask, Booking, Over, Room};
use stopped_alike::StoppedAlike;

/// The limits in a pass, with the notes on the job that is looked at.
#[derive(Debug)]
pub(crate) struct PassLimits {
    room: Room,
    /// The partitions in which a limit stops the job that is looked at.
    barred: Vec<usize>,
    /// The partitions in which a limit lets that job start later at best.
    not_now: Vec<usize>,
    /// The limit that stopped the job that is looked at; `None` if no limit did.
    stop: Option<Over>,
    /// A limit that leaves that job too little now, and may leave enough later.
    lacks: Option<Over>,
    /// The last place in the queue of a job for which nodes were found and that only a limit stops.
    last_stopped: Option<Key>,
    /// The components of the job that is looked at, by job and partition, at the places and times at which
    /// limits let them start.
    found: Vec<(JobId, usize, Booking)>,
    closed: Closed,
    fits: Fits,
    recent: Recent,
    alike: StoppedAlike,
    /// The jobs that are stopped whatever nodes are free, each with the limit that stops it.
    stopped: Vec<(JobId, Group)>,
}

impl PassLimits {
    /// The limits of a cluster for the jobs of a queue; `None` where none are enforced.
    pub(crate) fn new(
        PlanInput { cluster, now, .. }: PlanInput<'_>,
        line: &PendingOrder,
    ) -> Option<Box<Self>> {
        let enforces = |part| Cluster::enforces(cluster, part);
        enforces(AccountingEnforce::Limits).then(|| {
            let usage = cluster.usage().of_holders(line.budgets());
            let (running, safe) = (Arc::clone(cluster.counters()), enforces(AccountingEnforce::Safe));
            Box::new(Self {
                room: Room::new(running, usage, safe, now),
                barred: Vec::new(),
                not_now: Vec::new(),
                stop: None,
                lacks: None,
                last_stopped: None,
                found: Vec::new(),
                closed: Closed::default(),
                fits: Fits::default(),
                recent: Recent::default(),
                alike: StoppedAlike::default(),
                stopped: Vec::new(),
            })
        })
    }

    /// Sets the jobs that are planned for later already.
    pub(crate) fn beside(&mut self, booked: Bookings) {
        self.room.booked = booked;
    }

    /// Takes out the jobs that are planned for later.
    pub(crate) fn take_bookings(&mut self) -> Bookings {
        std::mem::take(&mut self.room.booked)
    }

    /// Takes over the limits that have stopped jobs in an earlier pass, if no job has ended since.
    pub(crate) fn stay_closed(&mut self, closed: Closed) {
        self.closed = closed;
    }

    /// Takes out the jobs that are stopped whatever nodes are free, each with the limit that stops it.
    pub(crate) fn take_stopped(&mut self) -> Vec<(JobId, Group)> {
        std::mem::take(&mut self.stopped)
    }

    /// True if a limit has stopped a job that comes before a place in the queue and asks for no more than the
    /// group.
    pub(crate) fn is_closed(&self, group: &(Lane, u128), key: Key) -> bool {
        self.closed.stops(&group.0, group.1, key)
    }

    /// The first second at which a limit leaves enough for a job that it has stopped, if nothing else happens
    /// until then; `None` if there is none.
    pub(crate) fn again(&self) -> Option<Time> {
        self.room.again()
    }

    /// The last place in the queue of a job for which nodes were found and that only a limit stops.
    pub(crate) fn last_stopped(&self) -> Option<Key> {
        self.last_stopped
    }

    /// Sets the places of jobs that only a limit stopped in an earlier pass.
    pub(crate) fn recall_fits(&mut self, fits: Fits) {
        self.fits = fits;
    }

    /// Takes out the places of jobs that only a limit has stopped.
    pub(crate) fn take_fits(&mut self) -> Fits {
        std::mem::take(&mut self.fits)
    }

    /// Takes out the limits that have stopped jobs.
    pub(crate) fn take_closed(&mut self) -> Closed {
        std::mem::take(&mut self.closed)
    }
}

/// The limits that have stopped jobs because they leave too little now. For each limit and each amount that a
/// job asked for, the place of the first such job in the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(BTreeMap<Lane, BTreeMap<u128, Key>>);

impl Closed {
    /// True if the limit has stopped a job that comes before a place in the queue and asks for no more than
    /// `wants`.
    fn stops(&self, lane: &Lane, wants: u128, key: Key) -> bool {
        self.0.get(lane).is_some_and(|first| first.range(..=wants).any(|(_, first)| *first < key))
    }

    /// True if the limit `over` has stopped a job that comes before a place in the queue and asks for no
    /// more. False for a job that exceeds the limit by itself.
    fn stops_over(&self, over: &Over, key: Key) -> bool {
        over.wants.is_some_and(|wants| self.stops(&over.lane(), wants, key))
    }

    /// Notes that a limit has stopped a job at a place in the queue.
    fn close(&mut self, over: &Over, key: Key) {
        if let Some(wants) = over.wants.filter(|_| !over.stop.planned) {
            let first = self.0.entry(over.lane()).or_default();
            let first = first.entry(wants).or_insert(key);
            *first = key.min(*first);
        }
    }
}

/// The time for which a job was found to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from: Time,
    /// Seconds that the job is planned to run.
    pub(super) lasts: u64,
    /// The time limit that the job gets, in seconds, if it differs from the requested one.
    pub(super) limit: Option<u64>,
}

impl Stretch {
    /// The time of a found placement.
    pub(super) fn of(hit: &Hit) -> Self {
        Self { from: hit.start, lasts: hit.lasts, limit: hit.limit }
    }
}

/// A job, or one component, at a place and a time at which it was found to fit.
pub(super) type Found<'a> = (&'a Prospect, &'a [Part], Stretch);

impl<S: Space> Walk<S> {
    /// Forgets the limits that stopped the previous job.
    pub(super) fn forget_stops(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.barred.clear();
            limits.not_now.clear();
            limits.found.clear();
            (limits.stop, limits.lacks) = (None, None);
        }
    }

    /// True if a limit stops the job that is looked at in a partition.
    pub(super) fn is_barred(&self, partition: usize) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.barred.contains(&partition))
    }

    /// True if a limit keeps the job that is looked at from starting now in a partition.
    pub(super) fn is_barred_now(&self, partition: usize) -> bool {
        let not_now =
            |limits: &PassLimits| limits.barred.contains(&partition) || limits.not_now.contains(&partition);
        self.limits.as_deref().is_some_and(not_now)
    }

    /// True if a limit stopped the job that is looked at.
    pub(super) fn is_stopped(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.stop.is_some())
    }

    /// Notes that the job that is looked at waits for the limit that stopped it.
    pub(super) fn stop_noted(&mut self, candidate: &Queued) {
        if let Some(stop) = self.take_stop(candidate) {
            self.stop(candidate, stop);
        }
    }

    /// The limit that stopped the job that is looked at; `None` if no limit did.
    pub(super) fn take_stop(&mut self, candidate: &Queued) -> Option<Stop> {
        let limits = self.limits.as_mut()?;
        let over = limits.stop.take()?;
        limits.closed.close(limits.lacks.as_ref().unwrap_or(&over), candidate.key);
        Some(over.stop)
    }

    /// Finds the partitions in which a limit stops the next job, judged by the least that the job takes.
    /// Returns the first such limit if a limit stops the job in all of its partitions. Amounts that other
    /// jobs hold now do not stop a job that has a later start. Nor do they stop a job that may get one,
    /// unless the limit has stopped an earlier job that asks for no more.
    pub(super) fn stopped(&mut self, candidate: &Queued, own: &[Prospect], has_later: bool) -> Option<Stop> {
        self.limits.as_ref()?;
        let (mut first, mut groups): (Option<Over>, SmallVec<[Group; 1]>) = (None, SmallVec::new());
        let mut fits_later = false;
        for choice in 0..candidate.choices.len() {
            let Some(over) = self.over_at_least(candidate, choice) else { continue };
            let partition = candidate.choices[choice].0;
            let mut here = own.iter().filter(|prospect| prospect.partition == partition);
            let may_wait =
                has_later || (here.any(|own| self.reserves(own)) && !self.is_unreserved(candidate));
            let limits = self.limits.as_mut()?;
            limits.not_now.push(partition);
            let is_closed = || !has_later && limits.closed.stops_over(&over, candidate.key);
            if !over.passing || !may_wait || is_closed() {
                limits.barred.push(partition);
                // Only quick passes leave out the other jobs of a group.
                if !self.deep {
                    groups.push(over.wants.map(|wants| (over.lane(), wants)));
                }
                first = first.or(Some(over));
            } else if !has_later && self.fits_too_early(candidate, choice, &over) {
                fits_later = true;
                self.limits.as_mut()?.barred.push(partition);
                first = first.or(Some(over));
            } else if !has_later {
                self.limits.as_mut()?.lacks.get_or_insert(over);
            }
        }
        let all = candidate.choices.iter().all(|(partition, _)| self.is_barred(*partition));
        let first = first.filter(|_| all)?;
        let limits = self.limits.as_mut()?;
        limits.closed.close(&first, candidate.key);
        // A job that waits for several limits may start when any of them leaves more.
        groups.dedup();
        if let ([group], true) = (&mut groups[..], candidate.array.is_none() && !fits_later) {
            limits.stopped.push((candidate.attempt.job, group.take()));
        }
        Some(first.stop)
    }

    /// True if the limit of a group leaves too little now for a job of the group that can have no later
    /// start, and no limit before it stops the job; notes the limit.
    pub(crate) fn still_stops(&mut self, candidate: &Candidate, key: Key, group: &(Lane, u128)) -> bool {
        let (1, true) = (candidate.choices.len(), candidate.rest.is_empty()) else { return false };
        let over = self.over_at_least(candidate, 0);
        let Some(over) = over.filter(|over| over.wants == Some(group.1) && over.lane() == group.0) else {
            return false;
        };
        self.limits.iter_mut().for_each(|limits| limits.closed.close(&over, key));
        true
    }

    /// Returns the first limit that stops a component of a het job in all of its partitions, judged by the
    /// least that the component takes. If `may_wait`, amounts that other jobs hold now do not stop a
    /// component.
    pub(super) fn stopped_together(&mut self, candidate: &Queued, may_wait: bool) -> Option<Stop> {
        self.limits.as_ref()?;
        for component in candidate.all() {
            let overs: Option<Vec<Over>> =
                (0..component.choices.len()).map(|choice| self.over_at_least(component, choice)).collect();
            let limits = self.limits.as_mut()?;
            let waits =
                |over: &Over| over.passing && may_wait && !limits.closed.stops_over(over, candidate.key);
            let stops = overs.filter(|overs| !overs.iter().any(waits));
            if let Some(first) = stops.and_then(|overs| overs.into_iter().next()) {
                limits.closed.close(&first, candidate.key);
                return Some(first.stop);
            }
        }
        None
    }

    /// Returns true if a limit stops a job, with all its components, at the places and the time that were
    /// found for it; notes the limit.
    pub(super) fn stops_at<'p>(
        &mut self,
        candidate: &Queued,
        found: impl Iterator<Item = Found<'p>>,
        displaced: &[JobId],
    ) -> bool {
        if self.limits.is_none() {
            return false;
        }
        let mut beside: Vec<Booking> = Vec::new();
        self.limits.iter_mut().for_each(|limits| limits.found.clear());
        for (component, (prospect, parts, Stretch { from, lasts, limit })) in candidate.all().zip(found) {
            let Some(limits) = &mut self.limits else { return false };
            let place = (prospect.partition, &prospect.request().need);
            let amounts = limits.recent.amounts(&self.inventory, component, place, parts);
            let limit = limit.map_or(component.spec.time_limit, TimeLimit::Seconds);
            let Some(rules) = rules_of(component, prospect.partition) else { continue };
            let to = from + lasts;
            let asked = Asked::of(&component.spec, &rules, &amounts, limit);
            let ask = Ask { asked, wants: &[], from, to, now_only: false, beside: &beside, displaced };
            if let Some(over) = limits.room.over(&rules, &ask) {
                limits.stop = Some(over);
                limits.last_stopped = limits.last_stopped.max(Some(candidate.key));
                return true;
            }
            let booking = booking(&rules, amounts, limit, from..to);
            if !candidate.rest.is_empty() {
                beside.push(booking.clone());
            }
            limits.found.push((component.attempt.job, prospect.partition, booking));
        }
        false
    }

    /// Bars the partition in which a limit stops the job that is looked at. Returns true if all partitions
    /// are barred.
    fn bar_last(&mut self, prospects: &Prospects, partition: usize) -> bool {
        self.limits.iter_mut().for_each(|limits| limits.barred.push(partition));
        prospects.iter().all(|prospect| self.is_barred(prospect.partition))
    }

    /// Counts a proposed start that is planned to run for `lasts` seconds.
    pub(super) fn count_start(&mut self, candidate: &Candidate, partition: usize, start: &Start, lasts: u64) {
        if self.limits.is_none() {
            return;
        }
        let known = self.found(candidate, partition, self.now..self.now + lasts);
        let nodes = &self.inventory.nodes;
        let shape = |node: NodeId| nodes.get(node.index()).map(|node| &*node.shape);
        let start = known.or_else(|| {
            let tariff = tariff(&self.inventory, partition);
            let amounts = tres::proposed(&candidate.spec, tariff, &start.parts, start.exclusive, shape);
            let limit = start.time_limit.unwrap_or(candidate.spec.time_limit);
            let (amounts, time) = (Arc::new(amounts), self.now..self.now + lasts);
            Some(booking(&rules_of(candidate, partition)?, amounts, limit, time))
        });
        if let (Some(start), Some(limits)) = (start, &mut self.limits) {
            limits.room.start(start);
        }
    }

    /// Books a later start on its nodes and in the limits that it counts for.
    pub(super) fn book(&mut self, candidate: &Candidate, made: &Reservation) {
        self.space.reserve(made);
        self.book_in_limits(candidate, made);
    }

    /// Counts a later start in the limits; its nodes are booked already.
    pub(crate) fn book_in_limits(&mut self, candidate: &Candidate, made: &Reservation) {
        let partition = self.inventory.partition(&made.partition);
        let known = partition.and_then(|partition| self.found(candidate, partition, made.start..made.end));
        if let Some(booking) = known.or_else(|| self.booking_of(candidate, made))
            && let Some(limits) = &mut self.limits
        {
            limits.room.book(made.turn, booking);
        }
    }

    /// Takes out the booking of the job that is looked at for a partition and a time; `None` if the limits
    /// have not been checked for these.
    fn found(&mut self, candidate: &Candidate, partition: usize, time: Range<Time>) -> Option<Booking> {
        let found = &mut self.limits.as_mut()?.found;
        let is_it = |(job, within, booking): &(JobId, usize, Booking)| {
            (*job, *within) == (candidate.attempt.job, partition) && (booking.from..booking.to) == time
        };
        let at = found.iter().position(is_it)?;
        Some(found.swap_remove(at).2)
    }

    /// Gives back the nodes and the limits that a later start has booked.
    pub(super) fn unbook(&mut self, made: &Reservation) {
        self.space.release(made);
        self.limits.iter_mut().for_each(|limits| limits.room.unbook(&made.turn));
    }

    /// A later start as limits count it; `None` if limits are not enforced, or the job cannot run in that
    /// partition.
    fn booking_of(&mut self, candidate: &Candidate, made: &Reservation) -> Option<Booking> {
        let recent = &mut self.limits.as_mut()?.recent;
        let partition = self.inventory.partition(&made.partition)?;
        let (_, request) = candidate.choices.iter().find(|(index, _)| *index == partition)?;
        let amounts = recent.amounts(&self.inventory, candidate, (partition, &request.need), &made.parts);
        let rules = rules_of(candidate, partition)?;
        let limit = match candidate.shortest < candidate.run_time {
            true => TimeLimit::Seconds(made.lasts()),
            false => candidate.spec.time_limit,
        };
        Some(booking(&rules, amounts, limit, made.start..made.end))
    }

    /// The first limit that leaves too little now for the least that a job takes in one of its partitions.
    fn over_at_least(&mut self, candidate: &Candidate, choice: usize) -> Option<Over> {
        let (partition, request) = &candidate.choices[choice];
        let own = &candidate.limits.as_ref()?[choice];
        let asked = Asked {
            at_least: request.need.whole,
            bills_at_least: !tariff(&self.inventory, *partition).is_by_amounts(),
            ..Asked::of(&candidate.spec, &own.rules, &own.least, candidate.spec.time_limit)
        };
        let (from, to) = (self.now, self.now + candidate.run_time);
        let ask = Ask { asked, wants: &own.wants, from, to, now_only: true, beside: &[], displaced: &[] };
        self.limits.as_mut()?.room.over(&own.rules, &ask)
    }

    /// The earliest start of a job within its limits; the error is the limit that stops the job wherever it
    /// could start. A job that has a later start keeps that start if limits only keep it from starting now.
    pub(super) fn find_within_limits(
        &mut self,
        candidate: &Queued,
        prospects: &Prospects,
        has_later: bool,
    ) -> Result<Earliest, Box<Stop>> {
        loop {
            let Some((index, hit)) = self.search(candidate, prospects, has_later) else {
                return Ok(Earliest::Never);
            };
            let starts = hit.starts && candidate.waits == 0;
            let (hit, parts) = self.seated(candidate, &prospects[index], hit);
            if let Some(found) = &parts {
                let prospect = &prospects[index];
                if self.stops_at(candidate, std::iter::once((prospect, &**found, Stretch::of(&hit))), &[]) {
                    self.note_fit(candidate, prospect, &hit, parts);
                    let is_last = self.bar_last(prospects, prospect.partition);
                    match self.take_stop(candidate) {
                        Some(_) if is_last && has_later => return Ok(Earliest::Never),
                        Some(stop) if is_last => return Err(Box::new(stop)),
                        _ => continue,
                    }
                }
            }
            return Ok(match (starts, parts) {
                (true, Some(parts)) => Earliest::Now(index, hit, parts),
                (true, None) => Earliest::Unseated,
                (false, parts) => Earliest::Later(index, hit, parts),
            });
        }
    }
}

/// The earliest start of a job.
pub(super) enum Earliest {
    /// Now, by the index of the prospect, with the part that the job takes of each node.
    Now(usize, Hit, Vec<Part>),
    /// Later, by the index of the prospect; `None` if the nodes cannot give the job its parts after all.
    Later(usize, Hit, Option<Vec<Part>>),
    /// Now, but the nodes cannot give the job its parts after all.
    Unseated,
    /// At no time within the times that were searched.
    Never,
}

fn booking(rules: &Arc<Rules>, amounts: Arc<Amounts>, limit: TimeLimit, time: Range<Time>) -> Booking {
    let seconds = counted_seconds(limit.seconds().unwrap_or(u64::MAX), rules.time_factor);
    Booking { rules: Arc::clone(rules), amounts, from: time.start, to: time.end, seconds }
}

/// The limits of a job in one of its partitions.
fn rules_of(candidate: &Candidate, partition: usize) -> Option<Arc<Rules>> {
    let choice = candidate.choices.iter().position(|(index, _)| *index == partition)?;
    Some(Arc::clone(&candidate.limits.as_ref()?[choice].rules))
}

/// The tariff of a partition.
fn tariff(inventory: &Inventory, partition: usize) -> Tariff<'_> {
    Tariff::new(&inventory.policy.scheduler, &inventory.partitions[partition].partition.config)
}
