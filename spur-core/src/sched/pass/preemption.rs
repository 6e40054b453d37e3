//! Preemption in a pass: jobs for which nodes are kept, and jobs that do not fit and may preempt others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::{Attempt, JobId};
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::Phase;
use crate::model::reason::Reason;
use crate::sched::explain;
use crate::sched::forecast::{ENDLESS, PlanInput};
use crate::sched::inventory::Inventory;
use crate::sched::plan::{Preemption, Start, Waiting};
use crate::sched::precedence::Rank;
use crate::sched::preempt::{self, Claimant, Field, NoWay, Way, claims, needs};
use crate::sched::prospect::{Prospect, Prospects};
use crate::sched::queue::{Candidate, Queued};
use crate::sched::request::Part;
use crate::sched::request::counts::Counts;
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::start_bounds::{Family, Size};
use crate::sched::together::{Seat, nearness};
use crate::text::time::Time;

use super::het::{Sight, asked, combinations};
use super::limits::Stretch;
use super::walk::Walk;
use crate::sched::space::{Aspect, Space};

/// Number of searches for victims in one deep pass, so that many waiting jobs of a high rank do not delay the
/// pass. A search that fails for one job is not repeated for a job of the same kind that is no smaller. Jobs
/// that have found victims need no search in the next pass.
pub(crate) const SEARCHES: u32 = 16;
/// Number of searches for victims in one quick pass, for which other work waits.
pub(crate) const QUICK_SEARCHES: u32 = 4;

/// The state of preemption in a pass.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    field: Field,
    /// Jobs for which nodes are kept.
    nominated: BTreeMap<JobId, Turn>,
    /// Number of searches that are left.
    searches: u32,
    /// True if the next pass may decide otherwise even without an event: no searches were left, or a job
    /// waits for jobs that are already leaving.
    pub(crate) restless: bool,
    /// Rank, kind, number of the need, and size of jobs for which no victims are enough.
    hopeless: Vec<(Rank, Family, usize, Size)>,
}

/// A job for which nodes are kept.
#[derive(Debug)]
struct Turn {
    nomination: Arc<Nomination>,
    /// True if everything that is kept for the job is free.
    ready: bool,
    /// The time at which the last of its victims has ended, and that victim.
    waits_for: Option<(Time, JobId)>,
}

impl Ways {
    /// Collects the possible victims, and books what is kept for waiting jobs.
    pub(crate) fn new(
        PlanInput { cluster, inventory, forecast, now }: PlanInput<'_>,
        searches: u32,
        space: &mut impl Space,
    ) -> Self {
        let mut nominated = BTreeMap::new();
        for (job, nomination) in cluster.jobs().nominated() {
            let part = |(node, amount): (_, Vec<i64>)| {
                let taken = amount.into_iter().map(|amount| u64::try_from(amount).unwrap_or(0)).collect();
                Part { node, slots: 1, taken }
            };
            let parts: Vec<Part> = claims(inventory, job, nomination).into_iter().map(part).collect();
            let ready =
                needs(inventory, job, nomination).into_iter().map(part).all(|part| space.is_free(&part));
            let asked = (space.realms().within(nomination.reservation.as_deref()), wanted(&job.spec));
            // A job that is suspended for this one goes on after it, with the rest of its time.
            let lasts = forecast.run_time(job).max(1) + longest_rest(cluster, nomination, now);
            // What a job has of its last attempt is held under its own number.
            let ends = matches!(job.phase, Phase::Completing(_));
            space.start(job.id, ends, &parts, asked, lasts);
            let ends = nomination.victims.iter().filter_map(|victim| gone(cluster, *victim));
            let turn = Turn { nomination: Arc::clone(nomination), ready, waits_for: ends.max() };
            nominated.insert(job.id, turn);
        }
        let field = Field::new(cluster, inventory, now);
        Self { field, nominated, searches, restless: false, hopeless: Vec::new() }
    }
}

/// The longest remaining time in seconds of a job on the kept nodes that is suspended, or will be.
fn longest_rest(cluster: &Cluster, nomination: &Nomination, now: Time) -> u64 {
    let jobs = nomination.nodes().filter_map(|node| cluster.node(node)).flat_map(|node| &node.jobs);
    let comes_back = |job: &&Job| match &job.phase {
        Phase::Running { preempted, .. } => preempted.is_some_and(|told| told.then.is_none()),
        Phase::Suspended(suspended) => suspended.wanted.is_some(),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => false,
    };
    let rests = jobs.filter_map(|id| cluster.job(*id)).filter(comes_back);
    rests.map(|job| job.remaining(now).seconds().unwrap_or(ENDLESS)).max().unwrap_or(0)
}

