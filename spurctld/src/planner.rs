//! The planner's thread: asks the core what should start, on a cluster of its own.
//!
//! It is fed with committed entries, so it never holds up a decision or a reply, and whatever it proposes is checked
//! again by the owner. New work and freed resources get a quick pass at once; the deep pass goes on in slices between
//! them. After proposals it waits for the owner's answers: each says from which entry on a start shows, and nothing is
//! planned on less. What a deep pass says of the jobs that do not start is published for readers.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use spur_core::cluster::{Cluster, Entry, Event, Scope};
use spur_core::controller::Input;
use spur_core::id::{JobId, NodeId};
use spur_core::model::job::Job;
use spur_core::model::node::Health;
use spur_core::model::phase::Phase;
use spur_core::model::reason::Reason;
use spur_core::sched::plan::{Preemption, Report, Start, Waiting};
use spur_core::sched::{Pass, Planner, Progress, Remembered, Subject};
use spur_core::text::time::Time;

use crate::changes::Changes;
use crate::clock;
use crate::fault;
use crate::feed::Entries;
use crate::inbox::{Inbox, NoAnswer};
use crate::metrics::{Decision, strategy_of};
use crate::replica::Replica;
use crate::statistics::{Cycle, Statistics};
use crate::watchers::Watchers;

/// Jobs looked at in a deep pass before new work and freed resources get their turn.
const SLICE: u32 = 64;
/// A time that has just come is not waited for in a hurry.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Planning that took less than this is not worth a rest.
const LIGHT_WORK: Duration = Duration::from_micros(500);
/// A deep pass rests so many times as long as it has worked: jobs that can start do not wait for it.
const DEEP_REST: u32 = 3;
/// Failures in a row of one kind of planning that end the process.
const MOST_FAILURES: u32 = 3;
/// Reasons that the replica's counts take over at once, while entries wait to be applied.
const AT_ONCE: usize = 256;
/// How long after the start nodes that were up are waited for: those that are there try again every three seconds.
const GATHERING: Duration = Duration::from_secs(4);
/// Priorities grow with age, so the queue is looked at this often even when nothing happens.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the last pass said of jobs that wait. Clones share it.
#[derive(Clone)]
pub struct Overlay {
    last: Arc<RwLock<Arc<Outlooks>>>,
    watchers: Watchers,
    /// Whose counts follow the reasons.
    replica: Replica,
    changes: Changes,
}

/// What one pass said.
#[derive(Debug, Default)]
pub struct Outlooks {
    /// When it was made.
    pub evaluated: Time,
    /// By job number.
    waiting: Vec<Waiting>,
    /// Nodes that are kept free for a job.
    planned: BTreeSet<NodeId>,
    /// The later starts that it planned.
    pub(crate) remembered: Remembered,
}

impl Overlay {
    /// Nothing has been said yet; those who watch a job are woken when its reason is another.
    pub(crate) fn new(watchers: Watchers, replica: Replica, changes: Changes) -> Self {
        Self { last: Arc::default(), watchers, replica, changes }
    }

    /// What the last pass said.
    pub fn read(&self) -> Arc<Outlooks> {
        Arc::clone(&self.last.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, outlooks: Outlooks) {
        let new = Arc::new(outlooks);
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *last, Arc::clone(&new));
        // Whoever is woken may look at once.
        drop(last);
        self.watchers.tell_where(|job| old.reason(job) != new.reason(job));
        let changed = new.changes_since(&old);
        let nodes = new.planned.symmetric_difference(&old.planned).copied();
        self.changes.note_outlook(changed.iter().map(|(job, _)| *job), nodes);
        for part in changed.chunks(AT_ONCE) {
            self.replica.tally().explain(part);
        }
    }
}

impl Outlooks {
    fn new(evaluated: Time, mut waiting: Vec<Waiting>, remembered: Remembered) -> Self {
        waiting.sort_by_key(|waiting| waiting.job);
        waiting.shrink_to_fit();
        let planned = waiting.iter().flat_map(|waiting| waiting.nodes.iter().copied()).collect();
        Self { evaluated, waiting, planned, remembered }
    }

