//! The cluster's clock, which dates entries and counts durations, and its offset from the wall clock.
//!
//! The clock advances with the kernel's clock since boot, whatever is done to the wall clock. It continues so
//! after a restart of the controller. After a reboot or on another host it continues by the wall clock, but
//! never goes back. Times that people write and read are wall-clock times: [`Clock::own`] and [`Clock::wall`]
//! convert them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::time::Time;

/// Milliseconds by which the wall clock may deviate from its known offset before the offset is updated.
/// Offsets are whole seconds.
const SLACK_MS: i64 = 1_000;

/// The cluster's clock; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Seconds by which the wall clock is ahead of the cluster's clock.
    pub ahead: i64,
    /// The boot id of the controller's host, by whose clock since boot the cluster's clock advances.
    pub boot: Arc<str>,
    /// Milliseconds to add to the time since that boot.
    pub base_ms: i64,
}

/// The readings of a host's clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The boot id of the host.
    pub boot: Arc<str>,
    /// Milliseconds since that boot.
    pub since_boot_ms: i64,
    /// Milliseconds since the Unix epoch by the host's wall clock.
    pub wall_ms: i64,
}

impl Clock {
    /// The cluster's time in milliseconds, from the milliseconds since boot.
    #[must_use]
    pub fn own_ms(&self, since_boot_ms: i64) -> i64 {
        since_boot_ms.saturating_add(self.base_ms)
    }

    /// The wall-clock time of a time of the cluster's clock.
    #[must_use]
    pub fn wall(&self, own: Time) -> Time {
        Time(own.0.saturating_add(self.ahead))
    }

    /// The time of the cluster's clock for a wall-clock time.
    #[must_use]
    pub fn own(&self, wall: Time) -> Time {
        Time(wall.0.saturating_sub(self.ahead))
    }

    /// The clock of a controller that starts on a journal with its last entry at `last`. Time without a
    /// controller counts.
    #[must_use]
    pub fn resumed(&self, last: Time, shown: &Shown) -> Clock {
        let last_ms = last.0.saturating_mul(1_000);
        let goes_on = self.boot == shown.boot && self.own_ms(shown.since_boot_ms) >= last_ms;
        let base_ms = if goes_on {
            self.base_ms
        } else {
            let without = shown.wall_ms.saturating_sub(self.wall(last).0.saturating_mul(1_000)).max(0);
            last_ms.saturating_add(without).saturating_sub(shown.since_boot_ms)
        };
        let resumed = Clock { base_ms, boot: Arc::clone(&shown.boot), ahead: self.ahead };
        resumed.corrected(shown).unwrap_or(resumed)
    }

    /// The clock of a controller that takes over from another host, at the cluster's time `own_ms`, on a
    /// journal with its last entry at `last`. The clock never goes back.
    #[must_use]
    pub fn continued(&self, last: Time, own_ms: i64, shown: &Shown) -> Clock {
        let own_ms = own_ms.max(last.0.saturating_mul(1_000));
        let base_ms = own_ms.saturating_sub(shown.since_boot_ms);
        let continued = Clock { base_ms, boot: Arc::clone(&shown.boot), ahead: self.ahead };
        continued.corrected(shown).unwrap_or(continued)
    }

