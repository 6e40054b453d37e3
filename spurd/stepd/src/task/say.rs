//! Lines of spurstepd's own in the standard error of a task.

use std::io::{self, Write};

/// Returns the system's words for an error, without Rust's ` (os error N)`.
pub(super) fn text(error: &io::Error) -> String {
    let full = error.to_string();
    full.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Writes a line to the task's standard error.
pub(super) fn say(message: &str) {
    // Without a working standard error there is no way to report a failure.
    let _ = writeln!(io::stderr(), "slurmstepd: error: {message}");
}
