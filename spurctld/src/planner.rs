//! The planner's thread: asks the core for starts and preemptions, on a replica of its own.
//!
//! The replica follows the committed entries, so planning delays no decision and no reply; the owner checks
//! every proposal again. New work and freed resources get a quick pass at once; the deep pass goes on in
//! slices between quick passes. After proposals the planner waits for the owner's answers. Each answer names
//! the entry from which on the start shows, and no pass begins before that entry is applied. The reasons of a
//! deep pass, for jobs that do not start, are published for readers.

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

/// Jobs that a slice of a deep pass considers before new work and freed resources get a quick pass.
const SLICE: u32 = 64;
/// Shortest wait for an entry, also when an awaited time has just come.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Duration of a quick pass up to which the planner does not rest.
const LIGHT_WORK: Duration = Duration::from_micros(500);
/// Rest of the deep pass after a slice, as a multiple of the slice's duration: jobs that can start do not
/// wait for it.
const DEEP_REST: u32 = 3;
/// Consecutive failures of one kind of planning that end the process.
const MOST_FAILURES: u32 = 3;
/// Changed reasons that the replica's counts take over in one piece, while entries wait to be applied.
const AT_ONCE: usize = 256;
/// Longest wait after the start for nodes that were up; a node without a controller tries again every three
/// seconds.
const GATHERING: Duration = Duration::from_secs(4);
/// Longest time between two passes: priorities grow with age, even when nothing happens.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The outlooks of the last deep pass for pending jobs. Clones share them.
#[derive(Clone)]
pub struct Overlay {
    last: Arc<RwLock<Arc<Outlooks>>>,
    watchers: Watchers,
    /// The replica whose counts follow the reasons.
    replica: Replica,
    changes: Changes,
}

/// The outlooks of one deep pass.
#[derive(Debug, Default)]
pub struct Outlooks {
    /// Time at which the pass was made.
    pub evaluated: Time,
    /// Outlooks of pending jobs, ascending by job number.
    waiting: Vec<Waiting>,
    /// Nodes that the pass keeps free for a job.
    planned: BTreeSet<NodeId>,
    /// Starts that the pass planned for later.
    pub(crate) remembered: Remembered,
}

impl Overlay {
    /// Returns an overlay without outlooks. Watchers of a job are woken when the job's reason changes.
    pub(crate) fn new(watchers: Watchers, replica: Replica, changes: Changes) -> Self {
        Self { last: Arc::default(), watchers, replica, changes }
    }

    /// Returns the outlooks of the last pass.
    pub fn read(&self) -> Arc<Outlooks> {
        Arc::clone(&self.last.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, outlooks: Outlooks) {
        let new = Arc::new(outlooks);
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *last, Arc::clone(&new));
        // A watcher that wakes may read at once.
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

    /// Returns the outlook of a job; empty if the pass did not consider the job.
    pub fn of(&self, job: JobId) -> spur_proto::convert::job::Outlook<'_> {
        let waiting = self.find(job);
        spur_proto::convert::job::Outlook { waiting, evaluated: waiting.map(|_| self.evaluated) }
    }

    fn find(&self, job: JobId) -> Option<&Waiting> {
        let at = self.waiting.binary_search_by_key(&job, |waiting| waiting.job).ok()?;
        Some(&self.waiting[at])
    }

    /// Returns the jobs whose reason differs from `old`; `None` for a job that the pass did not consider.
    fn changes_since(&self, old: &Self) -> Vec<(JobId, Option<Reason>)> {
        let reasons = self.waiting.iter().map(|waiting| (waiting.job, Some(waiting.reason)));
        let changed = reasons.filter(|(job, reason)| old.reason(*job) != *reason);
        let jobs = old.waiting.iter().map(|waiting| waiting.job);
        changed.chain(jobs.filter(|job| self.find(*job).is_none()).map(|job| (job, None))).collect()
    }

    fn reason(&self, job: JobId) -> Option<Reason> {
        self.find(job).map(|waiting| waiting.reason)
    }

    /// True if the pass keeps the node free for a job.
    pub fn plans(&self, node: NodeId) -> bool {
        self.planned.contains(&node)
    }
}

/// The planner's thread, see the [module](self).
pub(crate) struct Planning {
    cluster: Cluster,
    entries: Receiver<Entries>,
    inbox: Inbox,
    overlay: Overlay,
    statistics: Statistics,
    planner: Planner,
    /// The deep pass under way.
    pass: Option<Pass>,
    /// Time that the deep pass under way has taken so far.
    passed: Duration,
    /// True if a job may start that could not before.
    quick_due: bool,
    /// True if the queue or the cluster has changed since the last deep pass began.
    deep_due: bool,
    /// Duration of the last quick pass, after which the planner rests for as long; zero after the rest.
    worked: Duration,
    /// Instant from which on the deep pass may continue.
    deep_from: Instant,
    /// Number of consecutive failures of each kind of work.
    failed: [u32; 3],
    /// The last entry that a proposal led to; no pass begins before it has been applied.
    floor: u64,
}

