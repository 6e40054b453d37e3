//! Result of a process: exit code and signal.

use std::fmt;
use std::str::FromStr;

use super::{ParseError, serde_as_text};

/// Exit code and signal of a process, a step or a job. It prints as `code:signal`, e.g. `0:15`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExitCode {
    /// Value the process passed to `exit`; 0 if a signal ended it.
    pub code: u8,
    /// Number of the signal that ended the process; 0 if it exited.
    pub signal: u8,
}

impl ExitCode {
    /// Success, `0:0`.
    pub const SUCCESS: ExitCode = ExitCode { code: 0, signal: 0 };
    /// Code that Slurm reports for tasks, steps and jobs that ran out of memory, `0:125`.
    pub const OUT_OF_MEMORY: ExitCode = ExitCode { code: 0, signal: 125 };

    /// Returns the code of a process that exited with `code`.
    pub fn exited(code: u8) -> ExitCode {
        ExitCode { code, signal: 0 }
    }

    /// Returns the code of a process that `signal` ended.
    pub fn signaled(signal: u8) -> ExitCode {
        ExitCode { code: 0, signal }
    }

    /// Key by which Slurm compares results.
    ///
    /// Out of memory ranks highest, then the wait status, in which a code counts more than a signal.
    #[must_use]
    pub fn rank(&self) -> (bool, u8, u8) {
        (*self == Self::OUT_OF_MEMORY, self.code, self.signal)
    }

    /// True if the result is `0:0`.
    pub fn is_success(self) -> bool {
        self == ExitCode::SUCCESS
    }

    /// Single number that a shell shows: the code, or 128 + the signal; 1 for out of memory, as in Slurm.
    pub fn shell(self) -> u8 {
        match self {
            ExitCode::OUT_OF_MEMORY => 1,
            ExitCode { code, signal: 0 } => code,
            ExitCode { signal, .. } => 128_u8.saturating_add(signal),
        }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.code, self.signal))
    }
}

impl FromStr for ExitCode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<ExitCode, ParseError> {
        let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
        let number = |part: &str| {
            let digits = part.bytes().all(|b| b.is_ascii_digit());
            part.parse::<u8>().ok().filter(|_| digits)
        };
        match (number(code), number(signal)) {
            (Some(code), Some(signal)) => Ok(ExitCode { code, signal }),
            _ => {
                let problem = "code and signal are numbers up to 255";
                Err(ParseError::new("exit code", text, problem, "write CODE[:SIGNAL], e.g. `0:15`"))
            }
        }
    }
}

serde_as_text!(ExitCode);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shown_and_as_a_shell_has_it() {
        for (code, shown, shell) in [
            (ExitCode::SUCCESS, "0:0", 0),
            (ExitCode::exited(1), "1:0", 1),
            (ExitCode::exited(255), "255:0", 255),
            (ExitCode::signaled(15), "0:15", 143),
            (ExitCode::signaled(11), "0:11", 139),
        ] {
            assert_eq!((code.to_string().as_str(), code.shell()), (shown, shell));
        }
        assert!(ExitCode::SUCCESS.is_success());
        assert!(!ExitCode::signaled(9).is_success());
    }

    #[test]
    fn refused() {
        for text in ["", "x", "256", "1:", "1:2:3", "-1", "+1"] {
            assert!(text.parse::<ExitCode>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(code: u8, signal: u8) {
            let exit = ExitCode { code, signal };
            prop_assert_eq!(exit.to_string().parse(), Ok(exit));
        }
    }
}
