//! How often it is looked at what tasks use: `30`, `task=30,network=60` (`--acctg-freq`).

use std::fmt;
use std::str::FromStr;

use super::ParseError;

const HELP: &str =
    "write seconds, or TYPE=SECONDS with commas between; types are task, energy, network and filesystem";
const TYPES: [&str; 4] = ["task", "energy", "network", "filesystem"];

/// Intervals between two looks. Those of tasks alone mean anything: nothing else is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingIntervals {
    /// Seconds between two looks at tasks; 0: nobody looks; `None`: as the node does without.
    pub tasks: Option<u32>,
}

impl SamplingIntervals {
    /// The variable by which a step has them.
    pub const VARIABLE: &str = "SLURM_ACCTG_FREQ";
}

impl fmt::Display for SamplingIntervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tasks.map_or(Ok(()), |tasks| write!(f, "task={tasks}"))
    }
}

impl FromStr for SamplingIntervals {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |problem: String| ParseError::new("sampling interval", text, problem, HELP);
        let mut tasks = None;
        for item in text.split(',') {
            let (kind, seconds) = item.split_once('=').unwrap_or(("task", item));
            // A unit behind the number is taken and says nothing, as in Slurm: `30s`, `30m`.
            let number = seconds.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let seconds: u32 =
                number.parse().map_err(|_| refuse(format!("`{seconds}` is no number of seconds")))?;
            match TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(kind)) {
                Some("task") => tasks = Some(seconds),
                Some(_) => {}
                None => return Err(refuse(format!("there is no type `{kind}`"))),
            }
        }
        Ok(Self { tasks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, tasks) in [
            ("30", Some(30)),
            ("task=5,network=60", Some(5)),
            ("Task=0", Some(0)),
            ("energy=1", None),
            ("task=30s", Some(30)),
        ] {
            assert_eq!(text.parse::<SamplingIntervals>().unwrap().tasks, tasks, "{text}");
        }
        for (text, problem) in [
            ("", "`` is no number of seconds"),
            ("task=x", "`x` is no number of seconds"),
            ("tasks=1", "there is no type `tasks`"),
            ("1,", "`` is no number of seconds"),
        ] {
            assert_eq!(text.parse::<SamplingIntervals>().unwrap_err().problem, problem, "{text}");
        }
    }
}
