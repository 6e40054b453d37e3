//! One small cluster, and the replies about it as it changes.

use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::controller::command::Report;
use spur_core::controller::{Command, Input, Reply, handle};
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::Config;
use spur_core::model::fabric_report::FabricReport;
use spur_core::model::history::Seen;
use spur_core::model::node::{NodeShape, Registration};
use spur_core::model::reason::Reason;
use spur_core::sched;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Waiting;
use spur_core::text::exit::ExitCode;
use spur_core::text::jobid::JobRef;
use spur_core::text::time::Time;

use super::job::Outlook;
use super::node::Pulse;
use super::{job, node, partition, spec, step, topology};
use crate::v1;

const CONFIG: &str = r#"
cluster_name = "test"
[[nodes]]
names = "n[1-4]"
cpus = 4
memory_mb = 1000
gres = ["gpu:a100:2"]
features = ["ib"]
[[partitions]]
name = "main"
nodes = "ALL"
default = true
max_time = "1:00:00"
[topology]
plugin = "tree"
layers = ["leaf", "spine"]
[[topology.switches]]
name = "s1"
nodes = "n[1-2]"
[[topology.switches]]
name = "s2"
nodes = "n[3-4]"
[[topology.switches]]
name = "top"
switches = "s[1-2]"
"#;

struct World {
    cluster: Cluster,
    now: Time,
}

