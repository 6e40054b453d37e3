//! The virtual clock, the virtual nodes, and the one place where a simulation calls the controller and the planner.

mod keep;
mod nodes;
mod over;
mod pause;
mod workload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::event::{Event, What};
use super::fragmentation::{Fewest, Fragmentation};
use super::metrics::{Run, Summary, Tally};
use super::names::Names;
use super::record::Record;
use super::truth::Truth;
use crate::cluster::Cluster;
use crate::controller::command::Report;
use crate::controller::{self, Input, Reject};
use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::config::Policy;
use crate::model::job::JobSpec;
use crate::sched::Planner;
use crate::sched::plan::{Plan, Waiting};
use crate::text::exit::ExitCode;
use crate::text::time::Time;

use over::Over;
use pause::Pause;

/// A simulation has one controller, which is never restarted.
const EPOCH: u64 = 1;

/// Jobs that are over by the time finished ones are forgotten: what the controller forgets at once.
const FORGET_AT_ONCE: u64 = 1_000;

/// How often in a row usage may be rolled while nothing else happens before a simulation is over.
const ROLLS: u32 = 100_000;

/// How often windows of reservations may come and go while nothing runs before a simulation is over.
const VAIN: u32 = 256;

/// When the planner looks at the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassMode {
    /// Once for each distinct time.
    #[default]
    Timestamp,
    /// After every single event.
    Event,
}

/// What a workload does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// An operator takes it out of service; its jobs end.
    Down,
    /// An operator wants no new work on it.
    Drain,
    /// Back in service.
    Resume,
    /// It dies, with what it runs.
    Fail,
}

/// How things are when everything that happens at a time has happened.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// When.
    pub now: Time,
    /// CPUs that are held.
    pub busy_cpus: u64,
    /// CPUs there are.
    pub cpus: u64,
    /// Jobs that wait.
    pub pending: usize,
    /// Jobs that are over.
    pub ended: u64,
    /// Fragmentation of the default partition's fabric, if it has one.
    pub fragmentation: Option<&'a Fragmentation>,
}

/// What somebody who follows a simulation is told. Nothing that is done here changes it.
pub trait Watch {
    /// Whether [`Watch::event`] is to be called; making events takes time. Of jobs that wait it is told only where
    /// [`Watch::wants_reasons`] says so as well.
    fn wants_events(&self) -> bool {
        false
    }

    /// Whether anybody will ask why jobs wait: finding that out takes time.
    fn wants_reasons(&self) -> bool {
        true
    }

    /// Something happened. Events come in the order in which they are written down.
    fn event(&mut self, _event: &Event) {}

    /// A pass over a queue begins.
    fn pass_begins(&mut self) {}

    /// The pass is over.
    fn pass_ends(&mut self) {}

    /// A run goes on without a node that failed, or with another in its place; it had `run.alloc` until now.
    fn nodes_changed(&mut self, _cluster: &Cluster, _run: &Run) {}

    /// A run is over; `cluster` is as it is just then.
    fn run_ended(&mut self, _cluster: &Cluster, _run: &Run) {}

