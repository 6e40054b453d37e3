//! The commands of a script.

use std::fmt::Write;
use std::sync::Arc;

use spur_core::cluster::{Cluster, FeatureLevel, invariant, reported};
use spur_core::controller::command::{
    Held, KnownLevels, NodeChange, NodeStateChange, Report, Submission, Unacknowledged,
};
use spur_core::controller::{self, Command, Haste, Input, timers};
use spur_core::id::{ArrayTaskId, Attempt, BlobId, HistoryId, JobId, NodeId, StepId};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::change::{JobChange, licenses};
use spur_core::model::clock::Clock;
use spur_core::model::config::Config;
use spur_core::model::fabric_report::{FabricReport, Neighbour};
use spur_core::model::history::Seen;
use spur_core::model::job::{Batch, Extra, JobSpec, MemoryNeed, Shape};
use spur_core::model::node::{NextState, NodeGres, Registration};
use spur_core::model::phase::Phase;
use spur_core::model::reservation::ReservationAsk;
use spur_core::model::step::StepSpec;
use spur_core::sched::plan::{Preemption, Start, StartPart};
use spur_core::text::exit::ExitCode;
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::hostlist::HostList;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_core::text::time::{Time, TimeLimit};

use crate::print;

/// A cluster that a script controls, at first of the newest feature level.
pub(crate) struct Session {
    cluster: Cluster,
    now: i64,
    as_user: u32,
    /// The other groups of that user.
    groups: Vec<Arc<str>>,
    /// A start that was planned and has not yet reached the controller.
    planned: Option<Input>,
}

impl Session {
    pub(crate) fn new() -> Session {
        let cluster = Cluster::of_newest_level();
        Session { cluster, now: 0, as_user: 0, groups: Vec::new(), planned: None }
    }

    /// Runs one line and returns its result.
    pub(crate) fn command(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match verb {
            "at" => {
                self.now = rest[0].parse().expect("seconds");
                String::new()
            }
            // The journal is one of a release that recorded no feature level.
            "old-journal" => {
                self.cluster = Cluster::default();
                String::new()
            }
            // `as UID [GROUP]…`
            "as" => {
                self.as_user = rest[0].parse().expect("a user's number");
                self.groups = rest[1..].iter().map(|group| Arc::from(*group)).collect();
                String::new()
            }
            "plan" => {
                self.planned = Some(self.start(&rest));
                String::new()
            }
            "carry-out" => {
                let planned = self.planned.take().expect("a plan");
                self.handle(planned)
            }
            "show" => self.show(),
            "wakeup?" => match timers::next_wakeup(&self.cluster) {
                Some(at) => format!("at {}\n", at.0),
                None => "never\n".to_owned(),
            },
            _ => match self.input(verb, &rest) {
                Some(input) => self.handle(input),
                None => format!("no such command: {line}\n"),
            },
        }
    }

    fn handle(&mut self, input: Input) -> String {
        let outcome = controller::handle(&mut self.cluster, 1, Time(self.now), input);
        let mut said = String::new();
        match &outcome.answer {
            Ok(reply) => said.push_str(&print::reply(reply)),
            Err(reject) => {
                let _ = writeln!(said, "refused: {reject} [{}]", reject.code());
            }
        }
        for entry in &outcome.entries {
            let _ = writeln!(said, "event {}", print::event(&entry.event));
        }
        for effect in &outcome.effects {
            let _ = writeln!(said, "then  {}", print::effect(effect));
        }
        for violation in invariant::violations(&self.cluster) {
            let _ = writeln!(said, "BROKEN {violation}");
        }
        said
    }

