//! The quick pass: starts what fits now, at the cost of what has changed.
//!
//! A pass leaves a *settled* queue: no waiting job fits now beside the plan for later, and time alone does
//! not change that, except at the moments that [`PendingOrder`], [`Held`] and [`ahead`] know. So jobs that
//! arrive behind others are looked at alone. When resources are given back, when the head of the queue leaves
//! or another job becomes first, every job may fit: the queue is walked in order, without the jobs that take
//! more than is free ([`most_free`]). Where only heads have a reservation, the reservations are made anew;
//! where every job has one, those of the last deep pass are kept.
//!
//! Starts, reservations and promises are those of a pass over the whole queue ([`Pass`](super::Pass)) on the
//! same cluster at the same time. Where that does not hold, the quick pass is not used; see
//! [`Quick::serves`].

mod ahead;
mod fit_now;
mod idle_counts;
mod kept_starts;
mod ledger;
mod most_free;
mod selection;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::{JobId, NodeId};
use crate::model::config::{Backfill, PreemptBy};
use crate::model::job::JobSpec;
use crate::sched::forecast::{Forecast, PlanInput};
use crate::sched::queue::chunks::{Key, Place};
use crate::sched::queue::pending_order::{Changes, PendingOrder};
use crate::sched::timeline::held::Held;
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::realm::Realms;
use crate::text::time::Time;

use super::inventory::Inventory;
use super::pass::limits::{Bookings, Closed, Fits, PassLimits};
use super::pass::preemption::Ways;
use super::pass::walk::Walk;
use super::plan::{Plan, Start};
use super::planned_starts::{Reservation, Reservations};
use super::precedence;
use super::prospect::EligibleSets;
use fit_now::Finder;
use ledger::Ledger;
use selection::Selection;

/// Number of sets of eligible nodes above which all findings are forgotten.
const MOST_LENSES: usize = 1_024;

/// The state that quick passes keep.
#[derive(Debug)]
pub(super) struct Quick {
    ledger: Ledger,
    eligible_sets: EligibleSets,
    memory: Memory,
}

/// The facts about the last pass, and about events since then.
#[derive(Debug, Default)]
struct Memory {
    /// For each component of partitions, the key of the first job that has to wait.
    heads: Vec<Option<Key>>,
    /// The later starts of heads, where heads are planned anew.
    planned: Vec<Arc<Reservation>>,
    /// Number of kept reservations of each head group, see `Walk::heads`.
    kept: Vec<usize>,
    /// Jobs whose held amounts may have changed.
    changed: BTreeSet<JobId>,
    /// Tasks of arrays that have got numbers of their own: the record of each, and the number.
    split: Vec<(JobId, JobId)>,
    /// True if no waiting job can start, as far as is known.
    settled: bool,
    /// True if a depth left jobs out in the last pass.
    was_cut: bool,
    /// True if a deep pass has replaced the later starts.
    replanned: bool,
    /// Jobs for which nodes are kept.
    nominated: BTreeSet<JobId>,
    /// True if an event may allow a job to preempt others.
    stirred: bool,
    /// The later starts as limits count them; empty if later starts are not kept between passes.
    booked: Bookings,
    /// The limits that have stopped jobs, as far as these are settled.
    closed: Closed,
    /// The places of jobs that only a limit stopped.
    fits: Fits,
    /// The first second at which a limit leaves enough for a job that it has stopped, if nothing else happens
    /// until then.
    again: Option<Time>,
    /// The last place in the queue of a job for which nodes were found and that only a limit stops.
    last_stopped: Option<Key>,
    /// The value of [`Counters::freed`](crate::cluster::Counters::freed) at the last pass.
    freed: u64,
}

impl Quick {
    /// The state for a cluster before the first pass.
    pub(super) fn new(input: PlanInput<'_>) -> Self {
        let ledger = Ledger::new(input.inventory, Held::new(input), input.now);
        let heads = vec![None; input.inventory.partitions.len()];
        let memory = Memory { heads, replanned: true, ..Memory::default() };
        Self { ledger, eligible_sets: EligibleSets::default(), memory }
    }

