//! Handles jobs one after another: each starts, preempts others, or waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::limits::Stop;
use crate::id::JobId;
use crate::model::accounts::qos::QosFlag;
use crate::model::config::Backfill;
use crate::model::reason::Reason;
use crate::sched::explain;
use crate::sched::inventory::Inventory;
use crate::sched::plan::{Detail, Plan, Start, Waiting};
use crate::sched::planned_starts::{Reservation, Reservations};
use crate::sched::prospect::{EligibleSets, Prospect, Prospects};
use crate::sched::queue::limited::ChoiceLimits;
use crate::sched::queue::{self, Candidate, Queued, Throttle};
use crate::sched::shorter_time::{self, Length};
use crate::sched::space::{Hit, Query, Space};
use crate::sched::subject::Subject;
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::realm::OPEN;
use crate::sched::timeline::start_bounds::{Family, Size};
use crate::text::time::{Time, TimeLimit};

use super::het::Seat;
use super::limits::{Earliest, PassLimits, Stretch};
use super::preemption::Ways;

/// Number of waiting jobs of one pass whose sentence says in detail what is missing; the jobs behind them get
/// a reason and a planned start.
pub(super) const EXPLAINED: u32 = 100;

/// Number of starts of one pass that name the domains that lost: finding these costs more than the placement.
const RIVALRIES: usize = 16;

/// Number of tasks of one array that have a reservation at a time, where every job has one: Slurm's
/// `bf_max_job_array_resv`.
const RESERVED_TASKS: usize = 20;

/// The state of a walk along the queue.
#[derive(Debug)]
pub(crate) struct Walk<S> {
    pub(super) inventory: Arc<Inventory>,
    /// The job that is looked at.
    pub(crate) subject: Subject,
    pub(super) now: Time,
    /// True if plans keep their promises; see
    /// [`Forecast::is_firm`](crate::sched::forecast::Forecast::is_firm).
    pub(super) firm: bool,
    pub(super) backfill: Backfill,
    /// True if every job that the mode grants a reservation gets one, and every waiting job gets a reason.
    pub(super) deep: bool,
    pub(crate) space: S,
    pub(crate) eligible_sets: EligibleSets,
    /// Kept reservations of an earlier pass, and their number in each head group.
    pub(crate) known: Reservations,
    pub(crate) kept: Vec<usize>,
    /// The reservations of the last plan, by job; empty unless every job has one. Jobs keep these unless they
    /// would start earlier.
    pub(super) remembered: Vec<Arc<Reservation>>,
    /// Reservations that this pass has made.
    pub(crate) made: Vec<Arc<Reservation>>,
    /// The planned ends of these reservations, with their indices in `made`.
    pub(super) ends: BTreeMap<Time, Vec<usize>>,
    /// The possible victims, and the preemptions of the pass.
    pub(crate) ways: Ways,
    /// True if a job that is not planned now may still come before the jobs behind it.
    pub(super) wavers: bool,
    /// The first job that had to wait in each head group. A head group is a component of partitions; behind
    /// these come realms.
    pub(crate) heads: Vec<Option<JobId>>,
    /// The time in each head group before which no further job starts; `None` unless starts are foretold
    /// without backfill.
    pub(super) floors: Option<Vec<Time>>,
    /// A job whose start is asked for if it begins no earlier than a time.
    pub(super) begins: Option<(JobId, Time)>,
    /// The job whose current task may start no earlier than a time by the limit of its array.
    pub(super) turn: Option<(JobId, Time)>,
    pub(super) explained: u32,
    /// Kind, number of the need, and size of jobs that would fit if every node that is up were idle.
    pub(super) fitting: Vec<(Family, usize, Size)>,
    pub(crate) plan: Plan,
    pub(super) throttle: Throttle,
    /// The limits of associations and QOS, where they are enforced.
    pub(crate) limits: Option<Box<PassLimits>>,
}

