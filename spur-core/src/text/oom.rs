//! Treatment of a step of which a process was killed for lack of memory: the `--oom-kill-step` option.

use std::str::FromStr;

use super::ParseError;

/// True if the whole step ends when the kernel has killed one of its processes for lack of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OomKillStep(pub bool);

impl OomKillStep {
    /// Environment variable that passes the option to a step.
    pub const VARIABLE: &str = "SLURM_OOM_KILL_STEP";
}

impl FromStr for OomKillStep {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "" | "1" => Ok(Self(true)),
            "0" => Ok(Self(false)),
            _ => Err(ParseError::new("--oom-kill-step", text, "it is not known", "say 0 or 1")),
        }
    }
}
