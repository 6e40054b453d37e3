//! Comparison of a planner that follows events with one that examines the whole cluster each time.

use std::fmt;
use std::sync::Arc;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use spur_core::cluster::event::Event;
use spur_core::id::{JobId, NodeId};
use spur_core::model::change::JobChange;
use spur_core::model::config::{
    AccountingEnforce, Backfill, Correct, Order, PartitionState, Policy, Predict, PreemptBy, PreemptPolicy,
    QosConfig, SchedulerPolicy,
};
use spur_core::model::job::JobSpec;
use spur_core::model::node::{Drain, NodeGres, NodeShape};
use spur_core::model::phase::{EndState, Hold, Outcome, Phase, Then};
use spur_core::model::reason::Reason;
use spur_core::model::reservation::Flag;
use spur_core::sched::forecast::Recent;
use spur_core::sched::{Planner, Reservation, Reservations, next_event_time};
use spur_core::text::array::TaskSet;
use spur_core::text::exit::ExitCode;
use spur_core::text::time::{Seconds, Time, TimeLimit};

use crate::history;
use crate::limits;
use crate::script;
use crate::world::{self, World};

const NODES: u32 = 8;

/// A random action. Numbers select among the existing jobs or nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Deed {
    Submit(Vec<String>),
    SubmitHet(Vec<Vec<String>>),
    /// Ends a running job immediately.
    End(usize),
    /// Begins to end a running job, whose processes are killed after this number of seconds.
    BeginEnd(usize, u64),
    /// Clears one node of an ending job.
    Clear(usize),
    Cancel(usize),
    Hold(usize),
    Release(usize),
    Requeue(usize),
    /// Suspends a running job; the flag is true if it continues as soon as possible.
    Suspend(usize, bool),
    /// Recalls the CPUs of a suspended job that are free, and continues the job if these are all.
    Recall(usize),
    /// Splits the first pending tasks of a record into a record of their own.
    Split(usize, usize),
    /// Changes the limit of running tasks of an array.
    Throttle(usize, u32),
    /// Changes the time limit of a pending or running job.
    Limit(usize, u64),
    Node(u32, u8),
    /// Sets the last node of a running job down, while the job continues without it.
    Lose(usize),
    /// Replaces lost nodes of running jobs by free nodes.
    Replace,
    Partition(usize, PartitionState),
    /// Changes the rule by which jobs preempt others.
    Preempt(PreemptBy),
    /// Configures the QOS without this number of the first ones.
    Qos(usize),
    Time(u64),
    /// Passes time without letting the controller end expired reservations.
    Late(u64),
    /// Reserves nodes: first and last node, seconds until the start, duration in seconds, and flags.
    Reserve(u32, u32, i64, u64, Vec<Flag>),
    /// Reserves licenses and perhaps nodes: first and last node, seconds until the start, duration in
    /// seconds, flags, and number of licenses.
    License(Option<(u32, u32)>, i64, u64, Vec<Flag>, u32),
    /// Deletes a reservation.
    Unreserve(usize),
    /// A limit is another, where limits are enforced.
    Sacctmgr(String),
    /// The next starts are refused.
    Refuse,
}

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) scheduler: SchedulerPolicy,
    pub(crate) preempt: PreemptPolicy,
    /// Seconds that a job of the QOS `low` runs before one of `high` may preempt it; `None` for no exemption.
    pub(crate) exempt: Option<u64>,
    /// First node, last node and tier of each partition.
    pub(crate) partitions: Vec<(u32, u32, u32)>,
    pub(crate) flat: bool,
    /// Largest job that a rule binds to a leaf, in nodes or tasks, and the number of seconds for which it
    /// does.
    pub(crate) rule: Option<(u32, u64)>,
    /// Number of adjacent leaves that a rule gives to other jobs; the flag is true if these leaves are
    /// exclusive.
    pub(crate) adjacent: Option<(u32, bool)>,
    /// Limits of accounts, users and QOS, which are enforced if there are any.
    pub(crate) limits: Vec<String>,
    pub(crate) deeds: Vec<Deed>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        history::write(f, self, None)
    }
}