    /// True if a pass over what has changed finds everything. It does not if a job may be planned in a
    /// reservation of nodes. Nor does it if so many jobs may preempt others that `searches` are not enough
    /// for all, because then the jobs searched in vain matter.
    ///
    /// Where later starts are kept, no job may preempt others at all. A preemptor's nodes would come on top
    /// of what victims still hold and what was planned there, and the excess is unknown when one of these is
    /// dropped.
    pub(super) fn serves(cluster: &Cluster, line: &PendingOrder, searches: u32) -> bool {
        let keeps = cluster.policy().scheduler.backfill == Backfill::Conservative;
        let searches = if keeps { 0 } else { searches };
        let gives_up = precedence::may_preempt(cluster) && line.may_claim_more_than(searches);
        let displaces = keeps && cluster.jobs().nominated().next().is_some();
        !gives_up && !displaces && !line.enters_reservations()
    }

    /// Records the effects of an event on the state that the next quick pass continues with.
    pub(super) fn note(&mut self, event: &Event) {
        // A job that has just arrived holds nothing.
        if !matches!(
            event,
            Event::JobSubmitted { .. } | Event::HetJobSubmitted { .. } | Event::StartPromised { .. }
        ) {
            self.memory.changed.extend(event.jobs());
            self.memory.split.extend(event.split());
        }
        // Budgets may have room again.
        self.memory.settled &= !matches!(event, Event::UsageRolled { .. });
        // A job that has just started can give up only what was free before, so its start allows no other job
        // to preempt.
        self.memory.stirred |= !matches!(
            event,
            Event::JobSubmitted { .. }
                | Event::HetJobSubmitted { .. }
                | Event::JobStarted { .. }
                | Event::StartPromised { .. }
                | Event::StepStarted { .. }
                | Event::StepCancelled { .. }
                | Event::StepLimitChanged { .. }
                | Event::StepTimedOut { .. }
                | Event::StepNodeEnded { .. }
                | Event::BatchEnded { .. }
        );
    }

    /// Notes that a deep pass has planned the later starts anew.
    pub(super) fn replanned(&mut self) {
        self.memory.replanned = true;
    }

    /// Starts what fits now. `line` is the current order, `changes` its changes since the last pass.
    /// `reservations` are those of the last pass, and become those of this pass.
    pub(super) fn pass(
        mut self,
        input: PlanInput<'_>,
        (line, changes): (&mut PendingOrder, &Changes),
        searches: u32,
        reservations: &mut Reservations,
    ) -> (Self, Plan) {
        let PlanInput { cluster, inventory, forecast, now } = input;
        let before = self.ledger.books.now;
        let touched = self.catch_up(input);
        let Self { mut ledger, eligible_sets, mut memory } = self;
        memory.settled &= memory.still_holds(inventory, line, changes, now);
        memory.settled &= memory.limits_still_stop(inventory, line, changes, before..now);
        let keeps = inventory.policy.scheduler.backfill == Backfill::Conservative;
        let known = if keeps { std::mem::take(reservations) } else { Reservations::default() };
        ledger.begin(cluster, memory.planned.iter().chain(known.iter()));
        let reaches = |job: &JobId| line.get(*job).is_some_and(|ranked| ranked.at_least().reach > 0);
        let preempts = !memory.settled || changes.arrived.iter().any(reaches);
        let ways = match preempts && (precedence::may_preempt(cluster) || !memory.nominated.is_empty()) {
            true => Ways::new(input, searches, &mut ledger),
            false => Ways::default(),
        };
        let mut walk = Walk::new(Arc::clone(inventory), ledger, ways, forecast.is_firm(), false);
        walk.subject = line.subject.clone();
        walk.limits = PassLimits::new(input, line);
        walk.eligible_sets = eligible_sets;
        if keeps {
            let booked = std::mem::take(&mut memory.booked);
            if let Some(limits) = walk.limits.as_mut().filter(|_| !memory.replanned) {
                limits.beside(booked);
            }
            memory.settled &= !memory.keep(&mut walk, known, (cluster, line, changes), &touched);
        }
        if !memory.settled {
            memory.heads.fill(None);
            memory.planned.clear();
        }
        memory.recall(&mut walk, line);
        let was_settled = memory.settled;
        let mut round = Selection::new(cluster, line, walk, keeps);
        if memory.settled {
            round.arrivals(&changes.arrived);
        } else {
            round.everybody();
        }
        let Selection { mut walk, woken, .. } = round;
        memory.learn(inventory, line, &mut walk, keeps);
        let Walk { space: ledger, eligible_sets, mut plan, known, mut limits, .. } = walk;
        if let Some(limits) = &mut limits {
            woken.into_iter().for_each(|job| line.wake(job));
            if !precedence::may_preempt(cluster) {
                limits.take_stopped().into_iter().for_each(|(job, group)| line.put_to_sleep(job, group));
            }
            memory.learn_limits(limits, was_settled, &mut plan);
            memory.booked = if keeps { limits.take_bookings() } else { Bookings::default() };
        }
        if keeps {
            *reservations = known;
        } else {
            *reservations = memory.planned.iter().cloned().collect();
            plan.promise = memory.promise(line, forecast, now);
        }
        plan.report.truncated = line.is_cut();
        plan.report.partial = true;
        let mut quick = Self { ledger, eligible_sets, memory };
        quick.tidy();
        (quick, plan)
    }