    fn input(&self, verb: &str, rest: &[&str]) -> Option<Input> {
        Some(match verb {
            "configure" => {
                let file = format!("{}/data/scripts.toml/{}", env!("CARGO_MANIFEST_DIR"), rest[0]);
                let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
                let config = Config::parse(&text, rest[0]).unwrap_or_else(|errors| panic!("{errors}"));
                self.ask(Command::Reconfigure(Arc::new(config.policy)))
            }
            // `level LEVEL [NODE=KNOWN]… [ADDRESS=KNOWN]…`, with `-` for a standby that does not answer
            "level" => self.raise_level(rest),
            "submit" => self.ask(Command::Submit(Box::new(het_submission(rest)))),
            "cancel-step" | "limit-step" => self.step_command(verb, rest),
            "cancel" => self.ask(Command::Cancel { jobs: jobs(rest) }),
            "notify" => self.ask(Command::Notify { job: job(rest[0]), message: rest[1..].join(" ") }),
            "hold" => self.ask(Command::Hold { jobs: jobs(rest), by_user: false }),
            "release" => self.ask(Command::Release { jobs: jobs(rest) }),
            "suspend" => self.ask(Command::Suspend { jobs: jobs(rest) }),
            "top" => self.ask(Command::Top { jobs: jobs(rest) }),
            "resume-job" => self.ask(Command::Resume { jobs: jobs(rest) }),
            "requeue" => self.ask(Command::Requeue { jobs: jobs(rest), hold: false }),
            "update" => {
                let change = |word: &&str| {
                    let (key, value) = word.split_once('=').expect("Key=Value");
                    JobChange::parse(key, value).unwrap_or_else(|error| panic!("{error}"))
                };
                let changes = rest[1..].iter().map(change).collect();
                self.ask(Command::UpdateJob { job: named(rest[0]), changes })
            }
            "drain" | "resume" | "down" | "reboot" | "cancel-reboot" | "power-up" | "power-down"
            | "power-asap" | "power-force" => self.node_state(verb, rest),
            "place" => {
                let places = rest.get(1).unwrap_or(&"").parse().expect("places");
                let change = NodeChange { places: Some(places), ..NodeChange::default() };
                let nodes: HostList = rest[0].parse().expect("nodes");
                self.ask(Command::UpdateNodes { nodes: nodes.iter().map(Arc::from).collect(), change })
            }
            "features" => {
                let features = rest[1].split(',').map(Arc::from).collect();
                let change = NodeChange { features: Some(features), ..NodeChange::default() };
                self.ask(Command::UpdateNodes { nodes: vec![rest[0].into()], change })
            }
            "partition" | "create-partition" | "delete-partition" | "create-node" | "delete-node" => {
                self.edit(verb, rest)
            }
            "reserve" => self.ask(Command::CreateReservation(Box::new(reservation(rest)))),
            "change" => self.ask(Command::UpdateReservation(Box::new(reservation(rest)))),
            "unreserve" => self.ask(Command::DeleteReservation { name: rest[0].into() }),
            "step" => self.ask(Command::CreateStep { job: job(rest[0]), step: Box::new(step(&rest[1..])) }),
            "start" => self.start(rest),
            "move" => self.ask(Command::Move(Box::new(self.proposals(rest)))),
            "preempt" => self.preempt(rest),
            "register" => self.register(rest),
            "silent" => Input::Silent { nodes: rest.iter().map(|name| self.node(name)).collect() },
            // `condition NODE [FAULT]`
            "condition" => Input::Condition { node: self.node(rest[0]), fault: rest[1..].join(" ").into() },
            "plan-failed" => Input::PlanFailed { job: job(rest[0]) },
            "end" => {
                let exit = rest.get(1).map_or(0, |code| code.parse().expect("an exit code"));
                self.ask(Command::EndAllocation { job: job(rest[0]), exit: ExitCode::exited(exit) })
            }
            "inactive" => Input::Inactive { jobs: rest.iter().map(|name| job(name)).collect() },
            // A new controller opens the journal.
            "begin" => {
                Input::Begin { history: HistoryId(1u128.to_be_bytes()), reign: 1, accounting: (0, JobId(0)) }
            }
            "wakeup" => Input::Wakeup { due: Time(self.now) },
            // `clock AHEAD`
            "clock" => {
                let ahead = rest[0].parse().expect("seconds");
                Input::Clock(Clock { ahead, ..self.cluster.clock().clone() })
            }
            "report" => self.report(rest)?,
            _ => return None,
        })
    }