fn words() -> impl Strategy<Value = Vec<String>> {
    let size = prop_oneof![
        4 => (1_u32..5).prop_map(|count| format!("-N {count}")),
        4 => (1_u32..12).prop_map(|count| format!("-n {count}")),
        1 => (1_u32..3).prop_map(|count| format!("-N {count} --ntasks-per-node 2")),
        1 => (1_u32..5).prop_map(|count| format!("--gpus {count}")),
        1 => Just("-N 1-3 -n 4".to_owned()),
        1 => Just("-N 1-3 -n 4 --use-min-nodes".to_owned()),
    ];
    let more = prop_oneof![
        8 => Just(String::new()),
        3 => Just("--exclusive".to_owned()),
        1 => Just("--exclusive=topo".to_owned()),
        1 => Just("-c 2".to_owned()),
        1 => Just("--mem 5".to_owned()),
        1 => Just("--gpus-per-task 1".to_owned()),
        1 => Just("-x n1".to_owned()),
        1 => Just("-w n2".to_owned()),
        1 => (0_u32..40).prop_map(|job| format!("--dependency afterany:{job}")),
        1 => (0_u32..40).prop_map(|job| format!("--dependency afterok:{job}")),
        3 => (0_u32..9, 1_u32..4).prop_map(|(last, step)| format!("--array 0-{last}:{step}")),
        2 => (0_u32..9, 1_u32..4).prop_map(|(last, limit)| format!("--array 0-{last}%{limit}")),
        1 => (0_u32..90).prop_map(|at| format!("--begin {at}")),
        1 => Just("--hold".to_owned()),
        2 => (1_u32..4).prop_map(|number| format!("--reservation r{number}")),
        2 => (1_u32..30).prop_map(|least| format!("--time-min {least}")),
        1 => (0_i32..900).prop_map(|nice| format!("--nice {nice}")),
        1 => (1_u32..40).prop_map(|job| format!("--gather-with {job}")),
        2 => (5_u32..60).prop_map(|wait| format!("--gather must:leaf@{wait}")),
        1 => Just("--gather must:leaf".to_owned()),
    ];
    let licenses = prop_oneof![5 => Just(""), 1 => Just("-L lic:1"), 1 => Just("-L lic:2")];
    let partition =
        prop_oneof![3 => Just("-p p0"), 1 => Just("-p p1"), 1 => Just("-p p0,p1"), 1 => Just("-p p2,p1")];
    let user = prop_oneof![Just("--user a"), Just("--user b")];
    let qos = prop_oneof![2 => Just(""), 2 => Just("-q low"), 1 => Just("-q middle"), 2 => Just("-q high")];
    (size, more, licenses, partition, user, qos, 1_u64..60).prop_map(|parts| {
        let (size, more, licenses, partition, user, qos, seconds) = parts;
        let line = format!("{size} {more} {licenses} {partition} {user} {qos} -t {seconds}");
        line.split_whitespace().map(str::to_owned).collect()
    })
}

fn flags() -> impl Strategy<Value = Vec<Flag>> {
    prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![Flag::Maint]),
        1 => Just(vec![Flag::Flex]),
        1 => Just(vec![Flag::Magnetic]),
        1 => Just(vec![Flag::Hourly]),
        1 => Just(vec![Flag::AnyNodes]),
        1 => Just(vec![Flag::Hourly, Flag::AnyNodes]),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    let at = || 0_usize..16;
    let state = prop_oneof![2 => Just(PartitionState::Up), 1 => Just(PartitionState::Down)];
    prop_oneof![
        12 => words().prop_map(Deed::Submit),
        1 => prop::collection::vec(words(), 2..4).prop_map(Deed::SubmitHet),
        8 => at().prop_map(Deed::End),
        2 => (at(), 0_u64..30).prop_map(|(job, wait)| Deed::BeginEnd(job, wait)),
        3 => at().prop_map(Deed::Clear),
        1 => at().prop_map(Deed::Cancel),
        1 => at().prop_map(Deed::Hold),
        1 => at().prop_map(Deed::Release),
        1 => at().prop_map(Deed::Requeue),
        2 => (at(), prop::bool::ANY).prop_map(|(job, wanted)| Deed::Suspend(job, wanted)),
        2 => at().prop_map(Deed::Recall),
        1 => (at(), 1_usize..4).prop_map(|(job, tasks)| Deed::Split(job, tasks)),
        1 => (at(), 0_u32..4).prop_map(|(job, limit)| Deed::Throttle(job, limit)),
        1 => (at(), 1_u64..90).prop_map(|(job, seconds)| Deed::Limit(job, seconds)),
        1 => (0..NODES, 0_u8..3).prop_map(|(node, state)| Deed::Node(node, state)),
        1 => at().prop_map(Deed::Lose),
        1 => Just(Deed::Replace),
        1 => (0_usize..3, state).prop_map(|(partition, state)| Deed::Partition(partition, state)),
        1 => prop_oneof![Just(PreemptBy::None), Just(PreemptBy::Partition), Just(PreemptBy::Qos)].prop_map(Deed::Preempt),
        1 => (0_usize..=3).prop_map(Deed::Qos),
        7 => (1_u64..25).prop_map(Deed::Time),
        1 => (1_u64..25).prop_map(Deed::Late),
        1 => (0..NODES, 0..NODES, -5_i64..40, 1_u64..50, flags())
            .prop_map(|(one, other, start, last, flags)| Deed::Reserve(one.min(other), one.max(other), start, last, flags)),
        1 => (prop::option::of((0..NODES, 0..NODES)), -5_i64..40, 1_u64..50, flags(), 1_u32..3)
            .prop_map(|(nodes, start, last, flags, count)| Deed::License(nodes, start, last, flags, count)),
        1 => at().prop_map(Deed::Unreserve),
        1 => limits::line().prop_map(Deed::Sacctmgr),
        1 => Just(Deed::Refuse),
    ]
}

