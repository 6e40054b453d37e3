//! One pass over the queue: the jobs that start now, the reservations for later, and the reasons why the
//! others wait.
//!
//! A pass owns all its input, which was true when the pass began. The controller checks every start again.
//!
//! Jobs are handled one by one in [`walk`], on a [`space`]: in the same way in a deep pass, which looks at
//! all jobs, and in a quick pass (`sched/quick`), which selects jobs that may start.

mod het;
pub(super) mod limits;
pub(super) mod preemption;
mod reservation;
mod wait;
pub(super) mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::JobId;
use crate::model::config::{Backfill, Order};
use crate::sched::forecast::PlanInput;
use crate::sched::queue::pending_order::PendingOrder;
use crate::sched::timeline::holding;
use crate::sched::timeline::realm::{OPEN, Realms};
use crate::text::time::Time;

use super::plan::{Plan, Preemption, Start};
use super::planned_starts::Reservations;
use super::queue::{Queued, Throttle};
use super::state::State;
use limits::PassLimits;
pub(super) use reservation::Kept;
use walk::Walk;

/// The progress of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Jobs are left to look at.
    More,
    /// All jobs have been looked at.
    Done,
}

/// A pass in progress.
#[derive(Debug)]
pub struct Pass {
    seq: u64,
    walk: Walk<State>,
    queue: std::vec::IntoIter<Queued>,
    /// Jobs that were put off until all others were looked at, because only the head keeps its place.
    later: Vec<Queued>,
    /// A job some of whose tasks have been looked at.
    ongoing: Option<Queued>,
    /// Number of starts and of preemptions that have been handed out.
    handed: (usize, usize),
}

impl Pass {
    /// Begins a pass that finds the start of one job: every job before it has a reservation, whatever the
    /// mode, and later jobs are not looked at. Without backfill no job starts before those ahead of it.
    pub(super) fn foretelling(input: PlanInput<'_>, line: &PendingOrder, job: JobId) -> Self {
        let mut pass = Self::of(input, line, Some(job), None);
        if std::mem::replace(&mut pass.walk.backfill, Backfill::Conservative) == Backfill::None {
            // No job goes before a waiting one.
            pass.walk.floors = Some(vec![Time(i64::MIN); pass.walk.heads.len()]);
        }
        pass
    }

    /// This pass, with a job that begins no earlier than a time.
    pub(super) fn beginning(mut self, begins: Option<(JobId, Time)>) -> Self {
        self.walk.begins = begins;
        self
    }

    /// Begins a pass that plans nothing anew for later, except for a head without a reservation, which every
    /// other job would overtake otherwise. Where every job has a reservation, the `known` ones are kept. No
    /// reasons are given.
    pub(super) fn quick(input: PlanInput<'_>, line: &PendingOrder, known: &Reservations) -> Self {
        let none = Reservations::default();
        let keeps = input.inventory.policy.scheduler.backfill == Backfill::Conservative;
        let known = if keeps { known } else { &none };
        let mut pass = Self::of(input, line, None, Some(known));
        pass.walk.plan.waiting.clear();
        pass.walk.plan.report.partial = true;
        pass.walk.keep(line, known);
        pass
    }

    /// Begins a pass: collects the queue and the known future.
    pub(super) fn new(input: PlanInput<'_>, line: &PendingOrder) -> Self {
        Self::of(input, line, None, None)
    }

    /// This pass after another plan: where every job has a reservation, jobs keep theirs unless they would
    /// start earlier.
    pub(super) fn after(mut self, plan: &Reservations, ground: u64) -> Self {
        if self.walk.reserves_all() && self.walk.inventory.ground == ground {
            self.walk.remembered = plan.iter().map(Arc::clone).collect();
            self.walk.remembered.sort_by_key(|made| (made.job, made.turn.number));
        }
        self
    }