    /// Parses `level LEVEL [NODE=KNOWN]… [ADDRESS=KNOWN]…`.
    fn raise_level(&self, rest: &[&str]) -> Input {
        let number = |text: &str| FeatureLevel(text.parse().expect("a level"));
        let mut daemons = KnownLevels::default();
        for (name, knows) in rest[1..].iter().map(|word| word.split_once('=').expect("NAME=LEVEL")) {
            match self.cluster.node_named(name) {
                Some(node) => drop(daemons.nodes.insert(node.id, number(knows))),
                None => {
                    let knows = (knows != "-").then(|| number(knows));
                    daemons.standbys.insert(name.to_owned(), knows);
                }
            }
        }
        self.ask(Command::RaiseFeatureLevel { level: number(rest[0]), daemons })
    }

    /// Parses `cancel-step JOB STEP`, and `limit-step JOB STEP LIMIT`.
    fn step_command(&self, verb: &str, rest: &[&str]) -> Input {
        let (job, step) = (job(rest[0]), StepId(rest[1].parse().expect("a step")));
        self.ask(match verb {
            "limit-step" => Command::LimitStep { job, step, limit: rest[2].parse().expect("a limit") },
            _ => Command::CancelStep { job, step },
        })
    }

    /// `drain NODE [REASON]` and its kin; `reboot NODE [asap] [resume|down] [REASON]`
    fn node_state(&self, verb: &str, rest: &[&str]) -> Input {
        let mut more: Vec<&str> = rest[1..].to_vec();
        let mut given = |word: &str| {
            let at = more.iter().position(|known| *known == word);
            at.map(|at| more.remove(at)).is_some()
        };
        let state = match verb {
            "drain" => NodeStateChange::Drain,
            "down" => NodeStateChange::Down,
            "reboot" => {
                let next = given("resume").then_some(NextState::Resume);
                let next = next.or(given("down").then_some(NextState::Down));
                NodeStateChange::Reboot { asap: given("asap"), next }
            }
            "cancel-reboot" => NodeStateChange::CancelReboot,
            "power-up" => NodeStateChange::PowerUp,
            "power-down" => NodeStateChange::PowerDown(Haste::Idle),
            "power-asap" => NodeStateChange::PowerDown(Haste::Drain),
            "power-force" => NodeStateChange::PowerDown(Haste::Force),
            _ => NodeStateChange::Resume,
        };
        let reason = more.first().map(|reason| Arc::from(*reason));
        let change = NodeChange { state: Some(state), reason, ..NodeChange::default() };
        self.ask(Command::UpdateNodes { nodes: vec![rest[0].into()], change })
    }

    /// The commands `partition NAME KEY=VALUE …` and its like; several nodes are given as names with commas.
    fn edit(&self, verb: &str, rest: &[&str]) -> Input {
        let (name, nodes) = (rest[0].into(), rest[0].split(',').map(Arc::from).collect());
        let settings = settings(&rest[1..]);
        self.ask(match verb {
            "partition" => Command::UpdatePartition { name, settings },
            "create-partition" => Command::CreatePartition { name, settings },
            "delete-partition" => Command::DeletePartition { name },
            "create-node" => Command::CreateNodes { nodes, settings },
            _ => Command::DeleteNodes { nodes },
        })
    }

    fn ask(&self, command: Command) -> Input {
        let uid = self.as_user;
        let owner = Owner { uid, gid: uid, user: format!("u{uid}").into(), group: "users".into() };
        Input::Command {
            caller: Caller::new(Arc::new(owner), self.groups.clone().into(), uid == 0),
            request: None,
            command,
        }
    }

    fn node(&self, name: &str) -> NodeId {
        self.cluster.node_named(name).unwrap_or_else(|| panic!("no node {name}")).id
    }

    /// `start JOB NODE[:CPUS]… [in=RESERVATION] [limit=LIMIT] [: JOB NODE[:CPUS]…]…`
    fn start(&self, rest: &[&str]) -> Input {
        Input::Start(Box::new(self.proposals(rest)))
    }