fn scheduler() -> impl Strategy<Value = SchedulerPolicy> {
    let backfill =
        prop_oneof![5 => Just(Backfill::Easy), 1 => Just(Backfill::None), 1 => Just(Backfill::Conservative)];
    let order = prop::sample::select(vec![
        Order::Fcfs,
        Order::Sjf,
        Order::Saf,
        Order::Wfp3,
        Order::Unicep,
        Order::F1,
        Order::F4,
        Order::Multifactor,
    ]);
    let predict = prop_oneof![Just(Predict::Requested), Just(Predict::Recent2)];
    let correct = prop_oneof![Just(Correct::Request), Just(Correct::Incremental)];
    let depths = (prop_oneof![2 => Just(0), 1 => 2_u32..6], prop_oneof![4 => Just(0), 1 => 1_u32..4]);
    let max_wait = prop_oneof![2 => Just(0), 1 => 20_u64..60];
    (backfill, order, predict, correct, depths, max_wait).prop_map(
        |(backfill, order, predict, correct, (depth, depth_per_user), max_wait)| SchedulerPolicy {
            backfill,
            order,
            predict,
            correct,
            depth,
            depth_per_user,
            max_wait: Seconds(max_wait),
            priority_max_age: Seconds(50),
            ..SchedulerPolicy::default()
        },
    )
}

fn preempt() -> impl Strategy<Value = PreemptPolicy> {
    let by = prop_oneof![
        2 => Just(PreemptBy::None),
        2 => Just(PreemptBy::Partition),
        2 => Just(PreemptBy::Qos),
    ];
    let times = (prop_oneof![Just(0), 1_u64..20], prop_oneof![Just(0), 1_u64..20]);
    (by, times).prop_map(|(by, (grace_time, exempt_time))| PreemptPolicy {
        by,
        grace_time: Seconds(grace_time),
        exempt_time: Seconds(exempt_time),
        ..PreemptPolicy::default()
    })
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let partition = (0..NODES, 0..NODES, 0_u32..2);
    let partition = partition.prop_map(|(one, other, tier)| (one.min(other), one.max(other), tier));
    let partitions = prop_oneof![
        2 => Just(vec![(0, 7, 1), (0, 7, 1), (0, 7, 1)]),
        2 => Just(vec![(0, 4, 1), (5, 7, 1), (2, 4, 1)]),
        3 => Just(vec![(0, 4, 1), (0, 4, 2), (2, 7, 3)]),
        3 => prop::collection::vec(partition, 3),
    ];
    let deeds = prop::collection::vec(deed(), 1..70);
    let policy = (scheduler(), preempt(), prop::option::weighted(0.3, 0_u64..30));
    let rule = prop::option::weighted(0.3, (1_u32..6, 5_u64..60));
    let adjacent = prop::option::weighted(0.3, (1_u32..4, prop::bool::weighted(0.3)));
    let all = (policy, partitions, (prop::bool::ANY, rule, adjacent), limits::lines(), deeds);
    all.prop_map(|((scheduler, preempt, exempt), partitions, (flat, rule, adjacent), limits, deeds)| Case {
        scheduler,
        preempt,
        exempt,
        partitions,
        flat,
        rule,
        adjacent,
        limits,
        deeds,
    })
}

