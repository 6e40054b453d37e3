//! Numbers that identify jobs, nodes, steps and other objects.
//!
//! The controller assigns them, records them in the journal, and never uses one twice.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares a number that identifies one kind of object.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

number! {
    /// Number of a job, from 1. A task of an array gets a number of its own when it leaves the record that
    /// it shares with others, for example at its start.
    JobId
}
number! {
    /// Number of a node. It is assigned when the node's name first appears in a configuration, and never
    /// reused.
    NodeId
}
number! {
    /// Index in a job array, as the user wrote it (`--array=0-15`).
    ArrayTaskId
}
number! {
    /// Number of a step in its job. The batch script is [`StepId::BATCH`].
    StepId
}

impl StepId {
    /// Number of the batch script, which Slurm counts as a step. The value is the one of Slurm's protocol.
    pub const BATCH: StepId = StepId(0xffff_fffb);

    /// The text that `squeue -s` and `sacct` print: the number, or `batch`.
    #[must_use]
    pub fn label(self) -> String {
        if self == Self::BATCH { "batch".to_owned() } else { self.0.to_string() }
    }
}

impl NodeId {
    /// Position of the node in tables indexed by node.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the node at a position in a table indexed by node.
    ///
    /// # Panics
    ///
    /// Panics if the position does not fit u32, which no table reaches.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("nodes are numbered in u32"))
    }
}

/// One execution of a job. It is launched at most once on each of its nodes, and ends once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The executed job.
    pub job: JobId,
    /// Number of times the job was requeued before this attempt; 0 for the first attempt.
    pub restart: u32,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.r{}", self.job, self.restart)
    }
}

/// UUID by which a client identifies one mutating request, so that a repeated request has no second effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub [u8; 16]);

/// Name of a journal's history, chosen at random when the history begins. It is written in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryId(pub [u8; 16]);

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Error for a text that is no name of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a history is named by 32 hexadecimal digits")]
pub struct InvalidHistory;

impl std::str::FromStr for HistoryId {
    type Err = InvalidHistory;

    fn from_str(text: &str) -> Result<Self, InvalidHistory> {
        let whole = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| whole);
        number.map(|number| Self(number.to_be_bytes())).ok_or(InvalidHistory)
    }
}

impl Serialize for HistoryId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HistoryId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Number of a script or environment that is stored outside memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlobId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_attempts_read_as_users_know_them() {
        assert_eq!(StepId(3).label(), "3");
        assert_eq!(StepId::BATCH.label(), "batch");
        assert_eq!(Attempt { job: JobId(7), restart: 2 }.to_string(), "7.r2");
        assert_eq!("42".parse::<JobId>(), Ok(JobId(42)));
    }

    #[test]
    fn the_name_of_a_history_round_trips() {
        let id = HistoryId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "0", "+00102030405060708090a0b0c0d0eff", "zz0102030405060708090a0b0c0d0eff"] {
            assert_eq!(text.parse::<HistoryId>(), Err(InvalidHistory), "{text}");
        }
    }
}
