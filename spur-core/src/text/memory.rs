//! Amounts of memory and temporary disk, in mebibytes.

use std::fmt;
use std::str::FromStr;

use super::number::{self, Unit};
use super::{ParseError, serde_as_text};

const KIBI: &[Unit] = &[
    ("K", 1),
    ("KB", 1),
    ("", 1 << 10),
    ("M", 1 << 10),
    ("MB", 1 << 10),
    ("G", 1 << 20),
    ("GB", 1 << 20),
    ("T", 1 << 30),
    ("TB", 1 << 30),
    ("P", 1 << 40),
    ("PB", 1 << 40),
];
const SHOWN: &[Unit] = &[("M", 1), ("G", 1 << 10), ("T", 1 << 20), ("P", 1 << 30)];

/// An amount of memory in mebibytes.
///
/// It reads `4096`, `512M`, `4G`, `1T` and `1048576K`, which is rounded up to the next mebibyte. It prints
/// the largest unit that divides it: `4G`, `1536M`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryMb(pub u64);

/// Most memory or temporary disk that a request may ask for: 1 EiB. Its product with the nodes and CPUs of a
/// cluster still fits 64 bits.
pub const MOST: MemoryMb = MemoryMb(1 << 40);

/// Returns an amount in MiB, or refuses it if it is above [`MOST`].
///
/// # Errors
/// A text with the amount requested and the limit.
pub fn check(asked: u64) -> Result<u64, String> {
    match MemoryMb(asked) {
        asked if asked > MOST => {
            Err(format!("{} MiB are more than any node has; ask ≤ {} MiB", asked.0, MOST.0))
        }
        _ => Ok(asked),
    }
}

impl fmt::Display for MemoryMb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("0");
        }
        let (count, unit) = number::largest_unit(self.0, SHOWN);
        f.pad(&format!("{count}{unit}"))
    }
}

impl FromStr for MemoryMb {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<MemoryMb, ParseError> {
        let kibi = number::with_unit(text.trim_start().trim_start_matches('+'), KIBI);
        kibi.map(|k| MemoryMb(k.div_ceil(1024))).map_err(|e| {
            let help = "write a number of megabytes or a number with K, M, G or T, e.g. `4096` or `4G`";
            ParseError::new("memory size", text, e.to_string(), help)
        })
    }
}

serde_as_text!(MemoryMb);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, mebi, shown) in [
            ("0", 0, "0"),
            ("4096", 4096, "4G"),
            ("4G", 4096, "4G"),
            ("4gb", 4096, "4G"),
            ("512M", 512, "512M"),
            ("1.5G", 1536, "1536M"),
            ("1T", 1 << 20, "1T"),
            ("1048576K", 1024, "1G"),
            ("1025K", 2, "2M"),
            ("515000M", 515_000, "515000M"),
        ] {
            assert_eq!(text.parse(), Ok(MemoryMb(mebi)), "{text}");
            assert_eq!(MemoryMb(mebi).to_string(), shown);
        }
        for text in ["", "G", "-1", "4X", "4 G", "99999999999999999999"] {
            assert!(text.parse::<MemoryMb>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(mebi in 0..(u64::MAX >> 10)) {
            prop_assert_eq!(MemoryMb(mebi).to_string().parse(), Ok(MemoryMb(mebi)));
        }
    }
}