impl Planning {
    /// Returns a planner on a replica that `entries` keeps up to date.
    pub(crate) fn new(
        cluster: Cluster,
        entries: Receiver<Entries>,
        inbox: Inbox,
        overlay: Overlay,
        statistics: Statistics,
    ) -> Self {
        let planner = Planner::new(&cluster);
        // The first passes account for everything that happened before this start.
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

    /// Applies entries of the leader without planning, in a standby.
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

    /// Runs a piece of planning and catches its panic.
    ///
    /// After a panic the job under consideration is held and planning begins again from the replica. The
    /// third consecutive panic ends the process.
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

    /// Sends an input to the owner and waits for the answer.
    fn put(&mut self, input: Input) -> Result<(), NoAnswer> {
        let answered = self.inbox.propose(input)?.blocking_recv().map_err(|_| NoAnswer::Stopping)?;
        self.floor = self.floor.max(answered.seq);
        Ok(())
    }

    /// Waits until the nodes that were up have registered, at most [`GATHERING`].
    ///
    /// If the journal is an old copy, one of the nodes may say so.
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

    /// Rests for as long as the last quick pass took, if that was at least [`LIGHT_WORK`].
    ///
    /// Under a stream of submissions, planning then takes at most half a core from the replies. A quick pass
    /// costs only what has changed, so the rest is hardly ever noticeable.
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

    /// Does one piece of work: a quick pass, or a slice of a deep pass that has rested.
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

    /// Counts a decision about a job for the metrics.
    fn decide(&self, job: JobId, decision: Decision) {
        self.statistics.meters.decide(self.strategy_of(job, None), decision);
    }

    /// Returns the placement rule for a job in a partition, or else in the first partition that the job asks
    /// for.
    fn strategy_of(&self, job: JobId, partition: Option<&str>) -> &'static str {
        let Some(job) = self.cluster.job(job) else { return "none" };
        let asked = || job.spec.partitions.first().map(|name| &**name);
        strategy_of(&self.cluster, &job.spec, partition.or_else(asked).unwrap_or_default())
    }

    fn cycle(&self, took: Duration, report: Report, at: Time) -> Cycle {
        let at = self.cluster.clock().wall(at);
        Cycle { took, report, queue: self.cluster.jobs().pending_count(), at }
    }

    /// Runs a slice of the deep pass under way, or of a new one.
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

    /// Sends proposals to the owner and waits for the answers; the resulting entries are then in the queue.
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

    /// Applies the queued entries. Waits for entries only if no planning is due, or its rest is not over.
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
                // The rest of the deep pass is over.
                Err(RecvTimeoutError::Timeout) if rest < pause => {}
                // Time alone may let a job start: at its begin time, or when a preference lapses.
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
                // The owner has ended, and with it the feed.
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

    /// Returns the effect of an applied event on plans; a job that arrives held has none.
    fn news(&self, event: &Event) -> News {
        match event {
            Event::JobSubmitted { spec, .. } if spec.hold => News::Nothing,
            Event::HetJobSubmitted { specs, .. } if specs.iter().all(|spec| spec.hold) => News::Nothing,
            _ => news(event),
        }
    }

    /// Returns the time until something may happen to the queue without an entry.
    fn pause(&mut self) -> Duration {
        let now = clock::now(&self.cluster).max(self.cluster.at());
        let next = self.planner.next_event_time(&self.cluster, now);
        let next = next.map_or(LONGEST_PAUSE, |at| clock::until(self.cluster.clock(), at));
        next.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

/// Kinds of planning, whose failures are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Updating the planner after an event.
    Note,
    /// A quick pass.
    Quick,
    /// A slice of a deep pass.
    Deep,
}

/// The results of a slice of a deep pass.
struct Slice {
    starts: Vec<Start>,
    preemptions: Vec<Preemption>,
    promise: Option<(JobId, Time)>,
    /// The outlooks and the report of the pass, if this slice ended it.
    done: Option<(Outlooks, Report)>,
}

/// Makes planning fail in tests; see [`fault::point`].
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

/// The effect of an event on plans; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    /// Plans stay as they are.
    Nothing,
    /// The next plan may differ.
    Order,
    /// A job may start that could not before.
    Room,
    /// A pass under way is based on a wrong state of the cluster.
    Ground,
}

fn news(event: &Event) -> News {
    match event {
        // The job ends later than planned, or takes resources that were free.
        Event::JobNodesReplaced { .. } | Event::JobSuspended { .. } | Event::JobRecalled { .. } => {
            News::Ground
        }
        Event::JobStarted { .. }
        | Event::JobNominated { .. }
        | Event::JobPreempted { .. }
        | Event::CpusReturned { .. }
        | Event::JobResumed { .. }
        | Event::JobEnding { .. } => News::Order,
        // Every start in a reservation that replaces nodes updates it; a start that no longer fits is
        // refused.
        Event::ReservationUpdated { .. } => News::Room,
        // Accounting alone changes.
        Event::HistoryImported { .. } => News::Nothing,
        _ => match event.scope() {
            Scope::Journal | Scope::Node { .. } | Scope::Layout | Scope::Reservation | Scope::Accounts => {
                News::Ground
            }
            // Jobs may change their order, and limits may allow more again.
            Scope::Queue(_) | Scope::Resources(_) | Scope::Usage => News::Room,
            Scope::Progress(_) => News::Nothing,
        },
    }
}