impl World {
    /// Returns a cluster with all nodes up but the last.
    fn new() -> Self {
        let policy = Config::parse(CONFIG, "test.toml").expect("the configuration is sound").policy;
        let mut world = World { cluster: Cluster::of_newest_level(), now: Time(1000) };
        world.command(Command::Reconfigure(policy.into()));
        for name in ["n1", "n2", "n3"] {
            let shape = NodeShape { cpus: 4, memory_mb: 1000, ..NodeShape::default() };
            let gres =
                world.cluster.node(NodeId(0)).map(|node| node.config.shape.gres.clone()).unwrap_or_default();
            let registration = Registration {
                shape: NodeShape { gres, ..shape },
                boot_id: "b".into(),
                spool_id: "s".into(),
                address: format!("{name}:7000").into(),
                hostname: "host".into(),
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
        world
    }

    fn input(&mut self, input: Input) -> Reply {
        handle(&mut self.cluster, 1, self.now, input).answer.expect("the core agrees")
    }

    fn command(&mut self, command: Command) -> Reply {
        let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
        let caller = Caller::new(Arc::new(owner), Arc::default(), true);
        self.input(Input::Command { caller, request: None, command })
    }

    fn submit(&mut self, wire: v1::JobSpec) -> JobId {
        let (submission, _) = spec::submission(wire).expect("the request can be read");
        match self.command(Command::Submit(Box::new(submission))) {
            Reply::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }

    /// Starts the jobs that fit.
    fn plan(&mut self) {
        for start in sched::plan(&self.cluster, self.now, &Limits).starts {
            self.input(Input::Start(Box::new(start)));
        }
    }

    fn job(&self, id: JobId, outlook: Outlook<'_>) -> v1::Job {
        job::render(&self.cluster, self.cluster.job(id).expect("the job is there"), outlook, self.now)
    }

    fn node(&self, id: u32) -> v1::Node {
        let found = self.cluster.node(NodeId(id)).expect("the node is there");
        node::render(&self.cluster, found, Pulse::default(), false, Time::ZERO)
    }
}

fn wire() -> v1::JobSpec {
    v1::JobSpec {
        name: "cfd".into(),
        tasks: Some(6),
        nodes: "2".into(),
        tasks_per_node: Some(3),
        // The same GPU, named twice.
        gres: "gpu:1".into(),
        gpus_per_node: "a100:1".into(),
        time_limit: Some(600),
        memory_per_cpu_mb: Some(100),
        comment: "hello".into(),
        batch: Some(v1::Batch {
            script: "#!/bin/sh\n".into(),
            work_dir: "/home/alice".into(),
            stdout: "%x-%j.log".into(),
            ..v1::Batch::default()
        }),
        ..v1::JobSpec::default()
    }
}

#[test]
fn a_job_is_shown_as_it_waits_runs_and_ends() {
    let mut world = World::new();
    let id = world.submit(wire());
    let waiting = Waiting {
        priority: 7,
        reason: Reason::Resources,
        start: Some(Time(5000)),
        nodes: vec![NodeId(0), NodeId(1)],
        ..Waiting::of(id)
    };
    let pending = world.job(id, Outlook { waiting: Some(&waiting), evaluated: Some(Time(1000)) });
    assert_eq!((pending.state.as_str(), pending.state_compact.as_str()), ("PENDING", "PD"));
    assert_eq!((pending.reason.as_str(), pending.priority), ("Resources", 7));
    assert_eq!((pending.start_time, pending.start_is_planned), (Some(5000), true));
    assert_eq!((pending.end_time, pending.planned_nodes.as_str()), (Some(5600), "n[1-2]"));
    assert_eq!((pending.num_nodes, pending.num_tasks, pending.num_cpus), (2, 6, 6));
    assert_eq!(pending.req_tres, "cpu=6,mem=600M,node=2,billing=6,gres/gpu=2");
    assert_eq!(pending.stdout, "/home/alice/cfd-1.log");
    assert_eq!((pending.stderr.as_str(), pending.comment.as_str()), ("/home/alice/cfd-1.log", "hello"));

    world.plan();
    world.now = Time(1100);
    let running = world.job(id, Outlook::default());
    // The job keeps its priority and the time of its last evaluation when no plan mentions it any more.
    let counted = world.cluster.job(id).and_then(|job| job.phase.alloc()).map(|alloc| alloc.why.priority);
    assert!(counted.is_some_and(|priority| priority > 0), "{counted:?}");
    assert_eq!((Some(running.priority), running.last_sched_eval), (counted, Some(1000)));
    assert_eq!((running.state.as_str(), running.run_time, running.end_time), ("RUNNING", 100, Some(1600)));
    assert_eq!((running.nodes.as_str(), running.batch_host.as_str()), ("n[1-2]", "n1"));
    assert_eq!((running.num_cpus, running.num_tasks), (6, 6));
    assert_eq!(running.alloc_tres, "cpu=6,mem=600M,node=2,billing=6,gres/gpu=2,gres/gpu:a100=2");
    let steps = step::render_all(&world.cluster, world.cluster.job(id).unwrap());
    assert_eq!((steps.len(), steps[0].step_id.as_str(), steps[0].nodes.as_str()), (1, "batch", "n1"));

    let attempt = world.cluster.job(id).unwrap().attempt();
    let report = Report::BatchEnded { end: ExitCode::exited(2).into(), lost: false, done: false };
    world.input(Input::Report { node: NodeId(0), id: 1, attempt, report });
    assert_eq!(world.job(id, Outlook::default()).state, "COMPLETING");
    for node in [NodeId(0), NodeId(1)] {
        let report = Report::NodeDone { epilog_error: None };
        world.input(Input::Report { node, id: 2, attempt, report });
    }
    let ended = world.job(id, Outlook::default());
    assert_eq!(
        (ended.state.as_str(), ended.exit_code, ended.reason.as_str()),
        ("FAILED", 2, "NonZeroExitCode")
    );
    assert_eq!((Some(ended.priority), ended.last_sched_eval), (counted, Some(1000)));
    assert_eq!((ended.run_time, ended.end_time, ended.nodes.as_str()), (100, Some(1100), "n[1-2]"));
}

#[test]
fn why_a_job_waits_does_not_need_a_plan() {
    type Case = (&'static str, fn(&mut v1::JobSpec));
    let cases: [Case; 4] = [
        ("JobHeldUser", |wire| wire.hold = true),
        ("BeginTime", |wire| wire.begin = Some(9999)),
        ("Dependency", |wire| wire.dependency = "afterany:1".into()),
        ("None", |_| {}),
    ];
    let mut world = World::new();
    world.submit(v1::JobSpec { hold: true, ..wire() });
    for (reason, change) in cases {
        let mut request = wire();
        change(&mut request);
        let id = world.submit(request);
        let waits = world.job(id, Outlook::default());
        assert_eq!(waits.reason, reason);
        world.command(Command::Cancel { jobs: vec![JobRef::whole(id)] });
        let ended = world.job(id, Outlook::default());
        assert_eq!((&*ended.state, ended.priority), ("CANCELLED", waits.priority), "{reason}");
    }
}

#[test]
fn nodes_are_shown_with_what_is_taken_of_them() {
    let mut world = World::new();
    world.submit(wire());
    world.submit(v1::JobSpec { nodes: "1".into(), tasks: Some(4), tasks_per_node: None, ..wire() });
    world.plan();
    let states: Vec<String> = (0..4).map(|id| world.node(id).state).collect();
    assert_eq!(states, ["mixed", "mixed", "allocated", "unknown"]);
    let first = world.node(0);
    assert_eq!((first.cpus, first.cpus_allocated, first.memory_allocated_mb), (4, 3, 300));
    assert_eq!((first.gres.as_str(), first.gres_used.as_str()), ("gpu:a100:2", "gpu:a100:1(IDX:0)"));
    assert_eq!(*world.cluster.gres_names(), std::collections::BTreeSet::from(["gpu".into()]));
    let used = |gres: &str, used: &str| {
        let mut shown = v1::Node { gres: gres.into(), gres_used: used.into(), ..v1::Node::default() };
        node::show_absent_gres(&mut shown, &std::collections::BTreeSet::from(["gpu".into(), "tmp".into()]));
        shown.gres_used
    };
    assert_eq!(used("", ""), "gpu:0,tmp:0");
    assert_eq!(used("gpu:a100:2", "gpu:a100:1(IDX:0)"), "gpu:a100:1(IDX:0),tmp:0");
    assert_eq!((first.switch_name.as_str(), first.address.as_str()), ("s1", "n1:7000"));
    assert_eq!(first.partitions, ["main"]);
    // Slurm bills configured resources, not used ones.
    assert_eq!(first.configured_tres, "cpu=4,mem=1000M,billing=4,gres/gpu=2,gres/gpu:a100=2");
    assert_eq!(first.allocated_tres, "cpu=3,mem=300M,gres/gpu=1,gres/gpu:a100=1");
    assert_eq!((first.hostname.as_str(), first.not_responding), ("host", false));
    assert!(world.node(3).not_responding);
}

#[test]
fn partitions_and_topologies_are_shown() {
    let mut world = World::new();
    world.submit(wire());
    world.plan();
    let main = partition::render(&world.cluster, &world.cluster.partitions()[0]);
    assert_eq!((main.nodes.as_str(), main.total_cpus, main.max_time), ("n[1-4]", 16, Some(3600)));
    assert_eq!((main.state.as_str(), main.topology.as_str(), main.is_default), ("UP", "default", true));
    assert_eq!(main.tres, "cpu=16,mem=4000M,node=4,billing=16,gres/gpu=8");
    let found = &world.cluster.topologies()[0];
    assert_eq!((topology::head(found).plugin.as_str(), &*topology::head(found).name), ("tree", "default"));
    let domains: Vec<v1::Domain> = found
        .fabric
        .facts()
        .iter()
        .map(|facts| topology::domain(&world.cluster, &found.fabric, facts))
        .collect();
    let shown: Vec<(&str, u32, u32, u32, u32)> = domains
        .iter()
        .map(|domain| {
            (&*domain.name, domain.level, domain.allocated_nodes, domain.free_nodes, domain.down_nodes)
        })
        .collect();
    assert_eq!(shown, [("s1", 0, 2, 0, 0), ("s2", 0, 0, 1, 1), ("top", 1, 2, 1, 1)]);
    assert_eq!((domains[2].children.as_str(), domains[2].nodes.as_str()), ("s[1-2]", "n[1-4]"));
}
