//! Chance that can be repeated.

/// A generator (splitmix64).
pub(crate) struct Chance(u64);

impl Chance {
    /// Seeded by `SPUR_E2E_SEED`, or by the clock; the seed is printed, so that a failure can be repeated as far as
    /// real processes can be.
    pub(crate) fn new() -> Self {
        let given = std::env::var("SPUR_E2E_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        let seed = given.unwrap_or_else(clock);
        println!("SPUR_E2E_SEED={seed}");
        Self(seed)
    }

    /// Seeded by a number.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
