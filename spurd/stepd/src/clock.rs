//! The clock of a step's life.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spur_core::compute::step::Now;

/// A clock that began when spurstepd received its order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_ms: millis(self.0.elapsed()), unix_ms: millis(unix) }
    }

    /// Returns the instant at which the steady clock shows this time, in milliseconds; `None` beyond the
    /// range of instants.
    pub(crate) fn at(self, steady_ms: u64) -> Option<Instant> {
        self.0.checked_add(Duration::from_millis(steady_ms))
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
