//! Defragmentation against brute force on four leaves of four nodes: every set of jobs, every domain, every
//! order of moves and every way to spread the moved jobs over leaves.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use spur_core::cluster::event::Event;
use spur_core::cluster::invariant;
use spur_core::id::{BlobId, JobId, NodeId};
use spur_core::model::config::Policy;
use spur_core::model::job::{Batch, FabricAsk, JobSpec, Shape, Sharing};
use spur_core::model::node::NodeShape;
use spur_core::model::phase::{EndState, Outcome, Then};
use spur_core::model::reason::Reason;
use spur_core::sched::Planner;
use spur_core::sched::defrag::{Finding, MovePlan, defragment};
use spur_core::sched::forecast::Limits;
use spur_core::text::exit::ExitCode;
use spur_core::text::nodes::NodeCount;

use crate::world::{self, World};

const LEAVES: usize = 4;
const SIZE: usize = 4;
/// The time at which moves are asked for, seconds.
const NOW: u64 = 100;
/// The time limit of jobs that run, seconds.
const LIMIT: u64 = 600;

#[derive(Clone, Debug)]
struct Running {
    /// The nodes that the job gets, as far as they are idle when it starts.
    nodes: BTreeSet<u32>,
    requeue: bool,
    /// True if one leaf has to hold the job.
    gathered: bool,
    started: u64,
    checkpoint: Option<u64>,
}

#[derive(Clone, Debug)]
struct Case {
    running: Vec<Running>,
    /// Nodes and time limit of a job at the head of the queue, to which a start is promised.
    head: Option<(u32, u64)>,
    /// Nodes and time limit of the request.
    wanted: (u32, u64),
}

fn case() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::btree_set(0_u32..16, 1..4);
    let near = (0_u32..16, 1_u32..4).prop_map(|(first, count)| (first..(first + count).min(16)).collect());
    let nodes = prop_oneof![nodes, near];
    let times = (0..NOW, prop::option::weighted(0.3, 0..NOW));
    let running = (nodes, prop::bool::weighted(0.7), prop::bool::weighted(0.3), times).prop_map(
        |(nodes, requeue, gathered, (started, checkpoint))| Running {
            nodes,
            requeue,
            gathered,
            // Equal times make plans that differ in the number of moves or the waste alone.
            started: started / 25 * 25,
            checkpoint: checkpoint.map(|at| at / 20 * 20).filter(|at| *at >= started),
        },
    );
    let head = prop::option::weighted(0.3, (8_u32..17, 100_u64..900));
    (prop::collection::vec(running, 3..9), head, (2_u32..5, 100_u64..900))
        .prop_map(|(running, head, wanted)| Case { running, head, wanted })
}

fn spec(nodes: u32, seconds: u64, gathered: bool, requeue: bool) -> JobSpec {
    let shape =
        Shape { nodes: Some(NodeCount::exactly(nodes)), sharing: Sharing::Exclusive, ..Shape::default() };
    let gather = gathered.then(|| "must:leaf".parse().unwrap());
    JobSpec {
        fabric: Some(Box::new(FabricAsk { gather, ..FabricAsk::default() })),
        requeue,
        batch: Some(Box::new(Batch::plain(BlobId(0), BlobId(0)))),
        ..world::spec(shape, seconds)
    }
}

impl Case {
    /// The cluster, the jobs that run, and the request.
    fn world(&self) -> (World, Vec<(JobId, &Running)>, JobId) {
        let shape = NodeShape { cpus: 4, memory_mb: 8, threads_per_core: 1, ..NodeShape::default() };
        let nodes: Vec<_> =
            (0..LEAVES * SIZE).map(|index| world::node(&format!("n{index}"), shape.clone(), 1)).collect();
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let mut toml = "plugin = \"tree\"\nlayers = [\"leaf\", \"spine\"]\n".to_owned();
        for leaf in 0..LEAVES {
            let (first, last) = (leaf * SIZE, leaf * SIZE + SIZE - 1);
            toml += &format!("[[switches]]\nname = \"l{leaf}\"\nnodes = \"n[{first}-{last}]\"\n");
        }
        toml += "[[switches]]\nname = \"s\"\nswitches = \"l[0-3]\"\n";
        let policy = Policy {
            nodes,
            partitions: vec![world::partition("main", names)],
            topologies: vec![world::topology(&toml)],
            ..Policy::default()
        };
        let mut world = World::new(policy);
        let mut order: Vec<&Running> = self.running.iter().collect();
        order.sort_by_key(|running| running.started);
        let mut running: Vec<(JobId, &Running)> = Vec::new();
        for one in order {
            report(&mut world, &running, one.started);
            world.now.0 = i64::try_from(one.started).unwrap();
            let idle = |node: &u32| world.cluster.node(NodeId(*node)).unwrap().idle();
            let mut nodes: Vec<NodeId> = one.nodes.iter().copied().filter(idle).map(NodeId).collect();
            if one.gathered {
                let leaf = nodes.first().map(|node| node.index() / SIZE);
                nodes.retain(|node| Some(node.index() / SIZE) == leaf);
            }
            if nodes.is_empty() {
                continue;
            }
            let job = world.cluster.next_job();
            let count = u32::try_from(nodes.len()).unwrap();
            world.submit(job, spec(count, LIMIT, one.gathered, one.requeue));
            world.put(job, &nodes, 0);
            running.push((job, one));
        }
        report(&mut world, &running, NOW);
        world.now.0 = i64::try_from(NOW).unwrap();
        if let Some((nodes, seconds)) = self.head {
            let job = world.cluster.next_job();
            world.submit(job, spec(nodes, seconds, false, false));
        }
        let job = world.cluster.next_job();
        world.submit(job, spec(self.wanted.0, self.wanted.1, true, false));
        (world, running, job)
    }
}