impl Case {
    pub(crate) fn world(&self) -> World {
        let gres = vec![NodeGres { name: "gpu".into(), kind: "".into(), count: 2 }];
        let shape = NodeShape { cpus: 4, memory_mb: 8, threads_per_core: 1, gres, ..NodeShape::default() };
        let nodes = (0..NODES).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let partition = |(index, (first, last, tier)): (usize, &(u32, u32, u32))| {
            let names = (*first..=*last).map(|node| Arc::from(format!("n{node}"))).collect();
            let mut partition = world::partition(&format!("p{index}"), names);
            partition.priority_tier = *tier;
            partition
        };
        let mut tree = "plugin = \"tree\"\nlayers = [\"leaf\", \"top\"]\n\
                    [[switches]]\nname = \"s0\"\nnodes = \"n[0-2]\"\n\
                    [[switches]]\nname = \"s1\"\nnodes = \"n[3-5]\"\n\
                    [[switches]]\nname = \"s2\"\nnodes = \"n[6-7]\"\n\
                    [[switches]]\nname = \"top\"\nswitches = \"s[0-2]\"\n"
            .to_owned();
        if let Some((most, seconds)) = self.rule {
            tree += &format!("[[rule]]\nmax_nodes = {most}\ngather = \"must:leaf@0:{seconds:02}\"\n");
        }
        if let Some((leaves, whole)) = self.adjacent {
            tree += &format!("[[rule]]\nadjacent = {leaves}\nwhole = {whole}\n");
        }
        let mut policy = Policy {
            nodes,
            partitions: self.partitions.iter().enumerate().map(partition).collect(),
            topologies: if self.flat { Vec::new() } else { vec![world::topology(&tree)] },
            licenses: vec![("lic".into(), 2)],
            scheduler: self.scheduler.clone(),
            preempt: self.preempt.clone(),
            qos: qualities(self.exempt),
            ..Policy::default()
        };
        if !self.limits.is_empty() {
            policy.jobs.accounting_enforce = vec![AccountingEnforce::Limits];
            policy.partitions[0].qos = Some("part".into());
        }
        let mut world = World::new(policy);
        self.limits.iter().for_each(|line| limits::set(&mut world, line));
        world
    }
}

/// A chain of three QOS, in which the first also preempts the last.
fn qualities(exempt: Option<u64>) -> Vec<QosConfig> {
    let qos = |name: &str, priority, preempt: &[&str]| {
        let preempt = preempt.iter().map(|name| Arc::from(*name)).collect();
        QosConfig { name: name.into(), priority, preempt, ..QosConfig::default() }
    };
    let low = QosConfig { exempt_time: exempt.map(Seconds), ..qos("low", 0, &[]) };
    vec![low, qos("middle", 5, &["low"]), qos("high", 9, &["middle", "low"])]
}

/// Jobs whose phase satisfies a predicate.
fn jobs(world: &World, which: impl Fn(&Phase) -> bool) -> Vec<JobId> {
    let all = world.cluster.jobs().iter();
    all.filter(|job| which(&job.phase)).map(|job| job.id).collect()
}

fn outcome(state: EndState) -> Outcome {
    Outcome { state, exit: ExitCode::default(), reason: Reason::None, by: None, detail: None }
}

fn reconfigure(world: &mut World, change: impl FnOnce(&mut Policy)) {
    let mut policy = Policy::clone(world.cluster.policy());
    change(&mut policy);
    world.apply(Event::PolicyChanged { policy: Arc::new(policy), keeps_edits: true });
}

fn recall(world: &mut World, job: JobId) {
    world.apply(Event::JobRecalled { job });
    let Phase::Suspended(suspended) = world.cluster.job(job).unwrap().phase.clone() else { return };
    let nominations = world.cluster.jobs().pending().filter_map(|job| match &job.phase {
        Phase::Pending(pending) => pending.nominated.clone(),
        _ => None,
    });
    let kept: Vec<NodeId> =
        nominations.flat_map(|kept| kept.parts.iter().map(|part| part.node).collect::<Vec<_>>()).collect();
    // Nodes kept for other jobs are not given back.
    for part in suspended.alloc.nodes.iter().filter(|part| !kept.contains(&part.node)) {
        let used = world.cluster.node(part.node).unwrap().used.cpus.clone();
        let cpus = part.cpus.difference(&used);
        if !cpus.is_empty() {
            world.apply(Event::CpusReturned { job, node: part.node, cpus });
        }
    }
    let phase = &world.cluster.job(job).unwrap().phase;
    if matches!(phase, Phase::Suspended(suspended) if suspended.is_whole()) {
        world.apply(Event::JobResumed { job });
    }
}