    /// A pass over the queue, or up to job `last`; with `known` a quick pass beside these reservations.
    fn of(
        input: PlanInput<'_>,
        line: &PendingOrder,
        last: Option<JobId>,
        known: Option<&Reservations>,
    ) -> Self {
        let queue = line.queue(input.now, last);
        let deep = known.is_none();
        let known = || known.into_iter().flat_map(Reservations::iter);
        let all = || queue.candidates.iter().flat_map(|candidate| candidate.all());
        let shortest = all().map(|candidate| candidate.shortest).min().unwrap_or(1);
        let realms = Realms::new(&input.inventory.reservations, input.now);
        let mut wanted = BTreeSet::from([OPEN, realms.unshut()]);
        if !realms.is_single() {
            wanted.extend(all().flat_map(|candidate| realms.of_job(&candidate.spec)));
            wanted.extend(known().filter_map(|made| realms.named(made.within.as_deref()?)));
        }
        let searches = if deep { preemption::SEARCHES } else { preemption::QUICK_SEARCHES };
        let mut state = State::new(input, shortest, (realms, &wanted));
        let ways = preemption::Ways::new(input, searches, &mut state);
        let mut walk = Walk::new(Arc::clone(input.inventory), state, ways, input.forecast.is_firm(), deep);
        walk.subject = line.subject.clone();
        walk.limits = PassLimits::new(input, line);
        walk.plan = Plan { waiting: queue.aside, ..Plan::default() };
        walk.plan.waiting.reserve(if deep { queue.candidates.len() } else { 0 });
        walk.made.reserve(if walk.reserves_all() { queue.candidates.len() } else { 0 });
        if walk.reserves_all() {
            occupy_running(&mut walk.throttle, input, &queue.candidates);
        }
        walk.plan.report.truncated = queue.truncated;
        Self {
            seq: input.cluster.seq(),
            walk,
            queue: queue.candidates.into_iter(),
            later: Vec::new(),
            ongoing: None,
            handed: (0, 0),
        }
    }

    /// The number of the journal entry after which the pass began.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The time from which the pass plans.
    #[must_use]
    pub fn now(&self) -> Time {
        self.walk.now
    }

    /// Looks at up to `jobs` more jobs; each task of an array counts as one.
    pub fn advance(&mut self, jobs: u32) -> Progress {
        let sorts = self.walk.inventory.policy.scheduler.order == Order::Sjf;
        // Without backfill no job is sorted by run time.
        let shortest_first = sorts && self.walk.floors.is_none();
        for _ in 0..jobs {
            let Some(candidate) = self.next() else { return Progress::Done };
            if shortest_first && !candidate.second && self.walk.is_behind(&candidate) {
                self.later.push(Queued { second: true, ..candidate });
            } else {
                self.ongoing = self.walk.consider(candidate);
            }
        }
        let is_done = self.queue.len() == 0 && self.later.is_empty() && self.ongoing.is_none();
        if is_done { Progress::Done } else { Progress::More }
    }

    /// The starts found since the last call; they need not wait for the rest of the pass.
    pub fn take_starts(&mut self) -> Vec<Start> {
        let starts = &self.walk.plan.starts;
        let handed = std::mem::replace(&mut self.handed.0, starts.len());
        starts[handed..].to_vec()
    }

    /// The preemptions found since the last call; they need not wait for the rest of the pass.
    pub fn take_preemptions(&mut self) -> Vec<Preemption> {
        let preemptions = &self.walk.plan.preemptions;
        let handed = std::mem::replace(&mut self.handed.1, preemptions.len());
        preemptions[handed..].to_vec()
    }

    /// The plan, and the reservations that later quick passes must keep.
    #[must_use]
    pub fn finish(mut self) -> (Plan, Reservations) {
        while self.advance(u32::MAX) == Progress::More {}
        let Walk { mut plan, mut known, made, limits, .. } = self.walk;
        plan.again = limits.and_then(|limits| limits.again());
        if known.is_empty() {
            return (plan, made.into_iter().collect());
        }
        made.into_iter().for_each(|made| known.insert(made));
        (plan, known)
    }

    /// The next job. After the queue come the jobs that were put off, in their own order.
    fn next(&mut self) -> Option<Queued> {
        let next = self.ongoing.take().or_else(|| self.queue.next());
        if next.is_some() {
            return next;
        }
        let mut later = std::mem::take(&mut self.later);
        later.sort_by_key(|candidate| candidate.behind);
        self.queue = later.into_iter();
        self.queue.next()
    }
}

/// Notes the planned ends of running tasks of arrays in the queue that limit their tasks.
fn occupy_running(throttle: &mut Throttle, input: PlanInput<'_>, queue: &[Queued]) {
    let PlanInput { cluster, forecast, now, .. } = input;
    let arrays = queue.iter().filter_map(|candidate| candidate.array.as_ref());
    let limited: BTreeSet<JobId> =
        arrays.filter(|tasks| tasks.more.is_some()).map(|tasks| tasks.id).collect();
    for array in limited {
        let records = cluster.jobs().array(array).into_iter().flat_map(|known| known.records());
        for job in records.filter_map(|id| cluster.job(id)) {
            if let Some((_, end)) = holding::until(cluster, job, forecast, now) {
                throttle.occupy_array(array, end);
            }
        }
    }
}
