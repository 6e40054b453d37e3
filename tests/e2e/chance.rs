//! Random numbers of a run, which can be repeated.

use spur_chance::Chance;

/// Random numbers seeded by `SPUR_E2E_SEED`, or by the clock. The seed is printed, so that a failure can be
/// repeated as far as real processes allow.
pub(crate) fn seeded() -> Chance {
    let given = std::env::var("SPUR_E2E_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let seed = given.unwrap_or_else(clock);
    println!("SPUR_E2E_SEED={seed}");
    Chance::new(seed)
}
