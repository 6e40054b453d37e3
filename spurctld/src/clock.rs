//! The wall clock, read here and nowhere else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spur_core::text::time::Time;

/// The time now.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The time now in milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How long it is until the wall clock shows `at`; nothing if it does already.
pub(crate) fn until(at: Time) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Duration::from_secs(u64::try_from(at.0).unwrap_or(0));
    at.saturating_sub(since)
}
