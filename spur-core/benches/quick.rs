//! The time of a quick pass after one change, for several lengths of the queue.
//!
//! `cargo bench -p spur-core --bench quick` runs the bench. The cluster has 1,000 nodes in leaves of 20, a
//! running job on each node, and EASY backfill. The first waiting job requests 900 whole nodes, the others
//! from 1 to 16. The kinds of sites differ from this in one respect at most.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/plan/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use std::cell::RefCell;
use std::sync::Arc;

use spur_core::cluster::event::Event;
use spur_core::id::{JobId, NodeId};
use spur_core::model::config::{
    Backfill, Order, PartitionConfig, Policy, PreemptBy, PreemptPolicy, SchedulerPolicy,
};
use spur_core::model::job::{JobSpec, Shape, Sharing};
use spur_core::model::node::NodeShape;
use spur_core::model::phase::{EndState, Outcome};
use spur_core::model::reason::Reason;
use spur_core::model::reservation::Flag;
use spur_core::sched::Planner;
use spur_core::text::exit::ExitCode;
use spur_core::text::nodes::NodeCount;
use world::World;

const NODES: u32 = 1_000;
const QUEUES: [u32; 3] = [1_000, 10_000, 100_000];

fn main() {
    divan::main();
}

/// The configuration of the site.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fcfs,
    Multifactor,
    /// Conservative backfill, in which every waiting job has a reservation.
    Conservative,
    /// A second partition of a higher tier, whose jobs preempt those of the first.
    Tiers,
    /// A tenth of the nodes are reserved for maintenance tomorrow.
    Reserved,
    /// The head is a het job of two components.
    Het,
}

/// A busy cluster, and a planner that follows its events.
struct Site {
    world: World,
    planner: Planner,
    /// The running jobs; the last one ends next.
    running: Vec<JobId>,
    /// The job that was last submitted to the second partition.
    urgent: Option<JobId>,
}

fn whole(nodes: u32, seconds: u64) -> JobSpec {
    let nodes = Some(NodeCount::exactly(nodes));
    world::spec(Shape { nodes, sharing: Sharing::Exclusive, ..Shape::default() }, seconds)
}

fn policy(kind: Kind) -> Policy {
    let shape = NodeShape { cpus: 64, threads_per_core: 1, ..NodeShape::default() };
    let names: Vec<Arc<str>> = (0..NODES).map(|index| Arc::from(format!("n{index:03}"))).collect();
    let leaves = (0..NODES / 20).map(|leaf| {
        let (first, last) = (leaf * 20, leaf * 20 + 19);
        format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first:03}-{last:03}]\"\n")
    });
    let toml: String = leaves.collect();
    let toml = format!(
        "plugin = \"tree\"\n{toml}[[switches]]\nname = \"top\"\nswitches = \"l[0-{}]\"\n",
        NODES / 20 - 1
    );
    let order = if kind == Kind::Multifactor { Order::Multifactor } else { Order::Fcfs };
    let backfill = if kind == Kind::Conservative { Backfill::Conservative } else { Backfill::Easy };
    let by = if kind == Kind::Tiers { PreemptBy::Partition } else { PreemptBy::None };
    let urgent = PartitionConfig { priority_tier: 2, ..world::partition("urgent", names.clone()) };
    Policy {
        nodes: names.iter().map(|name| world::node(name, shape.clone(), 1)).collect(),
        partitions: std::iter::once(world::partition("main", names))
            .chain((kind == Kind::Tiers).then_some(urgent))
            .collect(),
        topologies: vec![world::topology(&toml)],
        scheduler: SchedulerPolicy { order, backfill, depth: 0, ..SchedulerPolicy::default() },
        preempt: PreemptPolicy { by, ..PreemptPolicy::default() },
        ..Policy::default()
    }
}

