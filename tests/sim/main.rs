//! A whole cluster in one thread and no real time. It has the real controller core and nodes that follow the
//! protocol. The network loses, delays and duplicates messages, the disk forgets what was not synced, and
//! machines die at any moment.
//!
//! A run is a function of its seed, so a failure is a number: `SPUR_SIM_SEED=17 cargo test -p spur-tests
//! --test sim`. `SPUR_SIM_SEEDS=5000` runs more of them.

mod checks;
mod controller;
mod disk;
mod ledger;
mod limits;
mod node;
mod partition_cpus;
mod planner;
mod policy;
mod world;

use world::World;

/// Number of seeds of an ordinary run; each has a few dozen crashes.
const SEEDS: u64 = 24;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn every_acknowledged_job_ends_once_whatever_dies() {
    if let Some(seed) = number("SPUR_SIM_SEED") {
        let mut world = World::new(seed);
        world.run();
        println!("seed {seed}: {}", world.summary());
        return;
    }
    let mut totals = ledger::Totals::default();
    for seed in 0..number("SPUR_SIM_SEEDS").unwrap_or(SEEDS) {
        // A panic inside names the broken assertion; this names the seed that reproduces it.
        let told = Told(seed);
        let mut world = World::new(seed);
        world.run();
        totals.add(&world);
        std::mem::forget(told);
    }
    println!("{totals}");
    assert!(totals.power_cuts > 0 && totals.launches > 0, "the faults must have happened: {totals}");
    assert!(totals.het > 0, "some must have several components: {totals}");
    assert!(totals.suspensions > 0, "some must have been suspended: {totals}");
    assert!(totals.limited.tight > 0, "some must have used a limit up: {totals}");
    assert!(totals.limited.kinds.len() >= 18, "limits of most kinds are set: {:?}", totals.limited.kinds);
    assert!(totals.partition_cpus > 0, "some partitions must have used their CPUs of a node up: {totals}");
    assert!(totals.reported > 0, "some nodes must have been moved by their reports: {totals}");
    assert!(totals.preemptions > 0, "some must have made way for others: {totals}");
}

/// Prints the seed when it is dropped, which happens only if its run panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("run it again with SPUR_SIM_SEED={}", self.0);
    }
}
