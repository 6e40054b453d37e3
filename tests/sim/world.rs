//! The world: a queue of future events, and their effects.

mod limits;
mod submission;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::controller::command::{NodeChange, NodeStateChange, Report, Submission, Unacknowledged};
use spur_core::controller::{Command, Effect, Input, Reply, timers};
use spur_core::id::{Attempt, HistoryId, JobId, NodeId, RequestId};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::Policy;
use spur_core::model::history::Seen;
use spur_core::model::job::JobSpec;
use spur_core::model::node::NodeShape;
use spur_core::text::exit::ExitCode;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_core::text::signal::Signal;
use spur_core::text::time::Time;

use crate::checks;
use crate::controller::Controller;
use crate::disk::Disk;
use crate::ledger::Ledger;
use crate::node::{Deed, Hello, Node, Order};
use crate::planner;
use crate::policy;
use spur_chance::Chance;

/// The time at which faults stop, in milliseconds. The remaining work must then come to an end.
const CALM: u64 = 400_000;
/// The time by which everything must be at rest, in milliseconds; otherwise something waits for ever. It is
/// longer than all tasks of arrays take one after another on two nodes.
const END: u64 = 20_000_000;
/// The silence after which a node is down, in milliseconds.
const TIMEOUT: u64 = 20_000;

/// A future event.
enum Happening {
    Submit { request: u64, first: bool },
    Cancel,
    Meddle,
    SetRight,
    Fault,
    Synced { epoch: u64 },
    StartController,
    Connect { node: usize },
    Hello { session: u64, node: usize, hello: Box<Hello> },
    ToController { session: u64, node: usize, id: u64, attempt: Attempt, report: Report },
    ToNode { session: u64, node: usize, order: Order },
    Exit { node: usize, boot: u32, attempt: Attempt, exit: ExitCode },
    Silence { node: usize, session: u64 },
    Wakeup,
    Plan,
}

