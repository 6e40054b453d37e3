//! The name of one attempt to run one step on this node.
//!
//! A [`StepAttempt`] is launched at most once and ends once: a step of one attempt of a job. Its written form
//! (`42.0.batch`, `42.1.3`) names its directory and its marker in the spool, so it round-trips exactly and
//! never holds a path separator.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spur_core::id::{Attempt, JobId, StepId};

/// One step of one attempt of a job, on the node that holds the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepAttempt {
    /// The attempt of the job.
    pub attempt: Attempt,
    /// The step of that attempt.
    pub step: StepId,
}

impl fmt::Display for StepAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", file_name(self.attempt), self.step.label())
    }
}

/// Returns the name of the files and directories of a job's attempt: `42.0`.
pub fn file_name(attempt: Attempt) -> String {
    format!("{}.{}", attempt.job, attempt.restart)
}

/// A text that is not the written form of a [`StepAttempt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name an attempt (expected JOB.RESTART.STEP, for example 42.0.batch)")]
pub struct InvalidAttempt(String);

impl FromStr for StepAttempt {
    type Err = InvalidAttempt;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('.');
            let job = JobId(number(parts.next()?)?);
            let restart = number(parts.next()?)?;
            let step = match parts.next()? {
                "batch" => StepId::BATCH,
                digits => StepId(number(digits)?),
            };
            parts.next().is_none().then_some(StepAttempt { attempt: Attempt { job, restart }, step })
        };
        parse().ok_or_else(|| InvalidAttempt(text.to_owned()))
    }
}

/// Reads a number in its one written form: digits only, no leading zero. `None` for any other text.
fn number(text: &str) -> Option<u32> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

impl Serialize for StepAttempt {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepAttempt {
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
        for text in ["42.0.batch", "1.7.0", "4294967295.1.4294967290"] {
            assert_eq!(text.parse::<StepAttempt>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "42", "42.0", "42.0.batch.1", "042.0.1", "42.+1.0", "42.0.Batch", "../x.0.1", "42.0.-1"]
        {
            let refused = text.parse::<StepAttempt>().unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
}
