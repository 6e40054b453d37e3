//! Time limits (`1-02:00:00`, `UNLIMITED`) and the printed form of run times.

use std::fmt;
use std::str::FromStr;

use super::Time;
use crate::text::number;
use crate::text::{ParseError, serde_as_text};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

const WHAT: &str = "time limit";
const HELP: &str = "write MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED";

/// Longest run time of a job or step. Any limit in seconds orders before `Unlimited`.
///
/// It reads Slurm's spellings (`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`, and `UNLIMITED`, `INFINITE` or
/// `-1`) and prints the form of `squeue %l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeLimit {
    /// The run time is limited to this number of seconds.
    Seconds(u64),
    /// The run time is not limited.
    Unlimited,
}

impl TimeLimit {
    /// Latest end of a run that starts at `start`; [`Time::MAX`] without a limit.
    pub fn end(self, start: Time) -> Time {
        match self {
            TimeLimit::Seconds(seconds) => start + seconds,
            TimeLimit::Unlimited => Time::MAX,
        }
    }

    /// The limit in seconds; `None` for no limit.
    pub fn seconds(self) -> Option<u64> {
        match self {
            TimeLimit::Seconds(seconds) => Some(seconds),
            TimeLimit::Unlimited => None,
        }
    }

    /// Prints the limit in the form of `scontrol show job`: `00:10:00`, `1-02:00:00`, `UNLIMITED`.
    pub fn long(self) -> String {
        match self {
            TimeLimit::Seconds(seconds) => Elapsed(seconds).long(),
            TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeLimit::Seconds(seconds) => Elapsed(*seconds).fmt(f),
            TimeLimit::Unlimited => f.pad("UNLIMITED"),
        }
    }
}

impl FromStr for TimeLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TimeLimit, ParseError> {
        if ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Ok(TimeLimit::Unlimited);
        }
        let seconds = clock_seconds(text);
        seconds.map(TimeLimit::Seconds).map_err(|problem| ParseError::new(WHAT, text, problem, HELP))
    }
}

serde_as_text!(TimeLimit);

/// Reads `D-[H[:M[:S]]]` with a day count, or `M[:S]` or `H:M:S` without one, as seconds.
pub(super) fn clock_seconds(text: &str) -> Result<u64, String> {
    let (days, clock) = match text.split_once('-') {
        Some((days, "")) => (Some(days), "0"),
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let number = |text| number::integer(text).map_err(|e| e.to_string());
    let fields = clock.split(':').map(number).collect::<Result<Vec<u64>, _>>()?;
    let scales: &[u64] = match (days, fields.len()) {
        (Some(_), 1..=3) | (None, 3) => &[HOUR, MINUTE, 1],
        (None, 1..=2) => &[MINUTE, 1],
        _ => return Err("there are more than three fields".to_owned()),
    };
    let days = days.map_or(Ok(0), number)?;
    let mut terms = fields.iter().copied().zip(scales.iter().copied()).chain([(days, DAY)]);
    terms
        .try_fold(0_u64, |sum, (field, scale)| sum.checked_add(field.checked_mul(scale)?))
        .ok_or_else(|| "the time is too long".to_owned())
}

/// A number of seconds that prints as a run time: `0:05`, `1:02:03`, `1-02:03:04`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elapsed(pub u64);

impl Elapsed {
    /// Prints the run time with hours and with two digits in each part: `00:00:05`, `1-02:03:04`.
    pub fn long(self) -> String {
        let (days, hours, minutes, seconds) = self.split();
        if days > 0 {
            format!("{days}-{hours:02}:{minutes:02}:{seconds:02}")
        } else {
            format!("{hours:02}:{minutes:02}:{seconds:02}")
        }
    }

    fn split(self) -> (u64, u64, u64, u64) {
        let Elapsed(s) = self;
        (s / DAY, s % DAY / HOUR, s % HOUR / MINUTE, s % MINUTE)
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours, minutes, seconds) = self.split();
        let text = match (days, hours) {
            (0, 0) => format!("{minutes}:{seconds:02}"),
            (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
            _ => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slurm_spellings() {
        for (text, seconds) in [
            ("60", 3600),
            ("60:15", 3615),
            ("1:60:15", 7215),
            ("0-1:60:15", 7215),
            ("1-0", 86400),
            ("3-", 259_200),
            ("1-2", 93600),
            ("1-2:3", 93780),
            ("7-00:00:00", 604_800),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(TimeLimit::Seconds(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "infinite", "-1"] {
            assert_eq!(text.parse(), Ok(TimeLimit::Unlimited), "{text}");
        }
        for text in ["", "60:", "60:-10", " 0:0:0 ", "1:2:3:4", "-", "1-:30", "-2", "1-2-3", "5x", "1d"] {
            assert!(text.parse::<TimeLimit>().is_err(), "{text}");
        }
        assert!("99999999999999999-0".parse::<TimeLimit>().is_err());
        assert_eq!(
            "5x".parse::<TimeLimit>().unwrap_err().to_string(),
            "invalid time limit `5x`: a number is expected; write MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, \
             D-HH:MM:SS or UNLIMITED"
        );
    }

    #[test]
    fn shown_as_squeue_and_scontrol_do() {
        for (seconds, short, long) in [
            (0, "0:00", "00:00:00"),
            (5, "0:05", "00:00:05"),
            (600, "10:00", "00:10:00"),
            (3600, "1:00:00", "01:00:00"),
            (93600, "1-02:00:00", "1-02:00:00"),
        ] {
            assert_eq!(TimeLimit::Seconds(seconds).to_string(), short);
            assert_eq!(TimeLimit::Seconds(seconds).long(), long);
        }
        assert_eq!(TimeLimit::Unlimited.to_string(), "UNLIMITED");
        assert_eq!(format!("{:>6}|", Elapsed(5)), "  0:05|");
    }

    #[test]
    fn limits_order_and_end() {
        assert!(TimeLimit::Seconds(u64::MAX) < TimeLimit::Unlimited);
        assert_eq!(TimeLimit::Seconds(10).end(Time(5)), Time(15));
        assert_eq!(TimeLimit::Unlimited.end(Time(5)), Time::MAX);
    }

    proptest! {
        #[test]
        fn round_trip(seconds in 0..u64::MAX) {
            let limit = TimeLimit::Seconds(seconds);
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
            if seconds >= HOUR {
                prop_assert_eq!(limit.long().parse(), Ok(limit));
            }
        }
    }
}
