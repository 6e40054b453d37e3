//! The terminal of this command while a task has its keys (`--pty`).
//!
//! Keys go to the task as they are, Ctrl-C too, from the moment it runs; the terminal is as it was again on every way out
//! but SIGKILL.

use std::io;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use spur_proto::v1::StepWindow;

/// A terminal that passes keys on as they are, until this is dropped.
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    /// Sets the terminal that is the standard input; `None` if that is none.
    ///
    /// # Errors
    /// What the system says.
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
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The size of the terminal; where there is none, the usual one.
pub(super) fn window() -> StepWindow {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    StepWindow { rows: rows.into(), columns: columns.into() }
}
