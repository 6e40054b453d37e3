//! The virtual clock, the virtual nodes, and the only calls of the controller and the planner in a
//! simulation.

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

/// Epoch of the controller. A simulation has one controller, which is never restarted.
const EPOCH: u64 = 1;

/// Number of ended jobs after which finished jobs are forgotten; equal to the number that the controller
/// forgets at once.
const FORGET_AT_ONCE: u64 = 1_000;

/// Most consecutive roll-ups of usage without any other event, before a simulation is over.
const ROLLS: u32 = 100_000;

/// Most consecutive windows of reservations without a running job, before a simulation is over.
const VAIN: u32 = 256;

/// Times at which the planner examines the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassMode {
    /// Once for each distinct time.
    #[default]
    Timestamp,
    /// After every single event.
    Event,
}

/// Change of a node's state by the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// An operator sets the node down; its jobs end.
    Down,
    /// An operator drains the node.
    Drain,
    /// The node returns to service.
    Resume,
    /// The node fails, with everything that runs on it.
    Fail,
}

/// State of the simulation after all events of one time.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Virtual time of this state.
    pub now: Time,
    /// Number of allocated CPUs.
    pub busy_cpus: u64,
    /// Number of CPUs in the cluster.
    pub cpus: u64,
    /// Number of pending jobs.
    pub pending: usize,
    /// Number of jobs that ended.
    pub ended: u64,
    /// Fragmentation of the default partition's fabric; `None` if the partition has no fabric.
    pub fragmentation: Option<&'a Fragmentation>,
}

/// Observer of a simulation. Nothing that it does changes the simulation.
pub trait Watch {
    /// True if [`Watch::event`] should be called. Making events takes time. Events of pending jobs also need
    /// [`Watch::wants_reasons`].
    fn wants_events(&self) -> bool {
        false
    }

    /// True if the reasons of pending jobs are needed. Finding them takes time.
    fn wants_reasons(&self) -> bool {
        true
    }

    /// Receives an event. Events arrive in the order of the output.
    fn event(&mut self, _event: &Event) {}

    /// Receives the beginning of a scheduling pass.
    fn pass_begins(&mut self) {}

    /// Receives the end of a scheduling pass.
    fn pass_ends(&mut self) {}

    /// Receives a run that lost a failed node or got a replacement. The run had `run.alloc` until this time.
    fn nodes_changed(&mut self, _cluster: &Cluster, _run: &Run) {}

    /// Receives a run that ended, with the cluster as it is at that time.
    fn run_ended(&mut self, _cluster: &Cluster, _run: &Run) {}

    /// Receives the state after all events of one time.
    fn moment(&mut self, _moment: &Moment<'_>) {}
}

/// A run in progress.
#[derive(Debug)]
struct Live {
    /// Number of this start in the order of all starts.
    order: u64,
    started: Time,
    alloc: Arc<Alloc>,
    /// Time from which the run has its nodes. `before` counts the seconds it ran before that time.
    since: Time,
    before: u64,
    /// Number of CPUs on its nodes.
    cpus: u64,
    /// Fewest domains that jobs need on the fabric from which the nodes were chosen.
    fewest: Option<Arc<Fewest>>,
    /// Time at which the run ends by itself; `None` for never.
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
    /// Fewest domains that a job of the default partition needs, by layer.
    fewest: Option<Arc<Fewest>>,
    live: BTreeMap<JobId, Live>,
    /// Jobs whose runs end by themselves, by time and then in the order they started.
    ends: BTreeMap<(Time, u64), JobId>,
    /// Runs that were ended exactly when planned, before their turn: specification and seconds run, by the
    /// order they started.
    early: BTreeMap<u64, (Arc<JobSpec>, u64)>,
    /// Time of the last search for runs that end exactly when planned.
    released: Option<Time>,
    /// True while ends are withheld from the predictor.
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
    /// Reasons of pending jobs from the last pass.
    waiting: Vec<Waiting>,
    /// Earliest time at which a plan could change without an event; `None` for never.
    replan: Option<Time>,
    /// Number of consecutive times at which nothing ran while reservations repeat.
    vain: u32,
    /// Journal entry after which only usage was rolled up, and the number of consecutive roll-ups.
    rolls: (u64, u32),
    /// True if an event happened since the last pass.
    stirred: bool,
    /// Jobs that are ending and will be pending again.
    returning: BTreeSet<JobId>,
    /// Results of ended jobs, kept for dependencies after the controller has forgotten the jobs.
    over: Over,
    /// Number of ended jobs when finished ones were forgotten last; `None` if all are kept.
    forgotten: Option<u64>,
    watch: W,
}

impl<W: Watch> World<W> {
    /// Builds a cluster at time 0, with all nodes up and no jobs.
    ///
    /// # Errors
    /// [`Reject`] for a policy that cannot be put in force.
    pub fn new(policy: Arc<Policy>, mode: PassMode, watch: W) -> Result<Self, Reject> {
        let cluster = Cluster::of_newest_level();
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

    /// The cluster in its present state.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Forgets finished jobs from this time on as a controller does, and no longer records the names of new
    /// ones.
    ///
    /// Otherwise all are kept, because a workload may ask for any of them.
    pub fn forget_finished(&mut self) {
        self.forgotten.get_or_insert(self.ended);
    }

    /// The observer of the simulation.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

    /// Number of an accepted job by its name in the workload; `None` for any other name.
    pub fn number(&self, name: &str) -> Option<JobId> {
        self.numbers.get(name).copied()
    }

    /// Reasons of the jobs that were pending at the last pass.
    pub fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }

    /// Workload name of a job. A task of an array is named by the array's name and the task's index.
    fn name(&self, job: JobId) -> Arc<str> {
        self.names.of(&self.cluster, job)
    }

    /// Time of the next event that needs no further input; `None` if there is none. Reservations that repeat
    /// for ever without a start do not count.
    pub fn next(&self) -> Option<Time> {
        if self.vain > VAIN || self.rolls.1 > ROLLS {
            return None;
        }
        let end = self.ends.first_key_value().map(|((at, _), _)| *at);
        let due = self.due();
        [end, due, self.replan].into_iter().flatten().min()
    }

    /// Advances the clock to `to`, which is not after [`World::next`].
    pub fn advance(&mut self, to: Time) {
        self.tally.pass_time(to, self.fragmentation.as_ref());
        self.now = self.now.max(to);
    }

    /// Handles all events that are due at the present time, and plans.
    pub fn settle(&mut self) {
        loop {
            self.end_runs();
            if self.due().is_some_and(|due| due <= self.now) {
                // The controller never refuses a timer.
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
        // A time with one journal entry, which is a roll-up, had no other event.
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

    /// The metrics of the simulation up to the present time.
    pub fn summary(&self) -> Summary {
        let start = |live: &Live| live.started + live.paused(self.now) + live.before;
        self.tally.summary(self.live.values().map(|live| (live.cpus, start(live))))
    }

    /// Ends the runs that end by themselves at the present time, in the order of their starts.
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

    /// Ends the runs that end exactly when planned.
    ///
    /// With a pass after every event, resources that are planned to become free at this time count as free
    /// for all events of this time. These runs are therefore ended first. The predictor learns of them in
    /// their turn, and the pass that follows them comes then.
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

    /// Ends the batch script of a run.
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
            // The controller never refuses a timer, and no other timer is due.
            let _ = self.input(Input::Wakeup { due: self.now });
        }
    }

    /// Time at which the controller's timers are due; `None` for never.
    ///
    /// Forgetting finished jobs is no event of its own, and is done together with other events.
    fn due(&self) -> Option<Time> {
        controller::timers::next_due(&self.cluster).filter(|at| !at.is_never())
    }

    /// Handles the end of an event; in [`PassMode::Event`], a pass follows.
    fn happened(&mut self) {
        self.stirred = true;
        if self.mode == PassMode::Event {
            self.pass();
        }
    }

    /// Makes a scheduling pass: the only call of the planner, with its starts carried out immediately.
    ///
    /// If no reasons are needed, the planner looks only for starts.
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

    /// Carries out a plan and returns true if a job was preempted.
    ///
    /// A preempted job may leave its nodes at the same time, after which another pass may preempt more jobs.
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
            // A promise made earlier remains valid.
            let _ = self.input(Input::Promise { job, start });
        }
        if self.cluster.jobs().pending_count() > 0 {
            self.replan = self.planner.next_event_time(&self.cluster, self.now);
        }
        made_room
    }

    /// Records the reasons that a pass gave for pending jobs.
    fn tell_waiting(&mut self, plan: &Plan) {
        if self.watch.wants_events() && self.watch.wants_reasons() {
            let (names, cluster) = (&self.names, &self.cluster);
            self.record.waiting(cluster, plan, |job| names.of(cluster, job));
        }
    }

    /// Sends the recorded events to the observer.
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