impl<S: Space> Walk<S> {
    /// A walk that has not looked at any job; a deep one gives every job its reason.
    pub(crate) fn new(inventory: Arc<Inventory>, space: S, ways: Ways, firm: bool, deep: bool) -> Self {
        let seats = inventory.partitions.len() + space.realms().count();
        Self {
            now: space.now(),
            firm,
            backfill: inventory.policy.scheduler.backfill,
            subject: Subject::default(),
            inventory,
            deep,
            space,
            eligible_sets: EligibleSets::default(),
            known: Reservations::default(),
            kept: vec![0; seats],
            remembered: Vec::new(),
            made: Vec::new(),
            ends: BTreeMap::new(),
            ways,
            wavers: false,
            heads: vec![None; seats],
            floors: None,
            begins: None,
            turn: None,
            explained: 0,
            fitting: Vec::new(),
            plan: Plan::default(),
            throttle: Throttle::default(),
            limits: None,
        }
    }

    /// Starts a job, or finds its earliest start and the reason why it does not start now. Of an array this
    /// handles one task and returns the rest.
    pub(crate) fn consider(&mut self, candidate: Queued) -> Option<Queued> {
        self.subject.set(candidate.attempt.job);
        let rest = self.deal_with(candidate);
        self.subject.clear();
        rest
    }

    fn deal_with(&mut self, mut candidate: Queued) -> Option<Queued> {
        self.forget_stops();
        let turn = self.throttle.lets_from(&candidate, self.now).filter(|_| self.reserves_all());
        if let Some(turn) = turn {
            return self.plan_task(candidate, turn);
        }
        if !self.lets_start(&candidate) {
            return None;
        }
        self.plan.report.considered += 1;
        if !candidate.rest.is_empty() {
            self.consider_together(&candidate);
            return None;
        }
        // Thousands of jobs may be stopped, so their prospects are not computed.
        let only_now = self.starts_only_now(&candidate);
        if only_now && let Some(stop) = self.stopped_now(&candidate) {
            return self.stop(&candidate, stop);
        }
        let prospects = match self.own_prospects(&candidate) {
            Ok(prospects) => prospects,
            Err(problem) => {
                self.wait(&candidate, Reason::BadConstraints, problem, None);
                return None;
            }
        };
        let known = self.take_known(candidate.attempt.job);
        if self.starts_as_nominated(&candidate) {
            return None;
        }
        let (made, waiting) = (self.made.len(), self.plan.waiting.len());
        let own = std::slice::from_ref(&prospects);
        let has_later = known.is_some();
        if !only_now && let Some(stop) = self.stopped(&candidate, &prospects, has_later) {
            return self.stop(&candidate, stop);
        }
        let found = match self.find_within_limits(&candidate, &prospects, has_later) {
            Ok(found) => found,
            Err(stop) => return self.stop(&candidate, *stop),
        };
        let may_clear = candidate.waits == 0 && matches!(found, Earliest::Later(..) | Earliest::Never);
        let waited = match found {
            Earliest::Now(index, hit, parts) => {
                self.start(&candidate, &[(&prospects[index], hit, parts)]);
                false
            }
            _ if may_clear && self.clears_the_way(&candidate, own) => false,
            found => {
                if let Some(stop) = self.take_stop(&candidate) {
                    return self.stop(&candidate, stop);
                }
                let known = known.into_iter().collect();
                let is_found = matches!(found, Earliest::Later(..));
                self.hold_back(&candidate, own, known, is_found, |walk| match found {
                    Earliest::Later(index, hit, parts) => {
                        Some(walk.reserve(&candidate, &prospects[index], &hit, parts?))
                    }
                    Earliest::Now(..) | Earliest::Unseated | Earliest::Never => None,
                });
                true
            }
        };
        let made = self.made.get(made).map(|made| made.end);
        made.into_iter().for_each(|end| self.throttle.occupy(&candidate, end));
        candidate.told |= self.plan.waiting.len() > waiting;
        candidate.waits += usize::from(waited);
        candidate.dealt += 1;
        self.rest_of(candidate, made.is_some())
    }

    /// True if a job of one component has no later start and will get none in this pass. False where that is
    /// not obvious.
    fn starts_only_now(&self, candidate: &Queued) -> bool {
        self.limits.is_some()
            && !self.reserves_all()
            && self.known.is_empty()
            && !self.ways.has_nominated()
            && candidate.spec.reservations().next().is_none()
            && match self.space.realms().is_single() {
                true => {
                    candidate.choices.iter().all(|(partition, _)| self.is_taken(self.seat(*partition, OPEN)))
                }
                false => self.is_behind(candidate),
            }
    }