impl Site {
    fn new(kind: Kind, jobs: u32) -> Self {
        let mut world = World::new(policy(kind));
        let mut running = Vec::new();
        for node in 0..NODES {
            let job = world.cluster.next_job();
            world.submit(job, whole(1, 3_600 + u64::from(node % 700) * 60));
            world.put(job, &[NodeId(node)], 0);
            running.push(job);
        }
        if kind == Kind::Reserved {
            let nodes = (0..NODES / 10).map(NodeId).collect();
            let (start, end) = (world.now + 86_400, world.now + 2 * 86_400);
            let reservation = world::reservation("service", nodes, start, end, &[Flag::Maint]);
            world.apply(Event::ReservationCreated { reservation: Arc::new(reservation) });
        }
        for index in 0..jobs {
            let job = world.cluster.next_job();
            if index == 0 && kind == Kind::Het {
                world.submit_het(job, vec![whole(450, 600), whole(450, 600)]);
                continue;
            }
            let nodes = if index == 0 { 900 } else { 1 + index * 7 % 16 };
            world.submit(job, whole(nodes, 600 + u64::from(index % 97) * 600));
        }
        let mut planner = Planner::new(&world.cluster);
        world.take_log();
        if kind == Kind::Conservative {
            let pass = planner.begin(&world.cluster, world.now);
            let plan = planner.finish(pass);
            assert!(plan.starts.is_empty(), "no node is free");
        }
        assert!(planner.start_now(&world.cluster, world.now).starts.is_empty(), "no node is free");
        Self { world, planner, running, urgent: None }
    }

    fn tell(&mut self) {
        for event in self.world.take_log() {
            self.planner.note(&self.world.cluster, &event);
        }
    }

    /// Submits a job that is larger than the number of free nodes.
    fn arrive(&mut self) {
        let job = self.world.cluster.next_job();
        self.world.submit(job, whole(4, 900));
        self.tell();
    }

    /// Submits a job that preempts others, after cancelling the one of the call before. No victim of that
    /// job has ended.
    fn press(&mut self) {
        if let Some(job) = self.urgent.take() {
            let (exit, reason) = (ExitCode::default(), Reason::None);
            let outcome = Outcome { state: EndState::Cancelled, exit, reason, by: None, detail: None };
            self.world.apply(Event::JobEnded { job, outcome });
            self.tell();
            self.pass();
        }
        let job = self.world.cluster.next_job();
        self.world.submit(job, JobSpec { partitions: Box::from(["urgent".into()]), ..whole(4, 900) });
        self.urgent = Some(job);
        self.tell();
    }

    /// Ends a running job, which frees its node.
    fn end(&mut self) {
        let job = self.running.pop().expect("there are fewer samples than jobs");
        self.world.end(job);
        self.tell();
    }

    fn pass(&mut self) {
        let plan = self.planner.start_now(&self.world.cluster, self.world.now);
        plan.starts.iter().for_each(|start| self.world.start(start));
    }
}

fn measure(bencher: divan::Bencher<'_, '_>, kind: Kind, jobs: u32, happens: fn(&mut Site)) {
    let site = RefCell::new(Site::new(kind, jobs));
    bencher.with_inputs(|| happens(&mut site.borrow_mut())).bench_local_values(|()| site.borrow_mut().pass());
}

/// Defines the benches of one kind of site: one for each named change.
macro_rules! site {
    ($name:ident, $kind:expr, $($what:ident = $happens:expr),+) => {
        mod $name {
            use super::*;

            $(
                #[divan::bench(args = QUEUES, sample_count = 100, sample_size = 1)]
                fn $what(bencher: divan::Bencher<'_, '_>, jobs: u32) {
                    measure(bencher, $kind, jobs, $happens);
                }
            )+
        }
    };
}

site!(fcfs, Kind::Fcfs, a_job_arrives = Site::arrive, a_job_ends = Site::end);
site!(multifactor, Kind::Multifactor, a_job_arrives = Site::arrive);
site!(conservative, Kind::Conservative, a_job_arrives = Site::arrive, a_job_ends = Site::end);
site!(
    tiers,
    Kind::Tiers,
    a_job_arrives = Site::arrive,
    one_arrives_that_others_leave_for = Site::press,
    a_job_ends = Site::end
);
site!(reserved, Kind::Reserved, a_job_arrives = Site::arrive, a_job_ends = Site::end);
site!(het, Kind::Het, a_job_arrives = Site::arrive, a_job_ends = Site::end);
