//! Points in time as users write them for `--begin` and `--deadline`.
//!
//! A text is parsed without a clock, and resolved against a clock and a time zone that the caller supplies.

use std::fmt;
use std::str::FromStr;

use nom::branch::alt;
use nom::bytes::complete::{tag_no_case, take_while_m_n};
use nom::character::complete::{alpha1, char, digit1, one_of, space0};
use nom::combinator::{all_consuming, map, map_opt, opt, value, verify};
use nom::sequence::{delimited, preceded, terminated};
use nom::{IResult, Parser};

use super::Time;
use crate::text::{ParseError, serde_as_text};

const WHAT: &str = "time";
const HELP: &str = "write now[+N[seconds|minutes|hours|days|weeks]], HH:MM[:SS] [AM|PM], midnight, noon, \
                    elevenses, fika, teatime, today, tomorrow, MMDD[YY], MM/DD[/YY], MM.DD[.YY], utsSECONDS or YYYY-MM-DD[THH:MM[:SS]]";

/// A date and a time of day in some time zone. It prints as `YYYY-MM-DDTHH:MM:SS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Civil {
    /// Year, e.g. 2026.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
}

impl Civil {
    /// Returns the civil time of `time` in UTC.
    pub fn from_utc(time: Time) -> Civil {
        let (days, seconds) = (time.0.div_euclid(86400), time.0.rem_euclid(86400));
        let (year, month, day) = date_of(days);
        let part = |n: i64| u8::try_from(n).expect("a part of a day is below 60");
        Civil {
            year,
            month,
            day,
            hour: part(seconds / 3600),
            minute: part(seconds / 60 % 60),
            second: part(seconds % 60),
        }
    }

    /// Returns the point in time if the civil time is in UTC; `None` for an invalid date or time of day.
    pub fn to_utc(self) -> Option<Time> {
        if self.day == 0 || self.day > days_in_month(self.year, self.month)? {
            return None;
        }
        let (hour, minute, second) = (i64::from(self.hour), i64::from(self.minute), i64::from(self.second));
        let clock = hour * 3600 + minute * 60 + second;
        let valid = hour < 24 && minute < 60 && second < 60;
        valid.then(|| Time(day_number(self.year, self.month, self.day) * 86400 + clock))
    }

    fn at(self, clock: TimeOfDay) -> Civil {
        Civil { hour: clock.hour, minute: clock.minute, second: clock.second, ..self }
    }

    fn plus_days(self, days: i64) -> Civil {
        let (year, month, day) = date_of(day_number(self.year, self.month, self.day) + days);
        Civil { year, month, day, ..self }
    }
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second } = self;
        f.pad(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"))
    }
}

/// The present, as a point in time and as civil time in the user's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilNow {
    /// Present point in time.
    pub time: Time,
    /// Present civil time in the user's time zone.
    pub civil: Civil,
}

/// A day as users write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Date {
    /// The present day, written `today`.
    Today,
    /// The next day, written `tomorrow`.
    Tomorrow,
    /// A day of this year, or of the next year if it has passed, written `MM/DD`, `MM.DD` or `MMDD`.
    MonthDay {
        /// Month, 1 to 12.
        month: u8,
        /// Day of the month, 1 to 31.
        day: u8,
    },
    /// A day with its year, written `YYYY-MM-DD`, `MM/DD/YY`, `MM.DD.YY` or `MMDDYY`.
    Full {
        /// Year, e.g. 2026.
        year: i32,
        /// Month, 1 to 12.
        month: u8,
        /// Day of the month, 1 to 31.
        day: u8,
    },
}

/// A time of day. Words such as `noon` are read as the hours they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
}

/// A point in time as users write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// A time relative to the present, written `now`, `now+90` or `now+2days`.
    Now {
        /// Seconds added to the present; negative for a time before it.
        offset: i64,
    },
    /// Seconds since the epoch, written `uts1700000000`.
    Epoch(i64),
    /// A time of day, of this day or of the next if it has passed.
    Clock(TimeOfDay),
    /// A day, at midnight unless a time of day is given.
    Day(Date, Option<TimeOfDay>),
}

/// Error for a [`When`] that stands for no point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhenError {
    /// The date does not exist, or the time zone skips this hour.
    #[error("there is no {0} in this time zone; give another date or time of day")]
    NoSuchTime(Civil),
}