    /// Notes that a limit stops a job, with all remaining tasks of an array.
    pub(super) fn stop(&mut self, candidate: &Queued, stop: Stop) -> Option<Queued> {
        if !candidate.rest.is_empty() {
            self.wait(candidate, stop.reason(), Detail::Limit(stop), None);
        } else if self.deep && !candidate.told {
            let (priority, reason) = (candidate.priority, stop.reason());
            let waiting = Waiting::of(candidate.attempt.job);
            self.plan.waiting.push(Waiting { priority, reason, detail: Detail::Limit(stop), ..waiting });
        }
        None
    }

    /// Reserves nodes for a task of an array that may start no earlier than `turn`, when another task has
    /// ended. Otherwise every task would delay the jobs planned behind the array.
    fn plan_task(&mut self, mut candidate: Queued, turn: Time) -> Option<Queued> {
        self.plan.report.considered += 1;
        let (reason, detail) = queue::throttled(&candidate.spec);
        let prospects = match self.own_prospects(&candidate) {
            Ok(prospects) => prospects,
            Err(problem) => {
                self.wait(&candidate, Reason::BadConstraints, problem, None);
                return None;
            }
        };
        let (made, waiting) = (self.made.len(), self.plan.waiting.len());
        self.turn = Some((candidate.attempt.job, turn));
        let found = self.search(&candidate, &prospects, false);
        self.turn = None;
        let planned = found.and_then(|(index, hit)| {
            let prospect = &prospects[index];
            let (hit, parts) = self.seated(&candidate, prospect, hit);
            let parts = parts?;
            let place = (prospect, &*parts, Stretch::of(&hit));
            let stops = self.stops_at(&candidate, std::iter::once(place), &[]);
            (!stops).then(|| self.reserve(&candidate, prospect, &hit, parts))
        });
        self.wait(&candidate, reason, detail, planned);
        let made = self.made.get(made).map(|made| made.end);
        made.into_iter().for_each(|end| self.throttle.occupy(&candidate, end));
        candidate.told |= self.plan.waiting.len() > waiting;
        candidate.waits += 1;
        candidate.dealt += 1;
        self.rest_of(candidate, made.is_some())
    }

    /// True if the array's limit allows another task to start, or the job belongs to no array. Otherwise
    /// notes that the job waits.
    fn lets_start(&mut self, candidate: &Queued) -> bool {
        let lets = candidate.array.as_ref().is_none_or(|tasks| self.throttle.lets(tasks));
        if !lets {
            let (reason, detail) = queue::throttled(&candidate.spec);
            self.wait(candidate, reason, detail, None);
        }
        lets
    }

    /// The rest of an array after one task was handled: tasks that may start now, or that get a reservation
    /// as the last one did.
    fn rest_of(&mut self, candidate: Queued, reserved: bool) -> Option<Queued> {
        candidate.array.as_ref().filter(|tasks| candidate.dealt < tasks.tasks.len())?;
        if candidate.waits == 0 {
            return (self.reserves_all() || self.lets_start(&candidate)).then_some(candidate);
        }
        (self.reserves_all() && reserved && candidate.waits < RESERVED_TASKS).then_some(candidate)
    }

    /// The earliest start over the partitions of a job; of equal ones the highest tier, then the first
    /// partition named.
    pub(super) fn search(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        is_known: bool,
    ) -> Option<(usize, Hit)> {
        let hit: fn(&(usize, Hit)) -> &Hit = |found| &found.1;
        self.earliest(candidate, hit, |walk, length, before| {
            walk.search_for(candidate, prospects, is_known, length, before)
        })
    }

    /// The earliest start of a job, with all of its time or with less; see [`shorter_time::earliest`]. Losers
    /// are named with the first starts of the pass.
    pub(super) fn earliest<F>(
        &mut self,
        candidate: &Candidate,
        hit: impl Fn(&F) -> &Hit,
        mut search: impl FnMut(&mut Self, Length, Time) -> Option<F>,
    ) -> Option<F> {
        self.space.findings().names_rivals = self.plan.starts.len() < RIVALRIES;
        let now = self.now;
        let found =
            shorter_time::earliest(candidate, now, hit, |length, before| search(self, length, before));
        self.space.findings().names_rivals = false;
        found
    }