    /// Everything that happens at a time has happened.
    fn moment(&mut self, _moment: &Moment<'_>) {}
}

/// A run under way.
#[derive(Debug)]
struct Live {
    /// Which of all starts it was.
    order: u64,
    started: Time,
    alloc: Arc<Alloc>,
    /// Since when it has these nodes, and seconds that it ran before.
    since: Time,
    before: u64,
    /// CPUs of them.
    cpus: u64,
    /// What jobs needed at least on the fabric that they were chosen on.
    fewest: Option<Arc<Fewest>>,
    /// When it ends by itself; `None` for never.
    ends: Option<Time>,
    pause: Pause,
}

/// A cluster under a virtual clock.
#[derive(Debug)]
pub struct World<W> {
    now: Time,
    mode: PassMode,
    cluster: Cluster,
    planner: Planner,
    truth: Truth,
    record: Record,
    tally: Tally,
    fragmentation: Option<Fragmentation>,
    /// By layer, what a job of the default partition needs at least.
    fewest: Option<Arc<Fewest>>,
    live: BTreeMap<JobId, Live>,
    /// Runs that end by themselves: when, in the order they started.
    ends: BTreeMap<(Time, u64), JobId>,
    /// Runs that ended exactly when planned and whose turn has not come: by the order they started, whose, and how
    /// long they were.
    early: BTreeMap<u64, (Arc<JobSpec>, u64)>,
    /// When such runs were last looked for.
    released: Option<Time>,
    /// Whether ends are kept from the predictor for now.
    discreet: bool,
    starts: u64,
    ended: u64,
    busy_cpus: u64,
    cpus: u64,
    names: Names,
    numbers: BTreeMap<Arc<str>, JobId>,
    dead: BTreeSet<NodeId>,
    registered: BTreeSet<NodeId>,
    reports: VecDeque<(NodeId, Attempt, Report)>,
    said: u64,
    /// What the last pass said of jobs that wait.
    waiting: Vec<Waiting>,
    /// When a plan would turn out differently although nothing happens.
    replan: Option<Time>,
    /// How often in a row nothing ran after something happened, while reservations come again.
    vain: u32,
    /// The entry after which only usage has been rolled, and how often.
    rolls: (u64, u32),
    /// Whether something happened since the last pass.
    stirred: bool,
    /// Jobs that are ending and will wait again.
    returning: BTreeSet<JobId>,
    /// How jobs ended, for those that are to wait for them after the controller has forgotten them.
    over: Over,
    /// How many jobs were over when finished ones were forgotten last; `None` where all are kept.
    forgotten: Option<u64>,
    watch: W,
}

impl<W: Watch> World<W> {
    /// A cluster with all its nodes up and nothing to do, at time 0.
    ///
    /// # Errors
    /// A policy that cannot be put in force.
    pub fn new(policy: Arc<Policy>, mode: PassMode, watch: W) -> Result<Self, Reject> {
        let cluster = Cluster::default();
        let mut world = Self {
            now: Time::ZERO,
            mode,
            planner: Planner::new(&cluster),
            cluster,
            truth: Truth::default(),
            record: Record::default(),
            tally: Tally::default(),
            fragmentation: None,
            fewest: None,
            live: BTreeMap::new(),
            ends: BTreeMap::new(),
            early: BTreeMap::new(),
            released: None,
            discreet: false,
            starts: 0,
            ended: 0,
            busy_cpus: 0,
            cpus: 0,
            names: Names::default(),
            numbers: BTreeMap::new(),
            dead: BTreeSet::new(),
            registered: BTreeSet::new(),
            reports: VecDeque::new(),
            said: 0,
            waiting: Vec::new(),
            replan: None,
            vain: 0,
            rolls: (0, 0),
            stirred: false,
            returning: BTreeSet::new(),
            over: Over::default(),
            forgotten: None,
            watch,
        };
        world.put_in_force(policy)?;
        Ok(world)
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The cluster as it is.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// From now on finished jobs are forgotten when a controller forgets them, and names of new ones at once. Otherwise all are
    /// kept, because a workload may ask for any of them.
    pub fn forget_finished(&mut self) {
        self.forgotten.get_or_insert(self.ended);
    }

    /// Who follows the simulation.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

    /// The number of a job by its name in the workload, once it was accepted.
    pub fn number(&self, name: &str) -> Option<JobId> {
        self.numbers.get(name).copied()
    }

    /// What the last pass said of jobs that waited then.
    pub fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }

    /// The workload's name of a job, and of a task of an array that of the array with its index.
    fn name(&self, job: JobId) -> Arc<str> {
        self.names.of(&self.cluster, job)
    }