impl When {
    /// Returns the point in time that this stands for at `now`.
    ///
    /// `to_epoch` converts a civil time in the time zone of `now.civil`, and returns `None` for a civil time
    /// that does not exist there.
    ///
    /// # Errors
    /// [`WhenError::NoSuchTime`] for a date such as 31 April.
    pub fn resolve(
        &self,
        now: CivilNow,
        to_epoch: &dyn Fn(Civil) -> Option<Time>,
    ) -> Result<Time, WhenError> {
        let point = |civil: Civil| to_epoch(civil).ok_or(WhenError::NoSuchTime(civil));
        match *self {
            When::Now { offset } => Ok(Time(now.time.0.saturating_add(offset))),
            When::Epoch(seconds) => Ok(Time(seconds)),
            When::Clock(clock) => {
                let today = now.civil.at(clock);
                point(if today < now.civil { today.plus_days(1) } else { today })
            }
            When::Day(date, clock) => {
                let start = now.civil.at(clock.unwrap_or_default());
                point(match date {
                    Date::Today => start,
                    Date::Tomorrow => start.plus_days(1),
                    Date::MonthDay { month, day } => {
                        let this_year = Civil { month, day, ..start };
                        let passed = this_year < now.civil;
                        Civil { year: start.year + i32::from(passed), ..this_year }
                    }
                    Date::Full { year, month, day } => Civil { year, month, day, ..start },
                })
            }
        }
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Date::Today => f.write_str("today"),
            Date::Tomorrow => f.write_str("tomorrow"),
            Date::MonthDay { month, day } => write!(f, "{month:02}/{day:02}"),
            Date::Full { year, month, day } => write!(f, "{year:04}-{month:02}-{day:02}"),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::Now { offset: 0 } => f.write_str("now"),
            When::Now { offset } => write!(f, "now{offset:+}"),
            When::Epoch(seconds) => write!(f, "uts{seconds}"),
            When::Clock(clock) => clock.fmt(f),
            When::Day(date, None) => date.fmt(f),
            When::Day(date @ Date::Full { .. }, Some(clock)) => write!(f, "{date}T{clock}"),
            When::Day(date, Some(clock)) => write!(f, "{date}-{clock}"),
        }
    }
}

impl FromStr for When {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<When, ParseError> {
        let parsed = all_consuming(when).parse(text.trim());
        let problem = "it is no time that is known here";
        parsed.map(|(_, when)| when).map_err(|_| ParseError::new(WHAT, text, problem, HELP))
    }
}

serde_as_text!(When);

fn when(input: &str) -> IResult<&str, When> {
    let separator = || opt(one_of("Tt- "));
    alt((
        preceded(tag_no_case("now"), map(opt(offset), |o| When::Now { offset: o.unwrap_or(0) })),
        map_opt(preceded(tag_no_case("uts"), digit1), |s: &str| s.parse().ok().map(When::Epoch)),
        map((date, opt(preceded(separator(), time_of_day))), |(date, clock)| When::Day(date, clock)),
        map((time_of_day, opt(preceded(separator(), date))), |(clock, date)| match date {
            Some(date) => When::Day(date, Some(clock)),
            None => When::Clock(clock),
        }),
    ))
    .parse(input)
}

/// Reads an offset in seconds: `+2hours`, `-90`, ` + 5 min`.
fn offset(input: &str) -> IResult<&str, i64> {
    let count = map_opt(digit1, |digits: &str| digits.parse::<i64>().ok());
    let unit = map_opt(opt(preceded(space0, alpha1)), |unit| unit.map_or(Some(1), unit_seconds));
    let sign = delimited(space0, alt((value(1, char('+')), value(-1, char('-')))), space0);
    map_opt((sign, count, unit), |(sign, count, unit): (i64, i64, i64)| {
        count.checked_mul(unit).map(|seconds| sign * seconds)
    })
    .parse(input)
}

/// Length of a unit in seconds, given by any beginning of its plural name; `None` for an unknown unit.
fn unit_seconds(unit: &str) -> Option<i64> {
    let units = [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86400), ("weeks", 604_800)];
    let unit = unit.to_ascii_lowercase();
    units.iter().find(|(name, _)| name.starts_with(&unit)).map(|&(_, seconds)| seconds)
}

/// Reads between `min` and `max` digits whose value is between `low` and `high`, all bounds included.
fn digits<'a>(
    (min, max): (usize, usize),
    (low, high): (u8, u8),
) -> impl Parser<&'a str, Output = u8, Error = nom::error::Error<&'a str>> {
    let number = map_opt(take_while_m_n(min, max, |c: char| c.is_ascii_digit()), |d: &str| d.parse().ok());
    verify(number, move |n| (low..=high).contains(n))
}

