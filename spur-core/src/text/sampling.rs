//! Intervals at which the use of tasks is sampled: the `--acctg-freq` option, e.g. `30`,
//! `task=30,network=60`.

use std::fmt;
use std::str::FromStr;

use super::ParseError;

const HELP: &str =
    "write seconds, or TYPE=SECONDS with commas between; types are task, energy, network and filesystem";
const TYPES: [&str; 4] = ["task", "energy", "network", "filesystem"];

/// Sampling intervals. Only the interval of tasks has an effect, because nothing else is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingIntervals {
    /// Interval in seconds at which tasks are sampled; 0 for no sampling, `None` for the node's own interval.
    pub tasks: Option<u32>,
}

impl SamplingIntervals {
    /// Environment variable that passes the intervals to a step.
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
            // Slurm accepts a unit after the number and ignores it: `30s`, `30m`.
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