    /// The earliest start of a job before `before`, if the job runs for `length`, with the index of its
    /// prospect. `None` if there is none.
    fn search_for(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        is_known: bool,
        length: Length,
        before: Time,
    ) -> Option<(usize, Hit)> {
        let (run_time, limit) = length.of(candidate);
        let mut best: Option<(usize, Hit)> = None;
        for (index, prospect) in prospects.iter().enumerate() {
            let partition = prospect.partition;
            if self.is_barred(partition) || (is_known && self.is_barred_now(partition)) {
                continue;
            }
            let reserves = !is_known && self.reserves(prospect) && !self.is_unreserved(candidate);
            if self.backfill == Backfill::None && !reserves && !is_known {
                continue;
            }
            let horizon = if reserves { before } else { before.min(self.now + 1) };
            let until = best.as_ref().map_or(horizon, |(_, hit)| hit.start.min(horizon));
            let from = self.floor(candidate.attempt.job, self.seat_of(prospect));
            let query = Query { run_time, from, ..prospect.query(candidate, until) };
            // Without a reservation, resources that an overdue job still holds are of no use.
            let hit = self.space.find(&query);
            if let Some(hit) = hit.filter(|hit| hit.starts || reserves) {
                best = Some((index, Hit { limit, ..hit }));
            }
        }
        best
    }