fn time_of_day(input: &str) -> IResult<&str, TimeOfDay> {
    let hour = |hour| TimeOfDay { hour, minute: 0, second: 0 };
    alt((
        value(hour(0), tag_no_case("midnight")),
        value(hour(11), tag_no_case("elevenses")),
        value(hour(12), tag_no_case("noon")),
        value(hour(15), tag_no_case("fika")),
        value(hour(16), tag_no_case("teatime")),
        clock,
    ))
    .parse(input)
}

/// Reads `HH:MM[:SS][AM|PM]`.
fn clock(input: &str) -> IResult<&str, TimeOfDay> {
    let sixty = || digits((2, 2), (0, 59));
    let half = alt((value(false, tag_no_case("am")), value(true, tag_no_case("pm"))));
    map_opt(
        (
            digits((1, 2), (0, 23)),
            preceded(char(':'), sixty()),
            opt(preceded(char(':'), sixty())),
            opt(preceded(opt(char(' ')), half)),
        ),
        |(hour, minute, second, afternoon)| {
            let hour = match (afternoon, hour) {
                (None, hour) => hour,
                (Some(_), 0 | 13..) => return None,
                (Some(false), 12) => 0,
                (Some(true), 12) => 12,
                (Some(false), hour) => hour,
                (Some(true), hour) => hour + 12,
            };
            Some(TimeOfDay { hour, minute, second: second.unwrap_or(0) })
        },
    )
    .parse(input)
}

fn date(input: &str) -> IResult<&str, Date> {
    alt((
        value(Date::Today, tag_no_case("today")),
        value(Date::Tomorrow, tag_no_case("tomorrow")),
        iso_date,
        compact_date,
        parted_date('/'),
        parted_date('.'),
    ))
    .parse(input)
}

fn checked(year: i32, month: u8, day: u8) -> Option<Date> {
    (1..=days_in_month(year, month)?).contains(&day).then_some(Date::Full { year, month, day })
}

/// Reads `YYYY-MM-DD`.
fn iso_date(input: &str) -> IResult<&str, Date> {
    let year = map_opt(take_while_m_n(4, 4, |c: char| c.is_ascii_digit()), |d: &str| d.parse().ok());
    let parts = (
        terminated(year, char('-')),
        terminated(digits((1, 2), (1, 12)), char('-')),
        digits((1, 2), (1, 31)),
    );
    map_opt(parts, |(year, month, day): (i32, u8, u8)| checked(year, month, day)).parse(input)
}

/// Reads `MMDD[YY]`.
fn compact_date(input: &str) -> IResult<&str, Date> {
    let two = |low, high| digits((2, 2), (low, high));
    let year = opt(map(two(0, 99), |year| 2000 + i32::from(year)));
    map_opt((two(1, 12), two(1, 31), year), |(month, day, year)| in_year(year, month, day)).parse(input)
}

/// Reads `MM/DD[/YY]` or `MM.DD[.YY]`. The year may also have four digits.
fn parted_date(between: char) -> impl Fn(&str) -> IResult<&str, Date> {
    move |input| {
        let long = map_opt(take_while_m_n(4, 4, |c: char| c.is_ascii_digit()), |d: &str| d.parse().ok());
        let short = map(digits((2, 2), (0, 99)), |year| 2000 + i32::from(year));
        let year = opt(preceded(char(between), alt((long, short))));
        map_opt(
            (digits((1, 2), (1, 12)), preceded(char(between), digits((1, 2), (1, 31))), year),
            |(month, day, year)| in_year(year, month, day),
        )
        .parse(input)
    }
}

fn in_year(year: Option<i32>, month: u8, day: u8) -> Option<Date> {
    match year {
        Some(year) => checked(year, month, day),
        // The date is checked against a leap year, because the year is known only when the text is resolved.
        None => checked(2000, month, day).map(|_| Date::MonthDay { month, day }),
    }
}

fn days_in_month(year: i32, month: u8) -> Option<u8> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(28 + u8::from(leap)),
        _ => None,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that the leap
/// day is the last day of its year.
fn day_number(year: i32, month: u8, day: u8) -> i64 {
    let (month, day) = (i64::from(month), i64::from(day));
    let year = i64::from(year) - i64::from(month <= 2);
    let months = (month + 9) % 12;
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + day_of_year - 719_468
}