    fn proposals(&self, rest: &[&str]) -> Start {
        let mut starts = rest.split(|word| *word == ":").map(|words| self.proposal(words));
        let mut first = starts.next().expect("a job");
        first.rest = starts.collect();
        first
    }

    /// `preempt JOB NODE[:CPUS]… [: JOB NODE[:CPUS]…]… victim=JOB… displaces=JOB…`
    fn preempt(&self, rest: &[&str]) -> Input {
        let named = |key: &str| {
            let given = rest.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            given.map(job).collect::<Vec<_>>()
        };
        let nodes: Vec<&str> = rest.iter().filter(|word| !word.contains('=')).copied().collect();
        let attempt = |id: JobId| self.cluster.job(id).expect("a job").attempt();
        Input::Preempt(Box::new(Preemption {
            start: self.proposals(&nodes),
            detail: "no room".to_owned(),
            places: vec![None],
            victims: named("victim").into_iter().map(attempt).collect(),
            displaces: named("displaces"),
        }))
    }

    fn proposal(&self, rest: &[&str]) -> Start {
        let named = named(rest[0]);
        let record = self.cluster.jobs().meant(&named).first().copied();
        let job = record.and_then(|id| self.cluster.job(id)).expect("a job");
        let task = match &named.part {
            JobPart::Tasks(tasks) => tasks.only().map(ArrayTaskId),
            JobPart::Whole | JobPart::Component(_) => {
                job.array.as_ref().and_then(|part| part.tasks.first()).map(ArrayTaskId)
            }
        };
        let names_node = |word: &&str| *word != "exclusive" && !word.contains('=');
        let part = |word: &&str| {
            let (name, held) = word.split_once(':').unwrap_or((word, "1"));
            let (cpus, gpus) = held.split_once('+').unwrap_or((held, ""));
            let cpus = cpus.parse().expect("CPUs");
            let gres = gpus.parse().ok().map(|count| (0, count)).into_iter().collect();
            StartPart { node: self.node(name), tasks: cpus, cpus, memory_mb: 0, gres }
        };
        Start {
            attempt: job.attempt(),
            task,
            spec: Arc::clone(&job.spec),
            ground: self.cluster.ground(),
            partition: Arc::clone(&job.spec.partitions[0]),
            reservation: rest.iter().find_map(|word| word.strip_prefix("in=")).map(Into::into),
            time_limit: rest
                .iter()
                .find_map(|word| word.strip_prefix("limit="))
                .map(|limit| limit.parse().expect("a time limit")),
            parts: rest[1..].iter().filter(|word| names_node(word)).map(part).collect(),
            exclusive: rest.contains(&"exclusive"),
            why: spur_core::model::alloc::Why::default(),
            rest: Vec::new(),
        }
    }

