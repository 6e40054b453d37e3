//! Points in time as users write them, in their time zone.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use spur_core::text::time::{Civil, CivilNow, Date, Time, When};

/// Converts a time to seconds since the Unix epoch.
///
/// # Errors
/// A date or time of day that does not exist in this zone.
pub fn moment(when: &When, zone: &TimeZone, now: Timestamp) -> Result<i64, String> {
    let local = now.to_zoned(zone.clone());
    let now = CivilNow { time: Time(now.as_second()), civil: civil_of(&local) };
    let to_epoch = |civil: Civil| {
        let [month, day, hour, minute, second] =
            [civil.month, civil.day, civil.hour, civil.minute, civil.second]
                .map(|part| i8::try_from(part).ok());
        let year = i16::try_from(civil.year).ok()?;
        let time = DateTime::new(year, month?, day?, hour?, minute?, second?, 0).ok()?;
        Some(Time(time.to_zoned(zone.clone()).ok()?.timestamp().as_second()))
    };
    when.resolve(now, &to_epoch).map(|time| time.0).map_err(|e| e.to_string())
}

fn civil_of(local: &Zoned) -> Civil {
    let part = |part: i8| u8::try_from(part).unwrap_or_default();
    Civil {
        year: i32::from(local.year()),
        month: part(local.month()),
        day: part(local.day()),
        hour: part(local.hour()),
        minute: part(local.minute()),
        second: part(local.second()),
    }
}

/// Converts a time in the past: a time of day is today, and a day is in this year.
///
/// # Errors
/// A date or time of day that does not exist in this zone.
pub fn past_moment(when: When, zone: &TimeZone, now: Timestamp) -> Result<i64, String> {
    let this_year = i32::from(now.to_zoned(zone.clone()).year());
    let when = match when {
        When::Clock(clock) => When::Day(Date::Today, Some(clock)),
        When::Day(Date::MonthDay { month, day }, clock) => {
            When::Day(Date::Full { year: this_year, month, day }, clock)
        }
        other => other,
    };
    moment(&when, zone, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T12:11:37 UTC.
    const NOW: i64 = 1_795_176_697;

    #[test]
    fn what_has_been_is_not_in_the_future() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = Timestamp::from_second(NOW).unwrap();
        let midnight = NOW - (13 * 3600 + 11 * 60 + 37);
        for (text, wanted) in [
            ("now", NOW),
            ("now-1hour", NOW - 3600),
            ("10:00", midnight + 10 * 3600),
            ("11/01", midnight - 19 * 86400),
            ("2026-11-20", midnight),
            ("midnight", midnight),
        ] {
            assert_eq!(past_moment(text.parse().unwrap(), &zone, now), Ok(wanted), "{text}");
        }
        assert_eq!(moment(&"10:00".parse().unwrap(), &zone, now), Ok(midnight + 34 * 3600));
        let no_day = When::Day(Date::Full { year: 2026, month: 2, day: 31 }, None);
        assert!(moment(&no_day, &zone, now).is_err());
    }
}
