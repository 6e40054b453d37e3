//! The terminal: detection and width.

use std::io::{self, IsTerminal};

/// Number of columns if the width is unknown.
pub const DEFAULT_WIDTH: usize = 80;

/// True if the standard error is a terminal that can show progress.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the width of the standard output in columns: `COLUMNS`, or the terminal's own, or
/// [`DEFAULT_WIDTH`].
pub fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    told.or_else(asked).unwrap_or(DEFAULT_WIDTH)
}
