//! Points in time, time limits and durations, in Slurm's spellings.

mod limit;
mod seconds;
mod when;

pub use limit::{Elapsed, TimeLimit};
pub use seconds::Seconds;
pub use when::{Civil, CivilNow, Date, TimeOfDay, When, WhenError};

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A point in time in whole seconds since 1970-01-01T00:00:00Z. It serializes as that integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// The end of time, which stands for never.
    pub const MAX: Time = Time(i64::MAX);
    /// The epoch, 1970-01-01T00:00:00Z.
    pub const ZERO: Time = Time(0);

    /// Seconds from `earlier` to this point; 0 if `earlier` is the later of the two.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// True if the point is [`Time::MAX`].
    #[inline]
    pub fn is_never(self) -> bool {
        self == Time::MAX
    }
}

/// Adds seconds, with [`Time::MAX`] as the largest result. Adding to [`Time::MAX`] returns [`Time::MAX`].
impl Add<u64> for Time {
    type Output = Time;

    #[inline]
    fn add(self, seconds: u64) -> Time {
        Time(self.0.saturating_add_unsigned(seconds))
    }
}

/// Seconds between two points, negative if the right-hand one is later.
impl Sub for Time {
    type Output = i64;

    #[inline]
    fn sub(self, other: Time) -> i64 {
        self.0.saturating_sub(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time(5) + 7, Time(12));
        assert_eq!(Time(5) + u64::MAX, Time::MAX);
        assert_eq!(Time::MAX + 1, Time::MAX);
        assert_eq!(Time(5) - Time(7), -2);
        assert_eq!(Time::MAX - Time(-1), i64::MAX);
        assert_eq!(Time(5).since(Time(7)), 0);
        assert_eq!(Time(7).since(Time(5)), 2);
    }
}
