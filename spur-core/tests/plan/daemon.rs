//! Comparison of two planners. One is driven as in a daemon, with quick passes during a deep pass, and the
//! other examines everything in each quick pass.

use std::fmt;

use proptest::prelude::*;
use spur_core::model::config::Backfill;
use spur_core::model::phase::Phase;
use spur_core::sched::plan::Start;
use spur_core::sched::{Pass, Planner};

use crate::history;
use crate::stream::{self, Case, Deed};
use crate::world::World;

/// Number of jobs that a slice of a deep pass examines.
const SLICE: u32 = 5;

/// Passes the events since the last call on to the planner.
pub(crate) fn tell(world: &mut World, planner: &mut Planner) {
    for event in world.take_log() {
        planner.note(&world.cluster, &event);
    }
}

/// True if the controller would still accept a start.
fn stands(world: &World, start: &Start) -> bool {
    let cluster = &world.cluster;
    let has = |start: &Start| {
        let Some(job) = cluster.job(start.attempt.job) else { return false };
        let same = matches!(&job.phase, Phase::Pending(pending) if pending.nominated.is_none())
            && job.attempt() == start.attempt
            && std::sync::Arc::ptr_eq(&job.spec, &start.spec)
            && cluster.more_tasks(job) != Some(0)
            && start
                .task
                .is_none_or(|task| job.array.as_ref().is_some_and(|part| part.tasks.contains(task.0)));
        let partition = cluster.partition(&start.partition);
        let up = partition.is_some_and(spur_core::cluster::Partition::starts);
        let fits = |part: &spur_core::sched::plan::StartPart| {
            let node = cluster.node(part.node).unwrap();
            let free = |(entry, count): &(u16, u32)| node.free_gres(usize::from(*entry)).len() >= *count;
            // The node may have been reserved by preemption since the pass began.
            node.available()
                && !cluster.kept(part.node, &[]).any
                && node.free_cpus().len() >= part.cpus
                && node.free_memory_mb() >= part.memory_mb
                && part.gres.iter().all(free)
                && (!start.exclusive || node.jobs.is_empty())
        };
        same && up && start.parts.iter().all(fits)
    };
    start.all().all(has)
}

/// Continues a deep pass and carries out its results.
fn deepen(world: &mut World, planner: &mut Planner, pass: &mut Option<Pass>, ends: bool) {
    let mut under_way = pass.take().unwrap_or_else(|| planner.begin(&world.cluster, world.now));
    under_way.advance(SLICE);
    let starts = if ends {
        planner.finish(under_way).starts
    } else {
        let starts = under_way.take_starts();
        *pass = Some(under_way);
        starts
    };
    for start in starts {
        if stands(world, &start) && world.cluster.reservations().next().is_none() {
            world.start(&start);
        }
        tell(world, planner);
    }
}

/// Action on the deep pass after a deed. A number below 2, one in three, begins a pass; a pass in progress
/// always continues. The flag is true if the pass ends at this step.
pub(crate) type Turn = (u8, bool);

#[derive(Clone)]
struct Driven {
    case: Case,
    deep: Vec<Turn>,
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        history::write(f, &self.case, Some(&self.deep))
    }
}

fn driven() -> impl Strategy<Value = Driven> {
    let backfill =
        prop_oneof![4 => Just(Backfill::Conservative), 1 => Just(Backfill::Easy), 1 => Just(Backfill::None)];
    let deep = prop::collection::vec((0_u8..6, prop::bool::ANY), 70);
    (stream::case(), backfill, deep).prop_map(|(mut case, backfill, deep)| {
        case.scheduler.backfill = backfill;
        Driven { case, deep }
    })
}

/// Checks that quick passes start, keep and promise the same as passes over everything.
pub(crate) fn agrees(case: &Case, deep: &[Turn]) -> Result<(), TestCaseError> {
    let mut world = case.world();
    let mut planner = Planner::new(&world.cluster);
    let grace = case.preempt.grace_time.0;
    let mut pass: Option<Pass> = None;
    tell(&mut world, &mut planner);
    for (step, (deed, (turn, ends))) in case.deeds.iter().zip(deep).enumerate() {
        stream::carry_out(&mut world, deed);
        tell(&mut world, &mut planner);
        if matches!(
            deed,
            Deed::Node(..)
                | Deed::Lose(_)
                | Deed::Replace
                | Deed::Partition(..)
                | Deed::Preempt(_)
                | Deed::Qos(_)
                | Deed::Suspend(..)
        ) {
            pass = None;
        }
        if *turn < 2 || pass.is_some() {
            deepen(&mut world, &mut planner, &mut pass, *ends);
        }
        let (cluster, now) = (&world.cluster, world.now);
        let (whole, reservations) = planner.start_now_slowly(cluster, now);
        let mut quick = planner.start_now(cluster, now);
        prop_assert_eq!(&quick.starts, &whole.starts, "at step {}: {:?}", step, deed);
        prop_assert_eq!(&quick.preemptions, &whole.preemptions, "at step {}: {:?}", step, deed);
        prop_assert_eq!(quick.promise, whole.promise, "at step {}: {:?}", step, deed);
        prop_assert_eq!(
            stream::reserved(planner.reservations()),
            stream::reserved(&reservations),
            "at step {}: {:?}",
            step,
            deed
        );
        if matches!(deed, Deed::Refuse) {
            quick.starts.truncate(quick.starts.len() / 2);
        }
        quick.starts.iter().for_each(|start| world.start(start));
        quick.preemptions.iter().for_each(|way| world.preempt(way, grace));
        if let Some((job, start)) = quick.promise {
            world.apply(spur_core::cluster::event::Event::StartPromised { job, start });
        }
        tell(&mut world, &mut planner);
    }
    Ok(())
}

proptest! {
    #[test]
    fn quick_passes_decide_as_if_they_looked_at_everything(driven in driven()) {
        agrees(&driven.case, &driven.deep)?;
    }
}