    /// What it said of a job, if it looked at it.
    pub fn of(&self, job: JobId) -> spur_proto::convert::job::Outlook<'_> {
        let waiting = self.find(job);
        spur_proto::convert::job::Outlook { waiting, evaluated: waiting.map(|_| self.evaluated) }
    }

    fn find(&self, job: JobId) -> Option<&Waiting> {
        let at = self.waiting.binary_search_by_key(&job, |waiting| waiting.job).ok()?;
        Some(&self.waiting[at])
    }

    /// The jobs of which it says another reason than `old`, or nothing any more.
    fn changes_since(&self, old: &Self) -> Vec<(JobId, Option<Reason>)> {
        let reasons = self.waiting.iter().map(|waiting| (waiting.job, Some(waiting.reason)));
        let changed = reasons.filter(|(job, reason)| old.reason(*job) != *reason);
        let jobs = old.waiting.iter().map(|waiting| waiting.job);
        changed.chain(jobs.filter(|job| self.find(*job).is_none()).map(|job| (job, None))).collect()
    }

    fn reason(&self, job: JobId) -> Option<Reason> {
        self.find(job).map(|waiting| waiting.reason)
    }

    /// Whether it keeps a node free for a job.
    pub fn plans(&self, node: NodeId) -> bool {
        self.planned.contains(&node)
    }
}

/// The planner's thread. See the module.
pub(crate) struct Planning {
    cluster: Cluster,
    entries: Receiver<Entries>,
    inbox: Inbox,
    overlay: Overlay,
    statistics: Statistics,
    planner: Planner,
    /// The deep pass under way.
    pass: Option<Pass>,
    /// What it has taken so far.
    passed: Duration,
    /// Something may let a job start that could not before.
    quick_due: bool,
    /// Something changed since the last deep pass began.
    deep_due: bool,
    /// How long the last quick pass took.
    worked: Duration,
    /// When the deep pass may go on.
    deep_from: Instant,
    /// How often in a row each kind of work has failed.
    failed: [u32; 3],
    /// No pass is made before this entry has been applied: the last that a proposal led to.
    floor: u64,
}

impl Planning {
    /// A planner on a replica that `entries` keeps up to date.
    pub(crate) fn new(
        cluster: Cluster,
        entries: Receiver<Entries>,
        inbox: Inbox,
        overlay: Overlay,
        statistics: Statistics,
    ) -> Self {
        let planner = Planner::new(&cluster);
        // The first passes answer for what happened before this start.
        let (quick_due, deep_due) = (true, true);
        Self {
            cluster,
            entries,
            inbox,
            overlay,
            statistics,
            planner,
            pass: None,
            passed: Duration::ZERO,
            quick_due,
            deep_due,
            worked: Duration::ZERO,
            deep_from: Instant::now(),
            failed: [0; 3],
            floor: 0,
        }
    }

    /// Follows entries of another controller that leads: nothing is planned.
    pub(crate) fn follow(&mut self, entries: &[Arc<Entry>]) {
        for entry in entries {
            self.cluster.apply(entry);
            let note = || self.planner.note(&self.cluster, &entry.event);
            if catch_unwind(AssertUnwindSafe(note)).is_err() {
                tracing::error!(seq = entry.seq, "the planner cannot follow an entry; it begins anew");
                self.planner = Planner::new(&self.cluster);
            }
        }
    }

    /// Plans until the feed or the owner ends.
    pub(crate) fn run(mut self) {
        if self.gather().is_err() {
            return;
        }
        while self.catch_up().is_ok() {
            if self.cluster.seq() < self.floor {
                continue;
            }
            if self.turn().is_err() || self.rest().is_err() {
                return;
            }
        }
    }