/// Returns the date of a day number: the inverse of [`day_number`].
fn date_of(number: i64) -> (i32, u8, u8) {
    let shifted = number + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let small = |n: i64| u8::try_from(n).expect("months and days are below 32");
    (i32::try_from(year).unwrap_or(i32::MAX), small(month), small(day))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Friday 2026-11-20 14:30:00 UTC.
    fn now() -> CivilNow {
        let civil = Civil { year: 2026, month: 11, day: 20, hour: 14, minute: 30, second: 0 };
        CivilNow { time: civil.to_utc().unwrap(), civil }
    }

    #[test]
    fn every_spelling_resolves_in_utc() {
        for (text, expected) in [
            ("now", "2026-11-20T14:30:00"),
            ("now+90", "2026-11-20T14:31:30"),
            ("now+1hour", "2026-11-20T15:30:00"),
            ("NOW+2days", "2026-11-22T14:30:00"),
            ("now+1week", "2026-11-27T14:30:00"),
            ("now+10 min", "2026-11-20T14:40:00"),
            ("now + 1 hour", "2026-11-20T15:30:00"),
            ("now-1days", "2026-11-19T14:30:00"),
            ("16:00", "2026-11-20T16:00:00"),
            ("14:30", "2026-11-20T14:30:00"),
            ("9:05", "2026-11-21T09:05:00"),
            ("4:00PM", "2026-11-20T16:00:00"),
            ("12:00am", "2026-11-21T00:00:00"),
            ("12:15:30 PM", "2026-11-21T12:15:30"),
            ("midnight", "2026-11-21T00:00:00"),
            ("noon", "2026-11-21T12:00:00"),
            ("elevenses", "2026-11-21T11:00:00"),
            ("fika", "2026-11-20T15:00:00"),
            ("teatime", "2026-11-20T16:00:00"),
            ("today", "2026-11-20T00:00:00"),
            ("tomorrow", "2026-11-21T00:00:00"),
            ("tomorrow-noon", "2026-11-21T12:00:00"),
            ("16:00 tomorrow", "2026-11-21T16:00:00"),
            ("123126", "2026-12-31T00:00:00"),
            ("12/31", "2026-12-31T00:00:00"),
            ("1231", "2026-12-31T00:00:00"),
            ("1231-10:00", "2026-12-31T10:00:00"),
            ("12.31", "2026-12-31T00:00:00"),
            ("12.31.27", "2027-12-31T00:00:00"),
            ("uts1795176697", "2026-11-20T12:11:37"),
            ("01/31", "2027-01-31T00:00:00"),
            ("11/20", "2027-11-20T00:00:00"),
            ("11/20-15:00", "2026-11-20T15:00:00"),
            ("12/31/27", "2027-12-31T00:00:00"),
            ("12/31/2027-10:00", "2027-12-31T10:00:00"),
            ("2027-02-28", "2027-02-28T00:00:00"),
            ("2027-02-28T09:10", "2027-02-28T09:10:00"),
            ("2027-02-28T09:10:11", "2027-02-28T09:10:11"),
        ] {
            let when: When = text.parse().unwrap();
            let time = when.resolve(now(), &Civil::to_utc).unwrap();
            assert_eq!(Civil::from_utc(time).to_string(), expected, "{text}");
            assert_eq!(when.to_string().parse(), Ok(when), "{text}");
        }
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "then",
            "now+",
            "now+5years",
            "25:00",
            "12:60",
            "13:00PM",
            "0:30AM",
            "1630",
            "2027-02-29",
            "13/01",
            "04/31",
            "130126",
            "2027-1",
            "noon midnight",
            "2027-02-28X10:00",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
        let leap: When = "02/29".parse().unwrap();
        let error = leap.resolve(now(), &Civil::to_utc).unwrap_err().to_string();
        let expected = "there is no 2027-02-29T00:00:00 in this time zone; give another date or time of day";
        assert_eq!(error, expected);
    }

    proptest! {
        #[test]
        fn civil_round_trip(seconds in -100_000_000_000_i64..100_000_000_000) {
            prop_assert_eq!(Civil::from_utc(Time(seconds)).to_utc(), Some(Time(seconds)));
        }

        #[test]
        fn days_follow_each_other(number in -1_000_000_i64..1_000_000) {
            let (year, month, day) = date_of(number);
            prop_assert_eq!(day_number(year, month, day), number);
            let (_, _, next) = date_of(number + 1);
            prop_assert!(next == day + 1 || (next == 1 && Some(day) == days_in_month(year, month)));
        }

        #[test]
        fn offsets_round_trip(offset: i32) {
            let when = When::Now { offset: offset.into() };
            prop_assert_eq!(when.to_string().parse(), Ok(when));
        }
    }
}
