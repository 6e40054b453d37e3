//! Time on a timeline, in 32 bits.

use crate::text::time::Time;

/// Seconds since the beginning of a timeline. The range is 136 years; what is free only later counts as never
/// free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Second(pub(crate) u32);

impl Second {
    /// The beginning of a timeline.
    pub(crate) const BEGIN: Self = Self(0);
    /// The last moment of a timeline; later moments become this one, except never.
    pub(crate) const LAST: Self = Self(u32::MAX - 1);
    /// Later than any moment.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// Converts a time to a timeline that begins at `begin`; earlier times become the beginning.
    pub(crate) fn of(time: Time, begin: Time) -> Self {
        if time.is_never() {
            return Self::NEVER;
        }
        u32::try_from(time.since(begin)).map_or(Self::LAST, |seconds| Self(seconds).min(Self::LAST))
    }

    /// Converts back to a time, for a timeline that begins at `begin`.
    pub(crate) fn time(self, begin: Time) -> Time {
        if self.is_never() { Time::MAX } else { begin + u64::from(self.0) }
    }

    /// True if the moment never comes.
    #[inline]
    pub(crate) fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// The moment `seconds` later; never, if that is beyond the last moment.
    #[inline]
    pub(crate) fn after(self, seconds: u32) -> Self {
        let later = Self(self.0.saturating_add(seconds));
        if later < Self::LAST { later } else { Self::NEVER }
    }

    /// Seconds since an earlier moment; [`FOR_EVER`] if this is never.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> u32 {
        if self.is_never() { FOR_EVER } else { self.0 - earlier.0.min(self.0) }
    }
}

/// A length in seconds that is longer than any that ends.
pub(crate) const FOR_EVER: u32 = u32::MAX;

/// A length of time in the units of a timeline; at most [`FOR_EVER`].
pub(crate) fn length(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(FOR_EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_beyond_the_last_are_kept_apart_from_those_before() {
        let begin = Time(1_000);
        for (time, second) in [
            (Time(0), Second::BEGIN),
            (begin, Second::BEGIN),
            (begin + 5, Second(5)),
            (begin + u64::from(u32::MAX - 2), Second(u32::MAX - 2)),
            (begin + u64::from(u32::MAX - 1), Second::LAST),
            (begin + u64::from(u32::MAX), Second::LAST),
            (begin + (1 << 40), Second::LAST),
            (Time::MAX, Second::NEVER),
        ] {
            assert_eq!(Second::of(time, begin), second, "{time:?}");
        }
        assert_eq!(Second(5).time(begin), begin + 5);
        assert_eq!(Second::NEVER.time(begin), Time::MAX);
        assert_eq!(Second(5).after(7), Second(12));
        assert_eq!(Second(5).after(FOR_EVER), Second::NEVER);
        assert_eq!(Second(u32::MAX - 4).after(3), Second::NEVER);
        assert_eq!(Second(12).since(Second(5)), 7);
        assert_eq!(Second::NEVER.since(Second(5)), FOR_EVER);
    }
}