    /// The command `register NODE [boot=N] [spool=N] [cpus=N] [live=JOB.rN] [over=JOB.rN] [ended=JOB.rN]…
    /// [clique=NAME] [switches=NAME,…] [topology=PLACE]`; for each ended attempt the node has an
    /// unacknowledged report.
    fn register(&self, rest: &[&str]) -> Input {
        let get = |key: &str| rest.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let configured = self.cluster.node_named(rest[0]).map(|node| node.config.shape.clone());
        let mut shape = configured.unwrap_or_default();
        if let Some(cpus) = get("cpus") {
            shape.cpus = cpus.parse().expect("CPUs");
        }
        if let Some(gres) = get("gres") {
            let devices = gres.split(',').filter_map(|device| device.split_once(':'));
            let count = |count: &str| count.parse().expect("a count");
            let one = |(name, n): (&str, _)| NodeGres { name: name.into(), kind: "".into(), count: count(n) };
            shape.gres = devices.map(one).collect();
        }
        let held = rest.iter().filter_map(|word| {
            let (key, value) = word.split_once('=')?;
            matches!(key, "live" | "over").then(|| Held { attempt: attempt(value), live: key == "live" })
        });
        let ended = |word: &&str| {
            let attempt = attempt(word.strip_prefix("ended=")?);
            let report = Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: false, done: true };
            Some(Unacknowledged { id: 7, attempt, report })
        };
        let registration = Registration {
            shape,
            boot_id: get("boot").unwrap_or("1").into(),
            spool_id: get("spool").unwrap_or("1").into(),
            address: "".into(),
            hostname: rest[0].into(),
            version: "".into(),
            arch: "".into(),
            os: "".into(),
            booted: Time(0),
            started: Time(0),
            peer: Arc::default(),
            containment: Arc::default(),
            fault: get("fault").unwrap_or_default().into(),
            fabric: FabricReport {
                places: get("topology").unwrap_or_default().into(),
                clique: get("clique").unwrap_or_default().into(),
                neighbours: get("switches")
                    .into_iter()
                    .flat_map(|list| list.split(','))
                    .map(linked_to)
                    .collect(),
                ports: Vec::new(),
            },
        };
        Input::Registered {
            name: rest[0].into(),
            registration: Arc::new(registration),
            held: held.collect(),
            reports: rest.iter().filter_map(ended).collect(),
            seen: Seen::default(),
            connection: 0,
        }
    }

    /// `report NODE JOB.rN ended CODE[:SIGNAL] [alone]|lost|failed|fault|step N CODE|done`
    fn report(&self, rest: &[&str]) -> Option<Input> {
        let exit =
            |at: usize| rest.get(at).map_or(ExitCode::SUCCESS, |text| text.parse().expect("an exit code"));
        let report = match *rest.get(2)? {
            "ended" => {
                let done = rest.get(4) == Some(&"alone");
                Report::BatchEnded { end: exit(3).into(), lost: false, done }
            }
            "lost" => Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: true, done: false },
            "failed" => Report::LaunchFailed {
                message: "no such script".to_owned(),
                node_fault: false,
                exit: ExitCode::exited(1),
            },
            "fault" => Report::LaunchFailed {
                message: "prolog failed".to_owned(),
                node_fault: true,
                exit: ExitCode::exited(1),
            },
            "step" => {
                Report::StepEnded { step: StepId(rest[3].parse().expect("a step")), end: exit(4).into() }
            }
            "done" => Report::NodeDone { epilog_error: None },
            _ => return None,
        };
        Some(Input::Report { node: self.node(rest[0]), id: 7, attempt: attempt(rest[1]), report })
    }

    /// Jobs and nodes, one a line.
    fn show(&self) -> String {
        let mut said = String::new();
        for job in self.cluster.jobs().iter() {
            let (state, _) = job.phase.names();
            let _ = write!(said, "job {} {state}", job.attempt());
            if let Some(qos) = &job.spec.qos {
                let _ = write!(said, " qos={qos}");
            }
            if let Some(full) = job.full_limit {
                let _ = write!(said, " limit={} of {full}", job.spec.time_limit);
            }
            if let Phase::Pending(pending) = &job.phase {
                let _ =
                    write!(said, " hold={:?} eligible={:?}", pending.hold, pending.eligible.map(|at| at.0));
            }
            if let Phase::Running { ends_by: Some(by), .. } = &job.phase {
                let _ = write!(said, " by {}", by.0);
            }
            if let Phase::Suspended(suspended) = &job.phase {
                let back: Vec<String> =
                    suspended.back.iter().map(|(node, cpus)| format!("{node}:{cpus}")).collect();
                let wanted = suspended.wanted.map(|at| at.0);
                let _ = write!(said, " wanted={wanted:?} back={}", back.join(","));
            }
            if !job.phase.pauses().is_none() {
                let _ = write!(said, " ran={}", job.phase.run_time(Time(self.now)));
            }
            if let Some(asked) = job.spec.extra.as_ref().and_then(|extra| extra.reservation.as_ref()) {
                let _ = write!(said, " asks for {asked}");
            }
            if let Some(nomination) = job.nomination() {
                let nodes: Vec<String> = nomination.nodes().map(|node| node.to_string()).collect();
                let _ = write!(said, " kept={}", nodes.join(","));
            }
            if let Some(part) = &job.array {
                let _ = write!(said, " tasks={} of {}", part.tasks, part.id);
            }
            if let Some(waits) = &job.waits_for {
                let _ = write!(said, " waits={waits}{}", if job.never { " never" } else { "" });
            }
            said.push('\n');
        }
        for reservation in self.cluster.reservations() {
            let _ = writeln!(said, "reservation {}", print::reserved(reservation));
        }
        for node in self.cluster.nodes() {
            let drain =
                node.drain.as_ref().map_or_else(String::new, |drain| format!(" drained={}", drain.reason));
            let power = node.power.as_ref().map(|power| format!(" {}", print::powered(Some(power))));
            let health = print::health(&node.health) + &power.unwrap_or_default();
            let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
            let mut place = print::place(&self.cluster, node);
            if let Some(reported) = reported::differences(&self.cluster).get(&node.id) {
                let _ = write!(place, " reports {reported}");
            }
            let _ = writeln!(
                said,
                "node {} {health}{drain} cpus={} jobs={}{place}",
                node.name(),
                node.used.cpus,
                jobs.join(",")
            );
        }
        said
    }
}