    /// Does a piece of planning that may fail by a fault of its own. Then the job that it was at is held, and planning begins
    /// anew from the replica; the third time in a row ends the process.
    fn attempt<T>(&mut self, work: Work, plan: impl FnOnce(&mut Self) -> T) -> Result<Option<T>, NoAnswer> {
        if let Ok(planned) = catch_unwind(AssertUnwindSafe(|| plan(self))) {
            self.failed[work as usize] = 0;
            return Ok(Some(planned));
        }
        self.failed[work as usize] += 1;
        let job = self.planner.subject().job();
        tracing::error!(?work, ?job, "planning has failed; it begins anew, and the job is held");
        self.statistics.meters.fail();
        if let Some(job) = job {
            self.put(Input::PlanFailed { job })?;
        }
        if self.failed[work as usize] >= MOST_FAILURES {
            fault::end("planning has failed three times in a row");
        }
        self.planner = Planner::new(&self.cluster);
        (self.pass, self.quick_due, self.deep_due) = (None, true, true);
        Ok(None)
    }

    /// Sends something to the owner and waits for its answer.
    fn put(&mut self, input: Input) -> Result<(), NoAnswer> {
        let answered = self.inbox.propose(input)?.blocking_recv().map_err(|_| NoAnswer::Stopping)?;
        self.floor = self.floor.max(answered.seq);
        Ok(())
    }