fn suspend(world: &mut World, deed: &Deed) {
    match deed {
        Deed::Suspend(at, wanted) => {
            let running = jobs(world, |phase| matches!(phase, Phase::Running { .. }));
            if let Some(job) = pick(&running, *at) {
                world.apply(Event::JobSuspended { job, wanted: *wanted });
            }
        }
        Deed::Recall(at) => {
            let suspended = jobs(world, |phase| matches!(phase, Phase::Suspended(_)));
            pick(&suspended, *at).into_iter().for_each(|job| recall(world, job));
        }
        _ => {}
    }
}

fn on_nodes(world: &mut World, deed: &Deed) {
    match deed {
        Deed::Node(node, state) => {
            let node = NodeId(*node);
            let drain =
                Drain { reason: "test".into(), by: "root".into(), at: world.now, until_mended: false };
            world.apply(match state {
                0 => Event::NodeDrained { node, drain },
                1 => Event::NodeDowned { node, reason: "test".into(), silent: false, by: None },
                _ => Event::NodeResumed { node },
            });
        }
        Deed::Lose(at) => {
            let several = |job: &JobId| {
                let alloc = world.cluster.job(*job).and_then(|job| job.phase.alloc());
                alloc.is_some_and(|alloc| alloc.nodes.len() > 1)
            };
            let jobs = jobs(world, |phase| matches!(phase, Phase::Running { .. }));
            let jobs: Vec<JobId> = jobs.into_iter().filter(several).collect();
            if let Some(job) = pick(&jobs, *at) {
                world.lose(job);
            }
        }
        Deed::Replace => world.replace(),
        _ => {}
    }
}

pub(crate) fn carry_out(world: &mut World, deed: &Deed) {
    let pick = |jobs: Vec<JobId>, at: usize| pick(&jobs, at);
    let pending = |world: &World| jobs(world, |phase| matches!(phase, Phase::Pending(_)));
    let running = |world: &World| jobs(world, |phase| matches!(phase, Phase::Running { .. }));
    match deed {
        Deed::Submit(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let job = world.cluster.next_job();
            world.submit(job, script::spec(&words));
        }
        Deed::SubmitHet(components) => submit_het(world, components),
        Deed::End(at) => pick(running(world), *at).into_iter().for_each(|job| world.end(job)),
        Deed::BeginEnd(at, wait) => {
            if let Some(job) = pick(running(world), *at) {
                let kill_at = (*wait > 0).then(|| world.now + *wait);
                let outcome = outcome(EndState::Failed);
                world.apply(Event::JobEnding {
                    job,
                    outcome,
                    then: Then::End,
                    kill_at,
                    epilog: false,
                    seen: None,
                });
            }
        }
        Deed::Clear(at) => {
            if let Some(job) = pick(jobs(world, |phase| matches!(phase, Phase::Completing(_))), *at) {
                clear(world, job);
            }
        }
        Deed::Cancel(at) => {
            if let Some(job) = pick(pending(world), *at) {
                world.apply(Event::JobEnded { job, outcome: outcome(EndState::Cancelled) });
            }
        }
        Deed::Hold(at) => {
            if let Some(job) = pick(pending(world), *at) {
                world.apply(Event::JobHeld { job, by: Hold::User });
            }
        }
        Deed::Release(at) => {
            if let Some(job) = pick(pending(world), *at) {
                world.apply(Event::JobReleased { job });
            }
        }
        Deed::Requeue(at) => pick(running(world), *at).into_iter().for_each(|job| requeue(world, job)),
        Deed::Suspend(..) | Deed::Recall(_) => suspend(world, deed),
        Deed::Split(at, count) => split(world, *at, *count),
        Deed::Throttle(at, limit) => throttle(world, *at, *limit),
        Deed::Limit(at, seconds) => limit(world, *at, *seconds),
        Deed::Node(..) | Deed::Lose(_) | Deed::Replace => on_nodes(world, deed),
        Deed::Partition(partition, state) => {
            let partition = Arc::from(format!("p{partition}"));
            world.apply(Event::PartitionSet { partition, state: *state });
        }
        Deed::Preempt(by) => reconfigure(world, |policy| policy.preempt.by = *by),
        Deed::Qos(gone) => reconfigure(world, |policy| policy.qos = qualities(None).split_off(*gone)),
        Deed::Time(seconds) => {
            world.now = world.now + *seconds;
            world.expire();
        }
        Deed::Late(seconds) => world.now = world.now + *seconds,
        Deed::Reserve(..) | Deed::License(..) | Deed::Unreserve(_) => reserve(world, deed),
        Deed::Sacctmgr(line) => {
            if world.cluster.accounts().has_begun() {
                limits::set(world, line);
            }
        }
        Deed::Refuse => {}
    }
}

