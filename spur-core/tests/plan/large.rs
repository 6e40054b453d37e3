//! Plans of busy clusters with long queues, verified by the checker.

use std::sync::Arc;

use spur_core::model::config::Backfill;
use spur_core::sched::forecast::Limits;
use spur_core::sched::{self, Planner};

use crate::busy::{Busy, Kind};
use crate::checker;

/// Checks the plan of a busy cluster.
///
/// No node is overbooked at any second, every `must` is satisfied, and every job has a reason or a start. A
/// second run gives the same plan.
fn check(busy: Busy) {
    let world = busy.world();
    let mut planner = Planner::new(&world.cluster);
    let pass = planner.begin(&world.cluster, world.now);
    let plan = planner.finish(pass);
    let fabric = Arc::clone(world.cluster.fabric_of(&world.cluster.partitions()[0]).unwrap());
    let wrong = checker::violations(&world, &fabric, &plan, planner.reservations());
    assert!(wrong.is_empty(), "{busy:?}: {:?}", wrong.iter().take(5).collect::<Vec<_>>());
    assert_eq!(plan, sched::plan(&world.cluster, world.now, &Limits), "{busy:?}: a second run");
    if busy.backfill == Backfill::Conservative {
        let reserved = usize::try_from(plan.report.reserved).unwrap();
        assert_eq!(plan.starts.len() + reserved, usize::try_from(busy.jobs).unwrap(), "{busy:?}");
        assert_eq!(planner.reservations().len(), reserved, "{busy:?}");
    }
}

#[test]
fn busy_clusters_are_planned_soundly() {
    for kind in [Kind::Whole, Kind::Shared, Kind::Tasks] {
        for layers in [1, 3, 4] {
            check(Busy { layers, ..Busy::conservative(260, 200, kind) });
        }
        check(Busy { backfill: Backfill::Easy, ..Busy::conservative(260, 200, kind) });
    }
}

/// Sizes for which there is a time limit: `cargo test --release -p spur-core --test plan -- --ignored`.
#[test]
#[ignore = "large"]
fn large_clusters_are_planned_soundly() {
    for (jobs, kind) in [(10_000, Kind::Whole), (10_000, Kind::Shared), (100_000, Kind::Whole)] {
        check(Busy::conservative(10_000, jobs, kind));
    }
}