/// Reports the checkpoints that lie between the world's time and `until`.
fn report(world: &mut World, running: &[(JobId, &Running)], until: u64) {
    let due = |at: &u64| (world.now.0..i64::try_from(until).unwrap()).contains(&i64::try_from(*at).unwrap());
    let due = running.iter().filter_map(|(job, one)| Some((one.checkpoint.filter(due)?, *job)));
    let mut due: Vec<(u64, JobId)> = due.collect();
    due.sort_unstable();
    for (at, job) in due {
        world.now.0 = i64::try_from(at).unwrap();
        world.apply(Event::JobCheckpointed { job });
    }
}

/// A running job that may move, for brute force.
struct Piece {
    nodes: Vec<usize>,
    gathered: bool,
    lost: u64,
}

/// Node-seconds lost, moves, and waste.
type Price = (u64, usize, u64);

/// The least that any set of moves costs.
struct BruteForce<'a> {
    pieces: &'a [Piece],
    /// Nodes on which no job runs or is about to start.
    free: [bool; 16],
    /// Nodes that are planned for others while the request would run, and while a moved job would run.
    planned: [[bool; 16]; 2],
    wanted: u64,
}

impl BruteForce<'_> {
    fn best(&self) -> Option<Price> {
        let mut best: Option<Price> = None;
        for set in 0_u32..1 << self.pieces.len() {
            let moved: Vec<&Piece> =
                (0..self.pieces.len()).filter(|at| set & 1 << at != 0).map(|at| &self.pieces[at]).collect();
            let mut free = self.free;
            moved.iter().flat_map(|piece| &piece.nodes).for_each(|node| free[*node] = true);
            for leaf in 0..LEAVES {
                let here = leaf * SIZE..(leaf + 1) * SIZE;
                let room = here.filter(|node| free[*node] && !self.planned[0][*node]).count() as u64;
                let price = (
                    moved.iter().map(|piece| piece.lost).sum(),
                    moved.len(),
                    room.saturating_sub(self.wanted),
                );
                let better = best.is_none_or(|best| price < best);
                if room >= self.wanted && better && self.relocates(&moved, leaf) {
                    best = Some(price);
                }
            }
        }
        best
    }

    /// True if jobs can move out of a leaf one after another in some order.
    fn relocates(&self, moved: &[&Piece], leaf: usize) -> bool {
        let mut room = [0_usize; LEAVES];
        for node in (0..16).filter(|node| self.free[*node]) {
            self.open(&mut room, node, leaf);
        }
        self.turn(moved, 0, room, leaf, &mut BTreeSet::new())
    }

    /// Counts a free node in the room of its leaf, unless the leaf is to be cleared or the node is planned
    /// for others.
    fn open(&self, room: &mut [usize; LEAVES], node: usize, leaf: usize) {
        if node / SIZE != leaf && !self.planned[1][node] {
            room[node / SIZE] += 1;
        }
    }

    fn turn(
        &self,
        moved: &[&Piece],
        done: u32,
        room: [usize; LEAVES],
        leaf: usize,
        seen: &mut BTreeSet<(u32, [usize; LEAVES])>,
    ) -> bool {
        if done.count_ones() as usize == moved.len() {
            return true;
        }
        if !seen.insert((done, room)) {
            return false;
        }
        (0..moved.len()).filter(|at| done & 1 << at == 0).any(|at| {
            let piece = moved[at];
            let mut room = room;
            piece.nodes.iter().for_each(|node| self.open(&mut room, *node, leaf));
            spreads(piece.nodes.len(), room, piece.gathered)
                .into_iter()
                .any(|room| self.turn(moved, done | 1 << at, room, leaf, seen))
        })
    }
}

/// The nodes left on the leaves, for every way to take `nodes` nodes of them.
fn spreads(nodes: usize, room: [usize; LEAVES], gathered: bool) -> Vec<[usize; LEAVES]> {
    fn spread(nodes: usize, at: usize, room: [usize; LEAVES], found: &mut Vec<[usize; LEAVES]>) {
        if nodes == 0 {
            found.push(room);
            return;
        }
        if at == LEAVES {
            return;
        }
        for taken in 0..=nodes.min(room[at]) {
            let mut left = room;
            left[at] -= taken;
            spread(nodes - taken, at + 1, left, found);
        }
    }
    let mut found = Vec::new();
    if gathered {
        for at in (0..LEAVES).filter(|at| room[*at] >= nodes) {
            let mut left = room;
            left[at] -= nodes;
            found.push(left);
        }
    } else {
        spread(nodes, 0, room, &mut found);
    }
    found
}