    /// Waits until the nodes that were up have registered, a few seconds at most: if the journal is an old copy, one of them
    /// says so.
    fn gather(&mut self) -> Result<(), RecvTimeoutError> {
        let up = self.cluster.nodes().iter().filter(|node| node.health == Health::Up);
        let mut awaited: BTreeSet<NodeId> = up.map(|node| node.id).collect();
        let end = Instant::now() + GATHERING;
        while !awaited.is_empty() {
            match self.entries.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(entries) => {
                    for entry in entries.iter() {
                        if let Event::NodeRegistered { node, .. } | Event::NodeDowned { node, .. } =
                            &entry.event
                        {
                            awaited.remove(node);
                        }
                    }
                    self.apply(&entries);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
        Ok(())
    }

    /// Leaves the machine to others for as long as the last quick pass took, so that planning under a stream of
    /// submissions costs the replies no more than half a core. A quick pass costs what has changed, so that this is
    /// hardly ever any time at all.
    fn rest(&mut self) -> Result<(), RecvTimeoutError> {
        let worked = std::mem::take(&mut self.worked);
        if worked < LIGHT_WORK {
            return Ok(());
        }
        let end = Instant::now() + worked;
        loop {
            match self.entries.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(entries) => self.apply(&entries),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
    }

    /// One piece of work: a quick pass, or a slice of a deep one if that has rested.
    fn turn(&mut self) -> Result<(), NoAnswer> {
        if self.cluster.doubt().is_some() {
            return Ok(());
        }
        let now = clock::now(&self.cluster).max(self.cluster.at());
        let begun = Instant::now();
        if std::mem::take(&mut self.quick_due) {
            let plan = self.attempt(Work::Quick, |own| {
                fail_at(&own.cluster, &own.planner.subject(), "quick");
                own.planner.start_now(&own.cluster, now)
            })?;
            let Some(plan) = plan else { return Ok(()) };
            self.worked = begun.elapsed();
            self.statistics.quick(self.cycle(self.worked, plan.report, now));
            return self.propose(plan.starts, plan.preemptions, plan.promise);
        }
        if begun < self.deep_from {
            return Ok(());
        }
        if self.pass.is_none() && !std::mem::take(&mut self.deep_due) {
            return Ok(());
        }
        let slice = self.attempt(Work::Deep, |own| own.slice(now))?;
        self.deep_from = Instant::now() + begun.elapsed() * DEEP_REST;
        let Some(Slice { starts, preemptions, promise, done }) = slice else { return Ok(()) };
        self.passed += begun.elapsed();
        self.statistics.backfilled(starts.len(), starts.iter().map(|start| start.rest.len()).sum());
        if let Some((outlooks, report)) = done {
            let passed = std::mem::take(&mut self.passed);
            self.statistics.deep(self.cycle(passed, report, now));
            outlooks.waiting.iter().for_each(|waiting| self.decide(waiting.job, Decision::Waiting));
            self.overlay.publish(outlooks);
        }
        self.propose(starts, preemptions, promise)
    }

    /// Counts what came of looking for a place for a job.
    fn decide(&self, job: JobId, decision: Decision) {
        self.statistics.meters.decide(self.strategy_of(job, None), decision);
    }

    /// The rule by which a job is placed, in a partition or else in the first that it asks for.
    fn strategy_of(&self, job: JobId, partition: Option<&str>) -> &'static str {
        let Some(job) = self.cluster.job(job) else { return "none" };
        let asked = || job.spec.partitions.first().map(|name| &**name);
        strategy_of(&self.cluster, &job.spec, partition.or_else(asked).unwrap_or_default())
    }

    fn cycle(&self, took: Duration, report: Report, at: Time) -> Cycle {
        let at = self.cluster.clock().wall(at);
        Cycle { took, report, queue: self.cluster.jobs().pending_count(), at }
    }

    /// A slice of the deep pass under way, or of a new one.
    fn slice(&mut self, now: Time) -> Slice {
        self.statistics.backfills();
        let mut pass = self.pass.take().unwrap_or_else(|| self.planner.begin(&self.cluster, now));
        fail_at(&self.cluster, &self.planner.subject(), "deep");
        let progress = pass.advance(SLICE);
        let (starts, preemptions) = (pass.take_starts(), pass.take_preemptions());
        match progress {
            Progress::More => {
                self.pass = Some(pass);
                Slice { starts, preemptions, promise: None, done: None }
            }
            Progress::Done => {
                let made = pass.now();
                let plan = self.planner.finish(pass);
                let remembered = self.planner.remembered(&self.cluster);
                let outlooks = Outlooks::new(made, plan.waiting, remembered);
                let done = Some((outlooks, plan.report));
                Slice { starts, preemptions, promise: plan.promise, done }
            }
        }
    }

    /// Sends proposals to the owner and waits for its answers; by then the entries they led to are in the queue.
    fn propose(
        &mut self,
        starts: Vec<Start>,
        preemptions: Vec<Preemption>,
        promise: Option<(JobId, Time)>,
    ) -> Result<(), NoAnswer> {
        let mut answers = Vec::with_capacity(starts.len() + preemptions.len());
        for start in starts {
            let strategy = self.strategy_of(start.attempt.job, Some(&start.partition));
            let exact = start.all().all(|start| start.why.exact);
            let decision = if exact { Decision::Exact } else { Decision::Inexact };
            answers.push((self.inbox.propose(Input::Start(Box::new(start)))?, Some((strategy, decision))));
        }
        for preemption in preemptions {
            let start = &preemption.start;
            let strategy = self.strategy_of(start.attempt.job, Some(&start.partition));
            let input = Input::Preempt(Box::new(preemption));
            answers.push((self.inbox.propose(input)?, Some((strategy, Decision::Preempting))));
        }
        if let Some((job, start)) = promise {
            answers.push((self.inbox.propose(Input::Promise { job, start })?, None));
        }
        for (answer, placed) in answers {
            let answered = answer.blocking_recv().map_err(|_| NoAnswer::Stopping)?;
            self.floor = self.floor.max(answered.seq);
            match (answered.answer, placed) {
                (Ok(_), Some((strategy, decision))) => self.statistics.meters.decide(strategy, decision),
                (Ok(_), None) => {}
                (Err(refused), placed) => {
                    tracing::debug!(?refused, "a proposal was not taken");
                    if let Some((strategy, _)) = placed {
                        self.statistics.meters.refuse(strategy, &refused);
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies what is in the queue. Waits for something only if there is nothing to plan, or not yet.
    fn catch_up(&mut self) -> Result<(), RecvTimeoutError> {
        let behind = self.cluster.seq() < self.floor;
        let deep = (self.deep_due || self.pass.is_some())
            .then(|| self.deep_from.saturating_duration_since(Instant::now()));
        let busy = self.quick_due || deep.is_some_and(|rest| rest.is_zero());
        if behind || !busy {
            let pause = self.pause();
            let rest = deep.filter(|_| !behind).map_or(pause, |rest| rest.clamp(SHORTEST_PAUSE, pause));
            match self.entries.recv_timeout(rest) {
                Ok(entries) => self.apply(&entries),
                // The deep pass has rested.
                Err(RecvTimeoutError::Timeout) if rest < pause => {}
                // Time alone may let a job start: its begin time has come, or a wish of its has lapsed.
                Err(RecvTimeoutError::Timeout) => (self.quick_due, self.deep_due) = (true, true),
                Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
        loop {
            match self.entries.try_recv() {
                Ok(entries) => self.apply(&entries),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            }
        }
    }

    fn apply(&mut self, entries: &[Arc<Entry>]) {
        for entry in entries {
            self.cluster.apply(entry);
            let noted = self.attempt(Work::Note, |own| own.planner.note(&own.cluster, &entry.event));
            if noted.is_err() {
                // The owner is gone, and with it the feed.
                return;
            }
            let news = self.news(&entry.event);
            self.quick_due |= news >= News::Room;
            self.deep_due |= news >= News::Order;
            if news == News::Ground {
                if self.pass.is_some() {
                    self.statistics.abandon();
                }
                (self.pass, self.passed) = (None, Duration::ZERO);
            }
        }
    }

    /// What an event means, now that it has been applied: a job that arrives held back changes no plan.
    fn news(&self, event: &Event) -> News {
        match event {
            Event::JobSubmitted { spec, .. } if spec.hold => News::Nothing,
            Event::HetJobSubmitted { specs, .. } if specs.iter().all(|spec| spec.hold) => News::Nothing,
            _ => news(event),
        }
    }

    /// How long nothing can happen to the queue without an entry.
    fn pause(&mut self) -> Duration {
        let now = clock::now(&self.cluster).max(self.cluster.at());
        let next = self.planner.next_event_time(&self.cluster, now);
        let next = next.map_or(LONGEST_PAUSE, |at| clock::until(self.cluster.clock(), at));
        next.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

/// What a planner does that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Learning from an event.
    Note,
    /// A quick pass.
    Quick,
    /// A slice of a deep pass.
    Deep,
}

/// What came of a slice of a deep pass.
struct Slice {
    starts: Vec<Start>,
    preemptions: Vec<Preemption>,
    promise: Option<(JobId, Time)>,
    /// What is said of those who wait and how many were looked at, at the end of the pass.
    done: Option<(Outlooks, Report)>,
}

/// Where a test makes planning fail; see [`fault::point`].
fn fail_at(cluster: &Cluster, subject: &Subject, place: &str) {
    if cfg!(debug_assertions) {
        let waits = |job: &&Job| matches!(&job.phase, Phase::Pending(pending) if pending.hold.is_none());
        for job in cluster.jobs().pending().filter(waits) {
            subject.set(job.id);
            fault::point(place, [&*job.spec.name]);
            subject.clear();
        }
    }
}

/// What an event means to a plan; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    /// Nothing.
    Nothing,
    /// The next plan may look different.
    Order,
    /// A job may start that could not before.
    Room,
    /// A pass under way has a wrong picture of the cluster.
    Ground,
}

fn news(event: &Event) -> News {
    match event {
        // The job ends later than was planned, or takes what nobody had.
        Event::JobNodesReplaced { .. } | Event::JobSuspended { .. } | Event::JobRecalled { .. } => {
            News::Ground
        }
        Event::JobStarted { .. }
        | Event::JobNominated { .. }
        | Event::JobPreempted { .. }
        | Event::CpusReturned { .. }
        | Event::JobResumed { .. }
        | Event::JobEnding { .. } => News::Order,
        // Every start in a reservation that replaces nodes brings one; a start that it prevents is refused.
        Event::ReservationUpdated { .. } => News::Room,
        _ => match event.scope() {
            Scope::Journal | Scope::Node { .. } | Scope::Layout | Scope::Reservation | Scope::Accounts => {
                News::Ground
            }
            // Jobs may change places, and budgets may have room again.
            Scope::Queue(_) | Scope::Resources(_) | Scope::Usage => News::Room,
            Scope::Progress(_) => News::Nothing,
        },
    }
}
