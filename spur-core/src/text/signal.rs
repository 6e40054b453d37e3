//! Signals by name and number, and the warning signal of the `--signal` option.

use std::fmt;
use std::str::FromStr;

use super::nearest::nearest;
use super::number::integer32;
use super::{ParseError, serde_as_text};

/// Names of Linux's signals, from number 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Other names in use for the same numbers.
const ALIASES: [(&str, u8); 3] = [("IOT", 6), ("CLD", 17), ("POLL", 29)];
const RT_MIN: u8 = 34;
const RT_MAX: u8 = 64;

/// A Linux signal number, 1 to 64. It reads `15`, `TERM` or `SIGTERM`, and prints the name without `SIG`, or
/// the number if the signal has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

impl Signal {
    /// Reports that the terminal is closed.
    pub const HUP: Signal = Signal(1);
    /// Asks a process to end, from a terminal.
    pub const INT: Signal = Signal(2);
    /// Asks a process to end and write a core file, from a terminal.
    pub const QUIT: Signal = Signal(3);
    /// Ends a process immediately; cannot be caught.
    pub const KILL: Signal = Signal(9);
    /// Asks a process to end.
    pub const TERM: Signal = Signal(15);
    /// Continues a stopped process.
    pub const CONT: Signal = Signal(18);
    /// Stops a process; cannot be caught.
    pub const STOP: Signal = Signal(19);
    /// Asks a process to stop, from a terminal.
    pub const TSTP: Signal = Signal(20);

    /// Returns the signal of this number; `None` if Linux has no such signal.
    pub fn new(number: u8) -> Option<Signal> {
        (1..=RT_MAX).contains(&number).then_some(Signal(number))
    }

    /// The signal's number, 1 to 64.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The signal's name without `SIG`; `None` if it has none.
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(usize::from(self.0) - 1).copied()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl FromStr for Signal {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Signal, ParseError> {
        const HELP: &str = "write a number from 1 to 64 or a name such as `TERM` or `USR1`";
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let by_name = NAMES.iter().position(|known| *known == name).map(|at| at + 1);
        let by_alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|a| usize::from(a.1));
        let by_number = || text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let number = by_name.or_else(by_alias).or_else(|| real_time(name)).or_else(by_number);
        let signal = number.and_then(|n| u8::try_from(n).ok()).and_then(Signal::new);
        signal.ok_or_else(|| {
            let problem = match nearest(name, NAMES) {
                Some(known) => format!("there is no such signal; did you mean `{known}`?"),
                None => "there is no such signal".to_owned(),
            };
            ParseError::new("signal", text, problem, HELP)
        })
    }
}

/// Reads `RTMIN`, `RTMIN+3`, `RTMAX-1` or `RTMAX` as a number; `None` for any other text.
fn real_time(name: &str) -> Option<usize> {
    let offset = |rest: &str, sign| match rest.strip_prefix(sign) {
        Some(digits) => integer32(digits).ok().and_then(|n| u8::try_from(n).ok()),
        None => rest.is_empty().then_some(0),
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => RT_MIN.checked_add(offset(rest, '+')?)?,
        (_, Some(rest)) => RT_MAX.checked_sub(offset(rest, '-')?)?,
        _ => return None,
    };
    (RT_MIN..=RT_MAX).contains(&number).then_some(number.into())
}

/// Value of `--signal=[R|B:]SIGNAL[@SECONDS]`: a signal that the job gets some time before its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarnSignal {
    /// Signal to send.
    pub signal: Signal,
    /// Time before the end of the time limit at which the signal is sent, in seconds.
    pub seconds: u16,
    /// True if only the batch shell gets the signal (`B:`), false if only the steps get it.
    pub batch_only: bool,
    /// True if the job may overlap a reservation that can start late (`R:`).
    pub overlap_reservation: bool,
}

impl WarnSignal {
    /// Time before the end at which the signal is sent if none is given, in seconds.
    pub const DEFAULT_SECONDS: u16 = 60;
}

impl fmt::Display for WarnSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reservation = if self.overlap_reservation { "R" } else { "" };
        let batch = if self.batch_only { "B" } else { "" };
        let colon = if self.overlap_reservation || self.batch_only { ":" } else { "" };
        write!(f, "{reservation}{batch}{colon}{}@{}", self.signal, self.seconds)
    }
}

impl FromStr for WarnSignal {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<WarnSignal, ParseError> {
        const HELP: &str = "write [R|B:]SIGNAL[@SECONDS], e.g. `B:USR1@120`";
        let refuse = |problem: String| ParseError::new("warning signal", text, problem, HELP);
        let (flags, rest) = text.split_once(':').unwrap_or(("", text));
        let flags = flags.to_ascii_uppercase();
        if (text.contains(':') && flags.is_empty()) || !flags.chars().all(|c| c == 'R' || c == 'B') {
            return Err(refuse(format!("`{flags}` is neither R nor B")));
        }
        let (signal, seconds) = match rest.split_once('@') {
            Some((signal, seconds)) => (signal, seconds.parse().ok()),
            None => (rest, Some(WarnSignal::DEFAULT_SECONDS)),
        };
        Ok(WarnSignal {
            signal: signal.parse().map_err(|e: ParseError| refuse(e.problem))?,
            seconds: seconds.ok_or_else(|| refuse("seconds are a number up to 65535".to_owned()))?,
            batch_only: flags.contains('B'),
            overlap_reservation: flags.contains('R'),
        })
    }
}

serde_as_text!(Signal, WarnSignal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in [
            ("TERM", 15),
            ("sigterm", 15),
            ("15", 15),
            ("SIGUSR1", 10),
            ("CLD", 17),
            ("RTMIN+1", 35),
            ("64", 64),
        ] {
            assert_eq!(text.parse::<Signal>().unwrap().number(), number, "{text}");
        }
        for text in ["", "0", "65", "SIG", "SIG15", "-9", "RTMIN+31", "RTMAX+1", "300"] {
            assert!(text.parse::<Signal>().is_err(), "{text}");
        }
        let error = "TREM".parse::<Signal>().unwrap_err().to_string();
        assert!(error.contains("did you mean `TERM`?"), "{error}");
    }

    #[test]
    fn every_signal_round_trips() {
        for number in 1..=64 {
            let signal = Signal::new(number).unwrap();
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
    }

    #[test]
    fn warnings() {
        for (text, shown) in [
            ("USR1", "USR1@60"),
            ("B:USR1@120", "B:USR1@120"),
            ("R:10@5", "R:USR1@5"),
            ("rb:TERM", "RB:TERM@60"),
        ] {
            let warning: WarnSignal = text.parse().unwrap();
            assert_eq!(warning.to_string(), shown);
            assert_eq!(shown.parse(), Ok(warning));
        }
        for text in ["", ":USR1", "X:USR1", "USR1@", "USR1@65536", "B:", "USR1@-1"] {
            assert!(text.parse::<WarnSignal>().is_err(), "{text}");
        }
    }
}