    /// The clock with a new offset, if the wall clock has been set; `None` if it has not.
    #[must_use]
    pub fn corrected(&self, shown: &Shown) -> Option<Clock> {
        let ahead_ms = shown.wall_ms.saturating_sub(self.own_ms(shown.since_boot_ms));
        let known_ms = self.ahead.saturating_mul(1_000);
        let is_news = ahead_ms.saturating_sub(known_ms).saturating_abs() > SLACK_MS;
        let rounded = ahead_ms.saturating_add(500).div_euclid(1_000);
        is_news.then(|| Clock { ahead: rounded, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn shown(boot: &str, since_boot_ms: i64, wall_ms: i64) -> Shown {
        Shown { boot: boot.into(), since_boot_ms, wall_ms }
    }

    #[test]
    fn a_new_journal_begins_with_the_time_on_the_wall() {
        let clock = Clock::default().resumed(Time(0), &shown("a", 5_000, 1_000_300));
        assert_eq!((clock.own_ms(5_000), clock.ahead), (1_000_300, 0));
    }

    #[test]
    fn a_set_wall_clock_moves_nothing_but_what_people_mean() {
        let clock = Clock::default().resumed(Time(0), &shown("a", 0, 9 * HOUR));
        assert_eq!(clock.corrected(&shown("a", 10_000, 9 * HOUR + 10_900)), None, "less than a second");
        let behind = clock.corrected(&shown("a", 10_000, 7 * HOUR + 10_000)).unwrap();
        assert_eq!((behind.own_ms(10_000), behind.ahead), (9 * HOUR + 10_000, -7_200));
        assert_eq!(behind.wall(Time(9 * 3600)), Time(7 * 3600));
        assert_eq!(behind.own(Time(7 * 3600)), Time(9 * 3600));
        assert_eq!(behind.corrected(&shown("a", 11_000, 7 * HOUR + 11_000)), None);
        let again = behind.corrected(&shown("a", 11_000, 9 * HOUR + 11_000)).unwrap();
        assert_eq!(again.ahead, 0);
    }

    #[test]
    fn a_restart_goes_on_with_the_same_boot_and_counts_the_time_between() {
        let clock = Clock::default().resumed(Time(0), &shown("a", 0, 9 * HOUR));
        // Two hours back on the wall clock, a minute later.
        let resumed = clock.resumed(Time(9 * 3600 + 10), &shown("a", 60_000, 7 * HOUR + 60_000));
        assert_eq!((resumed.own_ms(60_000), resumed.ahead), (9 * HOUR + 60_000, -7_200));
    }

    #[test]
    fn another_boot_goes_on_by_the_wall_but_never_back() {
        let clock = Clock::default().resumed(Time(0), &shown("a", 0, 9 * HOUR));
        let last = Time(9 * 3600 + 10);
        let later = clock.resumed(last, &shown("b", 500, 9 * HOUR + 70_000));
        assert_eq!((later.own_ms(500), later.ahead), (9 * HOUR + 70_000, 0));
        let earlier = clock.resumed(last, &shown("b", 500, 7 * HOUR));
        assert_eq!((earlier.own_ms(500), earlier.ahead), (9 * HOUR + 10_000, -7_210));
        // A machine restored to an earlier state has the same boot id, and less time since boot.
        let set_back = clock.resumed(last, &shown("a", 2_000, 9 * HOUR + 20_000));
        assert_eq!((set_back.own_ms(2_000), set_back.ahead), (9 * HOUR + 20_000, 0));
    }

    #[test]
    fn a_taker_goes_on_whatever_its_own_host_says() {
        let clock = Clock::default().resumed(Time(0), &shown("a", 0, 9 * HOUR));
        let last = Time(9 * 3600 + 10);
        // The new controller's wall clock is an hour ahead, which ages nothing.
        let taken = clock.continued(last, 9 * HOUR + 14_000, &shown("b", 77_000, 10 * HOUR + 14_000));
        assert_eq!((taken.own_ms(77_000), taken.ahead), (9 * HOUR + 14_000, 3_600));
        let not_back = clock.continued(last, 9 * HOUR, &shown("b", 77_000, 9 * HOUR));
        assert_eq!(not_back.own_ms(77_000), 9 * HOUR + 10_000);
    }

    #[test]
    fn a_journal_of_before_that_was_ahead_goes_on_at_once() {
        // The last entry is two hours ahead of the wall clock.
        let clock = Clock::default().resumed(Time(9 * 3600), &shown("a", 1_000, 7 * HOUR));
        assert_eq!((clock.own_ms(1_000), clock.ahead), (9 * HOUR, -7_200));
        assert_eq!(clock.own_ms(61_000), 9 * HOUR + 60_000);
    }
}