    /// Forgets all findings if requests have had too many different needs. Findings are keyed by the numbers
    /// of needs and of sets of eligible nodes, so all are forgotten together.
    fn tidy(&mut self) {
        if self.eligible_sets.len() > MOST_LENSES || self.ledger.finder.is_full() {
            self.eligible_sets = EligibleSets::default();
            *self.ledger.finder = Finder::default();
        }
    }

    /// Updates the held amounts. Returns the nodes whose held amount has changed.
    fn catch_up(&mut self, input: PlanInput<'_>) -> BTreeSet<NodeId> {
        let PlanInput { cluster, inventory, now, .. } = input;
        let (memory, books) = (&mut self.memory, &mut self.ledger.books);
        for split in std::mem::take(&mut memory.split) {
            books.held.hand_over(input, split);
        }
        memory.changed.extend(std::mem::take(&mut memory.nominated));
        for job in std::mem::take(&mut memory.changed) {
            let moved = books.held.sync(input, job);
            memory.settled &= !moved;
        }
        memory.settled &= !books.held.correct(input);
        let freed = cluster.counters().freed();
        memory.settled &= std::mem::replace(&mut memory.freed, freed) == freed;
        if books.held.tidy(inventory) {
            self.ledger.finder.findings.needs.forget_rooms();
        }
        let before = std::mem::replace(&mut books.now, now);
        // Nodes that are kept for a job are held until its start, and then for its run time.
        memory.nominated = cluster.jobs().nominated().map(|(job, _)| job.id).collect();
        memory.settled &= memory.nominated.is_empty();
        let stirred = std::mem::take(&mut memory.stirred);
        if memory.settled && precedence::may_preempt(cluster) {
            memory.settled = !stirred && !precedence::exempt_ended(cluster, before, now);
        }
        if !inventory.reservations.is_empty() && (before != now || memory.replanned) {
            books.realms = Realms::new(&inventory.reservations, now);
            let again = inventory.reservations.iter().any(|reservation| reservation.repeats());
            let turns = again || memory.replanned || books.ahead.turns(before, now);
            let shut = (turns && books.ahead.shut(inventory, &books.realms, now)) | books.license();
            memory.settled &= !shut;
            memory.replanned |= shut;
        }
        let touched: BTreeSet<NodeId> = books.held.take_touched().into_iter().collect();
        touched.iter().for_each(|node| books.ahead.recount(&books.held, *node));
        touched
    }
}

