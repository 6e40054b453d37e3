//! The error that all parsers of this module return.

use std::fmt;

/// Most characters of a refused text that an error quotes, so that a log line keeps a reasonable length.
const QUOTE_CHARS: usize = 80;

/// Most characters of an error's problem, which may quote parts of the text.
const PROBLEM_CHARS: usize = 400;

/// Error for a text that could not be read: the kind expected, the text, the problem and an accepted form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} `{}`: {}; {help}", Quoted(input, QUOTE_CHARS), Quoted(problem, PROBLEM_CHARS))]
pub struct ParseError {
    /// Kind of text expected, e.g. `time limit`.
    pub what: &'static str,
    /// Whole text as given.
    pub input: String,
    /// Problem with the text.
    pub problem: String,
    /// Forms that would be accepted.
    pub help: &'static str,
}

impl ParseError {
    pub(crate) fn new(
        what: &'static str,
        input: &str,
        problem: impl Into<String>,
        help: &'static str,
    ) -> ParseError {
        ParseError { what, input: input.to_owned(), problem: problem.into(), help }
    }
}

/// A text as an error quotes it: control characters are escaped, and characters beyond the number given are
/// cut.
struct Quoted<'a>(&'a str, usize);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(self.1) {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        if chars.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_escape_control_characters_and_cut_long_texts() {
        assert_eq!(Quoted("a\nb", QUOTE_CHARS).to_string(), "a\\nb");
        let long = "x".repeat(QUOTE_CHARS + 1);
        assert_eq!(Quoted(&long, QUOTE_CHARS).to_string(), format!("{}…", "x".repeat(QUOTE_CHARS)));
    }

    #[test]
    fn an_error_says_what_where_and_what_would_work() {
        let error = ParseError::new("size", "x", "no digits", "write `4G`");
        assert_eq!(error.to_string(), "invalid size `x`: no digits; write `4G`");
    }
}
