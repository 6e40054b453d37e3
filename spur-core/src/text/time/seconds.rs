//! Durations in the configuration: `30s`, `5m`, `2h`, `1d`, or a bare number of seconds.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::limit::clock_seconds;
use crate::text::ParseError;
use crate::text::number::{self, Unit};

const UNITS: &[Unit] = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 604_800), ("", 1)];

/// A duration in seconds.
///
/// It reads an integer, `30s`, `5m`, `2h`, `1d`, `1w`, or Slurm's `HH:MM:SS` and `D-HH:MM:SS`. It prints the
/// largest unit up to a day that divides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = number::largest_unit(self.0, &UNITS[..4]);
        f.pad(&format!("{count}{unit}"))
    }
}

impl FromStr for Seconds {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Seconds, ParseError> {
        let colons = text.bytes().filter(|&b| b == b':').count();
        let read = if text.contains('-') || colons == 2 {
            clock_seconds(text)
        } else {
            number::with_unit(text, UNITS).map_err(|e| e.to_string())
        };
        read.map(Seconds).map_err(|problem| {
            let help = "write `30s`, `5m`, `2h`, `1d` or a number of seconds";
            ParseError::new("duration", text, problem, help)
        })
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = Seconds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\" or a number of seconds")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Seconds, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Seconds, E> {
                Ok(Seconds(seconds))
            }

            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                let seconds = u64::try_from(seconds);
                seconds.map(Seconds).map_err(|_| E::custom("a duration cannot be negative"))
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, seconds, shown) in [
            ("30s", 30, "30s"),
            ("90", 90, "90s"),
            ("5m", 300, "5m"),
            ("1.5h", 5400, "90m"),
            ("2H", 7200, "2h"),
            ("1d", 86400, "1d"),
            ("2w", 1_209_600, "14d"),
            ("0", 0, "0s"),
            ("1:00:00", 3600, "1h"),
            ("1-00:00:00", 86400, "1d"),
        ] {
            assert_eq!(text.parse(), Ok(Seconds(seconds)), "{text}");
            assert_eq!(Seconds(seconds).to_string(), shown);
        }
        for text in ["", "s", "-5", "5 s", "5y", "1:30"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_and_texts_deserialize() {
        assert_eq!(serde_json::from_str::<Seconds>("30").unwrap(), Seconds(30));
        assert_eq!(serde_json::from_str::<Seconds>("\"5m\"").unwrap(), Seconds(300));
        assert!(serde_json::from_str::<Seconds>("-1").is_err());
        assert_eq!(serde_json::to_string(&Seconds(300)).unwrap(), "\"5m\"");
    }

    proptest! {
        #[test]
        fn round_trip(seconds: u64) {
            prop_assert_eq!(Seconds(seconds).to_string().parse(), Ok(Seconds(seconds)));
        }
    }
}