impl Memory {
    /// Passes on the heads and their later starts, and books these in the limits. If the queue is settled,
    /// passes on the limits that have stopped jobs.
    fn recall(&mut self, walk: &mut Walk<Ledger>, line: &PendingOrder) {
        for (seat, head) in walk.heads.iter_mut().zip(&self.heads) {
            *seat = head.as_ref().map(|head| head.job);
        }
        walk.made = std::mem::take(&mut self.planned);
        let (closed, fits) = (std::mem::take(&mut self.closed), std::mem::take(&mut self.fits));
        let Some(limits) = &mut walk.limits else { return };
        limits.recall_fits(fits);
        if self.settled {
            limits.stay_closed(closed);
        }
        for made in walk.made.clone() {
            let leader = made.spec.het.as_deref().map_or(made.job, |het| het.leader);
            let mut components = line.candidate(leader).into_iter().flat_map(|first| first.all());
            if let Some(own) = components.find(|own| own.attempt.job == made.job) {
                walk.book_in_limits(own, &made);
            }
        }
    }

    /// Records the waiting jobs and the later starts of a pass, for the next pass.
    fn learn(&mut self, inventory: &Inventory, line: &PendingOrder, walk: &mut Walk<Ledger>, keeps: bool) {
        let component = |made: &Reservation| {
            inventory.partition(&made.partition).map(|partition| inventory.partitions[partition].component)
        };
        for (head, job) in self.heads.iter_mut().zip(&walk.heads) {
            if head.map(|head| head.job) != *job {
                *head = job.and_then(|job| line.key(job));
            }
        }
        if keeps {
            // A job with a kept later start would start wherever it fits, but this search only tries its
            // nodes.
            walk.space.books.restless |= !walk.made.is_empty();
            for made in std::mem::take(&mut walk.made) {
                if let Some(head) = component(&made).map(|component| &mut self.heads[component]) {
                    head.take_if(|head| head.job == made.job);
                }
                walk.remember_known(made);
            }
        } else {
            self.planned = std::mem::take(&mut walk.made);
            self.replanned = false;
        }
        self.kept = std::mem::take(&mut walk.kept);
        let victims = || walk.plan.starts.iter().any(|start| may_leave_again(inventory, line, start));
        let restless = walk.space.books.restless || walk.ways.restless || victims();
        (self.settled, self.was_cut) = (!restless, line.is_cut());
        // The next look at these jobs shows whether they have started.
        let starts = walk.plan.starts.iter().chain(walk.plan.preemptions.iter().map(|way| &way.start));
        self.changed.extend(starts.flat_map(Start::all).map(|start| start.attempt.job));
    }

    /// True if the heads are still heads, and every later start is in the future.
    fn still_holds(&self, inventory: &Inventory, line: &PendingOrder, changes: &Changes, now: Time) -> bool {
        let is_head = |job: &JobId| self.heads.iter().flatten().any(|head| head.job == *job);
        // A head that could not be planned may be possible at another moment.
        let is_planned = |head: &Key| self.planned.iter().any(|made| made.turn.key.job == head.job);
        // Arrivals may have pushed a head beyond a depth, even in other components.
        let beyond = |head: &Key| line.key(head.job).is_some_and(|key| line.is_beyond(&key));
        // Other jobs than before may be beyond a depth.
        let arrived = line.has_shares() && !changes.arrived.is_empty();
        let others = changes.resorted || arrived || !changes.left.is_empty();
        !((line.is_cut() || self.was_cut) && others)
            && !changes.left.iter().any(is_head)
            && !self.heads.iter().flatten().any(beyond)
            && self.heads.iter().flatten().all(is_planned)
            && self.planned.iter().all(|made| made.start > now)
            && (!changes.resorted || self.are_first(inventory, line))
            && !changes.arrived.iter().any(|job| self.comes_first(inventory, line, *job))
    }

    /// Remembers the limits that have stopped jobs, beside those of the pass before if it left a settled
    /// queue.
    fn learn_limits(&mut self, limits: &mut PassLimits, was_settled: bool, plan: &mut Plan) {
        let (again, last_stopped) =
            (self.again.filter(|_| was_settled), self.last_stopped.filter(|_| was_settled));
        plan.again = limits.again().into_iter().chain(again).min();
        self.again = plan.again;
        self.last_stopped = limits.last_stopped().max(last_stopped);
        self.closed = limits.take_closed();
        self.fits = limits.take_fits().next(was_settled);
        // A start may take the nodes that were found for a job that only a limit stops.
        self.settled &= self.last_stopped.is_none() || plan.starts.is_empty();
    }