    /// When something will happen by itself next; `None` if nothing will: reservations that come again for ever without
    /// anybody's starting are nothing.
    pub fn next(&self) -> Option<Time> {
        if self.vain > VAIN || self.rolls.1 > ROLLS {
            return None;
        }
        let end = self.ends.first_key_value().map(|((at, _), _)| *at);
        let due = self.due();
        [end, due, self.replan].into_iter().flatten().min()
    }

    /// Moves the clock on to `to`, which is not after [`World::next`].
    pub fn advance(&mut self, to: Time) {
        self.tally.pass_time(to, self.fragmentation.as_ref());
        self.now = self.now.max(to);
    }

    /// Lets everything happen that is due by now, and plans.
    pub fn settle(&mut self) {
        loop {
            self.end_runs();
            if self.due().is_some_and(|due| due <= self.now) {
                // Timers are never refused.
                let _ = self.input(Input::Wakeup { due: self.now });
                self.happened();
            }
            if self.mode == PassMode::Timestamp
                || self.stirred
                || self.replan.is_some_and(|at| at <= self.now)
            {
                self.pass();
            }
            if self.next().is_none_or(|next| next > self.now) {
                break;
            }
        }
        self.forget();
        // An entry at a time is a roll and nothing else.
        let (seen, rolls) = self.rolls;
        let seq = self.cluster.seq();
        let rolled = seq == seen + 1 && self.cluster.usage().rolled() == self.now;
        self.rolls = (seq, if rolled { rolls + 1 } else { 0 });
        let waits =
            self.live.is_empty() && self.cluster.reservations().any(|reservation| reservation.repeats());
        self.vain = if waits { self.vain + 1 } else { 0 };
        self.flush();
        let moment = Moment {
            now: self.now,
            busy_cpus: self.busy_cpus,
            cpus: self.cpus,
            pending: self.cluster.jobs().pending_count(),
            ended: self.ended + self.tally.rejected,
            fragmentation: self.fragmentation.as_ref(),
        };
        self.watch.moment(&moment);
    }

    /// The numbers, as far as the simulation has come.
    pub fn summary(&self) -> Summary {
        let start = |live: &Live| live.started + live.paused(self.now) + live.before;
        self.tally.summary(self.live.values().map(|live| (live.cpus, start(live))))
    }

    /// Ends what ends by itself by now, in the order of the starts.
    fn end_runs(&mut self) {
        self.release_planned();
        loop {
            let due = self.ends.first_key_value().filter(|((at, _), _)| *at <= self.now);
            let due = due.map(|((_, order), job)| (*order, *job));
            let early = self.early.first_key_value().map(|(order, _)| *order);
            match (due, early) {
                (Some((order, job)), early) if early.is_none_or(|early| order < early) => self.end_run(job),
                (_, Some(_)) => {
                    if let Some((_, (spec, ran))) = self.early.pop_first() {
                        self.truth.finished(&spec, ran);
                    }
                }
                (_, None) => return,
            }
            self.happened();
        }
    }

    /// With a pass after every event, what is planned to end now counts as free for all that happens now, also for
    /// what happens before the end has its turn. Runs that end exactly when planned are therefore ended here; the
    /// predictor learns of them when it is their turn, and the pass that follows them comes then.
    fn release_planned(&mut self) {
        if self.mode != PassMode::Event || self.released == Some(self.now) {
            return;
        }
        self.released = Some(self.now);
        let due = self.ends.range(..=(self.now, u64::MAX)).map(|((_, order), job)| (*order, *job));
        let planned: Vec<(u64, JobId)> = due.filter(|(_, job)| self.is_planned_to_end(*job)).collect();
        for (order, id) in planned {
            let Some((job, live)) = self.cluster.job(id).zip(self.live.get(&id)) else { continue };
            let spec = Arc::clone(&job.spec);
            self.early.insert(order, (spec, live.ran(self.now)));
            self.discreet = true;
            self.end_run(id);
            self.discreet = false;
        }
    }