/// A reservation from `Key=Value …`, as `scontrol create reservation` takes them; `Skip` has no value.
fn reservation(rest: &[&str]) -> ReservationAsk {
    let mut ask = ReservationAsk::default();
    for word in rest {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        ask.take(key, value).unwrap_or_else(|error| panic!("{error}"));
    }
    ask
}

fn job(text: &str) -> JobId {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a job"))
}

fn named(text: &str) -> JobRef<JobId> {
    text.parse().unwrap_or_else(|_| panic!("{text} is no job"))
}

fn jobs(rest: &[&str]) -> Vec<JobRef<JobId>> {
    rest.iter().map(|text| named(text)).collect()
}

fn attempt(text: &str) -> Attempt {
    let (id, restart) = text.split_once(".r").expect("JOB.rRESTART");
    Attempt { job: job(id), restart: restart.parse().expect("a restart count") }
}

/// A het submission: components as in [`submission`], separated by `:`. Only the first has a script.
fn het_submission(rest: &[&str]) -> Submission {
    let mut components = rest.split(|word| *word == ":").map(submission);
    let first = components.next().expect("there is one at least");
    let plain = |other: Submission| {
        let spec = JobSpec { batch: None, ..other.spec };
        Submission { spec, ..other }
    };
    Submission { rest: components.map(plain).collect(), ..first }
}