    /// Starts a job with all its components.
    pub(super) fn start(&mut self, candidate: &Queued, found: &[Seat<'_>]) {
        let seats: Vec<usize> = found.iter().map(|(prospect, ..)| self.seat_of(prospect)).collect();
        let backfilled = seats.iter().any(|seat| self.comes_before(candidate, *seat));
        for seat in seats {
            self.heads[seat].take_if(|head| *head == candidate.attempt.job);
        }
        let propose = |(component, seat)| self.proposal((candidate, component), seat, backfilled);
        let start = Start::as_one(candidate.all().zip(found).map(propose));
        self.plan.starts.extend(start);
        self.throttle.count(candidate);
        if let ([(_, hit, _)], true) = (found, self.reserves_all()) {
            self.throttle.occupy(candidate, self.now + hit.lasts);
        }
    }

    /// Books what a job or one component gets from now on, and returns the start.
    pub(super) fn proposal(
        &mut self,
        (candidate, component): (&Queued, &Candidate),
        (prospect, hit, parts): &Seat<'_>,
        backfilled: bool,
    ) -> Start {
        let task = component.task(candidate.dealt);
        let (job, licenses) = (component.attempt.job, wanted(&component.spec));
        self.space.start(job, task.is_some(), parts, (prospect.realm, licenses), hit.lasts);
        let why = explain::why(hit, backfilled, candidate.priority);
        let reservation = self.space.realms().reservation(prospect.realm);
        let start = prospect.start(&self.inventory, (component, task), reservation, parts, why);
        let start = Start { time_limit: hit.limit.map(TimeLimit::Seconds), ..start };
        self.count_start(component, prospect.partition, &start, hit.lasts);
        start
    }

    /// True if a job that comes before this one waits in a head group.
    pub(super) fn comes_before(&self, candidate: &Queued, seat: usize) -> bool {
        let job = candidate.attempt.job;
        let known = self.known.iter().take_while(|made| made.turn.key < candidate.key);
        let mut known = known.filter(|made| made.job != job);
        self.heads[seat].is_some_and(|head| head != job)
            || (self.kept[seat] > 0 && known.any(|made| self.seat_of_made(made) == Some(seat)))
    }

    /// Returns the result of [`Walk::prospects`] for a job of one component, from a recent job with equal
    /// wants if possible.
    fn own_prospects(&mut self, candidate: &Candidate) -> Result<Prospects, String> {
        if let Some(known) = self.eligible_sets.prospects_like(candidate) {
            return Ok(known);
        }
        let prospects = self.prospects(candidate)?;
        self.eligible_sets.keep_prospects(&self.inventory, candidate, &prospects);
        Ok(prospects)
    }

    /// The prospects of a job: everything that is needed to search for nodes.
    pub(super) fn prospects(&mut self, candidate: &Candidate) -> Result<Prospects, String> {
        let mut prospects = Vec::with_capacity(candidate.choices.len());
        let mut problem = None;
        for realm in self.space.realms().of_job(&candidate.spec) {
            for (choice, (_, request)) in candidate.choices.iter().enumerate() {
                let need = self.space.findings().needs.number(&request.need);
                let within = (realm, self.space.realms().bounds(realm).map(|own| &**own));
                match self.eligible_sets.prospect(&self.inventory, candidate, choice, need, within, self.now)
                {
                    Ok(prospect) => prospects.push(prospect),
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
        }
        let none = || "none of its reservations exists and lets it in".to_owned();
        if prospects.is_empty() { Err(problem.unwrap_or_else(none)) } else { Ok(prospects.into()) }
    }

    /// The head group of a partition and a realm: jobs of a reservation with its own nodes hinder only each
    /// other.
    pub(super) fn seat(&self, partition: usize, realm: usize) -> usize {
        match self.space.realms().bounds(realm) {
            Some(_) => self.inventory.partitions.len() + realm,
            None => self.inventory.partitions[partition].component,
        }
    }

    /// Every head group in which a job may have to wait.
    pub(super) fn seats<'a>(&'a self, candidate: &'a Candidate) -> impl Iterator<Item = usize> + 'a {
        let realms = self.space.realms().of_job(&candidate.spec);
        let choices = candidate.choices.iter();
        choices.flat_map(move |(partition, _)| {
            realms.clone().into_iter().map(|realm| self.seat(*partition, realm))
        })
    }

    pub(super) fn seat_of(&self, prospect: &Prospect) -> usize {
        self.seat(prospect.partition, prospect.realm)
    }

    /// True if every head group of a job and its components has a head.
    pub(crate) fn is_behind(&self, candidate: &Candidate) -> bool {
        candidate.all().all(|component| self.seats(component).all(|seat| self.is_taken(seat)))
    }

    /// True if a head group has a job before which no other gets a reservation, where not every job does.
    pub(crate) fn is_taken(&self, seat: usize) -> bool {
        self.heads[seat].is_some() || self.kept[seat] > 0
    }

    /// The job that became head of a prospect's head group in this pass.
    pub(super) fn head_of(&self, prospect: &Prospect) -> Option<JobId> {
        self.heads[self.seat_of(prospect)]
    }

    /// True if no job goes before a waiting one.
    pub(super) fn is_strict(&self) -> bool {
        self.backfill == Backfill::None || self.floors.is_some()
    }

    /// The earliest time at which a job may start in a head group, by the jobs before it and by itself.
    pub(super) fn floor(&self, job: JobId, seat: usize) -> Time {
        let floor = self.floors.as_ref().map_or(Time(i64::MIN), |floors| floors[seat]);
        let turn = self.turn.filter(|(of, _)| *of == job).map(|(_, turn)| turn);
        self.begin(job).into_iter().chain(turn).fold(floor, Time::max)
    }

    /// The earliest begin of a job, if it is still to come.
    pub(super) fn begin(&self, job: JobId) -> Option<Time> {
        self.begins.filter(|(of, begin)| *of == job && *begin > self.now).map(|(_, begin)| begin)
    }

    /// Notes that a job waits in a head group, and its start as far as known.
    pub(super) fn raise_floor(&mut self, seat: usize, start: Option<Time>) {
        let after_now = self.now + 1;
        if let Some(floors) = &mut self.floors {
            floors[seat] = floors[seat].max(start.map_or(Time::MAX, |start| start.max(after_now)));
        }
    }

    /// True if every job that has to wait gets a reservation.
    pub(super) fn reserves_all(&self) -> bool {
        self.deep && self.backfill == Backfill::Conservative
    }

    /// True if no nodes are kept for a waiting job because its QOS has `NoReserve`, or because its priority
    /// is below `MinPrioThreshold` in each of its partitions. Without backfill no job goes before another, so
    /// neither has a meaning.
    pub(super) fn is_unreserved(&self, candidate: &Queued) -> bool {
        if self.backfill == Backfill::None {
            return false;
        }
        let qos = self.inventory.policy.qos_of(candidate.spec.qos.as_deref());
        let is_below = |limits: &ChoiceLimits| {
            limits.rules.least_priority.is_some_and(|least| u64::from(candidate.priority) < least)
        };
        qos.is_some_and(|qos| qos.has(QosFlag::NoReserve))
            || candidate.limits.as_ref().is_some_and(|limits| limits.iter().all(is_below))
    }

    /// True if a waiting job gets a reservation for a prospect.
    pub(super) fn reserves(&self, prospect: &Prospect) -> bool {
        self.reserves_all() || !self.is_taken(self.seat_of(prospect))
    }
}
