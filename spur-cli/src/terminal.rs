//! The terminal, if there is one: whether, and how wide.

use std::io::{self, IsTerminal};

/// Columns where nothing is known.
pub const DEFAULT_WIDTH: usize = 80;

/// Whether the standard error is a terminal that shows progress.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal that is the standard output: what `COLUMNS` says, or the terminal itself.
pub fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    told.or_else(asked).unwrap_or(DEFAULT_WIDTH)
}
