//! Terminal of this command while a task has its keys (`--pty`).
//!
//! All keys, including Ctrl-C, are passed to the task once it runs. The terminal is restored on every exit
//! except by SIGKILL.

use std::io;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use spur_proto::v1::StepWindow;

/// A terminal in raw mode, which is restored on drop.
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    /// Sets the terminal on the standard input to raw mode; `None` without a terminal.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn set() -> io::Result<Option<Raw>> {
        let terminal = io::stdin();
        if !isatty(&terminal) {
            return Ok(None);
        }
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Some(Raw { before }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A closed terminal needs no restoration.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Returns the size of the terminal, or 24 rows and 80 columns without one.
pub(super) fn window() -> StepWindow {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    StepWindow { rows: rows.into(), columns: columns.into() }
}