    /// The batch script of a run ends.
    fn end_run(&mut self, id: JobId) {
        let Some(live) = self.live.get(&id) else { return };
        let attempt = self.cluster.job(id).map(|job| job.attempt());
        let Some((node, attempt)) = live.alloc.batch_node().zip(attempt) else { return };
        let report = Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: false, done: false };
        self.reports.push_back((node, attempt, report));
        self.listen();
    }

    /// Lets the controller forget finished jobs, if there are many.
    fn forget(&mut self) {
        if self.forgotten.is_some_and(|forgotten| self.ended.saturating_sub(forgotten) >= FORGET_AT_ONCE) {
            self.forgotten = Some(self.ended);
            // Timers are never refused, and nothing else is due.
            let _ = self.input(Input::Wakeup { due: self.now });
        }
    }

    /// When the controller's timers are due. That finished jobs are forgotten is nothing that happens: it is done
    /// along with other things.
    fn due(&self) -> Option<Time> {
        controller::timers::next_due(&self.cluster).filter(|at| !at.is_never())
    }

    /// One thing has happened: what stands after it depends on the mode.
    fn happened(&mut self) {
        self.stirred = true;
        if self.mode == PassMode::Event {
            self.pass();
        }
    }

    /// The one call of the planner, and its starts at once. Where nobody asks for reasons, only starts are looked for.
    fn pass(&mut self) {
        self.stirred = false;
        self.replan = None;
        self.waiting.clear();
        while self.cluster.jobs().pending_count() > 0 {
            self.watch.pass_begins();
            let mut plan = if self.watch.wants_reasons() {
                self.planner.plan(&self.cluster, self.now, &self.truth)
            } else {
                self.planner.starts(&self.cluster, self.now, &self.truth)
            };
            self.watch.pass_ends();
            let made_room = self.follow(&mut plan);
            if !made_room {
                self.tell_waiting(&plan);
            }
            self.waiting = plan.waiting;
            if !made_room {
                break;
            }
        }
        self.flush();
    }

    /// Carries out a plan. Says whether anybody was told to make way: those who have gone at once leave room at the same
    /// time, and others may have to be told as well.
    fn follow(&mut self, plan: &mut Plan) -> bool {
        for start in std::mem::take(&mut plan.starts) {
            let job = start.attempt.job;
            let answer = self.input(Input::Start(Box::new(start)));
            debug_assert!(answer.is_ok(), "nothing has changed since job {job} was planned: {answer:?}");
        }
        let mut made_room = false;
        for preemption in std::mem::take(&mut plan.preemptions) {
            let job = preemption.start.attempt.job;
            let answer = self.input(Input::Preempt(Box::new(preemption)));
            debug_assert!(
                answer.is_ok(),
                "nothing has changed since room was found for job {job}: {answer:?}"
            );
            made_room |= answer.is_ok();
        }
        if let Some((job, start)) = plan.promise {
            // A promise that was made before stands.
            let _ = self.input(Input::Promise { job, start });
        }
        if self.cluster.jobs().pending_count() > 0 {
            self.replan = self.planner.next_event_time(&self.cluster, self.now);
        }
        made_room
    }

    /// Tells what a pass said of jobs that wait.
    fn tell_waiting(&mut self, plan: &Plan) {
        if self.watch.wants_events() && self.watch.wants_reasons() {
            let (names, cluster) = (&self.names, &self.cluster);
            self.record.waiting(cluster, plan, |job| names.of(cluster, job));
        }
    }

    /// Tells what has been kept.
    fn flush(&mut self) {
        let events: Vec<Event> = self.record.take(self.now).collect();
        events.iter().for_each(|event| self.watch.event(event));
    }

    fn tell(&mut self, job: JobId, what: impl FnOnce() -> What) {
        if self.watch.wants_events() {
            self.record.add(job, what());
        }
    }
}