fn submit_het(world: &mut World, components: &[Vec<String>]) {
    // Components have no tasks.
    let spec = |words: &Vec<String>| {
        let spec = script::spec(&words.iter().map(String::as_str).collect::<Vec<_>>());
        JobSpec { array: None, ..spec }
    };
    let job = world.cluster.next_job();
    world.submit_het(job, components.iter().map(spec).collect());
}

/// Changes the time limit of a pending or running job.
fn limit(world: &mut World, at: usize, seconds: u64) {
    let live = jobs(world, |phase| matches!(phase, Phase::Pending(_) | Phase::Running { .. }));
    let Some(job) = live.get(at % live.len().max(1)).copied() else { return };
    let spec = JobSpec::clone(&world.cluster.job(job).unwrap().spec);
    let spec = JobSpec { time_limit: TimeLimit::Seconds(seconds), ..spec };
    world.apply(Event::JobUpdated { job, spec: Arc::new(spec) });
}

/// Reserves nodes for some time, or deletes a reservation.
fn reserve(world: &mut World, deed: &Deed) {
    match deed {
        Deed::Reserve(first, last, start, seconds, flags) => {
            keep(world, Some((*first, *last)), (*start, *seconds), flags, 0);
        }
        Deed::License(nodes, start, seconds, flags, count) => {
            let nodes = nodes.map(|(one, other)| (one.min(other), one.max(other)));
            keep(world, nodes, (*start, *seconds), flags, *count);
        }
        Deed::Unreserve(at) => {
            let known = world.cluster.reservations();
            let names: Vec<Arc<str>> = known.map(|known| Arc::clone(&known.name)).collect();
            if let Some(name) = names.get(at % names.len().max(1)) {
                world.delete(name);
            }
        }
        _ => {}
    }
}

/// Reserves nodes from the first to the last, and licenses, from a number of seconds from now and for a
/// number of seconds.
fn keep(
    world: &mut World,
    nodes: Option<(u32, u32)>,
    (start, seconds): (i64, u64),
    flags: &[Flag],
    count: u32,
) {
    let name = format!("r{}", world.cluster.next_reservation());
    let start = Time(world.now.0 + start);
    let nodes = nodes.into_iter().flat_map(|(first, last)| first..=last).map(NodeId).collect();
    let mut made = world::reservation(&name, nodes, start, start + seconds, flags);
    made.licenses = (count > 0).then(|| ("lic".into(), count)).into_iter().collect();
    if made.end > world.now {
        world.apply(Event::ReservationCreated { reservation: Arc::new(made) });
    }
}

fn pick(jobs: &[JobId], at: usize) -> Option<JobId> {
    jobs.get(at % jobs.len().max(1)).copied()
}

/// Splits the first pending tasks of a record into a record of their own.
fn split(world: &mut World, at: usize, count: usize) {
    let groups = world.cluster.jobs().pending().filter(|job| job.task_count() > count);
    let groups: Vec<JobId> = groups.map(|job| job.id).collect();
    let Some(job) = pick(&groups, at) else { return };
    let part = world.cluster.job(job).unwrap().array.as_ref();
    let tasks: TaskSet = part.iter().flat_map(|part| part.tasks.iter()).take(count).collect();
    if !tasks.is_empty() {
        world.split(job, &tasks);
    }
}

/// Changes the limit of running tasks of an array.
fn throttle(world: &mut World, at: usize, limit: u32) {
    let arrays: Vec<JobId> = world.cluster.jobs().arrays().map(|(id, _)| id).collect();
    let Some(array) = pick(&arrays, at) else { return };
    let records: Vec<JobId> = world.cluster.jobs().array(array).unwrap().records().collect();
    for job in records {
        let mut spec = JobSpec::clone(&world.cluster.job(job).unwrap().spec);
        JobChange::ArrayTaskThrottle(limit).make(&mut spec);
        world.apply(Event::JobUpdated { job, spec: Arc::new(spec) });
    }
}

