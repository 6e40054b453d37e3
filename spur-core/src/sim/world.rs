//! The virtual clock, the virtual nodes, and the one place where a simulation calls the controller and the planner.

mod pause;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::event::{Event, What};
use super::foresight::Foresight;
use super::fragmentation::{Fewest, Fragmentation};
use super::metrics::{Run, Summary, Tally};
use super::names::Names;
use super::record::{self, Record};
use super::truth::Truth;
use crate::cluster::{self, Cluster};
use crate::controller::command::{NodeChange, NodeStateChange, Report, Submission};
use crate::controller::{self, Command, Effect, Input, Reject, Reply};
use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::caller::{Caller, Owner};
use crate::model::config::Policy;
use crate::model::job::JobSpec;
use crate::model::node::{NodeShape, Registration};
use crate::model::phase::Then;
use crate::sched::plan::{Plan, Waiting};
use crate::sched::{self, Planner};
use crate::text::exit::ExitCode;
use crate::text::jobid::JobRef;
use crate::text::time::Time;

use pause::Pause;

/// A simulation has one controller, which is never restarted.
const EPOCH: u64 = 1;

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
    fewest: Option<Fewest>,
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
    /// Whether something happened since the last pass.
    stirred: bool,
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
            stirred: false,
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
        if self.vain > VAIN {
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

    // ---- what a workload does

    /// A user submits a job that would run for `run_time` seconds (`None`: for ever). Whether it is refused is told
    /// as an event.
    pub fn submit(
        &mut self,
        name: Arc<str>,
        owner: Arc<Owner>,
        submission: Submission,
        run_time: Option<u64>,
    ) {
        self.vain = 0;
        self.release_planned();
        let tasks = submission.spec.array.as_ref().map_or(1, |array| array.tasks.len());
        self.tally.submitted(self.now);
        let job = self.cluster.next_job();
        for job in (job.0..).take(submission.rest.len() + 1).map(JobId) {
            self.truth.learn(job, run_time);
            self.names.set(job, &name);
        }
        let command = Command::Submit(Box::new(submission));
        match self.command(Caller { owner, operator: false }, command) {
            Ok(Reply::Submitted { job, warnings }) => {
                self.numbers.insert(Arc::clone(&name), job);
                (1..tasks).for_each(|_| self.tally.submitted(self.now));
                self.accepted(&name, job, &warnings);
            }
            Ok(_) => {}
            Err(reject) => self.refused(name, reject.to_string()),
        }
        self.happened();
    }

    /// Tells of a job that was accepted; of a het job for each component.
    fn accepted(&mut self, name: &Arc<str>, leader: JobId, warnings: &[String]) {
        for job in self.cluster.jobs().components(leader) {
            if let Some(het) = self.cluster.job(job).and_then(|job| job.spec.het.as_deref()) {
                self.record.set_component(job, het.offset);
            }
            let warnings = if job == leader { warnings.to_vec() } else { Vec::new() };
            self.tell(job, || What::Submit { job: Arc::clone(name), jobid: job.0, warnings });
        }
    }

    /// A job that does not even become a request.
    pub fn refuse(&mut self, name: Arc<str>, error: String) {
        self.tally.submitted(self.now);
        self.refused(name, error);
    }

    fn refused(&mut self, name: Arc<str>, error: String) {
        self.tally.rejected += 1;
        let next = self.cluster.next_job();
        self.tell(next, || What::Reject { job: name, error });
    }

    /// Tells when and where a job would start that is not submitted.
    pub fn test(&mut self, name: Arc<str>, owner: Arc<Owner>, submission: Submission) {
        let next = self.cluster.next_job();
        if self.watch.wants_events() {
            let what = self.foresee(owner, submission).test(name);
            self.record.add(next, what);
        }
        self.happened();
    }

    /// When and where a job would start if it were submitted now and every job that waits had a reservation.
    pub fn foresee(&self, owner: Arc<Owner>, submission: Submission) -> Foresight {
        let mut trial = self.cluster.clone();
        let job = trial.next_job();
        let caller = Caller { owner, operator: false };
        let command = Command::Submit(Box::new(submission));
        let input = Input::Command { caller, request: None, command };
        let warnings = match controller::handle(&mut trial, EPOCH, self.now, input).answer {
            Ok(Reply::Submitted { warnings, .. }) => warnings,
            Ok(_) => Vec::new(),
            Err(reject) => return Foresight::refused(&reject),
        };
        let plan = sched::foretell(&trial, self.now, &self.truth, job);
        Foresight { warnings, ..Foresight::of(&trial, &plan, self.now, job) }
    }

    /// An operator cancels a job, an array or some of its tasks.
    ///
    /// # Errors
    /// A job that is over.
    pub fn cancel(&mut self, job: JobRef<JobId>) -> Result<(), Reject> {
        let answer = self.operate(Command::Cancel { jobs: vec![job] });
        match answer? {
            Reply::Jobs { mut problems, .. } => problems.pop().map_or(Ok(()), |(_, reject)| Err(reject)),
            _ => Ok(()),
        }
    }

    /// Something happens to nodes.
    ///
    /// # Errors
    /// A name that the configuration does not know.
    pub fn set_nodes(&mut self, names: &[Arc<str>], state: NodeState) -> Result<(), Reject> {
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let node = self.cluster.node_named(name).filter(|node| node.configured);
            nodes.push(node.map(|node| node.id).ok_or_else(|| Reject::InvalidNodeName(name.to_string()))?);
        }
        match state {
            NodeState::Fail => {
                for node in nodes {
                    if self.dead.insert(node) {
                        // A node that is out of service already has nothing more to lose.
                        let _ = self.input(Input::Silent { node });
                    }
                }
                self.happened();
                return Ok(());
            }
            NodeState::Resume => {
                for node in nodes {
                    if self.dead.remove(&node) {
                        self.register(node);
                    }
                }
            }
            NodeState::Down | NodeState::Drain => {}
        }
        let state = match state {
            NodeState::Down => NodeStateChange::Down,
            NodeState::Drain => NodeStateChange::Drain,
            NodeState::Resume | NodeState::Fail => NodeStateChange::Resume,
        };
        let change =
            NodeChange { state: Some(state), reason: Some("workload".into()), ..NodeChange::default() };
        self.operate(Command::UpdateNodes { nodes: names.to_vec(), change }).map(|_| ())
    }

    /// An operator puts another configuration in force.
    ///
    /// # Errors
    /// One that cannot be put in force.
    pub fn reconfigure(&mut self, policy: Arc<Policy>) -> Result<(), Reject> {
        self.put_in_force(policy)?;
        self.happened();
        Ok(())
    }

    /// An operator's command goes to the controller.
    ///
    /// # Errors
    /// What the controller refuses.
    pub fn operate(&mut self, command: Command) -> Result<Reply, Reject> {
        let reply = self.command(operator_caller(), command)?;
        self.happened();
        Ok(reply)
    }

    /// Tells of a command that was run.
    pub fn commanded(&mut self, argv: Vec<String>, status: u8, stdout: String, stderr: String) {
        self.tell(JobId(0), || What::Command { argv, status, stdout, stderr });
        self.happened();
    }

    /// Lets everything happen that is due by now, and plans.
    pub fn settle(&mut self) {
        loop {
            self.end_runs();
            if self.due().is_some_and(|due| due <= self.now) {
                // Timers are never refused.
                let _ = self.input(Input::Wakeup);
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
        self.tally
            .summary(self.live.values().map(|live| (live.alloc.cpus(), live.started + live.paused(self.now))))
    }

    // ---- what happens by itself

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
        let report =
            Report::BatchEnded { exit: ExitCode::SUCCESS, out_of_memory: false, lost: false, done: false };
        self.reports.push_back((node, attempt, report));
        self.listen();
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

    // ---- the controller and its nodes

    fn put_in_force(&mut self, policy: Arc<Policy>) -> Result<(), Reject> {
        self.command(operator_caller(), Command::Reconfigure(policy))?;
        let fresh = |node: &&cluster::Node| node.configured && !self.registered.contains(&node.id);
        let fresh: Vec<NodeId> = self.cluster.nodes().iter().filter(fresh).map(|node| node.id).collect();
        for node in fresh {
            self.registered.insert(node);
            self.register(node);
        }
        let configured = self.cluster.nodes().iter().filter(|node| node.configured);
        self.cpus = configured.map(|node| u64::from(node.shape.cpus)).sum();
        self.tally.set_cpus(self.cpus);
        let partition = self.cluster.default_partition().or_else(|| self.cluster.partitions().first());
        let fabric = partition.and_then(|partition| self.cluster.fabric_of(partition)).cloned();
        self.fewest = fabric.as_ref().map(|fabric| Fewest::new(fabric));
        self.fragmentation = fabric.map(|fabric| Fragmentation::new(fabric, &self.cluster));
        Ok(())
    }

    /// A node says that it is there, with what the configuration says it has, and nothing left of earlier jobs.
    fn register(&mut self, id: NodeId) {
        let Some(node) = self.cluster.node(id) else { return };
        self.said += 1;
        let said = &node.config.shape;
        let registration = Registration {
            shape: NodeShape { cpus: said.cpus.max(1), ..said.clone() },
            boot_id: format!("boot {}", self.said).into(),
            spool_id: "spool".into(),
            address: node.name().as_ref().into(),
            hostname: Arc::clone(node.name()),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: "virtual".into(),
            os: "virtual".into(),
            booted: self.now,
            started: self.now,
        };
        let name = Arc::clone(node.name());
        let registration = Arc::new(registration);
        let answer = self.input(Input::Registered { name, registration, held: Vec::new() });
        debug_assert!(answer.is_ok(), "a configured node may register");
    }

    fn command(&mut self, caller: Caller, command: Command) -> Result<Reply, Reject> {
        self.input(Input::Command { caller, request: None, command })
    }

    /// Gives the controller an input, and then whatever nodes report in consequence.
    fn input(&mut self, input: Input) -> Result<Reply, Reject> {
        let answer = self.handle(input);
        self.listen();
        answer
    }

    fn listen(&mut self) {
        while let Some((node, attempt, report)) = self.reports.pop_front() {
            self.said += 1;
            // What is reported of an attempt that is over changes nothing.
            let _ = self.handle(Input::Report { node, id: self.said, attempt, report });
        }
    }

    /// The one call of the controller.
    fn handle(&mut self, input: Input) -> Result<Reply, Reject> {
        let outcome = controller::handle(&mut self.cluster, EPOCH, self.now, input);
        for entry in &outcome.entries {
            self.note(&entry.event);
        }
        for effect in outcome.effects {
            self.obey(&effect);
        }
        outcome.answer
    }

    /// A node does at once what it is told, unless it is dead.
    fn obey(&mut self, effect: &Effect) {
        match effect {
            Effect::Launch { node, attempt } if !self.dead.contains(node) => {
                let run_time = self.truth.run_time(attempt.job);
                if let Some(live) = self.live.get_mut(&attempt.job) {
                    live.ends = run_time.map(|seconds| live.started + seconds);
                    self.ends.extend(live.ends.map(|at| ((at, live.order), attempt.job)));
                }
            }
            Effect::Terminate { node, attempt, .. } if !self.dead.contains(node) => {
                self.reports.push_back((*node, *attempt, Report::NodeDone { epilog_error: None }));
            }
            Effect::Launch { .. }
            | Effect::Terminate { .. }
            | Effect::Suspend { .. }
            | Effect::Signal { .. }
            | Effect::Acknowledge { .. }
            | Effect::Forget { .. }
            | Effect::StepsChanged { .. } => {}
        }
    }

    /// Keeps up with an event of the cluster.
    fn note(&mut self, event: &cluster::Event) {
        use cluster::Event as E;
        if !self.discreet {
            self.truth.note(&self.cluster, event);
        }
        self.planner.note(&self.cluster, event);
        match event {
            E::JobStarted { job, alloc, split: _ } => self.started(*job, alloc),
            E::JobEnding { job, outcome, then, .. } => {
                self.run_ended(*job, outcome.state.name());
                if matches!(then, Then::Requeue { .. }) {
                    self.record.forget(*job);
                }
            }
            E::JobSuspended { job, .. } => self.suspended(*job),
            E::JobResumed { job } => self.resumed(*job),
            E::JobPreempted { job, by, then, .. } => {
                let mode = match then {
                    Some(Then::End) => "cancel",
                    Some(Then::Requeue { .. }) => "requeue",
                    None => "suspend",
                };
                let (name, by) = (self.name(*job), self.name(*by));
                self.tell(*job, || What::Preempt { job: name, by, mode });
            }
            E::JobEnded { job, outcome } => {
                let follows = self.cluster.job(*job).is_some_and(|job| job.spec.is_follower());
                let tasks = self.cluster.job(*job).map_or(1, |job| job.task_count() as u64);
                self.ended += if follows { 0 } else { tasks };
                let ran = self.cluster.job(*job).is_some_and(|job| job.phase.started().is_some());
                if !ran {
                    self.ended_waiting(*job, outcome.state.name());
                }
                self.record.forget(*job);
            }
            E::NodeReleased { node, .. }
            | E::NodeRegistered { node, .. }
            | E::NodeCleaned { node, .. }
            | E::NodeDowned { node, .. }
            | E::NodeDrained { node, .. }
            | E::NodeResumed { node } => self.look(*node),
            _ => {}
        }
    }

    /// A job is over that never ran; of an array each of the tasks that waited.
    fn ended_waiting(&mut self, id: JobId, state: &'static str) {
        if self.watch.wants_events() {
            let names = self.names.each(&self.cluster, id).into_iter();
            names.for_each(|job| self.record.add(id, What::End { job, state }));
        }
    }

    fn look(&mut self, node: NodeId) {
        if let Some(fragmentation) = &mut self.fragmentation {
            fragmentation.look(&self.cluster, node);
        }
    }

    fn started(&mut self, id: JobId, alloc: &Arc<Alloc>) {
        for part in &alloc.nodes {
            self.look(part.node);
        }
        self.busy_cpus += alloc.cpus();
        self.starts += 1;
        let (order, held, pause) = (self.starts, Arc::clone(alloc), Pause::default());
        let live = Live { order, started: self.now, alloc: held, ends: None, pause };
        self.live.insert(id, live);
        let Some(job) = self.cluster.job(id) else { return };
        if !job.spec.is_follower() {
            self.tally.started(id.0, self.now.since(job.submitted));
        }
        if self.watch.wants_events() {
            self.record.forget(id);
            self.record.add(id, record::start(&self.cluster, self.name(id), job, alloc));
        }
    }

    fn run_ended(&mut self, id: JobId, state: &'static str) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(at) = live.ends {
            self.ends.remove(&(at, live.order));
        }
        self.busy_cpus -= live.busy_cpus();
        let job = self.name(id);
        let submitted = self.cluster.job(id).map_or(live.started, |job| job.submitted);
        let run = Run {
            job: Arc::clone(&job),
            submitted,
            started: live.started,
            ended: self.now,
            suspended: live.paused(self.now),
            alloc: live.alloc,
        };
        let counts = self.cluster.job(id).is_none_or(|job| !job.spec.is_follower());
        self.tally.ended(counts.then_some(id.0), &run, self.fewest.as_ref());
        self.watch.run_ended(&self.cluster, &run);
        self.tell(id, || What::End { job, state });
    }

    fn tell(&mut self, job: JobId, what: impl FnOnce() -> What) {
        if self.watch.wants_events() {
            self.record.add(job, what());
        }
    }
}

fn operator_caller() -> Caller {
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    Caller { owner: Arc::new(owner), operator: true }
}