/// A submission from words: `nodes=N tasks=N cpus=N gpus=N mem=MB mem-per-cpu=MB array=TASKS time=LIMIT
/// time-min=LIMIT partition=P qos=Q account=A reservation=R licenses=L depend=D begin=T deadline=T requeue=no
/// hold kill-invalid held use-min-nodes name=N`
fn submission(rest: &[&str]) -> Submission {
    let get = |key: &str| rest.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| get(key).map(|text| text.parse::<u32>().expect("a number"));
    let time = |key: &str| get(key).map(|text| Time(text.parse().expect("seconds")));
    let batch = Batch { command: "job.sh".into(), ..Batch::plain(BlobId(1), BlobId(2)) };
    let extra = Extra {
        kill_on_invalid_dep: rest.contains(&"kill-invalid").then_some(true),
        no_kill: rest.contains(&"no-kill"),
        no_preempt: rest.contains(&"no-preempt"),
        reboot: rest.contains(&"reboot"),
        reservation: get("reservation").map(Into::into),
        licenses: get("licenses").map(|list| licenses(list).expect("licenses")).unwrap_or_default(),
        mail: get("mail").map(|types| (types.into(), "joe".into())),
        signal: get("signal").map(|text| text.parse().expect("a signal")),
        ..Extra::default()
    };
    let spec = JobSpec {
        client: rest.contains(&"held").then(Box::default),
        name: get("name").unwrap_or("job").into(),
        owner: Arc::new(Owner { uid: 0, gid: 0, user: "".into(), group: "".into() }),
        account: get("account").map(Into::into),
        qos: get("qos").map(Into::into),
        partitions: get("partition")
            .map_or_else(Box::default, |names| names.split(',').map(Arc::from).collect()),
        shape: Shape {
            nodes: get("nodes").map(|text| text.parse().expect("a number of nodes")),
            tasks: number("tasks"),
            use_min_nodes: rest.contains(&"use-min-nodes"),
            cpus_per_task: number("cpus"),
            gpus: gpus(get("gpus")),
            memory: (number("mem").map(|mb| MemoryNeed::PerNode(mb.into())))
                .or(number("mem-per-cpu").map(|mb| MemoryNeed::PerCpu(mb.into()))),
            nodelist: get("on").map(|list| Box::new(list.parse().expect("a hostlist"))),
            ..Shape::default()
        },
        fabric: None,
        time_limit: TimeLimit::Unlimited,
        time_min: get("time-min").map(|text| text.parse().expect("a time limit")),
        begin: time("begin"),
        deadline: time("deadline"),
        hold: rest.contains(&"hold"),
        priority: number("priority"),
        nice: 0,
        dependency: get("depend").map(|text| {
            let written: spur_core::text::dependency::Dependency = text.parse().expect("a dependency");
            Box::new(written.map_jobs(|id| id.parse::<JobId>()).expect("job numbers"))
        }),
        array: get("array").map(|tasks| Box::new(tasks.parse().expect("tasks"))),
        requeue: true,
        batch: (!rest.contains(&"held")).then(|| Box::new(batch)),
        extra: Some(Box::new(extra)),
        het: None,
    };
    let time_limit = get("time").map(|text| text.parse().expect("a time limit"));
    Submission { spec, time_limit, requeue: get("requeue").map(|text| text != "no"), rest: Vec::new() }
}

/// A link to a switch.
fn linked_to(switch: &str) -> Neighbour {
    Neighbour { switch: switch.into(), ..Neighbour::default() }
}

fn step(rest: &[&str]) -> StepSpec {
    let get = |key: &str| rest.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| get(key).map(|text| text.parse::<u32>().expect("a number"));
    let names = |key: &str| get(key).map_or_else(Vec::new, |names| names.split(',').map(Arc::from).collect());
    StepSpec {
        name: "step".into(),
        nodes: number("nodes"),
        tasks: number("tasks"),
        tasks_per_node: number("each"),
        cpus_per_task: number("cpus"),
        nodelist: names("on"),
        exclude: names("not"),
        relative: number("from"),
        overlap: rest.contains(&"overlap"),
        no_kill: rest.contains(&"no-kill"),
        exact: rest.contains(&"exact"),
        whole: rest.contains(&"whole"),
        overcommit: rest.contains(&"overcommit"),
        max_nodes: number("max-nodes"),
        distribution: get("distribution").unwrap_or_default().parse().expect("a distribution"),
        hosts: names("hosts"),
        memory: (number("memory").map(|mb| MemoryNeed::PerNode(mb.into())))
            .or(number("memory-per-cpu").map(|mb| MemoryNeed::PerCpu(mb.into()))),
        time_limit: number("time").map(u64::from),
        gpus: gpus(get("gpus")),
        gpus_per_task: gpus(get("gpus-per-task")),
        ..StepSpec::default()
    }
}

fn gpus(written: Option<&str>) -> Vec<GresSpec> {
    written.map_or_else(Vec::new, |text| GresList::parse_gpus(text).expect("GPUs").0)
}

/// Settings `KEY=VALUE …` of a partition or node.
fn settings(words: &[&str]) -> Vec<(Arc<str>, Arc<str>)> {
    let pair = |word: &&str| word.split_once('=').map(|(key, value)| (key.into(), value.into()));
    words.iter().map(|word| pair(word).expect("KEY=VALUE")).collect()
}
