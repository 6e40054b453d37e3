//! The name of one attempt to run one step on this node.
//!
//! An [`Attempt`] is what is launched at most once and ended once: a step of one incarnation of a job. Its
//! written form (`42.0.batch`, `42.1.3`) names its directory and its marker in the spool, so it round-trips
//! exactly and never holds a path separator.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which step of a job: the batch script, or a step by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepName {
    /// The batch script.
    Batch,
    /// A step that `srun` created, by its number within the job.
    Number(u32),
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepName::Batch => f.write_str("batch"),
            StepName::Number(number) => write!(f, "{number}"),
        }
    }
}

/// One step of one incarnation of a job, on the node that holds the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The job's number.
    pub job: u32,
    /// How often the job had been started before.
    pub restart: u32,
    /// The step.
    pub step: StepName,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.restart, self.step)
    }
}

/// A text that is not the written form of an [`Attempt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name an attempt (expected JOB.RESTART.STEP, for example 42.0.batch)")]
pub struct InvalidAttempt(String);

impl FromStr for Attempt {
    type Err = InvalidAttempt;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('.');
            let job = number(parts.next()?)?;
            let restart = number(parts.next()?)?;
            let step = match parts.next()? {
                "batch" => StepName::Batch,
                digits => StepName::Number(number(digits)?),
            };
            parts.next().is_none().then_some(Attempt { job, restart, step })
        };
        parse().ok_or_else(|| InvalidAttempt(text.to_owned()))
    }
}

/// Reads a number in its one written form: digits only, no leading zero.
fn number(text: &str) -> Option<u32> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

impl Serialize for Attempt {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Attempt {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_round_trip() {
        for text in ["42.0.batch", "1.7.0", "4294967295.1.4294967295"] {
            assert_eq!(text.parse::<Attempt>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "42", "42.0", "42.0.batch.1", "042.0.1", "42.+1.0", "42.0.Batch", "../x.0.1", "42.0.-1"] {
            let refused = text.parse::<Attempt>().unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
}