/// The latest end of an attempt that was asked to leave, as far as known, and its job.
fn gone(cluster: &Cluster, victim: Attempt) -> Option<(Time, JobId)> {
    let job = cluster.job(victim.job).filter(|job| job.attempt() == victim)?;
    let end = match &job.phase {
        Phase::Running { preempted, .. } => (*preempted)?.end_at,
        Phase::Completing(completing) => completing.ended,
        // A suspended victim has given up its CPUs already.
        Phase::Pending(_) | Phase::Suspended(_) | Phase::Ended(_) => return None,
    };
    Some((end, job.id))
}

impl Ways {
    /// True if nodes are kept for any job.
    pub(crate) fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// The lowest level of possible victims, and an upper bound on the free amounts if all of them left.
    pub(crate) fn reach(&self, inventory: &Inventory) -> Option<(u32, Counts)> {
        self.field.reach(inventory)
    }
}

impl<S: Space> Walk<S> {
    /// Starts a job, with all its components, on the nodes kept for it, or notes why it waits for them.
    /// Returns false if no nodes are kept for it.
    pub(super) fn starts_as_nominated(&mut self, candidate: &Queued) -> bool {
        let jobs = || candidate.all().map(|component| component.attempt.job);
        let turns: Vec<Turn> = jobs().filter_map(|job| self.ways.nominated.remove(&job)).collect();
        if turns.len() < candidate.rest.len() + 1 {
            return false;
        }
        let taken: Vec<JobId> = jobs().filter_map(|job| self.ways.field.confirm(job).err()).collect();
        if let Some(by) = taken.first() {
            // Another way for the job is searched for once the controller has agreed.
            let detail = format!("job {by} takes over the nodes that were kept for it");
            self.wait(candidate, Reason::Priority, detail, None);
            return true;
        }
        let components = candidate.all().zip(&turns);
        if turns.iter().all(|turn| turn.ready) {
            let starts = components.map(|(component, Turn { nomination, .. })| Start {
                attempt: component.attempt,
                task: component.task(candidate.dealt),
                spec: Arc::clone(&component.spec),
                ground: self.inventory.ground,
                partition: Arc::clone(&nomination.partition),
                reservation: nomination.reservation.clone(),
                time_limit: None,
                parts: nomination.parts.to_vec(),
                exclusive: nomination.exclusive,
                why: nomination.why.clone(),
                rest: Vec::new(),
            });
            self.plan.starts.extend(Start::as_one(starts));
            return true;
        }
        let waits_for = turns.iter().filter_map(|turn| turn.waits_for).max();
        let waiting = components.map(|(component, Turn { nomination, .. })| Waiting {
            priority: candidate.priority,
            reason: Reason::Preempting,
            detail: nomination.detail.to_string().into(),
            start: waits_for.map(|(end, _)| end),
            nodes: nomination.nodes().collect(),
            place: nomination.place.clone(),
            after: waits_for.map(|(_, job)| job),
            ..Waiting::of(component.attempt.job)
        });
        self.plan.waiting.extend(waiting.filter(|_| self.deep));
        self.close_queue_behind(candidate, waits_for.map(|(end, _)| end));
        true
    }

    /// Searches for victims for a job that does not fit, with all its components, and proposes the
    /// preemption. Returns false if there are none, or if a limit stops the job.
    pub(super) fn clears_the_way(&mut self, candidate: &Queued, prospects: &[Prospects]) -> bool {
        let Some((seats, way)) = self.cheapest_way(candidate, prospects) else { return false };
        let from = self.now;
        let found = candidate.all().zip(&seats).zip(&way.seats);
        let found = found.map(|((component, (prospect, _)), seat)| {
            (*prospect, &*seat.parts, Stretch { from, lasts: component.run_time, limit: None })
        });
        if self.stops_at(candidate, found, &way.displaces) {
            return false;
        }
        let detail = match prospects {
            [own] => self.missing(candidate, own, None, false),
            _ => self.missing_together(candidate, prospects, None),
        };
        self.propose_way(candidate, detail, &seats, way);
        true
    }