pub(crate) struct World {
    chance: Chance,
    now: u64,
    happenings: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<u64, Happening>,
    next: u64,
    pub(crate) disk: Disk,
    controller: Option<Controller>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ledger: Ledger,
    next_session: u64,
    /// The arrival time of the last message for each connection and direction, in milliseconds: the network
    /// keeps their order.
    arrivals: BTreeMap<(u64, bool), u64>,
    outstanding: BTreeMap<u64, ()>,
    wakeup: Option<u64>,
    real_planner: bool,
    /// True if some jobs have several components.
    het: bool,
    /// Number of passes in the queue.
    passes: u64,
    /// The entry that must be committed before the next pass: the last that a proposal led to.
    floor: u64,
    /// True if there is a partition whose jobs preempt the others.
    preempts: bool,
    /// The policy in the controller's file, read at each of its starts.
    policy: Arc<Policy>,
    /// True if some jobs are arrays.
    arrays: bool,
    /// True if operators suspend jobs.
    suspends: bool,
    /// True if there are two leaves, jobs that must be in one, and operators who move nodes into the other
    /// leaf.
    moves: bool,
    /// True if there are two leaves, and nodes report the switches at their links, of which cables are moved.
    pub(crate) reports: bool,
    /// True if jobs have accounts with limits.
    limited: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let (het, preempts, moves) = (seed % 5 == 3, seed % 3 == 1, seed % 7 == 6);
        let limited = !seed.is_multiple_of(3);
        // The simple planner may not find the only way to start several components at once.
        let real_planner = preempts || het || moves || seed.is_multiple_of(8);
        // The real planner leaves nodes in no leaf idle for ever, and jobs of many nodes with them.
        let reports = seed % 7 == 5 && !real_planner;
        let shape = NodeShape {
            sockets: 1,
            cores_per_socket: 4,
            threads_per_core: 1,
            cpus: 4,
            memory_mb: 1000,
            gres: if limited && real_planner { limits::gpus() } else { Vec::new() },
            ..NodeShape::default()
        };
        let count = chance.between(if moves || reports { 4 } else { 2 }, 6);
        let names: Vec<Arc<str>> = (0..count).map(|n| format!("n{n}").into()).collect();
        let node = |(id, name): (u32, &Arc<str>)| Node::new(NodeId(id), Arc::clone(name), shape.clone());
        let mut nodes: Vec<Node> = (0u32..).zip(&names).map(node).collect();
        let mut policy = policy::new(&names, &shape, chance.percent(50));
        if preempts {
            policy::add_tier(&mut policy, &mut chance);
        }
        if preempts && seed.is_multiple_of(2) {
            policy::add_qos(&mut policy);
        }
        if moves {
            policy::add_leaves(&mut policy, &names);
        }
        if reports {
            // The last two nodes are new: the file has them in no leaf.
            let (known, _) = names.split_at(names.len() - 2);
            policy::add_leaves(&mut policy, known);
            let first = policy::halves(known)[0].len();
            for (at, node) in nodes.iter_mut().enumerate() {
                let leaf = if at < known.len() { usize::from(at >= first) } else { at % 2 };
                node.switch = Some(policy::LEAVES[leaf].into());
            }
        }
        if limited {
            limits::enforce(&mut policy, seed);
        }
        policy::limit_cpus(&mut policy, seed);
        let mut world = Self {
            chance,
            now: 1_000_000,
            happenings: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            disk: Disk::default(),
            controller: None,
            nodes,
            ledger: Ledger::default(),
            next_session: 1,
            arrivals: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            wakeup: None,
            real_planner,
            het,
            passes: 0,
            floor: 0,
            preempts,
            policy: Arc::new(policy),
            arrays: seed % 4 < 2,
            suspends: seed % 2 == 1,
            moves,
            reports,
            limited,
        };
        world.begin();
        world
    }

    /// Connects all nodes, and queues the actions of users and the faults.
    fn begin(&mut self) {
        self.start_controller();
        for at in 0..self.nodes.len() {
            self.soon(Happening::Connect { node: at });
        }
        for request in 0..self.chance.between(10, 40) {
            let at = self.chance.below(CALM / 2);
            self.later(at, Happening::Submit { request, first: true });
            self.outstanding.insert(request, ());
        }
        for _ in 0..self.chance.between(4, 24) {
            let at = self.chance.below(CALM);
            self.later(at, Happening::Fault);
            let at = self.chance.below(CALM);
            self.later(at, Happening::Meddle);
        }
        self.later(CALM + 1, Happening::SetRight);
        for _ in 0..self.chance.below(6) {
            let at = self.chance.below(CALM);
            self.later(at, Happening::Cancel);
        }
    }

    pub(crate) fn committed(&self) -> &Cluster {
        &self.controller.as_ref().expect("the controller runs").replica
    }

    pub(crate) fn summary(&self) -> String {
        let ledger = &self.ledger;
        format!(
            "{} jobs, {} launches, {} entries, {} power cuts",
            ledger.acknowledged.len(),
            ledger.launches.len(),
            self.disk.journal.len(),
            ledger.power_cuts
        )
    }

    pub(crate) fn run(&mut self) {
        let start = self.now;
        while let Some(Reverse((at, id))) = self.happenings.pop() {
            assert!(at < start + END, "something waits for ever:\n{:#?}", self.left());
            self.now = at;
            let happening = self.what.remove(&id).expect("each happens once");
            self.happen(happening);
            if at > start + CALM && self.at_rest() {
                break;
            }
        }
        assert!(self.at_rest(), "everything that will happen has, and jobs are left:\n{:#?}", self.left());
        checks::at_rest(self);
    }

    /// True if all jobs have ended and all messages have arrived.
    fn at_rest(&self) -> bool {
        let Some(controller) = &self.controller else { return false };
        let quiet = self.nodes.iter().all(|node| node.session.is_some() && node.is_quiet());
        let over = controller.cluster.jobs().pending_count() == 0
            && controller.cluster.jobs().active().next().is_none();
        let clean = controller.cluster.nodes().iter().all(|node| node.stale.is_empty());
        quiet && over && clean && controller.in_flight.is_empty() && self.outstanding.is_empty()
    }

    /// The reasons that the world is not at rest, a line each.
    fn left(&self) -> Vec<String> {
        let Some(controller) = &self.controller else { return vec!["no controller".to_owned()] };
        let open = controller.cluster.jobs().pending().chain(controller.cluster.jobs().active());
        let mut left: Vec<String> = open.map(|job| format!("job {}: {:?}", job.id, job.phase)).collect();
        for node in &self.nodes {
            if node.session.is_none() || !node.is_quiet() {
                left.push(format!("node {}: session {:?}, {:?}", node.id, node.session, node.unfinished()));
            }
        }
        for node in controller.cluster.nodes().iter().filter(|node| !node.stale.is_empty()) {
            left.push(format!("node {}: stale {:?}", node.id, node.stale));
        }
        left.extend(self.outstanding.keys().map(|request| format!("request {request} is not answered")));
        left.push(format!("{} commits under way", controller.in_flight.len()));
        left
    }

    fn later(&mut self, delay: u64, happening: Happening) {
        self.next += 1;
        self.happenings.push(Reverse((self.now + delay, self.next)));
        self.what.insert(self.next, happening);
    }

    fn soon(&mut self, happening: Happening) {
        let delay = self.chance.between(1, 200);
        self.later(delay, happening);
    }

    fn calm(&self) -> bool {
        self.now > 1_000_000 + CALM
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Submit { request, first } => self.submit(request, first),
            Happening::Cancel => self.cancel(),
            Happening::Meddle => self.meddle(),
            Happening::SetRight => self.set_right(),
            Happening::Fault => self.fault(),
            Happening::Synced { epoch } => self.synced(epoch),
            Happening::StartController => self.start_controller(),
            Happening::Connect { node } => self.connect(node),
            Happening::Hello { session, node, hello } => self.hello(session, node, *hello),
            Happening::ToController { session, node, id, attempt, report } => {
                let node = self.nodes[node].id;
                if self
                    .controller
                    .as_ref()
                    .is_some_and(|running| running.sessions.get(&node) == Some(&session))
                {
                    self.input(Input::Report { node, id, attempt, report });
                }
            }
            Happening::ToNode { session, node, order } => {
                if self.nodes[node].running && self.nodes[node].session == Some(session) {
                    let deeds = self.nodes[node].obey(order);
                    if let Some(running) = &self.controller {
                        checks::apart(&running.replica, &self.nodes[node]);
                    }
                    self.deeds(node, deeds);
                }
            }
            Happening::Exit { node, boot, attempt, exit } => self.exit(node, boot, attempt, exit),
            Happening::Silence { node, session } => {
                let id = self.nodes[node].id;
                let unheard = self.controller.as_ref().is_some_and(|running| {
                    running.sessions.get(&id).is_none_or(|current| *current == session)
                });
                if unheard && self.nodes[node].session != Some(session) {
                    self.input(Input::Silent { nodes: vec![id] });
                }
            }
            Happening::Wakeup => {
                self.wakeup = None;
                self.input(Input::Wakeup { due: Time(i64::try_from(self.now / 1000).expect("small")) });
            }
            Happening::Plan => self.plan(),
        }
    }

    // ---- the controller

    fn start_controller(&mut self) {
        if self.controller.is_some() {
            return;
        }
        let use_snapshot = self.chance.percent(50);
        let cluster = self.disk.recover(use_snapshot);
        checks::sound(&cluster);
        let waiting: Vec<usize> = (0..self.nodes.len()).collect();
        self.controller = Some(Controller::new(cluster));
        self.floor = 0;
        let history = HistoryId(1u128.to_be_bytes());
        self.input(Input::Begin { history, reign: self.now, accounting: (0, JobId(0)) });
        if self.limited {
            self.input(Input::FileQos(self.policy.qos.clone()));
        }
        self.command(operator(), Command::Reconfigure(Arc::clone(&self.policy)), None);
        if self.limited {
            self.plant();
        }
        for node in waiting {
            self.later(TIMEOUT, Happening::Silence { node, session: 0 });
        }
        self.schedule();
        self.plan_soon();
    }

    /// The machine of the controller loses power: unsynced content is gone. A part of it may have reached the
    /// disk without any acknowledgement.
    fn cut_power(&mut self) {
        let Some(controller) = self.controller.take() else { return };
        self.ledger.power_cuts += 1;
        let written = self.chance.below(controller.in_flight.len() as u64 + 1);
        for flight in controller.in_flight.iter().take(usize::try_from(written).expect("small")) {
            self.disk.write(&flight.batch);
        }
        for node in 0..self.nodes.len() {
            self.lose_link(node);
        }
        self.wakeup = None;
        let delay = self.chance.between(10, 30_000);
        self.later(delay, Happening::StartController);
    }

    fn command(&mut self, caller: Caller, command: Command, client: Option<(u64, RequestId)>) {
        let request = client.map(|(_, request)| request);
        let now = self.now;
        if let Some(controller) = &mut self.controller {
            controller.handle(now, Input::Command { caller, request, command }, client);
            self.commit();
        }
    }

    fn input(&mut self, input: Input) {
        let now = self.now;
        if let Some(controller) = &mut self.controller {
            controller.handle(now, input, None);
            checks::sound(&controller.cluster);
            self.commit();
        }
    }

    /// Starts the commit of the latest results; commits end in order.
    fn commit(&mut self) {
        let sync = self.chance.between(1, 30);
        let Some(controller) = &mut self.controller else { return };
        controller.busy_until = controller.busy_until.max(self.now) + sync;
        let (delay, epoch) = (controller.busy_until - self.now, controller.epoch);
        self.later(delay, Happening::Synced { epoch });
        self.schedule();
    }

    fn synced(&mut self, epoch: u64) {
        let Some(controller) = self.controller.as_mut().filter(|running| running.epoch == epoch) else {
            return;
        };
        let Some(flight) = controller.in_flight.pop_front() else { return };
        self.disk.write(&flight.batch);
        for entry in &flight.batch.entries {
            controller.replica.apply(entry);
        }
        if !flight.batch.entries.is_empty() && self.chance.percent(3) {
            self.disk.snapshot(&controller.replica);
        }
        let changes = !flight.batch.entries.is_empty();
        for effect in flight.effects {
            self.effect(effect);
        }
        if let Some((request, answer)) = flight.reply
            && self.chance.percent(if self.calm() { 100 } else { 85 })
        {
            self.answer(request, answer.ok());
        }
        // A refused proposal changes nothing for waiting jobs.
        if changes {
            self.plan_soon();
        }
    }

    fn schedule(&mut self) {
        let Some(controller) = &self.controller else { return };
        let Some(due) = timers::next_wakeup(&controller.cluster).filter(|due| !due.is_never()) else {
            return;
        };
        let at = u64::try_from(due.0.max(0)).expect("not negative") * 1000;
        if self.wakeup.is_none_or(|planned| at < planned) {
            self.wakeup = Some(at);
            self.later(at.saturating_sub(self.now) + 1, Happening::Wakeup);
        }
    }

    fn plan_soon(&mut self) {
        self.passes += 1;
        self.soon(Happening::Plan);
    }

    fn plan(&mut self) {
        self.passes -= 1;
        // The commit that is awaited brings the next pass.
        let Some(controller) = self.controller.as_ref().filter(|running| running.replica.seq() >= self.floor)
        else {
            return;
        };
        let at = Time(i64::try_from(self.now / 1000).expect("small"));
        let (starts, preemptions) = planner::plan(&controller.replica, at, self.real_planner);
        let waiting = controller.replica.jobs().pending_count() > starts.len();
        if let Some(start) = starts.iter().find(|start| start.parts.len() > 1) {
            self.meddle_with(start.parts[0].node);
        }
        for start in starts {
            self.input(Input::Start(Box::new(start)));
        }
        for preemption in preemptions {
            self.input(Input::Preempt(Box::new(preemption)));
        }
        self.floor = self.controller.as_ref().map_or(0, |running| running.cluster.seq());
        if waiting && self.passes == 0 {
            self.passes += 1;
            self.later(1000, Happening::Plan);
        }
    }

    // ---- messages

    fn effect(&mut self, effect: Effect) {
        let (node, order) = match effect {
            Effect::Open { node, connection } => return self.open(node, connection),
            Effect::Launch { node, attempt } => (node, Order::Launch(attempt)),
            Effect::Terminate { node, attempt, kill } => (node, Order::Terminate { attempt, kill }),
            Effect::Suspend { node, attempt, stop } => (node, Order::Suspend { attempt, stop }),
            Effect::Acknowledge { node, report } => (node, Order::Acknowledge(report)),
            Effect::Forget { node, attempt } => (node, Order::Forget(attempt)),
            Effect::Signal { node, attempt, signal: Signal::TERM, .. } => (node, Order::Signal(attempt)),
            Effect::EndStep { .. }
            | Effect::Signal { .. }
            | Effect::Tell { .. }
            | Effect::Reboot { .. }
            | Effect::Power { .. }
            | Effect::StepsChanged { .. }
            | Effect::Program { .. }
            | Effect::Mail { .. } => return,
        };
        let session = self.controller.as_ref().and_then(|running| running.open.get(&node)).copied();
        if let Some(session) = session {
            let (node, again) = (node.index(), order.clone());
            self.send(session, true, Happening::ToNode { session, node, order });
            if self.chance.percent(5) {
                self.send(session, true, Happening::ToNode { session, node, order: again });
            }
        }
    }

    /// Lets a connection take orders from now on, if it is still the node's.
    fn open(&mut self, node: NodeId, session: u64) {
        if let Some(controller) = &mut self.controller
            && controller.sessions.get(&node) == Some(&session)
        {
            controller.open.insert(node, session);
        }
    }

    /// Puts a message on a connection: late, but in order.
    fn send(&mut self, session: u64, down: bool, message: Happening) {
        let delay =
            if self.chance.percent(3) { self.chance.between(1, 5000) } else { self.chance.between(1, 20) };
        let last = self.arrivals.entry((session, down)).or_default();
        let at = (*last).max(self.now + delay);
        *last = at;
        self.later(at - self.now, message);
    }

    fn connect(&mut self, node: usize) {
        let reachable = self.controller.is_some() && self.nodes[node].running;
        if !reachable {
            if self.nodes[node].running {
                self.later(1000, Happening::Connect { node });
            }
            return;
        }
        if self.nodes[node].session.is_some() {
            return;
        }
        let session = self.next_session;
        self.next_session += 1;
        self.nodes[node].session = Some(session);
        let hello = Box::new(self.nodes[node].hello());
        self.send(session, false, Happening::Hello { session, node, hello });
        for Unacknowledged { id, attempt, report } in self.nodes[node].unacknowledged() {
            self.send(session, false, Happening::ToController { session, node, id, attempt, report });
        }
    }

    fn hello(&mut self, session: u64, node: usize, hello: Hello) {
        if self.nodes[node].session != Some(session) {
            return;
        }
        let (id, name) = (self.nodes[node].id, Arc::clone(&self.nodes[node].name));
        match &mut self.controller {
            Some(controller) if controller.cluster.node_named(&name).is_some() => {
                controller.sessions.insert(id, session);
                controller.open.remove(&id);
                self.input(Input::Registered {
                    name,
                    registration: hello.registration,
                    held: hello.held,
                    reports: hello.reports,
                    seen: Seen::default(),
                    connection: session,
                });
            }
            _ => self.lose_link(node),
        }
    }

    fn lose_link(&mut self, node: usize) {
        let Some(session) = self.nodes[node].session.take() else { return };
        let id = self.nodes[node].id;
        if let Some(controller) = &mut self.controller {
            controller.sessions.retain(|on, current| *on != id || *current != session);
            controller.open.retain(|on, current| *on != id || *current != session);
        }
        self.later(TIMEOUT, Happening::Silence { node, session });
        let delay = self.chance.between(100, 40_000);
        self.later(delay, Happening::Connect { node });
    }

    fn deeds(&mut self, node: usize, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::Launched(attempt) => self.launched(node, attempt),
                Deed::Told { attempt, kill } => {
                    if kill || self.chance.percent(70) {
                        let (boot, exit) =
                            (self.nodes[node].boot, ExitCode::signaled(if kill { 9 } else { 15 }));
                        self.soon(Happening::Exit { node, boot, attempt, exit });
                    }
                }
                Deed::Continued(attempt, exit) => {
                    let boot = self.nodes[node].boot;
                    self.soon(Happening::Exit { node, boot, attempt, exit });
                }
                Deed::Report(id, attempt, report) => {
                    let Some(session) = self.nodes[node].session.filter(|_| self.nodes[node].running) else {
                        continue;
                    };
                    let again = report.clone();
                    self.send(session, false, Happening::ToController { session, node, id, attempt, report });
                    if self.chance.percent(5) {
                        let report = again;
                        self.send(
                            session,
                            false,
                            Happening::ToController { session, node, id, attempt, report },
                        );
                    }
                }
            }
        }
    }

    fn launched(&mut self, node: usize, attempt: Attempt) {
        let (id, boot, now) = (self.nodes[node].id, self.nodes[node].boot, self.now);
        self.ledger.launch(attempt, id, now);
        let exit = if self.chance.percent(15) { ExitCode::exited(3) } else { ExitCode::SUCCESS };
        let runtime = self.chance.between(1, 90_000);
        self.later(runtime, Happening::Exit { node, boot, attempt, exit });
    }

    fn exit(&mut self, node: usize, boot: u32, attempt: Attempt, exit: ExitCode) {
        if self.nodes[node].boot != boot || self.nodes[node].holds_back(attempt, exit) {
            return;
        }
        let now = self.now;
        self.ledger.gone(attempt, now, Some(exit));
        let deeds = self.nodes[node].ended(attempt, Some(exit));
        self.deeds(node, deeds);
    }

    // ---- people

    fn submit(&mut self, request: u64, first: bool) {
        if !self.outstanding.contains_key(&request) {
            return;
        }
        // A client without a reply asks again.
        let patience = self.chance.between(2000, 20_000);
        self.later(patience, Happening::Submit { request, first: false });
        let id = RequestId(u128::from(request).to_be_bytes());
        if !first {
            if let Some(reply) = self.disk.answer(id).cloned() {
                if self.controller.is_some() {
                    self.answer(request, Some(reply));
                }
                return;
            }
            let flying = self.controller.as_ref().is_some_and(|running| {
                running
                    .in_flight
                    .iter()
                    .any(|flight| flight.batch.answered.as_ref().is_some_and(|(a, _)| *a == id))
            });
            if flying {
                return;
            }
        }
        let mut submission = self.submission(request);
        if self.het && self.chance.percent(40) {
            for _ in 0..self.chance.between(1, 2) {
                let component = self.submission(request);
                // All components have one QOS: that of the first.
                let spec = JobSpec { batch: None, qos: None, ..component.spec };
                submission.rest.push(Submission { spec, ..component });
            }
        }
        self.command(user(), Command::Submit(Box::new(submission)), Some((request, id)));
    }

    fn answer(&mut self, request: u64, reply: Option<Reply>) {
        if let Some(Reply::Submitted { job, .. }) = reply {
            let known = self.ledger.acknowledged.insert(request, job);
            assert!(known.is_none_or(|known| known == job), "request {request} got two answers");
            self.outstanding.remove(&request);
        }
    }

    /// A job, or, where there are arrays, perhaps some of its tasks.
    fn part_of(&mut self, job: JobId) -> JobRef<JobId> {
        if !self.arrays || self.chance.percent(40) {
            return JobRef::whole(job);
        }
        let first = u32::try_from(self.chance.below(6)).expect("small");
        let more = u32::try_from(self.chance.below(3)).expect("small");
        JobRef { part: JobPart::Tasks((first..=first + more).collect()), ..JobRef::whole(job) }
    }

    fn cancel(&mut self) {
        let some: Vec<JobId> = self.ledger.acknowledged.values().copied().collect();
        if some.is_empty() {
            return;
        }
        let at = self.chance.below(some.len() as u64);
        let job = some[usize::try_from(at).expect("small")];
        self.ledger.cancelled.insert(job);
        let jobs = vec![self.part_of(job)];
        self.command(user(), Command::Cancel { jobs }, None);
    }

    /// Does a random action of an operator.
    fn meddle(&mut self) {
        let at = self.chance.below(self.nodes.len() as u64);
        let name = Arc::clone(&self.nodes[usize::try_from(at).expect("small")].name);
        let job = JobId(u32::try_from(self.chance.between(1, 20)).expect("small"));
        let jobs = vec![self.part_of(job)];
        let change =
            |state| NodeChange { state: Some(state), reason: Some("test".into()), ..NodeChange::default() };
        let command = match self.chance.below(if self.suspends { 9 } else { 5 }) {
            0 => Command::UpdateNodes { nodes: vec![name], change: change(NodeStateChange::Drain) },
            1 => Command::Requeue { jobs, hold: false },
            2 => Command::Hold { jobs, by_user: false },
            5..=7 => Command::Suspend { jobs: self.some_active().unwrap_or(jobs) },
            8 => Command::Resume { jobs: self.some_active().unwrap_or(jobs) },
            3 => Command::UpdateNodes { nodes: vec![name], change: change(NodeStateChange::Down) },
            _ => Command::Release { jobs },
        };
        self.command(operator(), command, None);
    }

    /// Makes an operator move a node while a planned start on it is on its way.
    fn meddle_with(&mut self, node: NodeId) {
        if self.moves && !self.calm() && self.chance.percent(40) {
            let leaf = policy::LEAVES[usize::try_from(self.chance.below(2)).expect("small")];
            let name = Arc::clone(&self.nodes[node.index()].name);
            self.command(operator(), put(vec![name], leaf), None);
        }
    }

    /// Takes back every move, every hold and every drain, and repeats that from time to time.
    fn set_right(&mut self) {
        self.later(300_000, Happening::SetRight);
        let nodes: Vec<Arc<str>> = self.nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let moves = self.moves;
        for (leaf, there) in policy::LEAVES.iter().zip(policy::halves(&nodes)).filter(|_| moves) {
            self.command(operator(), put(there.to_vec(), leaf), None);
        }
        let change = NodeChange { state: Some(NodeStateChange::Resume), ..NodeChange::default() };
        self.command(operator(), Command::UpdateNodes { nodes, change }, None);
        let jobs = (1..=400).map(|job| JobRef::whole(JobId(job))).collect();
        self.command(operator(), Command::Release { jobs }, None);
        let active = self.controller.as_ref().map(|running| &running.cluster);
        let active = active.into_iter().flat_map(|cluster| cluster.jobs().active());
        let jobs = active.map(|job| job.reference()).collect();
        self.command(operator(), Command::Resume { jobs }, None);
    }

    /// A random job that has started and not ended, or a task of an array; `None` if there is none.
    fn some_active(&mut self) -> Option<Vec<JobRef<JobId>>> {
        let active: Vec<JobRef<JobId>> =
            self.controller.as_ref()?.cluster.jobs().active().map(|job| job.reference()).collect();
        let at = self.chance.below(active.len().max(1) as u64);
        Some(vec![active.get(usize::try_from(at).expect("small"))?.clone()])
    }

    fn fault(&mut self) {
        let at = self.chance.below(self.nodes.len() as u64);
        let node = usize::try_from(at).expect("small");
        match self.chance.below(10) {
            0..=3 => self.cut_power(),
            4 | 5 => {
                self.ledger.broken_links += 1;
                self.lose_link(node);
            }
            6 | 7 => {
                // The daemon dies and comes back; its processes live on.
                self.ledger.daemon_kills += 1;
                self.nodes[node].forget_marks();
                self.lose_link(node);
            }
            _ => self.reboot(node),
        }
    }

    fn reboot(&mut self, node: usize) {
        self.ledger.reboots += 1;
        let now = self.now;
        self.lose_link(node);
        if self.reports && self.chance.percent(30) {
            // While the host is off, its cable goes to another switch, which may be new.
            let switches = [policy::LEAVES[0], policy::LEAVES[1], "s9"];
            let at = usize::try_from(self.chance.below(3)).expect("small");
            self.nodes[node].switch = Some(switches[at].into());
        }
        for attempt in self.nodes[node].boot() {
            self.ledger.gone(attempt, now, None);
        }
        self.nodes[node].running = true;
    }
}

/// The command that puts nodes into a leaf.
fn put(nodes: Vec<Arc<str>>, leaf: &str) -> Command {
    let places = format!("default:{leaf}").parse().ok();
    Command::UpdateNodes { nodes, change: NodeChange { places, ..NodeChange::default() } }
}

fn owner(uid: u32) -> Arc<Owner> {
    Arc::new(Owner { uid, gid: uid, user: format!("u{uid}").into(), group: "users".into() })
}

fn user() -> Caller {
    Caller::new(owner(1000), Arc::default(), false)
}

fn operator() -> Caller {
    Caller::new(owner(0), Arc::default(), true)
}