/// The least price of moves that brute force finds; `None` if no moves let the request start.
fn brute_force(case: &Case, world: &World, running: &[(JobId, &Running)], request: JobId) -> Option<Price> {
    let mut planner = Planner::new(&world.cluster);
    let plan = planner.plan(&world.cluster, world.now, &Limits);
    let mut free = [false; 16];
    for (node, free) in (0..).map(NodeId).zip(&mut free) {
        *free = world.cluster.node(node).unwrap().idle();
    }
    let others = plan.starts.iter().filter(|start| start.attempt.job != request);
    others.flat_map(|start| &start.parts).for_each(|part| free[part.node.index()] = false);
    let mut planned = [[false; 16]; 2];
    for (window, planned) in [case.wanted.1, LIMIT].into_iter().zip(&mut planned) {
        let later = planner.reservations().iter();
        for made in later.filter(|made| made.job != request && made.start < world.now + window) {
            made.amounts().for_each(|(node, _)| planned[node.index()] = true);
        }
    }
    let piece = |(job, one): &(JobId, &Running)| {
        let job = world.cluster.job(*job).unwrap();
        let nodes: Vec<usize> =
            job.phase.alloc().unwrap().nodes.iter().map(|part| part.node.index()).collect();
        let since = one.checkpoint.unwrap_or(one.started).max(one.started);
        Piece { lost: (NOW - since) * nodes.len() as u64, nodes, gathered: one.gathered }
    };
    let pieces: Vec<Piece> = running.iter().filter(|(_, one)| one.requeue).map(piece).collect();
    BruteForce { pieces: &pieces, free, planned, wanted: u64::from(case.wanted.0) }.best()
}

/// Ends an attempt at once, and lets the job wait again.
fn requeue(world: &mut World, job: JobId) {
    let nodes: Vec<NodeId> = {
        let alloc = world.cluster.job(job).unwrap().phase.alloc().unwrap();
        alloc.nodes.iter().map(|part| part.node).collect()
    };
    let outcome = Outcome {
        state: EndState::Preempted,
        exit: ExitCode::default(),
        reason: Reason::None,
        by: None,
        detail: None,
    };
    let then = Then::Requeue { hold: None };
    world.apply(Event::JobEnding { job, outcome, then, kill_at: None, epilog: false, seen: None });
    for node in nodes {
        world.apply(Event::NodeReleased { job, node, lost: false });
    }
    world.apply(Event::JobRequeued { job, not_before: None, hold: None });
}

/// Makes the moves of a plan one after another, starts the request, and compares the starts that were planned
/// before.
fn carry_out(world: &World, plan: &MovePlan, request: JobId) -> Result<(), TestCaseError> {
    let before = spur_core::sched::plan(&world.cluster, world.now, &Limits);
    let mut world = world.clone();
    for moved in &plan.moves {
        requeue(&mut world, moved.start.attempt.job);
        world.start(&moved.start);
        let wrong = invariant::violations(&world.cluster);
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }
    let leaves: BTreeSet<usize> = plan.start.parts.iter().map(|part| part.node.index() / SIZE).collect();
    prop_assert_eq!(leaves.len(), 1, "one leaf holds the request");
    world.start(&plan.start);
    let after = spur_core::sched::plan(&world.cluster, world.now, &Limits);
    for promised in before.waiting.iter().filter(|waiting| waiting.start.is_some() && waiting.job != request)
    {
        let starts = after.starts.iter().any(|start| start.attempt.job == promised.job);
        let later =
            after.waiting.iter().find(|waiting| waiting.job == promised.job).and_then(|now| now.start);
        prop_assert!(
            starts || later.is_some_and(|later| later <= promised.start.unwrap()),
            "job {} was planned for {:?}, and is now for {later:?}",
            promised.job,
            promised.start
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_cheaper_moves_exist(case in case()) {
        let (world, running, request) = case.world();
        let wanted = brute_force(&case, &world, &running, request);
        let found = defragment(&world.cluster, world.now, Some(request), None);
        let found = found.map_err(|why| TestCaseError::fail(why.to_string()))?;
        match &found.finding {
            Finding::Fits(..) => prop_assert_eq!(wanted.map(|(lost, moves, _)| (lost, moves)), Some((0, 0))),
            Finding::Nothing => prop_assert_eq!(wanted, None),
            Finding::Moves(plan) => {
                prop_assert_eq!(Some((plan.lost(), plan.moves.len(), plan.waste)), wanted, "{:?}", plan);
                carry_out(&world, plan, request)?;
            }
        }
    }
}