    /// The cheapest victims for a job, and the prospects of its components through which they were found.
    /// Every component must be able to preempt each victim by itself.
    fn cheapest_way<'p>(
        &mut self,
        candidate: &Queued,
        prospects: &'p [Prospects],
    ) -> Option<(Vec<Sight<'p>>, Way)> {
        let all = || prospects.iter().flat_map(|of| of.iter());
        let rank = |of: &Prospects| of.iter().map(|prospect| self.rank(candidate, prospect)).max();
        let may =
            prospects.iter().filter_map(rank).min().is_some_and(|rank| self.ways.field.has_victims_for(rank));
        let strict = self.is_strict() && all().any(|prospect| self.head_of(prospect).is_some());
        if !may || strict || self.begin(candidate.attempt.job).is_some() {
            return None;
        }
        self.ways.field.catch_up(&self.inventory, &self.plan.starts, &self.made);
        let mut best: Option<(Vec<Sight<'p>>, Way)> = None;
        for seats in combinations(prospects) {
            let is_barred = |(prospect, _): &Sight<'_>| self.is_barred_now(prospect.partition);
            if seats.iter().any(is_barred) || !self.has_licenses(candidate, &seats) {
                continue;
            }
            let found = match &*seats {
                [sight] => self.search_victims(candidate, *sight),
                _ => self.search_victims_together(candidate, &seats),
            };
            match found {
                Ok(way) if best.as_ref().is_none_or(|(_, best)| way.price < best.price) => {
                    best = Some((seats, way));
                }
                Ok(_) | Err(NoWay::Hopeless) => {}
                Err(NoWay::Needless) => return None,
            }
        }
        best
    }

    /// The rank of a job in one of its partitions.
    fn rank(&self, candidate: &Candidate, prospect: &Prospect) -> Rank {
        let partition = &self.inventory.partitions[prospect.partition].partition;
        Rank::of(&self.inventory.policy, &candidate.spec, &partition.config)
    }

    /// True if all components have their licenses from now on. No job is preempted for licenses.
    fn has_licenses(&self, candidate: &Candidate, seats: &[Sight<'_>]) -> bool {
        let asked = asked(candidate, seats.iter().map(|(prospect, _)| *prospect));
        let lasts = self.over_at(candidate, seats).since(self.now);
        self.space.licenses().lacking(&asked, self.now, lasts).is_none()
    }

    /// The cheapest victims for all components, each with one of its prospects.
    fn search_victims_together(&mut self, candidate: &Queued, seats: &[Sight<'_>]) -> Result<Way, NoWay> {
        let fabrics = seats.iter().map(|(_, eligible)| &*eligible.fabric);
        let near = nearness(&candidate.spec, fabrics).map_err(|_| NoWay::Hopeless)?;
        self.takes_a_search()?;
        let over = self.over_at(candidate, seats);
        let shut: Vec<_> = seats.iter().map(|(prospect, _)| self.space.shut(prospect.realm, over)).collect();
        let claimants: Vec<Claimant<'_>> = candidate
            .all()
            .zip(seats)
            .zip(&shut)
            .map(|((component, (prospect, eligible)), shut)| Claimant {
                rank: self.rank(component, prospect),
                array: None,
                request: prospect.request(),
                eligible,
                asks: &prospect.stages[0].asks,
                shut: shut.as_ref(),
            })
            .collect();
        let budget = preempt::budget(&claimants);
        let found = self.ways.field.way_together(&self.inventory, &claimants, &near, &budget);
        self.plan.report.victim_steps += budget.taken();
        self.ways.restless |= found.as_ref().is_err_and(|no| *no == NoWay::Needless);
        found
    }

    /// Takes one of the remaining searches.
    ///
    /// # Errors
    /// [`NoWay::Hopeless`] if none are left.
    fn takes_a_search(&mut self) -> Result<(), NoWay> {
        let Some(left) = self.ways.searches.checked_sub(1) else {
            self.ways.restless = true;
            self.plan.report.gave_up = true;
            return Err(NoWay::Hopeless);
        };
        self.ways.searches = left;
        Ok(())
    }

    /// The latest end of a job that preempts others, with all its components.
    fn over_at(&self, candidate: &Candidate, seats: &[Sight<'_>]) -> Time {
        let lasts = candidate.all().zip(seats).map(|(component, (prospect, _))| {
            self.space.realms().lasts(prospect.realm, self.now, component.run_time)
        });
        let begins = self.ways.field.last_gone().max(self.now) + self.inventory.policy.jobs.kill_wait.0;
        begins + lasts.max().unwrap_or(0)
    }

    fn search_victims(&mut self, candidate: &Queued, (prospect, eligible): Sight<'_>) -> Result<Way, NoWay> {
        let (rank, stage) = (self.rank(candidate, prospect), &prospect.stages[0]);
        let request = prospect.request();
        // The run time matters only where nodes are reserved for some time.
        let run_time = if self.space.realms().is_single() { 0 } else { candidate.run_time };
        let size = Size { nodes: request.min_nodes(), slots: request.min_slots(), run_time };
        let family = Family::of(eligible.outline, stage.ask()).filter(|_| request.sizes.is_none());
        let hopeless = family.as_ref().is_some_and(|family| {
            let mut known = self.ways.hopeless.iter();
            known.any(|(of, kind, need, least)| {
                of.covers(rank, &self.inventory.policy)
                    && kind == family
                    && *need == prospect.need
                    && least.within(&size)
            })
        });
        if hopeless {
            return Err(NoWay::Hopeless);
        }
        self.takes_a_search()?;
        let shut = self.space.shut(prospect.realm, self.over_at(candidate, &[(prospect, eligible)]));
        let array = candidate.array.as_ref().map(|tasks| tasks.id);
        let claimant = Claimant { rank, array, request, eligible, asks: &stage.asks, shut: shut.as_ref() };
        let budget = preempt::budget(std::slice::from_ref(&claimant));
        let found = self.ways.field.way(&self.inventory, &claimant, &budget);
        self.plan.report.victim_steps += budget.taken();
        match found {
            Err(NoWay::Hopeless) => {
                // A task of an array may not preempt its siblings, so its failure says nothing about other
                // jobs.
                let family = family.filter(|_| array.is_none());
                self.ways.hopeless.extend(family.map(|family| (rank, family, prospect.need, size)))
            }
            Err(NoWay::Needless) => self.ways.restless = true,
            Ok(_) => {}
        }
        found
    }

    /// Proposes that victims leave for a job, with the nodes of each component and the prospect that found
    /// them.
    fn propose_way(&mut self, candidate: &Queued, detail: String, seats: &[Sight<'_>], way: Way) {
        self.ways.field.follow(candidate.attempt.job, &way);
        self.throttle.count(candidate);
        let (mut starts, mut places) = (Vec::new(), Vec::new());
        for ((component, (prospect, eligible)), Seat { placement, parts }) in
            candidate.all().zip(seats).zip(way.seats)
        {
            let stage = &prospect.stages[0];
            let aspect = Aspect { query: &prospect.query(component, self.now + 1), stage, eligible };
            let hit = aspect.hit(self.space.realms(), self.now, (placement, Vec::new(), true));
            let place = explain::place(&hit);
            let mut start = self.proposal((candidate, component), &(*prospect, hit, parts), false);
            start.why.exact &= way.exact;
            let waiting = Waiting {
                priority: candidate.priority,
                reason: Reason::Preempting,
                detail: detail.clone().into(),
                start: Some(way.gone.max(self.now)),
                nodes: start.parts.iter().map(|part| part.node).collect(),
                place: place.clone(),
                after: way.last,
                ..Waiting::of(component.attempt.job)
            };
            self.plan.waiting.extend((self.deep && !candidate.told).then_some(waiting));
            starts.push(start);
            places.push(place);
        }
        let (victims, displaces) = (way.victims, way.displaces);
        let preemption = |start| Preemption { start, detail, places, victims, displaces };
        self.plan.preemptions.extend(Start::as_one(starts).map(preemption));
        self.close_queue_behind(candidate, Some(way.gone));
    }

    /// Without backfill no job starts before a waiting one. Notes that this job waits, and its planned start
    /// if known.
    fn close_queue_behind(&mut self, candidate: &Queued, start: Option<Time>) {
        if self.is_strict() {
            for seat in self.seats(candidate).collect::<Vec<_>>() {
                self.sit(candidate.attempt.job, seat);
                self.raise_floor(seat, start);
            }
        }
    }
}