    /// True if a pass over all jobs would find that limits stop the same jobs as before. A job that only a
    /// limit stops gets a later start, and may become the head, once the nodes that were found for it are
    /// not free any more. They are taken by a job that comes before it, by a reservation as time goes by, or
    /// by the later start of a job before it, which is of another component: its own has no head yet.
    fn limits_still_stop(
        &self,
        inventory: &Inventory,
        line: &PendingOrder,
        changes: &Changes,
        Range { start: before, end: now }: Range<Time>,
    ) -> bool {
        if self.again.is_some_and(|again| again <= now) {
            return false;
        }
        let Some(last) = self.last_stopped else { return true };
        let comes_before = |job: &JobId| line.key(*job).is_some_and(|key| key < last);
        let components = || line.members().iter().filter(|members| **members > 0).count();
        let is_shut = || !inventory.reservations.is_empty() || (!self.planned.is_empty() && components() > 1);
        !changes.resorted && !changes.arrived.iter().any(comes_before) && (before == now || !is_shut())
    }

    /// True if no job comes before the head of any of its components after the order has changed.
    fn are_first(&self, inventory: &Inventory, line: &PendingOrder) -> bool {
        let mut left: BTreeSet<JobId> = self.heads.iter().flatten().map(|head| head.job).collect();
        for row in line.rows().iter() {
            if left.is_empty() {
                return true;
            }
            if self.comes_first(inventory, line, row.key.job) {
                return false;
            }
            left.remove(&row.key.job);
        }
        true
    }

    /// True if a job comes before the head of one of its components, or before a job that is planned in
    /// several components.
    fn comes_first(&self, inventory: &Inventory, line: &PendingOrder, job: JobId) -> bool {
        let Some((key, candidate)) = line.key(job).zip(line.candidate(job)) else { return false };
        let is_before = |head: &Key| line.key(head.job).is_some_and(|head| key < head);
        let mut planned = self.planned.iter();
        if planned.any(|made| {
            let spreads = made.spec.het.is_some() || inventory.may_close(&made.spec);
            spreads && line.key(made.turn.key.job).is_some_and(|planned| key < planned)
        }) {
            return true;
        }
        // Licenses belong to all components, and leaves may extend into other components.
        let reaches_far = |spec: &JobSpec| !wanted(spec).is_empty() || inventory.may_close(spec);
        let mut heads = self.heads.iter().flatten();
        if candidate.all().any(|candidate| reaches_far(&candidate.spec)) && heads.any(is_before) {
            return true;
        }
        candidate.all().flat_map(|candidate| candidate.choices.iter()).any(|(partition, _)| {
            let head = &self.heads[inventory.partitions[*partition].component];
            head.as_ref().is_some_and(is_before)
        })
    }

    /// The start to promise to the first of all waiting jobs, if none was promised before.
    fn promise(&self, line: &PendingOrder, forecast: &dyn Forecast, now: Time) -> Option<(JobId, Time)> {
        let heads = self.heads.iter().flatten();
        let first = heads.min_by_key(|head| line.key(head.job).unwrap_or(**head))?;
        let start = self.planned.iter().find(|made| made.job == first.job).and_then(|made| made.told);
        // A start that depends on an overdue job cannot be promised.
        let start = start.filter(|start| *start > now)?;
        let promised = line.get(first.job).is_some_and(|ranked| ranked.promised);
        let firm = forecast.is_firm() || line.key(first.job).is_some_and(|key| key.is_aged());
        (firm && !promised).then_some((first.job, start))
    }
}

/// True if a job that starts may be a victim in the next pass.
fn may_leave_again(inventory: &Inventory, line: &PendingOrder, start: &Start) -> bool {
    let policy = &inventory.policy;
    let level = match policy.preempt.by {
        PreemptBy::None => return false,
        PreemptBy::Partition => {
            let partition = inventory.partition(&start.partition);
            partition.map_or(0, |partition| inventory.partitions[partition].partition.config.priority_tier)
        }
        PreemptBy::Qos => 0,
    };
    line.rows().next(&mut Place::default(), |least| least.reach > level).is_some()
}