/// Ends a job immediately and requeues it.
fn requeue(world: &mut World, job: JobId) {
    let then = Then::Requeue { hold: None };
    world.apply(Event::JobEnding {
        job,
        outcome: outcome(EndState::Failed),
        then,
        kill_at: None,
        epilog: false,
        seen: None,
    });
    while clear(world, job) {}
}

/// Clears one node of an ending job. The last node finishes the job.
fn clear(world: &mut World, job: JobId) -> bool {
    let Phase::Completing(completing) = world.cluster.job(job).unwrap().phase.clone() else { return false };
    let Some(node) = completing.waiting.first() else { return false };
    world.apply(Event::NodeReleased { job, node: *node, lost: false });
    if completing.waiting.len() == 1 {
        world.apply(match completing.then {
            Then::End => Event::JobEnded { job, outcome: completing.outcome },
            Then::Requeue { hold } => Event::JobRequeued { job, not_before: None, hold },
        });
    }
    true
}

/// Reservations planned for later, one line for each job.
pub(crate) fn reserved(reservations: &Reservations) -> Vec<String> {
    let one = |made: &Arc<Reservation>| {
        let amounts: Vec<_> = made.amounts().collect();
        format!("{} {:?} {:?} {} {amounts:?}", made.job, made.start, made.end, made.partition)
    };
    let mut all: Vec<String> = reservations.iter().map(one).collect();
    all.sort();
    all
}

/// Checks that passes over the changes give the same result as passes over everything, after every action.
pub(crate) fn agrees(case: &Case) -> Result<(), TestCaseError> {
    let mut world = case.world();
    let mut planner = Planner::new(&world.cluster);
    let mut recent = Recent::new(&world.cluster);
    let grace = case.preempt.grace_time.0;
    world.take_log();
    for (step, deed) in case.deeds.iter().enumerate() {
        carry_out(&mut world, deed);
        for event in world.take_log() {
            recent.note(&world.cluster, &event);
            planner.note(&world.cluster, &event);
        }
        let (cluster, now) = (&world.cluster, world.now);
        if case.limits.is_empty() {
            prop_assert_eq!(planner.next_event_time(cluster, now), next_event_time(cluster, now));
        }
        let mut new = Planner::after(cluster, &planner);
        let whole = new.plan(cluster, now, &recent);
        let mut quick = planner.starts(cluster, now, &recent);
        prop_assert_eq!(&quick.starts, &whole.starts, "at step {}: {:?}", step, deed);
        prop_assert_eq!(&quick.preemptions, &whole.preemptions, "at step {}: {:?}", step, deed);
        prop_assert_eq!(quick.promise, whole.promise, "at step {}: {:?}", step, deed);
        let kept = reserved(planner.reservations());
        prop_assert_eq!(kept, reserved(new.reservations()), "at step {}: {:?}", step, deed);
        if step % 3 == 0 {
            let again = Planner::after(cluster, &planner).plan(cluster, now, &recent);
            prop_assert_eq!(planner.plan(cluster, now, &recent), again, "at step {}: {:?}", step, deed);
        }
        if case.limits.is_empty() {
            prop_assert_eq!(planner.next_event_time(cluster, now), next_event_time(cluster, now));
        } else if case.scheduler.predict == Predict::Requested {
            limits::are_planned_for(&world, &whole, new.reservations());
        }
        if matches!(deed, Deed::Refuse) {
            quick.starts.truncate(quick.starts.len() / 2);
        }
        for start in &quick.starts {
            limits::let_start(&world, start);
            world.start(start);
        }
        let wrong = spur_core::cluster::invariant::violations(&world.cluster);
        prop_assert!(wrong.is_empty(), "at step {}: {:?}", step, wrong);
        quick.preemptions.iter().for_each(|way| world.preempt(way, grace));
        if let Some((job, start)) = quick.promise {
            world.apply(Event::StartPromised { job, start });
        }
        for event in world.take_log() {
            recent.note(&world.cluster, &event);
            planner.note(&world.cluster, &event);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_kept_planner_is_as_good_as_a_new_one(case in case()) {
        agrees(&case)?;
    }
}
