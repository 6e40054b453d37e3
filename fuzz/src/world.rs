//! A small cluster with a running and a waiting job, which handles the inputs of the targets.

use std::sync::{Arc, LazyLock};

use spur_cli::options::submission::Surroundings;
use spur_core::cluster::{Cluster, invariant};
use spur_core::controller::{Command, Input, handle};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::Config;
use spur_core::model::history::Seen;
use spur_core::model::fabric_report::FabricReport;
use spur_core::model::node::{NodeShape, Registration};
use spur_core::sched;
use spur_core::sched::forecast::Limits;
use spur_core::text::time::{Civil, CivilNow, Time};
use spur_proto::convert::spec;
use spur_proto::v1;

/// Friday, 2026-11-20 14:30:00 in a zone an hour east of UTC.
pub struct Afternoon;

impl Afternoon {
    pub fn now() -> CivilNow {
        let civil = Civil { year: 2026, month: 11, day: 20, hour: 14, minute: 30, second: 0 };
        CivilNow { time: Self::to_epoch(civil).expect("a date"), civil }
    }

    pub fn to_epoch(civil: Civil) -> Option<Time> {
        civil.to_utc().map(|time| Time(time.0 - 3600))
    }
}

impl Surroundings for Afternoon {
    fn now(&self) -> CivilNow {
        Self::now()
    }

    fn to_epoch(&self, civil: Civil) -> Option<Time> {
        Self::to_epoch(civil)
    }
}

/// The time at which every input arrives, in seconds since the Unix epoch.
pub const NOW: Time = Time(1_795_181_400);

static START: LazyLock<Cluster> = LazyLock::new(|| {
    let text = include_str!("world.toml");
    let policy = Config::parse(text, "world.toml").expect("it is sound").policy;
    let mut world = World(Cluster::of_newest_level());
    world.command(0, Command::Reconfigure(policy.into()));
    for name in ["n1", "n2", "n3"] {
        let shape = NodeShape { cpus: 4, memory_mb: 1000, ..NodeShape::default() };
        let registration = Registration {
            shape,
            boot_id: "b".into(),
            spool_id: name.into(),
            address: format!("{name}:7000").into(),
            hostname: name.into(),
            version: "1".into(),
            arch: "x86_64".into(),
            os: "Linux".into(),
            booted: Time(1),
            started: Time(2),
            peer: Arc::default(),
            containment: Arc::default(),
            fault: Arc::default(),
            fabric: FabricReport::default(),
        };
        world.input(Input::Registered {
            name: name.into(),
            registration: registration.into(),
            held: Vec::new(),
                reports: Vec::new(),
            seen: Seen::default(),
            connection: 0,
        });
    }
    world.submit(v1::JobSpec { name: "runs".to_owned(), ..v1::JobSpec::default() });
    world.plan();
    world.submit(v1::JobSpec { name: "waits".to_owned(), hold: true, ..v1::JobSpec::default() });
    world.0
});

/// A cluster that handles inputs and checks its invariants after each.
pub struct World(pub Cluster);

impl World {
    /// A copy of the cluster with which every execution begins.
    pub fn new() -> World {
        World(START.clone())
    }

    /// Handles an input and returns true if the controller accepts the input. Asserts that all invariants
    /// hold, and that a refusal changes nothing.
    pub fn input(&mut self, input: Input) -> bool {
        let before = self.0.seq();
        let outcome = handle(&mut self.0, 1, NOW, input);
        let violations = invariant::violations(&self.0);
        assert!(violations.is_empty(), "{violations:?}");
        if let Err(reject) = &outcome.answer {
            assert!(
                !reject.to_string().is_empty() && self.0.seq() == before,
                "{reject} has changed something"
            );
        }
        outcome.answer.is_ok()
    }

    /// Handles a command of the user `uid`; 0 is root. Returns true if the controller accepts the command.
    pub fn command(&mut self, uid: u32, command: Command) -> bool {
        let name = if uid == 0 { "root" } else { "alice" };
        let owner = Owner { uid, gid: uid, user: name.into(), group: name.into() };
        let caller = Caller::new(Arc::new(owner), Arc::default(), uid == 0);
        self.input(Input::Command { caller, request: None, command })
    }

    fn submit(&mut self, wire: v1::JobSpec) {
        let batch = v1::Batch {
            script: b"#!/bin/sh\n".to_vec().into(),
            work_dir: "/".to_owned(),
            ..v1::Batch::default()
        };
        let wire = v1::JobSpec { batch: Some(batch), ..wire };
        let (submission, _) = spec::submission(wire).expect("it is sound");
        assert!(self.command(1000, Command::Submit(Box::new(submission))), "it is sound");
    }

    /// Runs a pass of the planner and starts the jobs that the plan starts now.
    pub fn plan(&mut self) {
        for start in sched::plan(&self.0, NOW, &Limits).starts {
            self.input(Input::Start(Box::new(start)));
        }
    }
}
